# SPDX-License-Identifier: Apache-2.0
"""examples/parallel: a job of data, tensor and pipeline parallelism that goes on with other ranks
and reaches the same weights, to the bit, as one process that was never stopped."""
import os
import pathlib
import signal
import subprocess
import unittest

from world import BIN, World, wait_until


class Parallel(unittest.TestCase):
    def setUp(self):
        self.world = World()

    def tearDown(self):
        self.world.close()

    def start(self, run, job, steps, *layout):
        return subprocess.Popen(
            [BIN / "examples/parallel-job", run, job, str(steps), *map(str, layout)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "CAIRN_SOCKET": str(self.world.socket())})

    def train(self, run, job, steps, *layout):
        process = self.start(run, job, steps, *layout)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        return out.splitlines()

    def test_a_job_goes_on_on_any_layout_and_reaches_the_same_weights(self):
        alone = self.train("p/alone", "a", 7, 1, 1, 1)
        first = self.train("p/run", "j1", 3, 2, 2, 2)
        self.assertIn("from step 0 to 3", first[0])
        second = self.train("p/run", "j2", 5, 1, 3, 1)
        self.assertIn("from step 3 to 5", second[0])
        third = self.train("p/run", "j3", 7, 3, 1, 2)
        self.assertIn("from step 5 to 7", third[0])
        self.assertEqual(third[1], alone[1])
        self.assertNotEqual(second[1], alone[1])

    def test_weights_are_stored_once_whatever_the_data_parallelism(self):
        self.train("p/once", "j1", 1, 4, 2, 1)
        version = self.world.version("p/once")
        side, layers = 240, 4
        model = 2 * 4 * layers * side * side  # weights and moments in FP32
        self.assertLess(version["bytes"], model + 8 * 4096 + 1)
        self.assertGreaterEqual(version["bytes"], model)

    def test_a_killed_job_goes_on_from_its_newest_checkpoint(self):
        job = self.start("p/killed", "j1", 100000, 2, 2, 1)

        def latest():
            return (self.world.version("p/killed") or {"step": 0})["step"]
        wait_until(lambda: latest() >= 2 or job.poll() is not None, 60)
        for line in pathlib.Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split():
            os.kill(int(line), signal.SIGKILL)
        job.kill()
        job.communicate()
        step = latest()
        out = self.train("p/killed", "j2", step + 2, 1, 1, 4)
        began = int(out[0].split("from step ")[1].split()[0])
        self.assertGreaterEqual(began, step)
        alone = self.train("p/alone", "a", step + 2, 1, 1, 1)
        if began < step + 2:
            self.assertEqual(out[1], alone[1])


if __name__ == "__main__":
    unittest.main()
