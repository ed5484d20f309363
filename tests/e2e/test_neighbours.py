# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60
"""Eight ranks on four nodes, each of which has staged its share of the weights, start again: what a
node still has in memory is not asked of the store by any other."""
import re
import shutil
import unittest

import cases
from s3world import S3Fault, S3World
from test_node_lost import Restores
from world import Job, wait_until

NODES, RANKS, RUN, STEP = 4, 8, "p/near", 1
NODE = ["--peer-listen", "127.0.0.1:0", "--heartbeat", "200ms", "--memory-tier-time", "10min"]
KEEPS = [*NODE, "--partner-memory", "256MiB"]


class Neighbours(Restores, unittest.TestCase):
    RUN = RUN

    def start(self, uploader=NODE, server=(), rows=10):
        """A committed version, whose ranks have ended as a job does that is killed."""
        folder = cases.folder(self)
        self.s3 = S3Fault(folder, case=self)
        self.world = S3World(self.s3, nodes=NODES, debug=False, uploader_arguments=uploader,
                             server_arguments=server, case=self)
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

    def replace(self, node):
        """By a machine of its name, without anything of the one before."""
        self.world.uploaders[node].kill()
        shutil.rmtree(self.world.root / f"uploader-{node}")
        self.world.uploaders[node] = self.world.make_uploader(node)
        self.world.uploaders[node].start()

    def restore(self):
        heard = f"peers.listed run={RUN} attempt=2 "
        return super().restore(RANKS, lambda rank: rank % NODES, lambda: wait_until(
            lambda: all(heard in self.log(node) for node in range(NODES))))

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
        lost = {key: size for key, size in self.sizes.items() if int(key.split("/data/rank-")[1][:5]) % NODES == NODES - 1}
        for key in self.sizes:
            if key in lost:
                self.assertGreaterEqual(sent[key], lost[key], key)
            else:
                self.assertEqual(sent[key], 0, key)
        # A node that has waited too long for another one's answer, as happens on a busy machine, reads a block itself.
        self.assertLess(sent.total(), 1.5 * sum(lost.values()))


if __name__ == "__main__":
    unittest.main()
