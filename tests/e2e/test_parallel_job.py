# SPDX-License-Identifier: Apache-2.0
"""examples/parallel, as a user would run it: what a job computed on one layout it goes on computing on
any other, to the same bits, also when it was killed, and when its memory is that of a CUDA device (a
runtime without a GPU stands for one; `ctest -L gpu` has a real one)."""
import json
import os
import signal
import subprocess
import unittest
import urllib.request

import cases
from world import BIN, HANG_S, wait_until, World

JOB = BIN / "examples/parallel-job"
FAKE = BIN / "fake_cuda"


class ParallelJob(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        cls.numbers = iter(range(1, 1000))
        cls.weights = cls.go_on("parallel/reference", 6, (1, 1, 1))

    @classmethod
    def start(cls, run, steps, layout, device=False):
        """device: True over the runtime without a GPU, "no" over what this machine has."""
        env = {**os.environ, "CAIRN_SOCKET": str(cls.world.socket())}
        if device is True:
            env["LD_LIBRARY_PATH"] = str(FAKE)
        return subprocess.Popen(
            [str(JOB), run, f"job-{next(cls.numbers)}", str(steps), *map(str, layout)] +
            (["cuda"] if device else []),
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @classmethod
    def go_on(cls, run, steps, layout, begins=0, device=False):
        """The digest of the weights after so many steps; the step that it went on from is `begins`."""
        job = cls.start(run, steps, layout, device)
        out, errors = job.communicate(timeout=HANG_S)
        assert job.returncode == 0, f"{layout}: {job.returncode}\n{errors}"
        said, weights = out.splitlines()[-2:]
        assert f"went from step {begins} to {steps}" in said, said
        return weights

    def test_a_job_goes_on_with_any_other_layout_to_the_same_bits(self):
        layouts = [(2, 1, 1), (1, 2, 2), (3, 2, 1), (2, 2, 2), (1, 1, 4), (4, 1, 1)]
        for steps, layout in enumerate(layouts, 1):
            weights = self.go_on("parallel/many", steps, layout, begins=steps - 1)
        self.assertEqual(weights, self.weights)

    def test_a_job_that_was_killed_goes_on_from_what_was_committed_to_the_same_bits(self):
        job = self.start("parallel/killed", 100000, (2, 2, 1))
        latest = f"http://127.0.0.1:{self.world.port}/v1/runs/parallel/killed/checkpoints/latest"

        def third():
            try:
                with urllib.request.urlopen(latest) as reply:
                    return step if (step := json.load(reply)["step"]) >= 3 else None
            except urllib.error.HTTPError as error:
                self.assertEqual(error.code, 404)
                return None
        step = wait_until(third)
        job.send_signal(signal.SIGKILL)  # its ranks meet the end of their pipes
        job.communicate()
        again = self.start("parallel/killed", 0, (1, 2, 1))
        out, errors = again.communicate(timeout=HANG_S)
        self.assertEqual(again.returncode, 0, errors)
        began = int(out.split("from step ")[1].split()[0])
        self.assertGreaterEqual(began, step)
        weights = self.go_on("parallel/killed", began + 2, (3, 1, 2), begins=began)
        self.assertEqual(weights, self.go_on("parallel/whole", began + 2, (1, 1, 1)))

    def test_memory_of_a_device_is_saved_and_restored_to_the_same_bits(self):
        self.go_on("parallel/device", 2, (2, 2, 1), device=True)
        self.go_on("parallel/device", 4, (1, 2, 2), begins=2)  # on the host
        weights = self.go_on("parallel/device", 6, (3, 1, 2), begins=4, device=True)
        self.assertEqual(weights, self.weights)

    def test_a_job_whose_device_is_not_there_ends_and_says_so(self):
        job = self.start("parallel/none", 1, (1, 1, 1), device="no")
        _, errors = job.communicate(timeout=HANG_S)
        if job.returncode == 0:
            self.skipTest("there is a GPU")
        self.assertRegex(errors, "no CUDA runtime|count the devices|knows no device")

    def test_what_is_asked_wrongly_is_a_usage_error(self):
        wrong = cases.run([str(JOB), "parallel/none", "job-x", "2", "1", "1", "1", "gpu"], status=2)
        self.assertIn("usage:", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
