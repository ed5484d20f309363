# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Lists of servers, with real ones: who is dead, hangs or comes back fails no call of the command or of
an uploader that names another beside it."""
import json
import os
import signal
import unittest

import cases
import ports
from world import World


def closed_port():
    """An address that nobody listens at."""
    return f"http://127.0.0.1:{ports.free()}"


class Lists(unittest.TestCase):
    """One server over SQLite, named second; the first is another that is not there for it."""

    def setUp(self):
        self.world = World(nodes=0, case=self)
        self.living = self.world.url
        self.model = cases.made(cases.folder(self) / "model")
        (self.model / "weights.bin").write_bytes(os.urandom(300_000))

    def hung(self):
        """A server that takes connections and answers nothing."""
        other = World(nodes=0, case=self)
        other.server.process.send_signal(signal.SIGSTOP)
        return other.url

    def start_uploader(self, servers):
        self.world.url = servers
        uploader = self.world.make_uploader(0)
        self.world.uploaders.append(uploader)
        uploader.start()

    def save_and_restore(self, run):
        self.world.cairn("put", self.model, f"{run}@1")
        back = self.model.parent / run.replace("/", "-")
        self.world.cairn("get", f"{run}@1", "-d", back)
        self.assertEqual((back / "weights.bin").read_bytes(), (self.model / "weights.bin").read_bytes())
        listed = self.world.json("ls", run)
        self.assertEqual([item["step"] for item in listed], [1])
        self.world.cairn("wait", f"{run}@1")
        self.world.cairn("rm", f"{run}@1", "--yes")
        self.world.cairn("undelete", listed[0]["version"].join((f"{run}@", "")))

    def test_a_server_that_is_gone_fails_no_call(self):
        self.start_uploader(f"{closed_port()},{self.living}")
        self.save_and_restore("list/dead")

    def test_a_server_that_hangs_fails_no_call(self):
        self.start_uploader(f"{self.hung()},{self.living}")
        self.world.cairn("ls")
        self.save_and_restore("list/hung")

    def test_an_uploader_goes_on_when_its_server_has_another_address(self):
        self.start_uploader(f"{closed_port()},{self.living}")
        self.save_and_restore("list/before")
        self.world.server.kill()
        moved = closed_port()
        self.world.port = int(moved.rsplit(":", 1)[1])
        self.world.uploaders[0].stop()
        self.start_uploader(f"{self.living},{moved}")
        servers = self.world.url
        self.world.start_server()
        self.world.url = servers
        self.save_and_restore("list/after")

    def test_no_server_of_the_list_is_status_5_and_names_the_last(self):
        first, last = closed_port(), closed_port()
        done = self.world.cairn("ls", "--server", f"{first},{last}", status=5)
        self.assertIn(f"none of 2 servers; the last: server {last}", done.stderr)

    def test_a_bad_list_is_a_usage_error_of_the_command_and_of_the_uploader(self):
        for text, why in [(f"{self.living},", "server 2 of the list is empty"),
                          (f"{self.living},https://127.0.0.1:1", "different schemes"),
                          (f"{self.living},http://127.0.0.1:1/x", "different paths")]:
            done = self.world.cairn("ls", "--server", text, status=2)
            self.assertIn(why, done.stderr)
            with self.assertRaises(AssertionError) as refused:
                self.start_uploader(text)
            self.assertIn(why, str(refused.exception))
            self.assertEqual(self.world.uploaders.pop().process.returncode, 2)

    def test_doctor_looks_at_each_server_of_the_list(self):
        dead = closed_port()
        done = self.world.cairn("doctor", self.world.store, "--server", f"{dead},{self.living}", "--json")
        found = [item for item in json.loads(done.stdout)["findings"] if item["check"] == "server"]
        self.assertEqual([item["level"] for item in found], ["WARN", "ok"], found)
        self.assertIn(dead, found[0]["text"])
        self.assertIn(self.living, found[1]["text"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
