# SPDX-License-Identifier: Apache-2.0
# ctest: engines=postgresql labels=proxies,full seconds=120 thirds=2
"""Two servers behind each proxy of docs/proxies.md are restarted in turn, each once the proxy asks the other one, while
callers ask through it: with the configuration that stands there every call is answered 200, without asking again."""
import http.client
import os
import threading
import unittest
import unittest.mock
import urllib.request

import postgres
import proxies
from world import HANG_S, wait_until, World

CALLERS = 3
ROUNDS = 1
NOTICE = "5s"  # as it is by itself over PostgreSQL, where nothing sets another one


class Caller(threading.Thread):
    """One call after the other, each over a connection of its own, until it is told to stop."""

    def __init__(self, port, path):
        super().__init__(daemon=True)
        self.port, self.path = port, path
        self.ended, self.failed, self.done = threading.Event(), [], 0

    def run(self):
        while not self.ended.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
            try:
                connection.request("GET", self.path)
                reply = connection.getresponse()
                said = reply.read()
                if reply.status != 200:
                    self.failed.append((self.done, reply.status, said[:200]))
            except OSError as error:
                self.failed.append((self.done, error))
            finally:
                connection.close()
            self.done += 1


class Rolling(unittest.TestCase):
    def setUp(self):
        postgres.needed()
        self.enterContext(unittest.mock.patch.dict(os.environ, CAIRN_STOP_NOTICE=NOTICE))
        self.world = World(servers=2, catalog=postgres.shared().catalog())
        self.addCleanup(self.world.close)
        self.servers = [self.world.server, *self.world.further]
        for number, server in enumerate(self.servers):
            server.command[2] = f"127.0.0.1:{self.world.port_of(number)}"
        (self.world.root / "file").write_bytes(b"some bytes")
        self.world.cairn("put", self.world.root / "file", "llm/7b@1")

    def asked(self, number):
        """Whether a caller of the proxy has come to that server since its start."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.world.port_of(number)}/metrics", timeout=HANG_S) as reply:
            return "cairn_http_request_duration_seconds_count{route=\"checkpoint_get\"" in reply.read().decode()

    def restart_behind(self, name):
        if why := proxies.missing(name):
            self.skipTest(why)
        proxy = proxies.Proxy(name, [self.world.port_of(0), self.world.port_of(1)])
        self.addCleanup(proxy.stop)
        proxy.start()
        callers = [Caller(proxy.port, "/v1/runs/llm/7b/checkpoints/latest") for _ in range(CALLERS)]
        for one in callers:
            one.start()
        for _ in range(ROUNDS):
            for number, server in enumerate(self.servers):
                server.stop()
                server.start()
                wait_until(lambda number=number: self.asked(number))
        for one in callers:
            one.ended.set()
        for one in callers:
            one.join(HANG_S)
        self.assertEqual([one.failed for one in callers], [[]] * CALLERS, f"{sum(one.done for one in callers)} calls; {proxy.said()}")

    def test_nginx(self):
        self.restart_behind("nginx")

    def test_haproxy(self):
        self.restart_behind("haproxy")

    def test_apache(self):
        self.restart_behind("apache")

    def test_caddy(self):
        self.restart_behind("caddy")

    def test_varnish(self):
        self.restart_behind("varnish")

    def test_envoy(self):
        self.restart_behind("envoy")

    def test_traefik(self):
        self.restart_behind("traefik")


if __name__ == "__main__":
    unittest.main(verbosity=2)
