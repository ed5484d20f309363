# SPDX-License-Identifier: Apache-2.0
# ctest: with="Cut" labels=proxies engines=postgresql seconds=60
# ctest: as=balanced_plain with="Plain" labels=proxies,full engines=postgresql seconds=120 thirds=2
"""Two servers over one catalog in PostgreSQL, behind a proxy with the configuration of docs/proxies.md, are restarted in turn.
Cut: it ends each call after a second, and nothing that waits, no command and no save may fail. Plain: as the page has it, behind each
proxy, and every call is answered 200, without asking again."""
import http.client
import os
import unittest
import unittest.mock

import cases
import postgres
import proxies
from load import commands, Load
from world import HANG_S, wait_until, World

ROUNDS = 2
CALLERS = 3
NOTICE = "5s"  # as it is by itself over PostgreSQL, where nothing sets another one


class Balanced(proxies.Callers, unittest.TestCase):
    def open(self, name, changes=(), server_arguments=()):
        postgres.needed()
        if why := proxies.missing(name):
            self.skipTest(why)
        self.world = World(servers=2, catalog=postgres.shared().catalog(), server_arguments=server_arguments, case=self)
        self.servers = [self.world.server, *self.world.further]
        self.proxy = proxies.Proxy(name, [self.world.port_of(0), self.world.port_of(1)], changes)
        self.addCleanup(self.proxy.stop)
        self.proxy.start()

    def said(self, number, path):
        """What that server answers itself; None: nothing, or a refusal."""
        try:
            status, _, body = self.world.get_from(f"http://127.0.0.1:{self.world.port_of(number)}", path)
        except OSError:
            return None
        return body.decode() if status == 200 else None

    def restart_in_turn(self, may_go_on, is_back):
        """may_go_on(): before each stop; is_back(number): after each start."""
        for number, server in enumerate(self.servers):
            may_go_on()
            server.stop()
            server.start()
            wait_until(lambda number=number: is_back(number))


class Cut(Balanced):
    def put(self, name, number):
        return ("put", self.model, f"{name}@{number}", "--socket", self.world.socket(1))

    def keep(self, number):
        back = self.world.root / f"back-{number}"
        return [self.put("c/run", number), ("get", f"c/run@{number}", "-d", back), ("verify", f"c/run@{number}"),
                ("promote", f"c/run@{number}", "--to", "far"), ("demote", f"c/run@{number}", "--from", "far"), ("ls", "c/run")]

    def behind(self, name):
        far = cases.folder(self)
        self.open(name, proxies.CUTS[name], ["--stop-notice", "1s", "--stores", f"main,far={far}"])
        self.world.url, self.world.urls = self.proxy.url, [self.proxy.url]
        self.world.uploaders.append(self.world.make_uploader(1))
        self.world.uploaders[1].start()
        self.model = cases.made(self.world.root / "model")
        (self.model / "weights.bin").write_bytes(os.urandom(200_000))
        self.world.cairn(*self.put("llm/7b", 1))
        limit = f"{4 * HANG_S}s"
        waits = [self.started(self.proxy, *words, "--timeout", limit)
                 for words in (("wait", "llm/7b@2"), ("wait", "llm/7b", "--newer-than", "1"), ("watch", "llm/7b", "--until", "committed"))]
        following = self.started(self.proxy, "events", "llm/7b", "--follow", "--since", "0", "--timeout", limit)
        load = Load(commands(self.world, self.keep))
        load.start()

        def another_round():
            done = load.done
            wait_until(lambda: load.done > done)

        for _ in range(ROUNDS):
            self.restart_in_turn(another_round, lambda number: self.said(number, "/readyz"))
        self.assertEqual(load.stop(), [], self.proxy.said())
        self.assertEqual([one.poll() for one in (*waits[:2], following)], [None] * 3)
        self.world.cairn(*self.put("llm/7b", 2))
        for one in waits:
            self.ended(one)
        while "committed llm/7b@2" not in following.stdout.readline():
            self.assertIsNone(following.poll())

    def test_nginx(self):
        self.behind("nginx")

    def test_haproxy(self):
        self.behind("haproxy")


class Plain(Balanced):
    def setUp(self):
        self.enterContext(unittest.mock.patch.dict(os.environ, CAIRN_STOP_NOTICE=NOTICE))

    def call(self, _):
        """Over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=HANG_S)
        try:
            connection.request("GET", "/v1/runs/llm/7b/checkpoints/latest")
            reply = connection.getresponse()
            said = reply.read()
        finally:
            connection.close()
        self.assertEqual(reply.status, 200, said[:200])

    def behind(self, name):
        self.open(name)
        (self.world.root / "file").write_bytes(b"some bytes")
        self.world.cairn("put", self.world.root / "file", "llm/7b@1")
        callers = [Load(self.call) for _ in range(CALLERS)]
        for one in callers:
            one.start()
        # a caller of the proxy has come to that server since its start
        asked = 'cairn_http_request_duration_seconds_count{route="checkpoint_get"'
        self.restart_in_turn(lambda: None, lambda number: asked in (self.said(number, "/metrics") or ""))
        self.assertEqual([one.stop() for one in callers], [[]] * CALLERS, f"{sum(one.done for one in callers)} calls; {self.proxy.said()}")

    def test_nginx(self):
        self.behind("nginx")

    def test_haproxy(self):
        self.behind("haproxy")

    def test_apache(self):
        self.behind("apache")

    def test_caddy(self):
        self.behind("caddy")

    def test_varnish(self):
        self.behind("varnish")

    def test_envoy(self):
        self.behind("envoy")

    def test_traefik(self):
        self.behind("traefik")


if __name__ == "__main__":
    unittest.main(verbosity=2)
