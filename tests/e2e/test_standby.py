# SPDX-License-Identifier: Apache-2.0
# ctest: engines=postgresql
"""Two servers that serve one catalog in PostgreSQL by turns, while ranks save: the uploaders are given
both addresses, and no save of any rank fails."""
import json
import shutil
import signal
import unittest

import ports
import postgres
from world import Daemon, Job, wait_until, World

STEPS = list(range(1, 31))
TURNS = (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)


class Standby(unittest.TestCase):
    """The first server is the world's; the second has another address, and the same key."""

    def setUp(self):
        postgres.needed()
        catalog = postgres.shared().catalog()
        self.world = World(nodes=0, catalog=catalog, case=self)
        root, port = self.world.root, ports.free()
        (root / "second").mkdir(mode=0o700)
        shutil.copy(root / "server/grant.key", root / "second/grant.key")
        ready = root / "second.port"
        self.servers = [self.world.server, Daemon(
            "cairn-server",
            ["--listen", f"127.0.0.1:{port}", "--store", self.world.store, "--data-dir",
             root / "second", "--port-file", ready, "--catalog", catalog],
            ready, root / "second.log")]
        self.addCleanup(self.servers[1].end)
        self.urls = [self.world.url, f"http://127.0.0.1:{port}"]
        self.world.url = ",".join(self.urls)
        for number in range(2):
            self.world.uploaders.append(self.world.make_uploader(number).start())

    def committed(self):
        done = self.world.cairn("ls", "j/run", "--json", status=None)
        if done.returncode == 3:  # the first attempt is not open yet
            return []
        self.assertEqual(done.returncode, 0, done.stderr)
        listed = json.loads(done.stdout)
        return sorted(item["step"] for item in listed if item["state"] == "committed")

    def test_saves_go_on_over_the_other_server_whichever_ends_and_however(self):
        job = Job(self.world, "turns", 4, STEPS)
        self.addCleanup(job.kill)
        for turn, how in enumerate(TURNS):
            have = len(self.committed())
            wait_until(lambda have=have: len(self.committed()) > have + 2, 60, every=0.2)
            ended, next_one = self.servers[turn % 2], self.servers[(turn + 1) % 2]
            ended.stop(how)
            next_one.start()
        for status, lines, said in job.end():
            self.assertEqual(status, 0, said)
            self.assertEqual([line["code"] for line in lines if "code" in line], ["ok"] * len(STEPS), said)
        self.assertEqual(self.committed(), STEPS)

    def test_a_command_finds_whichever_serves(self):
        Job(self.world, "one", 2, [1]).end()
        self.servers[0].stop()
        self.servers[1].start()
        self.assertEqual(self.committed(), [1])
        self.world.cairn("wait", "j/run@1")
        self.world.cairn("get", "j/run@1", "-d", self.world.root / "back")


if __name__ == "__main__":
    unittest.main(verbosity=2)
