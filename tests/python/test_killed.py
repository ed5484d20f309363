# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=60 thirds=3 rooms=python,client,uploader,server,examples
"""A training job (examples/python/train.py: FSDP2 or DDP, tied embeddings, bf16 over fp32, Adam with groups, dropout, a
schedule) is killed with SIGKILL at random moments and goes on from its last checkpoint. On as many ranks its losses are
those of a job that was never killed, to the last bit; on other numbers of ranks they are close to them.

With CAIRN_TEST_SLOW it is killed 20 times on 4, 3, 2 and 1 ranks."""
import os
import random
import sys
import time

import package
import ranks

SLOW = bool(os.environ.get("CAIRN_TEST_SLOW"))
STEPS = 120 if SLOW else 40
TRAIN = package.TREE / "examples" / "python" / "train.py"
RUN_IT = f"import runpy, sys; sys.argv = [{str(TRAIN)!r}, *sys.argv[1:]]; runpy.run_path({str(TRAIN)!r}, run_name='__main__')"


def losses(path):
    """step -> loss; of a step that was done again the newest."""
    rows = (line.split() for line in path.read_text().splitlines() if line.count(" ") == 1)
    return {int(step): float.fromhex(loss) for step, loss in rows}


class Killed(package.Worlds):
    needs = ("torch",)

    parallel = "fsdp"

    def start(self, name, log, world):
        return ranks.start(RUN_IT, world, name, "--steps", STEPS, "--every", 3, "--log", log, "--parallel", self.parallel,
                           preamble="")

    def lives(self, name, log, worlds, dice):
        """Kills one job after another, each at some moment after some of its steps, until one of them had gone on from
        what an earlier one saved; the last one ends by itself."""
        resumed = 0
        for life, world in enumerate([*worlds, *[worlds[-1]] * 30]):
            if life >= len(worlds) and resumed:
                break
            log.touch()
            before = len(log.read_text().splitlines())
            job = self.start(name, log, world)
            wanted = before + dice.randint(1, 12)
            deadline = time.monotonic() + package.HANG_S
            while len(log.read_text().splitlines()) < wanted and all(process.poll() is None for process, _ in job):
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.005)  # step of a poll
            time.sleep(dice.random() * 0.05)  # pause of chaos
            for process, _ in job:
                process.kill()
            told = "".join(ranks.finish(job, status=None))
            resumed += "goes on from step" in told
            self.assertNotIn("Traceback", told)
        self.assertIn(f"step {STEPS}", "".join(ranks.finish(self.start(name, log, worlds[-1]))))
        return resumed

    def never_killed(self):
        seed = int(os.environ.get("CAIRN_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"seed {seed}", file=sys.stderr)
        dice = random.Random(seed)
        world = 4 if SLOW else 2
        whole, killed = self.folder / f"whole-{self.parallel}", self.folder / f"killed-{self.parallel}"
        ranks.finish(self.start(f"{self.name}-whole", whole, world))
        resumed = self.lives(f"{self.name}-killed", killed, [world] * (20 if SLOW else 3), dice)
        self.assertGreater(resumed, 0)
        self.assertEqual(losses(killed), losses(whole))

    def test_losses_are_those_of_a_job_that_was_never_killed(self):
        self.never_killed()

    def test_losses_of_whole_models_on_each_rank_are_those_of_a_job_that_was_never_killed(self):
        self.parallel = "ddp"  # what all ranks hold is saved once
        self.never_killed()

    def test_other_numbers_of_ranks_go_on_from_the_same_state(self):
        seed = int(os.environ.get("CAIRN_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
        print(f"seed {seed}", file=sys.stderr)
        whole, killed = self.folder / "one", self.folder / "many"
        ranks.finish(self.start(f"{self.name}-whole", whole, 2))
        worlds = [4, 3, 2, 1] * 5 if SLOW else [3, 1]
        self.lives(f"{self.name}-killed", killed, worlds, random.Random(seed))
        one, many = losses(whole), losses(killed)
        self.assertEqual(one.keys(), many.keys())
        # Dropout's random numbers are each rank's own, so the losses are not the same; both jobs learn.
        self.assertLess(many[STEPS - 1], 0.7 * many[0])


if __name__ == "__main__":
    package.main()
