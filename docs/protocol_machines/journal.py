# SPDX-License-Identifier: Apache-2.0
"""The uploader's journal when a write fails, a record is damaged, or the power is cut in the middle of a
group (Q45; V29), and what the saves behind it become.

Two saves, each with the records `stage` and `seal`. Records that wait together are written as one group
of two blocks with one fsync, which may reach the disk in either order."""
from collections import namedtuple
from .explore import Machine, at

State = namedtuple('State', 'disk wrote broken acked told up full cut damage')
# disk      blocks in file order: (save, record, group, there)   there: 'ok' | 'missing' | 'damaged'
# wrote[k]  records of save k handed to the journal so far; broken: saves whose record was not written
RECORDS = ('stage', 'seal')


def journal(rules, full=1, cut=1, damage=0):
    init = State((), (0, 0), frozenset(), frozenset(), frozenset(), 'up', full, cut, damage)

    def write(s, blocks, there):
        group = 1 + max([b[2] for b in s.disk], default=0)
        return s._replace(disk=s.disk + tuple(b + (group, x) for b, x in zip(blocks, there)))

    def acknowledge(s, blocks):
        sealed = {save for save, record in blocks if record == 'seal'}
        return s._replace(acked=s.acked | sealed)

    def replay(s):
        """Start again from what is on the disk."""
        disk = s.disk
        last = max([b[2] for b in disk], default=0)
        if 'group_sum' in rules:                               # the last group is whole or was never acknowledged
            if any(b[3] != 'ok' for b in disk if b[2] == last):
                disk = tuple(b for b in disk if b[2] != last)
        else:                                                  # a tail behind which no valid block stands
            while disk and disk[-1][3] != 'ok':
                disk = disk[:-1]
        bad = {b[0] for b in disk if b[3] != 'ok'}
        for save in (0, 1):
            have = [b[1] for b in disk if b[0] == save and b[3] == 'ok']
            if 'seal' in have and 'stage' not in have:
                bad.add(save)
        if bad and 'set_aside' not in rules:
            return s._replace(up='refuses')
        sealed = {b[0] for b in disk if b[1] == 'seal'} - bad
        return s._replace(up='replayed', told=s.told | bad, disk=disk, wrote=tuple(
            2 if save in sealed or save in bad else 0 for save in (0, 1)))

    def succ(s):
        if s.up == 'down':
            yield 'uploader starts', replay(s), False
        if s.up != 'up':
            return
        ready = [(k, RECORDS[s.wrote[k]]) for k in (0, 1) if s.wrote[k] < 2 and k not in s.told]
        groups = [[x] for x in ready] + ([ready] if len(ready) == 2 else [])
        for blocks in groups:
            names = ' + '.join('%s of save %d' % (record, save) for save, record in blocks)
            wrote = s.wrote
            for save, _ in blocks:
                wrote = at(wrote, save, wrote[save] + 1)
            if 'entry_broken' in rules and any(save in s.broken for save, _ in blocks):
                told = {save for save, _ in blocks if save in s.broken}
                yield 'save of %s fails: an earlier record is not there' % names, \
                    s._replace(told=s.told | told, wrote=tuple(2 if k in told else s.wrote[k] for k in (0, 1))), False
                continue
            after = s._replace(wrote=wrote)
            yield '%s written' % names, acknowledge(write(after, blocks, ['ok'] * len(blocks)), blocks), False
            if s.full:
                yield '%s not written: the disk is full' % names, \
                    after._replace(full=s.full - 1, broken=s.broken | {save for save, _ in blocks}), True
            if s.cut and len(blocks) == 2:
                yield '%s: the power is cut, only the second block is there' % names, \
                    write(after, blocks, ['missing', 'ok'])._replace(up='down', cut=0), True
        if s.damage:
            last = max([b[2] for b in s.disk], default=0)
            for i, b in enumerate(s.disk):
                if b[2] == last:
                    continue                                    # looks like a torn group: see docs/protocol.md
                yield 'block of %s of save %d is damaged' % (b[1], b[0]), \
                    s._replace(disk=at(s.disk, i, b[:3] + ('damaged',)), damage=s.damage - 1), True
        if s.cut:
            yield 'uploader killed', s._replace(up='down', cut=0), True

    def check(s):
        if s.up == 'refuses':
            return 'NOSTART: the uploader does not start, nobody is told and no other save goes on'
        if s.up == 'replayed':
            for save in s.acked:
                have = {b[1] for b in s.disk if b[0] == save and b[3] == 'ok'}
                if have != set(RECORDS) and save not in s.told:
                    return 'SILENT: save %d was acknowledged as staged, is not in the journal, nobody is told' % save
            for save in s.told - s.acked:
                if not damage and save not in s.broken:
                    return 'FALSE-ALARM: save %d is called damaged, its group was never acknowledged' % save
        for save in s.acked & s.broken:
            return 'UNRECORDED: save %d was acknowledged, one of its records was never written' % save
        return None

    return Machine(init, succ, check, lambda s: None)
