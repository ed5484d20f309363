# SPDX-License-Identifier: Apache-2.0
# ctest: labels=full seconds=120 lacks=before
"""Programs of two releases together, up and down (docs/upgrade.md): today's and those of the commit that tests/skew/commit names,
the last release's once there is one. tests/skew/before builds them once and keeps them by that commit's hash;
CAIRN_TEST_BEFORE names a folder of others. Over the store, the catalog, the journal, the socket, HTTP, and PostgreSQL."""
import os
import pathlib
import shutil
import subprocess
import unittest

import cases
import postgres
import world as worlds
from outcome import leave
from world import HANG_S, wait_until, World

TREE = pathlib.Path(__file__).resolve().parents[2]
CACHE = os.environ.get("CAIRN_BEFORE_CACHE", TREE / "build/before")
NOW = worlds.BIN
RUN = "llm/7b"
SLOW = "put:*/000000000300/*/data/*:*:delay@60000"  # of the program that stages step 300


def before():
    """The folder of the programs of the release before; a test that lacks them is skipped by name."""
    given = os.environ.get("CAIRN_TEST_BEFORE")
    if given:
        return pathlib.Path(given).resolve()
    done = subprocess.run([TREE / "tests/skew/before", TREE, CACHE], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        raise unittest.SkipTest(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.strip().splitlines()[-1])


class Skew(unittest.TestCase):
    catalog = None

    @classmethod
    def setUpClass(cls):
        cls.before = before()

    def setUp(self):
        self.addCleanup(self.use, NOW)
        self.bytes = {}

    @staticmethod
    def use(folder):
        worlds.BIN = pathlib.Path(folder).resolve()

    def open_world(self, folder, **options):
        """Servers and uploaders of that folder's release."""
        self.use(folder)
        self.world = World(uploader_arguments=("--heartbeat", "200ms"), **options, case=self)
        self.folder = cases.made(self.world.root / "model")

    def put(self, step, *words, status=0):
        self.bytes[step] = os.urandom(400_000)
        (self.folder / "w.bin").write_bytes(self.bytes[step])
        done = self.world.cairn("put", *words, self.folder, f"{RUN}@{step}", status=status)
        if done.returncode:
            del self.bytes[step]
        return done

    def job(self, step):
        """A trainer of the release in use, whose libcairn saves one step."""
        job = subprocess.Popen([worlds.BIN / "tests/trainer", RUN, "0", "1", str(step)], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "CAIRN_JOB": f"job-{step}", "CAIRN_SOCKET": self.world.socket(),
                                    "TRAINER_ROWS": "2"})
        self.addCleanup(lambda: (job.kill(), job.communicate()))
        return job

    def ends_well(self, job, step):
        said = job.communicate(timeout=HANG_S)[0]
        self.assertEqual(job.returncode, 0, said)
        self.assertEqual(self.world.version(RUN, str(step))["state"], "committed")

    def server_of(self, folder, env=None):
        """The server is stopped, replaced and started."""
        self.world.server.stop()
        self.world.server.command[0] = str(folder / "cairn-server")
        self.world.server.command[2] = f"127.0.0.1:{self.world.port}"
        self.world.server.env = env or {}
        self.world.server.start()

    def uploader_of(self, folder, env=None):
        old = self.world.uploaders[0]
        old.kill()
        old.command[0] = str(folder / "cairn-uploader")
        old.env = env or {}
        old.start()

    def all_are_read(self, *words):
        for step, wanted in self.bytes.items():
            into = self.world.root / f"read-{step}"
            shutil.rmtree(into, ignore_errors=True)
            self.world.cairn("get", f"{RUN}@{step}", "-d", into, *words)
            self.assertEqual((into / "w.bin").read_bytes(), wanted, (step, worlds.BIN))

    def steps(self, *words):
        return [row["step"] for row in self.world.json("ls", RUN, *words) if not row["trashed"]]

    def both_read(self, steps):
        """A command of each release, from the server and from the store alone."""
        for folder in (NOW, self.before):
            self.use(folder)
            for words in ((), ("--store", self.world.store)):
                self.all_are_read(*words)
                self.assertEqual(self.steps(*words), steps)
            for step in steps:
                self.world.cairn("verify", f"{RUN}@{step}")
                self.world.cairn("show", f"{RUN}@{step}", "--json")


class Up(Skew):
    def test_servers_then_uploaders_then_libcairn_then_the_command_with_a_save_at_each_step(self):
        self.open_world(self.before, env={"CAIRN_STORE_FAULT": SLOW})
        self.put(100)
        schema = self.world.read("/version")["schema"]
        self.server_of(NOW)
        log = self.world.server.log.read_text()
        newer = self.world.read("/version")["schema"]
        if newer > schema:  # docs/upgrade.md: told, and copied before
            self.assertIn(f"catalog.migrated from={schema} to={newer}", log)
            self.assertTrue((self.world.root / f"server/catalog-schema-{schema}.db").exists())
        self.put(200)  # by the older command and uploader to the newer server
        # What a job with the older library had staged is sent by the newer uploader, and the job hears of its commit.
        job = self.job(300)
        wait_until(lambda: (self.world.version(RUN, "300") or {}).get("ranks_sealed") == 1)
        self.uploader_of(NOW)
        self.ends_well(job, 300)
        self.ends_well(self.job(350), 350)  # the older library beside a newer uploader
        self.use(NOW)
        self.ends_well(self.job(375), 375)
        self.put(400)
        for step in (300, 350, 375):
            self.world.cairn("verify", f"{RUN}@{step}")
        self.both_read([400, 375, 350, 300, 200, 100])
        self.assertNotIn(" ERROR ", self.world.server.log.read_text())

    def test_a_command_of_each_release_does_its_work_at_a_server_of_the_other(self):
        for server, command in ((NOW, self.before), (self.before, NOW)):
            with self.subTest(server=server, command=command):
                self.bytes = {}
                self.open_world(server)
                self.use(command)
                self.put(1)
                self.put(2)
                self.all_are_read()
                self.assertEqual(self.steps(), [2, 1])
                for words in (("ls",), ("show", f"{RUN}@2"), ("verify", f"{RUN}@1"), ("wait", f"{RUN}@2"), ("du",), ("nodes",),
                              ("events", RUN), ("health", "--ready"), ("pin", f"{RUN}@2"), ("quota", "ls"), ("gc",),
                              ("alias", "set", f"{RUN}@2", "good"), ("lineage", f"{RUN}@2"), ("rm", "-y", f"{RUN}@1")):
                    self.world.cairn(*words)
                self.assertEqual(self.steps(), [2])
                del self.bytes[1]
                self.all_are_read()
                self.world.cairn("unpin", f"{RUN}@2")
                self.world.cairn("alias", "rm", RUN, "good")
                removed = self.world.json("rm", RUN, "--run", "--confirm", "7b")
                self.assertEqual(removed["removed"], 1, removed)
                self.world.close()


class Down(Skew):
    def test_the_way_back_with_the_copy_of_the_catalog_takes_over_what_was_committed_meanwhile(self):
        """docs/runbook.md, Back to the release before."""
        self.open_world(self.before)
        self.put(100)
        schema = self.world.read("/version")["schema"]
        self.server_of(NOW)
        self.uploader_of(NOW)
        self.use(NOW)
        self.put(200)
        newer = self.world.read("/version")["schema"]
        self.world.server.stop()
        self.uploader_of(self.before)  # everything was sent, as after a drain
        data = self.world.root / "server"
        if newer > schema:
            self.world.server.command[0] = str(self.before / "cairn-server")
            with self.assertRaisesRegex(AssertionError, "newer|release"):  # an older one on the newer tables says so
                self.world.server.start()
            (data / "catalog.db").rename(data / "catalog.newer")
            for rest in data.glob("catalog.db-*"):
                rest.unlink()
            shutil.copy(data / f"catalog-schema-{schema}.db", data / "catalog.db")
        self.world.server.command += ["--adopt-store=true", "--reconcile-wait", "10ms"]
        self.server_of(self.before)
        self.use(self.before)
        wait_until(lambda: self.world.cairn("ls", RUN, status=None).returncode == 0)
        self.put(300)
        self.both_read([300, 200, 100])

    def test_what_a_newer_uploader_staged_is_sent_by_the_older_one_or_refused_by_name(self):
        self.open_world(NOW, env={"CAIRN_STORE_FAULT": SLOW})
        job = self.job(300)
        wait_until(lambda: (self.world.version(RUN, "300") or {}).get("ranks_sealed") == 1)
        try:
            self.uploader_of(self.before)
        except AssertionError as refused:
            self.assertRegex(str(refused), "newer release|format|reads 1 to")
            self.uploader_of(NOW)  # and what it staged is unharmed
        self.ends_well(job, 300)
        self.world.cairn("verify", f"{RUN}@300")

    def test_a_newer_uploader_at_an_older_server_is_understood_or_refused_by_name_until_the_server_follows(self):
        """The wrong order."""
        self.open_world(self.before)
        self.uploader_of(NOW)
        self.use(NOW)
        done = self.put(100, "--timeout", "5s", status=None)
        if done.returncode:
            self.assertRegex(done.stderr, "unknown field; the server is older [(][^)]*, this uploader is ")
        self.server_of(NOW)
        self.put(200)
        self.all_are_read()


class Rolling(Skew):
    def test_servers_over_one_postgresql_are_replaced_in_turn_and_the_older_one_says_why_it_waits(self):
        postgres.needed()
        self.open_world(self.before, servers=2, catalog=postgres.shared().catalog())
        servers = [self.world.server, *self.world.further]
        self.put(100)
        schema = self.world.read("/version")["schema"]
        servers[0].stop()
        servers[0].command[0] = str(NOW / "cairn-server")
        servers[0].start()
        newer = self.world.read("/version")["schema"]
        self.put(200)  # the list of servers leads to the newer one
        if newer > schema:
            self.assertIn(f"catalog.migrated from={schema} to={newer}", servers[0].log.read_text())
            wait_until(lambda: "a server of another release has" in servers[1].log.read_text())
        self.both_read([200, 100])
        servers[1].stop()
        if newer > schema:
            with self.assertRaisesRegex(AssertionError, "newer|release"):
                servers[1].start()
        servers[1].command[0] = str(NOW / "cairn-server")
        servers[1].start()
        self.use(NOW)
        self.uploader_of(NOW)
        self.put(300)
        self.both_read([300, 200, 100])


if __name__ == "__main__":
    leave(unittest.main(exit=False).result)
