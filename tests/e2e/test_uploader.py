# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""cairn uploader status and drain: what a node's uploader says of itself, and how it is let finish."""
import json
import os
import signal
import subprocess
import unittest

from test_commands import shapes
from world import BIN, HANG_S, in_time, wait_until, World

RUN = "llm/drained"
SLOW = "put:*/data/*:1-3:unavailable; put:*/data/*:*:delay@3000"


class Uploader(unittest.TestCase):
    def world_of(self, **options):
        options["uploader_arguments"] = ["--heartbeat", "100ms", *options.get("uploader_arguments", ())]
        world = World(**options)
        self.addCleanup(world.close)
        self.folder = world.root / "one"
        self.folder.mkdir()
        (self.folder / "bytes").write_bytes(b"7" * 100_000)
        return world

    def status(self, world):
        return json.loads(world.cairn("uploader", "status", "--json").stdout)

    def writer(self, world):
        """A trainer that stages one save into the uploader's memory and waits until it is committed."""
        writer = subprocess.Popen([BIN / "tests" / "tensor_writer", RUN, "0", "1", "5"], stdin=subprocess.PIPE, text=True,
                                  env={**os.environ, "CAIRN_SOCKET": world.socket(), "CAIRN_COPY_THREADS": "3"})
        self.addCleanup(writer.wait)
        writer.stdin.write(f"item state 4 {self.folder / 'bytes'}\n")
        writer.stdin.close()
        return writer

    def told(self, world):
        """What the server was told of this node's memory and queue: (slabs, of them held, shards not in the store); None:
        it has not heard of the node yet."""
        items = json.loads(world.get("/v1/nodes")[2])["items"]
        said = items and items[0]["uploader"]
        return said and tuple(said.get(name, 0) for name in ("slab_bytes", "slab_held_bytes", "queue_depth"))

    def test_heartbeats_tell_of_slabs_and_queue_until_all_is_sent(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": SLOW})
        self.assertEqual(wait_until(lambda: self.told(world)), (0, 0, 0))
        writer = self.writer(world)
        slabs, held, queued = wait_until(lambda: (told := self.told(world)) and all(told) and told)
        self.assertLessEqual((held, queued), (slabs, 1))
        self.assertEqual(writer.wait(HANG_S), 0)
        wait_until(lambda: self.told(world)[1:] == (0, 0))

    def test_status_tells_what_is_held_sent_and_in_the_way(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": SLOW})
        idle = self.status(world)
        self.assertEqual((idle["node"], idle["draining"], idle["sessions"], idle["saves"]), ("node-0", False, 0, []))
        self.assertEqual(idle["budget_bytes"], 2 << 30)
        absent = {"store_waits", "store_waits_ms", "server_away", "server_away_ms", "journal"}  # no trouble
        absent |= {"slab_nodes", "numa_node"}  # no slab
        self.assertEqual(set(idle) | absent, shapes()["uploader status"])
        self.assertEqual(idle["pid"], world.uploaders[0].process.pid)
        world.cairn("put", "--detach", self.folder, f"{RUN}@5")
        held = wait_until(lambda: (said := self.status(world))["saves"] and said["saves"][0].get("error") and said)
        save = held["saves"][0]
        self.assertEqual((f'{save["project"]}/{save["run"]}', save["step"], save["rank"], save["shards_done"], save["shards_total"]),
                         (RUN, 5, 0, 0, 1))
        self.assertEqual((held["unfinished"], held["staging"], held["sent_bytes"]), (1, 0, 0))
        self.assertGreater(held["total_bytes"], 99_999)
        text = world.cairn("uploader", "status").stdout
        self.assertRegex(text, rf"(?m)^  {RUN}@5 rank 0: \w+, 0 B of .* 0 of 1 shards, 0 of 1 parts; last error: shard ")
        wait_until(lambda: not self.status(world)["unfinished"], 30)
        self.assertGreater(self.status(world)["sent_bytes"], 99_999)

    def test_a_store_that_answers_nothing_is_said_before_a_request_has_failed(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": "put:*/data/*:1:delay@15000"})
        world.cairn("put", "--detach", self.folder, f"{RUN}@5")
        said = wait_until(lambda: (said := self.status(world)).get("store_waits") and said)
        self.assertIn("the store has answered none of them", said["store_waits"])
        self.assertGreaterEqual(said["store_waits_ms"], 10000)
        self.assertIn("nothing is sent for ", world.cairn("health", "--ready", "uploader", status=5).stderr)
        world.cairn("health", "uploader")
        wait_until(lambda: not self.status(world)["unfinished"])
        self.assertFalse(self.status(world).get("store_waits"))
        world.cairn("health", "--ready", "uploader")

    def test_status_tells_how_a_trainer_has_copied_its_save(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": SLOW})
        writer = self.writer(world)
        save = wait_until(lambda: (said := self.status(world)["saves"]) and said[0].get("copy_threads") and said[0])
        self.assertEqual((f'{save["project"]}/{save["run"]}', save["step"], save["copy_threads"]), (RUN, 5, 3))
        self.assertGreater(save["copy_bytes_per_s"], 0)
        text = world.cairn("uploader", "status").stdout
        self.assertRegex(text, rf"(?m)^  {RUN}@5 rank 0: .* parts; copied with 3 threads, [0-9.]+ \w+/s")
        self.assertEqual(writer.wait(HANG_S), 0)

    def test_a_drain_finishes_what_was_staged_and_lets_nobody_in(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": SLOW})
        world.cairn("put", "--detach", self.folder, f"{RUN}@5")
        done = world.cairn("uploader", "drain", "--wait", "--timeout", f"{HANG_S}s", "--progress", "json")
        self.assertIn("is drained: 0 saves unfinished", done.stdout)
        told = [json.loads(line) for line in done.stderr.splitlines()]
        self.assertEqual((told[-1]["job"], told[-1]["last"]), ("drain", True))
        version = wait_until(lambda: world.version(RUN))  # told is not yet committed
        self.assertEqual(version["step"], 5)
        refused = world.cairn("put", self.folder, f"{RUN}@6", "--timeout", "2s", status=None)
        self.assertIn(refused.returncode, (5, 8), refused.stderr)
        self.assertTrue(self.status(world)["draining"])
        node = wait_until(lambda: (row := json.loads(world.get("/v1/nodes")[2])["items"][0])["uploader"].get("draining") and row)
        self.assertEqual(node["node"], "node-0")
        titles, row = (line.split() for line in world.cairn("nodes").stdout.splitlines())
        self.assertEqual((titles[:5], row[0], row[-1]), (["NODE", "HEARD", "OPEN", "UPLOADS", "STATE"], "node-0", "draining"))
        version = node["uploader"]["version"]
        self.assertRegex(world.cairn("nodes", "-o", "wide").stdout, rf"IN MEMORY +DOMAIN *\nnode-0 .* draining +{version} ")
        self.assertRegex(world.cairn("nodes", "rm", "node-0", status=6).stderr, "was heard a moment ago")
        self.assertEqual(json.loads(world.cairn("uploader", "drain", "--json").stdout)["unfinished"], 0)
        world.uploaders[0].stop()
        self.assertIn("uploader.drain_asked", world.uploaders[0].log.read_text())
        world.uploaders[0].start()
        self.assertFalse(self.status(world)["draining"])
        world.cairn("put", self.folder, f"{RUN}@7")

    def test_what_cannot_be_finished_in_time_is_status_8_and_stays_in_the_journal(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": "put:*/data/*:*:unavailable"})
        world.cairn("put", "--detach", self.folder, f"{RUN}@5")
        in_time(lambda seconds: "node node-0: 1 save unfinished, 0 saves being staged" in world.cairn(
            "uploader", "drain", "--wait", "--timeout", f"{seconds:g}s", status=8).stderr)
        waiting = subprocess.Popen([BIN / "cairn", "uploader", "drain", "--wait"], stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "CAIRN_SOCKET": world.socket(), "CAIRN_PROGRESS": "none"})
        wait_until(lambda: world.uploaders[0].log.read_text().count("uploader.drain_asked") == 1)
        world.uploaders[0].stop(signal.SIGKILL)
        self.assertIn("uploader", waiting.communicate(timeout=HANG_S)[1])
        self.assertEqual(waiting.returncode, 5)
        world.cairn("uploader", "status", status=5)
        world.cairn("uploader", "stop", status=2)
        world.cairn("uploader", "status", "--wait", status=2)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be another user")
    def test_a_trainer_of_another_user_may_look_and_not_drain(self):
        world = self.world_of(uploader_arguments=["--allow-uids", "65534"])
        world.root.chmod(0o755)
        os.chmod(world.socket(), 0o777)

        def asked(what):
            return subprocess.run([BIN / "cairn", "uploader", what, "--json"], capture_output=True, text=True,
                                  user=65534, group=65534, extra_groups=[], timeout=HANG_S,
                                  env={**os.environ, "CAIRN_SOCKET": world.socket(), "HOME": "/"})
        looked = asked("status")
        if looked.returncode == 126 or "ermission" in looked.stderr:
            self.skipTest("another user cannot run the program here")
        self.assertEqual(looked.returncode, 0, looked.stderr)
        refused = asked("drain")
        self.assertEqual((refused.returncode, json.loads(refused.stderr)["code"]), (4, "forbidden"))
        self.assertFalse(self.status(world)["draining"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
