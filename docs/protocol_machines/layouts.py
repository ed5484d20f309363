# SPDX-License-Identifier: Apache-2.0
"""Tables and layout objects: references, and deletes that come late (Q16, Q33; V20, V21).

state: (known, ref, obj, v1, v2, gcpc, wire, asked, tabsaved, up)  obj: set of layout keys in the store"""
from .explore import Machine


def layouts(fix=(), upcrash=1):
    nonce = 'laykey' in fix
    init = (1, frozenset(['v1']), frozenset([0]), 'C', 'none', 'idle', frozenset(), 0, 1, upcrash, 1)
    def succ(s):
        known, ref, obj, v1, v2, gc, wire, asked, tab, cr, late = s
        def mk(**k):
            d = dict(known=known, ref=ref, obj=obj, v1=v1, v2=v2, gc=gc, wire=wire, asked=asked, tab=tab, cr=cr, late=late); d.update(k); return tuple(d[x] for x in ('known', 'ref', 'obj', 'v1', 'v2', 'gc', 'wire', 'asked', 'tab', 'cr', 'late'))
        k2 = 2 if nonce else 0
        if v1 == 'C': yield 'v1 deleted, its reference dropped', mk(v1='G', ref=ref - {'v1'}), 1
        if gc == 'idle' and known and not ref: yield 'GC transaction: digest unknown (48 h without reference)', mk(known=0, gc='del'), 1
        if gc == 'del':
            yield 'GC deletes the layout object', mk(obj=obj - {0}, gc='done'), 0
            if late: yield 'GC delete times out, retried; first try still under way', mk(obj=obj - {0}, gc='done', wire=wire | {0}, late=0), 1
        for m in wire: yield 'late DELETE of the layout arrives', mk(obj=obj - {m}, wire=wire - {m}), 0
        if v2 == 'none': yield 'v2 begins; uploader asks HEAD tables/digest', mk(v2='open', asked=1 if known else 2), 0
        if v2 == 'open' and asked == 2: yield 'PUT tables/digest', mk(known=1, asked=1), 0
        if v2 == 'open' and asked == 1:
            if known: yield 'seal of v2 with the digest: reference taken', mk(v2='sealed', ref=ref | {'v2'}), 0
            elif 'tabjr' in fix or tab: yield 'seal: 409 table-unknown, table sent again', mk(asked=2), 0
        if cr and v2 == 'open': yield 'trainer and uploader die; seal is in the journal', mk(cr=0, tab=0), 1
        if v2 == 'sealed':
            # the server writes the layout object unless it believes it is there
            if obj and not nonce: yield 'layout is there', mk(v2='ready'), 0
            else: yield 'server merges, writes layout', mk(obj=obj | {k2}, v2='ready'), 0
        if v2 == 'ready': yield 'v2 commits', mk(v2='C'), 0
    def check(s):
        if s[4] == 'C' and ((2 if nonce else 0) not in s[2]): return 'P2: v2 is committed, its layout object is deleted'
    def final(s):
        if s[4] in ('open', 'sealed', 'ready'): return 'STUCK: v2 cannot seal: table unknown and nobody has its bytes'
    return Machine(init, succ, check, final)
