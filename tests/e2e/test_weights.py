# SPDX-License-Identifier: Apache-2.0
"""What was measured of nodes in one attempt says how much each rank should save in the next."""
import json
import unittest
import urllib.request

from test_jobs import Job
from world import HANG_S, wait_until, World

RANKS, RUN = 4, "p/weights"


class SlowNode(World):
    """Each part waits before it goes to the store, and on node-1 six times as long."""

    def make_uploader(self, number):
        env = self.env
        self.env = {**env, "CAIRN_STORE_FAULT": f"part:*:*:delay@{600 if number == 1 else 100}"}
        try:
            return super().make_uploader(number)
        finally:
            self.env = env


class Weights(unittest.TestCase):
    def setUp(self):
        self.world = SlowNode(nodes=2, uploader_arguments=["--heartbeat", "100ms", "--part-size", "1MiB"])
        self.addCleanup(self.world.close)

    def opened(self, job):
        """What a new attempt of the run is told; its ranks come to the nodes that they had."""
        told = None
        for node in range(2):
            body = {"job": job, "world_size": RANKS, "node": f"node-{node}", "after": 1,
                    "ranks": [{"rank": rank, "proc": f"{job}-{rank}"} for rank in range(node, RANKS, 2)]}
            request = urllib.request.Request(f"{self.world.url}/v1/runs/{RUN}/attempts", json.dumps(body).encode(),
                                             headers={"Content-Type": "application/json"}, method="POST")
            with urllib.request.urlopen(request, timeout=HANG_S) as reply:
                said = json.load(reply)
            if told:
                self.assertEqual(said["weights"], told["weights"])  # all ranks compute with the same
            told = said
        return told

    def rates(self):
        items = json.loads(self.world.get("/v1/nodes")[2])["items"]
        return {item["node"]: item["uploader"].get("upload_bytes_per_s", 0) for item in items}

    def test_a_slow_node_is_given_less_from_the_next_attempt_on(self):
        for status, lines, said in Job(self.world, "one", RANKS, [1], run=RUN, rows=64).end():
            self.assertEqual((status, lines[-1]["code"]), (0, "ok"), said)
            self.assertEqual(lines[0]["attempt"], 1)
        wait_until(lambda: all(self.rates().get(f"node-{node}", 0) for node in range(2)), 20)
        rates = self.rates()
        self.assertLess(2 * rates["node-1"], rates["node-0"], rates)
        weights = self.opened("two")["weights"]
        self.assertEqual((len(weights), weights[0], weights[2]), (RANKS, "8", "8"), rates)
        self.assertEqual(weights[1], weights[3])
        self.assertLess(int(weights[1]), 6, (weights, rates))


if __name__ == "__main__":
    unittest.main()
