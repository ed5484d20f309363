# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Many readers while the server is killed and started again."""
import concurrent.futures
import http.client
import os
import random
import threading
import time
import unittest

import cases
from world import HANG_S, World

MIB = 1 << 20
CLIENTS = 256


class Reader:
    """A client as an orchestrator writes one: ranges; where one broke, what came stays and the rest is
    asked for again."""

    def __init__(self, world, version, sources, seed):
        self.world, self.version, self.sources = world, version, sources
        self.random = random.Random(seed)
        self.again = 0

    def ask(self, shard, begin, end):
        """What came of a range: all of it, its first bytes, or none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.world.port, timeout=HANG_S)
        try:
            connection.request(
                "GET", f"/v1/runs/c/run/checkpoints/{self.version}/shards/{shard}/data",
                headers={"Range": f"bytes={begin}-{end - 1}"})
            reply = connection.getresponse()
            body = b""
            try:
                while piece := reply.read1(16384):
                    body += piece
            except (OSError, http.client.HTTPException):
                pass
            return body if reply.status == 206 else b""
        except (OSError, http.client.HTTPException):
            return b""
        finally:
            connection.close()

    def read(self, until):
        """A range in four pieces, each asked for until it is there; every byte compared."""
        shard = self.random.choice(sorted(self.sources))
        source = self.sources[shard]
        at = self.random.randrange(len(source) - 2 * MIB)
        for piece in range(4):
            begin = at + piece * (MIB // 2)
            end = begin + MIB // 2 - piece
            body = b""
            while True:
                body += self.ask(shard, begin + len(body), end)
                if body != source[begin:begin + len(body)] or len(body) > end - begin:
                    return f"{shard} {begin}-{end}: other bytes among {len(body)}"
                if len(body) == end - begin:
                    break
                self.again += 1
                if time.monotonic() > until:
                    return f"{shard} {begin}-{end}: not within {HANG_S} s"
                time.sleep(0.05 + 0.2 * self.random.random())  # step of a poll
        return None


class Readers(unittest.TestCase):
    def setUp(self):
        self.world = World(case=self)
        self.sources = {f"s{i}.bin": os.urandom(5 * MIB + 77 * i) for i in range(4)}
        folder = cases.made(self.world.root / "source")
        for name, content in self.sources.items():
            (folder / name).write_bytes(content)
        self.world.cairn("put", folder, "c/run@1")
        self.version = self.world.version("c/run", "1")["version"]

    def test_c06_256_clients_read_exact_bytes_while_the_server_is_killed_again_and_again(self):
        until = time.monotonic() + HANG_S
        readers = [Reader(self.world, self.version, self.sources, seed) for seed in range(CLIENTS)]
        done = threading.Event()
        kills = 0

        def strike():
            nonlocal kills
            while not done.wait(0.7) and kills < 6:
                self.world.server.kill()
                self.world.start_server()
                kills += 1

        striker = threading.Thread(target=strike)
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            striker.start()
            wrong = [w for w in pool.map(lambda r: r.read(until), readers) if w]
        done.set()
        striker.join()
        self.assertEqual(wrong, [])
        self.assertGreater(kills, 0)
        print(f"{kills} kills, {sum(r.again for r in readers)} ranges asked for again")

    def test_c06_get_gives_exact_files_or_none_when_the_server_is_killed_under_it(self):
        out = [self.world.root / f"out-{i}" for i in range(6)]
        gets = [self.world.begin("get", "c/run@1", "-d", folder) for folder in out]
        time.sleep(0.15)  # pause of chaos: a moment of the reads
        self.world.server.kill()
        self.world.start_server()
        ends = [(folder, get, self.world.ended(get, None)[1]) for folder, get in zip(out, gets)]
        for folder, get, said in ends:
            self.assertIn(get.returncode, (0, 5, 8), said)
            for name, content in self.sources.items():
                if get.returncode == 0:
                    self.assertEqual((folder / name).read_bytes(), content)
            if get.returncode != 0:
                self.assertRegex(said, "cairn get: .*server")


if __name__ == "__main__":
    unittest.main(verbosity=2)
