# SPDX-License-Identifier: Apache-2.0
"""The slab budget of one node over a restart (Q13; V22).

budget of M generations; rank i of the old job holds g generations in state s (staged) draining to f only if the store is up."""
from .explore import Machine


def memory(fix=(), M=4, R=2, storeup=True, wait=True):
    # state: old: tuple of staged generations per old rank; new: gens per new rank (0 none, -1 error); att: 0 not opened 1 opened; store
    init = ((2,) * R, (0,) * R, 0, 1 if storeup else 0)
    def succ(s):
        old, new, att, st = s
        free = M - sum(old) - sum(x for x in new if x > 0)
        for i in range(R):
            if old[i] and st: yield 'old rank%d: one generation durable, freed' % i, (old[:i] + (old[i] - 1,) + old[i + 1:], new, att, st), 0
            if old[i] and att and 'fencefree' in fix: yield 'old rank%d: fenced, freed' % i, (old[:i] + (old[i] - 1,) + old[i + 1:], new, att, st), 0
            if new[i] == 0 and (att or 'attfirst' not in fix):
                per = 2 if 'share' not in fix else max(1, min(2, M // R))
                g = min(per, free)
                if g >= 1 and (g == per or 'share' not in fix): yield 'new rank%d opens with %d generation(s)' % (i, g), (old, new[:i] + (g,) + new[i + 1:], att, st), 0
                elif 'openwait' not in fix: yield 'new rank%d: open fails, no memory' % i, (old, new[:i] + (-1,) + new[i + 1:], att, st), 0
        if not att and ('attfirst' in fix or all(x > 0 for x in new)): yield 'attempt opened (old one fenced after wait_staged)', (old, new, 1, st), 0
    def check(s):
        if -1 in s[1]: return 'OPEN-FAILS: a restarted rank gets no slab while the dead job or a neighbour holds it' if sum(s[0]) else 'OPEN-FAILS: a neighbour took two generations, this rank gets none though one each fits'
    def final(s):
        if not (s[2] and all(x > 0 for x in s[1])): return 'DEADLOCK: open waits for slabs that nothing frees'
    return Machine(init, succ, check, final)
