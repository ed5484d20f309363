# SPDX-License-Identifier: Apache-2.0
"""Silence of a node: heartbeats in memory, two servers behind a balancer (Q26; V23).

state: (tick, last seen tick per server (None = never), db tick, alive node, server up flags, aborted)"""
from .explore import Machine


def silence(fix=(), T=3, N=7):
    init = (0, (0, 0), 0, 1, (1, 1), 0)
    def succ(s):
        t, seen, db, ok, upf, ab = s
        if t < N and ok:
            for i in (0, 1):
                if upf[i]:   # every tick the node's heartbeat reaches one server or the other
                    yield 'tick %d: heartbeat reaches server %d' % (t + 1, i), (t + 1, tuple(t + 1 if j == i else x for j, x in enumerate(seen)), t + 1, ok, upf, ab), 0
            if not any(upf): yield 'tick %d: no server' % (t + 1), (t + 1, seen, db, ok, upf, ab), 0
        for i in (0, 1):
            last = max(db, seen[i] or 0) if 'dbseen' in fix else seen[i]
            if upf[i] and last is not None and t - last >= T and not ab: yield 'server %d: node silent for %d ticks, version aborted' % (i, t - last), (t, seen, db, ok, upf, 1), 0
            if upf[i] and t < 5 and all(upf): yield 'servers stop', (t, seen, db, ok, (0, 0), ab), 1
            if not any(upf): yield 'servers start', (t, (t, t) if 'dbseen' in fix else (None, None) if 'mem' in fix else (0, 0), t if 'dbseen' in fix else db, ok, (1, 1), ab), 0
    def check(s):
        if s[5] and s[3]: return 'ABORTS-LIVE: a node that reports every 5 s is declared silent'
    return Machine(init, succ, check, lambda s: None)
