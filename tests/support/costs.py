# SPDX-License-Identifier: Apache-2.0
"""What the entries of the last run cost, from the line that tests/support/watched.py ends each with.

    costs.py [LOG] [-n COUNT]      of the build build/dev, 15 entries a table

The first table names what keeps processors busy, the second what waits longest beside that: two ways to
make the suite shorter. Entries that ran more than once are counted each time.
"""
import argparse
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOG = ROOT / "build/dev/Testing/Temporary/LastTest.log"
MODULE = re.compile(r"^\d+/\d+ Test(?:ing)?: (\S+)")
WATCHED = re.compile(r"^watched: ([0-9.]+) s, ([0-9.]+) s on processors(?:, ([0-9.]+) s of them in the kernel)?")


def read(log):
    """[(name, seconds, seconds on processors, of them in the kernel)]"""
    found, name = [], None
    with open(log, errors="replace", encoding="utf-8") as lines:
        for line in lines:
            if begins := MODULE.match(line):
                name = begins.group(1)
            elif name and (told := WATCHED.match(line)):
                found.append((name, *(float(one or 0) for one in told.groups())))
                name = None
    return found


def table(entries, count):
    """Its lines: the sums by the first part of the names, the busiest and those that wait longest."""
    parts = {}
    for name, seconds, busy, kernel in entries:
        of = parts.setdefault(name.split("/")[0], [0, 0, 0, 0])
        of[0], of[1], of[2], of[3] = of[0] + 1, of[1] + seconds, of[2] + busy, of[3] + kernel
    total = [sum(column) for column in zip(*parts.values())] or [0, 0, 0, 0]

    def row(name, seconds, busy, kernel):
        return f"  {seconds:8.1f} {busy:8.1f} {kernel:8.1f}  {name}"
    lines = ["  seconds  on processors, in the kernel"]
    lines += [row(f"{name} ({of[0]} entries)", *of[1:]) for name, of in sorted(parts.items(), key=lambda one: -one[1][2])]
    lines += [row(f"all {total[0]} entries", *total[1:]), f"the {count} that keep processors busy longest"]
    lines += [row(*one) for one in sorted(entries, key=lambda one: -one[2])[:count]]
    lines += [f"the {count} that wait longest"]
    lines += [row(*one) for one in sorted(entries, key=lambda one: one[2] - one[1])[:count]]
    return lines


def untrue(entries, claimed):
    """Lines of those whose `seconds=` is far from what they took, since the longest are started first. claimed: {name: seconds}."""
    lines = []
    for name, seconds, _, _ in sorted(entries, key=lambda one: -one[1]):
        says = claimed.get(name, seconds)
        if seconds > 2 * says + 30 or 4 * seconds + 30 < says:
            lines.append(f"  {seconds:8.1f} {says:8.0f}  {name}")
    return ["  seconds   claimed, of those that say another time (the longest are started first)", *lines] if lines else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", nargs="?", default=LOG)
    parser.add_argument("-n", type=int, default=15, metavar="COUNT")
    words = parser.parse_args()
    print(*table(read(words.log), words.n), sep="\n")


if __name__ == "__main__":
    main()
