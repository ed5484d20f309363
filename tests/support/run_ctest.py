# SPDX-License-Identifier: Apache-2.0
"""Chooses entries of ctest, runs them, and says at the end what ctest's summary leaves out.

    run_ctest.py BUILD_FOLDER [--full [--part K/N]] [--since REV] [--builds] [CTEST_ARGUMENT]...

  --full         also the entries labelled full: repeats, long chaos, mutants, what takes hours
  --part K/N     of them the Kth of N parts of about equal length. What each part showed is written to
                 build/full.json, with the commit; `--part 0/N` only prints that file
  --since REV    only entries whose files, or whose rooms of the product, changed since REV
  --builds       runs nothing; prints which other builds the chosen entries start programs of

Where /dev/shm has room, entries write there and not to the disk: a test waits for no flush of a disk that
others use (CAIRN_TEST_MEMORY names another folder, or none). A line `on=disk` keeps an entry on the disk.

Prints, before ctest's own summary, which still ends the output, what the entries cost where many ran
(tests/support/costs.py tells it of the last run), and each test that a module left out, with the
reason; ctest itself counts whole modules only. Where `--repeat until-pass:N` lets an entry run again, each
that passed only then is listed, too. The exit status is ctest's, or 1 where an entry ran
nothing although this machine lacks nothing that its line names.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import costs

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "full.json"
MEMORY, MEMORY_BYTES = "/dev/shm", 6 << 30  # and what all entries that run at once may need of it
RESULT = re.compile(r"Test +#\d+: (\S+) \.*(.*)")
SUMMARY = re.compile(r"^\d+% tests passed")
MODULE = re.compile(r"^\d+/\d+ Test: (\S+)")
SKIPS = (re.compile(r"^skipped: (.*)"),  # tests/harness.c
         re.compile(r"^(\S+) \(.*\) \.\.\. skipped '(.*)'"),  # unittest
         re.compile(r"^(?:.*: )?skipped: (.*)"))
# What every entry depends on, and folders that no program is made of.
OF_ALL = ("CMakeLists.txt", "CMakePresets.json", "tests/tests.cmake", "tests/entries.cmake", "tests/harness",
          "tests/reports.", "tests/support/", "setup/", "include/")
# Labels of what a machine may lack; other entries say it by `lacks=`. Whatever else runs nothing is a fault.
MAY_LACK = {"arm64", "docker", "gpu", "libmicrohttpd", "moto", "postgresql", "python", "swift", "torch", "ui"}
PAGES = ("docs/", "README", ".ci/", "LICENSE", "bench/")


class Entry:
    """One entry of ctest, as CMake described it."""

    def __init__(self, described):
        said = {one["name"]: one["value"] for one in described["properties"]}
        self.name, self.command = described["name"], described.get("command", [])
        self.labels, self.cost = set(said.get("LABELS", [])), said.get("COST", 1.0)
        self.seconds = self.cost - 1000 * said.get("PROCESSORS", 1)  # as tests/tests.cmake adds them up
        variables = dict(text.split("=", 1) for text in said.get("ENVIRONMENT", []) if "=" in text)
        self.rooms = variables.get("CAIRN_TEST_ROOMS", "").split(",")
        self.source = variables.get("CAIRN_TEST_SOURCE", "")
        self.may_lack = bool(variables.get("CAIRN_TEST_LACKS") or self.labels & MAY_LACK)

    def touched(self, path):
        """Whether a change of this file can change how the entry ends."""
        if path == "test" or path.startswith(OF_ALL):
            return True
        if path.startswith("tests/"):
            own = path.startswith(self.source.rsplit("/", 1)[0] + "/") if self.source else False
            other = re.search(r"/(test_|chaos)[^/]*$", path)
            return path == self.source or (own and not other) or self.of_the_tree()
        if path.startswith(PAGES):
            return self.of_the_tree()
        return self.of_the_tree() or any(room and path.startswith(room) for room in self.rooms)

    def of_the_tree(self):
        return self.name.startswith(("tidy/", "docs/", "api/openapi", "python/protocol", "mutants/fit"))


def entries(folder, arguments):
    said = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1", *arguments], check=True,
                          capture_output=True, text=True).stdout
    return [Entry(one) for one in json.loads(said[said.index("{"):])["tests"]]


def changed_since(revision):
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True,
                              text=True).stdout.splitlines()
    return sorted({*git("diff", "--name-only", revision), *git("ls-files", "--others", "--exclude-standard")})


def part_of(chosen, number, count):
    """Longest first, each to the part that is shortest by then."""
    parts = [[] for _ in range(count)]
    for entry in sorted(chosen, key=lambda one: (-one.cost, one.name)):
        min(parts, key=lambda part: sum(one.cost for one in part)).append(entry)
    return parts[number - 1]


def run(folder, arguments):
    """(status, the lines of the summary, names that needed another try, names that ran nothing)."""
    held, failed, again, skipped = [], set(), [], []
    with subprocess.Popen(["ctest", "--test-dir", folder, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, errors="replace") as process:
        for line in process.stdout:
            if held or SUMMARY.match(line):
                held.append(line)
            elif not line.lstrip().startswith("Start "):
                print(line, end="", flush=True)
            result = RESULT.search(line)
            if result and "***" in result.group(2):
                failed.add(result.group(1))
            elif result and "Passed" in result.group(2) and result.group(1) in failed:
                again.append(result.group(1))
            if result and "***Skipped" in result.group(2):
                skipped.append(result.group(1))
    return process.returncode, held, again, skipped


def must_run(chosen, skipped):
    """Those of the skipped that have no reason to be: a module that is left out unseen tests nothing for ever."""
    may_lack = {one.name for one in chosen if one.may_lack}
    return [name for name in skipped if name not in may_lack]


def choose_memory():
    if "CAIRN_TEST_MEMORY" in os.environ:
        return
    try:
        room = os.statvfs(MEMORY)
    except OSError:
        return
    is_memory = any(line.split()[1:3] == [MEMORY, "tmpfs"] for line in open("/proc/mounts", encoding="utf-8"))
    if is_memory and room.f_bavail * room.f_frsize >= MEMORY_BYTES and os.access(MEMORY, os.W_OK):
        os.environ["CAIRN_TEST_MEMORY"] = MEMORY


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


def take(words, name, values=1):
    """Removes an option of ours from the words; its value, or None."""
    if name not in words:
        return None
    at = words.index(name)
    if len(words) <= at + values:
        sys.exit(f"test: {name} needs a value; tests/README.md has examples")
    value = words[at + 1] if values else True
    del words[at:at + 1 + values]
    return value


def exclude(words, labels):
    """Also entries with such a label: of several --label-exclude ctest leaves out what all of them match."""
    for name in ("-LE", "--label-exclude"):
        while other := take(words, name):
            labels += "|" + other
    words += ["--label-exclude", labels]


def record(part, status, summary):
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True,
                            text=True, check=False).stdout.strip()
    known[part] = {"commit": commit, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                   "green": status == 0, "summary": summary[0].strip() if summary else ""}
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def choose(folder, words):
    """(ctest's arguments for what is chosen, the chosen entries, the part)."""
    full, part = take(words, "--full", 0), take(words, "--part")
    since = take(words, "--since")
    if not full:
        exclude(words, "^full$")
    chosen = every = [one for one in entries(folder, words) if not one.name.startswith("reports/")]
    if since:
        changes = changed_since(since)
        chosen = [one for one in every if any(one.touched(path) for path in changes)]
        print(f"test: {len(changes)} files changed since {since}: {len(chosen)} entries are run, "
              f"{len(every) - len(chosen)} are left out", flush=True)
    if part:
        number, count = map(int, part.split("/"))
        if number == 0:
            print(RESULTS.read_text() if RESULTS.exists() else "test: no part was run yet", end="")
            sys.exit(0)
        chosen = part_of(chosen, number, count)
        print(f"test: part {part}: {len(chosen)} of {len(every)} entries", flush=True)
    if since or part:
        words += ["-R", "^(" + "|".join(re.escape(one.name) for one in chosen) + ")$"]
    return words, chosen, part


def main():
    folder, words = sys.argv[1], sys.argv[2:]
    builds = take(words, "--builds", 0)
    words, chosen, part = choose(folder, words)
    if builds:
        print(*sorted({build for one in chosen for build in ("tsan", "shipped")
                       if one.name.startswith({"tsan": "tsan/", "shipped": ("e2e/", "package/", "sim/")}[build])}))
        return 0
    if not chosen:
        print("test: no entry is chosen")
        return 0 if "-R" in words and "^()$" in words else 1
    choose_memory()
    print(f"test: entries write below {os.environ.get('CAIRN_TEST_MEMORY') or os.environ.get('TMPDIR', '/tmp')}", flush=True)
    status, summary, again, skipped = run(folder, words)
    log = pathlib.Path(folder) / "Testing/Temporary/LastTest.log"
    skips = skips_in(log) if log.exists() else {}
    spent = costs.read(log) if log.exists() else []
    if len(spent) > 20:
        print("\nwhat the entries cost", *costs.table(spent, 15), sep="\n")
        print(*costs.untrue(spent, {one.name: one.seconds for one in chosen}), sep="\n")
    print(f"\n{sum(map(len, skips.values()))} tests were left out within their modules")
    for module, texts in skips.items():
        for text in texts:
            print(f"  skipped  {module}  {text}")
    if "--repeat" in words:
        print(f"{len(again)} entries passed only when they were run again")
        for name in again:
            print(f"  again    {name}")
    unexpected = must_run(chosen, skipped)
    for name in unexpected:
        print(f"test: FAILED: {name} ran nothing, and its `ctest:` line names nothing that a machine may lack")
    status = status or (1 if unexpected else 0)
    if part:
        record(part, status, summary)
    print("\n" + "".join(summary), end="", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
