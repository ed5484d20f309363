# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=30 engines=again
"""What an interrupted get or put leaves, and that the same command goes on."""
import fcntl
import json
import os
import pathlib
import signal
import unittest

import cases
from signs import asleep, has_socket
from test_tree import tree_of
from world import HANG_S, wait_until, World

MIB = 1 << 20


def is_locked(file):
    """A process that was killed gives its locks back a moment after its command line is gone."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


class Interrupt(unittest.TestCase):
    def setUp(self):
        self.world = World(case=self)
        self.tree = self.world.root / "tree"
        (self.tree / "sub").mkdir(parents=True)
        for i in range(6):
            (self.tree / f"sub/{i}.bin").write_bytes(os.urandom(20 * MIB + i))

    def interrupted_get(self, back, how, *flags):
        get = self.world.begin("get", "i/run@1", "-d", back, "-j", "1", *flags)
        parts = lambda: list(back.glob(".cairn-get-*/1"))  # the second file is being read
        wait_until(lambda: parts() or get.poll() is not None, every=0.001)
        get.send_signal(how)
        _, said = get.communicate(timeout=HANG_S)
        return get.returncode, said

    def test_an_interrupted_get_leaves_no_file_under_its_name_and_goes_on(self):
        self.world.cairn("put", self.tree, "i/run@1")
        for number, (how, status, flags) in enumerate((
                (signal.SIGINT, 130, ()), (signal.SIGTERM, 143, ()),
                (signal.SIGTERM, 143, ("--store", self.world.store)))):
            back = cases.made(self.world.root / f"back-{number}")
            returned, said = self.interrupted_get(back, how, *flags)
            self.assertEqual(returned, status, said)
            self.assertEqual([p for p in back.rglob("*.bin")], [])
            self.assertIn(f"cairn get i/run@ckpt_", said)
            self.assertIn(str(back), said)
            kept = next(back.glob(".cairn-get-*/0"))
            self.assertEqual(kept.read_bytes(), (self.tree / "sub/0.bin").read_bytes())
            # What was read is not read again: the store's object of it may be gone.
            stored = [p for p in self.world.stored("0.bin") if "data" in p.parts][0]
            stored.rename(self.world.root / "aside")
            try:
                self.world.cairn("get", "i/run@1", "-d", back, *flags)
            finally:
                (self.world.root / "aside").rename(stored)
            self.assertEqual(tree_of(back), tree_of(self.tree))
            self.assertEqual(list(back.glob(".cairn*")), [])

    def test_a_get_that_is_killed_hard_goes_on_too_and_does_not_believe_what_it_finds(self):
        self.world.cairn("put", self.tree, "i/run@1")
        back = cases.made(self.world.root / "back")
        self.assertEqual(self.interrupted_get(back, signal.SIGKILL)[0], -signal.SIGKILL)
        part = next(back.glob(".cairn-get-*/0"))
        with open(part, "r+b") as file:
            file.seek(3 * MIB)
            file.write(b"other")
        self.world.cairn("get", "i/run@1", "-d", back)
        self.assertEqual(tree_of(back), tree_of(self.tree))
        self.world.cairn("get", "i/run@1", "-d", back)  # all is there already: nothing to do
        (back / "sub/3.bin").write_bytes(b"mine")
        self.world.cairn("get", "i/run@1", "-d", back, status=6)
        self.assertEqual((back / "sub/3.bin").read_bytes(), b"mine")

    def test_get_without_a_folder_makes_one_named_by_run_and_step(self):
        self.world.cairn("put", self.tree / "sub", "i/run@7")
        here = cases.made(self.world.root / "here")
        said = self.world.cairn("get", "i/run@7", "--json", cwd=here)
        self.assertEqual(json.loads(said.stdout)["folder"], "run-7")
        self.assertEqual([p.name for p in here.iterdir()], ["run-7"])
        self.assertEqual(tree_of(here / "run-7"), tree_of(self.tree / "sub"))

    # ---- put ----

    def own_daemons(self):
        """{private folder: process id} of the uploaders that puts with --store have started."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            if any(b"cairn-uploader" in word for word in words) and str(self.world.store).encode() in words:
                folder = pathlib.Path(os.fsdecode(words[words.index(b"--state-dir") + 1]))
                if folder.name.startswith("cairn-put-"):
                    found[folder] = int(entry.name)
        return found

    def stop_world(self, how=signal.SIGSTOP):
        self.world.server.process.send_signal(how)

    def test_an_interrupted_put_is_given_up_and_a_retry_at_once_works(self):
        for number, (how, status) in enumerate(((signal.SIGINT, 130), (signal.SIGTERM, 143))):
            step = 10 + number
            # The server is slow: the save is begun and sealed, and not committed.
            put = self.world.begin("put", self.tree, f"i/run@{step}")
            wait_until(lambda: self.world.version("i/run", step) or put.poll() is not None, every=0.005)
            put.send_signal(how)
            _, said = put.communicate(timeout=HANG_S)
            if put.returncode == 0:
                continue  # it was faster
            self.assertEqual(put.returncode, status, said)
            self.assertRegex(said, "given up|is committed all the same")
            if "given up" in said:
                wait_until(lambda: (self.world.version("i/run", step) or {}).get("state") != "open", 20)
                self.world.cairn("put", self.tree, f"i/run@{step}")
            self.assertEqual(self.world.version("i/run", step)["state"], "committed")

    def test_an_interrupted_put_that_waits_for_the_server_ends_at_once(self):
        self.stop_world()
        try:
            put = self.world.begin("put", self.tree, "i/run@1")
            wait_until(lambda: asleep(put.pid) and has_socket(put.pid))  # it has asked its uploader, and waits
            put.send_signal(signal.SIGINT)
            _, said = put.communicate(timeout=HANG_S)
            self.assertEqual(put.returncode, 130, said)
            self.assertIn("nothing was begun", said)
        finally:
            self.stop_world(signal.SIGCONT)
        self.world.cairn("put", self.tree, "i/run@1")

    def test_a_put_ends_after_its_timeout_while_the_server_is_silent(self):
        self.stop_world()
        try:
            self.world.cairn("put", self.tree, "i/run@1", "--timeout", "2s", status=8)
        finally:
            self.stop_world(signal.SIGCONT)

    def test_an_interrupted_put_takes_its_own_uploader_and_journal_with_it(self):
        temporary = cases.made(self.world.root / "temporary")  # of its own: other tests put beside this one
        none = {"CAIRN_SOCKET": str(self.world.root / "nobody.sock"), "TMPDIR": str(temporary)}
        for how, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            # Its objects take a second each, so that it is still at them when the signal comes.
            put = self.world.begin("put", self.tree, "i/own@1", "--store", self.world.store,
                             env={**none, "CAIRN_STORE_FAULT": "put:*:*:delay@1000; complete:*:*:delay@1000"})
            wait_until(lambda: self.own_daemons() or put.poll() is not None, every=0.005)
            put.send_signal(how)
            _, said = put.communicate(timeout=HANG_S)
            self.assertEqual(put.returncode, status, said)
            self.assertEqual(self.own_daemons(), {})
            self.assertEqual(list(temporary.iterdir()), [])
        self.world.cairn("put", self.tree, "i/own@1", "--store", self.world.store, env=none)
        self.world.cairn("verify", "i/own@1")

    def test_a_put_that_is_killed_hard_takes_its_own_uploader_with_it(self):
        none = {"CAIRN_SOCKET": str(self.world.root / "nobody.sock"), "TMPDIR": str(self.world.root)}
        put = self.world.begin("put", self.tree, "i/hard@1", "--store", self.world.store, env=none)
        wait_until(lambda: self.own_daemons() or put.poll() is not None, every=0.005)
        self.assertEqual(len(self.own_daemons()), 1)
        put.kill()
        put.communicate(timeout=HANG_S)
        wait_until(lambda: not self.own_daemons(), 40)

    def nodes(self):
        return {row["node"] for row in self.world.read("/v1/nodes")["items"]}

    def test_a_put_with_its_own_uploader_leaves_no_node_and_a_killed_one_is_ended_by_the_next(self):
        temporary = cases.made(self.world.root / "temporary")
        own = {"CAIRN_SOCKET": str(self.world.root / "nobody.sock"), "TMPDIR": str(temporary)}
        small = cases.file(self.world.root / "small", b"s" * 1000)
        before = wait_until(self.nodes)
        self.world.cairn("put", small, "i/node@1", "--store", self.world.store, env=own)
        self.assertEqual(self.nodes(), before)
        # Killed with its uploader in the middle of a save: that node can say nothing any more.
        put = self.world.begin("put", self.tree, "i/node@2", "--store", self.world.store,
                         env={**own, "CAIRN_STORE_FAULT": "put:*:*:delay@1000; complete:*:*:delay@1000"})
        wait_until(lambda: (self.nodes() - before) or put.poll() is not None, every=0.005)
        (folder, uploader), = self.own_daemons().items()
        os.kill(uploader, signal.SIGSTOP)  # else it ends by itself, and says so
        put.kill()
        os.kill(uploader, signal.SIGKILL)
        put.communicate(timeout=HANG_S)
        wait_until(lambda: not self.own_daemons())
        wait_until(lambda: len(self.nodes() - before) == 1)  # its attempt may still be being opened
        said = self.world.cairn("put", small, "i/node@3", "--store", self.world.store, env=own).stderr
        self.assertIn(f"removed {folder}", said)
        self.assertEqual(self.nodes(), before)

    def test_the_folder_of_a_killed_put_is_removed_by_the_next_put_and_that_of_a_living_one_is_not(self):
        temporary = cases.made(self.world.root / "temporary")
        stranger = cases.made(temporary / "cairn-put-notes")
        (stranger / "put.lock").touch()
        env = {"CAIRN_SOCKET": str(self.world.root / "nobody.sock"), "TMPDIR": str(temporary)}
        small = cases.file(self.world.root / "small", b"s" * 1000)

        def start_put(run):
            """A put whose uploader holds its lock, stopped with it: (its process, the folder)."""
            known = set(self.own_daemons())
            put = self.world.begin("put", self.tree, f"{run}@1", "--store", self.world.store, env=env)
            self.addCleanup(put.kill)
            folder, = wait_until(lambda: [folder for folder in set(self.own_daemons()) - known
                                          if list(folder.glob("*.journal.lock"))], every=0.005)
            for process in (put.pid, self.own_daemons()[folder]):
                os.kill(process, signal.SIGSTOP)
            return put, folder

        def put_another(step):
            said = self.world.cairn("put", small, f"next/run@{step}", "--store", self.world.store, env=env)
            return said.stderr, set(temporary.iterdir()) - {stranger}

        living, living_folder = start_put("living/run")
        killed, killed_folder = start_put("killed/run")
        os.kill(self.own_daemons()[killed_folder], signal.SIGKILL)
        killed.kill()
        killed.communicate(timeout=HANG_S)
        wait_until(lambda: killed_folder not in self.own_daemons())
        with open(next(killed_folder.glob("*.journal.lock")), "rb") as lock:
            wait_until(lambda: is_locked(lock))  # as an uploader that still sends
            self.assertEqual(put_another(1), ("", {living_folder, killed_folder}))
        said, left = put_another(2)
        self.assertEqual(left, {living_folder})
        self.assertEqual(said, f"note: removed {killed_folder}, which a killed cairn put had left\n")
        for process in (self.own_daemons()[living_folder], living.pid):
            os.kill(process, signal.SIGCONT)
        _, said = living.communicate(timeout=HANG_S)
        self.assertEqual(living.returncode, 0, said)
        self.assertEqual(list(temporary.iterdir()), [stranger])

    def test_a_detached_put_goes_on_without_the_command(self):
        said = self.world.cairn("put", self.tree, "i/run@5", "--detach")
        self.assertIn("cairn wait i/run@5", said.stdout)
        self.world.cairn("wait", "i/run@5", "--timeout", f"{HANG_S}s")
        self.world.cairn("verify", "i/run@5")
        none = {"CAIRN_SOCKET": str(self.world.root / "nobody.sock")}
        said = self.world.cairn("put", self.tree, "i/run@6", "--detach", "--store",
                                self.world.store, env=none, status=5)
        self.assertIn("--detach", said.stderr)

    def test_a_detached_put_that_no_uploader_has_whole_is_not_called_handed_over(self):
        uploader = self.world.uploaders[0]
        uploader.stop()
        uploader.env = {**self.world.env, "CAIRN_CRASH_AT": "uploader.seal.journaled:1:kill"}  # it has not answered
        uploader.start()
        said = self.world.cairn("put", self.tree, "i/run@7", "--detach", status=5)
        self.assertNotIn("handed over", said.stdout)
        self.assertIn("is away", said.stderr)
        uploader.process.wait()
        uploader.env = self.world.env
        uploader.start()


if __name__ == "__main__":
    unittest.main(verbosity=2)
