# SPDX-License-Identifier: Apache-2.0
"""One shard, its slab, the journal, the store's multipart upload, re-offer and restart (Q15-Q17, Q21; V14, V18, V19).

state: (proc, jr, mem, slab, tr, ups, obj, wire, bud, out, zomb)
proc: None dead | pc string; jr: (token, uid|None, 'i' intent|'u' uid|'c' complete sent|'d' durable) or None
slab: bytes in the slab now (1 = this save, 2 = the next one); tr: trainer alive; ups: upload id -> (token, parts, A active|C|X)
obj: (token, bytes of part 1, bytes of part 2) or None; wire: requests under way; out: None|'durable'|'failed'; zomb: a paused older uploader that still maps the slab"""
from .explore import Machine


def shard(fix=(), crash=2, lost=2, trdie=1, crc=True, nodelost=0, pause=0, jafter=False):
    init = ('start', None, None, 1, 1, (), None, frozenset(), (crash, lost, trdie, nodelost, pause), None, None)
    def apply(ups, obj, m):
        u = dict(ups)
        if m[0] == 'part' and u.get(m[1], ('', (), 'X'))[2] == 'A':
            if crc and m[3] != 1: return ups, obj                       # header CRC is of the staged bytes: BadDigest
            t, p, a = u[m[1]]; p = list(p); p[m[2]] = m[3]; u[m[1]] = (t, tuple(p), a)
        if m[0] == 'complete' and u.get(m[1], ('', (), 'X'))[2] == 'A' and 0 not in u[m[1]][1]:
            t, p, a = u[m[1]]; u[m[1]] = (t, p, 'C'); obj = (t,) + p
        if m[0] == 'abort' and m[1] in u and u[m[1]][2] == 'A': u[m[1]] = u[m[1]][:2] + ('X',)
        return tuple(sorted(u.items())), obj
    def succ(s):
        proc, jr, mem, slab, tr, ups, obj, wire, bud, out, z = s
        def mk(**k):
            d = dict(proc=proc, jr=jr, mem=mem, slab=slab, tr=tr, ups=ups, obj=obj, wire=wire, bud=bud, out=out, z=z); d.update(k)
            return tuple(d[x] for x in ('proc', 'jr', 'mem', 'slab', 'tr', 'ups', 'obj', 'wire', 'bud', 'out', 'z'))
        def pay(i): return bud[:i] + (bud[i] - 1,) + bud[i + 1:]
        U = dict(ups)
        for m in wire:
            nu, no = apply(ups, obj, m); yield 'late %s arrives' % (m,), mk(ups=nu, obj=no, wire=wire - {m}), 0
        if bud[2] and tr: yield 'trainer dies', mk(tr=0, bud=pay(2), mem=mem if proc else None), 1
        if bud[0] and proc and proc != 'lost': yield 'uploader killed at %s' % proc, mk(proc=None, mem=None, bud=pay(0)), 1
        if bud[3] and proc: yield 'node lost with its journal', mk(proc='lost', jr=None, mem=None, tr=0, out=out or 'failed', bud=pay(3)), 1
        if bud[4] and proc and proc.startswith('part') and not z and 'eof' not in fix:   # paused; libcairn calls it gone after a time-out and offers the slab to a second uploader
            yield 'uploader paused at %s, slab offered to a second one' % proc, mk(proc='recover', jr=None, z=(jr[1], int(proc[4])), bud=pay(4)), 1
        if z:
            nu, no = apply(ups, obj, ('part', z[0], z[1], slab))
            yield 'paused uploader wakes, sends part %d of %s' % (z[1], z[0]), mk(ups=nu, obj=no, z=(z[0], z[1] + 1) if z[1] == 0 else None, wire=wire | ({('complete', z[0])} if z[1] == 1 else set())), 1
        if proc is None and out is None: yield 'uploader restarts', mk(proc='recover'), 0
        if proc is None and out is not None and jr and jr[2] != 'x': yield 'uploader restarts', mk(proc='recover'), 0
        if proc == 'start': yield 'journal: intent + token', mk(jr=('t%d' % (len(ups)), None, 'i'), mem=1, proc='create'), 0
        if proc == 'create' and len(ups) < 7:
            uid = 'u%d' % len(ups); nu = ups + ((uid, (jr[0], (0, 0), 'A')),)
            yield 'create -> %s' % uid, mk(ups=nu, proc='juid', mem=(mem, uid)), 0
            if bud[1]: yield 'create: reply lost', mk(ups=nu, bud=pay(1)), 1
        if proc == 'juid': yield 'journal: upload id', mk(jr=(jr[0], mem[1], 'u'), proc='part0', mem=1), 0
        if proc in ('part0', 'part1'):
            i = int(proc[4]); m = ('part', jr[1], i, slab); nu, no = apply(ups, obj, m); nxt = 'part1' if i == 0 else 'jcomp'
            if dict(ups).get(jr[1], (0, 0, 'X'))[2] != 'A': yield 'part: NoSuchUpload', mk(proc='r3'), 0
            else:
                yield 'part%d ok' % i, mk(ups=nu, proc=nxt), 0
                if bud[1]: yield 'part%d: first try delayed, second ok' % i, mk(ups=nu, proc=nxt, wire=wire | {m}, bud=pay(1)), 1
        if proc == 'jcomp': yield 'journal: complete' if not jafter else 'parts done', mk(jr=jr if jafter else (jr[0], jr[1], 'c'), proc='comp'), 0
        if proc == 'comp':
            m = ('complete', jr[1]); nu, no = apply(ups, obj, m)
            if dict(nu).get(jr[1], (0, 0, 'X'))[2] == 'C' and no != obj: yield 'complete ok', mk(ups=nu, obj=no, proc='head'), 0
            else: yield 'complete: NoSuchUpload', mk(proc='r3'), 0
            if bud[1]:
                yield 'complete: applied, reply lost', mk(ups=nu, obj=no, proc='r3', bud=pay(1)), 1
                yield 'complete: timed out, still under way', mk(proc='r3', wire=wire | {m}, bud=pay(1)), 1
        if proc in ('head', 'r3'):
            if obj and (obj[0] == jr[0] or ('anytoken' in fix)): yield 'HEAD: our token -> durable', mk(proc='jdur'), 0
            elif obj: yield 'HEAD: another token, save fails by name', mk(out=out or 'failed', proc='giveup'), 0
            elif proc == 'r3' and U.get(jr[1], (0, 0, 'X'))[2] == 'A':
                yield 'ListParts: still there', mk(proc='comp' if 0 not in U[jr[1]][1] else ('part0' if U[jr[1]][1][0] == 0 else 'part1')) if mem or ('partsok' in fix and 0 not in U[jr[1]][1]) else mk(proc='giveup', out=out or 'failed'), 0
            elif mem: yield 'nothing there: new upload', mk(jr=('t%d' % len(ups), None, 'i'), proc='create'), 0
            else: yield 'nothing there, bytes gone: fail', mk(out=out or 'failed', proc='giveup'), 0
        if proc == 'jdur': yield 'journal: durable, slab free', mk(jr=(jr[0], jr[1], 'd'), proc='idle', mem=None, out=out or 'durable'), 0
        if proc == 'idle' and tr and slab == 1 and (not wire or 'wirefree' not in fix): yield 'trainer stages the next save into the slab', mk(slab=2), 0
        if proc == 'giveup':
            nu = tuple((k, (v[0], v[1], 'X') if jr and k == jr[1] and v[2] == 'A' else v) for k, v in ups)
            if 'sweepmpu' in fix: nu = tuple((k, v[:2] + ('X',)) for k, v in nu)
            yield 'abort upload, journal closed', mk(ups=nu, proc='idle', jr=(jr[0], jr[1], 'x') if jr else None, mem=None), 0
        if proc in ('idle', 'lost') and 'sweepmpu' in fix and any(v[2] == 'A' for k, v in ups):
            yield 'server: uploads of this key listed and aborted', mk(ups=tuple((k, v[:2] + ('X',)) if v[2] == 'A' else (k, v) for k, v in ups)), 0
        if proc == 'recover':
            m2 = 1 if (tr and slab == 1 and out is None) else None
            if jr is None: yield 'recover: no journal', mk(proc='start' if m2 else 'idle', out=out if m2 else out or 'failed'), 0
            elif jr[2] == 'd': yield 'recover: durable already', mk(proc='idle', out=out or 'durable'), 0
            elif jr[2] == 'i': yield 'recover: intent only', mk(proc='create' if m2 else 'giveup', mem=m2, out=out if m2 else out or 'failed'), 0
            elif 'headfirst' in fix or jr[2] == 'c': yield 'recover: HEAD first', mk(proc='r3', mem=m2), 0
            else: yield 'recover: upload id, no complete', mk(proc='part0' if m2 else 'giveup', mem=m2, out=out if m2 else out or 'failed'), 0
    def check(s):
        if s[9] == 'durable' and s[6] and s[6][1:] != (1, 1): return 'P3: durable object holds bytes of another save %s' % (s[6],)
        if s[9] == 'durable' and not s[6]: return 'P2: durable but no object'
    def final(s):
        if s[9] is None: return 'STUCK: neither durable nor failed'
        if s[9] == 'failed' and s[6] and s[6][1:] == (1, 1) and s[0] != 'lost': return 'NEEDLESS: all bytes of this save are in the object, yet the save failed'
        if any(v[2] == 'A' for k, v in s[5]): return 'ORPHAN: an open multipart upload that nobody knows'
    return Machine(init, succ, check, final)
