# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=110 engines=again
"""Catalogs that are lost, of servers with several stores: each version is had again from whichever store
has it, with what lies where; a store that is away or somebody else's is said by name, never passed over."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import postgres
from build_folder import BIN
from s3world import BUCKET, S3Fault, signed
from test_reindex import SAME, SOON
from test_tiers import tree
from test_verify import safetensors
from world import files_below, HANG_S, wait_until, World

RUN = "t/stores"


class Stores:
    """What holds whatever the further store is; `url` names it."""

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="cairn-stores-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        env = self.make_further()
        self.stores = f"main,archive={self.url}"
        self.world = World(server_arguments=["--stores", self.stores], env={**SOON, **env})
        self.addCleanup(self.world.close)

    def model(self, number):
        folder = self.root / f"model-{number}"
        if folder.exists():
            return folder
        folder.mkdir()
        safetensors(folder / "model.safetensors", 3)
        (folder / "bytes.bin").write_bytes(bytes((number + at * at) % 251 for at in range(4000)) * 20)
        return folder

    def put(self, step, where, run=RUN):
        """Saved, and copied or moved as `where` says."""
        self.world.cairn("put", self.model(step), f"{run}@{step}")
        if "archive" in where:
            self.world.cairn("promote", f"{run}@{step}", "--to", "archive")
        if "main" not in where:
            self.world.cairn("demote", f"{run}@{step}", "--from", "main")

    def fill(self):
        """Steps 1 and 5 in main, 2 in both, 3 and 4 in the archive alone; 4 in the trash."""
        for step, where in ((1, "main"), (2, "main archive"), (3, "archive"), (4, "archive"), (5, "main")):
            self.put(step, where)
        self.put(1, "archive", "t/far")
        self.world.cairn("pin", f"{RUN}@3")
        self.world.cairn("rm", f"{RUN}@4")

    def rows(self):
        found = {}
        for run in (RUN, "t/far"):
            for row in json.loads(self.world.cairn("ls", run, "--json").stdout):
                found[row["version"]] = {name: row[name] for name in SAME}
                found[row["version"]]["copies"] = [(copy["store"], copy["state"]) for copy in row["copies"]]
        return found

    def copies(self, step, run=RUN):
        return {copy["store"]: copy["state"] for copy in self.world.version(run, step)["copies"]}

    def reindex(self, new, *more, status=0, stores=None):
        return self.world.reindex(new, "--stores", stores or self.stores, *more, status=status)

    def told(self, done):
        return {store["store"]: store for store in json.loads(done.stdout)["stores"]}

    def is_had(self, step, run=RUN):
        back = self.root / f"back-{run.replace('/', '-')}-{step}"
        self.world.cairn("get", f"{run}@{step}", "-d", back)
        self.assertEqual(tree(back), tree(self.model(step)))
        shutil.rmtree(back)

    def further_state(self):
        """All that the further store holds."""
        raise NotImplementedError

    def test_every_version_is_had_again_with_its_copies_whichever_store_has_it(self):
        self.fill()
        before = self.rows()
        new = self.world.lose_catalog()
        there = self.further_state()
        would = self.told(self.world.cairn("reindex", self.world.store, "--stores", self.stores, "--dry-run", "--json"))
        done = self.reindex(new, "--json")
        self.assertEqual(json.loads(done.stdout)["versions"], 6)
        told = self.told(done)
        for store, whole, alone in (("main", 3, 2), ("archive", 4, 3)):
            self.assertEqual((told[store]["whole"], told[store]["alone"], told[store]["read"]), (whole, alone, True))
            self.assertEqual(told[store], would[store])
        self.assertEqual(self.further_state(), there)
        self.world.start_on(new)
        self.assertEqual(self.rows(), before)
        for step in (1, 2, 3, 5):
            self.is_had(step)
        self.is_had(1, "t/far")
        self.put(6, "archive")  # and it goes on
        self.is_had(6)
        self.world.cairn("demote", f"{RUN}@2", "--from", "main")
        self.is_had(2)

    def test_what_was_trashed_while_its_main_copy_was_removed_is_in_the_trash_again(self):
        self.world.server.stop()
        self.world.env["CAIRN_CRASH_AT"] = "server.demote.after_record:delay=3000"
        self.world.start_server()
        self.put(1, "main archive")
        self.put(2, "main")
        self.world.cairn("demote", f"{RUN}@1", "--from", "main", "--detach")
        self.world.cairn("rm", f"{RUN}@1")
        wait_until(lambda: self.world.version(RUN, self.trashed())["copies"][0]["store"] == "archive")
        del self.world.env["CAIRN_CRASH_AT"]
        new = self.world.lose_catalog()
        self.reindex(new)
        self.world.start_on(new)
        self.assertIsNotNone(self.trashed())
        self.world.cairn("undelete", f"{RUN}@{self.trashed()}")
        self.is_had(1)

    def train(self, step, job):
        env = {**os.environ, "CAIRN_JOB": job, "CAIRN_RESUME": "keep", "TRAINER_SUPERSEDE": "1",
               "CAIRN_SOCKET": self.world.socket()}
        subprocess.run([BIN / "tests/trainer", RUN, "0", "1", str(step)], env=env, capture_output=True, check=True,
                       timeout=HANG_S)
        return max(json.loads(self.world.cairn("ls", RUN, "--json").stdout), key=lambda row: row["attempt"])["version"]

    def test_what_a_later_save_superseded_is_so_again_though_its_main_copy_was_removed(self):
        before, after = self.train(1, "job-1"), self.train(2, "job-2")
        for version in (before, after):
            self.world.cairn("promote", f"{RUN}@{version}", "--to", "archive")
        newer = self.train(1, "job-3")
        for version in (before, after):
            self.world.cairn("demote", f"{RUN}@{version}", "--from", "main")
        newest = self.train(2, "job-4")
        wanted = {before: True, after: True, newer: False, newest: False}
        superseded = lambda: {row["version"]: row["superseded"]
                              for row in json.loads(self.world.cairn("ls", RUN, "--json").stdout)}
        self.assertEqual(superseded(), wanted)
        new = self.world.lose_catalog()
        self.reindex(new)
        self.world.start_on(new)
        self.assertEqual(superseded(), wanted)

    def trashed(self):
        rows = json.loads(self.world.cairn("ls", RUN, "--json").stdout)
        return next((row["version"] for row in rows if row["trashed"]), None)

    def test_a_damaged_copy_hides_no_good_one_and_is_named_with_its_store(self):
        self.put(1, "main archive")
        self.put(2, "main archive")
        main, far = (self.world.version(RUN, step)["version"] for step in (1, 2))
        new = self.world.lose_catalog()
        self.world.stored(f"{main}/manifest.json")[0].unlink()
        self.world.stored(f"{main}/data/bytes.bin")[0].write_bytes(b"short")
        self.world.stored(f"{main}/committed.json")[0].write_bytes(b"{}")
        self.spoil(far, "data/bytes.bin", b"short")
        for path in self.world.stored("attempts/*1*.json"):  # the archive has it, too
            path.write_bytes(b"{}")
        done = self.reindex(new, "--json", status=7)
        self.assertEqual(json.loads(done.stdout)["versions"], 2)
        told = self.told(done)
        self.assertEqual([(told[name]["whole"], told[name]["damaged"]) for name in ("main", "archive")], [(1, 1), (1, 1)])
        named = [json.loads(line)["what"] for line in done.stderr.splitlines() if '"problem"' in line]
        self.assertFalse([what for what in named if "/attempts/" in what])
        self.assertEqual({(store, version) for store in ("main", "archive") for version in (main, far)
                          for what in named if what.startswith(f"{store}: ") and version in what},
                         {("main", main), ("archive", far)})
        self.world.start_on(new)
        for step in (1, 2):
            self.is_had(step)
            self.world.cairn("verify", f"{RUN}@{step}", status=7)
            self.world.cairn("verify", f"{RUN}@{step}", "--repair")
            self.world.cairn("verify", f"{RUN}@{step}")

    def test_a_copy_that_was_being_made_is_gone_on_with(self):
        self.put(1, "main")
        self.world.server.stop()
        self.world.env["CAIRN_CRASH_AT"] = "server.promote.after_shard:2"
        self.world.start_server()
        self.world.cairn("promote", f"{RUN}@1", "--to", "archive", "--timeout", "20s", status=None)
        self.world.server.process.wait(HANG_S)
        del self.world.env["CAIRN_CRASH_AT"]
        new = self.world.lose_catalog()
        self.assertEqual(self.told(self.reindex(new, "--json"))["archive"]["unfinished"], 1)
        self.world.start_on(new)
        wait_until(lambda: self.copies(1) == {"main": "whole", "archive": "whole"}, 120)
        self.world.cairn("verify", f"{RUN}@1")

    def test_a_store_of_copies_of_another_main_store_is_refused_by_name_and_nothing_is_written(self):
        self.put(1, "archive")
        new = self.world.lose_catalog()
        other = World(nodes=0, env={**SOON, **self.world.env})
        self.addCleanup(other.close)
        other.server.stop()
        mine, self.world.store = self.world.store, other.store
        before = sorted(files_below(other.store))
        there = self.further_state()
        refused = self.reindex(new, status=None)
        self.world.store = mine
        self.assertNotIn(refused.returncode, (0, 7))
        self.assertIn("archive is", refused.stderr)
        self.assertIn("holds no copies of the versions of", refused.stderr)
        self.assertEqual(sorted(files_below(other.store)), before)
        self.assertEqual(self.further_state(), there)

    def test_a_reindex_that_is_killed_between_runs_is_given_again_and_has_every_copy(self):
        self.fill()
        before = self.rows()
        new = self.world.lose_catalog()
        self.world.env["CAIRN_CRASH_AT"] = "server.reindex.after_run:1"
        self.reindex(new, status=None)
        del self.world.env["CAIRN_CRASH_AT"]
        done = json.loads(self.reindex(new, "--json").stdout)
        self.assertEqual((done["found"] > 0, done["found"] + done["versions"]), (True, 6))
        self.world.start_on(new)
        self.assertEqual({id: row["copies"] for id, row in self.rows().items()},
                         {id: row["copies"] for id, row in before.items()})

    def test_a_reindex_that_knew_of_one_store_is_given_again_with_all_and_has_the_rest(self):
        self.fill()
        before = self.rows()
        new = self.world.lose_catalog()
        self.world.env["CAIRN_CRASH_AT"] = "server.reindex.after_run:2"
        self.reindex(new, status=None, stores="main")
        del self.world.env["CAIRN_CRASH_AT"]
        self.reindex(new)
        self.world.start_on(new)
        self.assertEqual({id: row["copies"] for id, row in self.rows().items()},
                         {id: row["copies"] for id, row in before.items()})


class Folders(Stores, unittest.TestCase):
    def make_further(self):
        self.url = str(self.root / "archive")
        return {}

    def further_state(self):
        return {str(path): path.stat().st_mtime_ns for path in files_below(self.url)}

    def spoil(self, version, name, data):
        path, = [path for path in files_below(self.url) if str(path).endswith(f"{version}/{name}")]
        path.chmod(0o644)
        path.write_bytes(data)

    def generations(self):
        return sorted(path.name for path in self.world.stored(".cairn/generations/*"))

    def test_a_store_that_is_away_is_said_by_name_before_anything_is_written(self):
        self.put(1, "main archive")
        self.put(2, "archive")
        new = self.world.lose_catalog()
        before = self.generations()
        archive = pathlib.Path(self.url)
        archive.rename(self.root / "elsewhere")
        refused = self.reindex(new, status=5)
        self.assertIn("archive cannot be read", refused.stderr)
        self.assertIn("--without archive", refused.stderr)
        self.assertEqual(self.generations(), before)
        self.assertIn("no further store", self.reindex(new, "--without", "else", status=2).stderr)
        self.assertIn("no further store", self.reindex(new, "--without", "main", status=2).stderr)
        done = self.reindex(new, "--without", "archive")
        self.assertRegex(done.stdout, r"archive \(.*\): not read")
        told = self.told(self.world.cairn("reindex", self.world.store, "--stores", self.stores, "--without", "archive",
                                          "--dry-run", "--json"))
        self.assertEqual((told["archive"]["read"], told["main"]["whole"]), (False, 1))
        # A server that finds the store again takes up what lies there.
        (self.root / "elsewhere").rename(archive)
        self.world.start_on(new)
        wait_until(lambda: self.world.version(RUN, 2), 120)
        self.assertEqual([self.copies(step) for step in (1, 2)],
                         [{"main": "whole", "archive": "whole"}, {"archive": "whole"}])
        self.is_had(2)


class Bucket(Stores, unittest.TestCase):
    def make_further(self):
        self.s3 = S3Fault(self.root)
        self.addCleanup(self.s3.stop)
        self.url = f"s3://{BUCKET}/archive"
        return self.s3.env()

    def further_state(self):
        return {item["key"]: item for item in self.s3.state()["objects"] if item["key"].startswith("archive/")}

    def spoil(self, version, name, data):
        key, = [key for key in self.s3.keys("archive/") if key.endswith(f"{version}/{name}")]
        signed(self.s3.env(), f"/{BUCKET}/{key}", "PUT", data)

    def test_a_store_that_may_not_be_listed_is_a_failure_that_names_it(self):
        self.put(1, "archive")
        new = self.world.lose_catalog()
        self.s3.rules("op=list : status=403/AccessDenied")
        self.addCleanup(self.s3.rules, "")
        refused = self.reindex(new, status=None)
        self.assertNotIn(refused.returncode, (0, 7))
        self.assertIn("store archive", refused.stderr)
        self.s3.rules("")
        self.reindex(new)
        self.world.start_on(new)
        self.is_had(1)


class Restored(unittest.TestCase):
    """A backup of the catalog that is put back, of a server with two stores."""
    model, put, copies, is_had = Stores.model, Stores.put, Stores.copies, Stores.is_had
    make_further = Folders.make_further

    def setUp(self):
        if postgres.wanted():
            self.skipTest("a backup of a database is its own tool's")
        Stores.setUp(self)

    def objects(self):
        """All that must stay."""
        return {str(path) for folder in (self.world.store, self.url) for path in files_below(folder)
                if "generations" not in str(path) and "/.cairn/catalog/" not in str(path)}

    def back_up(self):
        self.world.server.stop()
        shutil.copytree(self.world.root / "server", self.world.root / "backup")
        self.world.start_server()

    def put_back(self):
        self.world.server.stop()
        shutil.rmtree(self.world.root / "server")
        (self.world.root / "backup").rename(self.world.root / "server")
        before = self.objects()
        self.world.server_arguments.append("--adopt-store=true")
        self.world.start_server()
        return before

    def wait_for(self, run=RUN):
        wait_until(lambda: self.world.get(f"/v1/runs/{run}/checkpoints/latest")[0] == 200, 120)

    def events(self, run=RUN):
        return self.world.cairn("events", run, "--since", "0").stdout

    def test_a_day_old_catalog_hears_from_all_stores_what_was_copied_moved_and_removed_since_D07(self):
        for step, where in ((1, "main"), (2, "main archive"), (3, "main archive"), (4, "archive"), (5, "main archive")):
            self.put(step, where)
        self.back_up()
        self.world.cairn("promote", f"{RUN}@1", "--to", "archive")
        self.world.cairn("demote", f"{RUN}@1", "--from", "main")
        self.world.cairn("demote", f"{RUN}@2", "--from", "archive")
        self.world.cairn("demote", f"{RUN}@3", "--from", "main")
        self.world.cairn("promote", f"{RUN}@4", "--to", "main")
        self.put(6, "archive")
        self.put(7, "main archive")
        wanted = [{"archive": "whole"}, {"main": "whole"}, {"archive": "whole"},
                  {"main": "whole", "archive": "whole"}, {"main": "whole", "archive": "whole"}, {"archive": "whole"},
                  {"main": "whole", "archive": "whole"}]
        self.assertEqual([self.copies(step) for step in range(1, 8)], wanted)
        before = self.put_back()
        self.wait_for()
        self.world.cairn("reconcile", RUN)
        self.assertEqual([self.copies(step) for step in range(1, 8)], wanted)
        for step in range(1, 8):
            self.assertFalse(self.world.version(RUN, step)["trashed"])
            self.is_had(step)
        self.assertEqual(before - self.objects(), set())
        events = self.events()
        self.assertIn("copy.made", events)
        self.assertIn("copy.removed", events)
        self.assertNotIn("checkpoint.lost", events)

    def test_a_run_in_which_versions_were_moved_alone_is_noticed_and_one_that_is_as_before_is_not_frozen(self):
        for run in (RUN, "t/same"):
            self.put(1, "main archive", run)
        self.put(2, "main")
        self.back_up()
        self.world.cairn("demote", f"{RUN}@1", "--from", "main")
        before = self.put_back()
        self.wait_for()
        self.assertEqual(self.copies(1), {"archive": "whole"})
        self.is_had(1)
        self.wait_for("t/same")
        self.assertIn(f"run.frozen run={RUN} ", self.world.server.tail() + self.world.server.log.read_text())
        self.assertNotIn("run.frozen run=t/same ", self.world.server.log.read_text())
        wait_until(lambda: "tier.compared store=archive" in self.world.server.log.read_text(), 120)
        self.assertEqual(before - self.objects(), set())
        # The catalog is believed from here on: no store is listed for a run any more.
        self.world.server_arguments.pop()
        self.world.server.stop()
        self.world.start_server()
        self.wait_for()
        self.put(3, "archive")  # a round of the sweep has ended with it
        self.assertEqual(self.world.server.log.read_text().count("tier.compared"), 1)

    def test_a_store_that_is_away_keeps_the_run_frozen_and_is_named_and_nothing_is_lost_when_it_is_back(self):
        self.put(1, "main archive")
        self.put(2, "main")
        self.back_up()
        self.world.cairn("demote", f"{RUN}@1", "--from", "main")
        self.world.server.stop()
        record = pathlib.Path(self.url, ".cairn", "store.json")
        record.rename(self.root / "elsewhere")
        self.put_back()
        wait_until(lambda: "reconcile.delayed" in self.world.server.log.read_text(), 120)
        status, _, body = self.world.get(f"/v1/runs/{RUN}/checkpoints/latest")
        self.assertEqual(status, 503)
        self.assertIn(b"stores: archive", body)
        (self.root / "elsewhere").rename(record)
        self.wait_for()
        self.assertEqual(self.copies(1), {"archive": "whole"})
        self.is_had(1)
        self.assertNotIn("checkpoint.lost", self.events())

    def test_a_version_that_is_in_no_store_any_more_goes_into_the_trash(self):
        self.put(1, "archive")
        self.put(2, "main archive")
        self.back_up()
        self.world.server.stop()
        for path in [path for path in files_below(self.url) if "/000000000001/" in str(path)]:
            path.unlink()
        self.world.start_server()  # which raises the generation: the backup is behind
        self.put_back()
        self.wait_for()
        self.assertTrue(self.world.version(RUN, 1) is None or self.world.version(RUN, 1)["trashed"])
        self.assertIn("checkpoint.lost", self.events())
        self.assertEqual(self.copies(2), {"main": "whole", "archive": "whole"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
