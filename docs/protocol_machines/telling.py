# SPDX-License-Identifier: Apache-2.0
"""One staged save between libcairn, the uploader and the server: small worlds for one rule each.

cancel   Q44, V28: cancelled after the seal, while the uploader is away
again    Q46, Q47, V30, V31: another catalog generation, stores with and without tokens
answers  Q48, V32: answers of somebody who is not the server
grants   Q49, V33: a foreign grant beside a good one in a heartbeat; a server that lost its grant key
refused  Q50, V34: a begin that the server refuses
polls    Q51, V35: an attempt call that waits longer than one request may
numbers  Q41: what a save is called between libcairn and uploaders"""
from collections import namedtuple
from .explore import Machine

Cancel = namedtuple('Cancel', 'uploader linked entry handle asked kept ignored kills')


def cancel(rules, kills=1):
    """entry: sealed | failed | committed | aborted, as journal and server have it. kept: libcairn
    remembers a cancel that no uploader has journaled. asked: the caller cancelled. handle: what the caller
    was told. ignored: the version committed after an uploader could have known of the cancel."""
    init = Cancel('up', True, 'sealed', 'open', False, False, False, kills)

    def succ(s):
        if s.kills and s.uploader == 'up':
            yield 'uploader killed', s._replace(uploader='down', linked=False, kills=s.kills - 1), True
        if s.uploader == 'down':
            yield 'uploader starts again', s._replace(uploader='up'), False
        if s.uploader == 'up':
            if not s.linked:
                met = s._replace(linked=True)
                if s.kept:
                    met = met._replace(kept=False)
                    if s.entry == 'sealed' and 'fail_after_seal' in rules:
                        met = met._replace(entry='failed')
                yield 'libcairn meets the uploader', met, False
            if s.entry == 'sealed':
                yield 'the version commits', s._replace(entry='committed', ignored=s.linked and s.asked), False
            if s.entry == 'failed':
                yield 'the fail reaches the server', s._replace(entry='aborted'), False
        if s.handle == 'open':
            if s.linked:
                if s.entry == 'sealed':
                    yield 'cancelled: the uploader journals the fail', \
                        s._replace(entry='failed', handle='cancelled', asked=True), True
            elif not s.asked:
                told = 'open' if 'uploader_answers' in rules else 'cancelled'
                yield 'cancelled while no uploader is there', \
                    s._replace(asked=True, kept='cancel_kept' in rules, handle=told), True
        if s.handle == 'open' and s.linked and not s.kept and s.entry != 'sealed':
            told = 'committed' if s.entry == 'committed' else 'cancelled'
            yield 'libcairn hears the verdict', s._replace(handle=told), False

    def check(s):
        if s.handle == 'cancelled' and s.entry == 'committed':
            return 'CANCELLED-COMMITTED: the handle said cancelled, the version committed'
        if s.ignored:
            return 'IGNORED: cancelled, and libcairn met the uploader, before the commit; it committed'
        return None

    def final(s):
        return 'UNTOLD: the handle never ends' if s.handle == 'open' else None

    return Machine(init, succ, check, final)


Again = namedtuple('Again', 'phase stored durable_record slab generation asked known verdict restarts kills')


def again(rules, tokens=True, restarts=1, kills=1, slab_stays=True):
    """phase: staging | sealed. stored: the object is in the store. generation: the server's; asked: the
    last one for which the uploader looked at the store and told everything. known: the server has it."""
    init = Again('staging', False, False, True, 0, 0, False, None, restarts, kills)

    def proven(s):
        if tokens:
            return True
        return s.durable_record and 'durable_stands' in rules or 'compare_by_reading' in rules

    def succ(s):
        if s.verdict:
            return
        if s.phase == 'staging':
            yield 'the rank seals', s._replace(phase='sealed'), False
        if not s.stored and s.slab:
            yield 'the shard is sent', s._replace(stored=True), False
        if s.stored and not s.durable_record:
            if not s.kills and kills and not proven(s):
                yield 'after a restart the object is nobody\'s: fail', s._replace(verdict='failed'), False
            else:
                yield 'durable is journaled', s._replace(durable_record=True, slab=slab_stays and s.slab), False
        if s.kills and s.stored:
            yield 'uploader and trainer killed', s._replace(kills=s.kills - 1, slab=False, phase='sealed'), True
        if s.restarts:
            yield 'the server starts again, another generation', \
                s._replace(generation=s.generation + 1, restarts=s.restarts - 1, known=False), True
        if s.asked != s.generation:
            if s.phase == 'staging' and 'sealed_only' in rules:
                yield 'a save that is being staged is left alone', s._replace(asked=s.generation), False
            elif s.phase == 'sealed' and not s.stored and s.slab:
                yield 'its bytes are still being sent', s._replace(asked=s.generation), False
            elif s.stored and proven(s):
                yield 'HEAD: ours, told again', s._replace(asked=s.generation, known=True), False
            else:
                yield 'HEAD: not there, or not ours: fail', s._replace(verdict='failed'), False
        if s.phase == 'sealed' and s.durable_record and s.asked == s.generation and not s.known:
            yield 'registered', s._replace(known=True), False
        if s.phase == 'sealed' and s.known and s.durable_record:
            yield 'commit', s._replace(verdict='committed'), False

    def check(s):
        return 'LOST: all bytes are in the store or in the slab, the save failed' if s.verdict == 'failed' else None

    def final(s):
        return None if s.verdict else 'STUCK: neither committed nor failed'

    return Machine(init, succ, check, final)


Answers = namedtuple('Answers', 'entry proxy run faults')


def answers(rules, faults=2):
    init = Answers('staged', 'passes', 'lives', faults)

    def succ(s):
        if s.faults:
            yield 'a proxy answers 404 by itself', s._replace(proxy='foreign', faults=s.faults - 1), True
            if s.run == 'lives':
                yield 'the run is deleted', s._replace(run='deleted', faults=s.faults - 1), True
        if s.proxy == 'foreign':
            yield 'the proxy passes requests on again', s._replace(proxy='passes'), False
        if s.entry != 'staged':
            return
        if s.proxy == 'foreign':
            if 'own_answers' not in rules:
                yield 'told: 404, final', s._replace(entry='dropped'), False
        elif s.run == 'deleted':
            yield 'told: 410 of the run, final', s._replace(entry='over'), False
        else:
            yield 'told: accepted', s._replace(entry='accepted'), False

    def check(s):
        return 'LOST: a staged save was dropped though its run lives' if s.entry == 'dropped' else None

    def final(s):
        return 'STUCK: neither accepted nor over' if s.entry == 'staged' else None

    return Machine(init, succ, check, final)


Grants = namedtuple('Grants', 'key server foreign_told silence b restarts')


def grants(rules, restarts=1, old_grant=True):
    """Node with run a (an old grant, signed with another key) and run b (healthy, staged). key: the one
    that signed b's grant, lost, or a new one. silence: heartbeats in a row that did not count."""
    init = Grants('kept', 'up', not old_grant, 0, 'open', restarts)

    def succ(s):
        if s.restarts and s.server == 'up':
            yield 'grant.key is lost and the server started again', s._replace(
                key='lost', server='down', restarts=s.restarts - 1), True
        if s.server == 'down':
            if s.key == 'lost' and 'key_needed' in rules:
                yield 'the server refuses to start and says why; the key is put back', s._replace(key='kept'), False
            else:
                yield 'the server starts', s._replace(server='up', key='kept' if s.key == 'kept' else 'new'), False
        if s.server != 'up' or s.b != 'open':
            return
        if s.key == 'new':
            yield 'the grant of b is refused', s._replace(b='dropped'), False
            return
        if not s.foreign_told and 'one_by_one' not in rules:
            if s.silence < 3:
                yield 'heartbeat: 401 for all', s._replace(silence=s.silence + 1), False
            else:
                yield 'the node is silent: b aborted', s._replace(b='aborted'), False
        else:
            yield 'heartbeat: b is heard, a is named', s._replace(foreign_told=True, silence=0), False
            yield 'b commits', s._replace(b='committed'), False

    def check(s):
        if s.b in ('dropped', 'aborted'):
            return 'LOST: the staged save of a healthy run was %s' % s.b
        return None

    def final(s):
        return None if s.b != 'open' else 'STUCK: b stays open'

    return Machine(init, succ, check, final)


Refused = namedtuple('Refused', 'rank0 rank1 version')


def refused(rules):
    """The server refuses the begin of rank 0 (a label that is too long); rank 1 is well."""
    init = Refused('begins', 'begins', None)

    def succ(s):
        if s.rank0 == 'begins':
            yield 'begin of rank 0 refused', s._replace(rank0='fail owed' if 'refused_fails' in rules else 'over'), False
        if s.rank0 == 'fail owed':
            yield 'fail of rank 0: aborting, a row for all ranks', s._replace(rank0='over', version='aborting'), False
        if s.rank1 == 'begins':
            yield 'begin of rank 1', s._replace(rank1='over' if s.version == 'aborting' else 'sealed',
                                                version=s.version or 'open'), False
        if s.rank1 == 'sealed' and s.version == 'aborting':
            yield 'rank 1 is told', s._replace(rank1='over'), False

    def final(s):
        if s.version == 'open':
            return 'STUCK: rank 1 has sealed, rank 0 will never come, the version stays open for 24 h'
        return None

    return Machine(init, succ, lambda s: None, final)


Polls = namedtuple('Polls', 'waited polled version answer')


def polls(rules, wait_staged=4, one_request=2, needed=3):
    """A version that all ranks staged needs `needed` ticks of a slow store to be sealed at the server;
    the attempt call may wait `wait_staged`, one HTTP request `one_request`."""
    init = Polls(0, 0, 'staged', None)

    def succ(s):
        if s.answer:
            return
        if s.version == 'staged' and s.waited >= needed:
            yield 'the staged save commits', s._replace(version='committed'), False
        if s.version == 'committed':
            yield 'the attempt opens and resumes from it', s._replace(answer='opened'), False
        elif s.waited >= wait_staged or (s.polled >= one_request and 'asked_again' not in rules):
            yield 'the time is over: aborted, the attempt opens', s._replace(version='aborted', answer='opened'), False
        elif s.polled >= one_request:
            yield '503 still-staged; the uploader asks again', s._replace(polled=0), False
        else:
            yield 'a tick', s._replace(waited=s.waited + 1, polled=s.polled + 1), False

    def check(s):
        if s.version == 'aborted' and s.waited < wait_staged:
            return 'LOST: aborted after %d of %d ticks of wait_staged' % (s.waited, wait_staged)
        return None

    return Machine(init, succ, check, lambda s: None)


Numbers = namedtuple('Numbers', 'handles known counter linked kills begun')


def numbers(rules, saves=3, kills=1):
    """Uploader and libcairn name saves by numbers that each life of the uploader counts anew, for what it is
    offered. handles: libcairn's, oldest first: (save, number, what it says); one that ended stays until its
    caller frees it. known: the uploader's saves: (number, save)."""
    init = Numbers((), (), 0, True, kills, 0)

    def succ(s):
        if not s.linked:
            handles, known, counter = [], (), 0
            for save, number, says in s.handles:
                if says == 'open':
                    counter += 1
                    number = counter
                    known += ((number, save),)
                elif 'numbers_forgotten' in rules:
                    number = 0
                handles.append((save, number, says))
            yield 'libcairn offers its open saves to the new uploader', s._replace(
                handles=tuple(handles), known=known, counter=counter, linked=True), False
            return
        if s.kills:
            yield 'uploader killed', s._replace(linked=False, known=(), kills=s.kills - 1), True
        if s.begun < saves:
            number, save = s.counter + 1, s.begun + 1
            yield 'save %d begins as number %d' % (save, number), s._replace(
                handles=s.handles + ((save, number, 'open'),), known=s.known + ((number, save),), counter=number,
                begun=save), False
        for number, save in s.known:
            fate = 'aborted' if save == 1 else 'committed'
            handles = list(s.handles)
            place = [i for i, h in enumerate(handles) if h[1] == number][0]
            handles[place] = (handles[place][0], number, fate)
            yield 'number %d (save %d) is %s' % (number, save, fate), s._replace(
                handles=tuple(handles), known=tuple(k for k in s.known if k[0] != number)), False

    def check(s):
        for save, _, says in s.handles:
            if says != 'open' and says != ('aborted' if save == 1 else 'committed'):
                return 'UNTRUE: save %d was aborted, its handle says %s' % (save, says)
        return None

    def final(s):
        for save, _, says in s.handles:
            if says == 'open':
                return 'UNTOLD: save %d ended, its handle never hears it' % save
        return None

    return Machine(init, succ, check, final)
