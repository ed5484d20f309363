# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=60
"""Rank files that torch itself writes on four ranks over gloo: DTensors of FSDP2, of tensor parallelism, of both on
one dimension and of HSDP, ShardedTensors of FSDP1. Exported, each tensor is what torch makes of all ranks.

It needs a Python with torch, as test_torch.py does."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from test_export import VECTORS
from test_torch import PYTHON, have_torch
from test_torch_files import expect_whole

MAKE = VECTORS / "torch_ranks" / "make.py"


class Ranks(unittest.TestCase):
    def setUp(self):
        if not have_torch():
            raise unittest.SkipTest(f"no torch for {PYTHON}; CAIRN_TEST_TORCH names another Python")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-torch-ranks-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_what_four_ranks_of_torch_wrote_is_whole_again(self):
        made = self.folder / "made"
        made.mkdir()
        ran = subprocess.run([PYTHON, MAKE, made], capture_output=True, text=True, timeout=600)
        self.assertEqual(ran.returncode, 0, ran.stderr[-3000:])
        expect_whole(self, made, self.folder)


if __name__ == "__main__":
    unittest.main()
