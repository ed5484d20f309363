# SPDX-License-Identifier: Apache-2.0
# ctest: with="Checked" seconds=40 thirds=2
# ctest: as=checked_histories_long with="--calls 10000 --seeds 3" labels=full
# ctest: as=checked_histories_two with="Two" seconds=40 thirds=2 engines=postgresql
# ctest: as=checked_histories_two_long with="--servers 2 --calls 10000 --seeds 3" labels=full engines=postgresql
"""H5: 32 clients at once open attempts, begin, save, commit, give up, list, read, pin, delete, undelete,
forget and restore under leases, while the server is killed and started again and again. All calls
are written down, and history_validators.py looks for an answer that breaks P1 to P3, P5 to P8 or P10.

    test_checked_histories.py --calls 10000 --seed 7 [--servers 2] [--keep FILE]
    test_checked_histories.py --judge FILE           the same judgement of a history that was kept

A seed fixes what each client chooses, and when the server dies, not how their calls interleave: what
was judged is the file, which a failure keeps.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import unittest

import postgres
from history_clients import Client, History, Run, content, shard_name
from history_model import History as Model
from history_validators import judge
from world import files_below, HANG_S, value_within, World

CLIENTS, RUNS = 32, 6
CALLS = int(os.environ.get("CAIRN_CALLS", "2500"))
SEED = int(os.environ.get("CAIRN_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
GRACE_S = 3
KEPT = 2  # of the run whose policy removes by itself
POINTS = ("server.attempt.after_transaction", "server.attempt.after_record",
          "server.commit.before_proof", "server.commit.after_manifest",
          "server.commit.after_transaction", "server.commit.after_record",
          "server.commit.after_recorded", "server.trash.after_mark", "server.sweep.after_record",
          "server.sweep.before_gone")
QUIET_S = HANG_S  # it ends as soon as all is quiet


class Striker(threading.Thread):
    """Kills one server after another: at any moment, or at a named point that it was started with."""

    def __init__(self, world, seed, broken):
        super().__init__(daemon=True)
        self.broken = broken
        self.world, self.random, self.over = world, random.Random(f"{seed}/strike"), threading.Event()
        self.kills, self.failure = 0, None

    def run(self):
        try:
            while not self.over.is_set():
                self.strike(self.random.randrange(len(self.world.urls)))
        except Exception as error:  # noqa: BLE001  the test fails with it
            self.failure = error
            self.broken.set()

    def strike(self, number):
        daemon = self.world.server if number == 0 else self.world.further[number - 1]
        self.wait(daemon, self.random.uniform(0.2, 1.5))
        if self.over.is_set():
            return
        daemon.kill()
        self.kills += 1
        time.sleep(self.random.uniform(0, 0.4))  # pause of chaos
        env = dict(self.world.env)
        if self.random.random() < 0.5:
            env["CAIRN_CRASH_AT"] = f"{self.random.choice(POINTS)}:{self.random.randrange(1, 9)}:kill"
        self.world.start_again(number, env)

    def wait(self, daemon, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until and daemon.process.poll() is None and not self.over.is_set():
            time.sleep(0.01)  # step of a poll

    def end(self):
        """All servers run, and none of them has a point to die at."""
        self.over.set()
        self.join(HANG_S)
        if self.failure:
            return
        for number in range(len(self.world.urls)):
            daemon = self.world.server if number == 0 else self.world.further[number - 1]
            daemon.kill()
            self.world.start_again(number, {})


class Servers(World):
    """They keep their ports."""

    def start_again(self, number, env):
        port = int(self.urls[number].rsplit(":", 1)[1])
        daemon = self.make_server(number, port)
        daemon.env = env
        if number == 0:
            self.server = daemon
        else:
            self.further[number - 1] = daemon
        while True:
            try:
                daemon.start()
                return
            except AssertionError:  # it died at its point before it was ready
                if daemon.process.returncode != -signal.SIGKILL:
                    raise
                daemon.env = env = {}


class Scene:
    """One history, from an empty store to its last look."""

    def __init__(self, seed, calls, servers=1, catalog=None):
        self.seed, self.calls = seed, calls
        self.world = Servers(nodes=0, servers=servers, catalog=catalog, server_arguments=(
            "--trash-grace", f"{GRACE_S}s", "--sweep-interval", "200ms", "--silence-max", "24h",
            "--job-lease", "1s", "--log-level", "warn"))
        self.runs = [Run(f"h/r{number}") for number in range(RUNS)]
        folder = pathlib.Path(tempfile.gettempdir())
        self.path = folder / f"cairn-history-{seed}.jsonl"
        self.history = History(self.path, {"seed": seed, "calls": calls, "servers": servers,
                                           "grace_s": GRACE_S, "keep": {self.runs[0].name: KEPT}})
        self.looker = Client(CLIENTS, seed, self.world, self.runs, self.history, 0)

    def play(self):
        name = self.runs[0].name
        for method, path, body in (("PUT", f"/v1/runs/{name}", {}),
                                   ("PUT", f"/v1/runs/{name}/retention", {"keep": {"last": KEPT}})):
            told = self.looker.ask(method, path, json.dumps(body), {"Content-Type": "application/json"})
            assert told[0] in (200, 201), told
        clients = [Client(number, self.seed, self.world, self.runs, self.history, self.calls)
                   for number in range(CLIENTS)]
        striker = Striker(self.world, self.seed, self.history.broken)
        for thread in (*clients, striker):
            thread.start()
        for client in clients:
            client.join()
        striker.end()
        for thread in (striker, *clients):
            if thread.failure:
                raise thread.failure
        self.kills = striker.kills
        self.settle()

    # ---- the last look ----

    def list(self, run):
        """All that is known of a run."""
        self.looker.run_of = run
        found = [self.looker.call(op, "GET", f"/checkpoints?limit=1000{query}", {})[2]
                 for op, query in (("list", ""), ("list_gone", "&state=gone"))]
        return [row for reply in found for row in reply.get("items", [])]

    def whole(self, row, files):
        """Are the files of a committed version those that were put?"""
        folder = self.looker.folder_of(row["step"], row["version"])
        data = [folder / "data" / shard_name(rank) for rank in range(row["world_size"])]
        return all(path in files and path.read_bytes() == content(row["version"], rank)
                   for rank, path in enumerate(data))

    def disk(self, run):
        found = {}
        for row in self.list(run):
            folder = self.looker.folder_of(row["step"], row["version"])
            files = [path for path in files_below(folder) if not path.name.startswith(".")]
            committed = row["state"] == "committed" and not row["trashed"]
            found[row["version"]] = [row["state"] if committed or row["state"] == "gone" else "other",
                                     committed and self.whole(row, set(files)), len(files)]
        return found

    def is_quiet(self):
        """Nothing is on its way to another state, and what is gone has left nothing."""
        for run in self.runs:
            self.looker.run_of = run
            rows = self.looker.glance("/checkpoints?limit=1000").get("items", [])
            gone = self.looker.glance("/checkpoints?limit=1000&state=gone").get("items", [])
            if any(self.is_on_its_way(row) for row in rows) or any(
                    files_below(self.looker.folder_of(row["step"], row["version"])) for row in gone):
                return False
        return True

    @staticmethod
    def is_on_its_way(row):
        whole = row["ranks_sealed"] == row["world_size"]
        return row["state"] in ("aborting", "deleting") or (row["state"] == "open" and whole)

    def settle(self):
        value_within(self.is_quiet, QUIET_S, 0.5)  # the model says what is left
        for run in self.runs:
            self.looker.run_of = run
            rows = self.list(run)
            self.looker.get("latest")
            for row in rows:
                if row["state"] == "committed":
                    for rank in range(row["world_size"]):
                        self.looker.read(row["version"], rank)
            now = time.monotonic()
            self.note("disk", self.disk(run), [now, time.monotonic()])
        self.note("quiet", None, [time.monotonic()] * 2)

    def note(self, op, reply, at):
        self.history.add({"at": at, "client": CLIENTS, "op": op, "args": {}, "status": 200,
                          "code": None, "run": self.looker.run_of.name, "reply": reply})


def play(seed, calls, servers=1, catalog=None, keep=False):
    """(faults, what is said of it)."""
    scene = Scene(seed, calls, servers, catalog)
    try:
        scene.play()
    except BaseException:
        scene.history.save()
        print(f"history of seed {seed}: {scene.path}\n{scene.world.logs()}")
        raise
    finally:
        scene.world.close()
    scene.history.save()
    model = Model.load(scene.path)
    faults = judge(model)
    committed = sum(version.committed_at < float("inf") for version in model.versions.values())
    said = (f"seed {seed}: {scene.history.calls()} calls, {scene.kills} kills, "
            f"{len(model.versions)} versions, {committed} committed, "
            f"{sum(entry['status'] == 0 for entry in model.entries)} answers cut, "
            f"{len(faults)} faults")
    if faults or keep:
        said += f"; history: {scene.path}"
    else:
        scene.path.unlink()
    return faults, said


class Checked(unittest.TestCase):
    """Fourteen breaks of the product, each carried out once, were noticed by it: the nine of
    tests/mutants/histories.mutants and the five of other files that are named there:
    p7-list-marks-all-that-is-shown, p2-undelete-changes-nothing, p5-job-opens-again,
    p5-commit-twice-is-refused, p6-takeover-leaves-saves-open, p6-stale-grant-begins,
    p7-resume-supersedes-nothing, p8-sweep-takes-the-step, p10-failed-step-is-taken;
    pinned-goes-to-the-trash, lease-delete-by-hand, trash-without-grace,
    retention-best-evicts-the-newest, kept-answer-outlives-a-change. `tests/mutants/run` does it again.
    """

    def test_h5_no_answer_of_a_server_that_is_killed_again_and_again_breaks_a_promise(self):
        faults, said = play(SEED, CALLS)
        print(said)
        self.assertEqual(faults[:10], [], f"{len(faults)} faults; {said}")


class Two(unittest.TestCase):
    def test_h5_no_answer_of_two_servers_of_which_one_is_killed_breaks_a_promise(self):
        postgres.needed()
        faults, said = play(SEED, CALLS, servers=2, catalog=postgres.shared().catalog())
        print(said)
        self.assertEqual(faults[:10], [], f"{len(faults)} faults; {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--calls", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seeds", type=int, default=1, help="so many, from --seed on")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--judge", type=pathlib.Path)
    chosen = parser.parse_args()
    if chosen.judge:
        faults = judge(Model.load(chosen.judge))
        print(*faults, f"{len(faults)} faults", sep="\n")
        return 1 if faults else 0
    if chosen.servers > 1:
        postgres.needed_by_program()
    failed = 0
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        catalog = postgres.shared().catalog() if chosen.servers > 1 else None
        faults, said = play(seed, chosen.calls, chosen.servers, catalog, chosen.keep)
        print(*faults[:10], said, sep="\n", flush=True)
        failed += bool(faults)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main() if len(sys.argv) > 1 and sys.argv[1].startswith("--") else unittest.main(verbosity=2))
