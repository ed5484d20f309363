# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
"""Three readers, one answer: server, `cairn get --store` and plain Python over histories that were
made at random: resumes, revivals, saves that supersede, the trash, lost and empty records."""
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

import cases
from world import BIN, HANG_S, World

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
import read_without_cairn as plain  # noqa: E402

RUN = "h/run"
SEEDS = int(os.environ.get("CAIRN_SEEDS", "3"))
READER = pathlib.Path(plain.__file__)
# Of meta: all integers of 64 bits, and all finite numbers of IEEE 754, may stand there.
NUMBERS = [0, -1, -(1 << 63), (1 << 63) - 1, (1 << 53) + 1, 3.0, -0.0, 0.1, -2.5, 1 / 3, 1e22, 1e300, -1.5e-7,
           5e-324, -2.2250738585072014e-308, 1.7976931348623157e308, 123456789.12345679]
plain.say = lambda _: None  # what it says is looked at where the program itself is run


class Histories(unittest.TestCase):
    def setUp(self):
        self.world = World(case=self)
        self.store = pathlib.Path(self.world.store)
        self.run_folder = self.store / RUN
        self.count = 0

    # ---- what happens ----

    def train(self, resume, *steps, supersede=False, meta="{}"):
        self.count += 1
        env = {**os.environ, "CAIRN_JOB": f"job-{self.count}", "CAIRN_RESUME": str(resume),
               "TRAINER_ROWS": "1", "CAIRN_SOCKET": self.world.socket(), "TRAINER_META": meta}
        if supersede:
            env["TRAINER_SUPERSEDE"] = "1"
        done = subprocess.run([BIN / "tests/trainer", RUN, "0", "1", *map(str, steps or [""])],
                              env=env, capture_output=True, text=True, check=False, timeout=HANG_S)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def resume(self, resume):
        """An attempt that never saves: what a job leaves that dies at once."""
        self.count += 1
        newest = self.attempts()
        body = {"job": f"job-{self.count}", "world_size": 1, "resume": str(resume),
                "after": newest, "node": "n", "wait_staged_ms": 0,
                "ranks": [{"rank": 0, "proc": f"{self.count:032x}"}]}
        return self.post(f"/v1/runs/{RUN}/attempts", body)

    def post(self, path, body=None):
        status, _, answer = self.world.call("POST", path, body or {})
        return status, answer

    def attempts(self):
        status, _, body = self.world.get(f"/v1/runs/{RUN}")
        return json.loads(body)["attempt"] if status == 200 else 0

    def items(self):
        _, _, body = self.world.get(f"/v1/runs/{RUN}/checkpoints?limit=1000")
        return json.loads(body)["items"]

    def record(self, number, copy=False):
        return self.run_folder / f"attempts/{number:012}{'.copy' if copy else ''}.json"

    # ---- what the three say ----

    def by_server(self, ref):
        found = self.world.version(RUN, ref)
        return found["version"] if found and found["state"] == "committed" else None

    def by_store(self, ref, status=(0, 3)):
        self.count += 1
        said = self.world.cairn("get", f"{RUN}@{ref}", "--store", self.store, "--shard",
                                "rank-00000/state", "--json", "-d",
                                self.world.root / f"out-{self.count}", status=None,
                                env={"CAIRN_URL": "http://127.0.0.1:9"})
        self.assertIn(said.returncode, status, said.stderr)
        return (json.loads(said.stdout)["version"] if said.returncode == 0 else None), said

    def by_python(self, ref, status=(0, 3)):
        said = subprocess.run([sys.executable, READER, self.store, f"{RUN}@{ref}"],
                              capture_output=True, text=True, check=False)
        self.assertIn(said.returncode, status, said.stderr)
        return said.stdout.strip() or None, said

    def compare(self, told):
        for ref in ["latest", *sorted({item["step"] for item in self.items()})]:
            server = self.by_server(ref)
            folder = plain.find(self.run_folder, str(ref))
            self.assertEqual(folder.name if folder else None, server, (ref, told))
            self.assertEqual(self.by_store(ref)[0], server, (ref, told))

    # ---- at random ----

    def act(self, rng, told):
        items = self.items()
        committed = [i for i in items if i["state"] == "committed"]
        refs = ["latest", "none", "keep", "keep", "ahead"]
        if committed:
            one = rng.choice(committed)
            refs += [one["step"], one["version"], rng.choice(committed)["version"]] * 2
        kind = rng.choice(["train", "train", "resume", "resume", "trash", "trash", "undelete",
                           "lose", "restart", "supersede", "supersede"])
        told.append(kind)
        if kind in ("train", "supersede"):
            step = rng.choice([i["step"] for i in committed] or [10]) if kind == "supersede" \
                else rng.randrange(1, 8) * 10
            ref = rng.choice(refs)
            told.append((ref, step, self.train(ref, step, supersede=kind == "supersede")))
        elif kind == "resume":
            ref = rng.choice(refs)
            told.append((ref, self.resume(ref)[0]))
        elif kind in ("trash", "undelete") and committed:
            version = rng.choice(committed)["version"]
            path = f"/v1/runs/{RUN}/checkpoints/{version}"
            status = self.world.get(path, "DELETE")[0] if kind == "trash" else self.post(path + "/undelete")[0]
            told.append((version, status))
        elif kind == "lose" and self.attempts():
            path = self.record(rng.randrange(1, self.attempts() + 1), rng.random() < 0.3)
            if path.exists() and self.record(int(path.name[:12]), "copy" not in path.name).exists():
                rng.choice([path.unlink, lambda: path.write_bytes(b"")])()
                if path.exists():
                    path.unlink() if rng.random() < 0.5 else None
        elif kind == "restart":
            self.world.server.kill()
            self.world.start_server()

    def test_server_store_and_plain_python_agree_over_generated_histories(self):
        for seed in range(SEEDS):
            with self.subTest(seed=seed):
                self.doCleanups()
                self.setUp()
                rng, told = random.Random(seed), []
                self.train("none", 10, 20, 30)
                for _ in range(12):
                    self.act(rng, told)
                    self.compare(told)

    # ---- by name ----

    def test_a_revived_version_is_latest_for_all_three(self):
        self.train("none", 10, 20, 30)
        self.resume(10)
        self.compare("rolled back")
        self.assertEqual(self.world.version(RUN)["step"], 10)
        thirty = next(i["version"] for i in self.items() if i["step"] == 30)
        self.resume(thirty)
        self.compare("revived")
        self.assertEqual(self.by_server("latest"), thirty)

    def test_a_trashed_version_is_latest_for_nobody_and_is_got_by_its_id(self):
        self.train("none", 10, 20)
        twenty = self.by_server("latest")
        self.world.cairn("rm", f"{RUN}@{twenty}")
        self.compare("trashed")
        self.assertEqual(self.world.version(RUN)["step"], 10)
        self.assertEqual(self.by_store(twenty)[0], twenty)
        self.assertEqual(self.by_python(twenty)[0], twenty)
        self.world.cairn("undelete", f"{RUN}@{twenty}")
        self.compare("back")
        self.assertEqual(self.by_server("latest"), twenty)
        self.assertEqual(self.world.stored("trashed.json"), [])

    def test_what_a_save_superseded_stays_so_when_that_save_is_gone(self):
        self.train("none", 10, 20)
        self.train("keep", 20, supersede=True)
        newest = self.by_server("latest")
        self.compare("superseded")
        self.world.cairn("rm", f"{RUN}@{newest}")
        self.compare("and trashed")
        self.assertEqual(self.world.version(RUN)["step"], 10)

    def test_a_death_between_mark_and_row_is_made_good_by_the_next_start(self):
        self.train("none", 10, 20)
        twenty = self.by_server("latest")
        for verb, step in (("rm", 10), ("undelete", 20)):
            self.world.server.stop()
            self.world.env["CAIRN_CRASH_AT"] = "server.trash.after_mark:kill"
            self.world.start_server()
            self.world.env.clear()
            self.world.cairn(verb, f"{RUN}@{twenty}", "--timeout", "1s", status=None)
            self.world.server.process.wait(HANG_S)
            self.world.start_server()
            self.assertEqual(self.world.version(RUN)["step"], step, verb)
            self.compare(verb)

    # ---- numbers of meta ----

    def test_numbers_of_meta_are_the_same_for_all_three(self):
        self.train("none", 10, meta=json.dumps({"numbers": NUMBERS}))
        version, out = self.by_server("latest"), self.world.root / "numbers"
        said = [self.world.cairn("show", f"{RUN}@{version}", "--json").stdout,
                self.world.cairn("show", f"{RUN}@{version}", "--json", "--store", self.store,
                                 env={"CAIRN_URL": "http://127.0.0.1:9"}).stdout]
        found = [self.world.version(RUN)["meta"], *(json.loads(text)["meta"] for text in said)]
        self.assertEqual(self.by_store(version)[0], version)
        subprocess.run([sys.executable, READER, self.store, f"{RUN}@{version}", out], check=True, capture_output=True)
        found.append(json.loads((out / "meta.json").read_text()))
        for meta in found:  # repr tells 3 from 3.0, 0.0 from -0.0, and each float from its neighbours
            self.assertEqual(repr(meta["numbers"]), repr(NUMBERS))

    def test_a_save_with_a_number_in_meta_that_no_reader_could_keep_is_refused(self):
        for number in ("1e400", "-1e400", str(1 << 63), str(-(1 << 63) - 1), "-0", "NaN"):
            told = self.train("none", 10, meta='{"n":%s}' % number)
            self.assertEqual(told[-1]["code"], "invalid", number)
        self.assertIsNone(self.by_server("latest"))

    # ---- lost and damaged ----

    def test_a_lost_attempt_record_is_read_from_its_copy_and_told(self):
        self.train("none", 10, 20, 30)
        self.resume(10)
        for empty in (False, True):
            self.record(2).unlink(missing_ok=True)
            if empty:
                self.record(2).write_bytes(b"")
            for read in (self.by_store, self.by_python):
                version, said = read("latest")
                self.assertEqual(version, self.by_server("latest"))
                self.assertIn("000000000002.json", said.stderr)

    def test_an_attempt_without_any_record_is_warned_of_where_it_matters(self):
        self.train("none", 10, 20, 30)
        self.resume(10)
        self.train("latest", 15)
        for copy in (False, True):
            self.record(2, copy).unlink()
        for read in (self.by_store, self.by_python):
            version, said = read("latest")  # attempt 3 saved after it: certain
            self.assertEqual(version, self.by_server("latest"))
            self.assertNotIn("warning", said.stderr)
            version, said = read(30)
            self.assertIn("warning", said.stderr)
            self.assertIn("name", said.stderr)
            version, said = read(version)
            self.assertNotIn("warning", said.stderr)

    def test_a_version_id_needs_no_attempt_record_and_no_layout(self):
        self.train("none", 10, 20)
        version = self.by_server(10)
        for path in [*self.run_folder.glob("attempts/*"), *self.run_folder.glob("layouts/*")]:
            path.write_bytes(b"")
        other = next(p for p in self.run_folder.glob("*/ckpt_*/committed.json") if p.parent.name != version)
        other.write_bytes(b"{}")
        for ref in (version, 10):
            self.assertEqual(self.by_store(ref)[0], version)
            self.assertEqual(self.by_python(ref)[0], version)
        self.world.cairn("get", f"{RUN}@{version}", "-d", self.world.root / "whole")
        self.world.cairn("get", f"{RUN}@{version}", "--store", self.store, "-d", self.world.root / "whole2")

    def test_damage_of_the_newest_is_7_for_every_reader_and_never_an_older_step(self):
        self.train("none", 10, 20)
        folder = self.run_folder / f"{20:012}" / self.by_server("latest")
        for name in ("committed.json", "manifest.json", "checksums.bin"):
            path = folder / name
            original = path.read_bytes()
            changes = [b"", original[:-1], original[:40] + b"\x00" + original[41:]]
            if name != "committed.json":  # without a record nothing is committed
                changes.append(None)
            for change in changes:
                path.chmod(0o644)
                path.unlink() if change is None else path.write_bytes(change)
                for ref in ("latest", 20, folder.name):
                    self.by_store(ref, status=(7,))
                    if name != "checksums.bin":
                        self.by_python(ref, status=(7,))
                    if name != "committed.json":  # the server knows its own record
                        self.world.server.stop()
                        self.world.start_server()
                        self.world.cairn("get", f"{RUN}@{ref}", "-d", self.world.root / "never", status=7)
                path.write_bytes(original)
        self.compare("put back")

    def test_a_record_with_another_versions_numbers_is_damage(self):
        self.train("none", 10)
        self.train("latest", 20)
        path = next(self.run_folder.glob(f"{20:012}/*/committed.json"))
        path.chmod(0o644)
        path.write_bytes(path.read_bytes().replace(b'"attempt":2', b'"attempt":0'))
        self.by_store("latest", status=(7,))
        self.by_python("latest", status=(7,))

    def test_a_store_that_is_not_mounted_is_not_an_empty_one(self):
        empty = cases.made(self.world.root / "unmounted")
        self.world.cairn("get", f"{RUN}@latest", "--store", empty, "-d", self.world.root / "x", status=5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
