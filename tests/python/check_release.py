# SPDX-License-Identifier: Apache-2.0
"""One release, one number: everything that names the version names the same, and the nodes of libcairn's symbols are
those that releases have, as CONTRIBUTING.md says.

  check_release.py SOURCE [tag]      tag: also that the number is ready for its tag
"""
import pathlib
import re
import sys

SOURCE = pathlib.Path(sys.argv[1])
# Where the number stands, and how.
PLACES = {
    "CMakeLists.txt": r"^project\(cairn VERSION ([0-9.]+)",
    "include/cairn/cairn.h": r'^#define CAIRN_VERSION "([0-9.]+)"',
    "pyproject.toml": r'^version = "([0-9.]+)"',
    "docker/Dockerfile": r"^ARG VERSION=([0-9.]+)",
    "docker/kubernetes/base/kustomization.yaml": r"newTag: ([0-9.]+)",
    "docker/kubernetes/overlays/sidecar/kustomization.yaml": r"newTag: ([0-9.]+)",
    "packaging/changelog": r"\Acairn \(([0-9.]+)\)",
    "CHANGELOG.md": r"\A# Changes\n(?:.*\n)*?## ([0-9.]+)",
}


def text_of(name):
    return (SOURCE / name).read_text(encoding="utf-8")


def numbers(version):
    return tuple(map(int, version.split(".")))


def nodes():
    """(release, functions, the node that it goes on from) of client/libcairn.map."""
    text = re.sub(r"/\*.*?\*/", "", text_of("client/libcairn.map"), flags=re.DOTALL)
    found = re.findall(r"CAIRN_([0-9.]+) \{(.*?)\}\s*(CAIRN_[0-9.]+)?;", text, re.DOTALL)
    return [(release, re.findall(r"(cairn_\w+);", body), before or None) for release, body, before in found]


def main():
    wrong = []
    version = re.search(PLACES["CMakeLists.txt"], text_of("CMakeLists.txt"), re.MULTILINE)[1]
    for name, pattern in PLACES.items():
        found = set(re.findall(pattern, text_of(name), re.MULTILINE))
        if found != {version} and not (name == "CHANGELOG.md" and version in found):
            wrong.append(f"{name} says {sorted(found)}, not {version}")
    log = re.findall(r"^## ([0-9.]+)(.*)$", text_of("CHANGELOG.md"), re.MULTILINE)
    if not log or log[0][0] != version:
        wrong.append(f"CHANGELOG.md begins with {log[:1]}, not {version}")
    for at, (release, rest) in enumerate(log):
        if at and not re.fullmatch(r", [0-9]{1,2} [A-Z][a-z]+ 20[0-9]{2}", rest):
            wrong.append(f"CHANGELOG.md: {release} has no date")
    if sys.argv[2:] == ["tag"] and "not released" in log[0][1]:
        wrong.append(f"CHANGELOG.md: {version} is \"not released\": give it the date")
    seen, last = set(), None
    for release, functions, before in nodes():
        if numbers(release) > numbers(version)[:2]:
            wrong.append(f"libcairn.map: node CAIRN_{release} is of a release after {version}")
        if before != last:
            wrong.append(f"libcairn.map: node CAIRN_{release} goes on from {before}, not from {last}")
        wrong += [f"libcairn.map: {name} stands in two nodes" for name in functions if name in seen]
        seen |= set(functions)
        last = f"CAIRN_{release}"
    # Functions of a release that has its tag stay in its node.
    released = SOURCE / "tests/install/released.map"
    for line in released.read_text(encoding="utf-8").splitlines() if released.exists() else ():
        if line.startswith("#"):
            continue
        node, name = line.split()
        if name not in dict((f"CAIRN_{release}", functions) for release, functions, _ in nodes()).get(node, ()):
            wrong.append(f"libcairn.map: {name} is no longer in {node}, which is released")
    for what in wrong:
        print(f"check_release: {what}", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
