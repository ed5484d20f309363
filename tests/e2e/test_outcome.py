# SPDX-License-Identifier: Apache-2.0
"""A case that fails is a failure also where another one was skipped."""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader

from patience import HANG_S

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import costs  # noqa: E402
import run_ctest  # noqa: E402

MUTANTS = SourceFileLoader("mutants", str(pathlib.Path(__file__).resolve().parents[1] / "mutants" / "run"))
mutants = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", MUTANTS))
MUTANTS.exec_module(mutants)

PROGRAM = """
import unittest
from outcome import leave

class Missing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise unittest.SkipTest("no such thing")

    def test_it(self):
        pass

class There(unittest.TestCase):
    def test_it(self):
        self.assertTrue({good})

leave(unittest.main(exit=False, argv=["program", {names}]).result)
"""


class Outcome(unittest.TestCase):
    def end(self, *names, good=True):
        """(status, its lines of what was skipped) of a program with these classes."""
        ran = subprocess.run([sys.executable, "-c", PROGRAM.format(good=good, names=", ".join(map(repr, names)))],
                             capture_output=True, text=True, timeout=HANG_S)
        return ran.returncode, [line for line in ran.stdout.splitlines() if line.startswith("skipped: ")]

    def test_a_failure_beside_a_skip_is_a_failure_and_77_is_for_a_program_that_ran_nothing(self):
        skipped = ["skipped: no such thing"]
        self.assertEqual(self.end("There", "Missing", good=False), (1, skipped))
        self.assertEqual(self.end("There", "Missing"), (0, skipped))
        self.assertEqual(self.end("Missing"), (77, skipped))
        self.assertEqual(self.end("There"), (0, []))


class Since(unittest.TestCase):
    """Which entries `./test --since` takes for a file that changed (tests/support/run_ctest.py), and which
    breaks tests/mutants/run."""

    @staticmethod
    def entry(name, rooms, source):
        return run_ctest.Entry({"name": name, "properties": [{"name": "ENVIRONMENT", "value": [
            f"CAIRN_TEST_ROOMS={rooms}", f"CAIRN_TEST_SOURCE={source}"]}]})

    def test_a_change_takes_the_tests_of_its_room_its_folder_and_its_file(self):
        plan = self.entry("plan/near", "plan,api,common", "tests/plan/test_near.c")
        story = self.entry("e2e/forget", "cli,server", "tests/e2e/test_forget.py")
        pages = self.entry("docs/links", "", "tests/docs/test_links.c")
        for path, taken in (("plan/exact.c", [plan, pages]), ("cli/verbs/ls.c", [story, pages]),
                            ("tests/plan/test_near.c", [plan, pages]), ("tests/plan/stored.c", [plan, pages]),
                            ("tests/plan/test_exact.c", [pages]), ("tests/e2e/test_watch.py", [pages]),
                            ("tests/e2e/world.py", [story, pages]), ("docs/http.md", [pages]),
                            ("tests/harness.c", [plan, story, pages]), ("test", [plan, story, pages]),
                            ("CMakeLists.txt", [plan, story, pages])):
            with self.subTest(path):
                self.assertEqual([one for one in (plan, story, pages) if one.touched(path)], taken)

    def test_a_break_is_run_where_its_code_its_tests_or_its_own_words_changed(self):
        places = mutants.load()
        mutants.place_all(places)
        by_name = {one.name: one for one in places}
        silent, rule = by_name["silent-node-ignored"], next(one for one in places if one.rule)
        same = {one.name: one.words() for one in places}
        others = {**same, silent.name: ("breaks another thing", "", [], [])}
        for files, rules, before, taken in (
                (silent.files, set(), None, {silent.name}),
                ({"tests/server/test_time.c"}, set(), None, {silent.name}),
                ({"server/never_there.c", "README.md"}, set(), None, set()),
                (set(), {rule.rule}, None, {rule.name}),
                (set(), set(), same, set()), (set(), set(), others, {silent.name})):
            with self.subTest(files=files, rules=rules):
                self.assertEqual({one.name for one in (silent, rule) if mutants.touched(one, files, rules, before)},
                                 taken)

    def test_a_module_that_runs_nothing_fails_the_run_where_nothing_that_it_names_can_be_lacking(self):
        plain = self.entry("e2e/plain", "", "")
        labelled, worded = (run_ctest.Entry({"name": name, "properties": [{"name": kind, "value": value}]})
                            for name, kind, value in (("e2e/gpt", "LABELS", ["e2e", "torch"]),
                                                      ("uploader/files", "ENVIRONMENT", ["CAIRN_TEST_LACKS=fuse"])))
        every = [plain, labelled, worded]
        self.assertEqual(run_ctest.must_run(every, [one.name for one in every]), ["e2e/plain"])
        self.assertEqual(run_ctest.must_run(every, ["e2e/gpt"]), [])

    def test_labels_that_are_excluded_by_hand_go_beside_those_that_are_by_itself(self):
        for given in (["-LE", "^(docker|ui)$"], ["--label-exclude", "^(docker|ui)$"]):
            words = ["-R", "e2e", *given]
            run_ctest.exclude(words, "^full$")
            self.assertEqual(words, ["-R", "e2e", "--label-exclude", "^full$|^(docker|ui)$"])

    def test_what_entries_cost_is_told_by_part_and_the_dearest_first(self):
        log = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "log"
        log.write_text("1/3 Testing: e2e/slow\nwatched: 90.0 s, 1.5 s on processors, 0.5 s of them in the kernel\n"
                       "2/3 Testing: e2e/busy\nit says: watched: 1.0 s\n"
                       "watched: 8.0 s, 7.0 s on processors, 2.0 s of them in the kernel\n3/3 Testing: api/none\n")
        entries = costs.read(log)
        self.assertEqual(entries, [("e2e/slow", 90.0, 1.5, 0.5), ("e2e/busy", 8.0, 7.0, 2.0)])
        lines = costs.table(entries, 1)
        self.assertIn("      98.0      8.5      2.5  e2e (2 entries)", lines)
        self.assertEqual([line.split()[-1] for line in lines if "e2e/" in line], ["e2e/busy", "e2e/slow"])

    def test_parts_hold_each_entry_once_and_are_about_as_long(self):
        entries = [self.entry(f"e{number}", "", "") for number in range(100)]
        for number, entry in enumerate(entries):
            entry.cost = 1 + number % 7
        parts = [run_ctest.part_of(entries, number, 8) for number in range(1, 9)]
        self.assertEqual(sorted(one.name for part in parts for one in part), sorted(one.name for one in entries))
        costs = [sum(one.cost for one in part) for part in parts]
        self.assertLessEqual(max(costs) - min(costs), 7)


if __name__ == "__main__":
    unittest.main()
