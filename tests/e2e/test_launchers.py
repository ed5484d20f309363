# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=30
"""The job of examples/c under what launchers set: it saves on their signal, ends with 75, and another start of
it goes on to the same weights. Slurm's batch script, prolog and epilog with stand-ins for Slurm's programs."""
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import cases
from world import BIN, HANG_S, line_of, wait_until, World

JOB = BIN / "examples/example-job"
SLURM = pathlib.Path(__file__).resolve().parents[2] / "packaging/slurm"
WORDS = ("--steps", "60", "--every", "20", "--step-ms", "50", "--elements", "10000")


def torchrun(rank, restart):
    return {"TORCHELASTIC_RUN_ID": "run-7", "TORCHELASTIC_RESTART_COUNT": str(restart), "RANK": str(rank),
            "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}


def mpirun(rank, restart):
    return {"PMIX_NAMESPACE": f"prterun-{restart}", "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "CAIRN_JOB": f"mpi-{restart}"}


def srun(rank, restart):
    return {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": str(restart), "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2",
            "SLURM_LOCALID": str(rank), "SLURM_NTASKS_PER_NODE": "2"}


class Launchers(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=1, case=self)
        self.env = {**os.environ, "CAIRN_SOCKET": self.world.socket(), "CAIRN_URL": self.world.url}

    def start(self, run, set_by, restart):
        return [subprocess.Popen([JOB, run, *WORDS], env={**self.env, **set_by(rank, restart)}, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]

    def ended(self, ranks, status):
        said = [rank.communicate(timeout=HANG_S)[0] for rank in ranks]
        for rank, text in zip(ranks, said):
            self.assertEqual(rank.returncode, status, text)
        return said

    def test_a_signalled_job_saves_and_another_start_goes_on_under_each_launcher(self):
        wanted = None
        for launcher in (torchrun, mpirun, srun):
            run = f"launched/{launcher.__name__}"
            ranks = self.start(run, launcher, 0)
            for rank in ranks:
                self.assertIn("staged", line_of(rank))
            for rank in ranks:
                rank.send_signal(signal.SIGUSR1)
            # Ranks hear of it at different steps: the one that is behind ends the other's save with its own.
            for rank in ranks:
                rank.communicate(timeout=HANG_S)
            said = self.ended(self.start(run, launcher, 1), 0)
            self.assertRegex(said[0], r"resumed from step (20|2\d|3\d|4\d)")
            digests = [re.search(r"digest (\w+)", text).group(1) for text in said]
            wanted = wanted or digests
            self.assertEqual(digests, wanted, launcher.__name__)

    def stand_in(self, name, text):
        path = self.world.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)
        return path

    def test_the_batch_script_queues_a_job_again_that_has_saved_and_is_not_done(self):
        # As srun does: tasks with their ranks, the step's signal to each, the highest status.
        self.stand_in("srun", 'shift; SLURM_PROCID=0 SLURM_LOCALID=0 "$@" & echo $! >"$TASK"; wait $!\n')
        self.stand_in("scontrol", 'echo "$@" >>"$ASKED"\n')
        task, asked = self.world.root / "task", self.world.root / "asked"
        env = {**self.env, "PATH": f"{self.world.root}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "78", "SLURM_NTASKS": "1",
               "SLURM_NTASKS_PER_NODE": "1", "SLURM_RESTART_COUNT": "0", "TASK": str(task), "ASKED": str(asked),
               "CAIRN_EXAMPLE_JOB": str(JOB)}
        with subprocess.Popen(["bash", SLURM / "job.sbatch", *WORDS], env=env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as batch:
            self.assertIn("staged", line_of(batch))
            os.kill(int(task.read_text()), signal.SIGUSR1)
            said = batch.communicate(timeout=HANG_S)[0]
        self.assertEqual(batch.returncode, 0, said)
        self.assertIn("committed", said)
        self.assertEqual(asked.read_text(), "requeue 78\n")
        done = cases.run(["bash", SLURM / "job.sbatch", *WORDS], env={**env, "SLURM_RESTART_COUNT": "1"})
        self.assertIn("resumed from step", done.stdout)
        self.assertIn("done at step 60", done.stdout)
        self.assertEqual(asked.read_text(), "requeue 78\n")

    def test_the_prolog_says_whether_a_node_can_save_and_the_epilog_waits_for_what_is_sent(self):
        self.stand_in("systemctl", 'echo "$@" >>"$ASKED"\n')
        asked = self.world.root / "asked"
        env = {**self.env, "PATH": f"{self.world.root}/bin:{BIN}:{os.environ['PATH']}", "ASKED": str(asked)}
        subprocess.run(["sh", SLURM / "prolog.sh"], env=env, timeout=HANG_S, check=True)
        (self.world.root / "data").write_bytes(os.urandom(1 << 20))
        self.world.cairn("put", self.world.root / "data", "slurm/run@1", "--detach")
        subprocess.run(["sh", SLURM / "epilog.sh"], env=env, timeout=HANG_S, check=True)
        wait_until(lambda: self.world.version("slurm/run", "1"))
        self.world.uploaders[0].stop()
        began = time.monotonic()
        done = cases.run(["sh", SLURM / "prolog.sh"], env=env, status=1)
        self.assertIn("no uploader listens", done.stderr)
        self.assertGreater(time.monotonic() - began, 5)  # it was given time to start
        subprocess.run(["sh", SLURM / "epilog.sh"], env=env, timeout=HANG_S, check=True)
        self.assertIn("is-active --quiet cairn-uploader", asked.read_text())
        subprocess.run(["sh", SLURM / "epilog.sh"], env={**env, "CAIRN_EPILOG": "drain"}, timeout=HANG_S, check=True)
        self.assertIn("stop cairn-uploader", asked.read_text())


if __name__ == "__main__":
    unittest.main()
