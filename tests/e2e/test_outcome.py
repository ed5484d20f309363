# SPDX-License-Identifier: Apache-2.0
"""A case that fails is a failure also where another one was skipped."""
import subprocess
import sys
import unittest

from patience import HANG_S

PROGRAM = """
import unittest
from outcome import leave

class Missing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("no such thing")

    def test_it(self):
        pass

class There(unittest.TestCase):
    def test_it(self):
        self.assertTrue({good})

leave(unittest.main(exit=False, argv=["program", {names}]).result)
"""


class Outcome(unittest.TestCase):
    def end(self, *names, good=True):
        """(status, its lines of what was skipped) of a program with these classes."""
        ran = subprocess.run([sys.executable, "-c", PROGRAM.format(good=good, names=", ".join(map(repr, names)))],
                             capture_output=True, text=True, timeout=HANG_S)
        return ran.returncode, [line for line in ran.stdout.splitlines() if line.startswith("skipped: ")]

    def test_a_failure_beside_a_skip_is_a_failure_and_77_is_for_a_program_that_ran_nothing(self):
        skipped = ["skipped: no such thing"]
        self.assertEqual(self.end("There", "Missing", good=False), (1, skipped))
        self.assertEqual(self.end("There", "Missing"), (0, skipped))
        self.assertEqual(self.end("Missing"), (77, skipped))
        self.assertEqual(self.end("There"), (0, []))


if __name__ == "__main__":
    unittest.main()
