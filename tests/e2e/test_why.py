# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""cairn show --why while a save cannot get on: it names the node, how far that is, and what the store
said last; and once it is committed, that it waits for nothing."""
import unittest

import cases
from world import World, wait_until

RUN = "llm/stalled"


class Why(unittest.TestCase):
    def test_a_save_that_the_store_refuses_is_explained_until_it_is_committed(self):
        # Three puts of shards fail, and the fourth takes eight seconds.
        world = World(uploader_arguments=["--heartbeat", "100ms"],
                      env={"CAIRN_STORE_FAULT": "put:*/data/*:1-3:unavailable; put:*/data/*:*:delay@8000"}, case=self)
        folder = cases.made(world.root / "one")
        (folder / "bytes").write_bytes(b"7" * 100_000)
        world.cairn("put", "--detach", folder, f"{RUN}@5")

        def told():
            said = world.json("show", "--why", RUN)
            return said["nodes"] and said["nodes"][0]["error"] and said
        said = wait_until(told)
        self.assertEqual((said["step"], said["state"], said["commit"]), (5, "open", None))
        node = said["nodes"][0]
        self.assertEqual((node["node"], node["left"]), ("node-0", False))
        self.assertRegex(node["error"], "^shard .*bytes: ")
        self.assertLess(node["done_bytes"], node["total_bytes"])
        self.assertTrue(node["waited_for"])
        self.assertEqual([node[of] for of in ("shards_done", "shards_total", "parts_done", "parts_total")],
                         [0, 1, 0, 1])
        refused = node["errors"]
        self.assertEqual([(one["rank"], one["part"]) for one in refused], [(0, None)])
        self.assertRegex(refused[0]["shard"], "bytes$")
        self.assertGreaterEqual(refused[0]["tries"], 1)
        self.assertIn(refused[0]["error"], node["error"])
        text = world.cairn("show", "--why", RUN).stdout
        self.assertRegex(text, r"    shard \S*bytes of rank 0, \S+ ago, [123] errors?: ")
        self.assertRegex(text, r"step 5 is being saved since .*: \d of 1 ranks sealed")
        self.assertRegex(text, r"  node node-0: .* of .* sent, 0 of 1 shards, 0 of 1 parts, heard \S+ ago\n    last error: shard ")

        wait_until(lambda: (world.version(RUN) or {}).get("state") == "committed", 60)
        self.assertRegex(world.cairn("show", "--why", RUN).stdout,
                         r"^step 5 \(ckpt_.*\) is committed and waits for nothing\n$")


if __name__ == "__main__":
    unittest.main()
