# SPDX-License-Identifier: Apache-2.0
# ctest: labels=proxies engines=postgresql seconds=60
"""Two servers over one catalog in PostgreSQL, behind a load balancer of docs/proxies.md that cuts each call after a second,
are restarted in turn: nothing that waits, no command and no save of an uploader may fail."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

import postgres
import proxies
from test_proxies import TIMEOUT
from test_rolling import Commands
from world import BIN, HANG_S, wait_until, World

ROUNDS = 2


class Balanced:
    """The test; a class below for each balancer."""
    NAME = ""

    def setUp(self):
        postgres.needed()
        why = proxies.missing(self.NAME)
        if why:
            self.skipTest(why)
        far = pathlib.Path(tempfile.mkdtemp(prefix="cairn-far-"))
        self.addCleanup(shutil.rmtree, far, ignore_errors=True)
        self.world = World(servers=2, catalog=postgres.shared().catalog(),
                           server_arguments=["--stop-notice", "1s", "--stores", f"main,far={far}"])
        self.addCleanup(self.world.close)
        self.servers = [self.world.server, *self.world.further]
        for number, server in enumerate(self.servers):
            server.command[2] = f"127.0.0.1:{self.world.port_of(number)}"
        self.proxy = proxies.Proxy(self.NAME, [self.world.port_of(number) for number in range(2)], [TIMEOUT[self.NAME]])
        self.addCleanup(self.proxy.stop)
        self.proxy.start()
        self.world.url, self.world.urls = self.proxy.url, [self.proxy.url]
        self.world.uploaders.append(self.world.make_uploader(1))
        self.world.uploaders[1].start()
        self.model = self.world.root / "model"
        self.model.mkdir()
        (self.model / "weights.bin").write_bytes(os.urandom(200_000))

    def started(self, *words):
        one = subprocess.Popen([str(BIN / "cairn"), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "CAIRN_URL": self.proxy.url, "CAIRN_PROGRESS": "none"})
        self.addCleanup(self.drop, one)
        return one

    @staticmethod
    def drop(process):
        process.kill()
        process.communicate()

    def is_ready(self, number):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.world.port_of(number)}/readyz", timeout=HANG_S) as reply:
                return reply.status == 200
        except OSError:
            return False

    def put(self, name, number=None):
        return ("put", self.model, name if number is None else f"{name}@{number}", "--socket", self.world.socket(1))

    def keep(self, number):
        back = self.world.root / f"back-{number}"
        return [self.put("c/run", number), ("get", f"c/run@{number}", "-d", back), ("verify", f"c/run@{number}"),
                ("promote", f"c/run@{number}", "--to", "far"), ("demote", f"c/run@{number}", "--from", "far"), ("ls", "c/run")]

    def test_a_rolling_restart_and_cut_calls_end_nothing_that_waits(self):
        self.world.cairn(*self.put("llm/7b", 1))
        limit = f"{4 * HANG_S}s"
        waits = [self.started("wait", "llm/7b@2", "--timeout", limit),
                 self.started("wait", "llm/7b", "--newer-than", "1", "--timeout", limit),
                 self.started("watch", "llm/7b", "--until", "committed", "--timeout", limit)]
        following = self.started("events", "llm/7b", "--follow", "--since", "0", "--timeout", limit)
        load = Commands(self.world, self.keep)
        load.start()
        for _ in range(ROUNDS):
            for number, server in enumerate(self.servers):
                done = load.done
                wait_until(lambda done=done: load.done > done)
                server.stop()
                server.start()
                wait_until(lambda number=number: self.is_ready(number))
        self.assertEqual(load.stop(), [], self.proxy.said())
        self.assertEqual([one.poll() for one in (*waits[:2], following)], [None] * 3)
        self.world.cairn(*self.put("llm/7b", 2))
        for one in waits:
            out, said = one.communicate(timeout=HANG_S)
            self.assertEqual(one.returncode, 0, f"{one.args}: {out}\n{said}")
        while "committed llm/7b@2" not in following.stdout.readline():
            self.assertIsNone(following.poll())


class Nginx(Balanced, unittest.TestCase):
    NAME = "nginx"


class Haproxy(Balanced, unittest.TestCase):
    NAME = "haproxy"


if __name__ == "__main__":
    unittest.main(verbosity=2)
