# SPDX-License-Identifier: Apache-2.0
"""Figures of the Python package: how long a save keeps a training loop, and a load, against torch's own."""
import os
import shutil

from bench import peers
from bench.daemons import World
from bench.figures_s3 import Figure
from bench.harness import BUILD, ROOT, Skip
from bench.programs import Side

FIGURES = {}
TARGETS = {"cairn", "cairn-server", "cairn-uploader"}
TENSORS, MANY = 300, 100_000


def figure(name, about, metrics):
    def keep(run):
        def with_torch(lab):
            if not peers.name_of("torch"):
                raise Skip("torch could not be installed")
            run(lab)
        FIGURES[name] = Figure(with_torch, about, metrics, TARGETS, ("torch",))
        return run
    return keep


def side(lab, world, kind, size, tensors=TENSORS):
    folder = os.path.join(lab.folder, "py-" + kind)
    os.makedirs(folder, exist_ok=True)
    environment = dict(peers.environment(), CAIRN_SOCKET=world.socket, CAIRN_URL=world.url, CAIRN_JOB="py-" + kind,
                       CAIRN_LIBRARY=os.path.join(BUILD, "libcairn.so"), PYTHONPATH=os.path.join(ROOT, "python"))
    return lab.keep(Side([peers.python_of("torch"), peers.script("py_save.py"), kind, folder, str(size), str(tensors)],
                         environment))


@figure("py-stall", "how long a save of 300 tensors keeps a Python loop: copied beside it, and at once; torch's own",
        [("background", 0.010, "lower"), ("now", 1.15, "lower"), ("dcp", 0.2, "lower"), ("torch", 0.1, "lower")])
def py_stall(lab):
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
        a, b = lab.pairs(now.go, other.go)
        lab.report(kind, [x.seconds / y.seconds for x, y in zip(a, b)], goal, "lower", [x.seconds for x in a],
                   [y.seconds for y in b], unit="s")
        other.close()
        shutil.rmtree(os.path.join(lab.folder, "py-" + kind), ignore_errors=True)


@figure("py-load", "a verified load of 300 tensors into place, against dcp.load of a folder",
        [("dcp", 0.5, "lower")])
def py_load(lab):
    size = min(lab.bytes, 1 << 30)
    world = lab.keep(World(lab, None))
    ours, other = side(lab, world, "load", size), side(lab, world, "dcp-load", size)
    a, b = lab.pairs(ours.go, other.go)
    lab.report("dcp", [x.seconds / y.seconds for x, y in zip(a, b)], 0.5, "lower", [x.seconds for x in a],
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
