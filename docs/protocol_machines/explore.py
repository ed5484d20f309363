# SPDX-License-Identifier: Apache-2.0
"""Search of a machine's states: breadth first to the end (or to a bound), and seeded random walks.

succ(state)  yields (label, next state, is it a fault)
check(state) says what is wrong in this state, or None
final(state) says what is wrong when nothing but faults can happen any more, or None
"""
import random
import time
from collections import deque, namedtuple

Machine = namedtuple('Machine', 'init succ check final')
Result = namedtuple('Result', 'states steps complete violations seconds')


def kind_of(text):
    """A complaint begins with its kind: 'LOST: save 2 ...'."""
    return text.split(':')[0]


def explore(machine, limit=60.0, states_max=400000, want=None):
    """want: stop at the first violation of this kind."""
    began = time.process_time()
    came_from = {machine.init: None}
    queue = deque([machine.init])
    violations = {}

    def path(state, last=None):
        labels = [last] if last else []
        while came_from[state]:
            state, label = came_from[state]
            labels.append(label)
        return labels[::-1]

    while queue:
        if want in violations:
            break
        if len(came_from) > states_max or time.process_time() - began > limit:
            break
        state = queue.popleft()
        complaint = machine.check(state)
        if complaint:
            violations.setdefault(kind_of(complaint), (complaint, path(state)))
            continue
        moves = list(machine.succ(state))
        if not any(not fault and after != state for _, after, fault in moves):
            complaint = machine.final(state)
            if complaint:
                violations.setdefault(kind_of(complaint), (complaint, path(state)))
        for label, after, _ in moves:
            if after not in came_from:
                came_from[after] = (state, label)
                queue.append(after)
    return Result(len(came_from), 0, not queue, violations, time.process_time() - began)


def walk(machine, seconds=30.0, depth=200, first_seed=0, seeds=None, fault_share=0.25):
    """Random walks; each ends where nothing but faults can happen, or at a violation."""
    began = time.process_time()
    violations = {}
    steps = 0
    seed = first_seed
    while (seeds is None or seed < first_seed + seeds) and time.process_time() - began < seconds:
        rnd = random.Random(seed)
        state, labels = machine.init, []
        for _ in range(depth):
            complaint = machine.check(state)
            moves = [] if complaint else list(machine.succ(state))
            progress = [m for m in moves if not m[2] and m[1] != state]
            faults = [m for m in moves if m[2]]
            if not complaint and not progress:
                complaint = machine.final(state)
            if complaint:
                violations.setdefault(kind_of(complaint), (complaint, labels, seed))
                break
            if not progress and not faults:
                break
            choice = faults if faults and (not progress or rnd.random() < fault_share) else progress
            label, state, _ = rnd.choice(choice)
            labels.append(label)
            steps += 1
        seed += 1
    return Result(seed - first_seed, steps, False, violations, time.process_time() - began)


def put(table, key, value):
    """Tables in states are sorted tuples of (key, value)."""
    changed = dict(table)
    changed[key] = value
    return tuple(sorted(changed.items()))


def at(values, index, value):
    """A tuple with one place changed."""
    return values[:index] + (value,) + values[index + 1:]
