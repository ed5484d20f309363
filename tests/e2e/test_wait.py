# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""cairn wait --for: each state of a checkpoint is told when it comes and not before, what can no longer come
is refused at once, and the time given is kept."""
import base64
import json
import os
import pathlib
import struct
import time
import unittest
import uuid

import cases
from history_clients import crc32c
from signs import waits_on
from world import HANG_S, in_time, wait_until, World

RUN = "llm/7b"
R = f"/v1/runs/{RUN}"
NAME = "rank-00000/x"


class Wait(unittest.TestCase):
    def setUp(self):
        self.far = None
        self.world = World(nodes=0)
        self.addCleanup(lambda: self.world.close())
        self.waiting = []

    def start_with_sweeps(self):
        self.world.close()
        self.world = World(server_arguments=["--trash-grace", "20s", "--sweep-interval", "50ms"])
        self.far = cases.made(self.world.root / "far")
        self.world.server.stop()
        self.world.server_arguments += ["--stores", f"main,far={self.far}"]
        self.world.start_server()

    def wait(self, what, state, *words):
        """A `cairn wait` that goes on meanwhile."""
        done = self.world.begin("wait", what, "--for", state, "--timeout", f"{HANG_S}s", *words)
        self.addCleanup(done.kill)
        return done

    def still(self, *waiting):
        wait_until(lambda: all(one.poll() is not None or waits_on(one, self.world.port) for one in waiting))
        self.assertEqual([one.poll() for one in waiting], [None] * len(waiting), [one.args for one in waiting])

    def open_one(self, step):
        newest = self.world.read(R)
        attempt = self.world.send("POST", f"{R}/attempts", {
            "job": f"j-{step}", "world_size": 1, "resume": "latest", "after": newest.get("attempt", 0),
            "ranks": [{"rank": 0, "proc": f"p-{step}"}], "node": "by-hand"})
        begun = self.world.send("POST", f"{R}/checkpoints", {
            "grant": attempt["grant"], "node": "by-hand", "step": step, "n": 1, "rank": 0, "world_size": 1})
        return attempt["grant"], begun["version"]

    def store(self, step, version, data):
        """A shard as an uploader leaves it, and what is said of it."""
        folder = pathlib.Path(self.world.store) / RUN / f"{step:012}" / version / "data" / "rank-00000"
        folder.mkdir(parents=True)
        token, crc = str(uuid.uuid4()), f"{crc32c(data):08x}"
        (folder / "x").write_bytes(data)
        os.setxattr(folder / "x", "user.cairn.upload", token.encode())
        os.setxattr(folder / "x", "user.cairn.crc32c", crc.encode())
        return {"name": NAME, "rank": 0, "bytes": len(data), "crc32c": crc, "part_bytes": 0, "token": token,
                "blocks": base64.b64encode(struct.pack("<I", int(crc, 16))).decode()}

    def test_a_save_is_told_at_each_of_its_states_and_not_before(self):
        self.world.send("PUT", R, {})
        states = ("begun", "staged", "durable", "committed")
        waiting = {state: self.wait(f"{RUN}@5", state) for state in states}
        self.still(*waiting.values())
        grant, version = self.open_one(5)
        self.assertIn(version, self.world.ended(waiting["begun"])[0])
        self.still(*(waiting[state] for state in states[1:]))
        data = b"seven" * 1000
        register = {"grant": grant, "node": "by-hand", "shards": []}
        self.world.send("POST", f"{R}/checkpoints/{version}/shards", {
            **register, "seals": [{"rank": 0, "shards": [{"name": NAME, "bytes": len(data)}], "bytes": len(data)}]})
        self.world.ended(waiting["staged"])
        self.still(waiting["durable"], waiting["committed"])
        shard = self.store(5, version, data)
        self.world.send("POST", f"{R}/checkpoints/{version}/shards", {**register, "shards": [shard], "seals": []})
        for state in ("durable", "committed"):
            self.assertIn("committed" if state == "committed" else version, self.world.ended(waiting[state])[0])
        for state in states:  # what is past is reached
            self.world.ended(self.wait(f"{RUN}@{version}", state))
        self.assertRegex(self.world.cairn("abort", f"{RUN}@5", status=6).stderr, "is committed; cairn rm puts it")
        said = self.world.ended(self.wait(f"{RUN}@5", "aborted"), 6)[1]
        self.assertIn("is committed and will not be aborted", said)

    def test_what_was_given_up_is_told_to_who_waits_for_that_and_to_all_others(self):
        self.world.send("PUT", R, {})
        _, version = self.open_one(7)
        aborted = self.wait(f"{RUN}@{version}", "aborted")
        others = [self.wait(f"{RUN}@{version}", state)
                  for state in ("staged", "durable", "committed", "promoted:main", "trashed", "deleted")]
        gone = self.wait(f"{RUN}@{version}", "gone")
        self.still(aborted, gone, *others)
        self.assertRegex(self.world.cairn("rm", f"{RUN}@{version}", status=None).stderr, "cairn abort")
        self.assertEqual(self.world.cairn("abort", f"{RUN}@{version}", "--reason", "no use").stdout,
                         f"{version} (step 7) is given up\n")
        self.world.ended(aborted)
        for other in others:
            self.assertRegex(self.world.ended(other, 6)[1], "will not be .*no use")
        self.assertRegex(self.world.cairn("wait", f"{RUN}@7", status=6).stderr, "will not be .*no use")
        self.assertRegex(self.world.cairn("watch", f"{RUN}@7", "--timeout", f"{HANG_S}s", status=6).stderr, "no use")
        shown = self.world.cairn("show", f"{RUN}@7", status=6)
        self.assertIn(version, shown.stdout)
        self.assertRegex(shown.stderr, "no use")
        self.assertIn("no use", self.world.cairn("show", f"{RUN}@{version}").stdout)
        self.world.cairn("show", f"{RUN}@8", status=3)
        self.world.ended(gone)

    def test_what_goes_is_told_at_each_step_of_that(self):
        self.start_with_sweeps()
        source = cases.file(self.world.root / "source", b"x" * 1000)
        for step in (1, 2):
            self.world.cairn("put", source, f"{RUN}@{step}")
        promoted = self.wait(f"{RUN}@1", "promoted:far")
        waiting = [self.wait(f"{RUN}@1", state) for state in ("trashed", "deleted", "gone")]
        self.still(promoted, *waiting)
        self.world.cairn("promote", f"{RUN}@1", "--to", "far")
        self.assertIn("committed", self.world.ended(promoted)[0])
        self.still(*waiting)
        version = self.world.version(RUN, "1")["version"]
        self.world.cairn("rm", f"{RUN}@1")
        self.assertIn(version, self.world.ended(waiting[0])[0])
        self.assertIsNone(waiting[1].poll(), "it is in the trash still")
        for gone in waiting[1:]:
            self.assertEqual(self.world.ended(gone)[0], "")
        wait_until(lambda: not self.world.stored(f"*/{version}/*"))
        for state, status in (("trashed", 0), ("deleted", 0), ("gone", 0), ("committed", 3), ("promoted:far", 3)):
            said = self.world.ended(self.wait(f"{RUN}@{version}", state), status)[1]
            self.assertEqual("was deleted" in said, status == 3, (state, said))

    def test_a_wait_is_one_request_whatever_it_is_for(self):
        self.world.send("PUT", R, {})
        _, version = self.open_one(11)
        states = ("staged", "durable", "committed", "aborted", "promoted:main", "trashed", "deleted", "gone")

        def asked(seconds):
            before = self.looks()
            for waiting in [self.wait(f"{RUN}@{version}", state, "--timeout", f"{seconds:g}s") for state in states]:
                self.world.ended(waiting, 8)
            looks = self.looks() - before
            self.assertLessEqual(looks, 3 * len(states))  # each, and a last look when its time is over
            return looks >= len(states)
        in_time(asked, 5)

    def looks(self):
        """How often a version was asked for, and answered."""
        metrics = self.world.get("/metrics")[2].decode()
        return sum(float(line.split()[-1]) for line in metrics.splitlines()
                   if line.startswith("cairn_http_request_duration_seconds_count{")
                   and 'route="checkpoint_get"' in line)

    def test_what_is_waited_for_is_no_part_of_the_version_s_tag(self):
        self.world.send("PUT", R, {})
        _, version = self.open_one(13)
        plain = self.world.get(f"{R}/checkpoints/{version}")
        for state, outcome in (("begun", "reached"), ("staged", "not_yet")):
            _, headers, body = self.world.get(f"{R}/checkpoints/{version}?for={state}")
            self.assertEqual(headers["ETag"], plain[1]["ETag"])
            self.assertEqual(json.loads(body), {**json.loads(plain[2]), "awaited": outcome})
        refused = self.world.cairn("wait", f"{RUN}@13", "--for", "promoted:nowhere", status=2)
        self.assertIn("no store nowhere", refused.stderr)
        refused = self.world.cairn("wait", f"{RUN}@13", "--for", "written", status=2)
        self.assertIn("promoted:STORE", refused.stderr)

    def test_the_time_given_is_kept_and_what_was_never_there_does_not_go(self):
        self.world.send("PUT", R, {})
        _, version = self.open_one(9)
        for what, state, status, said in (
                (f"{RUN}@9", "durable", 8, "is still open; ranks sealed: 0 of 1"),
                (f"{RUN}@{version}", "gone", 8, "is still open"),
                (f"{RUN}@77", "begun", 8, "there is no checkpoint"),
                (f"{RUN}@77", "trashed", 3, "no checkpoint 77"),
                (f"{RUN}@77", "gone", 3, "no checkpoint 77")):
            def told(seconds):
                begun = time.monotonic()
                done = self.world.cairn("wait", what, "--for", state, "--timeout", f"{1000 * seconds:.0f}ms", status=status)
                self.assertTrue(status == 3 or time.monotonic() - begun > seconds - 0.1, (what, state))
                return said in done.stderr
            in_time(told, 1.5 if status == 8 else HANG_S)


if __name__ == "__main__":
    unittest.main(verbosity=2)
