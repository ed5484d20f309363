# SPDX-License-Identifier: Apache-2.0
"""Jobs that are killed with SIGKILL at random moments, one after another, each of which goes on from what an earlier one
saved. A job writes a line `STEP LOSS` for each of its steps into a log, the loss as float.hex() has it, prints
`goes on from step` where it found a checkpoint, and `step N` at its end, N being its last step. With CAIRN_TEST_HELD it may
wait in its last step for ever: however late a busy machine sees its steps, it is killed before its end."""
import os
import random
import sys
import time

import package
import ranks
from world import wait_until  # of tests/e2e

SLOW = bool(os.environ.get("CAIRN_TEST_SLOW"))
STEPS = 160 if SLOW else 40


def losses(path):
    """step -> loss; of a step that was done again the newest."""
    rows = (line.split() for line in path.read_text().splitlines() if line.count(" ") == 1)
    return {int(step): float.fromhex(loss) for step, loss in rows}


class Lives(package.Worlds):
    """A class of jobs: start(name, log, world) gives the processes of one of `steps` steps, as ranks.start does."""
    steps = STEPS

    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("CAIRN_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"seed {seed}", file=sys.stderr)
        self.dice = random.Random(seed)

    def lives(self, name, log, worlds):
        """Kills one job after another, most after some of their steps and some while they begin, until one of them had gone
        on from what an earlier one saved; the last one ends by itself. Returns how many had gone on."""
        resumed = killed = 0
        for life, world in enumerate([*worlds, *[worlds[-1]] * 30]):
            if life >= len(worlds) and resumed:
                break
            log.touch()
            before = len(log.read_text().splitlines())
            job = self.start_held(name, log, world)
            self.wait_for_steps(job, log, before, self.dice.randint(0, self.steps // (20 if SLOW else 10)))
            killed += all(process.poll() is None for process, _ in job)
            for process, _ in job:
                process.kill()
            told = "".join(ranks.finish(job, status=None))
            resumed += "goes on from step" in told
            self.assertNotIn("Traceback", told)
        self.assertIn(f"step {self.steps}", "".join(ranks.finish(self.start(name, log, worlds[-1]))))
        print(f"{name}: {killed} jobs killed, {resumed} of them had gone on from a checkpoint", file=sys.stderr)
        self.assertGreaterEqual(killed, len(worlds))
        return resumed

    def start_held(self, name, log, world):
        os.environ["CAIRN_TEST_HELD"] = "1"
        try:
            return self.start(name, log, world)
        finally:
            del os.environ["CAIRN_TEST_HELD"]

    def wait_for_steps(self, job, log, before, wanted):
        """Until a job has made so many steps or is in its last one, and a moment more; of no step: at some moment of its
        beginning."""
        def is_due():
            rows = log.read_text().splitlines()[before:]
            return len(rows) >= wanted or bool(rows) and rows[-1].startswith(f"{self.steps - 1} ")
        wait_until(lambda: is_due() or any(process.poll() is not None for process, _ in job), every=0.005)
        time.sleep(self.dice.random() * (0.05 if wanted else 2))  # pause of chaos

    def never_killed(self, world=4 if SLOW else 2, lives=20 if SLOW else 3):
        whole, killed = (self.folder / f"{how}-{self.name.partition('/')[2]}" for how in ("whole", "killed"))
        ranks.finish(self.start(f"{self.name}-whole", whole, world))
        self.assertEqual(len(losses(whole)), self.steps)
        self.assertGreater(self.lives(f"{self.name}-killed", killed, [world] * lives), 0)
        self.assertEqual(losses(killed), losses(whole))

    def other_numbers(self, worlds, apart=0.01):
        """On other numbers of ranks sums are made in another order: the losses are those of the job that was never
        killed, but for that. The job has no dropout, whose random numbers are each rank's own. apart: None where the
        losses are of other data on another number of ranks."""
        whole, killed = (self.folder / f"{how}-{self.name.partition('/')[2]}" for how in ("one", "many"))
        ranks.finish(self.start(f"{self.name}-whole", whole, 2))
        self.assertGreater(self.lives(f"{self.name}-killed", killed, worlds), 0)
        one, many = losses(whole), losses(killed)
        self.assertEqual(one.keys(), many.keys())
        if apart is not None:
            furthest = max(abs(many[step] - one[step]) / one[step] for step in one)
            print(f"{self.name}: losses at most {furthest:.2g} apart", file=sys.stderr)
            self.assertLess(furthest, apart)
        self.assertLess(many[self.steps - 1], 0.7 * many[0])


# Ranks of one job after another.
OTHER_WORLDS = [4, 3, 2, 1] * 5 if SLOW else [3, 1]
