# SPDX-License-Identifier: Apache-2.0
"""Figures of a rank whose tensors lie on a GPU.

CAIRN_BENCH_CUDA=PATH takes another runtime than the machine's, such as the tests' own without a GPU:
then everything runs and is compared, and no figure comes of it.
"""
import os
import subprocess

from bench.daemons import World
from bench.figures_s3 import Figure
from bench.harness import Skip
from bench.programs import Side, program

FIGURES = {}
TARGETS = {"bench_gpu", "cairn_cuda", "cairn-server", "cairn-uploader"}
SMOKE = {"reason": "a smoke run over another runtime: no figure"}


def figure(name, about, metrics):
    def keep(run):
        FIGURES[name] = Figure(run, about, metrics, TARGETS, ())
        return run
    return keep


def environment():
    return dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(program("bench_gpu")))


def need_gpu():
    done = subprocess.run([program("bench_gpu"), "probe"], stderr=subprocess.DEVNULL, check=False,
                          env=environment())
    if done.returncode:
        raise Skip("skipped: no CUDA device")


def rank(lab, world, kind):
    return lab.keep(Side([program("bench_gpu"), kind, "--socket", world.socket, "--run",
                          "bench/" + kind, "--bytes", str(lab.bytes)], environment()))


def bare(lab, kind):
    return lab.keep(Side([program("bench_gpu"), kind, "--bytes", str(lab.bytes)], environment()))


def compare(lab, metric, ours, theirs, goal):
    """Both say how many bytes they had on the GPU; what they took for them is compared."""
    a, b = lab.pairs(ours.go, theirs.go)
    smoke = dict(SMOKE, ok=None) if os.environ.get("CAIRN_BENCH_CUDA") else {}
    lab.report(metric, [x.seconds / y.seconds for x, y in zip(a, b)], goal, "lower",
               [x.bytes / x.seconds / 1e9 for x in a], [y.bytes / y.seconds / 1e9 for y in b],
               unit="GB/s", **smoke)


@figure("stage-gpu", "the stall of a save of a GPU's memory, against one bare copy of its bytes into "
        "page-locked memory", [("stall", 1.25, "lower")])
def stage_gpu(lab):
    need_gpu()
    world = lab.keep(World(lab, None))
    compare(lab, "stall", rank(lab, world, "stage"), bare(lab, "copy"), 1.25)


@figure("stage-convert", "the stall of a save of F32 on a GPU that is stored as BF16, against one bare "
        "copy of half its bytes, and against a save that stores F32",
        [("stall", 1.35, "lower"), ("of_whole", 0.65, "lower")])
def stage_convert(lab):
    need_gpu()
    world = lab.keep(World(lab, None))
    ours = rank(lab, world, "convert")
    compare(lab, "stall", ours, bare(lab, "copy-half"), 1.35)
    compare(lab, "of_whole", ours, rank(lab, world, "stage"), 0.65)


@figure("restore-gpu", "a restore into a GPU's memory, against the same into the host's",
        [("read", 1.15, "lower")])
def restore_gpu(lab):
    need_gpu()
    world = lab.keep(World(lab, None))
    compare(lab, "read", rank(lab, world, "restore"), rank(lab, world, "restore-host"), 1.15)
