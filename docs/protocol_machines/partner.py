# SPDX-License-Identifier: Apache-2.0
"""A rank's staged bytes on the node of a partner, too (Q57).

Node A has staged its part of a version and sends a copy to node B. The other ranks have sealed and registered
theirs, so that the version waits for A's alone. A may be killed with its trainers (its journal comes back, its
bytes do not) or be lost with all it had, B may be lost; a new attempt of the run may be opened. A partnered
save is committed if one node at most is hit; where both are, it ends and its nodes hear it. Both may send the
shard; their bytes are the same.

Rules: `ack_whole` A says partnered when B has compared the whole copy; `partner_journaled` and has journaled it
before; `left_to_partner` a node that comes back without its bytes fails nothing that its partner has;
`hands_over` and tells the partner to finish it; `partner_gone` or fails it when that is gone; `silence_spares` a
silent node ends no version of which another one reports a copy; `silence_finishes` that one is told to finish
it; `flush_copies` an attempt call waits for copies as for what a living node has not sent; `token_travels` the
copy carries the token under which A sends the shard, so that what either has sent is both's; `copy_has_seal`
and the seal; `kept_until_over` B keeps it until the version is over, not until A has sent it.

With `thief` somebody without a grant of the attempt, who may write in another project and stands on the wire, says
what he can in the names of both (Q58): `address_by_grant` an address counts for an attempt only from a heartbeat with
its grant; `answers_proven` an answer counts with a MAC under the attempt's key; `row_by_project` a heartbeat in a
node's name counts only from who shows a grant or token of a project that the node has."""
from collections import namedtuple
from .explore import Machine

State = namedtuple('State', 'a held journal said copy b finish obj durable seal registered version silent over '
                            'attempt kills losses stolen hushed read')


def partner(rules, kills=1, losses=1, attempts=1, thief=False):
    """a: up | down | lost. held: A has the bytes. journal: '' | staged | partnered. copy: '' | part | whole, on B,
    which is there or not. finish: B is to. obj: the token of the object, or ''. durable: A has looked at it. seal,
    registered: the server has them of A's rank. over: A knows the end. silent: the server takes A for gone. stolen:
    B's address is the thief's. hushed: the server has heard that A has sent all. read: the thief has bytes."""
    init = State('up', True, '', False, '', True, False, '', False, False, False, 'open', False, False, attempts,
                 kills, losses, False, False, False)

    def ends(s):
        return s._replace(version='ended') if s.version == 'open' else s

    def node_a(s):
        if s.a == 'down':
            yield 'A starts again', s._replace(a='up', silent=False), False
        if s.a != 'up':
            return
        if s.kills:
            yield 'A and its trainers are killed', s._replace(a='down', held=False, durable=False,
                                                              kills=s.kills - 1), True
        if s.version != 'open':
            if not s.over:
                yield 'A hears the end', s._replace(over=True), False
            return
        if not s.journal:
            if s.held:
                yield 'A stages and seals', s._replace(journal='staged'), False
            else:
                yield 'A fails what was not sealed', ends(s), False
            return
        if s.held and s.b and s.copy != 'whole':
            yield 'A sends B a copy', s._replace(copy='whole' if s.copy else 'part'), False
        if s.held and s.b and not s.said and s.copy in ('whole', 'part' if 'ack_whole' not in rules else 'whole'):
            journal = 'partnered' if 'partner_journaled' in rules else s.journal
            yield 'A says partnered', s._replace(said=True, journal=journal), False
        if thief and s.held and not s.said and 'answers_proven' not in rules:
            yield 'the thief answers A that all is whole', s._replace(said=True, journal='partnered'), True
        if s.stolen and s.held:
            yield 'A sends the thief a copy', s._replace(read=True), False
        if not s.seal:
            yield 'A tells its seal', s._replace(seal=True), False
        yield from a_sends(s)

    def a_sends(s):
        if s.durable:
            if s.seal and not s.registered:
                yield 'A registers', s._replace(registered=True), False
        elif s.obj == 'a':
            yield 'A finds its token', s._replace(durable=True), False
        elif s.obj:
            yield 'A finds another token, fails', ends(s), False
        elif s.held:
            yield 'A sends the shard', s._replace(obj='a'), False
        elif s.journal == 'partnered' and 'left_to_partner' in rules:
            if not s.b and 'partner_gone' in rules:
                yield 'A hears that B is gone, fails', ends(s), False
            if s.b and not s.finish and 'hands_over' in rules:
                yield 'A tells B to finish it', s._replace(finish=True), False
        else:
            yield 'A has no bytes, fails', ends(s), False

    def node_b(s):
        if not s.b:
            return
        if s.losses:
            yield 'B is lost', s._replace(b=False, copy='', losses=s.losses - 1), True
        done = s.version != 'open' or s.durable and 'kept_until_over' not in rules
        if s.copy and done:
            yield 'B drops the copy', s._replace(copy=''), False
        if s.copy != 'whole' or s.version != 'open' or not s.finish:
            return
        mine = 'a' if 'token_travels' in rules else 'b'
        if not s.obj:
            yield 'B sends the shard', s._replace(obj=mine), False
        elif s.obj != mine:
            yield 'B finds another token, fails', ends(s), False
        elif not s.registered and (s.seal or 'copy_has_seal' in rules):
            yield 'B seals and registers', s._replace(seal=True, registered=True), False

    def server(s):
        if s.version != 'open':
            return
        if s.losses and s.a != 'lost':
            yield 'A is lost', s._replace(a='lost', held=False, losses=s.losses - 1), True
        told = s.seal and s.registered
        if told and s.obj:
            yield 'the version is committed', s._replace(version='committed'), False
        if s.a != 'up' and not s.silent:
            yield 'A is silent for too long', s._replace(silent=True), False
        copied = s.b and s.copy == 'whole'
        if s.silent and not told:
            if not (copied and 'silence_spares' in rules):
                yield 'the server ends what needs A', ends(s), False
            elif not s.finish and 'silence_finishes' in rules:
                yield 'the server tells B to finish it', s._replace(finish=True), False
        waits = s.a == 'up' and s.journal and not s.hushed or copied and 'flush_copies' in rules
        if s.attempt and not told and not waits:
            yield 'a new attempt ends it', ends(s)._replace(attempt=s.attempt - 1), True

    def the_thief(s):
        if thief and not s.stolen and 'address_by_grant' not in rules:
            yield 'the thief tells its own address for B', s._replace(stolen=True), True
        if thief and not s.hushed and 'row_by_project' not in rules:
            yield 'the thief says for A that all is sent', s._replace(hushed=True), True

    def succ(s):
        yield from the_thief(s)
        yield from node_a(s)
        yield from node_b(s)
        yield from server(s)

    def check(s):
        if s.read:
            return 'READ: bytes of the save were given to somebody without a grant of its attempt'
        if s.version == 'ended' and s.said and (s.held or s.b):
            return 'LOST: the save was partnered, one node was hit, and it was ended'
        if s.version == 'committed' and not s.obj:
            return 'P2: committed without its shard'
        return None

    def final(s):
        if s.version == 'open':
            return 'STUCK: nobody finishes the save and nobody ends it'
        if s.a == 'up' and s.journal and not s.over:
            return 'UNTOLD: a node does not hear how its save ended'
        return None

    return Machine(init, succ, check, final)
