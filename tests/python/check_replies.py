# SPDX-License-Identifier: Apache-2.0
"""The replies of /v1 keep their fields (docs/upgrade.md): tests/python/v1_replies.txt has each field that a server answers, and
how much a reader may rely on it. None may go, change its kind or become rarer; a new one is ADDED, or null where there
is none, since servers of the release before do not send it.

  check_replies.py PRINT_API [store]       store: takes new fields up; it refuses to take anything back
"""
import pathlib
import subprocess
import sys

STORED = pathlib.Path(__file__).with_name("v1_replies.txt")
HEAD = """# Fields of the replies of /v1: form, field, kind, presence (api/messages.def). check_replies.py compares and stores them.
"""
# From what a reader may rely on most to what it may not.
RANKS = {"MUST": 0, "SENT": 0, "ADDED": 1, "NULLS": 2, "OMITS": 3, "MAY": 3}


def now(program):
    groups, fields = {}, {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if words[0] == "form":
            groups[words[1]] = words[2]
        elif words[0] == "field" and groups[words[1]] in ("REPLY", "WHOLE"):
            fields[words[1], words[2]] = (words[4], words[3])
    return fields


def stored():
    lines = [line.split() for line in STORED.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {(form, field): (kind, presence) for form, field, kind, presence in lines}


def judge(before, fields):
    """What is wrong, and the new fields."""
    wrong, forms = [], {form for form, _ in before}
    for (form, field), (kind, presence) in before.items():
        found = fields.get((form, field))
        if not found:
            wrong.append(f"{form}.{field} is gone: programs of the release before read it")
        elif found[0] != kind:
            wrong.append(f"{form}.{field} was {kind}, and is {found[0]}")
        elif RANKS[found[1]] > RANKS[presence]:
            wrong.append(f"{form}.{field} was {presence}, and is {found[1]}: a reader relies on it")
    new = {key: value for key, value in fields.items() if key not in before}
    for (form, field), (_, presence) in new.items():
        if form in forms and presence in ("MUST", "SENT"):
            wrong.append(f"{form}.{field} is new and {presence}: say ADDED, since an older server does not send it")
    return wrong, new


def main():
    fields = now(sys.argv[1])
    before = stored() if STORED.exists() else {}
    wrong, new = judge(before, fields)
    if not wrong and new and sys.argv[2:] == ["store"]:
        lines = [" ".join((*key, *value)) for key, value in sorted({**fields}.items())]
        STORED.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
        return 0
    for what in wrong:
        print(f"check_replies: {what}", file=sys.stderr)
    if new:
        print(f"check_replies: new: {sorted(map('.'.join, new))}; `check_replies.py PRINT_API store` takes them up",
              file=sys.stderr)
    # A comparison that notices nothing would pass, too.
    some = next(iter(before))
    less = {key: value for key, value in fields.items() if key != some}
    other = {**fields, some: ("nothing", before[some][1])}
    assert judge(before, less)[0] and judge(before, other)[0]
    return bool(wrong or new)


if __name__ == "__main__":
    sys.exit(main())
