# SPDX-License-Identifier: Apache-2.0
"""A save that a rank has behind it, and a catalog that has forgotten how it ended (Q12).

Rank 0 lives on node A and begins saves 0 and 1, in either order: steps need not ascend. It may give a save up.
Rank 1, on another node, has sealed both and tells them as often as the server lacks them; only rank 0 is waited
for. The catalog may be put back to any copy of it; node A's uploader may be killed and meets libcairn again. An
answer to a heartbeat is written by the server and taken in later, so that what it says may be old.

Rules: `passed_told` a version that an answer calls open, that rank 0 has counted and of which A has no entry, is
failed for it; `passed_counted` only one that rank 0 has counted, whatever else it has begun since; `passed_settled`
what libcairn says at a meeting leaves out what may still be begun; `passed_offered` it says so at a meeting at all;
`passed_twice` two answers in a row must say so."""
from collections import namedtuple
from .explore import Machine, at

State = namedtuple('State', 'rank entries counted up met rows copy answer missed backups restores kills needless '
                            'again')
SAVES = (0, 1)


def passed(rules, backups=1, restores=1, kills=1):
    """rank[v]: what rank 0 has done: None, counted (its begin is on the way), begun, over. entries[v]: A's journal:
    None, open, sealed, failed (not told yet). counted: what A's uploader knows rank 0 to have counted. met: libcairn
    has met this uploader. rows[v]: the catalog's: None, open, sealed (by rank 0), committed, ended. copy: rows
    of a backup. answer: versions that an answer on its way calls open. missed: those of the answer before.
    needless: a save was failed that rank 0 had not given up. again: an end was told twice although nothing was
    forgotten."""
    none = (None, None)
    init = State(none, none, frozenset(), True, True, none, None, None, frozenset(), backups, restores, kills, False,
                 False)

    def rank_0(s):
        for v in SAVES:
            if s.rank[v] is None and 'counted' not in s.rank:
                yield 'rank 0 counts %d' % v, s._replace(rank=at(s.rank, v, 'counted')), False
            if s.rank[v] == 'counted' and s.up and s.met:
                if s.entries[v] == 'failed':          # the uploader has failed it meanwhile: conflict
                    yield 'rank 0 begins %d: refused' % v, s._replace(rank=at(s.rank, v, 'over'), needless=True), False
                else:
                    yield 'rank 0 begins %d' % v, s._replace(
                        rank=at(s.rank, v, 'begun'), entries=at(s.entries, v, 'open'), counted=s.counted | {v}), False
            if s.rank[v] == 'begun' and s.entries[v] == 'open' and s.up and s.met:
                yield 'rank 0 seals %d' % v, s._replace(rank=at(s.rank, v, 'over'),
                                                        entries=at(s.entries, v, 'sealed')), False
                yield 'rank 0 gives %d up' % v, s._replace(rank=at(s.rank, v, 'over'),
                                                           entries=at(s.entries, v, 'failed')), True

    def meeting(s):
        told = frozenset()
        if 'passed_offered' in rules:
            told = frozenset(v for v in SAVES if s.rank[v] == 'over' or s.rank[v] and 'passed_settled' not in rules)
        if 'passed_counted' not in rules and told:
            told = frozenset(SAVES)                  # all that lies before the highest
        return s._replace(met=True, counted=frozenset(v for v in SAVES if s.entries[v]) | told)

    def close(s, v):
        return s._replace(entries=at(s.entries, v, None))

    def node_a(s):
        if not s.up:
            yield 'uploader A starts again', s._replace(up=True), False
            return
        if not s.met:
            yield 'libcairn meets uploader A', meeting(s), False
        if s.kills:
            yield 'uploader A killed', s._replace(up=False, met=False, counted=frozenset(), missed=frozenset(),
                                                  answer=None, kills=s.kills - 1), True
        for v in SAVES:
            row = s.rows[v]
            if s.entries[v] and row in ('ended', 'committed'):
                yield 'A hears the end of %d' % v, close(s, v), False
            elif s.entries[v] == 'failed':
                yield 'A tells the fail of %d' % v, s._replace(rows=at(s.rows, v, 'ended')), False
            elif s.entries[v] == 'sealed' and row != 'sealed':
                yield 'A tells the seal of %d' % v, s._replace(rows=at(s.rows, v, 'sealed')), False
            elif s.entries[v] == 'open' and row is None:
                yield 'A tells the begin of %d' % v, s._replace(rows=at(s.rows, v, 'open')), False

    def taken_in(s):
        missing = frozenset(v for v in s.answer if not s.entries[v] and
                            (v in s.counted or 'passed_counted' not in rules and s.counted))
        tell = missing & s.missed if 'passed_twice' in rules else missing
        if 'passed_told' not in rules:
            tell = frozenset()
        after = s._replace(answer=None, missed=missing - tell)
        for v in tell:
            known = s.rows[v] in ('open', 'sealed')
            after = after._replace(entries=at(after.entries, v, 'failed'),
                                   needless=after.needless or s.rank[v] in (None, 'counted', 'begun'),
                                   again=after.again or not known)
        return after

    def heartbeat(s):
        """An answer that would change nothing if it were taken in at once counts as no progress."""
        if s.up and s.answer is not None:
            yield 'A takes the answer in', taken_in(s), False
        open_ = frozenset(v for v in SAVES if s.rows[v] in ('open', 'sealed'))
        if s.up and s.answer is None and (open_ or s.missed):
            after = s._replace(answer=open_)
            yield 'the server answers a heartbeat', after, taken_in(after) == s

    def server(s):
        for v in SAVES:
            if s.rows[v] is None:
                yield 'begin and seal of rank 1 %d' % v, s._replace(rows=at(s.rows, v, 'open')), False
            if s.rows[v] == 'sealed':
                yield 'the server commits %d' % v, s._replace(rows=at(s.rows, v, 'committed')), False
        if s.backups and s.copy is None:
            yield 'a backup is taken', s._replace(copy=s.rows, backups=s.backups - 1), True
        if s.restores and s.copy is not None:
            rows = tuple('committed' if now == 'committed' else then for now, then in zip(s.rows, s.copy))
            yield 'the catalog is put back', s._replace(rows=rows, restores=s.restores - 1), True

    def succ(s):
        yield from rank_0(s)
        yield from node_a(s)
        yield from heartbeat(s)
        yield from server(s)

    def check(s):
        if s.needless:
            return 'NEEDLESS: a save was failed for a rank that would have begun or sealed it'
        if s.again:
            return 'AGAIN: an end that the server knows was told twice'
        return None

    def final(s):
        if any(row in ('open', 'sealed') for row in s.rows):
            return 'STUCK: a version waits for 24 h for a rank that has it behind it'
        return None

    return Machine(init, succ, check, final)
