# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=60 thirds=3 rooms=python,client,uploader,server,examples
"""A training job (examples/python/train.py: FSDP2, alone or over tensor parallel, or DDP; tied embeddings, bf16 over fp32,
Adam with groups, dropout, a schedule) is killed with SIGKILL at random moments and goes on from its last checkpoint. On as
many ranks its losses are those of a job that was never killed, to the last bit; on other numbers of ranks they are close
to them.

With CAIRN_TEST_SLOW it is killed 20 times on 4 ranks, and 20 times on 4, 3, 2 and 1 ranks."""
import unittest

import package
import ranks
from lives import OTHER_WORLDS, SLOW, Lives

TRAIN = package.TREE / "examples" / "python" / "train.py"
# The state of the newest checkpoint, laid out for these ranks, is saved as another run's.
LAID_OUT = """
import sys
sys.path.insert(0, sys.argv[1])
import train
torch.use_deterministic_algorithms(True)
_, state = train.build("fsdp", WORLD, int(sys.argv[4]))
before = [value.to_local().clone() for value in state["model"].state_dict().values()]
found = cairn.run(sys.argv[2], read_only=True).latest()
found.load(into=state)
assert not all(torch.equal(one, value.to_local()) for one, value in zip(before, state["model"].state_dict().values()))
with cairn.run(sys.argv[3]) as run:
    run.save(found.step, state)
"""
RUN_IT = f"import runpy, sys; sys.argv = [{str(TRAIN)!r}, *sys.argv[1:]]; runpy.run_path({str(TRAIN)!r}, run_name='__main__')"

# Gradients are sums of each rank's, rounded to bf16: a step on 3 ranks is another one than on 2.
BF16_APART = 0.25


class Killed(Lives):
    needs = ("torch",)

    parallel, tensor, dropout = "fsdp", 1, 0.1

    def start(self, name, log, world):
        return ranks.start(RUN_IT, world, name, "--steps", self.steps, "--every", 3, "--losses", log, "--parallel", self.parallel,
                           "--tensor", self.tensor if world % self.tensor == 0 else 1, "--dropout", self.dropout, preamble="")

    def test_losses_are_those_of_a_job_that_was_never_killed(self):
        self.never_killed()

    def test_a_job_that_is_done_has_nothing_left_to_do(self):
        for last in ("loss", "nothing was left to do"):
            told = "".join(ranks.finish(self.start(f"{self.name}-done", self.folder / "done", 2)))
            self.assertIn(f"step {self.steps}: {last}", told)

    def test_losses_of_whole_models_on_each_rank_are_those_of_a_job_that_was_never_killed(self):
        self.parallel = "ddp"  # what all ranks hold is saved once
        self.never_killed()

    def test_losses_over_tensor_parallel_are_those_of_a_job_that_was_never_killed_and_other_layouts_have_its_state(self):
        import torch
        self.tensor = 2
        self.never_killed(world=4 if SLOW else 2, lives=20 if SLOW else 1)
        saved = self.whole_state(f"{self.name}-killed")
        self.assertEqual(saved["step"], self.steps)
        for world, tensor in ((4, 1), (4, 4), (2, 2), (2, 1), (1, 1)) if SLOW else ((1, 1),):
            name = f"{self.name}-{world}-{tensor}"
            ranks.run(LAID_OUT, world, TRAIN.parent, f"{self.name}-killed", name, tensor)
            found = self.whole_state(name)
            self.assertEqual(found.keys(), saved.keys())
            for key, value in saved.items():
                same = torch.equal(found[key], value) if torch.is_tensor(value) else found[key] == value
                self.assertTrue(same, (world, tensor, key))

    def whole_state(self, name):
        """By name, without what is each rank's own."""
        def rows(node, path):
            pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, (list, tuple)) else None
            if pairs is None:
                return {path: node}
            return {name: value for key, entry in pairs for name, value in rows(entry, f"{path}.{key}" if path else str(key)).items()}
        with self.world.run(name, read_only=True).latest() as found:
            return rows({key: value for key, value in found.load().items() if key != "random"}, "")

    def test_other_numbers_of_ranks_go_on_from_the_same_state(self):
        self.dropout = 0
        self.other_numbers(OTHER_WORLDS, apart=BF16_APART)

    @unittest.skipUnless(SLOW, "CAIRN_TEST_SLOW is not set")
    def test_other_numbers_of_ranks_that_hold_whole_models_go_on_from_the_same_state(self):
        self.parallel, self.dropout = "ddp", 0
        self.other_numbers(OTHER_WORLDS)

    @unittest.skipUnless(SLOW, "CAIRN_TEST_SLOW is not set")
    def test_other_numbers_of_ranks_with_and_without_tensor_parallel_go_on_from_the_same_state(self):
        self.tensor, self.dropout = 2, 0
        self.other_numbers(OTHER_WORLDS, apart=BF16_APART)


if __name__ == "__main__":
    package.main()
