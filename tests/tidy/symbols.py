# SPDX-License-Identifier: Apache-2.0
"""Is each function defined once? `symbols.py BUILD_FOLDER` asks the libraries of a build.

A linker that finds two functions of one name in archives takes one of them and says nothing: callers of the other
run code that was never meant for them."""
import pathlib
import re
import subprocess
import sys

# Of fields that nm prints: the archive and its member, where it stands, its kind, its name.
LINE = re.compile(r"^(.*?):(\S+?):[0-9a-f]+ ([TDBR]) (\S+)$")
GENERATED = re.compile(r"^(__|_)")  # of sanitizers and coverage


def main():
    archives = sorted(pathlib.Path(sys.argv[1]).glob("libpart_*.a"))
    if not archives:
        sys.exit(f"{sys.argv[1]} has no libpart_*.a")
    listed = subprocess.run(["nm", "-A", "--defined-only", *archives], capture_output=True, text=True, check=True)
    places = {}
    for line in listed.stdout.splitlines():
        match = LINE.match(line)
        if match and not GENERATED.match(match.group(4)):
            places.setdefault(match.group(4), set()).add(f"{pathlib.Path(match.group(1)).name}({match.group(2)})")
    twice = {name: where for name, where in places.items() if len(where) > 1}
    for name, where in sorted(twice.items()):
        print(f"{name} is defined in {' and in '.join(sorted(where))}: rename one")
    print(f"{len(places)} names in {len(archives)} libraries, {len(twice)} more than once")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
