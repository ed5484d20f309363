# SPDX-License-Identifier: Apache-2.0
"""What readers, and an uploader that slept, see while processes stop and come back."""
import concurrent.futures
import hashlib
import json
import os
import signal
import threading
import time
import unittest
import urllib.error
import urllib.request

from test_jobs import Job
from world import World, wait_until

MIB = 1 << 20
CLIENTS, RANGE_BYTES = 256, 64 << 10
TRIES_S = 60


def read_range(world, path, start, end):
    """Bytes [start, end) as a client that resumes: what came stays, the rest is asked for again."""
    got, until = b"", time.monotonic() + TRIES_S
    while len(got) < end - start:
        if time.monotonic() > until:
            raise AssertionError(f"{path} {start}-{end}: {len(got)} bytes in {TRIES_S} s")
        request = urllib.request.Request(
            world.url + path, headers={"Range": f"bytes={start + len(got)}-{end - 1}"})
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:
                assert reply.status == 206, reply.status
                while piece := reply.read1(16384):
                    got += piece
        except (OSError, urllib.error.HTTPError, AttributeError):
            time.sleep(0.05)
        except Exception as error:  # http.client's own
            assert type(error).__module__ == "http.client", error
            time.sleep(0.05)
    return got


class Readers(unittest.TestCase):
    def setUp(self):
        self.world = World()
        self.addCleanup(self.world.close)
        source = self.world.root / "source"
        source.mkdir()
        self.data = os.urandom(CLIENTS * RANGE_BYTES // 4)
        (source / "a.bin").write_bytes(self.data)
        self.world.cairn("put", source, "r/run@1")

    def restart_server(self, over):
        """Killed again and again, until the readers are through."""
        while not over.wait(0.4):
            self.world.server.kill()
            time.sleep(0.3)
            self.world.start_server()
            self.restarts += 1

    def test_c06_256_clients_restore_while_the_server_restarts_and_every_byte_is_right(self):
        path = "/v1/runs/r/run/checkpoints/1/shards/a.bin/data"
        self.restarts, over = 0, threading.Event()
        killer = threading.Thread(target=self.restart_server, args=(over,))
        killer.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                starts = [i * RANGE_BYTES // 4 for i in range(CLIENTS)]
                ends = [min(start + RANGE_BYTES, len(self.data)) for start in starts]
                got = list(pool.map(lambda at: read_range(self.world, path, *at),
                                    zip(starts, ends)))
                self.assertGreater(self.restarts, 0)
        finally:
            over.set()
            killer.join()
        for start, end, data in zip(starts, ends, got):
            self.assertEqual(hashlib.sha256(data).digest(),
                             hashlib.sha256(self.data[start:end]).digest(), (start, end))


class Sleepers(unittest.TestCase):
    def setUp(self):
        delay = {"CAIRN_STORE_FAULT": "part:*:*:delay@400; put:*data*:*:delay@400"}
        self.world = World(nodes=2, env=delay, uploader_arguments=["--heartbeat", "200ms"],
                           server_arguments=["--silence-max", "2s", "--sweep-interval", "200ms"])
        self.addCleanup(self.world.close)

    def objects(self, version):
        return {str(path) for path in self.world.stored("*") if version in str(path)}

    def test_k05_an_uploader_that_slept_past_its_lease_touches_nothing_of_the_next_attempt(self):
        # Stopped in the middle of sending; the version ends without it and another job saves; what it
        # still does when it goes on must not show.
        sleeper = self.world.uploaders[0]
        old = Job(self.world, "old", 1, [1], run="k/run", rows=8)
        self.addCleanup(old.kill)
        wait_until(lambda: self.world.version("k/run", "1"), 30)
        sleeper.process.send_signal(signal.SIGSTOP)
        state = self.world.version("k/run", "1")["state"]
        self.assertEqual(state, "open", "it was stopped too late")
        lost = self.world.version("k/run", "1")["version"]
        self.assertIsNone(self.world.version("k/run"))
        wait_until(lambda: not self.open_versions(), 30)
        self.save_on_the_other_node()
        before = self.objects("ckpt_")
        sleeper.process.send_signal(signal.SIGCONT)
        status, lines, said = old.end()[0]
        self.assertEqual(status, 1, said)
        self.assertIn(lines[-1]["code"], ("stale-attempt", "checkpoint-aborted"), said)
        self.assertEqual(self.world.version("k/run")["step"], 7)
        # What it writes late lies under its own version, where the next of the later sweeps finds it
        # (Q30; tests/server/test_time.c); of the others nothing is touched.
        time.sleep(2)
        self.assertEqual({path for path in before if lost not in path},
                         {path for path in self.objects("ckpt_") if lost not in path})
        self.world.cairn("verify", "k/run@7", "--store", self.world.store)

    def open_versions(self):
        _, _, body = self.world.get("/v1/runs/k/run/checkpoints?limit=100")
        return [item for item in json.loads(body)["items"] if item["state"] == "open"]

    def save_on_the_other_node(self):
        socket, self.world.socket = self.world.socket, lambda node: socket(1)
        try:
            for status, lines, said in Job(self.world, "new", 1, [7], run="k/run").end():
                self.assertEqual((status, lines[-1]), (0, {"step": 7, "code": "ok"}), said)
        finally:
            self.world.socket = socket


if __name__ == "__main__":
    unittest.main(verbosity=2)
