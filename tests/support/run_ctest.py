# SPDX-License-Identifier: Apache-2.0
"""Runs ctest and says at the end what its summary leaves out.

    run_ctest.py BUILD_FOLDER [CTEST_ARGUMENT]...

Prints, before ctest's own summary, which still ends the output:
  - each test that passed only when it was run again,
  - each test that a module left out, with the reason; ctest itself counts whole modules only.
The exit status is ctest's.
"""
import pathlib
import re
import subprocess
import sys

RESULT = re.compile(r"Test +#\d+: (\S+) \.*(.*)")
SUMMARY = re.compile(r"^\d+% tests passed")
MODULE = re.compile(r"^\d+/\d+ Test: (\S+)")
SKIPS = (re.compile(r"^skipped: (.*)"),  # tests/harness.c
         re.compile(r"^(\S+) \(.*\) \.\.\. skipped '(.*)'"),  # unittest
         re.compile(r"^(?:.*: )?skipped: (.*)"))


def run(folder, arguments):
    """(status, the lines of the summary, names that needed another try)."""
    held, failed, again = [], set(), []
    process = subprocess.Popen(["ctest", "--test-dir", folder, *arguments], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    for line in process.stdout:
        if held or SUMMARY.match(line):
            held.append(line)
            continue
        print(line, end="", flush=True)
        result = RESULT.search(line)
        if not result:
            continue
        name, how = result.groups()
        if "Passed" in how and name in failed:
            again.append(name)
        elif "***" in how:
            failed.add(name)
    return process.wait(), held, again


def skips_in(log):
    """{module: [what was left out and why]}, in the order of the log."""
    found, module = {}, "?"
    for line in log.read_text(errors="replace").splitlines():
        begins = MODULE.match(line)
        module = begins.group(1) if begins else module
        matches = (pattern.match(line) for pattern in SKIPS)
        said = next((": ".join(match.groups()) for match in matches if match), None)
        if said and said not in found.setdefault(module, []):
            found[module].append(said)
    return {module: texts for module, texts in found.items() if texts}


def main():
    folder, arguments = sys.argv[1], sys.argv[2:]
    status, summary, again = run(folder, arguments)
    log = pathlib.Path(folder) / "Testing/Temporary/LastTest.log"
    skips = skips_in(log) if log.exists() else {}
    count = sum(len(texts) for texts in skips.values())
    print(f"\n{count} tests were left out within their modules")
    for module, texts in skips.items():
        for text in texts:
            print(f"  skipped  {module}  {text}")
    print(f"{len(again)} tests passed only when they were run again")
    for name in again:
        print(f"  again    {name}")
    print("\n" + "".join(summary), end="", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
