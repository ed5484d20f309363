# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Pins, labels, metrics, policies and `cairn forget`, as people type them."""
import json
import os
import unittest

import cases
from world import World, wait_until


class Forget(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        cls.file = cases.file(cls.world.root / "file", os.urandom(10_000))

    def saved(self, run, *steps):
        for step in steps:
            self.world.cairn("put", self.file, f"{run}@{step}")
        return run

    def ask(self, *words, status=0):
        return self.world.json(*words, status=status)

    def kept(self, run):
        return [item["step"] for item in self.ask("ls", run) if not item["trashed"]]

    def test_a_plan_is_shown_and_carried_out_only_with_yes(self):
        run = self.saved("f/plan", 100, 200, 300, 400)
        self.world.cairn("pin", f"{run}@100", "--note", "the first")
        self.world.cairn("metric", f"{run}@200", "eval/loss=0.5", "acc=1")
        self.world.cairn("metric", f"{run}@300", "eval/loss=0.75")
        rules = ("--keep-last", "1", "--keep-best", "1:eval/loss:min", "--unmeasured-grace", "0s")
        shown = self.world.cairn("forget", run, *rules, "--dry-run").stdout
        lines = [line.split() for line in shown.splitlines()]
        self.assertIn("Policy (run f/plan, 4 committed): last 1 OR best 1 by eval/loss (min); unmeasured for 0s", shown)
        self.assertEqual([line[:2] for line in lines[1:5]],
                         [["KEEP", "400"], ["REMOVE", "300"], ["KEEP", "200"], ["KEEP", "100"]])
        for words in ("last 1/1, newest 1/1", "best 1/1 by eval/loss (0.5)", "pinned",
                      "nothing was changed (--dry-run)"):
            self.assertIn(words, shown)
        said = self.world.cairn("forget", run, *rules, status=2).stderr
        self.assertIn("say --yes", said)
        for answer in ("n\n", "\n"):
            self.assertIn("[y/N]", self.world.on_a_terminal(answer, "forget", run, *rules))
        self.assertEqual(self.kept(run), [400, 300, 200, 100])
        self.assertIn("1 in the trash", self.world.cairn("forget", run, *rules, "--yes").stdout)
        self.assertEqual(self.kept(run), [400, 200, 100])
        self.world.cairn("undelete", f"{run}@300")
        self.assertEqual(self.kept(run), [400, 300, 200, 100])

    def test_a_projects_rule_by_an_unknown_metric_names_the_metrics_of_all_its_runs(self):
        for name, metric in (("one", "acc"), ("two", "eval_loss")):
            run = self.saved(f"several/{name}", 1)
            self.world.cairn("metric", f"{run}@1", f"{metric}=1")
        said = self.world.cairn("policy", "set", "several", "--keep-best", "1:eval_los:min", status=2).stderr
        self.assertIn("no checkpoint of any run of several has the metric eval_los (there are: ", said)
        for metric in ("acc", "eval_loss"):
            self.assertIn(metric, said.split("there are: ")[1].split(")")[0].split(", "))
        both = ("--keep-best", "1:eval_loss:min", "--keep-best", "1:acc:max")  # each is that of one run
        self.world.cairn("policy", "set", "several", *both, "--yes")
        self.assertEqual(self.ask("policy", "get", "several/one")["from"], "project")

    def test_a_rule_by_a_metric_that_no_checkpoint_has_is_refused_and_removes_nothing(self):
        run = self.saved("f/typo", 1, 2, 3)
        rules = ("--keep-last", "1", "--keep-best", "1:eval_los:min")
        for words in (("forget", run, *rules, "--dry-run"), ("policy", "set", run, *rules)):
            self.assertIn("(there are: none yet)", self.world.cairn(*words, status=2).stderr)
        for step in (1, 2, 3):
            self.world.cairn("metric", f"{run}@{step}", f"eval_loss={step}", "acc=1")
        for words in (("forget", run, *rules, "--dry-run"), ("policy", "set", run, *rules)):
            said = self.world.cairn(*words, status=2).stderr
            self.assertIn("no checkpoint of f/typo has the metric eval_los", said)
            self.assertRegex(said, r"there are: (eval_loss, acc|acc, eval_loss)\)")
        self.assertIsNone(self.ask("policy", "get", run)["from"])
        self.world.cairn("policy", "set", run, *rules, "--force")
        self.saved("f/typo", 4)
        self.assertEqual(self.kept(run), [4, 3, 2, 1])
        plan = self.ask("forget", run, "--dry-run")
        self.assertEqual({reason["metric"] for row in plan["versions"] for reason in row["reasons"]
                          if reason["rule"] == "unmeasured"}, {"eval_los"})
        self.assertIn("unmeasured by eval_los", self.world.cairn("forget", run, "--dry-run").stdout)
        # What is measured is judged by it, what is not yet is kept.
        said = self.world.cairn("policy", "set", run, "--keep-best", "1:eval_loss:min").stdout
        self.assertIn("REMOVE", said)
        self.assertIn("as of the next commit", said)
        self.saved("f/typo", 5)
        wait_until(lambda: self.kept(run) == [5, 4, 1])
        self.world.cairn("policy", "set", run, "--keep-best", "1:eval_loss:min", "--unmeasured-grace", "0s")
        self.saved("f/typo", 6)
        wait_until(lambda: self.kept(run) == [6, 1])

    def test_a_policy_of_a_project_or_the_server_shows_what_it_removes_of_each_run_and_asks(self):
        first, second = self.saved("several/a", 1, 2, 3), self.saved("several/b", 1, 2)
        own = self.saved("several/own", 1, 2, 3)
        self.world.cairn("policy", "set", own, "--keep-last", "9")
        for target in (("several",), ()):
            said = self.world.cairn("policy", "set", *target, "--keep-last", "1").stdout
            self.assertIn("several/a: 3 of 4 checkpoints would go into the trash with its next commit", said)
            self.assertIn("several/b: 2 of 3 checkpoints would go", said)
            self.assertNotIn("several/own", said)
            self.world.cairn("policy", "unset", *target)
            self.assertIn("of each run. Set it? [y/N]",
                          self.world.on_a_terminal("n\n", "policy", "set", *target, "--keep-last", "1"))
            self.assertIsNone(self.ask("policy", "get", *target)["from"])
            # A metric of one of them is enough; one of none is a mistake.
            best = ("--keep-last", "1", "--keep-best", "1:loss:min")
            self.assertIn("has the metric loss", self.world.cairn("policy", "set", *target, *best, status=2).stderr)
            self.world.cairn("metric", f"{second}@1", "loss=1")
            self.world.cairn("policy", "set", *target, *best)
            self.world.cairn("policy", "unset", *target)
            self.world.cairn("metric", f"{second}@1", "loss-")
        self.assertEqual((self.kept(first), self.kept(second)), ([3, 2, 1], [2, 1]))

    def test_a_policy_that_keeps_what_was_made_within_a_time_is_kept_and_read_again(self):
        run = self.saved("f/within", 1)
        self.world.cairn("policy", "set", run, "--keep-within", "90min", "--keep-last", "2")
        for _ in range(2):
            told = self.ask("policy", "get", run)
            self.assertEqual((told["policy"]["keep"], told["from"]), ({"last": 2, "within_s": 5400}, "run"))
            self.assertIn("within 90min of the newest", told["text"])
            self.world.server.stop()
            self.world.start_server()

    def test_rules_that_are_given_again_add_up(self):
        run = self.saved("f/again", 1, 2, 3, 4)
        self.world.cairn("label", f"{run}@1", "team=nlp")
        self.world.cairn("label", f"{run}@2", "tier=keep")
        for step, (loss, acc) in enumerate(((1, 1), (2, 5), (3, 9), (4, 2)), 1):
            self.world.cairn("metric", f"{run}@{step}", f"loss={loss}", f"acc={acc}")
        for rules, kept in ((("--keep-labels", "team=nlp", "--keep-labels", "tier=keep"), [4, 2, 1]),
                            (("--keep-labels", "team=nlp,tier=keep"), [4]),
                            (("--keep-best", "1:loss:min", "--keep-best", "1:acc:max"), [4, 3, 1])):
            plan = self.ask("forget", run, *rules, "--dry-run")
            self.assertEqual([row["step"] for row in plan["versions"] if row["fate"] == "keep"], kept)
        asked = self.world.on_a_terminal("n\n", "policy", "set", run, "--keep-last", "1")
        self.assertIn("4 checkpoints would go into the trash with the next commit. Set it? [y/N]", asked)
        self.assertIsNone(self.ask("policy", "get", run)["from"])
        self.world.on_a_terminal("y\n", "policy", "set", run, "--keep-last", "1", status=0)
        self.assertEqual(self.ask("policy", "get", run)["from"], "run")

    def test_many_runs_and_whole_projects_are_shown_each_by_itself_and_removed_at_once(self):
        for run in ("many/a", "many/b", "other/c"):
            self.saved(run, 1, 2, 3)
        words = ("forget", "many", "other/c", "many/a", "--keep-last", "1")
        shown = self.world.cairn(*words, "--dry-run").stdout
        self.assertEqual([line.split()[2] for line in shown.splitlines() if line.startswith("Policy (run")],
                         ["many/a,", "many/b,", "other/c,"])  # each once
        self.assertIn("6 checkpoints of 3 runs would go", self.world.cairn(*words, status=2).stderr)
        self.assertIn("[y/N]", self.world.on_a_terminal("n\n", *words))
        self.assertEqual([self.kept(run) for run in ("many/a", "many/b", "other/c")], [[3, 2, 1]] * 3)
        plans = self.ask(*words, "--yes")
        self.assertEqual([(f'{plan["project"]}/{plan["run"]}', plan["removed"]) for plan in plans],
                         [("many/a", 2), ("many/b", 2), ("other/c", 2)])
        self.assertEqual([self.kept(run) for run in ("many/a", "many/b", "other/c")], [[3]] * 3)
        self.assertIn("0 in the trash", self.world.cairn(*words, "--yes").stdout)

    def test_of_many_runs_those_without_a_policy_are_named_and_keep_all(self):
        for run in ("mixed/a", "mixed/b"):
            self.saved(run, 1, 2)
        self.assertIn("has no policy", self.world.cairn("forget", "mixed", "--yes", status=6).stderr)
        self.world.cairn("policy", "set", "mixed/a", "--keep-last", "1")
        said = self.world.cairn("forget", "mixed", "--yes")
        self.assertIn("mixed/b has no policy: nothing of it goes", said.stderr)
        self.assertIn("1 in the trash", said.stdout)
        self.assertEqual((self.kept("mixed/a"), self.kept("mixed/b")), ([2], [2, 1]))
        self.assertIn("nowhere has no run", self.world.cairn("forget", "nowhere", "--yes", status=3).stderr)
        self.world.cairn("forget", "no such", "--yes", status=2)

    def test_without_a_rule_and_a_policy_nothing_is_removed_and_that_is_status_6(self):
        run = self.saved("g/none", 1, 2)
        self.assertIn("has no policy", self.world.cairn("forget", run, "--yes", status=6).stderr)
        self.world.cairn("forget", run, "--keep-last", "0", status=2)
        self.world.cairn("forget", run, "--keep-best", "1:loss", status=2)
        self.assertEqual(self.kept(run), [2, 1])
        plan = self.ask("forget", run, "--allow-empty", "--yes")
        self.assertEqual((plan["removed"], self.kept(run)), (2, []))

    def test_a_policy_is_set_tested_and_carried_out_after_each_save(self):
        run = self.saved("h/own", 1, 2)
        self.assertIn("there is none", self.world.cairn("policy", "get", run).stdout)
        self.world.cairn("policy", "set", "h", "--keep-last", "9")
        self.assertEqual(self.ask("policy", "get", run)["from"], "project")
        self.world.cairn("policy", "set", run, status=2)
        self.world.cairn("policy", "set", run, "--keep-last", "2", "--keep-labels", "tier=keep")
        self.world.cairn("label", f"{run}@1", "tier=keep", "b=c")
        self.world.cairn("label", f"{run}@1", "b-")
        self.assertEqual(self.ask("show", f"{run}@1")["labels"], {"tier": "keep"})
        plan = self.ask("policy", "test", run, "--saves", "2", "--every", "10", "--after", "2h")
        self.assertEqual([(v["step"], v["fate"]) for v in plan["versions"]],
                         [(22, "keep"), (12, "keep"), (2, "remove"), (1, "keep")])
        self.assertEqual(self.kept(run), [2, 1])
        self.saved(run, 3, 4, 5)
        wait_until(lambda: self.kept(run) == [5, 4, 1])
        self.assertEqual(self.kept(run), [5, 4, 1])
        self.world.cairn("policy", "set", run, "--keep-all")
        self.assertEqual(self.ask("policy", "get", run)["policy"], {"keep": {}})
        self.world.cairn("policy", "unset", run)
        self.world.cairn("policy", "unset", "h")
        self.world.cairn("policy", "get")

    def test_an_alias_names_a_checkpoint_protects_it_and_is_moved(self):
        run = self.saved("j/alias", 1, 2, 3)
        self.world.cairn("show", f"{run}@prod", status=3)
        self.world.cairn("alias", "set", f"{run}@1", "prod")
        self.assertEqual(self.ask("show", f"{run}@prod")["step"], 1)
        self.assertIn("prod points at", self.world.cairn("rm", f"{run}@1", status=6).stderr)
        self.world.cairn("get", f"{run}@prod", "-d", self.world.root / "by-alias")
        said = self.world.cairn("show", f"{run}@prod", "--store", self.world.store, status=3).stderr
        self.assertIn("in the server's catalog", said)
        self.world.cairn("forget", run, "--keep-last", "1", "--yes")
        self.assertEqual(self.kept(run), [3, 1])
        self.world.cairn("alias", "set", f"{run}@latest", "prod")
        self.assertEqual([(row["alias"], row["step"]) for row in self.ask("alias", "ls", run)], [("prod", 3)])
        self.world.cairn("alias", "rm", run, "prod")
        self.world.cairn("alias", "rm", run, "prod", status=3)
        self.world.cairn("alias", "set", f"{run}@1", "latest", status=6)
        self.world.cairn("alias", "set", f"{run}@1", "Prod", status=2)
        self.world.cairn("metric", f"{run}@1", "loss=1")
        self.world.cairn("show", f"{run}@best", status=3)
        self.world.cairn("policy", "set", run, "--keep-best", "1:loss:min")
        self.assertEqual(self.ask("show", f"{run}@best")["step"], 1)

    def test_a_run_is_removed_with_all_that_it_has_when_its_name_is_said(self):
        run = self.saved("k/whole", 1, 2, 3)
        self.world.cairn("rm", f"{run}@1", f"{run}@2")
        self.assertEqual(self.kept(run), [3])
        self.assertIn("say --confirm whole", self.world.cairn("rm", run, "--run", status=2).stderr)
        for name in ("k", run):
            self.assertIn(f'its name is whole, without the project, not "{name}"',
                          self.world.cairn("rm", run, "--run", "--confirm", name, status=1).stderr)
        self.world.cairn("pin", f"{run}@3")
        self.assertIn("nothing was removed", self.world.cairn("rm", run, "--run", "--confirm", "whole", status=6).stderr)
        self.world.cairn("unpin", f"{run}@3")
        last = self.ask("show", f"{run}@3")["version"]
        self.assertIn("1 checkpoint of 9.8 KiB would go into the trash, 0 open saves",
                      self.world.cairn("rm", run, "--run", "--dry-run").stdout)
        self.assertEqual({name: self.ask("rm", run, "--run", "-n")[name] for name in ("versions", "bytes", "open")},
                         {"versions": 1, "bytes": 10_000, "open": 0})
        for word in ("--dry-run", "--detach"):
            self.assertIn("is for --run", self.world.cairn("rm", f"{run}@3", word, status=2).stderr)
        asked = self.world.on_a_terminal("hole\n", "rm", run, "--run")
        self.assertIn("1 checkpoint of 9.8 KiB go into the trash, 0 open saves be given up", asked)
        self.assertIn("Type whole to put all of it into the trash", asked)
        done = json.loads(wait_until(lambda: self.try_remove(run, "--json")).stdout)
        self.assertEqual((done["removed"], done["bytes"], done["aborted"]), (1, 10_000, 0))
        told = self.ask("operation", "show", done["operation"])
        self.assertEqual((told["kind"], told["state"], told["request"]["versions"]), ("remove", "done", 1))
        self.assertNotIn(run, self.world.cairn("ls").stdout)
        self.world.cairn("undelete", f"{run}@{last}")
        self.assertIn(run, self.world.cairn("ls").stdout)
        self.assertEqual(self.kept(run), [3])
        said = wait_until(lambda: self.try_remove(run))
        self.assertIn("is removed: 1 checkpoint of 9.8 KiB in the trash, 0 open saves given up", said.stdout)
        self.assertIn("rm pct=100 versions=1/1", said.stderr)
        self.world.cairn("undelete", f"{run}@{last}")
        begun = json.loads(wait_until(lambda: self.try_remove(run, "--detach", "--json")).stdout)
        self.assertEqual(self.ask("operation", "wait", begun["id"])["result"]["removed"], 1)
        self.world.cairn("rm", run, "--run", "--confirm", "whole", status=3)

    def test_a_removed_run_that_put_makes_again_has_no_policy_or_labels_of_before(self):
        run = self.saved("k/again", 1, 2, 3)
        self.world.cairn("policy", "set", run, "--keep-last", "1")
        self.world.cairn("label", run, "of=before")
        wait_until(lambda: self.try_remove(run))
        self.saved(run, 4, 5, 6)
        self.assertEqual(self.kept(run), [6, 5, 4])
        self.assertEqual(self.ask("show", run)["labels"], {})

    def try_remove(self, run, *words):
        """The node that has just put says for a moment that it holds the attempt."""
        done = self.world.cairn("rm", run, "--run", "--confirm", run.split("/")[1], *words, status=None,
                                env={"CAIRN_PROGRESS": "plain"})
        return done if done.returncode == 0 else None

    def test_what_is_pinned_is_not_removed_and_bytes_are_told_by_what_they_are_of(self):
        run = self.saved("i/pin", 1, 2)
        self.world.cairn("pin", f"{run}@1")
        self.assertIn("is pinned", self.world.cairn("rm", f"{run}@1", status=6).stderr)
        self.world.cairn("unpin", f"{run}@1")
        self.world.cairn("rm", f"{run}@1")
        rows = {row["state"]: row for row in self.ask("du", run)}
        self.assertEqual({name: row["count"] for name, row in rows.items()}, {"committed": 1, "trash": 1})
        self.assertIn("i/pin", self.world.cairn("du").stdout)
        self.assertEqual(self.world.cairn("label", "i/pin", "team=nlp").stdout, "i/pin has labels team=nlp\n")
        self.world.cairn("metric", f"{run}@2", "loss=low", status=2)
        self.world.cairn("metric", run, "loss=1", status=2)

    def test_runs_in_which_nothing_happens_are_listed_with_their_bytes_and_what_removes_them(self):
        run = self.saved("j/idle", 1, 2)
        row = {f'{row["project"]}/{row["run"]}': row for row in self.ask("du", "--idle", "0s")}[run]
        self.assertEqual((row["count"], row["remove"]), (2, f"cairn rm --run {run}"))
        self.assertGreaterEqual(row["bytes"], 20_000)
        self.assertRegex(row["last_commit_at"], r"^20\d\d-")
        self.assertNotIn(run, [f'{row["project"]}/{row["run"]}' for row in self.ask("du", "--idle", "30d")])
        shown = self.world.cairn("du", "--idle", "0s")
        self.assertIn(f"cairn rm --run {run}\n", shown.stdout)
        self.assertRegex(shown.stderr, r"\d+ of \d+ runs, ")
        self.assertIn("name none", self.world.cairn("du", run, "--idle", "1d", status=2).stderr)
        self.assertIn("--idle", self.world.cairn("du", "--idle", "30", status=2).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
