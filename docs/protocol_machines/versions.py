# SPDX-License-Identifier: Apache-2.0
"""The whole of attempts, begin, seal, register, commit, retention, garbage collection, leases, reindex and
backups: many processes, one state (a dict of immutable values).  c.F is the set of rules that are switched
on; the empty set is the first, plain design.  Small worlds of one rule each stand in the other files."""
import random
import time
from collections import deque

class Cfg:
    def __init__(s, **k):
        s.R = 2; s.jobs = 2; s.calls = 2; s.servers = 1; s.prog = None; s.resume = ('latest',) * 4; s.on_exists = 'error'; s.progs = None
        s.sameJob = False; s.keepops = False; s.unnoticed = False; s.zombie = False; s.timeouts = False; s.miss = 0; s.cancel = 0; s.K = 1
        s.b = dict(tcrash=1, ucrash=0, scrash=0, late=0, slate=0, dbloss=0, backup=0, age=0, silence=0, reader=0, runrm=0, nodelost=0)
        s.retention = False; s.F = frozenset()
        for a, v in k.items():
            if a == 'b': s.b = dict(s.b, **v)
            else: setattr(s, a, v)
        s.bn = sorted(s.b)

def up(s, **k):
    t = dict(s); t.update(k); return t
def put(tab, k, v):                      # tables are sorted tuples of (key, value)
    d = dict(tab); d[k] = v; return tuple(sorted(d.items()))
def init(c):
    return dict(jobs=(0,) * c.jobs, rk=tuple(((0, None, 0, 0, 0),) * c.R for _ in range(c.jobs)), up=(1, 1), jr=(), cur=0, jm=(), v=(), st=frozenset(),
                sv=((1, None),) * c.servers, late=frozenset(), sl=frozenset(), lease=(), hi=None, bk=None, frozen=0, plain=0, uniq=0, arec=(), ever=0, seen=frozenset(),
                bud=tuple(c.b[x] for x in c.bn))
class Bad(Exception): pass

# vid = (attempt, step, n, nonce).  version row = (state, sealed, regs, flags, manifest-writer, line; 0: its attempt's own)
# states: O open, C committed, D deleting, A aborting, G gone, X refused.  flags: S superseded, T trashed, R recorded
def node(r): return r % 2
def order(w, x):
    """Q25: (line, step, attempt, n)"""
    return (x[5] or w[0], w[1], w[0], w[2])
def steps_of(c, j, res):
    if c.progs and c.progs[j]: return c.progs[j]
    return c.prog or tuple((res[1] if res else 0) + 1 + i for i in range(c.calls))
def keeps(c, s, att):
    """was that attempt opened with `keep`?"""
    return any(a == att and c.resume[j] == 'keep' for j, (a, _, _) in s['jm'])
def line_of(c, s, vid):
    """The line of a version that is begun. One of an attempt that keeps everything, of a step below that of latest, joins
    the line of the newest whose step is not higher, or the lowest one there is; any other is in its attempt's own."""
    best = latest(c, s['v'])
    joins = keeps(c, s, vid[0]) and not (s['plain'] >= vid[0]) or 'ownline' not in c.F
    if 'joins' not in c.F or not joins or not best or best[1] <= vid[1]: return 0
    shown = [order(w, x) for w, x in s['v'] if x[0] == 'C' and 'R' in x[3] and not x[3] & {'S', 'T'}]
    return (max([o for o in shown if o[1] <= vid[1]], default=None) or min(shown))[0]
def latest(c, v):
    best = None
    for vid, x in v:
        if x[0] == 'C' and 'S' not in x[3] and not ('T' in x[3] and 'order' in c.F) and not ('record' in c.F and 'R' not in x[3]):
            if best is None or order(vid, x) > best[0]: best = (order(vid, x), vid)
    return best and best[1]
def intact(c, s, vid, x):
    return all((vid, r, ct) in s['st'] for r, ct in x[2]) and any(o[0] == vid and o[1] == 'man' and o[2] == x[4] for o in s['st'])

def invariants(c, s, mode=None):
    if s['frozen']: return                   # the server answers 503 catalog-behind until reconcile
    V = dict(s['v'])
    for vid, x in s['v']:
        if x[0] == 'C':
            if len(set(ct for _, ct in x[2])) > 1: raise Bad('MIX: committed version holds bytes of two saves %s' % (x[2],))
            if not intact(c, s, vid, x): raise Bad('P2: committed version %s lacks its bytes or its manifest' % (vid,))
    if s['jm'] and not c.b['runrm']:
        for j, (att, res, _nz) in s['jm']:
            if att != s['cur'] or res is None: continue
            if any(x[0] in 'C' and w[0] == att for w, x in s['v']): continue
            x = V.get(res)
            if x is None or x[0] != 'C' or not intact(c, s, res, x): raise Bad('NAMED-LOST: resume answer of attempt %d named %s, now %s' % (att, res, x and x[0]))
            if latest(c, s['v']) != res: raise Bad('LINEAGE: attempt %d resumed at %s but latest is %s' % (att, res, latest(c, s['v'])))
    if c.retention and s['ever'] and not c.b['runrm'] and not any(x[0] == 'C' and intact(c, s, w, x) for w, x in s['v']): raise Bad('P10: no committed version is left')
    for w in s['lease']:
        if w not in V or not intact(c, s, w, V[w]): raise Bad('P8: leased version %s is not whole' % (w,))

def seteach(s, vid, x): return put(s['v'], vid, x)
def spend(c, s, name):
    i = c.bn.index(name); b = s['bud']
    if b[i] <= 0: return None
    return b[:i] + (b[i] - 1,) + b[i + 1:]

def att_txn(c, s, j, choices):
    """the atomic part of POST attempts for an unseen job; yields (label, state)"""
    F = c.F
    cand = [w for w, x in s['v'] if x[0] == 'C']
    mode = c.resume[j]
    late_record = [w for w, x in s['v'] if x[0] == 'C' and 'record' in F and 'R' not in x[3] and 'S' not in x[3]]
    if late_record and 'recfirst' in F: return           # the attempt call writes missing records first (Q52)
    picks = []
    if mode in ('latest', 'any'): picks.append(latest(c, s['v']))
    if mode == 'any': picks += [w for w in cand if w != picks[0]] + [None]
    if mode in ('none', 'keep'): picks.append(None)
    for p in dict.fromkeys(picks):
        v = dict(s['v']); lostS = []
        for w, x in s['v']:
            if x[0] == 'C':
                if mode != 'keep' and w != p and (p is None or w[1] > p[1] or ('order' in F and order(w, x) > order(p, v[p]))): v[w] = x[:3] + (x[3] | {'S'},) + x[4:]
                if w == p and 'order' in F: v[w] = x[:3] + (x[3] - {'S', 'T'},) + x[4:]
            if x[0] == 'O':
                v[w] = ('A',) + x[1:]
                ent = dict(s['jr'])
                if not c.timeouts and all((w, r) in ent and s['up'][node(r)] and ent[(w, r)][1] in 'sdR' for r in range(c.R)): lostS.append(w)
        for (w, r), e in s['jr']:            # begun and staged offline, server never heard of it
            if w not in v and w[0] == s['cur'] and not c.timeouts and all(s['up'][node(q)] and dict(s['jr']).get((w, q), ('', '-'))[1] in 'sdR' for q in range(c.R)): lostS.append(w)
        cur = s['cur'] + 1
        if any(a[0] == cur for a in s['arec']) and 'attrec' in F:       # create-only PUT of the attempt record found one: catalog is behind
            yield 'attempt %d already has a record in the bucket: catalog frozen, 503' % cur, up(s, frozen=1); continue
        t = up(s, cur=cur, jm=put(s['jm'], c.jobs_name(j), (cur, p, s['uniq'] + 1)), v=tuple(sorted(v.items())), uniq=s['uniq'] + 1, arec=s['arec'] + ((cur, p, c.jobs_name(j), s['uniq'] + 1),))
        t['hi'] = latest(c, t['v'])
        lab = 'job%d opens attempt %d, resumes at %s' % (j, cur, p)
        if mode == 'latest' and any(w[:3] > (p or (0,))[:3] for w in late_record): t['_bad'] = 'BACK: committed, its record late: attempt %d resumes at %s and supersedes %s' % (cur, p, late_record[-1])
        if lostS: t['_bad'] = 'STAGED-LOST: %s was staged by every rank (uploaders alive), the resume threw it away' % (lostS[0],)
        yield lab, t

def waiting(c, s, V):
    """does POST attempts still wait? design: open versions that all ranks sealed; 'flush': and live nodes with unsent words on this run.
    A node that says nothing cannot be told from one that lives, so what may end the wait for it is looked for here: 'vouched' is another
    node with a rank of the attempt that has, after the call, nothing unsent; without that rule a node's own last word, of any time."""
    if any(x[0] == 'O' and len(x[1]) == c.R for w, x in s['v']): return True
    unsent = set()
    for (w, q), e in s['jr']:
        if s['up'][node(q)] and (e[1] in 'sdfR' or e[1] == 'b' and w not in V) and (w not in V or (V[w][0] == 'O' and q not in V[w][1])): unsent.add(node(q))
    if 'flush' not in c.F or not unsent: return False
    if any(x[0] == 'O' for w, x in s['v']): return True
    if 'vouched' not in c.F: return False
    return not any(s['up'][k] and k not in unsent for k in range(min(c.R, 2)))

def srv_begin(c, s, vid):
    """state after the server handles begin(vid)"""
    V = dict(s['v'])
    if vid in V: return s
    if vid[0] < s['cur']: return s
    if vid[0] > s['cur'] and 'higher' in c.F: return up(s, frozen=1)
    verdict = 'O'; flags = frozenset(); v = V
    if any(w[1] == vid[1] and x[0] == 'C' and 'S' not in x[3] for w, x in s['v']) or any(w[:2] == vid[:2] and x[0] == 'O' and w[2] < vid[2] for w, x in s['v']):
        if c.on_exists == 'error':
            if 'verdict' not in c.F: return None                # text: refused, nothing stored, only this caller hears it
            verdict = 'A'
        if c.on_exists == 'supersede' and 'supcommit' not in c.F:
            for w, x in s['v']:
                if w[1] == vid[1] and x[0] == 'C': v[w] = x[:3] + (x[3] | {'S'},) + x[4:]
            s = up(s, hi=None)
    v[vid] = (verdict, frozenset(), frozenset(), flags, None, line_of(c, s, vid))
    return up(s, v=tuple(sorted(v.items())))

def reindex(c, s):
    v = {}
    for o in s['st']:
        if o[1] != 'rec': continue
        w = o[0]; man = [q for q in s['st'] if q[0] == w and q[1] == 'man']
        regs = frozenset((q[1], q[2]) for q in s['st'] if q[0] == w and q[1] not in ('rec', 'man'))
        if 'record' in c.F and (not man or len(regs) < c.R): continue
        v[w] = ('C', frozenset(range(c.R)), regs if len(regs) == c.R else frozenset((r, 'lost') for r in range(c.R)), frozenset('R'), man[0][2] if man else None, o[2])
    cur = max([w[0] for w in v] + [0]); jm = ()
    if 'attrec' in c.F:
        cur = max([a[0] for a in s['arec']] + [cur])
        for a, p, nm, nz in sorted(s['arec'], key=lambda q: q[0]):
            jm = put(jm, nm, (a, p, nz))
            for w in list(v):
                x = v[w]
                if c.resume[nm] != 'keep' and w[0] < a and w != p and (p is None or w[1] > p[1] or ('order' in c.F and p in v and order(w, x) > order(p, v[p]))): v[w] = x[:3] + (x[3] | {'S'},) + x[4:]
                if w == p: v[w] = x[:3] + (x[3] - {'S'},) + x[4:]
    return up(s, v=tuple(sorted(v.items())), cur=cur, jm=jm, sv=s['sv'] if c.keepops and 'gen' not in c.F else tuple((u, None) for u, _ in s['sv']), lease=(), frozen=0, hi=None, plain=s['plain'] if 'joinrec' in c.F else cur)

def protected(c, s, w):
    """is committed version w kept by the newest-K rule (and by the fixes of it)?"""
    if 'record' in c.F and 'R' not in dict(s['v'])[w][3]: return True
    ok = lambda x: x[0] == 'C' and 'T' not in x[3] and ('record' not in c.F or 'R' in x[3])
    live = sorted([order(q, x) for q, x in s['v'] if ok(x) and 'S' not in x[3]], reverse=True)[:c.K]
    x = dict(s['v'])[w]
    if order(w, x) in live: return True
    if 'keep' in c.F and 'S' in x[3] and len([1 for q, y in s['v'] if ok(y) and 'S' not in y[3] and order(q, y) > order(w, x)]) < c.K: return True
    return False

def succ(c, s, faults=True):
    """yield (label, state, is_fault)"""
    F = c.F; V = dict(s['v']); J = dict(s['jr']); alive = [i for i, (u, _) in enumerate(s['sv']) if u] if not s['frozen'] else []
    out = []
    def add(l, t, f=0): out.append((l, t, f))
    # --- jobs and ranks
    for j in range(c.jobs):
        if s['jobs'][j] == 0 and (j == 0 or s['jobs'][j - 1] == 2 or (c.zombie and s['jobs'][j - 1] == 1 and s['jm'])):
            add('job%d starts' % j, up(s, jobs=s['jobs'][:j] + (1,) + s['jobs'][j + 1:]), 1)
        if s['jobs'][j] != 1: continue
        b = spend(c, s, 'tcrash')
        if b is not None:
            jr = {}
            for k, (ct, stg) in s['jr']:
                if ct[0] == j and (stg == 'b' or (stg == 's' and not s['up'][node(k[1])])): jr[k] = (ct, 'f')
                else: jr[k] = (ct, stg)
            add('job%d dies (all ranks)' % j, up(s, jobs=s['jobs'][:j] + (2,) + s['jobs'][j + 1:], jr=tuple(sorted(jr.items())), bud=b), 1)
        for r in range(c.R):
            att, res, call, pc, n0 = s['rk'][j][r]
            def setrk(s, new): return up(s, rk=s['rk'][:j] + (s['rk'][j][:r] + (new,) + s['rk'][j][r + 1:],) + s['rk'][j + 1:])
            name = c.jobs_name(j)
            if pc == 0 and alive:
                jm = dict(s['jm'])
                if name in jm:
                    a, rs, nz = jm[name]; nz = nz if 'nonce' in F else 0
                    add('job%d rank%d joins attempt %d (resume %s)' % (j, r, a, rs), setrk(s, ((a, nz), rs, 0, 1, 0)))
                else:
                    wait = waiting(c, s, V)
                    if not wait or c.timeouts:
                        for l, t in att_txn(c, s, j, None): add(l, t)
                    b2 = spend(c, s, 'late')
                    if b2 is not None: add('job%d: POST attempts is delayed' % j, up(s, late=s['late'] | {('att', j, s['cur'])}, bud=b2), 1)
            steps = steps_of(c, j, res)
            if pc == 1 and call < len(steps):
                step = steps[call]
                n = sum(1 for q in steps[:call] if q == step) + 1 - n0
                vid = (att[0], step, n, att[1]); ct = (j, call)
                loc = lambda s: up(s, jr=put(s['jr'], (vid, r), (ct, 'f'))) if 'count' in F and (vid, r) not in J else s
                if s['up'][node(r)]:
                    if (vid, r) not in J or J[(vid, r)][0][0] != j: add('job%d rank%d begins step %d n %d' % (j, r, step, n), setrk(up(s, jr=put(s['jr'], (vid, r), (ct, 'b'))), (att, res, call, 2, n0)))
                else:
                    add('job%d rank%d: uploader gone, save of step %d fails' % (j, r, step), setrk(loc(s), (att, res, call + 1, 1, n0 if 'count' in F else n0 + (step in steps[call + 1:]))))
                b2 = spend(c, s, 'miss') if 'miss' in c.b else None
                if b2 is not None: add('job%d rank%d: begin of step %d fails locally' % (j, r, step), up(setrk(loc(s), (att, res, call + 1, 1, n0 if 'count' in F else n0 + (step in steps[call + 1:]))), bud=b2), 1)
            if pc == 2:
                step = steps[call]; n = sum(1 for q in steps[:call] if q == step) + 1 - n0; vid = (att[0], step, n, att[1])
                e = J.get((vid, r))
                if e and e[1] == 'b' and s['up'][node(r)]:
                    add('job%d rank%d staged step %d' % (j, r, step), setrk(up(s, jr=put(s['jr'], (vid, r), (e[0], 's'))), (att, res, call + 1, 1, n0)))
                    if c.cancel: add('job%d rank%d cancels step %d' % (j, r, step), setrk(up(s, jr=put(s['jr'], (vid, r), (e[0], 'f'))), (att, res, call + 1, 1, n0)), 1)
                elif not e or e[1] in 'fx': add('job%d rank%d sees its save fail' % (j, r), setrk(s, (att, res, call + 1, 1, n0)))
    # --- uploaders
    for k in (0, 1):
        if s['up'][k]:
            b = spend(c, s, 'ucrash')
            if b is not None:
                jr = {}; sl = set(s['sl'])
                for (w, r), (ct, stg) in s['jr']:
                    if node(r) == k and stg == 'b':                       # begin is volatile in the uploader, libcairn remembers it
                        if 'count' not in F or s['jobs'][ct[0]] != 1: continue
                        stg = 'f'
                    if node(r) == k and stg == 's' and s['jobs'][ct[0]] != 1: stg = 'f'
                    if node(r) == k and stg == 's' and c.b['slate']: sl.add(('put', (w, r, ct)))
                    jr[(w, r)] = (ct, stg)
                add('uploader %d dies' % k, up(s, up=(s['up'][0] if k else 0, 0 if k else s['up'][1]), jr=tuple(sorted(jr.items())), bud=b, sl=frozenset(sl)), 1)
        else: add('uploader %d restarts' % k, up(s, up=(s['up'][0] if k else 1, 1 if k else s['up'][1])))
    for (w, r), (ct, stg) in s['jr']:
        if not s['up'][node(r)] or stg in 'xb': 
            if stg == 'b' and s['up'][node(r)] and alive and w not in V and w[0] >= s['cur']: add('begin %s of rank%d reaches the server' % (w, r), srv_begin(c, s, w) or up(s, jr=put(s['jr'], (w, r), (ct, 'x'))))
            if stg == 'b' and (w[0] < s['cur'] or (w in V and V[w][0] != 'O')) and s['up'][node(r)]: add('rank%d hears %s is over' % (r, w), up(s, jr=put(s['jr'], (w, r), (ct, 'x'))))
            continue
        setj = lambda q, s=s, w=w, r=r, ct=ct: up(s, jr=put(s['jr'], (w, r), (ct, q)))
        if stg == 'R' and w not in V and (w, r, ct) not in s['st'] and alive:
            add('rank%d %s: HEAD before registering again finds nothing, dropped' % (r, w), setj('x')); continue
        if stg == 's':
            st = frozenset(o for o in s['st'] if o[:2] != (w, r)) | {(w, r, ct)}
            add('uploader %d: shard of rank%d %s durable' % (node(r), r, w), up(setj('d'), st=st))
        if not alive: continue
        if w[0] < s['cur']:
            add('rank%d %s: stale or refused, dropped' % (r, w), setj('x')); continue
        if w not in V:
            add('begin %s of rank%d reaches the server' % (w, r), srv_begin(c, s, w) or setj('x')); continue
        x = V[w]
        if x[0] != 'O':
            if x[0] != 'C' or 'record' not in F or 'R' in x[3]: add('rank%d hears %s is over' % (r, w), setj('x'))
            continue
        if stg == 'R' and any(q == r for q, _ in x[2]): continue
        if stg == 'f': add('fail of rank%d aborts %s' % (r, w), up(setj('x'), v=seteach(s, w, ('A',) + x[1:])))
        elif r not in x[1]: add('seal of rank%d %s' % (r, w), up(s, v=seteach(s, w, (x[0], x[1] | {r}) + x[2:])))
        elif stg in 'dR':
            if not any(q == r for q, _ in x[2]): add('register rank%d %s' % (r, w), up(setj('R' if 'hold' in F else 'x'), v=seteach(s, w, x[:2] + (x[2] | {(r, ct)},) + x[3:])))
            else: add('register rank%d %s: already there' % (r, w), setj('x'))
    if 'passed' in F and alive:              # heartbeat answer names open versions; a rank whose save count is past one it never sealed fails it
        for w, x in s['v']:
            if x[0] != 'O': continue
            for j in range(c.jobs):
                for r in range(c.R):
                    att, res, call, pc, n0 = s['rk'][j][r]
                    if s['jobs'][j] != 1 or not att or att[0] != w[0] or (att[1] != w[3]) or r in x[1] or (w, r) in J and J[(w, r)][1] != 'x' or not s['up'][node(r)]: continue
                    steps = steps_of(c, j, res)
                    idx = [i for i, q in enumerate(steps) if q == w[1]]
                    if len(idx) >= w[2] and call > idx[w[2] - 1]: add('rank%d is past %s and never sealed it: aborted' % (r, w), up(s, v=seteach(s, w, ('A',) + x[1:])))
    # --- servers
    for i in alive:
        u, op = s['sv'][i]
        def setsv(s, o): return up(s, sv=s['sv'][:i] + ((1, o),) + s['sv'][i + 1:])
        b = spend(c, s, 'scrash')
        if b is not None: add('server %d dies%s' % (i, '' if not op else ' during %s' % (op,)), up(s, sv=s['sv'][:i] + ((0, None),) + s['sv'][i + 1:], bud=b), 1)
        if op is None:
            for w, x in s['v']:
                if x[0] == 'O' and len(x[1]) == c.R and len(x[2]) == c.R: add('server %d starts commit %s' % (i, w), setsv(s, ('c', w, 1)))
                if x[0] == 'C' and 'R' not in x[3] and 'record' in F: add('server %d goes to write the missing record %s' % (i, w), setsv(s, ('c', w, 3)))
                if x[0] in 'DA' and not (w in s['lease']): add('server %d starts sweep %s' % (i, w), setsv(s, ('g', w, 1)))
        elif op[0] == 'c':
            w = op[1]; x = V.get(w); mine = 0 if 'det' in F else i
            if op[2] == 1:
                st = s['st']
                if not ('det' in F and any(o[:2] == (w, 'man') for o in st)): st = frozenset(o for o in st if o[:2] != (w, 'man')) | {(w, 'man', mine)}
                add('server %d writes manifest %s' % (i, w), up(setsv(s, ('c', w, 2)), st=st))
            elif op[2] == 2:
                if x and x[0] == 'O':
                    v = dict(put(s['v'], w, ('C',) + x[1:4] + (mine, x[5])))
                    if c.on_exists == 'supersede' and 'supcommit' in F and not ('record' in F and 'suprecord' in F):
                        for q, y in list(v.items()):
                            if q != w and q[1] == w[1] and y[0] == 'C' and q[:3] < w[:3]: v[q] = y[:3] + (y[3] | {'S'},) + y[4:]
                    t = up(setsv(s, ('c', w, 3)), v=tuple(sorted(v.items())), ever=s['ever'] if 'record' in F else 1)
                    if 'record' in F and latest(c, s['v']) and (latest(c, t['v']) or (0,))[:3] < latest(c, s['v'])[:3]: t['_bad'] = 'BACK: latest was %s, now %s: superseded by a version that is not recorded' % (latest(c, s['v']), latest(c, t['v']))
                    if w[0] < s['cur']: t['_bad'] = 'FENCE: version of attempt %d committed after attempt %d opened' % (w[0], s['cur'])
                    add('server %d: commit transaction %s' % (i, w), t)
                else: add('server %d: %s is not open any more' % (i, w), setsv(s, None))
            elif op[2] == 3:
                if 'record' in F and (not x or x[0] != 'C'): add('server %d drops the record of %s' % (i, w), setsv(s, None))
                else:
                    rec = (w, 'rec', x[5] if x and 'linerec' in F else 0)
                    st = s['st'] | {rec}
                    v = put(s['v'], w, x[:3] + (x[3] | {'R'},) + x[4:]) if x and x[0] == 'C' else s['v']
                    if x and x[0] == 'C' and c.on_exists == 'supersede' and {'record', 'suprecord', 'supcommit'} <= F:
                        for q, y in v:
                            if q != w and q[1] == w[1] and y[0] == 'C' and q[:3] < w[:3]: v = put(v, q, y[:3] + (y[3] | {'S'},) + y[4:])
                    t = up(setsv(s, None), st=st, v=v, ever=1)
                    was, now = latest(c, s['v']), latest(c, t['v'])
                    if c.progs and keeps(c, s, w[0]) and was and now == w and w[1] < was[1]: t['_bad'] = 'OLDER: latest was %s, now %s, an older step that somebody put' % (was, now)
                    if c.progs and not keeps(c, s, w[0]) and w[0] == s['cur'] and now[0] != w[0]: t['_bad'] = 'NOT-NEWEST: %s of a trainer is committed, latest is %s' % (w, now)
                    add('server %d writes committed.json %s' % (i, w), t)
                    b2 = spend(c, s, 'slate')
                    if b2 is not None: add('server %d: PUT committed.json %s times out, still under way' % (i, w), up(s, sl=s['sl'] | {('put', rec)}, bud=b2), 1)
        elif op[0] == 'g':
            w = op[1]; x = V.get(w)
            kind = {1: 'rec', 2: 'man'}.get(op[2])
            if 'recguard' in F and op[2] == 1 and x and x[0] == 'A' and any(o[:2] == (w, 'rec') for o in s['st']):
                add('server %d: aborting version %s has a committed.json: catalog is behind, frozen' % (i, w), up(setsv(s, None), frozen=1)); continue
            if kind: add('server %d deletes %s of %s' % (i, kind, w), up(setsv(s, ('g', w, op[2] + 1)), st=frozenset(o for o in s['st'] if o[:2] != (w, kind))))
            else:
                t = up(setsv(s, None), st=frozenset(o for o in s['st'] if o[0] != w))
                if x and x[0] in 'DA': t = up(t, v=put(s['v'], w, ('G',) + x[1:]))
                add('server %d deletes the data of %s, gone' % (i, w), t)
    for i, (u, op) in enumerate(s['sv']):
        if not u: add('server %d restarts' % i, up(s, sv=s['sv'][:i] + ((1, None),) + s['sv'][i + 1:]))
    if alive and c.retention:
        for w, x in s['v']:
            if x[0] != 'C' or protected(c, s, w) or w in s['lease']: continue
            if 'T' not in x[3]: add('retention trashes %s' % (w,), up(s, v=seteach(s, w, x[:3] + (x[3] | {'T'},) + x[4:])), 1)
            elif 'record' not in F or 'R' in x[3]: add('trash window over: %s deleting' % (w,), up(s, v=seteach(s, w, ('D',) + x[1:])), 1)
    if alive:
        b = spend(c, s, 'silence')
        if b is not None:
            for w, x in s['v']:
                if x[0] == 'O': add('%s aborted by time' % (w,), up(s, v=seteach(s, w, ('A',) + x[1:]), bud=b), 1)
        b = spend(c, s, 'age')
        if b is not None:
            for w in sorted(set(o[0] for o in s['st'])):
                if w not in V:
                    t = up(s, st=frozenset(o for o in s['st'] if o[0] != w), bud=b)
                    if 'tomb' in F: t = up(t, v=put(t['v'], w, ('G', frozenset(), frozenset(), frozenset(), None, 0)))
                    add('GC deletes unknown objects of %s (48 h old)' % (w,), t, 1)
        b = spend(c, s, 'reader')
        if b is not None:
            w = latest(c, s['v'])
            if w: add('reader is told %s is latest' % (w,), up(s, seen=s['seen'] | {w}, bud=b), 1)
            for w, x in s['v']:
                if w in s['seen'] and w not in s['lease'] and (x[0] == 'C' or (x[0] == 'D' and 'lease' not in F)): add('reader leases %s' % (w,), up(s, lease=tuple(sorted(s['lease'] + (w,)))), 1)
        for w in s['lease']: add('reader releases %s' % (w,), up(s, lease=tuple(q for q in s['lease'] if q != w)))
        for m in s['late']:
            if m[0] == 'att' and c.jobs_name(m[1]) not in dict(s['jm']):
                if 'after' in F and m[2] != s['cur']: add('delayed POST attempts of job%d refused (after)' % m[1], up(s, late=s['late'] - {m})); continue
                if waiting(c, s, V) and not c.timeouts: continue
                for l, t in att_txn(c, s, m[1], None):
                    t = up(t, late=s['late'] - {m})
                    if s['jobs'][m[1]] == 2 and any(q == 1 and dict(s['jm']).get(c.jobs_name(z), (0,))[0] > m[2] for z, q in enumerate(s['jobs']) if z > m[1]): t['_bad'] = 'FENCED-LIVE: a delayed request of a dead job fenced the live one'
                    add('delayed: ' + l, t, 1)
    if 'sweep' in F and alive:
        for o in s['st']:
            if o[0] in V and V[o[0]][0] == 'G': add('full GC: late object %s of a gone version deleted' % (o,), up(s, st=s['st'] - {o}))
    b = spend(c, s, 'runrm')
    if b is not None and alive and all(q in (0, 2) for q in s['jobs']):
        for w, x in s['v']:
            if x[0] == 'C':
                t = up(s, v=(), jm=(), bud=b, st=frozenset(o for o in s['st'] if o[0] == w), sv=((1, ('g', w, 1)),) + s['sv'][1:], hi=None, lease=(), ever=0)
                t = up(t, cur=s['cur'] + 1) if 'nonce' in F else up(t, cur=0, arec=())   # fix: deleting a run fences its attempts, the number never restarts
                add('run deleted (sweep of %s under way) and created again' % (w,), t, 1)
    for m in s['sl']:
        if m[0] == 'put':
            o = m[1]; add('store applies a late write %s' % (o,), up(s, sl=s['sl'] - {m}, st=frozenset(q for q in s['st'] if q[:2] != o[:2]) | {o}), 1)
    b = spend(c, s, 'dbloss')
    if b is not None and s['v']:
        t = up(reindex(c, s), bud=b); W = dict(t['v'])
        for w, x in s['v']:
            if w in s['seen'] and x[0] == 'C' and w not in W: t['_bad'] = 'P13: %s was shown as committed, reindex does not find it' % (w,)
        for j, (att, res, _nz) in () if s['frozen'] else s['jm']:
            if att == s['cur'] and res and res not in W and dict(s['v']).get(res, 'G')[0] == 'C': t['_bad'] = 'P13: %s was named by a resume answer, reindex does not find it' % (res,)
            # A save of this very attempt is no other lineage: its record may have come late, after an older copy of the catalog.
            own = (latest(c, t['v']) or (0,))[0] == att
            if att == s['cur'] and res and not own and latest(c, t['v']) != res and latest(c, s['v']) == res: t['_bad'] = 'P13/LINEAGE: attempt %d resumed at %s; after reindex latest is %s' % (att, res, latest(c, t['v']))
        whole = all(x[0] != 'C' or 'R' in x[3] for _, x in s['v']) and {w for w, x in s['v'] if x[0] == 'C'} == set(W)
        if c.progs and whole and latest(c, t['v']) != latest(c, s['v']): t['_bad'] = 'ORDER: latest was %s, after reindex it is %s' % (latest(c, s['v']), latest(c, t['v']))
        if t['cur'] < s['cur']: t['_bad'] = t.get('_bad') or 'P6: reindex forgot attempt %d, the number will be given out again' % s['cur']
        add('database lost, reindex', t, 1)
    b = spend(c, s, 'backup')
    if b is not None and s['cur']:
        if s['bk'] is None: add('backup of the database', up(s, bk=(s['cur'], s['jm'], s['v'])), 1)
        else:
            add('old backup restored', up(s, cur=s['bk'][0], jm=s['bk'][1], v=s['bk'][2], bud=b, hi=None, sv=s['sv'] if c.keepops else tuple((u, None) for u, _ in s['sv']), lease=(), frozen=1 if 'higher' in F and ('gen' in F or not c.unnoticed) else 0), 1)
    if s['frozen'] and 'attrec' in F: add('operator: reconcile from the bucket', reindex(c, s))
    return out

Cfg.jobs_name = lambda c, j: 0 if c.sameJob and 'procid' not in c.F else j
def key(s): return tuple(s.values())
def step_check(c, t):
    if '_bad' in t: return t['_bad']
    try: invariants(c, t)
    except Bad as e: return str(e)
    return None
def drain(c, s, quiet=400):
    """faults stop: run only protocol actions, fairly; return complaint or None"""
    n = 0; i = 0
    while n < quiet:
        o = [(l, t) for l, t, f in succ(c, s) if not f and key(t) != key(s)]
        if not o: break
        l, t = o[i % len(o)]; i += 1
        bad = step_check(c, t)
        if bad: return bad
        s = t; n += 1
    if n >= quiet: return 'LIVELOCK: still moving after %d fair steps' % quiet
    running = [j for j in range(c.jobs) if s['jobs'][j] == 1]
    for w, x in s['v']:
        if x[0] == 'O' and any(s['rk'][j][0][0] and s['rk'][j][0][0] != 0 and s['rk'][j][0][0][0] == w[0] for j in running):
            return 'STUCK: %s stays open (sealed %s, registered %s) until 24 h though the job lives' % (w, sorted(x[1]), sorted(x[2]))
    V = dict(s['v'])
    for j in running:
        for (w, r), e in s['jr']:
            if c.R == 1 and e[1] == 'x' and e[0][0] == j and w[0] == s['cur'] and w not in V and (w, r, e[0]) in s['st']: return 'VANISHED: save %s was accepted, then forgotten; nobody sends it again' % (w,)
    for o in s['st']:
        if o[0] in V and V[o[0]][0] == 'G': return 'ORPHAN: object %s of a gone version stays for ever' % (o,)
    return None
def short(s): return {k: v for k, v in s.items() if k in ('v', 'cur', 'jr', 'st')}

def bfs(c, limit=120, maxst=400000, live=0, want=None):
    t0 = time.process_time(); s0 = init(c); seen = {hash(key(s0))}; par = {}; q = deque([(s0, None)]); n = 0; viol = {}
    rnd = random.Random(1)
    while q:
        s, tr = q.popleft(); n += 1
        if n % 1000 == 0 and (time.process_time() - t0 > limit or len(seen) > maxst): break
        for l, t, f in succ(c, s):
            bad = step_check(c, t)
            if bad:
                k = bad.split(':')[0]
                if k not in viol:
                    viol[k] = (bad, path((l, tr)))
                continue
            h = hash(key(t))
            if h in seen: continue
            seen.add(h); q.append((t, (l, tr)))
            if live and rnd.random() < live:
                bad = drain(c, t)
                if bad and bad.split(':')[0] not in viol: viol[bad.split(':')[0]] = (bad, path((l, tr)) + ['... then only fair steps'])
        if want and want in viol: break
    return dict(states=len(seen), expanded=n, complete=not q, secs=round(time.process_time() - t0, 1), viol=viol)
def path(tr):
    p = []
    while tr: p.append(tr[0]); tr = tr[1]
    return p[::-1]
def walk(c, seeds, depth=80, limit=120, live=0.02, first=0):
    t0 = time.process_time(); steps = 0; viol = {}; k = first
    while k < first + seeds and time.process_time() - t0 < limit:
        rnd = random.Random(k); s = init(c); tr = []
        for d in range(depth):
            o = succ(c, s)
            if not o: break
            fa = [x for x in o if x[2]]; pr = [x for x in o if not x[2]]
            l, t, f = rnd.choice(fa) if fa and (not pr or rnd.random() < 0.25) else rnd.choice(pr)
            tr.append(l); steps += 1
            bad = step_check(c, t)
            if bad:
                q = bad.split(':')[0]
                if q not in viol or len(viol[q][1]) > len(tr): viol[q] = (bad, list(tr), k)
                break
            s = t
            if live and rnd.random() < live:
                bad = drain(c, s)
                if bad:
                    q = bad.split(':')[0]
                    if q not in viol or len(viol[q][1]) > len(tr): viol[q] = (bad, tr + ['... then only fair steps'], k)
        k += 1
    return dict(seeds=k - first, steps=steps, secs=round(time.process_time() - t0, 1), viol=viol)
