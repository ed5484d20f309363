# SPDX-License-Identifier: Apache-2.0
"""Sixteen ranks on four nodes save, a node is lost with its memory, and six ranks go on."""
import collections
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

from s3world import BUCKET, S3Fault, S3World, signed
from test_jobs import Job
from world import BIN, HANG_S, line_of

NODES, RANKS, RESTORED_BY, RUN = 4, 16, 6, "p/lost"
UPLOADER = ["--peer-listen", "127.0.0.1:0", "--heartbeat", "200ms", "--metrics-listen", "127.0.0.1:0"]


class NodeLost(unittest.TestCase):
    def start(self, *arguments):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-lost-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.s3 = S3Fault(folder, ["--cap-all-bytes-per-s", "60MB"])
        self.addCleanup(self.s3.daemon.end)
        self.world = S3World(self.s3, nodes=NODES, debug=False, uploader_arguments=[*UPLOADER, *arguments])
        self.addCleanup(self.world.close)
        for status, lines, said in Job(self.world, "first", RANKS, [1], run=RUN, rows=10).end():
            self.assertEqual((status, lines[-1]["code"]), (0, "ok"), said)
        self.sizes = self.world.keys("/data/")
        self.assertEqual(len(self.sizes), 2 * RANKS)
        # The one node of four that has ranks 3, 7, 11 and 15: nothing of it is asked again.
        self.world.uploaders[NODES - 1].process.send_signal(signal.SIGKILL)
        self.world.uploaders[NODES - 1].process.wait()
        self.journal_before = len(self.journal())

    def journal(self):
        return [json.loads(line) for line in self.s3.ask("journal").splitlines()]

    def restore(self):
        """All six at one moment, two on each node that is left; every byte is compared."""
        hold = self.world.root / "go"
        children = []
        for rank in range(RESTORED_BY):
            out = self.world.root / f"out-{rank}"
            out.mkdir()
            child = subprocess.Popen(
                [BIN / "tests/restorer", RUN, str(rank), str(RESTORED_BY), "2"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "CAIRN_JOB": "second", "RESTORER_HOLD": str(hold), "RESTORER_OUT": str(out),
                     "RESTORER_SLICE": "16", "CAIRN_SOCKET": self.world.socket(rank // 2)})
            self.addCleanup(child.communicate)
            self.addCleanup(child.kill)
            children.append(child)
        for child in children:
            for what in ("open", "restore"):
                self.assertEqual(json.loads(line_of(child)), {what: "ok"}, self.world.logs())
        self.world.wait_for_beats(10 * len(self.world.uploaders))  # all know who the others are: none reads for itself
        hold.touch()
        for child in children:
            _, said = child.communicate(timeout=HANG_S)
            self.assertEqual(child.returncode, 0, said + self.world.logs())
        sent = self.sent()  # before this test asks for anything itself
        wanted = {key.split("/data/")[1].replace("/", "_"): self.stored(key) for key in self.sizes}
        for rank in range(RESTORED_BY):
            got = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                   for file in (self.world.root / f"out-{rank}").iterdir()}
            self.assertEqual(got, wanted)
        if "peers.passed_by" in self.world.logs():
            self.skipTest("this machine let a node wait for another for two seconds; the store was asked again")
        return sent

    def stored(self, key):
        return hashlib.sha256(signed(self.s3.env(), f"/{BUCKET}/{key}")).hexdigest()

    def sent(self):
        """{object: bytes of it that the store has sent since the node was lost}."""
        found = collections.Counter()
        for line in self.journal()[self.journal_before:]:
            if line["op"] == "get" and "/data/" in line["key"]:
                found[line["key"]] += line["bytes_out"]
        return found

    def of_node(self, key):
        """Which node had saved it."""
        return int(key.split("/data/rank-")[1][:5]) % NODES

    def test_six_ranks_restore_from_the_store_and_each_other_and_no_byte_leaves_the_store_twice(self):
        self.start("--memory-tier", "0")
        sent = self.restore()
        self.assertEqual({key: (sent[key], size) for key, size in self.sizes.items() if sent[key] != size}, {})

    def test_what_nodes_that_are_left_still_hold_is_not_all_read_again_and_what_the_lost_one_had_is(self):
        self.start("--memory-tier-time", "120s")
        sent = self.restore()
        for key, size in self.sizes.items():
            self.assertLessEqual(sent[key], size, key)
            if self.of_node(key) == NODES - 1:
                self.assertEqual(sent[key], size, key)
        self.assertLess(sent.total(), sum(self.sizes.values()))


if __name__ == "__main__":
    unittest.main()
