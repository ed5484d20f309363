# SPDX-License-Identifier: Apache-2.0
"""A machine without PostgreSQL: what is to run over it is skipped, by ctest's status for that, and
says what to install; nothing of it fails or passes."""
import os
import pathlib
import subprocess
import sys
import unittest

from patience import HANG_S
from build_folder import BIN

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
SENTENCE = "install Debian's package postgresql"


class WithoutPostgres(unittest.TestCase):
    def run_without(self, *command):
        done = subprocess.run(
            command, cwd=HERE, text=True, check=False, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=HANG_S,
            env={**os.environ, "CAIRN_TEST_POSTGRES": "/nowhere",
                 "CAIRN_TEST_CATALOG": "postgresql"})
        return done.returncode, done.stdout

    def test_a_module_end_to_end_is_skipped_with_the_package_named(self):
        status, said = self.run_without(sys.executable, "test_tree.py")
        self.assertEqual(status, SKIPPED, said)
        self.assertIn(SENTENCE, said)

    def test_a_module_of_the_server_is_skipped_with_the_package_named(self):
        status, said = self.run_without(BIN / "tests_server", "server/save")
        self.assertEqual(status, SKIPPED, said)
        self.assertIn(SENTENCE, said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
