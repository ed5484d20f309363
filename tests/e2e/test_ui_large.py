# SPDX-License-Identifier: Apache-2.0
# ctest: labels=ui seconds=100 thirds=3
"""The page of the server with very much and for very long: runs of none to a hundred thousand checkpoints, one of thousands of
ranks, and an hour of events."""
import contextlib
import http.client
import json
import unittest
import urllib.request
import uuid

import browser
from outcome import leave
from ui_page import fill, Page, RUN
from world import HANG_S, World

COUNTS = {"none": 0, "one": 1, "few": 300, "ten": 10_000, "hundred": 100_000}
RANKS, SHARDS_OF_RANK = 2816, 4


class Large(Page):
    @classmethod
    def setUpClass(cls):
        cls.world = World(nodes=0, case=cls)
        cls.world.server.stop()
        catalog = cls.world.root / "server" / "catalog.db"
        for name, count in COUNTS.items():
            fill(catalog, name, count)
        cls.world.start_server()

    def setUp(self):
        self.browser = browser.anew()

    def test_a_hundred_thousand_checkpoints_are_drawn_at_once_and_then_whole(self):
        for name in ("ten", "hundred"):
            self.browser.open("about:blank")  # so that the clock of the page begins with it
            self.go(f"#/run/big/{name}", "The newest 50")
            first = self.browser.run("return performance.getEntriesByName('cairn-drawn')[0]?.startTime")
            print(f"    {COUNTS[name]} checkpoints: drawn after {first:.0f} ms")
            self.browser.has(f"{COUNTS[name]:,} checkpoints are in the line.")
            print(f"    all of them after {self.browser.run('return performance.now()'):.0f} ms")
        self.expect_quiet()

    def test_each_view_of_runs_shows_none_one_many_and_very_many(self):
        self.go()
        for name in COUNTS:
            self.browser.has(f"big/{name}")
        self.keep_picture("large-runs")
        for name, count in COUNTS.items():
            self.go(f"#/run/big/{name}")
            self.browser.has("No checkpoint yet" if not count else f"The newest {min(count, 50)}")
            self.keep_picture(f"large-run-{name}")
            self.go(f"#/retention/big/{name}")
            self.browser.has("The run has no checkpoint" if not count else f"{count:,}, ")
            self.keep_picture(f"large-retention-{name}")
            self.go(f"#/checkpoint/big/{name}/latest")
            self.browser.has("What happened" if count else "has no checkpoint")
            self.browser.find("h1", f"step {10 * (count - 1)}" if count else "not-found")
            if count:  # these have rows in the catalog and nothing in the store
                self.browser.has("manifest.json: it is missing")
            self.go(f"#/compare/big/{name}/latest/0")
            self.browser.has(f"step {10 * (count - 1)} and step 0" if count else "has no checkpoint")
        self.go("#/restores", "Nobody holds a lease")

    def post(self, path, body):
        request = urllib.request.Request(f"{self.world.url}/v1/runs/big/wide/{path}", method="POST", data=json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return json.load(answer)

    def begin(self, grant, step):
        """A save that all ranks but the last have sealed, as their uploader says it."""
        save = self.post("checkpoints", {"grant": grant, "node": "n1", "step": step, "n": 1, "rank": 0, "world_size": RANKS, "on_exists": "error",
                                         "skip": False, "format": "", "labels": {}, "meta": {}})
        self.post(f"checkpoints/{save['version']}/shards", {"grant": grant, "node": "n1", "shards": [], "seals": [
            {"rank": rank, "table": None, "bytes": SHARDS_OF_RANK * step, "replicated": [], "shards": [
                {"name": f"rank-{rank:05d}/part-{part}.bin", "bytes": step} for part in range(SHARDS_OF_RANK)]} for rank in range(RANKS - 1)]})

    def test_a_checkpoint_of_thousands_of_ranks_is_one_map(self):
        grant = self.post("attempts", {"job": "wide", "world_size": RANKS, "resume": "latest", "after": 0, "wait_staged_ms": 0, "node": "n1",
                                       "ranks": [{"rank": rank, "proc": str(uuid.UUID(int=rank + 1))} for rank in range(RANKS)]})["grant"]
        self.begin(grant, 100)
        self.begin(grant, 200)
        shards = f"{(RANKS - 1) * SHARDS_OF_RANK:,}"
        self.go("#/checkpoint/big/wide/200")
        self.browser.has(f"{shards} shards of {RANKS - 1:,} ranks of {RANKS:,}")
        self.browser.has(f"Not sealed: rank {RANKS - 1}")
        wide, high = self.browser.until("const c = document.querySelector('canvas.shards'); return c.width > 300 && [c.clientWidth, c.clientHeight]")
        self.assertEqual((wide <= 1280, high <= 4096), (True, True), (wide, high))  # no strip that is longer than a canvas may be
        at = self.browser.run("const map = document.querySelector('canvas.shards'); map.scrollIntoView(); const box = map.getBoundingClientRect();"
                              "return {x: box.left + 60, y: box.top + 2}")
        self.browser.devtools("Input.dispatchMouseEvent", type="mouseMoved", **at)
        self.browser.has("rank 0: rank-00000/part-0.bin")
        self.keep_picture("large-checkpoint-wide")
        self.go("#/compare/big/wide/100/200", f"0 alike, {shards} not")
        self.go("#/compare/big/wide/200/200", f"{shards} alike, 0 not")


class Long(Page):
    """An hour of events, 250 times as fast: the page's own pauses are shortened, and the events are real changes. In an hour
    a page looks 720 times, once each five seconds; here as often in all, by the three views that live."""
    LOOKS, WARM, CHANGES = 240, 240, 40
    # Of a chart that leaks 20 KiB stay, so of so many looks 4.7 MiB. What the driver itself keeps of each question, 200
    # bytes, is within, and what the engine learns of scripts that run for the first hundreds of times.
    HEAP_BYTES, NODES, LISTENERS = 256 << 10, 20_000, 2_000

    def heap(self):
        for _ in range(3):
            self.browser.devtools("HeapProfiler.collectGarbage")
        counted = self.browser.devtools("Memory.getDOMCounters")
        return self.browser.devtools("Runtime.getHeapUsage")["usedSize"], counted

    def looks(self, count):
        """Changes labels until the page has looked so many times more; seldom asked, since the driver keeps each question."""
        end, number = self.browser.run("return window.looks") + count, 0
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.world.port, timeout=HANG_S)) as calls:
            while self.browser.run("return window.looks") < end:
                for number in range(number + 1, number + 1 + self.CHANGES):
                    calls.request("PATCH", f"/v1/runs/{RUN}/checkpoints/{self.version}", json.dumps({"labels": {"turn": str(number)}}),
                                  {"Content-Type": "application/json", "If-Match": "*"})
                    self.assertEqual(calls.getresponse().read()[:1], b"{")

    def test_an_hour_of_events_leaves_the_heap_as_it_was(self):
        for step in range(100, 600, 100):
            self.put(step)
        self.version = self.world.version(RUN)["version"]
        for view, asked in (("#/", "v1/runs?"), (f"#/run/{RUN}", "liveness"), (f"#/checkpoint/{RUN}/{self.version}", "/why")):
            self.browser.open("about:blank")  # what was shortened goes with its window
            self.go(view)
            self.settled()
            self.browser.run("""
              const later = window.setTimeout.bind(window), get = window.fetch.bind(window), asked = arguments[0];
              window.looks = 0;
              window.setTimeout = (f, ms, ...more) => later(f, ms / 250, ...more);
              window.fetch = (url, ...more) => { if (String(url).includes(asked)) window.looks++; return get(url, ...more); };
              return 1""", asked)
            self.looks(self.WARM)
            before, _ = self.heap()
            self.looks(self.LOOKS)
            after, counted = self.heap()
            print(f"    {view}: {before >> 10} KiB, after {self.LOOKS} looks {after >> 10} KiB, {counted}")
            self.assertLess(after - before, self.HEAP_BYTES, view)
            self.assertLessEqual(counted["nodes"], self.NODES, view)
            self.assertLessEqual(counted["jsEventListeners"], self.LISTENERS, view)
        self.expect_quiet()


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
