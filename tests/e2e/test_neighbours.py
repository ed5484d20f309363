# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60
"""Eight ranks on four nodes, each of which has staged its share of the weights, start again: what a
node still has in memory is not asked of the store by any other."""
import collections
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from s3world import BUCKET, S3Fault, S3World, signed
from test_jobs import Job
from world import BIN, HANG_S, line_of, wait_until

NODES, RANKS, RUN, STEP = 4, 8, "p/near", 1
NODE = ["--peer-listen", "127.0.0.1:0", "--heartbeat", "200ms", "--memory-tier-time", "10min"]
KEEPS = [*NODE, "--partner-memory", "256MiB"]


class Neighbours(unittest.TestCase):
    def start(self, uploader=NODE, server=(), rows=10):
        """A committed version, whose ranks have ended as a job does that is killed."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-near-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.s3 = S3Fault(folder)
        self.addCleanup(self.s3.daemon.end)
        self.world = S3World(self.s3, nodes=NODES, debug=False, uploader_arguments=uploader,
                             server_arguments=server)
        self.addCleanup(self.world.close)
        hold = self.world.root / "hold"
        job = Job(self.world, "first", RANKS, [STEP, STEP + 1], run=RUN, rows=rows, hold=hold)
        self.addCleanup(job.kill)
        self.assertEqual([line["open"] for line in job.first_lines()], ["ok"] * RANKS)
        (self.world.root / f"hold.{STEP}").touch()
        self.assertEqual([line["code"] for line in job.first_lines()], ["ok"] * RANKS)
        if uploader == KEEPS:
            wait_until(lambda: self.copied() == set(range(RANKS)))
        job.kill()
        self.sizes = self.world.keys("/data/")
        self.journal_before = len(self.journal())

    def copied(self):
        """Ranks whose save another node has, too, since the node of each has said so."""
        return {int(rank) for node in range(NODES)
                for rank in re.findall(r"(?:kept\.given|save\.partnered) .*?rank=(\d+)", self.log(node))}

    def log(self, node):
        return (self.world.root / f"uploader-{node}.log").read_text(errors="replace")

    def journal(self):
        return [json.loads(line) for line in self.s3.ask("journal").splitlines()]

    def replace(self, node):
        """By a machine of its name, without anything of the one before."""
        self.world.uploaders[node].kill()
        shutil.rmtree(self.world.root / f"uploader-{node}")
        self.world.uploaders[node] = self.world.make_uploader(node)
        self.world.uploaders[node].start()

    def restore(self):
        """All ranks at one moment, each wants all of it; {object: bytes that the store has sent}."""
        go, attempt = self.world.root / "go", 2
        children = []
        for rank in range(RANKS):
            out = self.world.root / f"out-{rank}"
            out.mkdir()
            child = subprocess.Popen(
                [BIN / "tests/restorer", RUN, str(rank), str(RANKS), "2"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "CAIRN_JOB": "second", "RESTORER_HOLD": str(go), "RESTORER_OUT": str(out),
                     "RESTORER_SLICE": "16", "CAIRN_SOCKET": self.world.socket(rank % NODES)})
            self.addCleanup(child.communicate)
            self.addCleanup(child.kill)
            children.append(child)
        for child in children:
            for what in ("open", "restore"):
                self.assertEqual(json.loads(line_of(child)), {what: "ok"}, self.world.logs())
        heard = f"peers.listed run={RUN} attempt={attempt} "
        wait_until(lambda: all(heard in self.log(node) for node in range(NODES)))
        go.touch()
        for child in children:
            _, said = child.communicate(timeout=HANG_S)
            self.assertEqual(child.returncode, 0, said + self.world.logs())
        sent = self.sent()  # before this test asks for anything itself
        wanted = {key.split("/data/")[1].replace("/", "_"): self.stored(key) for key in self.sizes}
        for rank in range(RANKS):
            got = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                   for file in (self.world.root / f"out-{rank}").iterdir()}
            self.assertEqual(got, wanted)
        if "peers.passed_by" in self.world.logs():
            self.skipTest("this machine let a node wait for another for two seconds; the store was asked")
        return sent

    def stored(self, key):
        return hashlib.sha256(signed(self.s3.env(), f"/{BUCKET}/{key}")).hexdigest()

    def sent(self):
        found = collections.Counter()
        for line in self.journal()[self.journal_before:]:
            if line["op"] == "get" and "/data/" in line["key"]:
                found[line["key"]] += line["bytes_out"]
        return found

    def assert_little(self, sent):
        self.assertLessEqual(sent.total(), sum(self.sizes.values()) // 100, dict(sent))

    def test_a_restart_on_the_same_nodes_reads_nothing_that_one_of_them_has_in_memory(self):
        self.start()
        self.assert_little(self.restore())

    def test_of_a_lost_node_its_partner_has_the_newest_version_also_after_its_commit(self):
        self.start(KEEPS, ["--partner-copies", "1"])
        self.replace(NODES - 1)
        self.assert_little(self.restore())

    def test_without_copies_of_a_lost_node_what_it_had_is_read_once_and_nothing_else(self):
        self.start()
        self.replace(NODES - 1)
        sent = self.restore()
        for key, size in self.sizes.items():
            lost = int(key.split("/data/rank-")[1][:5]) % NODES == NODES - 1
            self.assertEqual(sent[key], size if lost else 0, key)


if __name__ == "__main__":
    unittest.main()
