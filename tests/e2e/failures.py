# SPDX-License-Identifier: Apache-2.0
"""What is kept and shown of a test that fails: the last lines of the log of each daemon that lives then, and
the folder that it wrote to. unittest tells it of each failure; world.py of each world."""
import contextlib
import sys
import unittest

SHOWN_BYTES = 3000
living = set()  # worlds whose close() has not begun
kept = set()  # their folders, where a test failed meanwhile


def tails(root):
    """Of the logs that are there; a daemon that ends may move its own away meanwhile."""
    shown = []
    for path in sorted(root.glob("*.log")):
        with contextlib.suppress(FileNotFoundError):
            shown.append(f"--- {path.name}\n{path.read_text(errors='replace')[-SHOWN_BYTES:]}")
    return "\n".join(shown)


def _told(method):
    def tell(result, test, *details):
        method(result, test, *details)
        if method.__name__ == "addSubTest" and (not details or details[-1] is None):
            return
        for world in living:
            kept.add(world.root)
            print(f"{test}: the logs of {world.root}\n{tails(world.root)}", file=sys.stderr)
    return tell


for _name in ("addError", "addFailure", "addSubTest"):
    setattr(unittest.TextTestResult, _name, _told(getattr(unittest.TextTestResult, _name)))
