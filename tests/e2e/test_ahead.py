# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=60 engines=again
# ctest: as=ahead_behind seconds=60 env=CAIRN_TEST_BEHIND=1
"""Trainers that save on without waiting for any commit, while uploaders and server die: what was
staged is committed, or its rank was told why not (Q41, Q43)."""
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time
import unittest

from chaos_oracle import stored
from test_partner import content, stream
from world import BIN, HANG_S, wait_until, World

RUN = "ahead/run"
SLOW_HEAD = "head:*:*:delay@20"
SLOW_STORE = "head:*:*:delay@20; put:*:*:delay@30; complete:*:*:delay@30"


class Ahead(unittest.TestCase):
    def open(self, fault, nodes=2, ranks=4, steps=16):
        self.ranks, self.steps = ranks, list(range(1, steps + 1))
        self.world = World(nodes=nodes, env={"CAIRN_STORE_FAULT": fault}, uploader_arguments=["--heartbeat", "200ms"])
        self.trainers = []
        self.addCleanup(self.close)

    def close(self):
        for trainer in self.trainers:
            trainer.kill()
        self.world.close()

    def start_job(self, rows=1, hold=None, streams=None, every_ms=None):
        env = {**os.environ, "CAIRN_JOB": "ahead", "TRAINER_ROWS": str(rows),
               **({"TRAINER_STREAMS": str(streams)} if streams else {}),
               **({"TRAINER_EVERY": str(every_ms)} if every_ms else {}),
               "TRAINER_AHEAD": "4000", **({"TRAINER_HOLD": str(hold)} if hold else {})}
        self.trainers = [
            subprocess.Popen(
                [BIN / "tests/trainer", RUN, str(rank), str(self.ranks), *map(str, self.steps)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**env, "CAIRN_SOCKET": self.world.socket(rank % len(self.world.uploaders))})
            for rank in range(self.ranks)]

    def versions(self):
        _, _, body = self.world.get(f"/v1/runs/{RUN}/checkpoints?limit=1000")
        return json.loads(body).get("items", [])  # the run appears with its first attempt

    def settled(self):
        items = self.versions()
        return items if all(i["state"] not in ("open", "aborting") for i in items) else None

    def audit(self):
        """What all ranks staged is committed and verifies. A step that some rank could not begin (its
        uploader is away and its memory not free) is told to every rank that staged it. Returns the
        steps that were committed."""
        ended = [trainer.communicate(timeout=HANG_S) for trainer in self.trainers]
        lines = [[json.loads(line) for line in out.splitlines()] for out, _ in ended]
        said = "\n".join(err for _, err in ended)
        staged = [{line["step"] for line in rank if line.get("code") == "staged"} for rank in lines]
        by_all = set(self.steps).intersection(*staged)
        items = wait_until(self.settled, 60)
        committed = {i["step"] for i in items if i["state"] == "committed"}
        self.assertEqual(sorted(by_all - committed), [], f"{said}\n{self.world.logs()}")
        for rank, own in zip(lines, staged):
            problems = [line for line in rank if "problem" in line]
            self.assertEqual(len(problems), len(own - committed), f"{said}\n{self.world.logs()}")
        self.assertGreaterEqual(len(by_all), len(self.steps) // 2, f"too few staged:\n{said}")
        for item in items:
            if item["state"] == "committed":
                self.world.cairn("verify", f"{RUN}@{item['version']}", "--store", self.world.store)
        return committed

    def begun(self, step):
        return any(i["step"] >= step for i in self.versions())

    def is_committed(self, step):
        return any(i["step"] == step and i["state"] == "committed" for i in self.versions())

    def test_v25_no_staged_save_is_lost_when_one_of_two_uploaders_is_killed_among_several(self):
        for seed in range(3):
            with self.subTest(seed=seed):
                chance = random.Random(seed)
                self.open(SLOW_HEAD)
                self.start_job()
                wait_until(lambda: self.begun(2), 60, 0.005)
                for _ in range(4):
                    time.sleep(chance.random() * 0.4)  # pause of chaos
                    uploader = chance.choice(self.world.uploaders)
                    uploader.kill()
                    time.sleep(chance.random() * 0.2)  # pause of chaos
                    uploader.start()
                self.audit()
                self.close()

    def start_slowly(self, uploader, runs_s, stands_s):
        """Its start stands still for a while, be it before it listens, while it reads its journal or
        when it is asked already."""
        old = uploader.process
        starting = threading.Thread(target=uploader.start)
        starting.start()
        wait_until(lambda: uploader.process is not old, 10, 0.001)
        time.sleep(runs_s)  # pause of chaos
        uploader.process.send_signal(signal.SIGSTOP)
        time.sleep(stands_s)  # pause of chaos
        uploader.process.send_signal(signal.SIGCONT)
        starting.join()

    def test_v25_an_uploader_that_takes_seconds_to_start_loses_no_step(self):
        for seed in range(3):
            with self.subTest(seed=seed):
                chance = random.Random(seed)
                self.open(SLOW_HEAD, steps=4)
                hold = self.world.root / "step"
                self.start_job(hold=hold)
                pathlib.Path(f"{hold}.1").touch()
                wait_until(lambda: self.is_committed(1), 60)
                self.world.uploaders[1].kill()
                late = threading.Thread(target=self.start_slowly, args=(
                    self.world.uploaders[1], chance.random() * 0.2, 3 + chance.random() * 2))
                late.start()
                time.sleep(1.5)  # pause of chaos: libcairn has found that it is away
                pathlib.Path(f"{hold}.2").touch()
                late.join()
                for step in (3, 4):
                    pathlib.Path(f"{hold}.{step}").touch()
                    wait_until(lambda last=step: self.is_committed(last), 60)
                self.assertEqual(self.audit(), set(self.steps))
                self.close()

    def check_streams(self, streams):
        """Of every committed version, against what the trainers wrote."""
        for item in self.versions():
            if item["state"] != "committed":
                continue
            for rank in range(self.ranks):
                memory = content(rank, item["step"], 1)
                folder = f"{RUN}/{item['step']:012}/{item['version']}/data/rank-{rank:05}"
                for number in range(streams):
                    found = stored(self.world, f"{folder}/stream-{number + 1}")
                    self.assertEqual(found, stream(memory, number), f"step {item['step']} rank {rank} {number}")

    def test_k01_no_stream_beyond_the_slab_is_lost_when_uploaders_are_killed_under_several_saves(self):
        for seed in range(2):
            with self.subTest(seed=seed):
                chance = random.Random(200 + seed)
                self.open(SLOW_HEAD, ranks=2, steps=8)
                # A step that finds its uploader away and both memories taken fails at once: without a pause all would.
                self.start_job(streams=33, every_ms=600)
                wait_until(lambda: self.begun(1), 60, 0.005)
                for _ in range(6):
                    time.sleep(chance.random() * 0.4)  # pause of chaos
                    uploader = chance.choice(self.world.uploaders)
                    uploader.kill()
                    time.sleep(chance.random() * 0.2)  # pause of chaos
                    uploader.start()
                self.audit()
                self.check_streams(33)
                self.close()

    def test_v27_server_stops_and_uploader_deaths_lose_no_save_of_ranks_that_do_not_wait(self):
        for seed in range(2):
            with self.subTest(seed=seed):
                chance = random.Random(100 + seed)
                self.open(SLOW_STORE, nodes=1, ranks=8, steps=12)
                self.start_job()
                wait_until(lambda: self.begun(2), 60)
                for _ in range(3):
                    self.world.server.process.send_signal(signal.SIGSTOP)
                    time.sleep(0.3 + chance.random())  # pause of chaos
                    self.world.uploaders[0].kill()
                    self.world.uploaders[0].start()
                    time.sleep(chance.random())  # pause of chaos
                    self.world.server.process.send_signal(signal.SIGCONT)
                    time.sleep(0.2 + chance.random() * 0.5)  # pause of chaos
                self.audit()
                self.close()


if __name__ == "__main__":
    unittest.main()
