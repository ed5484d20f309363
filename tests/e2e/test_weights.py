# SPDX-License-Identifier: Apache-2.0
"""What was measured of nodes in one attempt says how much each rank should save in the next."""
import unittest

from world import Job, wait_until, World

RANKS, RUN = 4, "p/weights"


class SlowNode(World):
    """On node-1 each part waits before it goes to the store."""

    def make_uploader(self, number):
        env = self.env
        self.env = {**env, **({"CAIRN_STORE_FAULT": "part:*:*:delay@1000"} if number else {})}
        try:
            return super().make_uploader(number)
        finally:
            self.env = env


class Weights(unittest.TestCase):
    def setUp(self):
        self.world = SlowNode(nodes=2, uploader_arguments=["--heartbeat", "1s", "--part-size", "1MiB"], case=self)

    def opened(self, job):
        """What a new attempt of the run is told; its ranks come to the nodes that they had."""
        told = None
        for node in range(2):
            body = {"job": job, "world_size": RANKS, "node": f"node-{node}", "after": 1,
                    "ranks": [{"rank": rank, "proc": f"{job}-{rank}"} for rank in range(node, RANKS, 2)]}
            said = self.world.send("POST", f"/v1/runs/{RUN}/attempts", body)
            if told:
                self.assertEqual(said["weights"], told["weights"])  # all ranks compute with the same
            told = said
        return told

    def rates(self):
        items = self.world.read("/v1/nodes")["items"]
        return {item["node"]: item["uploader"].get("upload_bytes_per_s", 0) for item in items}

    def test_a_slow_node_is_given_less_from_the_next_attempt_on(self):
        # node-0 sends all that its ranks save between two heartbeats
        Job(self.world, "one", RANKS, [1], run=RUN, rows=24).succeeds()
        wait_until(lambda: all(self.rates().get(f"node-{node}", 0) for node in range(2)), 20)
        rates = self.rates()
        self.assertLess(2 * rates["node-1"], rates["node-0"], rates)
        weights = self.opened("two")["weights"]
        self.assertEqual((len(weights), weights[0], weights[2]), (RANKS, "8", "8"), rates)
        self.assertEqual(weights[1], weights[3])
        self.assertLess(int(weights[1]), 6, (weights, rates))


if __name__ == "__main__":
    unittest.main()
