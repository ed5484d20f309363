# SPDX-License-Identifier: Apache-2.0
# ctest: labels=proxies seconds=160 thirds=2
"""Behind each proxy of docs/proxies.md, with the configuration that stands there: commands and saves, names with slashes, refusals
of bodies, waits that the proxy cuts, and what is not an answer of Cairn."""
import http.client
import json
import os
import pathlib
import subprocess
import unittest

import cases
import ports
import proxies
from world import BIN, HANG_S, wait_until, World

NAMES = ("tokenizer/vocab.txt", "deep/er/x.bin", "with space.bin", "ä.bin")
LARGE_BYTES = 2_000_000
TENSORS = 60_000
SMALL_FILES = 8_500  # with names of 111 bytes: a seal of more than 1 MiB
TRIES = 20


class Behind(proxies.Callers):
    """The tests; a class below for each proxy."""
    NAME = ""

    def setUp(self):
        why = proxies.missing(self.NAME)
        if why:
            self.skipTest(why)
        self.world = World(case=self)

    def put_through(self, proxy, what):
        """By an uploader of the command's own, whose calls all go through the proxy."""
        self.cairn(proxy, "put", self.tree(), what, "--store", self.world.store, env={"CAIRN_SOCKET": str(self.world.root / "none.sock")})

    def proxy(self, changes=(), more="", port=None):
        one = proxies.Proxy(self.NAME, [self.world.port_of(0)], changes, more, port)
        self.addCleanup(one.stop)
        return one.start()

    def cairn(self, proxy, *words, status=0, env=None):
        done = self.world.cairn(*words, env={"CAIRN_URL": proxy.url, **(env or {})}, status=None)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}\n{done.stderr}\n{proxy.said()}")
        return done

    def send(self, proxy, method, path, body=b"", headers=None):
        """As curl and most libraries do: all of the body, then the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=HANG_S)
        try:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.headers.items()}, reply.read()
        finally:
            connection.close()

    def tree(self):
        folder = self.world.root / "model"
        for name in NAMES:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(name.encode() * 1000)
        return folder

    def test_a_tree_is_saved_listed_verified_and_restored(self):
        proxy = self.proxy()
        self.put_through(proxy, "llm/7b@1")
        self.assertIn("llm/7b", self.cairn(proxy, "ls").stdout)
        self.cairn(proxy, "show", "llm/7b@1")
        self.cairn(proxy, "verify", "llm/7b@1")
        self.cairn(proxy, "wait", "llm/7b@1", "--timeout", "60s")
        back = self.world.root / "back"
        self.cairn(proxy, "get", "llm/7b@1", "-d", back)
        for name in NAMES:
            self.assertEqual((back / name).read_bytes(), name.encode() * 1000)

    def test_a_plans_paths_are_served_as_they_are(self):
        proxy = self.proxy()
        self.put_through(proxy, "llm/7b@1")
        status, _, said = self.send(proxy, "POST", "/v1/runs/llm/7b/checkpoints/1/restore-plans", json.dumps({"shards": list(NAMES)}).encode(),
                                    {"Content-Type": "application/json"})
        self.assertEqual(status, 201, said)
        for item in json.loads(said)["objects"]:
            status, _, _ = self.send(proxy, "GET", item["path"])
            self.assertEqual(status, 200, item["path"])

    def test_a_refusal_before_the_body_is_read_arrives(self):
        proxy = self.proxy()
        cases = [(415, "PUT", "/v1/runs/a/b", {"Content-Type": "text/plain"}),
                 (413, "PUT", "/v1/runs/a/b", {"Content-Type": "application/json"}),
                 (404, "POST", "/v1/nothing", {"Content-Type": "application/json"}),
                 (405, "POST", "/livez", {"Content-Type": "application/json"})]
        for number in range(TRIES):
            want, method, path, headers = cases[number % len(cases)]
            status, said, body = self.send(proxy, method, path, bytes(LARGE_BYTES), headers)
            self.assertEqual((status, said.get("content-type")), (want, "application/problem+json"), body[:300])

    def test_waits_go_on_where_the_proxy_cuts_them(self):
        proxy = self.proxy(proxies.CUTS[self.NAME])
        self.world.cairn("put", self.tree(), "llm/7b@1")
        waiting = self.started(proxy, "wait", "llm/7b@2", "--timeout", f"{2 * HANG_S}s")
        newer = self.started(proxy, "wait", "llm/7b", "--newer-than", "1", "--timeout", f"{2 * HANG_S}s")
        following = self.started(proxy, "events", "llm/7b", "--follow", "--since", "0", "--timeout", f"{2 * HANG_S}s")
        for one in (waiting, newer):  # stderr: the note that a call was cut
            self.assertIn("waiting for it", one.stderr.readline())
        self.world.cairn("put", self.tree(), "llm/7b@2")
        for one in (waiting, newer):
            self.ended(one)
        while "committed llm/7b@2" not in following.stdout.readline():
            self.assertIsNone(following.poll())

    def test_a_restart_of_the_server_ends_no_wait(self):
        proxy = self.proxy()
        self.world.cairn("put", self.tree(), "llm/7b@1")
        waiting = [self.started(proxy, "wait", "llm/7b@2", "--timeout", f"{2 * HANG_S}s"),
                   self.started(proxy, "watch", "llm/7b", "--until", "committed", "--timeout", f"{2 * HANG_S}s"),
                   self.started(proxy, "events", "llm/7b", "--follow", "--since", "0", "--timeout", f"{2 * HANG_S}s")]
        wait_until(lambda: self.asked(proxy) >= 3)
        self.world.server.stop()
        self.world.start_server()
        wait_until(lambda: self.send(proxy, "GET", "/livez")[0] == 200)
        self.world.cairn("put", self.tree(), "llm/7b@2")
        for one in waiting[:2]:
            self.ended(one)
        while "committed llm/7b@2" not in waiting[2].stdout.readline():
            self.assertIsNone(waiting[2].poll())

    def asked(self, proxy):
        """How many connections callers have to the proxy now."""
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[2].endswith(f":{proxy.port:04X}") and row[3] == "01" for row in rows)

    def test_no_server_behind_it_is_status_5_and_names_the_url(self):
        proxy = self.proxy()
        self.world.server.stop()
        done = self.cairn(proxy, "show", "llm/7b@1", status=5)
        self.assertIn(proxy.url, done.stderr)


class Compressing:
    """Those that compress, and spell the tag of what they have compressed in another way."""
    MORE = ""

    def test_a_tag_that_compression_has_changed_is_known_again(self):
        proxy = self.proxy(more=self.MORE)
        self.world.cairn("put", self.tree(), "llm/7b@1")
        path = "/v1/runs/llm/7b/checkpoints/1"
        status, said, _ = self.send(proxy, "GET", path, headers={"Accept-Encoding": "gzip"})
        self.assertEqual((status, said.get("content-encoding")), (200, "gzip"), said)
        tag = said["etag"]
        self.assertNotEqual(tag, self.world.get(path)[1]["ETag"])
        status, _, _ = self.send(proxy, "GET", path, headers={"Accept-Encoding": "gzip", "If-None-Match": tag})
        self.assertEqual(status, 304)
        status, _, body = self.send(proxy, "PATCH", path, b'{"note":"kept"}',
                                    {"If-Match": tag, "Content-Type": "application/merge-patch+json"})
        self.assertEqual(status, 200, body)
        status, _, body = self.send(proxy, "PATCH", path, b'{"note":"lost"}',
                                    {"If-Match": tag, "Content-Type": "application/merge-patch+json"})
        self.assertEqual(status, 412, body)


class Nginx(Compressing, Behind, unittest.TestCase):
    NAME = "nginx"
    MORE = "gzip on; gzip_types application/json; gzip_proxied any; gzip_min_length 1;"

    def test_a_limit_on_bodies_is_named_with_path_and_size_and_ends_no_save(self):
        proxy = self.proxy([("client_max_body_size 64m", "client_max_body_size 4k")])
        url, self.world.url = self.world.url, proxy.url
        self.world.uploaders.append(self.world.make_uploader(1))
        self.world.uploaders[1].start()
        self.world.url = url
        folder = cases.made(self.world.root / "many")
        for number in range(200):
            (folder / f"file-{number:04}").write_bytes(os.urandom(100))
        put = subprocess.Popen([str(BIN / "cairn"), "put", str(folder), "llm/7b@1"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "CAIRN_URL": url, "CAIRN_SOCKET": self.world.socket(1)})
        self.addCleanup(self.drop, put)
        for words, said in ((("uploader", "status"), "POST answered 413 to a body of "),
                            (("nodes", "--json"), "POST answered 413 to a body of "),
                            (("show", "llm/7b@1", "--why"), "its limit has to be larger")):
            wait_until(lambda words=words, said=said: said in self.world.cairn(*words, node=1, status=None).stdout)
        wait_until(lambda: "save.server_fails" in self.world.uploaders[1].log.read_text())
        while "its limit has to be larger" not in (line := put.stderr.readline()):
            self.assertTrue(line and put.poll() is None)
        proxy.stop()
        self.proxy(port=proxy.port)
        self.ended(put)

    def test_below_a_path_commands_saves_and_plans_work_whether_the_proxy_takes_it_off_or_not(self):
        for number, more in enumerate(("", "rewrite ^/cairn/(.*)$ /$1 break; ")):
            port = ports.free()
            world = World(nodes=0, server_arguments=["--public-url", f"http://127.0.0.1:{port}/cairn"], case=self)
            proxy = proxies.Proxy(self.NAME, [world.port_of(0)], [("proxy_pass http", f"{more}proxy_pass http")], "", port)
            self.addCleanup(proxy.stop)
            proxy.start()
            below = {"CAIRN_URL": f"{proxy.url}/cairn", "CAIRN_SOCKET": str(world.root / "none.sock")}
            back = world.root / "back"
            for words in (("put", self.tree(), "llm/7b@1", "--store", world.store), ("ls", "llm/7b"), ("verify", "llm/7b@1"),
                          ("wait", "llm/7b@1"), ("get", "llm/7b@1", "-d", back)):
                world.cairn(*words, env=below)
            self.assertEqual((back / NAMES[0]).read_bytes(), NAMES[0].encode() * 1000)
            status, _, said = self.send(proxy, "POST", "/cairn/v1/runs/llm/7b/checkpoints/1/restore-plans", b"{}",
                                        {"Content-Type": "application/json"})
            self.assertEqual(status, 201, (number, said))
            for item in json.loads(said)["objects"]:
                self.assertTrue(item["path"].startswith("/cairn/v1/"), item["path"])
                self.assertEqual(self.send(proxy, "GET", item["path"])[0], 200)

    def test_a_save_of_many_tensors_and_files_passes_the_default_limit_on_bodies(self):
        """60,000 tensors are a table of 8 MB; what the uploader sends stays below nginx's 1 MiB."""
        proxy = self.proxy([("client_max_body_size 64m", "client_max_body_size 1m")])
        folder = cases.made(self.world.root / "many")
        header = {f"model.layers.{number // 100}.block.{number % 100}.attention.projection.weight":
                  {"dtype": "F32", "shape": [1], "data_offsets": [4 * number, 4 * number + 4]} for number in range(TENSORS)}
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4 * TENSORS))
        for number in range(SMALL_FILES):
            (folder / f"{'a-long-name-as-data-sets-have-them' * 3}-{number:04}.bin").write_bytes(b"x")
        self.cairn(proxy, "put", folder, "llm/7b@1", "--store", self.world.store,
                   env={"CAIRN_SOCKET": str(self.world.root / "none.sock")})
        shown = json.loads(self.world.cairn("show", "llm/7b@1", "-o", "json").stdout)
        self.assertEqual(shown["state"], "committed")


class Haproxy(Behind, unittest.TestCase):
    NAME = "haproxy"

    def test_a_caller_is_named_by_the_proxy_protocol_of_either_version(self):
        for number, word in enumerate(("send-proxy", "send-proxy-v2")):
            world = World(nodes=0, server_arguments=["--trusted-proxies", "127.0.0.2,127.0.0.3", "--trusted-header", "PROXY"], case=self)
            proxy = proxies.Proxy(self.NAME, [world.port_of(0)], [("10.0.0.1:7420", f"10.0.0.1:7420 {word} check-send-proxy"),
                                                                 ("10.0.0.2:7420", f"10.0.0.2:7420 {word} check-send-proxy"),
                                                                 ("mode http", f"mode http\n    source 127.0.0.{number + 2}")])
            self.addCleanup(proxy.stop)
            proxy.start()
            status, _, said = self.send(proxy, "PUT", f"/v1/runs/a/run-{number}", b"{}", {"Content-Type": "application/json",
                                                                                          "X-Forwarded-For": "203.0.113.9"})
            self.assertEqual(status, 201, said)
            event = world.read("/v1/events?limit=1")["items"][0]
            self.assertEqual(event["address"], "127.0.0.1")


class Apache(Compressing, Behind, unittest.TestCase):
    NAME = "apache"
    MORE = "SetOutputFilter DEFLATE"


class Caddy(Behind, unittest.TestCase):
    NAME = "caddy"


class Varnish(Behind, unittest.TestCase):
    NAME = "varnish"


class Envoy(Behind, unittest.TestCase):
    NAME = "envoy"


class Traefik(Behind, unittest.TestCase):
    NAME = "traefik"


if __name__ == "__main__":
    unittest.main(verbosity=2)
