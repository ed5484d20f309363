# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""What was found damaged of a copy is known from then on: no copy is removed that may be the last good one, and
reads ask the others first, until it is mended or read whole again."""
import json
import pathlib
import re
import shutil
import unittest

import cases
import postgres
from test_tiers import read_fallbacks
from world import files_below, wait_until, World

BYTES = bytes((at * at + at) % 251 for at in range(40000)) * 80  # four blocks
MIB = 1 << 20


class KnownDamage(cases.Case):
    def setUp(self):
        self.model = cases.made(self.folder / "model")
        (self.model / "bytes.bin").write_bytes(BYTES)
        (self.model / "small.bin").write_bytes(b"small" * 100)
        self.slow = self.folder / "slow"
        self.world = World(server_arguments=["--stores", f"main,slow={self.slow}", "--sweep-interval", "100ms"],
                           env={"CAIRN_RECONCILE_WAIT": "0ms"}, case=self)

    def put(self, step, run="t/known", copied=True):
        self.world.cairn("put", self.model, f"{run}@{step}")
        if copied:
            self.world.cairn("promote", f"{run}@{step}", "--to", "slow")
        return f"{run}@{step}"

    def path(self, store, ref, name):
        run, _, step = ref.partition("@")
        root = pathlib.Path(self.slow if store == "slow" else self.world.store)
        found, = root.glob(f"{run}/{int(step):012}/*/{name}")
        return found

    def flip(self, store, ref, offset, name="data/bytes.bin"):
        cases.flip(self.path(store, ref, name), offset)

    def known(self, ref):
        """{store: objects that are known to be damaged} of the copies that there are."""
        run, _, step = ref.partition("@")
        return {copy["store"]: copy.get("damage", {}).get("objects", 0)
                for copy in self.world.version(run, step)["copies"]}

    def events(self, run="t/known"):
        told = self.world.get(f"/v1/runs/{run}/events?since=0&limit=1000")[2]
        return [(event["event"], event["reason"]) for event in json.loads(told)["items"]
                if event["event"] in ("copy.damaged", "copy.sound")]

    def read(self, ref, name="bytes.bin"):
        run, _, step = ref.partition("@")
        status, _, body = self.world.get(f"/v1/runs/{run}/checkpoints/{step}/shards/{name}/data")
        return status, body

    def ask_verify(self, ref, body):
        run, _, step = ref.partition("@")
        begun = self.world.send("POST", f"/v1/runs/{run}/checkpoints/{step}/verify", body)
        while begun["ended_at"] is None:
            begun = self.world.read(f"/v1/operations/{begun['id']}?wait=10s")
        return begun["result"]

    def refused(self, ref, store):
        return self.world.cairn("demote", ref, "--from", store, status=6).stderr

    def test_the_last_good_copy_stays_until_the_other_is_mended_also_over_a_restart(self):
        ref = self.put(1)
        self.flip("slow", ref, MIB + 5)
        self.world.cairn("verify", ref, status=7)
        self.assertEqual(self.known(ref), {"main": 0, "slow": 1})
        said = self.refused(ref, "main")
        self.assertRegex(said, r"in slow 1 of its objects was found damaged or missing \(20")
        self.assertRegex(said, r"Mend it first: cairn verify t/known@ckpt_\S+ --repair")
        shown = self.world.cairn("show", ref).stdout
        self.assertRegex(shown, r"lies in +main, slow \(1 object damaged, found 20\d\d-\S+Z\)\n")
        self.world.server.kill()
        self.world.start_server()
        self.assertEqual(self.known(ref), {"main": 0, "slow": 1})
        self.refused(ref, "main")
        self.world.cairn("promote", ref, "--to", "slow")  # it is there, and no better for it
        self.assertEqual(self.known(ref), {"main": 0, "slow": 1})
        asked = re.search(r"cairn (verify \S+ --repair)", said).group(1)
        self.world.cairn(*asked.split())
        self.assertEqual(self.known(ref), {"main": 0, "slow": 0})
        self.world.cairn("demote", ref, "--from", "main")
        self.assertEqual(self.known(ref), {"slow": 0})
        self.world.cairn("get", ref, "-d", self.folder / "back")
        self.assertEqual((self.folder / "back" / "bytes.bin").read_bytes(), BYTES)
        self.assertEqual(self.events(), [("copy.damaged", "slow"), ("copy.sound", "slow")])

    def test_the_damaged_copy_itself_goes_and_one_that_is_made_anew_is_sound(self):
        ref = self.put(1)
        self.flip("slow", ref, 5)
        self.flip("slow", ref, 5, "data/small.bin")
        self.world.cairn("verify", ref, status=7)
        self.assertEqual(self.known(ref), {"main": 0, "slow": 2})
        self.world.cairn("demote", ref, "--from", "slow")
        self.world.cairn("promote", ref, "--to", "slow")
        self.assertEqual(self.known(ref), {"main": 0, "slow": 0})
        self.world.cairn("demote", ref, "--from", "main")

    def test_of_two_damaged_copies_none_goes_and_main_is_known_like_any(self):
        ref = self.put(1)
        self.flip("slow", ref, 5)
        self.flip("main", ref, 2 * MIB + 5)
        self.world.cairn("verify", ref, status=7)
        self.assertEqual(self.known(ref), {"main": 1, "slow": 1})
        self.assertIn("in main 1 of its objects", self.refused(ref, "slow"))
        self.assertIn("in slow 1 of its objects", self.refused(ref, "main"))
        self.world.cairn("verify", ref, "--repair")
        self.assertEqual(self.known(ref), {"main": 0, "slow": 0})
        self.world.cairn("demote", ref, "--from", "slow")
        alone = self.put(2, copied=False)
        self.path("main", alone, "data/small.bin").unlink()
        self.world.cairn("verify", alone, "--metadata", status=7)
        self.assertRegex(self.world.cairn("show", alone).stdout, r"lies in +main \(1 object damaged, found ")

    def test_only_a_look_at_all_of_it_says_that_nothing_is_damaged_any_more(self):
        ref = self.put(1)
        self.flip("slow", ref, 5)
        self.flip("slow", ref, 5, "data/small.bin")
        self.assertFalse(self.ask_verify(ref, {"read": True, "part": 1, "parts": 2})["ok"])
        self.assertEqual(self.known(ref), {"main": 0, "slow": 1})
        self.assertFalse(self.ask_verify(ref, {"read": True})["ok"])
        self.assertEqual(self.known(ref), {"main": 0, "slow": 2})
        self.flip("slow", ref, 5)
        self.flip("slow", ref, 5, "data/small.bin")  # and well again
        self.world.cairn("verify", ref, "--metadata")
        self.assertTrue(self.ask_verify(ref, {"read": True, "part": 1, "parts": 2})["ok"])
        self.assertEqual(self.known(ref), {"main": 0, "slow": 2})
        self.refused(ref, "main")
        self.assertTrue(self.ask_verify(ref, {"read": True})["ok"])
        self.assertEqual(self.known(ref), {"main": 0, "slow": 0})
        self.world.cairn("demote", ref, "--from", "main")

    def test_a_read_that_meets_damage_makes_it_known_and_the_next_one_asks_the_other_store(self):
        ref = self.put(1)
        self.flip("main", ref, MIB + 5)
        self.assertEqual(self.read(ref), (200, BYTES))
        fallbacks = read_fallbacks(self.world)
        self.assertGreater(fallbacks, 0)
        self.assertEqual(self.known(ref), {"main": 1, "slow": 0})
        self.assertIn("in main 1 of its objects", self.refused(ref, "slow"))
        self.assertEqual(self.read(ref), (200, BYTES))
        self.world.cairn("get", ref, "-d", self.folder / "back")
        self.assertEqual((self.folder / "back" / "bytes.bin").read_bytes(), BYTES)
        self.assertEqual(read_fallbacks(self.world), fallbacks)
        self.world.cairn("verify", ref, "--repair")
        self.world.cairn("demote", ref, "--from", "slow")
        self.assertEqual(self.read(ref), (200, BYTES))

    def test_a_policy_removes_no_copy_beside_a_damaged_one(self):
        first = self.put(1)
        self.flip("slow", first, 5)
        self.world.cairn("verify", first, status=7)
        self.world.cairn("policy", "set", "t/known", "--keep-last", "9", "--copies", "main:last:1")
        second = self.put(2)  # so it is no longer the newest, and lies elsewhere
        third = self.put(3)
        wait_until(lambda: self.known(second) == {"slow": 0})
        self.assertEqual(self.known(first), {"main": 0, "slow": 1})
        self.world.cairn("verify", first, "--repair")
        self.put(4)
        wait_until(lambda: self.known(first) == {"slow": 0} and self.known(third) == {"slow": 0})

    def test_a_copy_of_a_policy_that_somebody_asks_for_is_no_better_for_it(self):
        ref = self.put(1, copied=False)
        self.world.cairn("policy", "set", "t/known", "--keep-last", "9", "--copies", "slow:last:9")
        self.put(2, copied=False)
        wait_until(lambda: self.known(ref) == {"main": 0, "slow": 0} and "whole" in {
            copy["state"] for copy in self.world.version("t/known", 1)["copies"] if copy["store"] == "slow"})
        self.flip("slow", ref, 5)
        self.world.cairn("verify", ref, status=7)
        self.world.cairn("promote", ref, "--to", "slow")
        copy = self.world.version("t/known", 1)["copies"][1]
        self.assertEqual((copy["store"], copy["by_policy"], copy["damage"]["objects"]), ("slow", False, 1))

    def test_a_lost_record_of_the_attempt_is_damage_of_no_restore(self):
        ref = self.put(1)
        for path in files_below(self.slow):
            if "/attempts/" in str(path):
                path.unlink()
        said = self.world.json("verify", ref, status=7)
        self.assertEqual([copy["damaged"] > 0 for copy in said["copies"]], [False, True])
        self.assertEqual(self.known(ref), {"main": 0, "slow": 0})
        self.world.cairn("demote", ref, "--from", "main")

    def test_a_store_that_is_away_makes_nothing_of_its_copies_known(self):
        ref = self.put(1)
        self.slow.rename(self.folder / "away")
        self.world.cairn("verify", ref, status=None)
        self.assertEqual(self.known(ref), {"main": 0, "slow": 0})
        (self.folder / "away").rename(self.slow)
        self.world.cairn("verify", ref)

    def test_a_catalog_that_is_made_again_does_not_know_it(self):
        ref = self.put(1)
        self.flip("slow", ref, 5)
        self.world.cairn("verify", ref, status=7)
        self.world.uploaders[0].stop()
        self.world.server.stop()
        new = self.world.root / "new"
        new.mkdir(mode=0o700)
        shutil.copy(self.world.root / "server" / "grant.key", new)
        self.world.catalog = postgres.catalog()
        to = ["--catalog", self.world.catalog, "--data-dir", new] if self.world.catalog else ["--catalog", new]
        self.world.cairn("reindex", self.world.store, "--stores", f"main,slow={self.slow}", *to)
        shutil.rmtree(self.world.root / "server")
        new.rename(self.world.root / "server")
        self.world.start_server()
        wait_until(lambda: self.known(ref) == {"main": 0, "slow": 0})
        self.world.cairn("verify", ref, status=7)
        self.assertEqual(self.known(ref), {"main": 0, "slow": 1})


if __name__ == "__main__":
    unittest.main(verbosity=2)
