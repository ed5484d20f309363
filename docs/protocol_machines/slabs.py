# SPDX-License-Identifier: Apache-2.0
"""One rank that saves on and on, its slab generations, and an uploader that is killed and started again
(Q41, Q42, Q43; V25, V26, V27).

The rank stages the saves 1..N, each into a generation that libcairn holds free, and never waits for a
commit. The server and its verdicts may be late or away throughout: an entry ends when it says so. A save
in the journal is staged (sealed, its bytes owed), durable or over. Sending reads the slab as it is at
that moment; after a restart the store is asked first, and its answer may come after the offer.
Messages to libcairn come in order and are lost with the connection."""
from collections import namedtuple
from .explore import Machine, at, put

State = namedtuple('State', 'bytes_in lib claims linked mail table journal store told mapped drawn next_save kills asks scribbles')
# bytes_in[g]  whose bytes generation g holds now
# lib[g]       (save, owner) for which libcairn believes g lent; None: free
# claims       saves whose end libcairn has not heard, with the slab each was staged in: {(save, g, owner)}
# mail         what the uploader has said and libcairn has not read
# table[g]     (save, owner) for which the uploader holds g; None: free. The table is None while it is dead
# journal      save -> (g, owner, 'staged' | 'durable' | 'over')
# store        save -> whose bytes the object holds
# told         save -> why it failed
# mapped       saves whose bytes this life of the uploader can read


def slabs(rules, saves=3, generations=1, kills=1, store_checks=True, asks=1, scribbles=0):
    free = (None,) * generations
    init = State((0,) * generations, free, (), True, (), free, (), (), (), frozenset(), 0, 1, kills, asks, scribbles)

    def say(s, *messages):
        return s._replace(mail=s.mail + messages) if s.linked else s

    def stage(s, g):
        save, owner = s.next_save, s.drawn + 1
        s = s._replace(next_save=save + 1, drawn=owner)
        if s.table[g] is not None:
            return s._replace(told=put(s.told, save, 'the slab is still being sent'))
        return s._replace(bytes_in=at(s.bytes_in, g, save), lib=at(s.lib, g, (save, owner)),
                          claims=s.claims + ((save, g, owner),), table=at(s.table, g, (save, owner)),
                          mapped=s.mapped | {save}, journal=put(s.journal, save, (g, owner, 'staged')))

    def release(s, save, g, owner):
        """This save needs g no more: the uploader frees it, for whom it holds it or for anybody."""
        if s.table[g] is None or 'free_present_owner' in rules and s.table[g] != (save, owner):
            return s
        return say(s._replace(table=at(s.table, g, None)), ('free', g, owner))

    def send(s, save, g, owner):
        content = s.bytes_in[g]
        if content != save and (store_checks or 'sum_as_sent' in rules):
            s = s._replace(journal=put(s.journal, save, (g, owner, 'over')),
                           told=put(s.told, save, 'source-changed'))
            return say(release(s, save, g, owner), ('over', save))
        return s._replace(store=put(s.store, save, content))

    def durable(s, save, g, owner):
        s = say(s._replace(journal=put(s.journal, save, (g, owner, 'durable'))), ('durable', save))
        return release(s, save, g, owner)

    def meet(s):
        """libcairn offers its slabs and saves to the new uploader, which answers each save's state."""
        s = s._replace(linked=True)
        needed = set()
        claims = []
        for save, g, owner in s.claims:
            entry = dict(s.journal).get(save)
            state = entry[2] if entry else 'over'
            if state != 'over' or 'ends_answered' not in rules:
                claims.append((save, g, owner))
            if 'offer_own' in rules and s.lib[g] != (save, owner):
                continue                                        # told by name, without a slab
            if 'join_owner' in rules:
                if state == 'staged' and entry[:2] == (g, owner) and s.table[g] in (None, (save, owner)):
                    s = s._replace(table=at(s.table, g, (save, owner)), mapped=s.mapped | {save})
            elif state != 'over':                               # device and inode match: who comes first has it
                if s.table[g] is not None:
                    s = s._replace(told=put(s.told, save, 'the slab is still being sent'))
                else:
                    s = s._replace(table=at(s.table, g, (save, owner)), mapped=s.mapped | {save})
            if state == 'staged':
                needed.add(g)
        return s._replace(claims=tuple(claims),
                          lib=tuple(x if g in needed else None for g, x in enumerate(s.lib)))

    def hear(s):
        message, s = s.mail[0], s._replace(mail=s.mail[1:])
        if message[0] == 'free':
            _, g, owner = message
            if 'write_after_own_free' in rules and s.lib[g] and s.lib[g][1] != owner:
                return s
            return s._replace(lib=at(s.lib, g, None))
        if message[0] == 'durable' and 'offer_own' not in rules:
            return s
        return s._replace(claims=tuple(c for c in s.claims if c[0] != message[1]))

    def succ(s):
        if s.mail:
            yield 'libcairn hears %s' % (s.mail[0],), hear(s), False
        if s.table is None:
            yield 'uploader starts again', s._replace(table=free, mapped=frozenset()), False
            return
        if s.kills:
            yield 'uploader killed', s._replace(table=None, linked=False, mail=(), kills=s.kills - 1), True
        for g in range(generations):
            if s.scribbles and s.bytes_in[g] > 0:
                yield 'slab %d is written by another hand' % g, \
                    s._replace(bytes_in=at(s.bytes_in, g, -1), scribbles=s.scribbles - 1), True
        if not s.linked:
            yield 'libcairn meets the new uploader', meet(s), False
        elif s.next_save <= saves and None in s.lib:
            g = s.lib.index(None)
            yield 'save %d is staged in slab %d' % (s.next_save, g), stage(s, g), False
        for save, (g, owner, phase) in s.journal:
            if phase == 'staged':
                if save in dict(s.store):
                    yield 'save %d: its object is there, durable' % save, durable(s, save, g, owner), False
                elif save in s.mapped:
                    yield 'save %d is sent' % save, send(s, save, g, owner), False
            if phase == 'durable':
                again = durable(s, save, g, owner)
                if s.table[g] == (save, owner):
                    yield 'save %d: the store was asked again, durable' % save, again, False
                elif s.asks:
                    yield 'another catalog generation: save %d is asked for again' % save, \
                        again._replace(asks=s.asks - 1), True
                over = s._replace(journal=put(s.journal, save, (g, owner, 'over')))
                yield 'the server says that save %d is over' % save, say(over, ('over', save)), False

    def check(s):
        for save, content in s.store:
            if content != save:
                return 'MIX: save %d is durable with the bytes of save %d' % (save, content)
        for save, why in s.told:
            if s.scribbles < scribbles and why == 'source-changed':
                continue                                        # the truth, and it was told
            return 'LOST: save %d of a living trainer: %s' % (save, why)
        return None

    def final(s):
        for save, (_, _, phase) in s.journal:
            if phase == 'staged':
                return 'LOST: save %d is staged, nothing sends it and nobody is told' % save
        for save, _, _ in s.claims:
            return 'UNTOLD: save %d is over, its rank never hears how it ended' % save
        if s.next_save <= saves:
            return 'STUCK: save %d waits for a slab that nothing frees' % s.next_save
        return None

    return Machine(init, succ, check, final)
