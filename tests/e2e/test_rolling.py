# SPDX-License-Identifier: Apache-2.0
# ctest: engines=postgresql
"""Two servers over one catalog in PostgreSQL are restarted in turn, again and again, under load: no
command, no save of any rank and no call of an uploader that names both may fail."""
import json
import os
import unittest

import cases
import postgres
from load import commands, Load
from world import HANG_S, Job, wait_until, World

STEPS = list(range(1, 41))
ROUNDS = 6


class Rolling(unittest.TestCase):
    def setUp(self):
        postgres.needed()
        self.world = World(nodes=2, servers=2, catalog=postgres.shared().catalog(), case=self)
        self.servers = [self.world.server, *self.world.further]
        self.model = cases.made(self.world.root / "model")
        (self.model / "weights.bin").write_bytes(os.urandom(200_000))

    def committed(self, run):
        _, _, body = self.world.get(f"/v1/runs/{run}/checkpoints?state=committed&limit=1000")
        return sorted(item["step"] for item in json.loads(body).get("items", []))

    def look(self, _):
        return [("ls", "j/run", "--json"), ("show", "j/run@latest", "--json"), ("ls", "--json")]

    def wait(self, number):
        return [("wait", f"j/run@{min(number + 1, len(STEPS))}", "--timeout", f"{HANG_S}s")]

    def keep(self, number):
        back = self.world.root / f"back-{number}"
        return [("put", self.model, f"c/run@{number}"), ("get", f"c/run@{number}", "-d", back)]

    def test_a_rolling_restart_fails_no_call(self):
        job = Job(self.world, "rolling", 4, STEPS)
        self.addCleanup(job.kill)
        wait_until(lambda: self.committed("j/run"), 60)
        load = [Load(commands(self.world, make)) for make in (self.look, self.wait, self.keep)]
        for one in load:
            one.start()
        for _ in range(ROUNDS):
            for server in self.servers:
                done = [one.done for one in load]
                wait_until(lambda: all(one.done > before for one, before in zip(load, done)))
                server.stop()
                server.start()
        for status, lines, said in job.end():
            self.assertEqual(status, 0, said)
            self.assertEqual([line["code"] for line in lines if "code" in line], ["ok"] * len(STEPS), said)
        failed = [text for one in load for text in one.stop()]
        self.assertEqual(failed, [], "\n".join(failed))
        self.assertTrue(all(one.done > 0 for one in load), [one.done for one in load])
        self.assertEqual(self.committed("j/run"), STEPS)
        self.assertEqual(self.committed("c/run"), list(range(load[2].done)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
