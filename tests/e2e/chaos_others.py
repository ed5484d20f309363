# SPDX-License-Identifier: Apache-2.0
"""Others who use the runs while the servers are struck: one deletes old versions, one restores the
newest. What was deleted stays deleted; what is restored is what was saved."""
import http.client
import json
import random
import threading

from chaos_oracle import PAGE_BYTES, RAW_BYTES, expected
from patience import HANG_S

KEPT = 3  # of the newest, nothing is deleted
TRIES = 200
PAUSE_S = 0.15


class Other(threading.Thread):
    def __init__(self, world, runs, seed):
        super().__init__(daemon=True)
        self.world, self.runs, self.over = world, runs, threading.Event()
        self.chance = random.Random(f"{type(self).__name__} {seed}")
        self.faults, self.count = [], 0

    def ask(self, path, method="GET"):
        """(status, body) of any server; None: none answered, or not to its end."""
        servers = [self.world.url, *self.world.urls[1:]]
        try:
            status, _, body = self.world.get_from(self.chance.choice(servers), path, method, {"X-Cairn": "1"})
            return status, body
        except (OSError, http.client.HTTPException):
            return None, b""

    def run(self):
        while not self.over.wait(self.chance.uniform(0, 2 * PAUSE_S)):
            try:
                self.turn(self.chance.choice(sorted(self.runs)))
            except Exception as error:  # told by the main thread
                self.faults.append(f"{type(self).__name__}: {type(error).__name__}: {error}")

    def end(self):
        self.over.set()
        if self.ident:
            self.join(HANG_S)


class Deleter(Other):
    """started: {(run, step)}; done: {(run, version)} whose deletion was acknowledged."""

    def __init__(self, world, runs, seed):
        super().__init__(world, runs, seed)
        self.started, self.done = set(), set()

    def turn(self, run):
        status, body = self.ask(f"/v1/runs/{run}/checkpoints?limit=1000")
        if status != 200:
            return
        kept = [v for v in json.loads(body)["items"] if v["state"] == "committed" and not v["trashed"]]
        old = sorted(kept, key=lambda v: v["step"])[:-KEPT]
        if not old:
            return
        victim = self.chance.choice(old)
        if (run, victim["version"]) in self.done:
            self.faults.append(f"{run} step {victim['step']} was deleted, and is listed again")
            return
        self.started.add((run, victim["step"]))
        lost = False  # an answer, so that it may be gone by now
        for _ in range(TRIES):
            status, body = self.ask(f"/v1/runs/{run}/checkpoints/{victim['version']}", "DELETE")
            if status in (200, 202, 204) or (lost and status == 410):
                self.done.add((run, victim["version"]))
                self.count += 1
                return
            if status == 409 and json.loads(body).get("code") == "in-use" and not lost:
                self.started.discard((run, victim["step"]))  # a reader has it: another time
                return
            lost |= status in (None, 500, 503)
            if status not in (None, 500, 503):
                self.faults.append(f"{run} step {victim['step']}: DELETE is answered {status}")
                return
            if self.over.wait(0.05):
                return

    def judge(self):
        """When it is quiet: nothing of it is back."""
        for run, version in sorted(self.done):
            status, body = self.ask(f"/v1/runs/{run}/checkpoints/{version}")
            seen = json.loads(body) if status == 200 else {"state": "gone", "trashed": True}
            if seen["state"] == "committed" and not seen["trashed"]:
                self.faults.append(f"{run} {version} was deleted, and is there again")
        return self.faults


class Restorer(Other):
    """Reads one rank's bytes of the newest version through any server."""

    def __init__(self, world, runs, seed, size):
        super().__init__(world, runs, seed)
        self.size = size

    def turn(self, run):
        status, body = self.ask(f"/v1/runs/{run}/checkpoints/latest")
        if status != 200:
            return
        version, rank = json.loads(body), self.chance.randrange(self.runs[run])
        for name, page, length in ((f"rank-{rank:05}.safetensors", 0, self.size),
                                   (f"rank-{rank:05}/state", self.size // PAGE_BYTES, RAW_BYTES)):
            status, data = self.ask(f"/v1/runs/{run}/checkpoints/{version['version']}/shards/"
                                    f"{name}/data")
            if status in (None, 500, 503):
                return
            if status != 200:
                self.faults.append(f"{run} step {version['step']} {name}: {status} {data[:300]}")
            elif data[-length:] != expected(run, rank, version["step"], page, length):
                self.faults.append(f"{run} step {version['step']} {name} is read with other bytes")
        self.count += 1

    def judge(self):
        return self.faults + ([] if self.count else ["nothing was restored"])
