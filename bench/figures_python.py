# SPDX-License-Identifier: Apache-2.0
"""Figures of the Python package: how long a save keeps a training loop, and a load, against torch's own; a save in S3;
jobs of many ranks."""
import os
import shutil

from bench import peers
from bench.daemons import World
from bench.figures_job import Daemons, Ranks, cool
from bench.figures_s3 import Figure
from bench.harness import BUILD, ROOT, Skip
from bench.programs import Side, Sink

FIGURES = {}
TARGETS = {"cairn", "cairn-server", "cairn-uploader"}
TENSORS, MANY = 300, 100_000
WORLDS, PLAYED, PLAYERS, NODES = (64, 128), 2816, 4, 16
NODE_BUDGET = "512MiB"  # of its 176 ranks one save each: 2 MiB a rank
RANK_BYTES = 200 << 20  # what a process with torch takes of the machine's memory
PORT = 7440


def figure(name, about, metrics, targets=frozenset(), wanted=()):
    def keep(run):
        def with_torch(lab):
            for peer in ("torch", *wanted):
                if not peers.name_of(peer):
                    raise Skip("%s could not be installed" % peer)
            run(lab)
        FIGURES[name] = Figure(with_torch, about, metrics, TARGETS | targets, ("torch", *wanted))
        return run
    return keep


def package(environment, **more):
    """The package of this tree, over the libcairn that was built."""
    return dict(environment, CAIRN_LIBRARY=os.path.join(BUILD, "libcairn.so"), PYTHONPATH=os.path.join(ROOT, "python"),
                **more)


def script(name, *arguments):
    return [peers.python_of("torch"), peers.script(name), *map(str, arguments)]


def side(lab, world, kind, size, tensors=TENSORS):
    folder = os.path.join(lab.folder, "py-" + kind)
    os.makedirs(folder, exist_ok=True)
    environment = package(peers.environment(), CAIRN_SOCKET=world.socket, CAIRN_URL=world.url, CAIRN_JOB="py-" + kind)
    return lab.keep(Side(script("py_save.py", kind, folder, size, tensors), environment))


@figure("py-stall", "how long a save of 300 tensors keeps a Python loop: copied beside it, and at once; torch's own",
        [("background", 0.010, "lower"), ("now", 1.15, "lower"), ("dcp", 0.2, "lower"), ("torch", 0.1, "lower")])
def py_stall(lab):
    """What copies within the call takes half of DCP's time at best, whose stager copies at two thirds of memcpy's speed: the
    bars of the others are for a save whose copy goes on beside training; the copy at once is reported."""
    size = min(lab.bytes, 1 << 30)
    world = lab.keep(World(lab, None))
    background, now = side(lab, world, "background", size), side(lab, world, "now", size)
    copy = side(lab, world, "copy", size)
    a, b = lab.pairs(background.go, copy.go)
    lab.report("background", [x.seconds for x in a], 0.010, "lower", [x.seconds for x in a], [y.seconds for y in b],
               unit="s")
    a, b = lab.pairs(now.go, copy.go)
    lab.report("now", [x.seconds / y.seconds for x, y in zip(a, b)], 1.15, "lower", [x.seconds for x in a],
               [y.seconds for y in b], unit="s")
    for kind, goal in (("dcp", 0.2), ("torch", 0.1)):
        other = side(lab, world, kind, size)
        for metric, ours, bar in ((kind, background, goal), (kind + "_now", now, None)):
            a, b = lab.pairs(ours.go, other.go)
            lab.report(metric, [x.seconds / y.seconds for x, y in zip(a, b)], bar, "lower", [x.seconds for x in a],
                       [y.seconds for y in b], unit="s")
        other.close()
        shutil.rmtree(os.path.join(lab.folder, "py-" + kind), ignore_errors=True)


@figure("py-load", "a verified load of 300 tensors into place, against dcp.load of a folder; of a cold folder, against "
        "safetensors' load_file of a cold file", [("dcp", 0.5, "lower"), ("safetensors", 0.83, "lower")])
def py_load(lab):
    size = min(lab.bytes, 1 << 30)
    world = lab.keep(World(lab, None))
    ours, other = side(lab, world, "load", size), side(lab, world, "dcp-load", size)
    a, b = lab.pairs(ours.go, other.go)
    lab.report("dcp", [x.seconds / y.seconds for x, y in zip(a, b)], 0.5, "lower", [x.seconds for x in a],
               [y.seconds for y in b], unit="s")
    lab.close_all()
    world = lab.keep(World(lab, None))
    ours, other = side(lab, world, "load", size), side(lab, world, "safetensors", size)

    def cold(one, folder):
        def go():
            cool(folder)
            return one.go()
        return go

    a, b = lab.pairs(cold(ours, world.store), cold(other, os.path.join(lab.folder, "py-safetensors")))
    lab.report("safetensors", [x.seconds / y.seconds for x, y in zip(a, b)], 0.83, "lower", [x.seconds for x in a],
               [y.seconds for y in b], unit="s")


@figure("py-calls", "CPU time of the calling thread for a save of 100,000 small tensors, after the first and for it",
        [("describe", 0.1, "lower"), ("first", 1.0, "lower")])
def py_calls(lab):
    world = lab.keep(World(lab, None))
    ours = side(lab, world, "describe", MANY * 64, MANY)
    copy = side(lab, world, "copy", MANY * 64, MANY)
    ours.go()
    a, b = lab.pairs(ours.go, copy.go)
    lab.report("describe", [x.seconds for x in a], 0.1, "lower", [x.seconds for x in a], [y.seconds for y in b], unit="s")
    ours.close()
    first = side(lab, world, "first", MANY * 64, MANY)
    a, b = lab.pairs(first.go, copy.go)
    lab.report("first", [x.seconds for x in a], 1.0, "lower", [x.seconds for x in a], [y.seconds for y in b], unit="s")


@figure("py-save", "300 tensors durable in S3, against dcp.save with s3torchconnector's writer",
        [("durable", 3, "higher"), ("cpu", 0.4, "lower")], {"cairn-command", "bench_sink"}, ("s3torchconnector",))
def py_save(lab):
    """Our CPU is that of the trainer, the uploader and the server."""
    size = min(lab.bytes, 1 << 30)
    sink = lab.keep(Sink(lab, keep=True, warm=3 * size))
    daemons = lab.keep(Daemons(lab, sink))
    ours = lab.keep(Side(script("py_save.py", "durable", "-", size, TENSORS),
                         package(daemons.environment, CAIRN_JOB="py-durable")))
    theirs = lab.keep(Side(script("py_save.py", "s3", "s3://bench/py-s3", size, TENSORS), daemons.environment))
    saved = 1  # to be warm

    def save():
        nonlocal saved
        used, run = daemons.cpu(), ours.go()
        run = run._replace(cpu=run.cpu + daemons.cpu() - used)
        saved += 1
        daemons.cairn("rm", "bench/py-durable@%d" % (saved - 1), "--yes")
        return run

    def other():
        run = theirs.go()
        sink.remove("/bench/py-s3/")
        return run

    a, b = lab.pairs(save, other)
    peer = peers.name_of("s3torchconnector")
    lab.report("durable", [y.seconds / x.seconds for x, y in zip(a, b)], 3, "higher", [x.seconds for x in a],
               [y.seconds for y in b], unit="s", peer=peer)
    lab.report("cpu", [x.cpu / y.cpu for x, y in zip(a, b)], 0.4, "lower", [x.cpu for x in a], [y.cpu for y in b],
               unit="s", peer=peer)


def memory_available():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


@figure("py-world", "300 tensors divided among all ranks: a whole save of 64 and of 128 gloo processes against the planning "
        "of dcp.save; and of 2,816 ranks on 16 uploaders that four processes play, from the state to the commit",
        [("planning", None, "lower"), ("played", 5, "lower")])
def py_world(lab):
    world = lab.keep(World(lab, None))
    environment = package(peers.environment(), CAIRN_SOCKET=world.socket, CAIRN_URL=world.url, OMP_NUM_THREADS="1")
    kept = len(lab.opened)
    for ranks in (8,) if lab.judge else WORLDS:
        if memory_available() < ranks * RANK_BYTES:
            lab.absent("planning", None, "lower", "this machine's memory bears fewer processes", ranks=ranks)
            continue
        job = lab.keep(Ranks([script("py_world.py", "real", rank, ranks, TENSORS, PORT + ranks) for rank in range(ranks)],
                             environment))
        a, b = lab.pairs(lambda: job.ask("cairn"), lambda: job.ask("dcp"))
        lab.report("planning", [x["seconds"] / y["seconds"] for x, y in zip(a, b)], None, "lower",
                   [x["seconds"] for x in a], [y["seconds"] for y in b], unit="s", ranks=ranks,
                   cpu=[round(sum(x["cpu"] for x in side) / len(side), 2) for side in (a, b)])
        while len(lab.opened) > kept:  # its memory is needed for the next
            lab.opened.pop().close()
    lab.close_all()
    world = lab.keep(World(lab, None, ("--memory-budget", NODE_BUDGET), NODES))
    environment.update(CAIRN_SOCKET=world.socket, CAIRN_URL=world.url)
    each = PLAYED // PLAYERS
    job = lab.keep(Ranks([script("py_world.py", "played", first, each, PLAYED, TENSORS, PLAYED // NODES)
                          for first in range(0, PLAYED, each)], environment))
    job.ask("cairn")  # layouts are told once
    runs = [job.ask("cairn") for _ in range(lab.pairs_wanted)]
    lab.report("played", [x["seconds"] for x in runs], 5, "lower", [x["seconds"] for x in runs], unit="s", ranks=PLAYED,
               cpu=round(sum(x["cpu"] for x in runs) / len(runs), 2))
