# SPDX-License-Identifier: Apache-2.0
"""A warm-up over S3: what would fail the first save is named before it."""
import json
import os
import subprocess
import unittest

import cases
from s3world import S3Fault, S3World
from test_commands import shapes
from world import BIN, HANG_S, wait_until

RANKS, RUN = 4, "p/warm"


class Warmup(cases.Case):
    def setUp(self):
        self.s3 = S3Fault(self.folder, case=self)
        self.world = S3World(self.s3, nodes=2, uploader_arguments=["--heartbeat", "200ms"], case=self)

    def warm_up(self, job):
        """[(status, what it printed, what it said)] of each rank, which save step 1 if all is well."""
        children = [subprocess.Popen(
            [BIN / "tests/trainer", RUN, str(rank), str(RANKS), "1"], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env={**os.environ, "CAIRN_JOB": job, "TRAINER_WARMUP": "1", "TRAINER_TIMEOUT_MS": "20000",
                 "CAIRN_SOCKET": self.world.socket(rank % 2)}) for rank in range(RANKS)]
        said = []
        for child in children:
            out, err = child.communicate(timeout=HANG_S)
            said.append((child.returncode, [json.loads(line) for line in out.splitlines()], err))
        return said

    def probes(self):
        return self.world.read(f"/v1/runs/{RUN}/probes")["items"]

    def test_a_put_that_the_store_refuses_is_named_with_node_and_rank_and_its_reason(self):
        self.s3.rules("op=put key=*probe/rank-00003 : status=403/AccessDenied")
        for rank, (status, lines, said) in enumerate(self.warm_up("one")):
            if rank == 3:
                self.assertEqual((status, lines[-1]), (1, {"warmup": "forbidden"}), said)
                self.assertRegex(said, r"p/warm rank 3: warm-up: node node-1, rank 3: .*403 AccessDenied")
            else:
                self.assertIn({"warmup": "ok"}, lines, said)
        found = {row["rank"]: row for row in self.probes()}
        self.assertEqual(sorted(found), list(range(RANKS)))
        self.assertEqual((found[3]["node"], found[3]["code"]), ("node-1", "forbidden"))
        self.assertIn("403 AccessDenied", found[3]["reason"])
        self.assertEqual([found[rank]["ok"] for rank in range(RANKS)], [True, True, True, False])
        self.s3.rules("")
        for status, lines, said in self.warm_up("two"):
            self.assertEqual((status, lines[-1]), (0, {"step": 1, "code": "ok"}), said)
        wait_until(lambda: not self.world.keys("probe"), 20)

    def command(self, *words, status=0):
        """What `cairn warmup` prints as JSON, and says."""
        done = self.world.cairn("warmup", *words, "--json", node=1, status=status)
        return json.loads(done.stdout), done.stderr

    def test_the_command_names_each_rank_of_its_node_that_could_not_save_and_touches_no_run_that_trains(self):
        self.warm_up("one")
        attempt = self.world.read(f"/v1/runs/{RUN}")["attempt"]
        rows, _ = self.command("node", "p", "--ranks", "3", "--bytes", "4MiB")
        self.assertEqual([(row["rank"], row["node"], row["ok"]) for row in rows],
                         [(rank, "node-1", True) for rank in range(3)])
        self.assertEqual(set(rows[0]), shapes()["warmup node"])
        self.s3.rules("op=put key=*probe/rank-00001 : status=403/AccessDenied")
        rows, said = self.command("node", "p", "--ranks", "3", status=4)
        self.assertEqual([(row["ok"], row["code"]) for row in rows], [(True, None), (False, "forbidden"), (True, None)])
        self.assertIn("403 AccessDenied", rows[1]["reason"])
        self.assertIn("node node-1: 1 of 3 ranks could not save", said)
        self.s3.rules("")
        rows, said = self.command("node", "p", "--ranks", "2", "--bytes", "100GiB", status=1)
        self.assertEqual({row["code"] for row in rows}, {"no-memory"})
        wait_until(lambda: not self.world.keys("probe"), 20)
        self.assertEqual(self.world.read(f"/v1/runs/{RUN}")["attempt"], attempt)
        rows, _ = self.command("ls", "p/warmup-node-1")
        self.assertEqual({row["node"] for row in rows}, {"node-1"})
        rows, _ = self.command("ls", RUN)
        self.assertEqual([(row["rank"], row["ok"]) for row in rows], [(rank, True) for rank in range(RANKS)])
        self.assertEqual(set(rows[0]), shapes()["warmup node"])


if __name__ == "__main__":
    unittest.main()
