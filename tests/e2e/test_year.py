# SPDX-License-Identifier: Apache-2.0
# ctest: labels=full seconds=1500 thirds=3
"""A year of a site, played by bench/year: nothing grows that no rule lets grow."""
import json
import os
import pathlib
import sys
import unittest

import cases
from build_folder import BIN

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import a_year  # noqa: E402


def months_of(values, name="rows versions", unit="rows"):
    return [{name: (value, unit, True)} for value in values]


class Year(unittest.TestCase):
    def play(self, *words):
        done = cases.run([ROOT / "bench/year", *words], env={**os.environ, "CAIRN_BIN_DIR": str(BIN)})
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_what_grows_in_the_last_months_is_found_and_what_a_rule_lets_grow_is_not(self):
        flat = [100, 400, 900, 1000, 1000, 1010, 990, 1000, 1000, 1000, 1000, 1000]
        self.assertEqual(a_year.grown(months_of(flat)), [])
        self.assertEqual(len(a_year.grown(months_of([100 * i for i in range(1, 13)]))), 1)
        self.assertEqual(a_year.grown(months_of([100 * i for i in range(1, 13)], "rows runs")), [])
        self.assertEqual(a_year.grown(months_of([1000, 2000])), [])  # too short to tell

    def test_some_weeks_of_a_small_site_are_played_and_told(self):
        lines = self.play("--days", "30", "--runs", "4")
        told = {line["figure"]: line["value"] for line in lines}
        self.assertGreater(told["rows versions"], 4)
        self.assertGreater(told["rows events"], 4 * 30 * 2)
        self.assertTrue(lines[-1]["ok"])

    @unittest.skipUnless(os.environ.get("CAIRN_TEST_SLOW"), "a year takes its time: ./test --full")
    def test_a_year_of_a_site_has_nothing_that_grows_without_a_rule(self):
        self.assertTrue(self.play()[-1]["ok"])


if __name__ == "__main__":
    unittest.main()
