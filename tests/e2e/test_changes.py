# SPDX-License-Identifier: Apache-2.0
"""What was read is told again only when it changes: ETag, If-None-Match, and waiting for the change,
also at another server than the one that makes it."""
import json
import threading
import time
import unittest

import postgres
from world import World

RUN = "llm/7b"
PATHS = ("checkpoints/latest", "checkpoints/1", "checkpoints", "checkpoints/1/lineage", "aliases", "aliases/good",
         "retention")


class Changes(unittest.TestCase):
    def setUp(self):
        self.world = World(servers=2 if postgres.catalog() else 1)
        self.addCleanup(self.world.close)
        file = self.world.root / "file"
        file.write_bytes(b"x" * 1000)
        self.file = file
        self.put(1)
        self.world.cairn("alias", "set", f"{RUN}@1", "good")

    def put(self, step):
        self.world.cairn("put", self.file, f"{RUN}@{step}")

    def read(self, path, tag=None, url=None, **headers):
        if tag:
            headers["If-None-Match"] = tag
        status, told, body = self.world.get_from(url or self.world.url, f"/v1/runs/{RUN}/{path}", headers=headers)
        return status, told.get("ETag"), body

    def waits(self, path, change, url=None, **headers):
        """What a waiter is answered, and how long after the change."""
        _, tag, _ = self.read(path, url=url)
        told = {}

        def wait():
            told["answer"] = self.read(path + ("?wait=30s" if not headers else ""), tag, url, **headers)
            told["at"] = time.monotonic()

        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(0.7)
        self.assertEqual(told, {}, f"{path}: answered before anything changed")
        begun = time.monotonic()
        change()
        waiter.join(30)
        self.assertNotEqual(told["answer"][1], tag)
        self.assertEqual(told["answer"][0], 200)
        return told["at"] - begun, told["answer"][2]

    def test_what_has_not_changed_is_not_told_again(self):
        for path in PATHS:
            status, tag, body = self.read(path)
            self.assertEqual(status, 200, path)
            self.assertTrue(body, path)
            for asked in (tag, f'"other", {tag}', "*"):
                self.assertEqual(self.read(path, asked), (304, tag, b""), (path, asked))
            self.assertEqual(self.read(path, '"other"'), (200, tag, body), path)

    def test_a_wait_that_sees_no_change_ends_with_304_at_its_time(self):
        for path in PATHS:
            _, tag, _ = self.read(path)
            begun = time.monotonic()
            self.assertEqual(self.read(path + "?wait=400ms", tag), (304, tag, b""), path)
            self.assertGreater(time.monotonic() - begun, 0.39, path)

    def test_who_waits_is_told_of_the_change_when_it_happens(self):
        world = self.world
        for path, change in (
                ("checkpoints/latest", lambda: self.put(2)),
                ("checkpoints", lambda: self.put(3)),
                ("checkpoints/1", lambda: world.cairn("label", f"{RUN}@1", "tier=hot")),
                ("aliases", lambda: world.cairn("alias", "set", f"{RUN}@2", "other")),
                ("aliases/good", lambda: world.cairn("alias", "set", f"{RUN}@3", "good")),
                ("retention", lambda: world.cairn("policy", "set", RUN, "--keep-last", "9"))):
            late, body = self.waits(path, change)
            self.assertLess(late, 5, path)
            self.assertTrue(json.loads(body), path)

    def test_who_waits_at_another_server_is_told_too(self):
        if not postgres.catalog():
            self.skipTest("a catalog of SQLite has one server")
        late, _ = self.waits("aliases/good", lambda: (self.put(2), self.world.cairn("alias", "set", f"{RUN}@2", "good")),
                             url=self.world.urls[1])
        self.assertLess(late, 5)

    def test_a_wait_is_also_said_as_a_preference(self):
        """RFC 7240; what cannot be read is no preference."""
        late, _ = self.waits("checkpoints/latest", lambda: self.put(2), Prefer="respond-async, wait=30")
        self.assertLess(late, 5)
        _, tag, _ = self.read("aliases")
        for prefer in ("wait=soon", "wait", ";;", "wait=0", "wait=99999999999999999999"):
            begun = time.monotonic()
            self.assertEqual(self.read("aliases", tag, Prefer=prefer)[0], 304, prefer)
            self.assertLess(time.monotonic() - begun, 5, prefer)

    def test_a_wait_for_nothing_is_refused_with_what_is_missing(self):
        for path in ("aliases", "checkpoints", "retention"):
            status, _, body = self.read(path + "?wait=1s")
            self.assertEqual(status, 400, path)
            self.assertIn("If-None-Match", json.loads(body)["detail"])
        self.assertIn("wait", json.loads(self.read("aliases?wait=soon", '"x"')[2])["detail"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
