# SPDX-License-Identifier: Apache-2.0
"""A server's memory after large answers: what the work took is given back to the system, whatever number of
threads did it, and a plan over a hundred thousand versions is not there once for each of those who ask."""
import concurrent.futures
import json
import pathlib
import re
import sys
import threading
import unittest
import urllib.request

from world import HANG_S, wait_until, World

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from bench.figures_lists import fill, RARE  # noqa: E402

RUNS = 900
LABELS = {f"label-{i:02}": "v" * 60 for i in range(32)}
MIB = 1 << 20
CALLERS = 32
KEPT = 48 * MIB  # beyond what it had before: what threads keep for themselves
VERSIONS = 100000
POLICY = {"keep": {"last": 100, "first": 10, "every_steps": 10, "hourly": 24, "daily": 30, "weekly": 8, "monthly": 12}}
IN_TRASH = VERSIONS // RARE
PLANNERS = 12
PLANNING = 320 * MIB  # a plan, its text and what one thread keeps; and as many texts as wait to be taken
CACHES = 192 * MIB  # 2 MiB of the catalog's pages for each thread that has read them, and what one thread keeps


def resident(world):
    status = pathlib.Path(f"/proc/{world.server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


class ServerMemory(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, server_arguments=("--sweep-interval", "1s"))
        self.addCleanup(self.world.close)

    def resident(self):
        return resident(self.world)

    def make(self, number):
        request = urllib.request.Request(f"{self.world.url}/v1/runs/p/r{number:04}", method="PUT",
                                         data=json.dumps({"labels": LABELS}).encode(),
                                         headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            self.assertEqual(answer.status, 201)

    def read(self, _number):
        with urllib.request.urlopen(f"{self.world.url}/v1/runs?limit=1000", timeout=HANG_S) as answer:
            return len(answer.read())

    def test_memory_of_large_answers_is_given_back_whichever_threads_made_them(self):
        with concurrent.futures.ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(self.make, range(RUNS)))
            before = self.resident()
            peak = before
            for _ in range(5):
                sizes = list(callers.map(self.read, range(CALLERS)))
                self.assertGreater(min(sizes), RUNS * len(json.dumps(LABELS)) // 2)
                peak = max(peak, self.resident())
        print(f"before {before >> 20} MiB, at most {peak >> 20} MiB")
        wait_until(lambda: self.resident() < before + KEPT)
        print(f"after {self.resident() >> 20} MiB")


class PlanMemory(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, catalog="", server_arguments=("--sweep-interval", "1s"))
        self.addCleanup(self.world.close)
        self.world.server.stop()
        fill(self.world.root / "server" / "catalog.db", "large", VERSIONS, 50)
        self.world.start_server()

    def preview(self, number):
        body = {"policy": POLICY if number % 2 else {"keep": {"last": 1}}}
        request = urllib.request.Request(f"{self.world.url}/v1/runs/bench/large/retention/preview", method="POST",
                                         data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.read().count(b'"fate":')

    def look(self, path):
        with urllib.request.urlopen(self.world.url + path, timeout=HANG_S) as answer:
            return len(answer.read())

    def test_plans_over_a_hundred_thousand_versions_take_the_memory_of_one_however_many_ask(self):
        before, peak, ended = resident(self.world), 0, threading.Event()
        large = "/v1/runs/bench/large/checkpoints?limit=1000"

        def watch():
            nonlocal peak
            while not ended.wait(0.01):
                peak = max(peak, resident(self.world))

        with concurrent.futures.ThreadPoolExecutor(CALLERS + 1) as callers:
            watching = callers.submit(watch)
            counts = callers.map(self.preview, range(PLANNERS))
            looks = callers.map(self.look, ["/v1/gc", large, "/v1/nodes", large + "&order=step"] * PLANNERS)
            self.assertEqual({VERSIONS - IN_TRASH}, set(counts), "versions that a preview names")
            self.assertGreater(min(looks), 10)
            ended.set()
            watching.result()
        print(f"before {before >> 20} MiB, at most {peak >> 20} MiB")
        self.assertLess(peak - before, PLANNING)
        wait_until(lambda: resident(self.world) < before + CACHES)
        print(f"after {resident(self.world) >> 20} MiB")


if __name__ == "__main__":
    unittest.main()
