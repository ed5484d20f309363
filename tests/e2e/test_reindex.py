# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
"""Catalogs that are lost, old, or of another bucket (D07): what the store says is what is had again,
nothing is deleted meanwhile, and whose catalog it is not is said by name."""
import json
import os
import pathlib
import shutil
import sys
import time
import unittest

import cases
import postgres
from s3world import RealS3, S3Fault, signed
from signs import go_round
from world import World, in_time, wait_until

RUNS = ("llm/7b", "llm/tiny", "vision/vit")
# Of a checkpoint, as the server shows it: what a reindex must have again.
SAME = ("version", "project", "run", "step", "n", "attempt", "state", "recorded", "superseded", "trashed",
        "latest", "world_size", "format", "labels", "meta", "bytes", "shards", "layout", "manifest_sha256",
        "metrics", "note", "pinned", "aliases")
SOON = {"CAIRN_RECONCILE_WAIT": "0ms", "CAIRN_SWEEP_INTERVAL": "100ms", "CAIRN_CATALOG_COPY_INTERVAL": "100ms",
        "CAIRN_CHECK_INTERVAL": "1s"}  # of a server that was killed reindex waits for the next sign of life


class Lost(unittest.TestCase):
    """In a folder; S3Lost has the same in a bucket."""

    def setUp(self):
        self.root = cases.folder(self)
        self.world = self.make_world()
        self.addCleanup(self.world.close)
        self.file = cases.file(self.root / "weights.bin", b"w" * 3000)

    def make_world(self):
        return World(env=dict(SOON))

    def put(self, run, step, *more):
        self.world.cairn("put", self.file, f"{run}@{step}", *more)

    def fill(self):
        for run in RUNS:
            for step in (1, 2, 3):
                self.put(run, step, "--labels", json.dumps({"tier": f"t{step}"}))
        self.put("llm/7b", 3, "--new-version")
        self.world.cairn("rm", "vision/vit@3")
        self.say()

    def say(self):
        """What no save says, and the store only by its copy of it."""
        for words in (("pin", "llm/7b@1"), ("label", "llm/7b@2", "tier=gold"), ("metric", "llm/7b@2", "loss=0.25"),
                      ("alias", "set", "llm/7b@2", "best-one"), ("quota", "set", "llm", "--versions", "77"),
                      ("policy", "set", "llm/tiny", "--keep-last", "9"),
                      ("policy", "set", "vision", "--partner-copies", "1"), ("label", "vision/vit", "team=eyes")):
            self.world.cairn(*words)
        made = self.world.json("token", "create", "--scope", "read", "--project", "llm")
        self.token = made["token"]
        self.wait_for_copy()

    def wait_for_copy(self):
        """Until nothing is left to copy: sweeps have looked, and copied nothing."""
        def count():
            return self.world.server.log.read_text().count(" catalog.copied ")

        def quiet():
            before = count()
            go_round(self.world.server.process.pid, "cairn-sweep", 10)
            return before and before == count()
        wait_until(quiet)

    def said(self):
        found = [self.world.json(*words)
                 for words in (("quota", "get", "llm"), ("policy", "get", "llm/tiny"), ("policy", "get", "vision"))]
        del found[0]["days"]  # what was taken up on days before is the lost catalog's alone
        run = next(row for row in self.world.json("ls") if row["run"] == "vit")
        token = self.world.json("token", "whoami", env={"CAIRN_TOKEN": self.token})
        return [*found, run["labels"], token]

    def rows(self):
        found = {}
        for run in RUNS:
            rows = self.world.json("ls", run)
            found[run] = [{name: row[name] for name in SAME} for row in rows]
        return found

    def attempts(self):
        rows = self.world.json("ls")
        return {f"{row['project']}/{row['run']}": row["attempt"] for row in rows}

    def test_d07_a_deleted_catalog_is_had_again_from_the_bucket_alone(self):
        self.fill()
        before, attempts, said = self.rows(), self.attempts(), self.said()
        old, new = self.world.catalog, self.world.lose_catalog()
        would = self.world.json("reindex", self.world.store, "--dry-run")
        self.assertEqual((would["runs"], would["versions"], would["catalog"]), (3, 10, None))
        done = json.loads(self.world.reindex(new, "--json").stdout)
        self.assertEqual({name: done[name] for name in ("runs", "versions", "damaged", "unread")},
                         {"runs": 3, "versions": 10, "damaged": 0, "unread": 0})
        self.world.start_on(new)
        self.assertEqual(self.rows(), before)
        self.assertEqual(self.attempts(), attempts)
        self.assertEqual(self.said(), said)
        self.assertEqual([row["aliases"] for row in before["llm/7b"] if row["aliases"]], [["best-one"]])
        self.assertNotIn(self.token.encode(), self.copies())
        self.put("llm/7b", 4)
        self.assertEqual(self.attempts()["llm/7b"], attempts["llm/7b"] + 1)  # no number twice
        self.world.cairn("get", "llm/tiny@2", "-d", self.root / "back")
        self.assertEqual((self.root / "back/weights.bin").read_bytes(), self.file.read_bytes())
        # Whoever starts the old one after all cannot delete or save anything.
        self.world.server.stop()
        self.world.catalog = old
        shutil.rmtree(self.world.root / "server")
        (self.world.root / "old").rename(self.world.root / "server")
        self.world.start_server()
        self.assertEqual(self.world.get("/readyz")[0], 503)
        self.world.cairn("ls", "llm/7b", status=5)

    def test_a_server_that_runs_on_the_old_catalog_is_stopped_by_a_reindex_D07(self):
        self.put("llm/7b", 1)
        new = self.world.root / "new"
        new.mkdir(mode=0o700)
        shutil.copy(self.world.root / "server/grant.key", new)
        self.world.catalog = postgres.catalog()
        self.world.reindex(new, "--force")

        def behind(seconds):
            done = self.world.cairn("put", self.file, "llm/7b@2", "--timeout", f"{seconds:g}s", status=None)
            self.assertNotEqual(done.returncode, 0)
            return "catalog.behind" in self.world.server.tail()
        in_time(behind, 5)

    def test_what_is_damaged_is_named_and_the_rest_is_had(self):
        for step in (1, 2):
            self.put("llm/7b", step)
        damaged = self.world.version("llm/7b")["version"]
        self.damage(f"llm/7b/000000000002/{damaged}/manifest.json")
        new = self.world.lose_catalog()
        done = self.world.reindex(new, status=7)
        self.assertIn(f"{damaged}/committed.json", done.stderr)
        self.world.start_on(new)
        self.assertEqual(self.world.version("llm/7b")["step"], 1)

    def test_a_late_record_raises_no_dead_V10(self):
        for step in (1, 2):
            self.put("llm/7b", step)
        new = self.world.lose_catalog()
        dead = [key for key in self.keys() if key.startswith("llm/7b/000000000002/")]
        self.assertTrue([key for key in dead if key.endswith("/committed.json")])
        for key in dead:
            if not key.endswith("/committed.json"):
                self.remove(key)
        done = json.loads(self.world.reindex(new, "--json").stdout)
        self.assertEqual((done["versions"], done["remains"]), (1, 1))
        self.world.start_on(new)
        self.assertEqual(self.world.version("llm/7b")["step"], 1)
        self.assertEqual(self.attempts()["llm/7b"], 2)

    def copy_keys(self):
        """Of what was said, the newest last."""
        found = sorted(key for key in self.keys() if key.startswith(".cairn/catalog/"))
        self.assertIn(len(found), (1, 2))
        return found

    def copies(self):
        return b"".join(self.content(key) for key in self.copy_keys())

    def test_a_copy_that_is_damaged_is_named_and_the_versions_are_had(self):
        self.put("llm/7b", 1)
        self.world.cairn("pin", "llm/7b@1")
        self.wait_for_copy()
        new = self.world.lose_catalog()
        for key in self.copy_keys():
            self.damage(key)
        self.assertIn(".cairn/catalog/", self.world.reindex(new, status=7).stderr)
        self.world.start_on(new)
        self.assertEqual(self.world.version("llm/7b")["step"], 1)

    def test_in_the_place_of_a_newest_copy_that_is_damaged_stands_the_one_before(self):
        self.put("llm/7b", 1)
        self.world.cairn("pin", "llm/7b@1")
        self.wait_for_copy()
        self.world.cairn("label", "llm/7b@1", "tier=gold")
        self.wait_for_copy()
        new = self.world.lose_catalog()
        before, newest = self.copy_keys()
        self.damage(newest)
        said = self.world.reindex(new, status=7).stderr
        self.assertIn(newest, said)
        self.assertNotIn(before, said)
        self.world.start_on(new)
        version = self.world.version("llm/7b", 1)
        self.assertEqual((version["pinned"], version["labels"]), (True, {}))

    def test_a_clean_stop_leaves_a_copy_of_what_was_said_a_moment_before(self):
        self.put("llm/7b", 1)
        self.world.server.stop()
        self.world.env["CAIRN_CATALOG_COPY_INTERVAL"] = "1h"
        self.world.start_server()
        self.world.cairn("metric", "llm/7b@1", "loss=0.5")  # after the copy that a start makes
        wait_until(lambda: self.world.get("/readyz")[0] == 200)
        go_round(self.world.server.process.pid, "cairn-sweep", 3)
        self.world.cairn("pin", "llm/7b@1")
        new = self.world.lose_catalog()
        self.world.reindex(new)
        self.world.start_on(new)
        version = self.world.version("llm/7b", 1)
        self.assertEqual((version["pinned"], version["metrics"]), (True, {"loss": 0.5}))

    def await_first_look(self):
        """A server looks at what there is to copy in its first sweep, whatever the interval says. Either
        that comes now, or it is over and the pin is not copied."""
        self.world.cairn("pin", "llm/7b@1")
        go_round(self.world.server.process.pid, "cairn-sweep", 3)

    def test_beside_a_living_server_it_says_so_and_goes_on_by_force_alone(self):
        self.world.server.stop()
        self.world.env["CAIRN_CHECK_INTERVAL"] = "500ms"
        self.world.start_server()
        self.put("llm/7b", 1)
        new = self.world.root / "new"
        new.mkdir(mode=0o700)
        shutil.copy(self.world.root / "server/grant.key", new)
        own = self.world.catalog
        self.world.catalog = postgres.catalog()
        refused = json.loads(self.world.reindex(new, "--json", status=6).stderr.splitlines()[-1])
        self.assertIn("a server works on this store", refused["message"])
        self.assertIn("--force", refused["message"])
        self.assertEqual(list(new.iterdir()), [new / "grant.key"])
        self.put("llm/7b", 2)  # it was left alone
        done = json.loads(self.world.reindex(new, "--force", "--json").stdout)
        self.assertEqual(done["versions"], 2)
        taken, self.world.catalog = self.world.catalog, own
        self.world.server.stop()
        self.world.catalog = taken

    def test_a_token_that_was_revoked_after_the_last_copy_is_not_had_again(self):
        self.put("llm/7b", 1)
        ended, kept = (self.world.json("token", "create", "--scope", "read", "--project", "*")["id"] for _ in range(2))
        self.wait_for_copy()
        self.world.server.stop()
        self.world.env["CAIRN_CATALOG_COPY_INTERVAL"] = "1h"
        self.world.start_server()
        self.await_first_look()
        copies = self.copies()
        self.assertIn(ended.encode(), copies)
        self.assertTrue(self.world.json("token", "revoke", ended)["stored"])
        self.world.server.kill()
        self.assertEqual(self.copies(), copies)
        new = self.world.lose_catalog()
        self.world.reindex(new, "--force")  # a killed one has not said that it stopped
        self.world.start_on(new)
        self.assertEqual([row["id"] for row in self.world.json("token", "list")], [kept])

    def keys(self):
        root = pathlib.Path(self.world.store)
        return [str(path.relative_to(root)) for path in self.world.stored("*")]

    def content(self, key):
        return (pathlib.Path(self.world.store) / key).read_bytes()

    def damage(self, key):
        (pathlib.Path(self.world.store) / key).write_bytes(b"{}")

    def remove(self, key):
        (pathlib.Path(self.world.store) / key).unlink()

    def test_a_catalog_that_holds_something_and_a_folder_that_is_no_store_are_refused(self):
        self.put("llm/7b", 1)
        self.world.server.stop()
        refused = self.world.cairn("reindex", self.world.store, "--catalog",
                                   self.world.catalog or self.world.root / "server", status=6,
                                   env={"CAIRN_DATA_DIR": str(self.world.root / "server")})
        self.assertIn("is not empty", refused.stderr)
        new = self.world.root / "new"
        refused = self.world.cairn("reindex", self.world.store, "--catalog", new, "--json", status=3)
        self.assertIn("grant.key is missing", json.loads(refused.stderr.splitlines()[-1])["message"])
        (self.root / "empty").mkdir()
        refused = self.world.cairn("reindex", self.root / "empty", "--catalog", new, "--new-grant-key", status=3)
        self.assertIn("has no .cairn/store.json", refused.stderr)
        self.assertEqual(list((self.root / "empty").glob("**/store.json")), [])
        self.assertIn("--catalog", self.world.cairn("reindex", self.world.store, status=2).stderr)

    def test_a_reindex_that_is_killed_is_given_again_and_no_server_starts_before_that(self):
        self.fill()
        before = self.rows()
        new = self.world.lose_catalog()
        self.world.env["CAIRN_CRASH_AT"] = "server.reindex.after_run:2"
        self.world.reindex(new, status=None)
        del self.world.env["CAIRN_CRASH_AT"]
        with self.assertRaises(AssertionError) as refused:
            self.world.start_on(new)
        self.assertIn("give `cairn reindex` again", str(refused.exception))
        done = json.loads(self.world.reindex(self.world.root / "server", "--json", "--force").stdout)
        self.assertGreater(done["found"], 0)
        self.assertEqual(done["found"] + done["versions"], 10)
        self.world.start_server()
        self.assertEqual(self.rows(), before)

    def test_a_catalog_of_another_bucket_is_refused_by_name_D07(self):
        self.put("llm/7b", 1)
        self.world.server.stop()
        other = self.make_other()
        self.addCleanup(other.close)
        other.server.stop()
        mine, self.world.store = self.world.store, other.store
        with self.assertRaises(AssertionError) as refused:
            self.world.start_server()
        self.assertIn("this catalog belongs to", str(refused.exception))
        self.assertIn(other.store, str(refused.exception))
        self.world.store = mine
        self.world.start_server()
        self.assertEqual(self.world.version("llm/7b")["step"], 1)


    def make_other(self):
        return World(nodes=0, env={"CAIRN_RECONCILE_WAIT": "0ms"})


class Old(unittest.TestCase):
    """A backup of the catalog that is put back."""

    def setUp(self):
        if postgres.wanted():
            self.skipTest("a backup of a database is its own tool's")
        self.root = cases.folder(self)
        self.world = self.make_world()
        self.addCleanup(self.world.close)
        self.file = cases.file(self.world.root / "weights.bin", b"w" * 3000)

    def make_world(self):
        return World(env=dict(SOON))

    def objects(self):
        """All that must stay."""
        return {str(path) for path in self.world.stored("*") if "generations" not in str(path) and
                "/.cairn/catalog/" not in str(path)}

    def put(self, run, step):
        self.world.cairn("put", self.file, f"{run}@{step}")

    def test_a_day_old_catalog_is_frozen_and_takes_over_what_the_store_says_D07(self):
        world = self.world
        self.put("llm/7b", 1)
        world.server.stop()
        shutil.copytree(world.root / "server", world.root / "backup")
        world.start_server()
        self.put("llm/7b", 2)
        self.put("llm/new", 1)
        newest = world.version("llm/7b")["version"]
        world.server.stop()
        shutil.rmtree(world.root / "server")
        (world.root / "backup").rename(world.root / "server")
        before = self.objects()
        world.start_server()
        status, _, body = world.get("/readyz")
        checks = json.loads(body)["checks"]
        self.assertEqual((status, checks["catalog"]), (503, "ok"))
        self.assertIn("behind its store", checks["generation"])
        self.assertIn(b"cairn_catalog_frozen 1", world.get("/metrics")[2])
        self.assertIn("the catalog is behind its store", world.cairn("doctor", world.store, status=None).stdout)
        world.cairn("put", self.file, "llm/7b@3", "--timeout", "3s", status=None)
        self.assertEqual(before - self.objects(), set())
        world.server.stop()
        world.server_arguments = ["--adopt-store=true"]
        world.start_server()
        for run in ("llm/7b", "llm/new"):
            world.cairn("ls", run, status=None)  # asked for: compared
            wait_until(lambda run=run: world.get(f"/v1/runs/{run}/checkpoints/latest")[0] == 200)
            world.cairn("reconcile", run)
        self.assertEqual(world.version("llm/7b")["version"], newest)
        self.assertEqual(world.version("llm/new")["step"], 1)
        self.assertEqual(world.get("/readyz")[0], 200)
        self.put("llm/7b", 3)
        self.assertEqual(before - self.objects(), set())


class InBucket:
    """The same in a bucket: of s3fault, or (Real) of the server that AWS_* variables name."""

    def make_world(self):
        self.s3 = S3Fault(self.root, case=self)
        self.prefix, self.s3_env = "ckpt", self.s3.env()
        return World(store=f"s3://{self.s3.bucket}/{self.prefix}", env={**self.s3_env, **SOON})

    def make_other(self):
        return World(nodes=0, store=f"s3://{self.s3.bucket}/{self.prefix}-other", env={**self.s3_env, **SOON})

    def keys(self):
        return [key.removeprefix(self.prefix + "/") for key in self.s3.keys(self.prefix + "/")]

    def objects(self):
        return {key for key in self.keys()
                if not key.startswith((".cairn/generations/", ".cairn/catalog/", ".cairn/doctor/"))}

    def at(self, key):
        return f"/{self.s3.bucket}/{self.prefix}/{key}"

    def content(self, key):
        return signed({**os.environ, **self.s3_env}, self.at(key))

    def damage(self, key):
        signed({**os.environ, **self.s3_env}, self.at(key), "PUT", b"{}")

    def remove(self, key):
        signed({**os.environ, **self.s3_env}, self.at(key), "DELETE")


class InRealBucket(InBucket):
    def make_world(self):
        self.s3, self.s3_env = RealS3(), {}
        self.prefix = f"cairn-{os.urandom(4).hex()}"
        return World(store=f"s3://{self.s3.bucket}/{self.prefix}", env=dict(SOON))


class S3Lost(InBucket, Lost):
    pass


class S3Old(InBucket, Old):
    pass


if "--endpoint-from-environment" in sys.argv:
    class RealLost(InRealBucket, Lost):
        pass

    class RealOld(InRealBucket, Old):
        pass


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[word for word in sys.argv if word != "--endpoint-from-environment"])
