#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/protocol.md and docs/promises.md against the tree: every file they name is there, every function and test
they name is in that file, no rule, promise or fault is left out, every rule says whether it is built, and the tests of a fault bear its number."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / 'docs' / 'protocol.md').read_text(encoding='utf-8')
PROMISES = (ROOT / 'docs' / 'promises.md').read_text(encoding='utf-8')
# Rows of docs/promises.md: letter and the highest number.
ROWS = {'P': 16, 'R': 10, 'K': 12, 'N': 7, 'T': 2, 'C': 8, 'D': 9, 'S': 29, 'A': 5, 'B': 7, 'G': 2, 'M': 7, 'U': 3}
RULES, FAULTS = 59, 42  # Q1 to Q59, V1 to V42
MORE_ROWS = ('P8b', *('H%d' % number for number in range(1, 12)))
# `server/sweep/sweep.c` (`expire`, `silent_node`): the words between the brackets belong to the file.
NAMED = re.compile(r'`((?:[a-z0-9_]+/)+[a-zA-Z0-9_]+\.(?:c|h|def|py))`((?:\s*\([^)]*\))?)')
WORDS = re.compile(r'`([A-Za-z0-9_]+)`')


def missing_names(page):
    for path, brackets in NAMED.findall(page):
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
    for number in range(1, max(RULES, *found) + 1):  # later ones, too
        if number not in found:
            yield 'Q%d has no paragraph' % number
            continue
        state = re.search(r'State: ([a-z]+)', found[number])
        if not state or state.group(1) not in ('built', 'partly', 'to'):
            yield 'Q%d does not say whether it is built, partly built or to come' % number
        elif state.group(1) != 'to' and 'Code: ' not in found[number]:
            yield 'Q%d names no code' % number
    for number in range(1, FAULTS + 1):
        if not re.search(r'(?m)^\| V%d \|' % number, PAGE):
            yield 'V%d has no row' % number
    if '@@' in PAGE:
        yield 'a mark was left in the page'


def bears(path, test, number):
    """Is the fault's number in the name of the test, or in the comment on it?"""
    lines = (ROOT / path).read_text(encoding='utf-8').split('\n')
    at = next(i for i, line in enumerate(lines) if re.search(r'\b%s\b' % re.escape(test), line))
    first = at
    while first and lines[first - 1].lstrip().startswith(('/*', '*', '#')):
        first -= 1
    words = ' '.join(lines[first:at + 3]).replace('_', ' ')
    return re.search(r'(?<![A-Za-z0-9])%s(?![0-9])' % number, words, re.I) is not None


def faults_without_number(page):
    """Of the tests that a fault's row names at least one bears its number."""
    for number, row in re.findall(r'(?m)^\| (V\d+) \|(.*)$', page):
        tests = [(path, word) for path, brackets in NAMED.findall(row) for word in WORDS.findall(brackets)]
        if not tests and 'to come' not in row:
            yield '%s names no test' % number
        elif tests and not any(bears(path, test, number) for path, test in tests):
            yield '%s: no test of its row bears its number' % number


def bears_in_its_name(word, number):
    """`test_d03_...`, `d03_...`: so that `ctest` and `grep` find a fault by its number."""
    return re.match(r'(?:test_)?(?:zz_)?%s_' % number.lower(), word) is not None


def rows_without_a_test_of_their_name():
    for heads, rest in re.findall(r'(?m)^\| ([A-Z]\d+(?:, [A-Z]\d+)*) \|(.*)$', PROMISES):
        words = [word for _, brackets in NAMED.findall(rest) for word in WORDS.findall(brackets)]
        for number in heads.split(', '):
            if number[0] not in 'PRHTSU' and not any(bears_in_its_name(word, number) for word in words):
                yield '%s: no test of its row has the number in its name' % number


def promises_left_out():
    """Each promise, rule and fault has a row; a fault's row names a file, or says what it comes with."""
    rows = {}
    for heads, rest in re.findall(r'(?m)^\| ([A-Z]\d+b?(?:, [A-Z]\d+)*) \|(.*)$', PROMISES):
        for head in heads.split(', '):
            rows.setdefault(head, []).append(rest)
    wanted = list(MORE_ROWS)
    for letter, highest in ROWS.items():
        width = 1 if letter in 'PR' else 2
        wanted += ['%s%0*d' % (letter, width, number) for number in range(1, highest + 1)]
    for name in wanted:
        if name not in rows:
            yield '%s has no row' % name
        elif name[0] not in 'PR' and not any(NAMED.search(r) or 'To come' in r for r in rows[name]):
            yield '%s names no test' % name


def self_test():
    """The checks see what they are for."""
    assert NAMED.findall('`a/b.c` (`f`,\n`g`)') == [('a/b.c', ' (`f`,\n`g`)')]
    assert NAMED.findall('see `a/b.c`, then') == [('a/b.c', '')]
    assert len(rules()) > 1
    assert bears_in_its_name('test_d03_a_page', 'D03')
    assert not bears_in_its_name('a_page_of_d03', 'D03')


def main():
    self_test()
    complaints = ['docs/protocol.md: %s' % said for said in (*missing_names(PAGE), *left_out())]
    if not complaints:
        complaints += ['docs/protocol.md: %s' % said for said in faults_without_number(PAGE)]
    complaints += ['docs/promises.md: %s' % said
                   for said in (*missing_names(PROMISES), *promises_left_out(),
                                *rows_without_a_test_of_their_name())]
    print('\n'.join(complaints))
    named = len(NAMED.findall(PAGE)) + len(NAMED.findall(PROMISES))
    print('%d files named, %d complaints' % (named, len(complaints)))
    return 1 if complaints else 0


if __name__ == '__main__':
    sys.exit(main())
