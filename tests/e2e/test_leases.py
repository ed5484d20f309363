# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Retention removes nothing that a restore in progress reads: a slow reader, while the policy keeps one
checkpoint, the trash is emptied at once, and the sweep runs twenty times a second."""
import hashlib
import os
import pathlib
import subprocess
import unittest

from build_folder import BIN
from passing import Passing
from signs import go_round
from world import files_below, HANG_S, wait_until, World

SIZE = 96 << 20  # more than pipes and buffers hold, so that the reader is in its middle for long


class SlowReader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(server_arguments=("--trash-grace", "0ms", "--sweep-interval", "50ms"), case=cls)
        cls.big, cls.small = cls.world.root / "big", cls.world.root / "small"
        cls.big.write_bytes(os.urandom(SIZE))
        cls.small.write_bytes(b"small")

    def ask(self, *words, status=0):
        return self.world.json(*words, status=status)

    def steps(self, run):
        return [item["step"] for item in self.ask("ls", run) if item["state"] == "committed" and not item["trashed"]]

    def objects(self, run, step):
        return [path for path in files_below(pathlib.Path(self.world.store) / run / f"{step:012}")]

    def test_what_a_slow_get_reads_outlives_policy_trash_and_sweep(self):  # C03, Q28, Q29
        run, digest = "slow/reader", hashlib.sha256()
        self.world.cairn("put", self.big, f"{run}@1")
        self.world.cairn("put", self.small, f"{run}@2")
        self.world.cairn("policy", "set", run, "--keep-last", "1")
        reader = self.world.begin("get", f"{run}@1", "--shard", "big", "-d", "-", text=False)
        with reader:
            digest.update(reader.stdout.read(1 << 20))
            held = wait_until(lambda: self.ask("lease", "ls", f"{run}@1"))
            self.assertIn(f"pid {reader.pid}", held[0]["job"])
            for step in (3, 4):
                self.world.cairn("put", self.small, f"{run}@{step}")
                wait_until(lambda kept=step: self.steps(run) == [kept, 1])
            wait_until(lambda: not self.objects(run, 2))  # it was read by nobody
            self.assertIn("is being read", self.world.cairn("rm", f"{run}@1", status=6).stderr)
            plan = self.ask("forget", run, "--keep-last", "1", "--dry-run")
            reasons = {v["step"]: [r["rule"] for r in v["reasons"]] for v in plan["versions"] if v["fate"] == "keep"}
            self.assertEqual(reasons[1], ["leased"])
            go_round(self.world.server.process.pid, "cairn-sweep", 20)
            for piece in iter(lambda: reader.stdout.read(1 << 20), b""):
                digest.update(piece)
        self.assertEqual(reader.returncode, 0)
        self.assertEqual(digest.hexdigest(), hashlib.sha256(self.big.read_bytes()).hexdigest())
        self.assertEqual(self.ask("lease", "ls", f"{run}@1"), [])
        self.world.cairn("put", self.small, f"{run}@5")
        wait_until(lambda: self.steps(run) == [5])
        wait_until(lambda: not self.objects(run, 1))
        self.world.cairn("get", f"{run}@1", "-d", self.world.root / "gone", status=3)

    def test_a_lease_is_taken_by_hand_shared_by_its_job_and_given_back(self):
        run = "slow/hand"
        self.world.cairn("put", self.small, f"{run}@1")
        self.world.cairn("put", self.small, f"{run}@2")
        lease = self.ask("lease", "take", f"{run}@1", "--job", "eval-17", "--for", "10min")
        self.assertEqual((lease["job"], lease["expires_s"], lease["step"]), ("eval-17", 600, 1))
        again = self.ask("lease", "take", f"{run}@1", "--job", "eval-17")
        self.assertEqual(again["lease"], lease["lease"])
        self.world.cairn("rm", f"{run}@1", status=6)
        self.assertIn("eval-17", self.world.cairn("lease", "ls", f"{run}@1").stdout)
        self.assertIn("given back", self.world.cairn("lease", "rm", f"{run}@1", lease["lease"]).stdout)
        self.world.cairn("lease", "rm", f"{run}@1", lease["lease"], status=3)
        self.world.cairn("lease", "take", f"{run}@1", status=2)
        for too_long in ("2h", "9h"):
            said = self.world.cairn("lease", "take", f"{run}@1", "--job", "x", "--for", too_long, status=2)
            self.assertIn("--for: an hour at most", said.stderr)
        self.world.cairn("rm", f"{run}@1")


GRACE_S, LEASE_S, STEP_S = 15, 10, 3.75  # a step is more than a third of a lease, when it is renewed


class FromTheTrash(unittest.TestCase):
    """A version is put into the trash, and read there; its grace is over long before its readers are.
    The sweep runs twenty times a second, and the uploader renews its lease in each step of the daemons' time."""

    @classmethod
    def setUpClass(cls):
        cls.passing = Passing()
        cls.world = World(env=cls.passing.env(), uploader_arguments=("--restore-lease", f"{LEASE_S}s"),
                          server_arguments=("--trash-grace", f"{GRACE_S}s", "--sweep-interval", "50ms"), case=cls)

    def save(self, run, *steps, job="j"):
        env = {**os.environ, "CAIRN_JOB": job, "TRAINER_ROWS": "24", "CAIRN_SOCKET": self.world.socket()}
        subprocess.run([BIN / "tests/trainer", run, "0", "1", *map(str, steps)], env=env, check=True,
                       stdout=subprocess.DEVNULL, timeout=HANG_S)

    def path(self, run, version):
        return f"/v1/runs/{run}/checkpoints/{version}"

    def objects(self, run, step):
        return files_below(pathlib.Path(self.world.store) / run / f"{step:012}")

    def is_read_in_the_trash(self, run, step, version, go_on, renews):
        """For as long as three graces of the daemons' time; renews: its lease is too short for that."""
        before = len(self.objects(run, step))
        for _ in range(13):
            self.passing.passes(STEP_S)
            if renews:
                wait_until(lambda: self.leases(run, version)[0]["expires_s"] > LEASE_S - STEP_S)
            go_on()
            go_round(self.world.server.process.pid, "cairn-sweep", 3)
            self.assertTrue(self.world.version(run, version)["trashed"])
            self.assertEqual(len(self.objects(run, step)), before)

    def is_deleted_at_last(self, run, step, version):
        wait_until(lambda: not self.objects(run, step))
        self.assertEqual(self.world.get(self.path(run, version))[0], 410)

    def trash(self, run, version):
        self.assertEqual(self.world.get(self.path(run, version), "DELETE")[0], 202)

    def leases(self, run, version):
        return self.world.read(self.path(run, version) + "/leases")["items"]

    def test_c03_a_slow_restore_through_the_server_outlives_trash_grace_and_deletion(self):
        run = "trash/server"
        self.save(run, 1, 2)
        version = self.world.version(run, "1")["version"]
        shard = self.world.get(self.path(run, version) + "/shards/rank-00000.safetensors/data")[2]
        wait_until(lambda: not self.leases(run, version))  # of that reader, which has every byte before the server knows
        self.trash(run, version)
        lease = self.world.json("lease", "take", f"{run}@{version}", "--job", "slow", "--for", "2min")
        read = bytearray()

        def go_on():
            end = min(len(read) + (1 << 20), len(shard)) - 1
            status, _, body = self.world.get(
                self.path(run, version) + "/shards/rank-00000.safetensors/data",
                headers={"Range": f"bytes={len(read)}-{end}"})
            self.assertEqual(status, 206)
            read.extend(body)

        self.is_read_in_the_trash(run, 1, version, go_on, renews=False)
        while len(read) < len(shard):
            go_on()
        self.assertEqual(bytes(read), shard)
        self.world.cairn("lease", "rm", f"{run}@{version}", lease["lease"])
        self.is_deleted_at_last(run, 1, version)

    def test_c03_a_slow_restore_through_the_uploader_outlives_trash_grace_and_deletion(self):
        run, rows = "trash/uploader", 24
        self.save(run, 1, 2)
        version = self.world.version(run, "1")["version"]
        env = {**os.environ, "CAIRN_SOCKET": self.world.socket()}
        reader = [BIN / "tests/tensor_reader", run, version, "w"]
        whole = subprocess.run(reader, env=env, check=True, stdout=subprocess.PIPE).stdout
        self.assertEqual(len(whole), rows << 20)
        wait_until(lambda: not self.leases(run, version))
        self.trash(run, version)
        read = bytearray()
        with subprocess.Popen(reader, env={**env, "TENSOR_READER_STEP": "1"}, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as slow:
            def go_on():
                slow.stdin.write(b"\n")
                slow.stdin.flush()
                read.extend(slow.stdout.read(1 << 20))

            go_on()
            self.assertEqual(len(self.leases(run, version)), 1)
            self.is_read_in_the_trash(run, 1, version, go_on, renews=True)
            while len(read) < len(whole):
                go_on()
        self.assertEqual(slow.returncode, 0)
        self.assertEqual(bytes(read), whole)
        self.is_deleted_at_last(run, 1, version)


if __name__ == "__main__":
    unittest.main(verbosity=2)
