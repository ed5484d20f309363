# SPDX-License-Identifier: Apache-2.0
# ctest: with="Faults" engines=postgresql
# ctest: as=postgres_stopped with="Stopped" seconds=150 engines=postgresql
"""PostgreSQL is killed, stopped for longer than every time-out, has no room, fails over to a standby,
while 8 ranks save without waiting. No committed version is lost or there twice, what was staged
meanwhile commits afterwards, and `latest` never goes back (chaos_oracle.py, chaos_world.py).

CAIRN_TEST_SEED repeats a run."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

import cases
import postgres
from chaos_stream import Plan, Scene
from world import wait_until

SEED = int(os.environ.get("CAIRN_TEST_SEED") or time.time_ns() % 1_000_000)
# The engine's longest wait for an answer and for what became of a COMMIT, in engine_postgres.h.
ANSWER_S, SETTLE_S = 40, 30
STOPPED_S = ANSWER_S + SETTLE_S + 5
ROOM = "64m"
NO_PRIMARY_S = 1.0


class Scenes(unittest.TestCase):
    def setUp(self):
        postgres.needed()
        self.database = None

    def tearDown(self):
        if self.database:
            self.database.end()

    def play(self, deed, catalog, pause_ms=None):
        """A job of 8 ranks from its start to the judgement; deed(scene) is done meanwhile."""
        plan = Plan("database", "folder", SEED)
        plan.runs, plan.bytes = {"x/run": 8}, 1 << 16
        plan.pause_ms = pause_ms or plan.pause_ms
        scene, faults = Scene(plan, None, deed, catalog=catalog), []
        try:
            for act in (scene.begin, scene.play, scene.resume):
                faults += act() or []
            faults += self.compare(scene.world)
            faults += scene.audit()
            self.assertGreater(scene.world.watch.looks, 0)
        finally:
            if faults:
                scene.save_evidence(faults)
            scene.close()
        self.assertEqual(faults, [])

    def compare(self, world):
        """Each step is committed once, and the store has the records of the very same versions."""
        rows = postgres.sql("SELECT step, version FROM versions WHERE state = 1", self.url).splitlines()
        steps = [row.split("|")[0] for row in rows]
        twice = sorted({step for step in steps if steps.count(step) > 1})
        known = {row.split("|")[1] for row in rows}
        records = {json.loads(path.read_text())["version"]
                   for path in pathlib.Path(world.store).glob("x/run/*/ckpt_*/committed.json")}
        return ([f"committed twice: {twice}"] if twice else []) + \
            ([f"in the catalog or in the store alone: {known ^ records}"] if known ^ records else [])

    def single(self, **settings):
        self.database = postgres.Postgres(settings).make().start()
        self.url = self.database.catalog()
        return self.url

    def pair(self):
        """A primary that waits for its standby with each COMMIT; the catalog's URL names both."""
        self.database = postgres.Postgres({"wal_level": "replica"}).make().start()
        standby = self.database.standby()
        # The standby was copied before: once it is promoted it waits for nobody.
        self.database.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.database.sql("SELECT pg_reload_conf()")
        wait_until(lambda: self.database.sql("SELECT sync_state FROM pg_stat_replication") == "sync")
        schema = self.database.catalog().rsplit("%3D", 1)[1]
        hosts = ",".join([str(self.database.folder)] * 2)
        self.url = standby.url(schema=schema)
        return (f"postgresql://cairn@/postgres?host={hosts}&port={self.database.port},"
                f"{standby.port}&options=-csearch_path%3D{schema}"
                "&target_session_attrs=read-write"), standby


class Faults(Scenes):
    def test_d08_a_database_that_is_killed_again_and_again_loses_no_save(self):
        def deed(scene):
            for _ in range(4):
                time.sleep(scene.plan.chance.uniform(0.2, 1.2))  # pause of chaos
                self.database.kill()
                time.sleep(scene.plan.chance.uniform(0, 0.8))  # pause of chaos
                self.database.start()
        self.play(deed, self.single())

    def test_d09_sessions_that_are_ended_again_and_again_lose_no_save(self):
        def deed(scene):
            for _ in range(40):
                time.sleep(scene.plan.chance.uniform(0, 0.1))  # pause of chaos
                self.database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "
                                  "application_name = 'cairn-server'")
        self.play(deed, self.single())

    def test_d09_a_database_whose_disk_is_full_loses_no_save(self):
        self.database = postgres.Postgres()
        disk = cases.made(self.database.data)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", disk],
                                 capture_output=True, check=False)
        if mounted.returncode:
            self.skipTest("a small disk cannot be mounted here")
        self.database.data = disk / "pg"
        self.database.make().start()
        self.url = self.database.catalog()

        def deed(scene):
            for _ in range(3):
                time.sleep(scene.plan.chance.uniform(0.3, 1))  # pause of chaos
                ballast = disk / "ballast"
                with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(4096))
                time.sleep(scene.plan.chance.uniform(1, 3))  # pause of chaos
                ballast.unlink()
                if self.database.process.poll() is not None:  # WAL that cannot be written
                    self.database.start()
        self.play(deed, self.url)

    def test_d08_a_synchronous_standby_that_is_promoted_has_every_committed_version(self):
        url, standby = self.pair()

        def deed(_scene):
            time.sleep(1)  # pause of chaos
            self.database.kill()
            time.sleep(NO_PRIMARY_S)  # pause of chaos
            standby.sql("SELECT pg_promote()")
        self.play(deed, url)


class Stopped(Scenes):
    """Each takes longer than the engine waits for an answer."""

    def test_a_database_that_stands_still_for_longer_than_every_time_out_loses_no_save(self):
        def deed(scene):
            time.sleep(1)  # pause of chaos
            self.database.signal(signal.SIGSTOP)
            time.sleep(STOPPED_S)  # pause of chaos
            self.database.signal(signal.SIGCONT)
        self.play(deed, self.single(), pause_ms=1000)

    def test_a_commit_that_waited_for_its_standby_in_vain_is_not_lost_by_promoting_it(self):
        url, standby = self.pair()

        def deed(_scene):
            time.sleep(1)  # pause of chaos
            standby.signal(signal.SIGSTOP)
            time.sleep(ANSWER_S + 5)  # pause of chaos: the COMMIT of then is in doubt
            self.database.kill()
            standby.signal(signal.SIGCONT)
            standby.sql("SELECT pg_promote()")
        self.play(deed, url, pause_ms=1000)


if __name__ == "__main__":
    print(f"CAIRN_TEST_SEED={SEED}", flush=True)
    unittest.main(verbosity=2)
