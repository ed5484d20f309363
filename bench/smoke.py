# SPDX-License-Identifier: Apache-2.0
"""bench/run --smoke: is every figure still measured, and near what docs/bench.md says of it?"""
import collections
import os
import subprocess

PAGE = os.path.join("docs", "bench.md")
HEADING = "## What a short run finds"
FACTOR = 2
TRIES = 3  # a moment of other work on the machine is no finding


def usual(root):
    """{(figure, metric): [value or None, ...]}: the page's table, values in the order of reporting."""
    values = {}
    with open(os.path.join(root, PAGE), encoding="utf-8") as file:
        section = file.read().split(HEADING + "\n", 1)[1].split("\n## ", 1)[0]
    for line in section.splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 3 or cells[0] in ("figure", "---"):
            continue
        values[cells[0], cells[1]] = [None if word == "-" else float(word)
                                      for word in cells[2].split(", ")]
    return values


def unknown_rows(root, figures):
    """Rows of the page's table that no figure reports."""
    return ["%s %s" % row for row in usual(root)
            if row[0] not in figures or row[1] not in [metric[0] for metric in figures[row[0]].metrics]]


class Judge:
    """Holds each line of a figure against the page."""

    def __init__(self, root):
        self.values = usual(root)
        self.begin()

    def begin(self):
        self.told = collections.Counter()

    def verdict(self, bench, metric, value):
        """(ok, reason): ok is None where the page has no value."""
        known, at = self.values.get((bench, metric), []), self.told[metric]
        self.told[metric] += 1
        expected = known[at] if at < len(known) else None
        if expected is None:
            return None, "measured; the page has no value for a short run"
        near = expected / FACTOR <= value <= expected * FACTOR
        return near, "usually %g" % expected


def inputs_of(build, targets):
    """Source files of targets of a build folder, relative to the root."""
    done = subprocess.run(["ninja", "-C", build, "-t", "inputs", *sorted(targets)], check=True,
                          capture_output=True, text=True)
    return done.stdout.split()


def touched(root, build, figures, since):
    """Names of the figures that measure a folder in which a commit since then changed a file."""
    done = subprocess.run(["git", "diff", "--name-only", since, "--"], cwd=root, check=True,
                          capture_output=True, text=True)
    folders = {os.path.dirname(path) for path in done.stdout.split() if path.endswith((".c", ".h", ".def", ".py"))}
    names = []
    for name, figure in figures.items():
        inputs = {os.path.relpath(os.path.join(build, path), root) for path in inputs_of(build, figure.targets)}
        if "bench" in folders or folders & {os.path.dirname(path) for path in inputs}:
            names.append(name)
    return names
