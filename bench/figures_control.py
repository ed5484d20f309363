# SPDX-License-Identifier: Apache-2.0
"""Figures of what goes beside the bytes of a save: tables, messages, records."""
import glob
import os
import shutil
import socket
import statistics
import sys
import threading
import time

from bench import peers
from bench.daemons import World
from bench.figures_job import Daemons, cpu_of
from bench.figures_python import side as python_side
from bench.harness import BUILD, Skip
from bench.figures_s3 import PUT, RAW, SINK, Figure, open_sink, put_side, raw_side
from bench.programs import Process, Side, program

FIGURES = {}


def figure(name, about, metrics, targets, wanted=()):
    def keep(run):
        FIGURES[name] = Figure(run, about, metrics, targets, wanted)
        return run
    return keep


class Relay:
    """Between uploader and server; counts what the uploader sends."""

    def __init__(self, to):
        self.to, self.bytes = to, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            threading.Thread(target=self.copy, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self.copy, args=(far, near, False), daemon=True).start()

    def copy(self, source, target, counted):
        try:
            while True:
                data = source.recv(1 << 20)
                if not data:
                    break
                if counted:
                    self.bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()


class Growth:
    """Bytes that were appended to a file, also where it is replaced by a shorter one meanwhile."""

    def __init__(self, path):
        self.path, self.total, self.ended = path, 0, False
        self.size = self.now()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def now(self):
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    def look(self):
        size = self.now()
        self.total += max(0, size - self.size)
        self.size = size

    def watch(self):
        while not self.ended:
            self.look()
            time.sleep(0.002)

    def close(self):
        self.ended = True
        self.thread.join()
        self.look()


PLAN_FRAGMENTS, PLAN_RANKS, PLAN_SAVES = 1000000, 4, 5


@figure("plan-cache", "what goes beside the bytes of the second and later saves of an unchanged layout of "
        "1,000,000 fragments, against the first",
        [("socket_bytes", 0.01, "lower"), ("journal_bytes", 0.05, "lower"),
         ("server_bytes", 0.01, "lower"), ("trainer_cpu", None, "lower"),
         ("uploader_cpu", None, "lower"), ("server_cpu", None, "lower")],
        {"bench_plan", "cairn-server", "cairn-uploader"})
def plan_cache(lab):
    daemons = lab.keep(Daemons(lab, relay=Relay))
    server, uploader = daemons.daemons
    side = lab.keep(Process([program("bench_plan"), "--socket", daemons.path("s"), "--ranks",
                             str(PLAN_RANKS), "--fragments", str(PLAN_FRAGMENTS)],
                            daemons.environment))

    def save():
        growth = Growth(daemons.path("bench.journal"))
        cpu = [cpu_of(daemon.child.pid) for daemon in (uploader, server)]
        before = daemons.relay.bytes
        side.child.stdin.write("save\n")
        side.child.stdin.flush()
        answer = side.answer()
        growth.close()
        used = [cpu_of(daemon.child.pid) - was for daemon, was in zip((uploader, server), cpu)]
        return {"socket_bytes": answer["socket"], "journal_bytes": growth.total,
                "server_bytes": daemons.relay.bytes - before, "trainer_cpu": answer["cpu"],
                "uploader_cpu": used[0], "server_cpu": used[1], "stage": answer["stage"],
                "describe": answer["describe"]}

    first = save()
    later = [save() for _ in range(PLAN_SAVES)]
    goals = {name: goal for name, goal, _ in FIGURES["plan-cache"].metrics}
    for name in first:
        lab.report(name, [run[name] / max(first[name], 1e-6) for run in later], goals.get(name),
                   "lower", [run[name] for run in later], [first[name]],
                   unit="bytes" if name.endswith("bytes") else "s", scale=1)


ASYNC_TENSORS = 300
ASYNC_SIZES = (64 << 20, 1 << 30, 4 << 30)  # of which those that --bytes allows
ASYNC_WORK_MS, ASYNC_WORK_MS_A_GIB = 2000, 1500  # a step takes longer than the copy of what it trains


def rounds_of(lab, command, environment, after=lambda: None):
    """Answers to `go`, without the first, in which memory is touched."""
    side = lab.keep(Process(command, environment))
    answers = []
    for _ in range(lab.pairs_wanted + 1):
        side.child.stdin.write("go\n")
        side.child.stdin.flush()
        answers.append(side.answer())
        after()
    side.close()
    return answers[1:]


def behind(lab, world, mode, *flags, after=lambda: None):
    return rounds_of(lab, [program("bench_behind"), mode, "--socket", world.socket, *flags], peers.environment(), after)


@figure("stage-async", "what the copy of a save beside training blocks (describe, stage_begin, fence), the longest of "
        "its rounds, and training beside it against training beside a memcpy of the bytes by as many threads; what a "
        "save by the Python package blocks, against DCP's DefaultStager of CPU tensors",
        [("blocked_s", 0.005, "lower"), ("slow_down", 1.1, "lower"), ("stager", 0.2, "lower")],
        {"bench_behind", "cairn", "cairn-server", "cairn-uploader"}, ("torch",))
def stage_async(lab):
    world = lab.keep(World(lab, None))
    threads = max(1, min(len(os.sched_getaffinity(0)) // 2, 4))  # as a session that is told no number

    def forget():
        for path in sorted(glob.glob(os.path.join(world.store, "bench", "async-*", "0*")))[:-1]:
            shutil.rmtree(path, ignore_errors=True)

    for size in [size for size in ASYNC_SIZES if size <= lab.bytes] or [lab.bytes]:
        work_ms = max(ASYNC_WORK_MS, ASYNC_WORK_MS_A_GIB * size >> 30)
        rounds = behind(lab, world, "beside", "--run", "bench/async-%d" % size, "--bytes", str(size), "--tensors",
                        str(ASYNC_TENSORS), "--work-ms", str(work_ms), "--threads", str(threads), after=forget)
        of = "%d MiB" % (size >> 20)
        seconds = {name: [run[name] / 1e6 for run in rounds] for name in rounds[0]}
        lab.report("blocked_s", [max(seconds["blocked_us"])], 0.005, "lower",
                   seconds["fence_us"], seconds["begin_us"], unit="s", by=of)
        lab.report("slow_down", [a / b for a, b in zip(seconds["beside_us"], seconds["memcpy_us"])],
                   1.1, "lower", seconds["beside_us"], seconds["alone_us"], unit="s", by=of, threads=threads)
    stager(lab, world)


def stager(lab, world):
    """Both sides' time for which they block, and that from their begin until all is copied."""
    if not peers.name_of("torch"):
        lab.absent("stager", 0.2, "lower", "torch could not be installed")
        return
    size = min(lab.bytes, 1 << 30)
    ours = python_side(lab, world, "background", size)
    for kind, goal in (("stager", 0.2), ("stager-async", None)):
        a, b = lab.pairs(ours.go, python_side(lab, world, kind, size).go)
        lab.report("stager", [x.seconds / y.seconds for x, y in zip(a, b)], goal, "lower", [x.seconds for x in a],
                   [y.seconds for y in b], unit="s", peer=kind, total=[
                       round(statistics.median(run.total for run in runs), 4) for runs in (a, b)])


DESCRIBE_PIECES = 100_000


@figure("describe", "100,000 pieces, microseconds for each: by an array, by known pieces at other addresses, "
        "and by the save before; and seconds of Python's one call for all of them",
        [("tensors_us", 0.2, "lower"), ("known_us", 0.2, "lower"), ("again_us", 0.2, "lower"),
         ("python_s", 0.02, "lower")], {"bench_behind", "cairn", "cairn-server", "cairn-uploader"})
def describe(lab):
    world = lab.keep(World(lab, None))
    rounds = behind(lab, world, "describe", "--pieces", str(DESCRIBE_PIECES))
    for name in ("tensors_us", "known_us", "again_us"):
        each = [run[name] / DESCRIBE_PIECES for run in rounds]
        lab.report(name, each, 0.2, "lower", each, each, unit="us")
    rounds = rounds_of(lab, [sys.executable, peers.script("describe.py"), BUILD, world.socket, str(DESCRIBE_PIECES)],
                       peers.environment())
    for name in ("known", "again"):
        lab.report("python_s", [run[name] for run in rounds], 0.02, "lower", [run[name] for run in rounds], unit="s",
                   by=name)


PUSH_ROUNDS = 50


@figure("push", "the calls of a small save, p50, against as many messages over a socketpair and as many "
        "syncs of a file", [("p50", 1.3, "lower")], {"bench_push", "cairn-server", "cairn-uploader"})
def push(lab):
    daemons = lab.keep(Daemons(lab))
    rounds = ["--count", str(PUSH_ROUNDS)]
    ours = lab.keep(Process([program("bench_push"), "save", "--socket", daemons.path("s"), *rounds],
                            daemons.environment))
    theirs = lab.keep(Process([program("bench_push"), "pingpong", "--folder", daemons.folder,
                               *rounds], daemons.environment))

    def ask(side):
        side.child.stdin.write("go\n")
        side.child.stdin.flush()
        return side.answer()["p50"]

    a, b = lab.pairs(lambda: ask(ours), lambda: ask(theirs))
    lab.report("p50", [x / y for x, y in zip(a, b)], 1.3, "lower", a, b, unit="us")


INTERFERENCE_BYTES = 256 << 20
INTERFERENCE_LINKS, INTERFERENCE_RATE = 16, 1_000_000_000  # of all together


class Busy:
    """Uploads one object after the other until it is ended, and says how fast."""

    def __init__(self, side):
        self.side, self.ended, self.bytes, self.seconds = side, False, 0, 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended:
            went = self.side.go()
            self.bytes += went.bytes
            self.seconds += went.seconds

    def close(self):
        self.ended = True
        self.thread.join()
        return self.bytes / self.seconds / 1e9


@figure("interference", "how much a memcpy loop on one core slows while 1 GB/s is uploaded from the other, "
        "against bare send()", [("slowdown", None, "lower")],
        {SINK, RAW, PUT, "bench_copy"})
def interference(lab):
    """Uploader and sink share all cores but the first, which the loop has for itself. The slow-down
    is what is left of memory and of a turbo clock; GB/s of the upload stand beside it."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Skip("it needs two cores")

    def pinned(make, where):
        os.sched_setaffinity(0, where)
        try:
            return make()
        finally:
            os.sched_setaffinity(0, cores)

    loop = pinned(lambda: lab.keep(Side([program("bench_copy"), "memcpy", "--bytes",
                                         str(INTERFERENCE_BYTES)])), cores[:1])
    sink = pinned(lambda: open_sink(lab), cores[1:])
    sink.reset(rate=INTERFERENCE_RATE // INTERFERENCE_LINKS)
    part, links = lab.bytes // INTERFERENCE_LINKS, INTERFERENCE_LINKS
    sides = {"ours": pinned(lambda: put_side(lab, sink, part, connections=links, requests=links), cores[1:]),
             "send()": pinned(lambda: raw_side(lab, sink, "put", part, links), cores[1:])}
    rates = {name: [] for name in sides}

    def copies():
        return statistics.median(loop.go().seconds for _ in range(5))

    def slowed(name):
        alone = copies()
        busy = Busy(sides[name])
        beside = copies()
        rates[name].append(busy.close())
        return beside / alone

    for side in sides.values():
        side.go()
    a, b = lab.pairs(lambda: slowed("ours"), lambda: slowed("send()"))
    for name, ratios in (("ours", a), ("send()", b)):
        lab.report("slowdown", ratios, None, "lower", peer=name,
                   gb_per_s=round(statistics.median(rates[name]), 3))
