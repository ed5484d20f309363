# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""cairn watch: events and the progress of open saves as they happen, in a log, for a program, on a
terminal; over a restart of the server; and how it ends."""
import json
import os
import pathlib
import pty
import select
import unittest

import cases
from signs import connected, is_read
from terminal import plain
from world import HANG_S, in_time, wait_until, World

RUN = "llm/watched"
# Three puts of shards fail, and the fourth takes three seconds.
SLOW = "put:*/data/*:1-3:unavailable; put:*/data/*:*:delay@3000"


class Watch(unittest.TestCase):
    def world_of(self, **options):
        world = World(uploader_arguments=["--heartbeat", "100ms"], **options, case=self)
        self.folder = cases.made(world.root / "one")
        (self.folder / "bytes").write_bytes(b"7" * 100_000)
        return world

    def watch(self, world, *words):
        """Its process, and what it says in files."""
        name = world.root / f"watch-{len(list(world.root.glob('watch-*.out')))}"
        with open(f"{name}.out", "wb") as out, open(f"{name}.err", "wb") as errors:
            watching = world.begin("watch", *words, stdout=out, stderr=errors, env={"CAIRN_PROGRESS": "auto"})
        watching.out, watching.errors = pathlib.Path(f"{name}.out"), pathlib.Path(f"{name}.err")

        def end():
            if watching.poll() is None:
                watching.kill()
                watching.wait()
        self.addCleanup(end)
        return watching

    def ended(self, watching, status=0):
        self.assertEqual(watching.wait(HANG_S), status, watching.errors.read_text())
        return watching.out.read_text(), watching.errors.read_text()

    def test_a_save_has_a_line_for_each_change_until_it_is_committed(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": SLOW})
        world.cairn("put", "--detach", self.folder, f"{RUN}@5")
        out, errors = self.ended(self.watch(world, f"{RUN}@5", "--every", "100ms"))
        lines = out.splitlines()
        self.assertNotIn("\033", out)
        self.assertNotIn("\r", out)
        progress = [line for line in lines if " state=open " in line]
        self.assertRegex(progress[0], rf"^\d{{4}}-\S+Z {RUN} step=5 attempt=1 state=open pct=0 bytes=0/\d+ "
                                      r"ranks=\d/1 shards=\d/\d( parts=0/1)? nodes=1")
        self.assertEqual(len(set(line.split(" ", 1)[1] for line in progress)), len(progress), "only changes")
        self.assertTrue([line for line in lines if ' node=node-0 error="shard ' in line], out)
        self.assertRegex(lines[-1], rf"^\S+Z {RUN} step=5 event=checkpoint\.committed .*by=server$")
        self.assertEqual(errors, "")
        # What is over already is told by the status alone.
        self.assertEqual(self.ended(self.watch(world, f"{RUN}@5")), ("", ""))

    def test_a_restart_of_the_server_loses_and_repeats_no_event(self):
        world = self.world_of()
        watching = self.watch(world, "llm", "--json", "--until", "alias.set")
        wait_until(lambda: connected(watching.pid, world.port) and is_read(world.port))  # it listens
        world.cairn("put", self.folder, f"{RUN}@1")
        world.cairn("put", self.folder, "other/run@1")
        wait_until(watching.out.read_text)
        world.server.stop()
        wait_until(lambda: not connected(watching.pid, world.port))
        world.server = world.make_server(0, world.port).start()
        world.cairn("put", self.folder, f"{RUN}@2")
        world.cairn("alias", "set", f"{RUN}@2", "good")
        out, errors = self.ended(watching)
        events = [said["event"] for said in map(json.loads, out.splitlines()) if "event" in said]
        kept = [json.loads(said) for said in world.cairn("events", RUN, "--since", "0", "--json").stdout.splitlines()]
        self.assertEqual(events, kept)
        self.assertEqual({event["project"] for event in events}, {"llm"})
        self.assertEqual(events[-1]["event"], "alias.set")
        self.assertRegex(errors, "cairn watch: .*\ncairn watch: it answers again\n")

    def test_names_are_those_of_checkpoints_that_can_be_read(self):
        world = self.world_of()
        self.assertIn("there is no run", self.ended(self.watch(world, RUN, "-o", "name"), 3)[1])
        world.cairn("put", self.folder, f"{RUN}@0")
        watching = self.watch(world, RUN, "-o", "name", "--until", "run.annotated")
        wait_until(lambda: connected(watching.pid, world.port) and is_read(world.port))  # it listens
        for step in (1, 2):
            world.cairn("put", self.folder, f"{RUN}@{step}")
            wait_until(lambda: f"{RUN}@{step}\n" in watching.out.read_text())
        world.cairn("label", RUN, "team=nlp")
        self.assertEqual(self.ended(watching)[0], f"{RUN}@1\n{RUN}@2\n")

    def test_its_end_is_the_status(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": "put:*/data/*:*:unavailable"})
        self.ended(self.watch(world, RUN, "--timeout", f"{HANG_S}s"), 3)  # at once: there is no such run
        self.ended(self.watch(world, f"{RUN}@5", "--timeout", f"{HANG_S}s"), 3)
        world.cairn("put", "--detach", self.folder, f"{RUN}@4")
        for status, *words in ((0, RUN), (8, RUN, "--until", "committed"), (8, "--until", "idle"), (2, RUN, "--until", "eaten"),
                               (2, "a/b/c"), (2, "a@1")):
            in_time(lambda seconds: self.watch(world, *words, "--timeout", f"{1000 * seconds:.0f}ms").wait(HANG_S) == status, 0.3)
        watching = self.watch(world, "--until", "idle")
        world.cairn("abort", f"{RUN}@4")  # else its uploader tries for five minutes
        self.ended(watching)
        world.cairn("put", "--detach", self.folder, f"{RUN}@5")
        watching = self.watch(world, f"{RUN}@5", "--every", "100ms")
        wait_until(lambda: "state=open" in watching.out.read_text())
        version = world.version(RUN, "5")["version"]
        status, _, _ = world.get(f"/v1/runs/{RUN}/checkpoints/{version}/abort", "POST",
                                 {"X-Cairn": "1", "Content-Type": "application/json"})
        self.assertIn(status, (200, 202))
        self.assertIn("checkpoint.aborted", self.ended(watching, 6)[1])
        self.assertRegex(self.ended(self.watch(world, f"{RUN}@{version}"), 6)[1], "is (aborting|aborted|gone): .*given up")

    def test_a_terminal_shows_one_picture_that_is_drawn_again(self):
        world = self.world_of(env={"CAIRN_STORE_FAULT": SLOW})
        world.cairn("put", "--detach", self.folder, f"{RUN}@5")
        master, slave = pty.openpty()
        watching = world.begin("watch", f"{RUN}@5", "--every", "200ms", stdin=slave, stdout=slave, stderr=slave,
                               env={"TERM": "xterm", "LC_ALL": "C.UTF-8", "CAIRN_PROGRESS": "auto"})
        os.close(slave)
        seen = b""
        while watching.poll() is None or select.select([master], [], [], 0)[0]:
            if not select.select([master], [], [], 0.2)[0]:
                continue
            try:
                seen += os.read(master, 65536)
            except OSError:
                break
        os.close(master)
        self.assertEqual(watching.wait(HANG_S), 0, seen)
        self.assertIn(b"\033[31m", seen)  # the node whose error is told
        text = plain(seen.decode())
        self.assertIn(f"{RUN} step 5 attempt 1  ─", text)
        self.assertRegex(text, r"  node-0 +─+ 0 B/\S+ \S+")
        self.assertRegex(text, "\r\033\\[2A\033\\[J\033\\[\\?7l")  # two lines are drawn over
        self.assertRegex(text.splitlines()[-1], "event=checkpoint.committed")


if __name__ == "__main__":
    unittest.main(verbosity=2)
