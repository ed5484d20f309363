# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=60
"""Rank files that torch itself writes on four ranks over gloo: DTensors of FSDP2, of tensor parallelism, of both on
one dimension and of HSDP, ShardedTensors of FSDP1. Exported, each tensor is what torch makes of all ranks.

It needs a Python with torch, as test_torch.py does."""
import unittest

import cases
from test_export import VECTORS
from test_torch import PYTHON, have_torch
from test_torch_files import expect_whole

MAKE = VECTORS / "torch_ranks" / "make.py"


class Ranks(unittest.TestCase):
    def setUp(self):
        if not have_torch():
            raise unittest.SkipTest(f"no torch for {PYTHON}; CAIRN_TEST_TORCH names another Python")
        self.folder = cases.folder(self)

    def test_what_four_ranks_of_torch_wrote_is_whole_again(self):
        made = cases.made(self.folder / "made")
        cases.run([PYTHON, MAKE, made], timeout=600)
        expect_whole(self, made, self.folder)


if __name__ == "__main__":
    unittest.main()
