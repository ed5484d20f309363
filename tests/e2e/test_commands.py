# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
"""What people type: help, mistakes, exit statuses, lists, trash, waiting, and `cairn up`."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.parse

import cases
from test_verify import safetensors
from world import BIN, HANG_S, in_time, line_of, wait_until, World

VERBS = ("up", "put", "ls", "show", "get", "verify", "wait", "resume", "rm", "undelete", "nodes",
         "bench", "doctor", "reconcile", "inspect", "forget", "policy", "pin", "unpin", "label", "metric",
         "du", "export", "alias", "lease", "lineage", "import", "diff", "events", "token",
         "operation", "promote", "demote", "quota", "uploads", "gc", "webhooks", "watch", "profile", "uploader", "warmup",
         "reindex", "abort", "completion", "health")

TORCH_FILE = pathlib.Path(__file__).resolve().parents[1] / "vectors" / "torch" / "legacy.pt"


def shapes():
    """Fields of each command's answer, as docs/command.md lists them."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "command.md").read_text()
    table = page.split("<!-- shapes")[1].split("<!-- end shapes")[0]
    return {row[0]: set(re.findall(r"`(\w+)`", row[1]))
            for row in re.findall(r"^\| `([\w -]+)` \| (.*) \|$", table, re.M)}


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World(case=cls)
        source = cases.file(cls.world.root / "file", os.urandom(100_000))
        for step in (1, 2, 3):
            cls.world.cairn("put", source, f"c/run@{step}")

    def test_a_save_says_which_python_made_it_by_the_name_of_the_program(self):
        """libcairn in a program of that name; an interpreter that has loaded it is no other."""
        program = self.world.root / "python3.11"
        shutil.copy(BIN / "cairn", program)
        for name, version in ((program, "3.11"), (BIN / "cairn", None)):
            subprocess.run([name, "put", self.world.root / "file", "c/python@1", "--new-version"], check=True, timeout=HANG_S,
                           capture_output=True, env=self.world.env_of(LD_LIBRARY_PATH=str(BIN)))
            self.assertEqual(self.world.version("c/python", "1")["meta"]["origin"]["versions"].get("python"), version)

    def test_help_of_every_verb_begins_with_three_examples(self):
        for verb in VERBS:
            text = self.world.cairn(verb, "--help").stdout
            after = text.split("Examples:\n")[1].split("\nUsage:")[0]
            self.assertEqual(after.count(f"cairn {verb}"), 3, (verb, after))

    def test_every_verb_has_a_manual_page_with_each_of_its_flags(self):
        pages = {path.name: path.read_text() for path in (BIN / "man").glob("*.1")}
        self.assertEqual(set(pages), {"cairn.1", *(f"cairn-{verb}.1" for verb in (*VERBS, "catalog"))})
        for verb in VERBS:
            page = pages[f"cairn-{verb}.1"].replace("\\-", "-").replace("\\fR", "")
            said = self.world.cairn(verb, "--help").stdout
            flags = set(re.findall(r"^ +(?:-., )?--([a-z-]+)", said, re.MULTILINE))
            self.assertGreater(len(flags), 5)
            self.assertEqual(set(re.findall(r"\\fB--([a-z-]+)", page)), flags, verb)
            self.assertIn(f"\\fBcairn\\-{verb}\\fR(1)\n", pages["cairn.1"])
        for daemon in ("cairn-server", "cairn-uploader"):
            page = (BIN / "man8" / f"{daemon}.8").read_text().replace("\\-", "-")
            said = subprocess.run([BIN / daemon, "--help"], capture_output=True, text=True, check=True, timeout=HANG_S).stdout
            flags = re.findall(r"^  --(\S+)", said, re.MULTILINE)
            self.assertGreater(len(flags), 30)
            self.assertEqual(re.findall(r"^\.B --(\S+)", page, re.MULTILINE), flags, daemon)
            self.assertTrue(page.startswith(f'.TH "{daemon.upper()}" "8"'), page[:60])
        groff = shutil.which("groff")
        if not groff:
            self.skipTest("no groff: whether the pages are sound was not looked at")
        for path in sorted([*(BIN / "man").glob("*.1"), *(BIN / "man8").glob("*.8")]):
            said = subprocess.run([groff, "-man", "-ww", "-z", "-Tutf8", path], capture_output=True,
                                  text=True, timeout=HANG_S)
            self.assertEqual((said.returncode, said.stderr), (0, ""), path)

    def test_a_mistyped_verb_or_flag_is_status_2_and_names_the_nearest_one(self):
        self.assertIn("did you mean verify", self.world.cairn("verfiy", status=2).stderr)
        self.assertIn("did you mean --limit", self.world.cairn("ls", "--limt", "3", status=2).stderr)
        self.world.cairn("ls", "--output", "xml", status=2)
        self.world.cairn("ls", "no-slash", status=2)
        self.world.cairn("get", "c/run@../x", status=2)
        self.world.cairn("get", status=2)
        self.world.cairn("ls", "c/run", "more", status=2)
        self.world.cairn("ls", "--limit", "-1", status=2)

    def test_the_timeout_of_put_is_one_deadline_over_all_of_its_steps(self):
        env = {**os.environ, "CAIRN_JOB": "training", "CAIRN_SOCKET": self.world.socket(),
               "TRAINER_ROWS": "1", "TRAINER_HOLD": str(self.world.root / "hold")}
        job = subprocess.Popen([BIN / "tests/trainer", "busy/run", "0", "1", "7"],
                               stdout=subprocess.PIPE, text=True, env=env)
        self.addCleanup(lambda: (job.kill(), job.communicate()))
        line_of(job)  # it is open, and its step is held

        def refused(seconds):
            done = self.world.cairn("put", self.world.root / "file", "busy/run@1", "--timeout", f"{seconds:g}s", status=None)
            self.assertIn(done.returncode, (6, 8), done.stderr)
            return done.returncode == 6 and f"trying again for {seconds:g} s" in done.stderr
        in_time(refused, 2)

    def test_wrong_input_is_answered_with_what_to_write_instead(self):
        file, empty = self.world.root / "file", self.world.root / "no-store"
        empty.mkdir()
        away = {"CAIRN_SOCKET": str(self.world.root / "no.sock")}
        for words, status, said in (
                (("help", "verfiy"), 2, "did you mean verify"),
                (("put",), 2, "arguments are missing; usage: cairn put"),
                (("put", file), 2, "an argument is missing; usage: cairn put"),
                (("put", file, "c/run"), 2, "c/run@1000, for instance"),
                (("put", file, "c/run@latest"), 2, "c/run@1000, for instance"),
                (("put", "c/run@7", file), 2, f"the path stands first: cairn put {file} c/run@7"),
                (("put", file, "c/run@1"), 6, "--new-version would keep both"),
                (("put", file, "c/run@7", "--store", "ftp://x"), 2, "did not start"),
                (("ls", "c"), 2, "a run is project/run"),
                (("ls", "c/a b"), 2, "wanted: project/run or project/run@step"),
                (("ls", "--state", "open"), 2, "cairn ls project/run --state open"),
                (("ls", "--limit", "0"), 2, "--limit: at least 1"),
                (("ls", "--store", empty), 5, "is it mounted"),
                (("ls", "--token-file", "/nosuch"), 2, "the token file"),
                (("show", "c/run@"), 2, "it is a step, latest, best, an alias, or an id"),
                (("show", "c/run@9"), 3, "cairn show: run c/run has no checkpoint 9"),
                (("get", "c/run@1", "--shard", "nosuch"), 3, "cairn show c/run@1 lists the shards"),
                (("get", "c/run@1", "-d", self.world.root / ("x" * 5000)), 2, "too long"),
                (("get", "c/run@1", "--workers", "0"), 2, "--workers: at least 1"),
                (("get", "c/run@1", "out"), 2, 'one argument too many: "out" (is --directory out meant?); usage: cairn get'),
                (("get", "c/run@1", "-o", "out"), 2, "or name, not out (is --directory out meant?)"),
                (("verify", "c/run@1", "s3://b"), 2, "is --store s3://b meant?"),
                (("promote", "c/run@1", "archive"), 2, "is --to archive meant?"),
                (("demote", "c/run@1", "main"), 2, "is --from main meant?"),
                (("wait", "c/run@1", "gone"), 2, "is --for gone meant?"),
                (("reindex", self.world.store, "new.db"), 2, "is --catalog new.db meant?"),
                (("quota", "set", "c", "1TiB"), 2, "is --bytes 1TiB meant?"),
                (("token", "create", "me", "nlp"), 2, "is --project nlp meant?"),
                (("up", "dir", "s3://b"), 2, "is --store s3://b meant?"),
                (("bench", "save", "c/run", "1GiB"), 2, "is --bytes 1GiB meant?"),
                (("warmup", "node", "c/run", "8"), 2, "is --ranks 8 meant?"),
                (("export", "c/run@1", "out", "torch"), 2, "is --to torch meant?"),
                (("show", "c/run@1", "more"), 2, 'one argument too many: "more"; usage: cairn show'),
                (("verify", "c/run@1", "--read-data-subset", "3/2"), 2, "1 <= N <= T"),
                (("wait", "c/run@1", "--for", "whole"), 2, "what can is begun, decided, staged, durable, committed"),
                (("wait", "c/run@1", "--for", "promoted"), 2, "promoted:STORE"),
                (("wait", "c/run@1", "--for", "gone:main"), 2, "promoted:STORE"),
                (("wait", "op_1", "--for", "gone"), 2, "to its end alone"),
                (("wait", "c/none@1", "--timeout", "60s"), 3, "there is no run c/none"),
                (("resume", "c/run@1"), 2, "resume takes a run without @: c/run"),
                (("rm", "c/run"), 2, "name the checkpoint: c/run@step"),
                (("undelete", "c/run@latest"), 2, "latest is never in the trash"),
                (("nodes", "node-0"), 2, "want ls, or rm NODE, not \"node-0\""),
                (("nodes", "rm"), 2, "want ls, or rm NODE"),
                (("nodes", "rm", "nobody"), 3, "nobody"),
                (("bench", "frob"), 2, "bench takes save or restore"),
                (("bench", "save", "c/run@1"), 2, "bench takes a run without @: c/run"),
                (("bench", "save", "--bytes", "1"), 2, "--bytes is at least 4"),
                (("bench", "save", "--steps", "0"), 2, "--steps: at least 1"),
                (("doctor",), 2, "name the store to test, or set CAIRN_STORE"),
                (("reconcile", "c/run@1"), 2, "reconcile takes a run without @: c/run"),
                (("up", self.world.root / "up", "--store", "ftp://x"), 2, "did not start"),
                (("up", file), 1, "Not a directory")):
            with self.subTest(words=words):
                answer = self.world.cairn(*words, status=status, env=away if "--store" in words else None)
                self.assertIn(said, answer.stderr)

    def test_an_answer_of_another_form_is_a_protocol_error_that_names_the_member(self):
        version = {"version": "ckpt_00000000-0000-8000-8000-000000000000", "project": "c",
                   "run": "run", "step": "1", "state": "committed"}
        answers = {"/v1/runs": {"items": 3}, "/v1/nodes": {"items": [{"node": 7}]},
                   "/v1/runs/c/run/checkpoints": {"items": [{}]},
                   "/v1/runs/c/run/checkpoints/latest": version,
                   "/v1/runs/c/run/reconcile": {"project": "c", "run": "run"}}

        url = cases.StandIn(lambda request: (200, answers[request.path.split("?")[0]]), case=self).url
        for words, member in ((("ls",), "/items"), (("nodes",), "/node"),
                              (("ls", "c/run"), "/version"), (("show", "c/run"), "/step"),
                              (("get", "c/run"), "/step"), (("resume", "c/run"), "/step"),
                              (("wait", "c/run"), "/step"), (("rm", "c/run@latest", "--yes"), "/step"),
                              (("reconcile", "c/run"), "/frozen")):
            said = self.world.cairn(*words, "--server", url, status=1).stderr
            self.assertIn(f"the server's answer: {member}: ", said, words)

    def test_a_missing_checkpoint_or_run_is_status_3_and_a_server_that_is_away_status_5(self):
        self.world.cairn("show", "c/run@9", status=3)
        self.world.cairn("show", "c/nowhere", status=3)
        self.world.cairn("ls", "c/nowhere", status=3)
        self.world.cairn("ls", status=5, env={"CAIRN_URL": "http://127.0.0.1:9"})

    def test_a_list_has_the_same_items_as_table_json_jsonl_and_name(self):
        table = self.world.cairn("ls", "c/run").stdout
        self.assertIn("latest", table.splitlines()[1])
        items = self.world.json("ls", "c/run")
        self.assertEqual([i["step"] for i in items], [3, 2, 1])
        lines = self.world.cairn("ls", "c/run", "-o", "jsonl").stdout.splitlines()
        self.assertEqual([json.loads(line)["step"] for line in lines], [3, 2, 1])
        names = self.world.cairn("ls", "c/run", "-o", "name", "-n", "2").stdout.split()
        self.assertEqual(names, [f"c/run@{i['version']}" for i in items[:2]])
        self.assertIn("c/run\n", self.world.cairn("ls", "-o", "name").stdout)
        self.world.cairn("show", names[0])  # a name is what commands take
        first = "/v1/runs/c/run/checkpoints?limit=2&state=committed"
        headers = self.world.get(first)[1]
        self.assertRegex(headers["Link"], r'^<\?cursor=\S+&limit=2&state=committed>; rel="next"$')
        _, headers, body = self.world.get(urllib.parse.urljoin(first, headers["Link"][1:].split(">")[0]))
        self.assertEqual(([item["step"] for item in json.loads(body)["items"]], "Link" in headers), ([1], False))
        runs = self.world.json("ls")
        self.assertIn("run", [r["run"] for r in runs])
        self.assertEqual(self.world.cairn("resume", "c/run").stdout, "3\n")
        shown = self.world.cairn("show", "c/run@2").stdout
        self.assertIn("committed", shown)
        self.assertIn("file", shown)

    def test_ls_and_show_of_a_store_print_what_they_print_of_its_server(self):
        for step in (1, 2, 3):
            self.world.cairn("put", self.model(), f"s/run@{step}")
        self.world.cairn("rm", "s/run@3")
        self.world.cairn("put", self.model(), "s/other@7")
        store = ("--store", self.world.store)
        nobody = {"CAIRN_URL": "http://127.0.0.1:9"}  # no server is asked
        only_catalog = {"copies", "created_at", "staged_at", "durable_at", "stall_ms", "labels", "nodes_silent_ms", "committed_at", "last_commit_at", "idle_s"}

        def compare(*words):
            one = self.world.json(*words)
            two = self.world.json(*words, *store, env=nobody)
            self.assertEqual(len(one), len(two))
            for a, b in zip(one, two) if isinstance(one, list) else ((one, two),):
                self.assertEqual(set(a), set(b), words)
                self.assertEqual({k: v for k, v in a.items() if k not in only_catalog},
                                 {k: v for k, v in b.items() if k not in only_catalog}, words)
            return two

        steps = compare("ls", "s/run")
        self.assertEqual([v["step"] for v in steps], [3, 2, 1])
        self.assertEqual([v["trashed"] for v in steps], [True, False, False])
        compare("show", "s/run@latest")
        compare("show", f"s/run@{steps[2]['version']}")
        runs = {r["run"]: r for r in self.world.json("ls", *store, env=nobody) if r["project"] == "s"}
        self.assertEqual({name: (r["committed"], r["latest"]["step"]) for name, r in runs.items()},
                         {"run": (3, 2), "other": (1, 7)})
        # Shards, tensors and how many shards hold none, as people see them.
        lists = [self.world.cairn("show", "s/run@2", *more).stdout.split("\n\n")[1:] for more in ((), store)]
        self.assertTrue(lists[0].pop().startswith("WHEN "))  # events are the catalog's
        self.assertEqual([part.rstrip() for part in lists[0]], [part.rstrip() for part in lists[1]])
        self.assertEqual(len(lists[0]), 3)
        self.world.cairn("ls", "s/nowhere", *store, env=nobody, status=3)
        self.world.cairn("show", "s/run@9", *store, env=nobody, status=3)
        self.world.cairn("ls", "s/run", "--state", "open", *store, env=nobody, status=2)

    def test_ls_of_a_store_shows_a_damaged_checkpoint_and_those_beside_it(self):
        for step in (1, 2):
            self.world.cairn("put", self.model(), f"d/run@{step}")
        manifest = [p for p in self.world.stored("manifest.json") if "000000000001" in p.parts and "d" in p.parts][0]
        os.chmod(manifest, 0o644)
        manifest.write_bytes(b"{}")
        steps = self.world.json("ls", "d/run", "--store", self.world.store)
        self.assertEqual([(v["step"], v["state"]) for v in steps], [(2, "committed"), (1, "damaged")])
        self.assertIn("manifest.json", steps[1]["reason"])

    def model(self):
        """A folder with a file of tensors and one of bytes."""
        folder = self.world.root / "model"
        if not folder.exists():
            folder.mkdir()
            safetensors(folder / "model.safetensors", 3)
            (folder / "bytes.bin").write_bytes(b"b" * 1000)
        return folder

    def test_json_answers_have_exactly_the_fields_that_the_page_of_the_command_lists(self):
        shown = shapes()
        self.world.cairn("put", self.model(), "shape/run@1")

        def ask(*words, status=0):
            return self.world.json(*words, status=status)

        def expect(row, answer):
            self.assertEqual(set(answer), shown[row], row)

        expect("put", ask("put", self.model(), "shape/run@2"))
        expect("ls", ask("ls")[0])
        expect("show", ask("ls", "shape/run")[0])
        for words in (("show", "shape/run@2"), ("wait", "shape/run@2"), ("resume", "shape/run"),
                      ("rm", "shape/run@2"), ("undelete", "shape/run@2")):
            expect("show", ask(*words))
        expect("get", ask("get", "shape/run@2", "-d", self.world.root / "shape-back"))
        expect("verify", ask("verify", "shape/run@2"))
        wait_until(lambda: "node-0" in self.world.cairn("nodes").stdout)
        expect("nodes", ask("nodes")[0])
        expect("doctor", ask("doctor", self.world.store))
        expect("reconcile", ask("reconcile", "shape/run"))
        expect("reindex", ask("reindex", self.world.store, "--dry-run"))
        expect("inspect", ask("inspect", TORCH_FILE))
        for words in (("pin", "shape/run@2"), ("unpin", "shape/run@2"), ("label", "shape/run@2", "a=b"),
                      ("metric", "shape/run@2", "a=1")):
            expect("show", ask(*words))
        expect("policy get", ask("policy", "get", "shape/run"))
        expect("forget", ask("forget", "shape/run", "--keep-last", "9", "--yes"))
        plan = ask("policy", "test", "shape/run", "--keep-last", "9")
        self.assertEqual(set(plan) | {"removed"}, shown["forget"])
        self.assertEqual(set(plan["versions"][0]), shown["versions of a plan"])
        expect("alias set", ask("alias", "set", "shape/run@2", "good"))
        expect("alias ls", ask("alias", "ls", "shape/run")[0])
        expect("show", ask("show", "shape/run@good"))
        expect("show --why", ask("show", "--why", "shape/run@2"))
        expect("lineage", ask("lineage", "shape/run@2")[0])
        expect("lease take", ask("lease", "take", "shape/run@2", "--job", "shape"))
        expect("lease ls", ask("lease", "ls", "shape/run@2")[0])
        expect("lease rm", ask("lease", "rm", "shape/run@2", ask("lease", "ls", "shape/run@2")[0]["lease"]))
        made = ask("token", "create", "--scope", "read", "--project", "*", "--expires", "1h", "shape")
        expect("token create", made)
        expect("token list", ask("token", "list")[0])
        expect("token whoami", ask("token", "whoami"))
        expect("token revoke", ask("token", "revoke", made["id"]))
        expect("quota ls", ask("quota", "ls")[0])
        expect("quota ls", ask("quota", "get", "shape"))
        self.world.cairn("alias", "rm", "shape/run", "good")
        lines = self.world.cairn("events", "shape/run", "--since", "0", "--json").stdout.splitlines()
        self.assertEqual({key for line in lines for key in json.loads(line)} |
                         {"code", "store", "operation", "node", "token", "webhook"},
                         shown["events"])
        of_one = self.world.cairn("events", "shape/run@2").stdout
        self.assertIn(" checkpoint.trashed shape/run@2 ckpt_", of_one)
        self.assertIn(": by hand by 127.0.0.1", of_one)
        expect("du", ask("du")[0])
        self.assertEqual(set(ask("du", "shape/run")[0]), shown["du RUN"])
        expect("du --idle", ask("du", "--idle", "0s")[0])
        expect("export", ask("export", TORCH_FILE, self.world.root / "shape-export"))
        expect("diff", ask("diff", "--tensors", TORCH_FILE, TORCH_FILE))
        expect("put", ask("import", "torch", TORCH_FILE, "shape/run@3"))
        process, said = Up.start(self, self.world.root / "shape-up")
        expect("up", said)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(HANG_S), 0)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual({row for row, fields in shown.items() if len(fields) > 2},
                         {"up", "put", "ls", "show", "get", "verify", "nodes", "doctor",
                          "reindex", "reconcile", "inspect", "policy get", "forget", "versions of a plan", "du",
                          "du RUN", "du --idle", "export", "diff", "alias ls", "lineage", "lease take", "lease ls", "lease rm",
                          "events", "show --why", "token create", "token list", "token revoke", "token whoami",
                          "quota ls", "operation show", "uploads ls", "uploads abort", "gc", "gc --not-freed", "webhooks ls",
                          "webhooks letters", "profile ls", "uploader status", "warmup node"})  # these:
        # test_operations.py, test_uploads.py, test_not_freed.py, test_webhooks.py, test_profile.py, test_uploader.py,
        # test_warmup.py

    def test_a_failure_is_one_object_on_the_last_line_where_json_was_asked_for(self):
        for words, code, status, http in (
                (("show", "c/run@9", "--json"), "not-found", 3, 404),
                (("ls", "c/nowhere", "-o", "jsonl"), "not-found", 3, 404),
                (("get", "c/run@1", "--store", "/nosuch", "--json"), None, None, None),
                (("ls", "--json", "--limit", "x"), "invalid", 2, None),
                (("ls", "--output", "json", "--limit", "x"), "invalid", 2, None),
                (("ls", "-o", "jsonl", "--nosuch"), "invalid", 2, None),
                (("verfiy", "--json"), "invalid", 2, None),
                (("ls", "--json", "--server", "http://127.0.0.1:9"), "unavailable", 5, None)):
            said = self.world.cairn(*words, status=status)
            why = json.loads(said.stderr.splitlines()[-1])
            self.assertEqual(said.stdout, "", words)
            self.assertEqual(why["verb"], words[0])
            self.assertEqual(why["exit"], said.returncode)
            self.assertIn("message", why)
            self.assertIn("retryable", why)
            if code:
                self.assertEqual((why["code"], why.get("http_status")), (code, http), why)
        plain = self.world.cairn("show", "c/run@9", status=3).stderr
        self.assertTrue(plain.startswith("cairn show: "), plain)

    def test_resume_of_a_run_without_a_checkpoint_is_status_0_only_in_a_known_project(self):
        self.assertEqual(self.world.cairn("resume", "c/run", "--or-none").stdout, "3\n")
        self.world.cairn("resume", "c/first", status=3)
        said = self.world.cairn("resume", "c/first", "--or-none")
        self.assertEqual((said.stdout, said.stderr), ("", ""))
        self.assertEqual(self.world.cairn("resume", "c/first", "--or-none", "--json").stdout, "null\n")
        said = self.world.cairn("resume", "nobody/first", "--or-none", status=3)
        self.assertIn("project nobody", said.stderr)
        self.world.cairn("resume", "c/first", "--or-none", status=5, env={"CAIRN_URL": "http://127.0.0.1:9"})
        self.world.cairn("resume", "c/run@2", status=2)

    def test_a_reader_who_leaves_early_is_no_message_and_a_full_disk_is_one(self):
        source = cases.made(self.world.root / "read-in-part")
        (source / "f").write_bytes(b"x")
        self.world.cairn("put", source, "c/read@1")
        for words in (("ls",), ("ls", "c/read"), ("show", "c/read@1"), ("show", "c/read@1", "--json")):
            reader, writer = os.pipe()
            os.close(reader)  # as head does when it has its lines
            for output, said in ((writer, ""), (os.open("/dev/full", os.O_WRONLY), "standard output: No space")):
                with open(output, "wb") as stdout:
                    done = self.world.cairn(*words, stdout=stdout, status=None)
                self.assertNotEqual(done.returncode, 0, words)
                self.assertIn(said, done.stderr, words)
                self.assertEqual(bool(said), bool(done.stderr), (words, done.stderr))

    def test_control_characters_of_names_and_labels_are_not_printed(self):
        source = cases.made(self.world.root / "escapes")
        name = "\x1b[31mred\x07\u009b2J\u202etxt"
        cases.safetensors(source / "m.safetensors", {name: ("U8", [4], b"data")})
        label = "\u009b2J\u202eä"
        self.world.cairn("put", source, "c/escapes@1", "--labels", json.dumps({"k": "a\x7f"}), status=2)
        self.world.cairn("put", source, "c/escapes@1", "--labels", json.dumps({"k": label}))
        cases.file([p for p in self.world.stored("m.safetensors") if "escapes" in p.parts][0].parent / "stray\x1b[2J", b"?")
        for words in (("show", "c/escapes@1"), ("show", "c/escapes@1", "--store", self.world.store),
                      ("verify", "c/escapes@1"),
                      ("verify", "c/escapes@1", "--store", self.world.store)):
            said = self.world.cairn(*words)
            for bad in ("\x1b", "\x07", "\u009b", "\u202e"):
                self.assertNotIn(bad, said.stdout + said.stderr, words)
        said = self.world.cairn("show", "c/escapes@1", "--json").stdout
        self.assertEqual(json.loads(said)["labels"], {"k": label})
        for bad in ("\u009b", "\u202e"):
            self.assertNotIn(bad, said)
        self.assertIn("red?", self.world.cairn("show", "c/escapes@1").stdout)

    def test_doctor_of_a_folder_that_is_not_there_says_so_and_makes_none(self):
        missing = self.world.root / "no-such-store"
        said = self.world.cairn("doctor", missing, status=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn(f"there is no folder {missing}", said.stdout)
        self.assertFalse(missing.exists())

    def test_get_follows_no_link_below_its_folder_and_replaces_nothing(self):
        source, outside = self.world.root / "nested", self.world.root / "outside"
        (source / "sub").mkdir(parents=True)
        outside.mkdir()
        (source / "sub/file").write_bytes(b"kept")
        self.world.cairn("put", source, "c/nested@1")
        for store in ((), ("--store", self.world.store)):
            back = cases.made(self.world.root / f"back-{len(store)}")
            (back / "sub").symlink_to(outside)
            said = self.world.cairn("get", "c/nested@1", "-d", back, *store, status=6)
            self.assertIn("sub is a link or no folder", said.stderr)
            self.assertEqual(list(outside.iterdir()), [])

    def test_one_file_shard_rank_or_tensor_is_counted_in_the_singular(self):
        source = cases.made(self.world.root / "single")
        safetensors(source / "one.safetensors", 1)
        said = self.world.cairn("put", source, "c/single@1").stdout
        self.assertIn("1 file, ", said)
        self.assertIn("1 tensor\n", said)
        self.assertIn("in 1 shard of 1 rank\n", self.world.cairn("show", "c/single@1").stdout)
        self.assertIn(": 1 shard checked", self.world.cairn("verify", "c/single@1").stdout)
        out = self.world.root / "single-back"
        self.assertIn(": 1 shard, ", self.world.cairn("get", "c/single@1", "-d", out).stdout)

    def test_put_with_a_store_works_in_tmpdir_and_leaves_nothing_there(self):
        source = cases.file(self.world.root / "small", b"s" * 10)
        here = cases.made(self.world.root / "temporary")
        words = ("put", source, "c/tmp@1", "--store", self.world.store)
        away = {"CAIRN_SOCKET": str(self.world.root / "no.sock")}
        said = self.world.cairn(*words, env={**away, "TMPDIR": str(here / "none")}, status=None)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn(str(here / "none"), said.stderr)
        self.world.cairn(*words, env={**away, "TMPDIR": str(here)})
        self.assertEqual(list(here.iterdir()), [])
        words = ("put", source, "c/tmp@2", "--store", self.world.store)
        self.world.cairn(*words, env={**away, "TMPDIR": "/" + 90 * "t"})  # no path for a socket

    def test_a_checkpoint_in_the_trash_is_not_resumed_from_and_undelete_brings_it_back(self):
        source = cases.file(self.world.root / "trash", b"t" * 10)
        version = self.world.json("put", source, "c/trash@1")["version"]
        self.world.cairn("put", source, "c/trash@2")
        self.world.cairn("rm", "c/trash@1")
        self.world.cairn("show", "c/trash@1", status=None)
        self.assertEqual(self.world.cairn("resume", "c/trash").stdout, "2\n")
        self.world.cairn("undelete", f"c/trash@{version}")
        self.world.cairn("verify", "c/trash@1")
        self.world.cairn("rm", "c/trash", status=2)

    def test_rm_of_latest_removes_what_was_looked_at_and_asks_on_a_terminal(self):
        source = cases.file(self.world.root / "asked", b"a" * 10)
        for step in (1, 2):
            self.world.cairn("put", source, f"c/asked@{step}")
        said = self.world.cairn("rm", "c/asked@latest", status=2)
        self.assertIn("--yes", said.stderr)
        for answer, left in (("n\n", "2\n"), ("\n", "2\n"), ("y\n", "1\n")):
            shown = self.world.on_a_terminal(answer, "rm", "c/asked@latest", status=0 if answer == "y\n" else 1)
            self.assertIn("Into the trash? [y/N]", shown)
            self.assertEqual(self.world.cairn("resume", "c/asked").stdout, left)
        self.world.cairn("rm", "c/asked@latest", "--yes")
        self.world.cairn("resume", "c/asked", status=3)

    def test_rm_refuses_an_argument_that_names_no_certain_version_before_it_removes_another(self):
        source = cases.file(self.world.root / "several", b"s" * 10)
        for step in (1, 2):
            self.world.cairn("put", source, f"c/several@{step}")
        for wrong in ("c/several", "c/several@", "c/several@007", "c/several@latest"):
            self.world.cairn("rm", "c/several@1", wrong, status=2)
            self.world.cairn("show", "c/several@1")
        self.world.cairn("rm", "c/several@1", "c/several@2")
        self.world.cairn("resume", "c/several", status=3)

    def test_wait_ends_by_its_timeout_and_when_the_version_commits(self):
        self.world.cairn("wait", "c/run@1", "--timeout", f"{HANG_S}s")
        self.world.cairn("wait", "c/run@77", "--timeout", "1s", status=8)

    def test_plain_progress_is_whole_lines_without_carriage_returns(self):
        out = self.world.root / "progress"
        said = self.world.cairn("get", "c/run@1", "-d", out, env={"CAIRN_PROGRESS": "plain"})
        self.assertIn("pct=100", said.stderr)
        self.assertNotIn("\r", said.stderr)

    def test_a_node_is_listed_once_its_uploader_was_heard(self):
        wait_until(lambda: "node-0" in self.world.cairn("nodes").stdout)

    def test_bench_prints_a_line_for_each_save_and_restores_what_it_saved(self):
        said = self.world.cairn("bench", "save", "--ranks", "2", "--bytes", "8MiB", "--steps", "2")
        rows = [json.loads(line) for line in said.stdout.splitlines()]
        self.assertEqual(len(rows), 2)
        self.assertEqual(rows[0]["bytes"], 16 << 20)
        said = self.world.cairn("bench", "restore", "--ranks", "2", "--bytes", "8MiB", "--steps", "1")
        self.assertTrue(json.loads(said.stdout)["checked"])


class Up(unittest.TestCase):
    def start(self, folder, env=None):
        process = subprocess.Popen([BIN / "cairn", "up", folder, "--listen", "127.0.0.1:0", "--json",
                                    "--memory", "256MiB"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        return process, json.loads(line_of(process))

    def test_ctrl_c_stops_both_cleanly_and_the_folder_can_be_used_again(self):
        world = World(nodes=0)
        try:
            source = cases.file(world.root / "f", b"kept" * 1000)
            for attempt in (1, 2):
                process, said = self.start(world.root / "up")
                env = {"CAIRN_URL": said["url"], "CAIRN_SOCKET": said["socket"]}
                world.cairn("put", source, f"u/run@{attempt}", env=env)
                steps = world.json("ls", "u/run", env=env)
                self.assertEqual(len(steps), attempt)
                children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)],
                                          capture_output=True, text=True, check=True).stdout.split()
                self.assertEqual(len(children), 2)
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(HANG_S), 0, process.stderr.read())
                for child in children:
                    self.assertFalse(os.path.exists(f"/proc/{child}"))
                process.stdout.close()
                process.stderr.close()
        finally:
            world.close()

    def test_daemons_end_when_their_starter_is_killed(self):
        world = World(nodes=0)
        try:
            process, _ = self.start(world.root / "up")
            children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)],
                                      capture_output=True, text=True, check=True).stdout.split()
            process.kill()
            process.wait()
            for child in children:
                wait_until(lambda pid=child: not os.path.exists(f"/proc/{pid}") or
                           "Z" in pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2], 40)
            process.stdout.close()
            process.stderr.close()
        finally:
            world.close()

    def test_a_socket_for_which_the_folders_path_is_too_long_lies_in_a_folder_of_this_user_alone(self):
        world = World(nodes=0, case=self)
        temporary = tempfile.mkdtemp(prefix="c-", dir="/tmp")
        self.addCleanup(shutil.rmtree, temporary, ignore_errors=True)
        mine = pathlib.Path(temporary) / f"cairn-{os.geteuid()}"
        folder = world.root / ("long" * 20) / "up"
        env = {**os.environ, "TMPDIR": temporary}
        mine.mkdir(mode=0o755)
        mine.chmod(0o777)
        said = cases.run([BIN / "cairn", "up", folder], env=env, status=4)
        self.assertIn(f"{mine} must be a folder of this user that nobody else may enter", said.stderr)
        mine.rmdir()
        process, started = self.start(folder, env=env)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(pathlib.Path(started["socket"]).parent, mine)
        self.assertEqual(mine.stat().st_mode & 0o777, 0o700)
        source = cases.file(world.root / "f", b"kept" * 1000)
        world.cairn("put", source, "u/run@1", env={"CAIRN_URL": started["url"], "CAIRN_SOCKET": started["socket"]})

    def test_up_on_a_port_that_is_taken_names_the_port(self):
        world = World(nodes=0)
        try:
            said = world.cairn("up", world.root / "up", "--listen", f"127.0.0.1:{world.port}", status=5)
            self.assertIn(f"127.0.0.1:{world.port} is taken", said.stderr)
        finally:
            world.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
