# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=20 engines=again
"""What counts as newest, as the command, the store alone and a catalog made anew say it: an older step that is put
later, and a history that is imported, do not become latest."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import cases
import postgres
from world import BIN, HANG_S, World

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import read_without_cairn as plain  # noqa: E402

RUN = "llm/x"
AWAY = {"CAIRN_URL": "http://127.0.0.1:9"}


class Newest(unittest.TestCase):
    def setUp(self):
        self.root = cases.folder(self)
        self.world = World(env={"CAIRN_RECONCILE_WAIT": "0ms"}, case=self)
        self.file = cases.safetensors(self.root / "model.safetensors", {"w": ("F32", [2], bytes(8))})

    def put(self, step, *more, status=0):
        return self.world.cairn("put", self.file, f"{RUN}@{step}", *more, status=status)

    def latest(self):
        """As the server, the command with the store alone and plain Python say it: a step."""
        told = self.world.json("show", f"{RUN}@latest")
        stored = self.world.json("show", f"{RUN}@latest", "--store", self.world.store, env=AWAY)
        found = plain.find(pathlib.Path(self.world.store) / RUN, "latest")
        self.assertEqual({told["version"], stored["version"]}, {found.name})
        rows = [row for words in ((), ("--store", self.world.store)) for row in self.world.json("ls", RUN, *words)]
        self.assertEqual([row["version"] for row in rows if row.get("latest")], 2 * [found.name])
        return told["step"]

    def reindex(self):
        """The catalog is lost, and made anew from the store."""
        self.world.server.stop()
        old, new = self.world.root / "server", self.world.root / "new"
        new.mkdir(mode=0o700)
        shutil.copy(old / "grant.key", new)
        self.world.catalog = postgres.catalog()
        to = ["--catalog", self.world.catalog, "--data-dir", new] if self.world.catalog else ["--catalog", new]
        self.world.cairn("reindex", self.world.store, *to)
        shutil.rmtree(old)
        new.rename(old)
        self.world.start_server()

    def test_an_older_step_that_a_policy_removes_at_once_is_told_as_not_kept(self):
        self.put(900)
        self.world.cairn("policy", "set", RUN, "--keep-last", "1")
        said = self.put(100, status=6)
        self.assertIn("committed llm/x@100 as ckpt_", said.stdout)
        self.assertIn("into the trash at once, since step 900 is newer", said.stderr)
        version = said.stdout.split(" as ")[1].split(":")[0]
        self.assertIn(f"cairn undelete {RUN}@{version}, then cairn pin", said.stderr)
        said = self.put(200, "--json", status=6)
        self.assertEqual([json.loads(said.stdout)[name] for name in ("latest", "trashed")], [False, True])
        self.assertEqual(json.loads(said.stderr.splitlines()[-1])["code"], "conflict")
        # The way out that the message names.
        self.world.cairn("undelete", f"{RUN}@{version}")
        self.world.cairn("pin", f"{RUN}@{version}")
        self.assertIs(json.loads(self.put(300, "--latest", "--json").stdout)["trashed"], False)
        self.assertIs(self.world.json("show", f"{RUN}@{version}")["trashed"], False)

    def test_an_older_step_is_latest_only_where_that_is_asked_for(self):
        self.assertIs(json.loads(self.put(900, "--json").stdout)["latest"], True)
        said = self.put(100)
        self.assertIn("step 900 stays latest", said.stderr)
        self.assertEqual(self.latest(), 900)
        self.assertIs(json.loads(self.put(200, "--json").stdout)["latest"], False)
        self.assertEqual(self.latest(), 900)
        self.assertNotIn("latest", self.put(150, "--latest").stderr)
        self.assertEqual(self.latest(), 150)
        self.put(160)
        self.assertEqual(self.latest(), 160)

    def test_a_history_of_older_steps_is_imported_behind_what_is_there(self):
        self.put(900)
        for step in (300, 100, 200):
            self.world.cairn("import", "safetensors", self.file, f"{RUN}@{step}")
        self.assertEqual(self.latest(), 900)
        plan = self.world.json("forget", RUN, "--keep-last", "2", "--dry-run")
        self.assertEqual([(row["step"], row["fate"]) for row in plan["versions"]],
                         [(900, "keep"), (300, "keep"), (200, "remove"), (100, "remove")])
        self.world.cairn("import", "safetensors", self.file, f"{RUN}@400", "--latest")
        self.assertEqual(self.latest(), 400)

    def test_a_history_is_imported_into_an_empty_run_in_any_order(self):
        for step in (300, 100, 200):
            self.world.cairn("import", "safetensors", self.file, f"{RUN}@{step}")
        self.assertEqual(self.latest(), 300)

    def test_a_reindex_says_the_same_and_a_put_that_goes_on_over_it_is_not_latest(self):
        self.put(900)
        self.put(100)
        body = {"job": "late", "world_size": 1, "resume": "keep", "after": 2, "node": "n", "wait_staged_ms": 0,
                "ranks": [{"rank": 0, "proc": 32 * "0"}]}
        subprocess.run(["curl", "-sf", f"{self.world.url}/v1/runs/{RUN}/attempts", "--json", json.dumps(body)],
                       check=True, capture_output=True, timeout=HANG_S)
        self.reindex()
        self.assertEqual(self.latest(), 900)
        self.train("late", "keep", 200)
        self.assertEqual(self.world.version(RUN, "200")["attempt"], 3)
        self.assertEqual(self.latest(), 900)

    def test_what_a_trainer_saves_after_it_is_latest_and_it_goes_on_from_that(self):
        self.put(900)
        self.put(100)
        self.train("back", "100", 120)
        self.assertEqual(self.latest(), 120)
        self.train("again", "latest", 130)
        self.assertEqual(self.latest(), 130)

    def train(self, job, resume, step):
        env = {**os.environ, "CAIRN_JOB": job, "CAIRN_RESUME": resume, "TRAINER_ROWS": "1",
               "CAIRN_SOCKET": self.world.socket(), "TRAINER_META": "{}"}
        subprocess.run([BIN / "tests/trainer", RUN, "0", "1", str(step)], env=env, check=True, capture_output=True,
                       timeout=HANG_S)

    def test_records_that_are_lost_or_damaged_make_no_older_step_latest(self):
        self.put(900)
        self.put(100)
        run = pathlib.Path(self.world.store) / RUN
        for path in run.glob("attempts/000000000002*.json"):
            path.unlink()
        self.assertEqual(plain.find(run, "latest").parent.name, f"{900:012}")
        told = self.world.cairn("show", f"{RUN}@latest", "--json", "--store", self.world.store, env=AWAY)
        self.assertEqual(json.loads(told.stdout)["step"], 900)
        record = next(run.glob(f"{100:012}/*/committed.json"))
        record.chmod(0o644)
        record.write_bytes(record.read_bytes().replace(b'"line":1', b'"line":9'))
        self.world.cairn("get", f"{RUN}@latest", "--store", self.world.store, "-d", self.root / "never",
                         env=AWAY, status=7)


if __name__ == "__main__":
    unittest.main(verbosity=2)
