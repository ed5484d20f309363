# SPDX-License-Identifier: Apache-2.0
"""A rank that leaves it to rank 0 when a checkpoint is whole (Q59).

Rank 1 begins save after save of one step and writes two files into each. Its program closes both before rank 0's
program seals, as a barrier between the ranks makes sure. Rank 1 seals when it hears of that seal. Its uploader may
be killed, rank 0 may give a save up.

Rules: `follows_seal` what is told is rank 0's seal, not its begin; `follows_version` of this very save, not of the
step; `follows_again` the next uploader is told that the save follows, and asks; `follows_end` the end of a version
is told to who waits, also one that was never sealed."""
from collections import namedtuple
from .explore import Machine

State = namedtuple('State', 'n zero files follower known heard kills fails done')


def follow(rules, saves=2, kills=1, fails=1):
    """n: which save. zero: '' | begun | sealed | failed, rank 0's part as the server has it. files: of rank 1, closed.
    follower: '' | begun | sealed. known: the uploader knows that it follows. heard: '' | seal | end. done: an earlier
    save of the step was sealed by rank 0."""
    init = State(1, '', 0, '', False, '', kills, fails, False)

    def succ(s):
        if not s.zero:
            yield 'rank 0 begins', s._replace(zero='begun'), False
        if not s.follower:
            yield 'rank 1 begins', s._replace(follower='begun', known=True), False
        if s.follower == 'begun' and s.files < 2 and s.zero != 'failed':
            yield 'rank 1 closes a file', s._replace(files=s.files + 1), False
        if s.zero == 'begun' and s.files == 2:
            yield 'rank 0 seals', s._replace(zero='sealed'), False
        if s.zero == 'begun' and s.fails:
            yield 'rank 0 gives it up', s._replace(zero='failed', fails=s.fails - 1), True
        if s.kills and s.follower == 'begun':
            known = s.known and 'follows_again' in rules
            yield 'the uploader of rank 1 is killed and starts again', \
                s._replace(known=known, kills=s.kills - 1), True
        if s.follower == 'begun' and s.known and not s.heard:
            told = s.zero == 'sealed' or s.zero == 'begun' and 'follows_seal' not in rules \
                or s.done and 'follows_version' not in rules
            if told:
                yield 'rank 1 hears of the decision', s._replace(heard='seal'), False
            elif s.zero == 'failed' and 'follows_end' in rules:
                yield 'rank 1 hears of the end', s._replace(heard='end'), False
        if s.follower == 'begun' and s.heard == 'seal':
            yield 'rank 1 seals', s._replace(follower='sealed'), False
        over = s.zero == 'sealed' and s.follower == 'sealed' or s.zero == 'failed' and s.heard == 'end'
        if over and s.n < saves:
            yield 'both go on to the next save', \
                State(s.n + 1, '', 0, '', False, '', s.kills, s.fails, s.done or s.zero == 'sealed'), False

    def check(s):
        if s.follower == 'sealed' and s.files < 2:
            return 'TORN: rank 1 sealed its part before it was whole'
        return None

    def final(s):
        over = s.zero == 'sealed' and s.follower == 'sealed' or s.zero == 'failed' and s.heard == 'end'
        return None if over else 'STUCK: rank 1 waits for a decision that it never hears'

    return Machine(init, succ, check, final)
