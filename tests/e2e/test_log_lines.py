# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""One fault, one WARN or ERROR line: what a daemon writes while a document is damaged, and while its
server is away."""
import os
import re
import subprocess
import unittest

import cases
from signs import go_round
from test_verify import flipped, gone, safetensors
from world import BIN, HANG_S, line_of, wait_until, World

LINE = re.compile(r"^\S+ (?:WARN|ERROR) (\S+)", re.M)


class Lines(unittest.TestCase):
    def setUp(self):
        self.world = World(uploader_arguments=["--heartbeat", "200ms"], case=self)

    def events_since(self, daemon, at):
        return LINE.findall(daemon.log.read_text()[at:])

    def test_each_refused_request_for_what_is_damaged_writes_one_line(self):
        source = cases.made(self.world.root / "source")
        safetensors(source / "model.safetensors", 4)
        self.world.cairn("put", source, "lines/run@1")
        data = "/v1/runs/lines/run/checkpoints/1"
        for document, path in (("manifest.json", "/manifest"), ("checksums.bin", "/checksums"),
                               ("*.layout", "/layout"),
                               ("model.safetensors", "/shards/model.safetensors/data")):
            stored = [p for p in self.world.stored(document) if self.world.store in str(p)][0]
            original = stored.read_bytes()
            for damage in (flipped, gone):
                self.world.server.kill()
                self.world.start_server()  # nothing is in its memory
                stored.chmod(0o644)
                damage(stored, original)
                at = len(self.world.server.log.read_text())
                with self.subTest(document=document, damage=damage.__name__):
                    self.assertEqual(self.world.get(data + path)[0], 502)
                    said = self.events_since(self.world.server, at)
                    # The first round of a server that has just started may meet the comparison of
                    # the run with its store, which this request waits for; it says so.
                    # What is found damaged first is noted with the copy, too.
                    self.assertEqual([event for event in said if event not in ("sweep.delayed", "copy.damaged")],
                                     ["read.refused"])
                    self.assertLessEqual(said.count("copy.damaged"), 1)
                stored.write_bytes(original)

    def test_a_server_that_is_away_under_a_save_is_one_line_of_its_uploader(self):
        uploader = self.world.uploaders[0]
        job = subprocess.Popen(
            [BIN / "tests/trainer", "lines/run", "0", "1", "1", "2"], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "CAIRN_JOB": "lines", "CAIRN_SOCKET": self.world.socket(),
                 "TRAINER_ROWS": "2", "TRAINER_HOLD": str(self.world.root / "hold")})
        self.addCleanup(lambda: (job.kill(), job.communicate()))
        line_of(job)
        at = len(uploader.log.read_text())
        self.world.server.kill()
        (self.world.root / "hold.1").touch()
        (self.world.root / "hold.2").touch()
        wait_until(lambda: self.events_since(uploader, at))
        go_round(uploader.process.pid, "heart", 3)
        go_round(uploader.process.pid, "outbox", 3)
        events = self.events_since(uploader, at)
        self.assertEqual(len(events), 1, events)
        self.assertIn(events[0], ("outbox.waiting", "heartbeat.unanswered"))
        self.world.start_server()
        out, _ = job.communicate(timeout=HANG_S)
        self.assertEqual(job.returncode, 0, out + self.world.logs())


if __name__ == "__main__":
    unittest.main()
