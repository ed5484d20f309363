# SPDX-License-Identifier: Apache-2.0
"""Restores and saves of the ranks of one node that share a small memory_budget (Q13)."""
import unittest

from world import Job, World

RANKS = 4
ROWS = 30  # MiB of a rank: a save of all and four small windows fit into the budget beside the buffers for files, no more


class Budgets(unittest.TestCase):
    def setUp(self):
        self.world = World(uploader_arguments=["--memory-budget=256MiB"], case=self)

    def test_q13_ranks_that_have_restored_save_and_restore_again_beside_a_save(self):
        Job(self.world, "first", RANKS, [1], rows=ROWS, restores=1).succeeds()
        Job(self.world, "second", RANKS, [2, 3], rows=ROWS, restores=1).succeeds()
        self.assertEqual(self.world.committed("j/run"), [1, 2, 3])

    def test_q13_ranks_that_reserve_memory_at_once_leave_enough_to_restore(self):
        """Two generations of all ranks would fit into the budget, and leave 8 MiB of it."""
        rows = 17
        Job(self.world, "first", RANKS, [1], rows=rows, restores=1, reserved=1).succeeds()
        Job(self.world, "second", RANKS, [2, 3], rows=rows, restores=1, reserved=1).succeeds()
        self.assertEqual(self.world.committed("j/run"), [1, 2, 3])


if __name__ == "__main__":
    unittest.main(verbosity=2)
