# SPDX-License-Identifier: Apache-2.0
"""A rank whose process ends while other ranks of its attempt go on (Q56, V41).

Rank 0 lives on node A, rank 1 on node B; both save steps 1 and 2, and rank 1 never ends. Rank 0 is killed,
or says `bye` and ends, or says `bye` and comes again. What node A's journal holds of it is told late; A's
uploader may be killed, the catalog may be put back to an empty copy (another generation). Node B's uploader
repeats whatever the server lacks, so it is not modelled.

Rules: `ended_ends` the server ends the open versions that need an ended rank; `ended_at_begin` also those
that are begun later; `ended_when_told` only when nothing of that rank is under way; `ended_journaled` the
session stays in the journal until the server has taken its end; `ended_by_generation` the report counts for
the catalog that was told; `bye_watched` a process is watched after its `bye` too; `bye_is_no_end` it is the
process that ends, not the session."""
from collections import namedtuple
from .explore import Machine, at

State = namedtuple('State', 'process entries told knows up taken wire mark versions generation heard kills restores')
Version = namedtuple('Version', 'state sealed')
STEPS = (0, 1)
NONE = Version(None, frozenset())
UNHEARD = -1


def ended(rules, kills=0, restores=0, byes=True, unheard=False):
    """process: here | bye | dead. entries[v]: what A's journal has of rank 0: None, open, sealed or failed.
    told[v]: of that, what A's uploader knows the server to have: None, begun or end. knows: A remembers the
    session. taken: the server has answered the report in A's present generation. wire: a report under way,
    of that generation. versions[v]: the catalog's row; `sealed` names the ranks. Both kills and restores: a
    report that was taken is forgotten by either side, and the versions stay open for 24 h. unheard: an uploader
    that starts again tells and reports before it has heard which catalog it tells (UNHEARD)."""
    init = State('here', (None, None), (None, None), True, True, False, None, False, (NONE, NONE), 0, 0, kills,
                 restores)

    def dies(version):
        return version.state == 'open' and 0 not in version.sealed

    def begun(s, v):
        """The row of v after a begin."""
        if s.versions[v].state:
            return s
        late = s.mark and 'ended_at_begin' in rules
        return s._replace(versions=at(s.versions, v, Version('ended' if late else 'open', frozenset())))

    def sealed(s, v, rank):
        version = s.versions[v]
        if version.state != 'open':
            return s
        ranks = version.sealed | {rank}
        return s._replace(versions=at(s.versions, v, Version('committed' if len(ranks) == 2 else 'open', ranks)))

    def rank_0(s):
        if s.process == 'here':
            for v in STEPS:
                if s.entries[v] is None and all(s.entries[u] == 'sealed' for u in STEPS[:v]) and s.up:
                    yield 'rank 0 begins %d' % v, s._replace(entries=at(s.entries, v, 'open')), False
                if s.entries[v] == 'open' and s.up:
                    yield 'rank 0 seals %d' % v, s._replace(entries=at(s.entries, v, 'sealed')), False
            if byes and s.up and 'open' not in s.entries:
                knows = 'bye_watched' in rules or 'bye_is_no_end' not in rules
                yield 'rank 0 says bye', s._replace(process='bye', knows=knows), True
        if s.process == 'bye' and s.up and not s.mark:
            yield 'rank 0 comes again', s._replace(process='here', knows=True, taken=False), True
        if s.process != 'dead':
            yield 'rank 0 ends', s._replace(process='dead'), True

    def node_a(s):
        if not s.up:
            knows = s.knows and ('ended_journaled' in rules and not s.taken or s.process == 'here')
            heard = UNHEARD if unheard else s.heard
            yield 'uploader A starts again', s._replace(up=True, knows=knows, told=(None, None), heard=heard), False
            return
        if s.kills:
            yield 'uploader A killed', s._replace(up=False, kills=s.kills - 1), True
        for v in STEPS:
            if s.entries[v] == 'open' and s.process == 'dead':
                yield 'A fails %d of rank 0' % v, s._replace(entries=at(s.entries, v, 'failed')), False
            if s.entries[v] and s.told[v] is None:
                yield 'begin of rank 0 %d' % v, begun(s, v)._replace(told=at(s.told, v, 'begun')), False
            if s.told[v] == 'begun' and s.entries[v] == 'sealed':
                yield 'seal of rank 0 %d' % v, sealed(s, v, 0)._replace(told=at(s.told, v, 'end')), False
            if s.told[v] == 'begun' and s.entries[v] == 'failed':
                after = s._replace(told=at(s.told, v, 'end'))
                if s.versions[v].state == 'open':
                    after = after._replace(versions=at(s.versions, v, Version('ended', s.versions[v].sealed)))
                yield 'fail of rank 0 %d' % v, after, False
        gone = s.process == 'dead' or s.process == 'bye' and 'bye_is_no_end' not in rules
        owed = any(s.entries[v] and s.told[v] != 'end' for v in STEPS)
        if s.knows and gone and not s.taken and s.wire is None and not (owed and 'ended_when_told' in rules):
            yield 'A reports the end of rank 0', s._replace(wire=s.heard), False
        if s.heard != s.generation:
            yield 'A hears another generation, tells again', \
                s._replace(heard=s.generation, told=(None, None), taken=False), False

    def server(s):
        if s.wire is not None:
            if s.wire != s.generation and 'ended_by_generation' in rules:
                yield 'the report is of another catalog', s._replace(wire=None), False
            else:
                versions = s.versions
                if 'ended_ends' in rules:
                    versions = tuple(Version('ended', x.sealed) if dies(x) else x for x in versions)
                yield 'the end of rank 0 is taken', \
                    s._replace(wire=None, taken=True, mark=True, versions=versions), False
            yield 'the report is lost', s._replace(wire=None), True
        if s.restores and any(x.state for x in s.versions):
            kept = tuple(x if x.state in ('committed', 'ended') else NONE for x in s.versions)
            yield 'the catalog is put back', \
                s._replace(versions=kept, mark=False, generation=s.generation + 1, restores=s.restores - 1), True
        for v in STEPS:
            if s.versions[v].state is None:
                yield 'begin of rank 1 %d' % v, begun(s, v), False
            elif dies(s.versions[v]) or s.versions[v].state == 'open':
                yield 'seal of rank 1 %d' % v, sealed(s, v, 1), False

    def succ(s):
        yield from rank_0(s)
        yield from node_a(s)
        yield from server(s)

    def check(s):
        for v in STEPS:
            if s.versions[v].state == 'ended' and s.entries[v] == 'sealed':
                return 'LOST: both ranks staged step %d, the server ended it' % v
            if s.versions[v].state == 'ended' and s.process != 'dead':
                return 'NEEDLESS: step %d was ended, the process of rank 0 lives' % v
        return None

    def final(s):
        if s.process == 'dead' and any(x.state == 'open' for x in s.versions):
            return 'STUCK: a version stays open for 24 h that needs a rank whose process has ended'
        return None

    return Machine(init, succ, check, final)
