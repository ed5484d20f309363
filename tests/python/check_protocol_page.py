#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/protocol.md against the tree: every file it names is there, every function and test it names is in that
file, no rule and no fault is left out, and every rule says whether it is built."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / 'docs' / 'protocol.md').read_text(encoding='utf-8')
# `server/jobs/sweep.c` (`expire`, `silent_node`): the words between the brackets belong to the file.
NAMED = re.compile(r'`((?:[a-z0-9_]+/)+[a-zA-Z0-9_]+\.(?:c|h|def|py))`((?:\s*\([^)]*\))?)')
WORDS = re.compile(r'`([A-Za-z0-9_]+)`')


def missing_names():
    for path, brackets in NAMED.findall(PAGE):
        file = ROOT / path
        if not file.is_file():
            yield '%s is not there' % path
            continue
        text = file.read_text(encoding='utf-8')
        for word in WORDS.findall(brackets):
            if not re.search(r'\b%s\b' % re.escape(word), text):
                yield '%s has no %s' % (path, word)


def rules():
    """number -> its paragraph."""
    parts = re.split(r'(?m)^\*\*Q(\d+)\.', PAGE)
    return {int(parts[i]): re.split(r'\n\n', parts[i + 1])[0] for i in range(1, len(parts), 2)}


def left_out():
    found = rules()
    for number in range(1, 56):
        if number not in found:
            yield 'Q%d has no paragraph' % number
            continue
        state = re.search(r'State: ([a-z]+)', found[number])
        if not state or state.group(1) not in ('built', 'partly', 'to'):
            yield 'Q%d does not say whether it is built, partly built or to come' % number
        elif state.group(1) != 'to' and 'Code: ' not in found[number]:
            yield 'Q%d names no code' % number
    for number in range(1, 41):
        if not re.search(r'(?m)^\| V%d \|' % number, PAGE):
            yield 'V%d has no row' % number
    if '@@' in PAGE:
        yield 'a mark was left in the page'


def self_test():
    """The checks see what they are for."""
    assert NAMED.findall('`a/b.c` (`f`,\n`g`)') == [('a/b.c', ' (`f`,\n`g`)')]
    assert NAMED.findall('see `a/b.c`, then') == [('a/b.c', '')]
    assert len(rules()) > 1


def main():
    self_test()
    complaints = list(missing_names()) + list(left_out())
    for complaint in complaints:
        print('docs/protocol.md:', complaint)
    print('%d files named, %d complaints' % (len(NAMED.findall(PAGE)), len(complaints)))
    return 1 if complaints else 0


if __name__ == '__main__':
    sys.exit(main())
