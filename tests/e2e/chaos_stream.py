# SPDX-License-Identifier: Apache-2.0
# ctest: as=chaos_stream_postgresql with="--seeds 2" seconds=60 thirds=2 engines=postgresql env=CAIRN_TEST_CATALOG=postgresql
# ctest: as=chaos_stream_long_postgresql with="--seeds 200" labels=full engines=postgresql env=CAIRN_TEST_CATALOG=postgresql
# ctest: as=two_servers with="--servers 2 --first 1 --seeds 1" seconds=60 thirds=2 engines=postgresql
# ctest: as=two_servers_long with="--servers 2 --seeds 50" labels=full engines=postgresql
# ctest: as=chaos_stream_folder with="--store folder --seeds 20 --each-state" seconds=40 thirds=2
# ctest: as=chaos_stream_behind with="--store folder --seeds 6" seconds=30 thirds=2 env=CAIRN_TEST_BEHIND=1
# ctest: as=chaos_stream_folder_long with="--store folder --seeds 200" labels=full
# ctest: as=chaos_stream_s3 with="--store s3 --seeds 20 --each-state" seconds=60 thirds=2
# ctest: as=chaos_stream_s3_long with="--store s3 --seeds 200" labels=full
# ctest: as=chaos_stream_s3_md5 with="--store s3-md5 --seeds 2" seconds=60 thirds=2
# ctest: as=chaos_stream_s3_md5_long with="--store s3-md5 --seeds 200" labels=full
# ctest: as=chaos_stream_s3_unchecked with="--store s3-unchecked --seeds 2" seconds=60 thirds=2
# ctest: as=chaos_stream_s3_unchecked_long with="--store s3-unchecked --seeds 200" labels=full
"""Trainers that never wait for a commit, with several saves under way, while uploaders, server,
network, disk, clocks and trainers are struck at named states of a save. By seed; each seed can be
run alone.

    python3 tests/e2e/chaos_stream.py [--mode away|any|mixed] [--store folder|s3|s3-md5|s3-unchecked]
                                      [--servers N] [--seeds N] [--first SEED] [--parallel N] [--each-state]

  away   8 ranks on 2 nodes; the server is away for 1 to 2 s three times and an uploader dies
         meanwhile (V27)
  any    what dies, stops, is cut off, runs full or has a clock that jumps follows from the seed:
         any trainer alone, be it the only one of its node, or together with its uploader
  mixed  even seeds away, odd ones any

  --servers 2  two servers on one PostgreSQL: both are killed and stopped again and again, at named
               points of a commit or at any time, while 8 ranks save, one deletes what is old and one
               restores what is newest (chaos_others.py)

  --each-state  as many seeds as it takes until each named state of a save was struck, --seeds at most, first
                those whose strikes are meant for a state that is left;
                it fails when one was not

The store takes tens of milliseconds. `s3` checks CRC32C, `s3-md5` MD5 alone, `s3-unchecked` takes
whatever comes. What is demanded stands in chaos_oracle.py. A seed that fails leaves its logs and
what each trainer said below CAIRN_BIN_DIR/chaos.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import held
import postgres
from chaos_others import Deleter, Restorer
from chaos_oracle import Oracle, Rank, journal_lines
from chaos_world import STATE_OF, STATES, Strike, StruckFolder, StruckS3, stop_for
from s3world import S3Fault
from world import BIN, files_below, found, HANG_S, server_name, wait_until

NODES = 2
SETTLE_S = QUIET_S = HANG_S  # both end as soon as there is nothing left
SERVERS, STRIKES = 2, 5
FULL_S = 2  # what was begun later than this after the disk had room again has met no full disk
STEPS_MIN = 3
STEPS_AHEAD = 3
SEED_TIMEOUT_S = 3000
PROFILES = {"s3": "aws", "s3-md5": "b2", "s3-unchecked": "radosgw"}
VICTIMS = ("uploader", "server", "both", "uploaders", "network", "trainer", "pause", "disk", "node", "clock")
UPLOADER_STATES = ("staging", "sealed", "durable")
SLABS = 2  # generations of a rank: its saves that may lie in memory alone
KIB, MIB = 1 << 10, 1 << 20
PART_BYTES = 5 * MIB
# Only passed by shards that are sent in parts.
MULTIPART = ("uploader.create.done", "uploader.upload.journaled", "uploader.complete.done")


class Plan:
    """Everything that follows from mode, store and seed."""

    def __init__(self, mode, store, seed):
        self.mode, self.store, self.seed = mode, store, seed
        chance = self.chance = random.Random(f"{mode} {store} {seed}")
        away = mode == "away" or (mode == "mixed" and seed % 2 == 0)
        number = seed // 2 if mode == "mixed" else seed
        self.victim = "away" if away else VICTIMS[number % len(VICTIMS)]
        if mode in ("database", "servers"):
            self.victim = mode
        one = away or chance.random() < 0.6
        self.pause_ms = chance.choice((250, 350)) if away else chance.choice((100, 250))
        self.bytes = chance.choice((64 * KIB, 64 * KIB, 1 * MIB, PART_BYTES + 256 * KIB))
        ranks = 4 if self.bytes > PART_BYTES else 8
        if self.victim in ("trainer", "node") and chance.random() < 0.5:
            ranks, one = NODES, True  # each is alone on its node
        self.runs = {"x/run": ranks} if one else {"x/a": ranks // 2, "x/b": ranks // 2}
        self.latency = chance.choice(("head", "complete head", "part put", "*"))
        self.delay_ms = chance.choice((10, 20, 40))
        self.proxied = self.victim == "network"
        self.clocks = self.victim == "clock" or (mode != "database" and chance.random() < 0.25)
        self.strikes = self.draw()

    def strike(self, states, how=None):
        chance = self.chance
        how = how or chance.choice(("kill", "kill", "stop", "stop-kill"))
        down_s = chance.uniform(0.05, 1.5)
        if chance.random() < 0.25:
            return Strike(how, down_s, after_s=chance.uniform(0.1, 2.0))
        points = [point for point in STATES[chance.choice(states)] if self.bytes > PART_BYTES or point not in MULTIPART]
        point = chance.choice(points)
        return Strike(how, down_s, point, nth=chance.randint(1, 10))

    def draw(self):
        chance, uploader = self.chance, UPLOADER_STATES
        if self.victim == "away":
            away = [Strike(chance.choice(("kill", "stop")), chance.uniform(1, 2),
                           after_s=chance.uniform(0.3, 0.9)) for _ in range(3)]
            return {"server": away, chance.randrange(NODES): [self.strike(uploader, "kill")]}
        if self.victim == "servers":
            return {server_name(number): [self.strike(("committing",)) for _ in range(STRIKES)]
                    for number in range(SERVERS)}
        plans = collections.defaultdict(list)
        for _ in range(chance.randint(1, 3)):
            if self.victim in ("uploader", "both", "disk", "clock"):
                plans[chance.randrange(NODES)].append(self.strike(uploader))
            if self.victim in ("server", "both", "clock"):
                plans["server"].append(self.strike(("committing",)))
            if self.victim == "uploaders":
                for node in range(NODES):
                    plans[node].append(self.strike(uploader))
        return dict(plans)

    def text(self):
        strikes = {str(name): [str(s) for s in plan] for name, plan in self.strikes.items()}
        return {"victim": self.victim, "clocks": self.clocks, "runs": self.runs,
                "bytes": self.bytes, "strikes": strikes,
                "latency": f"{self.latency} {self.delay_ms} ms", "pause_ms": self.pause_ms}

    def script(self):
        """Of tests/support/fault/fault.h, for an uploader."""
        return "; ".join(f"{op}:*:*:delay@{self.delay_ms}" for op in self.latency.split())

    def rules(self):
        """Of s3fault."""
        return f"op={self.latency.replace(' ', '|')} : delay={self.delay_ms}"


class Scene:
    """One seed, from an empty world to the judgement. deed(scene): what is done to the database
    (mode `database`, which other programs ask for); more: further options of the world."""

    def __init__(self, plan, s3, deed=None, **more):
        self.plan, self.s3, self.deed = plan, s3, deed
        if plan.victim == "servers":
            more = {"servers": SERVERS, "catalog": postgres.shared().catalog(), **more}
        grace = ["--trash-grace", "0ms"] if plan.victim == "servers" else []
        options = {"nodes": NODES, "server_arguments": ["--sweep-interval", "200ms", *grace],
                   "uploader_arguments": ["--memory-tier-time", "1s", "--offer-wait", "10s", "--heartbeat", "200ms",
                                          "--part-size", "5MiB"], **more}
        clocks = random.Random(f"clocks {plan.seed}") if plan.clocks else None
        if s3:
            self.world = StruckS3(s3, f"chaos-{plan.seed}", plan.runs, plan.proxied, plan.strikes, clocks, **options)
        else:
            self.world = StruckFolder(plan.runs, plan.proxied, plan.strikes, clocks,
                                      env={"CAIRN_STORE_FAULT": plan.script()}, **options)
        self.ranks, self.readers, self.notes, self.settled_s = [], [], [], []
        self.disk, self.full_until = False, 0
        self.deleter = Deleter(self.world, plan.runs, plan.seed)
        self.others = [self.deleter, Restorer(self.world, plan.runs, plan.seed, plan.bytes)] \
            if plan.victim == "servers" else []

    def begin(self):
        if self.s3:
            self.s3.rules(self.plan.rules())
        if self.plan.victim == "disk":
            self.disk = self.world.small_disk(0)
            if not self.disk:
                self.notes.append("no small disk here: nothing is filled")
        self.world.release()
        for run, count in self.plan.runs.items():
            for rank in range(count):
                self.start_rank(run, rank, count, "first", 1)
        self.await_opened("first")

    def await_opened(self, job):
        ranks = [r for r in self.ranks if r.job == job]
        wait_until(lambda: all(r.opened for r in ranks), 90)
        refused = [f"{r.run} rank {r.rank} of {job} was not let in: {r.opened}" for r in ranks
                   if not r.opened.startswith("ok")]
        assert not refused, refused

    def start_rank(self, run, rank, count, job, first):
        node = rank % NODES
        keeps = self.plan.chance.random() < 0.5
        pause_ms = self.plan.pause_ms + self.plan.chance.randrange(60)
        said = open(self.world.root / f"rank-{job}-{run.replace('/', '-')}-{rank}.log", "wb")
        process = subprocess.Popen(
            [BIN / "tests/stream", run, str(rank), str(count), str(first)],
            stdout=subprocess.PIPE, stderr=said, text=True,
            env={**os.environ, **self.world.clock_env(f"node-{node}"),
                 "CAIRN_SOCKET": self.world.socket(node), "CAIRN_JOB": job,
                 "STREAM_BYTES": str(self.plan.bytes), "STREAM_PAUSE_MS": str(pause_ms),
                 "STREAM_KEEP": str(int(keeps)), "STREAM_LAST": str(self.world.root / f"last-{job}"),
                 "STREAM_END": str(self.world.root / f"end-{job}")})
        said.close()
        one = Rank(run, rank, process, keeps)
        one.job, one.node = job, node
        reader = threading.Thread(target=one.read, daemon=True)
        reader.start()
        self.ranks.append(one)
        self.readers.append(reader)

    def strike_others(self):
        """Network, disk and trainers; the daemons have their keepers."""
        chance, victim, kinds = self.plan.chance, self.plan.victim, self.world.kinds
        if self.deed:
            self.deed(self)
            return
        for _ in range(chance.randint(1, 3)):
            time.sleep(chance.uniform(0.1, 0.8))  # pause of chaos
            if victim == "network":
                mode, seconds = chance.choice(("refuse", "hang")), chance.uniform(1, 2)
                self.notes.append(f"network: {mode} for {seconds:.2f} s")
                kinds[f"network {mode}"] += 1
                self.world.proxy.cut(mode)
                time.sleep(seconds)  # pause of chaos
                self.world.proxy.cut(None)
            elif victim == "pause":
                stop_for(chance.choice(self.ranks).process, chance.uniform(0.2, 2))
                self.notes.append("a trainer stood still")
                kinds["stop trainer"] += 1
            elif victim == "disk" and self.disk:
                seconds = chance.uniform(0.1, 0.5)
                self.notes.append(f"disk full for {seconds:.2f} s")
                kinds["disk full"] += 1
                self.world.fill_disk(seconds)
                self.full_until = time.monotonic()
        if self.full_until:
            time.sleep(FULL_S + 1)  # pause of chaos: and some saves that have no excuse
        if victim in ("trainer", "node"):
            self.kill_ranks(chance.sample(self.ranks, chance.choice((1, 1, 2))))

    def kill_ranks(self, ranks):
        """Alone, or each at the same moment as its uploader."""
        for one in ranks:
            if self.plan.victim == "node":
                strike = self.plan.strike(UPLOADER_STATES, "kill")
                strike.also = one
                self.world.keeper_of(one.node).add(strike)
                self.notes.append(f"{one.run} rank {one.rank} and its uploader: {strike}")
            else:
                one.killed = True
                one.process.kill()
                self.world.kinds["kill trainer"] += 1
                self.notes.append(f"{one.run} rank {one.rank} killed")

    def met_full_disk(self, ranks, step):
        return self.full_until and any(r.begun_s[step] < self.full_until + FULL_S for r in ranks if step in r.begun_s)

    def excused(self, ranks, step, committed):
        """What may be lost, if it is told: what was begun before a full disk had room again; after a
        trainer's death what it had not staged. Where its uploader died with it, its memory is gone
        too: as many saves as it had slabs. These need not be the newest: while one slab waits for
        its store, the other carries one save after another."""
        dead = [r for r in ranks if r.killed]
        if self.met_full_disk(ranks, step) or any(not r.has_staged(step) for r in dead):
            return True
        lost = [s for s in ranks[0].begun if s not in committed and all(r.has_staged(s) for r in ranks)]
        return self.plan.victim == "node" and len(lost) <= SLABS * len(dead)

    def refused(self, rank, step):
        """A begin of a rank whose own uploader was down, or had just come back, while it asked."""
        return rank.begun.get(step) == "uploader-gone" and \
            self.world.keeper_of(rank.node).was_down(rank.called_s[step], rank.begun_s[step])

    def play(self):
        self.world.go()
        for other in self.others:
            other.start()
        self.strike_others()
        wait_until(lambda: all(keeper.is_through() for keeper in self.world.keepers), 60)
        self.world.calm()
        self.finish_saves("first")
        for other in self.others:
            other.end()
        return self.judge("first")

    def finish_saves(self, job):
        """All ranks end with the same step, a few ahead of the one that is furthest."""
        ranks = [r for r in self.ranks if r.job == job]
        wait_until(lambda: all(len(r.begun) >= STEPS_MIN or r.killed for r in ranks), 90)
        last = max(step for r in ranks for step in r.begun) + STEPS_AHEAD
        part = self.world.root / f"last-{job}.part"
        part.write_text(f"{last}\n")
        part.rename(self.world.root / f"last-{job}")
        wait_until(lambda: all(r.done or r.killed or r.process.poll() is not None for r in ranks), 120)

    def judge(self, job):
        ranks = [r for r in self.ranks if r.job == job]
        oracle = Oracle(self.world, ranks, self.excused, self.refused, self.deleter.started)
        began = time.monotonic()
        while oracle.open_saves() and time.monotonic() < began + SETTLE_S:
            time.sleep(0.1)  # step of a poll
        self.settled_s.append(round(time.monotonic() - began, 1))
        faults = oracle.judge(self.plan.bytes)
        heard = sum(r.times_told() for r in ranks)
        for other in self.others:
            faults += other.judge()
        (self.world.root / f"end-{job}").touch()
        for rank in ranks:
            status = rank.process.wait(HANG_S)
            if status != 0 and not rank.killed:
                faults.append(f"{rank.run} rank {rank.rank} ended with {status}")
        for reader in self.readers:
            reader.join(HANG_S)
        if sum(r.times_told() for r in ranks) != heard:
            faults.append("something was told only by close, when all had been decided long ago")
        return faults

    def resume(self):
        """Where a trainer died the job starts again, and everything of it must commit."""
        dead = sorted({r.run for r in self.ranks if r.killed})
        for run in dead:
            for rank in range(self.plan.runs[run]):
                self.start_rank(run, rank, self.plan.runs[run], "second", 1001)
        if not dead:
            return []
        self.await_opened("second")
        self.finish_saves("second")
        return self.judge("second")

    def audit(self):
        """Nothing is left over."""
        faults = []
        self.world.watch.end()
        faults += self.world.watch.faults + self.world.faults
        if self.s3:
            try:
                self.world.audit()
            except AssertionError as error:
                faults.append(str(error))
        else:
            faults += self.audit_folder()
        if self.others:
            self.notes.append(f"{self.deleter.count} deleted, {self.others[1].count} restored")
        for number, uploader in enumerate(self.world.uploaders):
            status = uploader.stop()
            if status != 0:
                faults.append(f"uploader {number} ended with {status}")
        return faults + journal_lines(self.world)

    def left_in_folder(self):
        store = self.world.store
        left = [str(path) for path in self.world.temporaries()]
        for folder in found(store, "*/*/*/ckpt_*"):
            if not (folder / "committed.json").exists():
                left += [str(path) for path in files_below(folder)]
        named = {layout_name(json.loads(path.read_text())["layout"])
                 for path in found(store, "*/*/*/ckpt_*/manifest.json")}
        # Those that deleted versions named are kept for hours (server/sweep/sweep.c).
        layouts = [] if self.others else found(store, "*/*/layouts/*.layout")
        return left + [str(path) for path in layouts if path.name not in named]

    def audit_folder(self):
        end, daemons = time.monotonic() + QUIET_S, [self.world.server, *self.world.further, *self.world.uploaders]
        while time.monotonic() < end:
            try:
                left = self.left_in_folder()
            except FileNotFoundError:  # a manifest that was swept before it was read
                left = ["a manifest that was there a moment ago"]
            left += [f"{d.command[0]} holds {kind}" for d in daemons for kind in held.memory(d)]
            if not left:
                break
            time.sleep(0.2)  # step of a poll
        return [f"left over: {what}" for what in left]

    def downs(self):
        """When each uploader was down, in seconds of the machine's clock."""
        return {k.name: [[round(t, 2) for t in times if t] for times in k.downs]
                for k in self.world.keepers if k.downs and k.name.startswith("uploader")}

    def save_evidence(self, faults):
        folder = BIN / "chaos" / f"{self.plan.mode}-{self.plan.store}-{self.plan.seed}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for path in [*self.world.root.glob("*.log"), *self.world.root.glob("*.points")]:
            shutil.copy(path, folder)
        with open(folder / "ranks.txt", "w", encoding="utf-8") as file:
            for r in self.ranks:
                print(r.job, r.run, r.rank, "keeps" if r.keeps else "frees", "staged", r.staged,
                      "told", dict(r.told), "ended", r.ended, file=file)
                print("  begins refused", {s: (r.called_s[s], r.begun_s[s], self.refused(r, s))
                                           for s, code in r.begun.items() if code != "ok"},
                      file=file)
            print("downs", self.downs(), file=file)
        (folder / "faults.txt").write_text("\n".join(faults) + "\n")

    def close(self):
        for rank in self.ranks:
            if rank.process.poll() is None:
                rank.process.kill()
                rank.process.wait()
        self.world.end_all()


def layout_name(layout):
    """Of the object that a manifest's layout is in (docs/format.md)."""
    if not layout:
        return None
    writer = layout["writer"].removeprefix("ckpt_").replace("-", "")
    return f"{layout['digest']}-{writer[:16]}.layout"


def state_of(point):
    """The named state that a strike hit; without a point of its own, the one that the daemon was in
    by the last point that it had passed."""
    return STATE_OF.get(point.removeprefix("any time, "), "between saves")


def one(plan, s3):
    """Prints what happened as a line of JSON; returns whether all held."""
    started = time.monotonic()
    scene, faults, struck, missed, times = Scene(plan, s3), [], [], [], []
    try:
        for act in (scene.begin, scene.play, scene.resume, scene.audit):
            began = time.monotonic()
            faults += act() or []
            times.append(round(time.monotonic() - began, 1))
    except Exception as error:
        faults.append(f"{type(error).__name__}: {error}")
    try:
        if faults:  # a daemon that nobody brought back is the cause of what the ranks were not told
            faults = list(dict.fromkeys([*scene.world.faults, *faults]))
            scene.save_evidence(faults)
        struck = [hit for keeper in scene.world.keepers for hit in keeper.struck]
        missed = [point for keeper in scene.world.keepers for point in keeper.missed]
        scene.close()
    except AssertionError as error:  # a sanitizer's report, or a daemon that died
        faults.append(str(error))
        scene.save_evidence(faults)
    states = collections.Counter(f"{state_of(point)}{'' if exact else ' (just after)'}" for point, exact in struck)
    committed = sum(1 for r in scene.ranks if r.rank == 0 for s in r.staged if not r.told[s])
    refused = sum(1 for r in scene.ranks for code in r.begun.values() if code == "uploader-gone")
    print(json.dumps({"seed": plan.seed, **plan.text(), "struck": struck, "states": states,
                      "kinds": scene.world.kinds, "missed": missed, "notes": scene.notes,
                      "begins_refused": refused, "downs": scene.downs(), "settled_s": scene.settled_s,
                      "steps": committed, "latest_looks": scene.world.watch.looks,
                      "took_s": round(time.monotonic() - started, 1), "acts_s": times,
                      "faults": faults[:12], "fault_count": len(faults)}), flush=True)
    return not faults


def run_one(arguments):
    plan = Plan(arguments.mode, arguments.store, arguments.one)
    if arguments.store == "folder":
        return one(plan, None)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-chaos-"))
    s3 = S3Fault(folder, ["--profile", PROFILES[arguments.store]])
    try:
        return one(plan, s3)
    finally:
        s3.stop()
        shutil.rmtree(folder, ignore_errors=True)


def spawn(arguments, seed):
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--mode", arguments.mode, "--store", arguments.store,
             "--one", str(seed)], capture_output=True, text=True, check=False,
            timeout=SEED_TIMEOUT_S)
        return seed, done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return seed, 1, "", f"not over after {SEED_TIMEOUT_S} s"


def summary(results, failed, count):
    def told(what, items):
        total = collections.Counter()
        for counts in items:
            total.update(counts)
        print(f"strikes by {what}: " + (", ".join(f"{name} {n}" for name, n in sorted(total.items())) or "none"))
    told("kind", (r["kinds"] for r in results))
    told("state", (r["states"] for r in results))
    told("point", (collections.Counter(point for point, _ in r["struck"] if point in STATE_OF) for r in results))
    settled = [s for r in results for s in r["settled_s"]]
    print(f"saves {sum(r['steps'] for r in results)} committed; begins refused "
          f"{sum(r['begins_refused'] for r in results)}; all told within {max(settled, default=0)} s")
    if failed:
        print(f"failed seeds: {failed}; run one alone with --one SEED")
    print(f"{count - len(failed)} passed, {len(failed)} failed")


def missing(results):
    """The named states that no strike of these seeds hit."""
    hit = {STATE_OF[point] for result in results for point, _ in result["struck"] if point in STATE_OF}
    return sorted(set(STATES) - hit)


def aims(arguments, seed, states):
    """How many strikes of a seed are meant for one of these states, and early enough that it is reached."""
    strikes = Plan(arguments.mode, arguments.store, seed).strikes.values()
    return sum(STATE_OF.get(strike.point) in states and strike.nth <= 4 for plan in strikes for strike in plan)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="mixed", choices=("away", "any", "mixed", "servers"))
    parser.add_argument("--store", default="folder", choices=("folder", *PROFILES))
    parser.add_argument("--servers", type=int, default=1, choices=(1, SERVERS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--one", type=int)
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--each-state", action="store_true")
    arguments = parser.parse_args()
    if arguments.servers > 1 or arguments.mode == "servers":
        arguments.mode = "servers"
        postgres.needed_by_program()
    if arguments.one is not None:
        sys.exit(0 if run_one(arguments) else 1)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    print(f"mode {arguments.mode}, store {arguments.store}, seeds {seeds.start} to {seeds.stop - 1}", flush=True)
    results, failed, left, ran = [], [], collections.deque(seeds), 0
    with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
        while left and not (ran and arguments.each_state and not missing(results)):
            size = arguments.parallel if arguments.each_state else len(left)
            if arguments.each_state:
                wanted = missing(results)
                left = collections.deque(sorted(left, key=lambda seed: -aims(arguments, seed, wanted)))
            batch = [left.popleft() for _ in range(min(size, len(left)))]
            ran += len(batch)
            for seed, status, out, err in pool.map(lambda s: spawn(arguments, s), batch):
                print(out, end="", flush=True)
                results += [json.loads(line) for line in out.splitlines()]
                if status:
                    failed.append(seed)
                    print(err[-3000:], file=sys.stderr, flush=True)
    summary(results, failed, ran)
    if arguments.each_state and missing(results):
        print(f"not struck in any of {ran} seeds: {', '.join(missing(results))}")
        sys.exit(1)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
