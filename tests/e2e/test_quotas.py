# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""A quota as people meet it: the command sets and shows it, and a save beyond it says why."""
import json
import unittest

import cases
from world import World


class Quotas(unittest.TestCase):
    def setUp(self):
        self.world = World(case=self)
        self.file = cases.file(self.world.root / "weights.bin", b"w" * 3000)

    def put(self, step, status=0):
        return self.world.cairn("put", self.file, f"llm/7b@{step}", status=status)

    def quota(self, *arguments, status=0):
        return self.world.cairn("quota", *arguments, status=status)

    def test_a_save_beyond_the_quota_ends_with_6_and_the_numbers(self):
        self.put(1)
        self.assertIn("project", self.quota("set", "llm", "--versions", "1", "--bytes", "1GiB").stdout)
        refused = self.put(2, status=6)
        self.assertIn("quota of versions: limit 1, used 1, asked 1; project llm", refused.stderr)
        self.quota("set", "llm", "--bytes", "2000")
        refused = self.put(3, status=6)
        self.assertIn("quota of bytes: limit 2000, used 3", refused.stderr)
        self.quota("unset", "llm")
        self.put(4)

    def test_the_list_has_what_projects_take_up_and_may(self):
        self.put(1)
        self.assertEqual(self.quota("get").stdout.split()[-3:], ["*", "-", "-"])
        self.quota("set", "--versions", "7")
        self.quota("set", "vision", "--bytes", "2KiB")
        rows = json.loads(self.quota("ls", "--json").stdout)
        shown = {row["project"]: row for row in rows}
        self.assertEqual(list(shown), ["llm", "vision"])
        self.assertEqual((shown["llm"]["limit_versions"], shown["llm"]["used_versions"], shown["llm"]["limit_bytes"],
                          shown["llm"]["from"]), (7, 1, None, "server"))
        self.assertGreaterEqual(shown["llm"]["used_bytes"], 3000)
        self.assertEqual(shown["vision"], {"project": "vision", "limit_versions": None, "used_versions": 0,
                                           "limit_bytes": 2048, "used_bytes": 0, "from": "project", "days": shown["vision"]["days"]})
        table = self.quota("ls").stdout.splitlines()
        self.assertEqual(table[0].split(), ["PROJECT", "VERSIONS", "OF", "BYTES", "OF", "FROM"])
        self.assertEqual(table[1].split()[:3], ["llm", "1", "7"])

    def test_what_is_wrong_is_said(self):
        self.assertIn("say how much", self.quota("set", "llm", status=2).stderr)
        self.assertIn("name a project", self.quota("get", "llm/7b", status=2).stderr)
        self.assertIn("want ls", self.quota("show", status=2).stderr)


if __name__ == "__main__":
    unittest.main()
