# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=55 engines=again
"""What was read is told again only when it changes: ETag, If-None-Match, and waiting for the change,
also at another server than the one that makes it."""
import json
import os
import threading
import time
import unittest
import urllib.parse

import cases
import postgres
from signs import asleep, is_read
from world import HANG_S, World, wait_until

WAIT_S = 60  # CAIRN_WAIT_MS_MAX of api/wire/routes.h

RUN = "llm/7b"
PATHS = ("checkpoints/latest", "checkpoints/1", "checkpoints", "checkpoints/1/lineage", "aliases", "aliases/good",
         "retention")
# What is looked at each second: its changes have no event, or not all of them.
LOOKED_AT = ("/v1/runs", f"/v1/runs/{RUN}", "liveness", "probes", "checkpoints/1/why", "checkpoints/1/leases",
             "checkpoints/1/shards", "/v1/quotas", "/v1/operations", "/v1/nodes", "/v1/uploads", "/v1/orphans", "/v1/gc",
             "/v1/not-freed", "/v1/webhooks", "/v1/tokens")


class Changes(unittest.TestCase):
    def setUp(self):
        self.world = World(servers=2 if postgres.catalog() else 1, case=self)
        file = cases.file(self.world.root / "file", b"x" * 1000)
        self.file = file
        self.put(1)
        self.world.cairn("alias", "set", f"{RUN}@1", "good")

    def put(self, step):
        self.world.cairn("put", self.file, f"{RUN}@{step}")

    def read(self, path, tag=None, url=None, **headers):
        if tag:
            headers["If-None-Match"] = tag
        status, told, body = self.world.get_from(url or self.world.url, path if path.startswith("/") else f"/v1/runs/{RUN}/{path}", headers=headers)
        return status, told.get("ETag"), body

    def begin(self, step):
        """A save that is opened and goes no further: its attempt, and its id."""
        run = f"/v1/runs/{RUN}"
        newest = json.loads(self.read(run)[2])["attempt"]
        attempt = self.world.send("POST", f"{run}/attempts", {
            "job": f"hand-{step}", "world_size": 1, "resume": "latest", "after": newest,
            "ranks": [{"rank": 0, "proc": f"p-{step}"}], "node": "by-hand"})
        begun = self.world.send("POST", f"{run}/checkpoints", {
            "grant": attempt["grant"], "node": "by-hand", "step": step, "n": 1, "rank": 0, "world_size": 1})
        return attempt, begun["version"]

    def waits(self, path, change, url=None, **headers):
        """What a waiter is answered, before the end of its time."""
        _, tag, _ = self.read(path, url=url)
        told = {}

        def wait():
            begun = time.monotonic()
            told["answer"] = self.read(path + (f"?wait={WAIT_S}s" if not headers else ""), tag, url, **headers)
            told["took"] = time.monotonic() - begun

        waiter = threading.Thread(target=wait)
        waiter.start()
        port = urllib.parse.urlsplit(url or self.world.url).port
        wait_until(lambda: waiter.native_id and asleep(os.getpid(), waiter.native_id) and is_read(port))
        self.assertEqual(told, {}, f"{path}: answered before anything changed")
        change()
        waiter.join(HANG_S)
        self.assertNotEqual(told["answer"][1], tag)
        self.assertEqual(told["answer"][0], 200)
        self.assertLess(told["took"], WAIT_S, path)
        return told["answer"][2]

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
            self.assertTrue(json.loads(self.waits(path, change)), path)

    def test_what_has_no_event_is_told_within_a_second(self):
        run = f"/v1/runs/{RUN}"
        attempt, opened = self.begin(50)
        place = f"checkpoints/{opened}"

        def leave():  # its trainers end, so that others may write
            self.world.send("PUT", "/v1/nodes/by-hand",
                      {"uploader": {"version": "1"}, "attempts": [], "versions": [], "leaving": True})
        for path, change in (
                ("/v1/nodes", lambda: self.world.send("PUT", "/v1/nodes/by-hand", {
                    "uploader": {"version": "1"}, "attempts": [{"grant": attempt["grant"], "unsent": 0}],
                    "versions": []})),
                (f"{place}/why", lambda: self.world.send("PUT", "/v1/nodes/by-hand", {
                    "uploader": {"version": "1"}, "attempts": [{"grant": attempt["grant"], "unsent": 1}], "versions": [
                        {"version": opened, "project": RUN.split("/")[0], "run": RUN.split("/")[1], "done_bytes": 7, "total_bytes": 9, "shards_done": 0,
                         "shards_total": 1, "parts_done": 0, "parts_total": 1}]})),
                ("liveness", lambda: self.world.send("POST", f"{run}/{place}/abort", {})),
                (run, lambda: (leave(), self.put(60))),
                ("/v1/runs", lambda: self.put(61)),
                ("checkpoints/1/leases", lambda: self.world.send("POST", f"{run}/checkpoints/1/leases", {"job": "eval"})),
                ("/v1/quotas", lambda: self.put(62)),
                ("/v1/gc", lambda: self.world.send("POST", "/v1/gc")),
                ("/v1/tokens", lambda: self.world.send("POST", "/v1/tokens", {"scopes": ["read"], "name": "ci"}))):
            self.assertTrue(json.loads(self.waits(path, change)), path)

    def test_ages_are_no_change_and_a_wait_without_one_ends_with_304_at_its_time(self):
        self.world.send("POST", f"/v1/runs/{RUN}/checkpoints/1/leases", {"job": "eval"})
        self.begin(50)  # idle_s is null while a save is open
        self.world.uploaders[0].stop()  # heard_at, silent_ms, nodes_silent_ms
        self.world.server.stop()  # what it was told of it is in memory
        self.world.start_server()
        for path in LOOKED_AT:
            status, tag, body = self.read(path)
            self.assertEqual((status, bool(tag), bool(body)), (200, True, True), path)
            begun = time.monotonic()
            self.assertEqual(self.read(path + "?wait=1300ms", tag), (304, tag, b""), (path, body))
            self.assertGreater(time.monotonic() - begun, 1.29, path)
            self.assertEqual(self.read(path, tag)[0], 304, path)
            self.assertEqual(self.read(path + "?wait=1s")[0], 400, path)

    def test_a_runs_tag_names_all_of_it_and_still_lets_its_labels_be_changed_after_a_commit(self):
        run = f"/v1/runs/{RUN}"
        _, tag, _ = self.read(run)
        self.put(2)
        self.assertNotEqual(self.read(run)[1], tag)
        self.world.send("PATCH", run, {"note": "one"}, headers={"If-Match": tag})
        # the note is another by now
        self.assertEqual(self.world.call("PATCH", run, {"note": "two"}, {"If-Match": tag})[0], 412)
        self.world.send("PATCH", run, {"note": "two"}, headers={"If-Match": f'"0", {self.read(run)[1]}'})

    def test_who_waits_for_what_belongs_to_a_project_or_to_all_is_told_too(self):
        world = self.world
        for path, change in (
                ("/v1/projects/llm/retention", lambda: world.cairn("policy", "set", "llm", "--keep-last", "9")),
                ("/v1/retention", lambda: world.cairn("policy", "set", "--keep-last", "8")),
                ("/v1/quota", lambda: world.cairn("quota", "set", "--versions", "900")),
                ("/v1/projects/llm/quota", lambda: world.cairn("quota", "set", "llm", "--versions", "90")),
                ("/v1/projects/llm/quota", lambda: self.put(7))):  # what it takes up
            self.assertTrue(json.loads(self.waits(path, change)), path)

    def test_who_waits_at_another_server_is_told_too(self):
        if not postgres.catalog():
            self.skipTest("a catalog of SQLite has one server")
        self.waits("aliases/good", lambda: (self.put(2), self.world.cairn("alias", "set", f"{RUN}@2", "good")),
                   url=self.world.urls[1])

    def test_a_wait_is_also_said_as_a_preference(self):
        """RFC 7240; what cannot be read is no preference."""
        self.waits("checkpoints/latest", lambda: self.put(2), Prefer=f"respond-async, wait={WAIT_S}")
        _, tag, _ = self.read("aliases")
        for prefer in ("wait=soon", "wait", ";;", "wait=0", "wait=99999999999999999999"):
            begun = time.monotonic()
            self.assertEqual(self.read("aliases", tag, Prefer=prefer)[0], 304, prefer)
            self.assertLess(time.monotonic() - begun, WAIT_S, prefer)

    def test_a_wait_for_nothing_is_refused_with_what_is_missing(self):
        for path in ("aliases", "checkpoints", "retention"):
            status, _, body = self.read(path + "?wait=1s")
            self.assertEqual(status, 400, path)
            self.assertIn("If-None-Match", json.loads(body)["detail"])
        self.assertIn("wait", json.loads(self.read("aliases?wait=soon", '"x"')[2])["detail"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
