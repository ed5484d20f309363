# SPDX-License-Identifier: Apache-2.0
"""Two incarnations of a job under one job string, and the attempt they may both join (Q54, V38).

Two ranks, each on a node of its own. The second incarnation starts when every process of the first has
ended, unless `zombie`. What a node knows of its processes reaches the server only by its heartbeats, and
what its uploader has journaled only by its requests; both may be late. `told_at_once`: the end of a process is
reported before a new incarnation can call.

Rules: `incarnation` all ranks of one life carry the same word; `ended_refuses` an unknown process is
refused as soon as a known one is reported ended; `heard_after` a join waits until the other nodes of the
attempt were heard after the call. Wordings that were judged and not taken: `sealed_first`, `begun_first`
(refuse only once the *server* knows of a seal, of a begin), `first_begin` (a version commits only with
the processes that were in the attempt at its first begin)."""
from collections import namedtuple
from .explore import Machine, at

State = namedtuple('State', 'proc member known_ended staged begun sealed first_members heard version')
WAITING, RUNNING, ENDED, REFUSED = 'waiting', 'running', 'ended', 'refused'
RANKS = (0, 1)


def incarnations(rules, zombie=False, late_open=False, told_at_once=False):
    """proc[j][r]: process of rank r in incarnation j. member[r]: incarnation that holds rank r.
    staged[r]: incarnation whose save of step 1 lies in the journal of r's node. heard: calls (rank,
    incarnation) after which the other node has sent a heartbeat."""
    init = State(((RUNNING, RUNNING), (WAITING, WAITING)), (None, None), frozenset(), (None, None),
                 frozenset(), (None, None), None, frozenset(), 'open')

    def other(rank):
        return 1 - rank

    def admitted(s, rank, incarnation):
        """None: it waits; False: refused; True: taken."""
        holder = s.member[other(rank)]
        if s.member[rank] is not None:
            return s.member[rank] == incarnation
        if holder is None:
            return True
        if 'incarnation' in rules:
            return holder == incarnation
        ended = other(rank) in s.known_ended
        if ended and ('ended_refuses' in rules or 'sealed_first' in rules and any(x is not None for x in s.sealed)
                      or 'begun_first' in rules and s.begun):
            return False
        if 'heard_after' in rules and (rank, incarnation) not in s.heard:
            return None
        return True

    def succ(s):
        first_over = all(p in (ENDED, REFUSED) for p in s.proc[0])
        for j in (0, 1):
            for r in RANKS:
                process = s.proc[j][r]

                def becomes(what, s=s, j=j, r=r):
                    return s._replace(proc=at(s.proc, j, at(s.proc[j], r, what)))
                if process == WAITING and (first_over or zombie):
                    yield 'incarnation %d rank %d starts' % (j, r), becomes(RUNNING), False
                if process == RUNNING and j == 0 and not late_open:
                    ended = becomes(ENDED)
                    if told_at_once and s.member[r] == j:
                        ended = ended._replace(known_ended=ended.known_ended | {r})
                    yield 'incarnation 0 rank %d is killed' % r, ended, True
                if process != RUNNING:
                    continue
                if s.member[r] != j:
                    answer = admitted(s, r, j)
                    if answer:
                        yield 'incarnation %d rank %d joins' % (j, r), s._replace(member=at(s.member, r, j)), False
                    elif answer is False:
                        yield 'incarnation %d rank %d: job-reused' % (j, r), becomes(REFUSED), False
                    elif s.proc[s.member[other(r)]][other(r)] == RUNNING:
                        yield 'node of rank %d: alive, after the call of rank %d' % (other(r), r), \
                            s._replace(heard=s.heard | {(r, j)}), False
                elif s.staged[r] is None:
                    yield 'incarnation %d rank %d stages step 1' % (j, r), s._replace(staged=at(s.staged, r, j)), False
        for r in RANKS:
            if s.member[r] is not None and r not in s.known_ended and s.proc[s.member[r]][r] == ENDED:
                told = s._replace(known_ended=s.known_ended | {r})
                yield 'node of rank %d says that its process has ended' % r, told, False
            if s.staged[r] is not None and r not in s.begun and s.version == 'open':
                first = s.first_members if s.begun else s.member
                yield 'begin of rank %d reaches the server' % r, \
                    s._replace(begun=s.begun | {r}, first_members=first), False
            if r in s.begun and s.sealed[r] is None:
                yield 'seal of rank %d reaches the server' % r, s._replace(sealed=at(s.sealed, r, s.staged[r])), False
        if s.version == 'open' and None not in s.sealed:
            if 'first_begin' in rules and s.first_members != s.sealed:
                yield 'a process joined after the first begin: aborted', s._replace(version='aborted'), False
            else:
                yield 'commit', s._replace(version='committed'), False

    def check(s):
        if s.version == 'committed' and s.sealed[0] != s.sealed[1]:
            return 'MIX: a committed version holds bytes of two incarnations %s' % (s.sealed,)
        if s.version == 'aborted' and s.sealed[0] == s.sealed[1]:
            return 'NEEDLESS: a rank of the same incarnation opened late, its save is aborted'
        return None

    def final(s):
        alive = [j for j in (0, 1) if s.proc[j] == (RUNNING, RUNNING)]
        if alive and s.member == (alive[0],) * 2 and s.version == 'open':
            return 'STUCK: both ranks of one incarnation staged step 1, nothing commits it'
        if late_open and REFUSED in s.proc[0]:
            return 'NEEDLESS: a rank of the only incarnation was refused'
        return None

    return Machine(init, succ, check, final)
