# SPDX-License-Identifier: Apache-2.0
"""What stands between a whole version and its commit.

manifest  Q53, V37: a manifest that is there already, with the same bytes or with others
choice    Q53, Q33: which object holds the layout is chosen once; a backup put back forgets the choice
mount     Q55, finding A: a node whose mount is not the store; a shard that goes after its registration
catalogs  Q35, Q36, V39, V40: backups of the catalog put back, and records that somebody planted"""
from collections import namedtuple
from .explore import Machine, at

Manifest = namedtuple('Manifest', 'release object synced version step kills releases cuts age')


def manifest(rules, kills=1, releases=(2,), cuts=1, aged=1):
    """The server of one release or another commits one whole version; `releases` are installed later. object: the release whose bytes the manifest
    has; synced: its folder was. step: where the commit stands, None when no server runs."""
    init = Manifest(1, None, False, 'open', 'put', kills, releases, cuts, aged)

    def succ(s):
        if s.step is None:
            yield 'the server starts again', s._replace(step='put'), False
            return
        if s.kills:
            yield 'server killed', s._replace(step=None, kills=s.kills - 1), True
        if s.releases and s.version == 'open':
            yield 'server stopped, release %d installed' % s.releases[0], s._replace(
                step=None, release=s.releases[0], releases=s.releases[1:]), True
        if s.cuts:
            lost = s.object is not None and not s.synced
            yield 'the power is cut', s._replace(step=None, cuts=0, object=None if lost else s.object), True
        if s.version != 'open':
            return
        if s.age and s.step == 'differs' and 'no_age' not in rules:
            yield '24 h are over: aborting', s._replace(version='aborted', age=0), True
        if s.step == 'put':
            if s.object is None:
                yield 'the manifest is published', s._replace(object=s.release, synced=False, step='sync'), False
            elif s.object == s.release or s.object < s.release and 'old_formats' in rules:
                yield 'the same manifest is there', s._replace(
                    step='transaction', synced=s.synced or 'same_is_synced' in rules), False
            elif 'stays_open' in rules:
                yield 'another manifest is there: open, said in readyz', s._replace(step='differs'), False
            else:
                yield 'another manifest is there: aborting', s._replace(version='aborted'), False
        if s.step == 'sync':
            yield 'its folder is synced', s._replace(synced=True, step='transaction'), False
        if s.step == 'transaction':
            yield 'committed', s._replace(version='committed', step='done'), False

    def check(s):
        if s.version == 'aborted':
            return 'LOST: a whole version was ended because its manifest has other bytes'
        if s.version == 'committed' and s.object is None:
            return 'P2: committed, its manifest is not on the store'
        return None

    def final(s):
        if s.version == 'open' and s.step == 'differs' and s.release >= s.object:
            return 'STUCK: the version stays open: this release cannot write the bytes of the older one'
        return None

    return Machine(init, succ, check, final)


Choice = namedtuple('Choice', 'cat manifests objects backup wire budget')
Rows = namedtuple('Rows', 'states chosen known swept')


def choice(rules, backups=1, deletes=1, saves=2):
    """The saves have one layout. cat: each save's state and the object that it has chosen, the objects that the catalog
    knows, those that it has swept. An object is named by the save that wrote it; wire: deletes under way."""
    init = Choice(Rows(('open',) * saves, (None,) * saves, frozenset(), frozenset()), (None,) * saves, frozenset(), None,
                  frozenset(), (backups, deletes))

    def put(s, v, **rows):
        return s.cat._replace(**{name: at(getattr(s.cat, name), v, value) for name, value in rows.items()})

    def shown(cat):                                             # another copy is known for what it is (Q35)
        return [x if x in ('committed', 'gone') else 'open' for x in cat.states], cat.swept

    def write(s, v):
        chosen, named = s.cat.chosen[v], s.manifests[v]
        s = s._replace(objects=s.objects | {chosen})
        if named is None:
            return 'publishes its manifest', s._replace(manifests=at(s.manifests, v, chosen), cat=put(s, v, states='ready'))
        if named == chosen:
            return 'finds its manifest', s._replace(cat=put(s, v, states='ready'))
        if 'choice_taken' not in rules or named in s.cat.swept and 'swept_stays' in rules:
            return 'finds another manifest', s._replace(cat=put(s, v, states='differs'))
        cat = put(s, v, chosen=named)
        return 'takes the choice of its manifest', s._replace(cat=cat._replace(known=cat.known | {chosen}))

    def succ(s):
        cat = s.cat
        for v, state in enumerate(cat.states):
            if state == 'open' and cat.chosen[v] is None:
                for writer in sorted(cat.known - cat.swept) or [v]:
                    yield 'save %d chooses object %d' % (v, writer), s._replace(cat=put(s, v, chosen=writer)), False
            elif state == 'open':
                what, after = write(s, v)
                yield 'save %d %s' % (v, what), after, False
            elif state == 'ready':
                known = put(s, v, states='committed')
                yield 'save %d commits' % v, s._replace(cat=known._replace(known=known.known | {cat.chosen[v]})), False
            elif state == 'committed' and s.budget[1]:
                yield 'version %d is deleted' % v, s._replace(cat=put(s, v, states='gone', chosen=None),
                                                              manifests=at(s.manifests, v, None), budget=at(s.budget, 1, 0)), True
        for writer in sorted(cat.known - cat.swept - frozenset(cat.chosen)):
            yield 'object %d is unused for 48 h' % writer, s._replace(
                cat=cat._replace(swept=cat.swept | {writer}), wire=s.wire | {writer}), True
        for writer in sorted(s.wire):
            yield 'object %d is deleted' % writer, s._replace(objects=s.objects - {writer}, wire=s.wire - {writer}), False
        if s.backup is None and s.budget[0]:
            yield 'the catalog is copied', s._replace(backup=cat), True
        if s.backup is not None and s.budget[0] and shown(cat) == shown(s.backup):
            yield 'the copy is put back; uploaders tell their saves again', s._replace(
                cat=s.backup, backup=None, budget=at(s.budget, 0, 0)), True

    def check(s):
        for v, state in enumerate(s.cat.states):
            if state == 'committed' and s.manifests[v] not in s.objects:
                return 'P2: version %d is committed, the layout object of its manifest is not there' % v
        return None

    def final(s):
        for v, state in enumerate(s.cat.states):
            if state == 'differs' and s.manifests[v] not in s.cat.swept:
                return 'STUCK: save %d stays open: its manifest names the layout object of a choice that is forgotten' % v
        return None

    return Machine(init, succ, check, final)


Mount = namedtuple('Mount', 'mounted met shard registered version gone away')
HERE, ELSEWHERE = 'on the store', 'on the disk of its node'


def mount(rules, away=2, gone=1):
    """Two nodes with a shard each. mounted[n]: the folder is the store. met[n]: this life of the uploader
    has seen store.json under the present mount."""
    init = Mount((True, False), (False, False), (None, None), (False, False), 'open', gone, away)

    def succ(s):
        for n in (0, 1):
            other = at(s.mounted, n, not s.mounted[n])
            met = s.met if 'met_again' not in rules else at(s.met, n, False)
            if s.mounted[n] and s.away:
                yield 'mount of node %d goes away' % n, s._replace(mounted=other, met=met, away=s.away - 1), True
            if not s.mounted[n]:
                yield 'mount of node %d comes (back)' % n, s._replace(mounted=other, met=met), False
            if s.mounted[n] and not s.met[n]:
                yield 'node %d meets store.json' % n, s._replace(met=at(s.met, n, True)), False
            if s.shard[n] is None and (s.met[n] or 'met_first' not in rules):
                where = HERE if s.mounted[n] else ELSEWHERE
                yield 'node %d writes its shard %s' % (n, where), s._replace(shard=at(s.shard, n, where)), False
            if s.shard[n] and not s.registered[n]:
                yield 'node %d registers' % n, s._replace(registered=at(s.registered, n, True)), False
            if s.gone and s.shard[n] == HERE and s.registered[n] and s.version == 'open':
                yield 'shard of node %d is removed by somebody' % n, \
                    s._replace(shard=at(s.shard, n, 'removed'), gone=0), True
        if all(s.registered) and s.version == 'open':
            if 'commit_looks' not in rules or s.shard == (HERE, HERE):
                yield 'commit', s._replace(version='committed'), False
            else:
                yield 'the commit does not find a shard: aborting, with its name', s._replace(version='aborted'), False

    def check(s):
        if s.version == 'committed' and s.shard != (HERE, HERE):
            return 'P2: committed, a shard is %s' % [x for x in s.shard if x != HERE][0]
        if s.version == 'aborted' and 'removed' not in s.shard:
            return 'LOST: a staged save was written to a folder that is not the store'
        return None

    def final(s):
        return 'STUCK: every mount is there, the version stays open' if s.version == 'open' else None

    return Machine(init, succ, check, final)


Catalog = namedtuple('Catalog', 'generation version attempt deleted frozen')
World = namedtuple('World', 'cat bucket records attempts objects acked backup up foreign budget')


def catalogs(rules, backups=1, foreign=1, commits=2, restarts=1):
    """Run a commits the versions 1, 2 (one attempt each); run b is idle, and somebody may plant an attempt
    record into its folder. cat: the catalog: generation, newest committed version of a, newest attempt of a,
    deleted versions of a, frozen runs. bucket: generation in the store."""
    init = World(Catalog(1, 0, 0, frozenset(), frozenset()), 1, frozenset(), 0, frozenset(), 0, None, True, 0,
                 (backups, foreign, commits, restarts))

    def spend(s, i):
        return s._replace(budget=at(s.budget, i, s.budget[i] - 1))

    def start(s):
        cat = s.cat
        frozen = cat.frozen if 'frozen_is_a_row' in rules else frozenset()
        if cat.generation != s.bucket:
            frozen = frozen | {'a', 'b'}
        if 'compared_at_start' in rules and (max(s.records, default=0) > cat.version or s.attempts > cat.attempt):
            frozen = frozen | {'a'}
        if s.foreign:
            frozen = frozen | ({'b'} if 'run_freezes' in rules else {'a', 'b'})
        return s._replace(up=True, cat=cat._replace(frozen=frozen, generation=s.bucket + 1), bucket=s.bucket + 1)

    def succ(s):
        cat = s.cat
        if not s.up:
            yield 'the server starts', start(s), False
            return
        if s.budget[3]:
            yield 'the server stops', spend(s._replace(up=False), 3), True
        if s.budget[0]:
            if s.backup is None:
                yield 'the catalog is copied', s._replace(backup=cat), True
            else:
                yield 'the server stops, the copy is put back', spend(s._replace(up=False, cat=s.backup), 0), True
        if s.budget[1]:
            yield 'somebody puts an attempt record into run b', spend(s._replace(foreign=1), 1), True
        if 'a' not in cat.frozen:
            if s.budget[2]:
                v = cat.version + 1
                yield 'run a: attempt %d, version %d committed and told' % (cat.attempt + 1, v), spend(s._replace(
                    cat=cat._replace(version=v, attempt=cat.attempt + 1), attempts=cat.attempt + 1,
                    records=s.records | {v}, objects=s.objects | {v}, acked=max(v, s.acked)), 2), False
            for v in sorted(s.records - cat.deleted):
                if v < cat.version:                             # a round that deletes
                    generation = cat.generation
                    bucket = s.bucket
                    if 'round_raises' in rules:
                        if cat.generation != s.bucket:
                            continue
                        generation = bucket = s.bucket + 1
                    yield 'version %d is deleted' % v, s._replace(
                        bucket=bucket, cat=cat._replace(generation=generation, deleted=cat.deleted | {v}),
                        records=s.records - {v}, objects=s.objects - {v}), True
            for v in sorted(s.objects):
                if v > cat.version:
                    yield 'version %d is open for 24 h in this catalog: swept' % v, s._replace(
                        objects=s.objects - {v}, records=s.records - {v}), True
        else:
            yield 'the operator reconciles run a', s._replace(cat=cat._replace(
                version=max(s.records, default=0), attempt=s.attempts, frozen=cat.frozen - {'a'}, generation=s.bucket,
                deleted=frozenset(range(1, max(s.records, default=0))) - s.records)), False

    def check(s):
        if not s.up:
            return None
        if s.acked and s.acked not in s.objects:
            return 'P2: version %d was acknowledged, its objects were deleted' % s.acked
        if 'a' in s.cat.frozen and s.foreign and s.cat.generation == s.bucket and \
                (s.cat.version, s.cat.attempt) == (max(s.records, default=0), s.attempts) and not s.backup:
            return 'ALL-FROZEN: run a answers 503 for a record of run b'
        if 'a' in s.cat.frozen:
            return None
        if s.cat.version < s.acked:
            return 'BACK: latest of run a was %d, now %d' % (s.acked, s.cat.version)
        for v in range(1, s.cat.version + 1):
            if v not in s.cat.deleted and v not in s.objects:
                return 'NAMED-GONE: version %d is listed as committed, its objects are gone' % v
        return None

    return Machine(init, succ, check, lambda s: None)
