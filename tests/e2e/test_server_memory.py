# SPDX-License-Identifier: Apache-2.0
"""A server's memory after large answers: what the work took is given back to the system, whatever number of
threads did it."""
import concurrent.futures
import json
import pathlib
import re
import unittest
import urllib.request

from world import HANG_S, wait_until, World

RUNS = 900
LABELS = {f"label-{i:02}": "v" * 60 for i in range(32)}
MIB = 1 << 20
CALLERS = 32
KEPT = 48 * MIB  # beyond what it had before: what threads keep for themselves


class ServerMemory(unittest.TestCase):
    def setUp(self):
        self.world = World(nodes=0, server_arguments=("--sweep-interval", "1s"))
        self.addCleanup(self.world.close)

    def resident(self):
        status = pathlib.Path(f"/proc/{self.world.server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10

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


if __name__ == "__main__":
    unittest.main()
