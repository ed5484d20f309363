# SPDX-License-Identifier: Apache-2.0
"""What the server's own reads cost: a model that is put together as it is sent, against one that is stored."""
import hashlib
import os
import subprocess
import time

from bench.figures_job import SERVER_PORT, Daemons
from bench.figures_s3 import Figure
from bench.programs import program

FIGURES = {}
RANKS = 8
CHECKPOINTS = "http://127.0.0.1:%d/v1/runs/bench/%%s/checkpoints/latest/" % SERVER_PORT
MODEL = CHECKPOINTS % "ranks" + "hf/model.safetensors"
STORED = CHECKPOINTS % "whole" + "shards/weights.bin/data"


def fetch(url, path="/dev/null"):
    """Seconds until the last byte, of curl."""
    start = time.monotonic()
    done = subprocess.run(["curl", "-sf", "-o", path, url], timeout=600)
    if done.returncode:
        raise RuntimeError("curl %s ended with %d" % (url, done.returncode))
    return time.monotonic() - start


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_by_ranks(daemons):
    children = [subprocess.Popen([program("examples/transformer-save"), "bench/ranks", "1", str(rank), str(RANKS)],
                                 env=dict(daemons.environment, CAIRN_JOB="bench"), stdout=subprocess.DEVNULL)
                for rank in range(RANKS)]
    if any(child.wait(600) for child in children):
        raise RuntimeError("a rank could not save")


class Peak:
    """The most memory of a process since it was last asked."""

    def __init__(self, pid):
        self.pid = pid

    def restart(self):
        with open("/proc/%d/clear_refs" % self.pid, "w", encoding="ascii") as file:
            file.write("5")

    def mib(self):
        with open("/proc/%d/status" % self.pid, encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def hf_view(lab):
    daemons = lab.keep(Daemons(lab))
    save_by_ranks(daemons)
    os.makedirs(daemons.path("source"))
    whole = daemons.path("source/weights.bin")
    fetch(MODEL, whole)
    size = os.path.getsize(whole)
    exported = daemons.path("exported")
    daemons.cairn("export", "bench/ranks@1", exported)
    if digest(os.path.join(exported, "model.safetensors")) != digest(whole):
        raise RuntimeError("the view has other bytes than an export")
    daemons.cairn("put", daemons.path("source"), "bench/whole@1")
    peak = Peak(daemons.daemons[0].child.pid)
    ours, theirs, more = [], [], []
    for _ in range(lab.pairs_wanted + 1):  # the first round fills the page cache
        peak.restart()
        theirs.append(size / fetch(STORED) / 1e9)
        before = peak.mib()
        peak.restart()
        ours.append(size / fetch(MODEL) / 1e9)
        more.append(peak.mib() - before)
    lab.report("rate", [a / b for a, b in zip(ours[1:], theirs[1:])], 0.7, "higher", ours[1:], theirs[1:],
               unit="GB/s", bytes=size)
    lab.report("memory", more[1:], 64, "lower", more[1:], [0] * lab.pairs_wanted, unit="MiB", bytes=size)


FIGURES["hf-view"] = Figure(
    hf_view, "a model of 1.1 GiB out of %d ranks' shards over {C}/hf, against the same bytes as one stored shard; "
    "and how much more memory the server has meanwhile" % RANKS,
    [("rate", 0.7, "higher"), ("memory", 64, "lower")],
    {"cairn-server", "cairn-uploader", "cairn-command", "transformer-save"}, ())
