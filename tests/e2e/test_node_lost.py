# SPDX-License-Identifier: Apache-2.0
"""Sixteen ranks on four nodes save, a node is lost with its memory, and six ranks go on."""
import collections
import hashlib
import json
import os
import signal
import subprocess
import unittest

import cases
from s3world import BUCKET, S3Fault, S3World, signed
from world import BIN, Job, line_of

NODES, RANKS, RESTORED_BY, RUN = 4, 16, 6, "p/lost"
UPLOADER = ["--peer-listen", "127.0.0.1:0", "--heartbeat", "200ms", "--metrics-listen", "127.0.0.1:0"]


class Restores:
    """Of a case with s3, world, RUN, sizes and journal_before: ranks that want all of what others have saved."""

    def journal(self):
        return [json.loads(line) for line in self.s3.ask("journal").splitlines()]

    def restore(self, ranks, node_of, heard):
        """All ranks at one moment, once heard(); every byte is compared. {object: bytes that the store has sent}."""
        hold = self.world.root / "go"
        children = []
        for rank in range(ranks):
            out = cases.made(self.world.root / f"out-{rank}")
            child = subprocess.Popen(
                [BIN / "tests/restorer", self.RUN, str(rank), str(ranks), "2"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "CAIRN_JOB": "second", "RESTORER_HOLD": str(hold), "RESTORER_OUT": str(out),
                     "RESTORER_SLICE": "16", "CAIRN_SOCKET": self.world.socket(node_of(rank))})
            self.addCleanup(child.communicate)
            self.addCleanup(child.kill)
            children.append(child)
        for child in children:
            for what in ("open", "restore"):
                self.assertEqual(json.loads(line_of(child)), {what: "ok"}, self.world.logs())
        heard()
        hold.touch()
        for child in children:
            self.world.ended(child)
        sent = self.sent()  # before this test asks for anything itself
        wanted = {key.split("/data/")[1].replace("/", "_"): self.stored(key) for key in self.sizes}
        for rank in range(ranks):
            got = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                   for file in (self.world.root / f"out-{rank}").iterdir()}
            self.assertEqual(got, wanted)
        if "peers.passed_by" in self.world.logs():
            self.skipTest("this machine let a node wait for another for two seconds; the store was asked again")
        return sent

    def stored(self, key):
        return hashlib.sha256(signed(self.s3.env(), f"/{BUCKET}/{key}")).hexdigest()

    def sent(self):
        """{object: bytes of it that the store has sent since journal_before}."""
        found = collections.Counter()
        for line in self.journal()[self.journal_before:]:
            if line["op"] == "get" and "/data/" in line["key"]:
                found[line["key"]] += line["bytes_out"]
        return found


class NodeLost(Restores, unittest.TestCase):
    RUN = RUN

    def start(self, *arguments):
        folder = cases.folder(self)
        self.s3 = S3Fault(folder, ["--cap-all-bytes-per-s", "60MB"], case=self)
        self.world = S3World(self.s3, nodes=NODES, debug=False, uploader_arguments=[*UPLOADER, *arguments], case=self)
        Job(self.world, "first", RANKS, [1], run=RUN, rows=10).succeeds()
        self.sizes = self.world.keys("/data/")
        self.assertEqual(len(self.sizes), 2 * RANKS)
        # The one node of four that has ranks 3, 7, 11 and 15: nothing of it is asked again.
        self.world.uploaders[NODES - 1].process.send_signal(signal.SIGKILL)
        self.world.uploaders[NODES - 1].process.wait()
        self.journal_before = len(self.journal())

    def restore(self):
        """Two ranks on each node that is left, once all know who the others are: none reads for itself."""
        return super().restore(RESTORED_BY, lambda rank: rank // 2, lambda: self.world.wait_for_beats(10 * len(self.world.uploaders)))

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
