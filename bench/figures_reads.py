# SPDX-License-Identifier: Apache-2.0
"""What the server's own reads cost: a model that is put together as it is sent, against one that is stored."""
import hashlib
import os
import subprocess
import time

from bench import peers
from bench.daemons import Daemon
from bench.figures_commit import S3FAULT_PORT
from bench.figures_job import SERVER_PORT, Daemons
from bench.figures_lists import REPLY_PORT
from bench.figures_s3 import Figure
from bench.programs import Process, program

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


# ---- ranges ----

RANGE = 32 << 20
RANGES = 16


def fetch_ranges(url, whole, offsets):
    """GB/s of curl, one connection: each range after the other, or as often the whole of what is so large."""
    command = ["curl", "-sf"]
    for number, offset in enumerate(offsets):
        if number:
            command.append("--next")
        command += ["-sf", "-o", "/dev/null", url]
        if not whole:
            command += ["-r", "%d-%d" % (offset, offset + RANGE - 1)]
    start = time.monotonic()
    done = subprocess.run(command, timeout=600)
    if done.returncode:
        raise RuntimeError("curl ended with %d" % done.returncode)
    return len(offsets) * RANGE / (time.monotonic() - start) / 1e9


def bare_url(lab, content):
    """Of libmicrohttpd with one buffer."""
    path = os.path.join(lab.folder, "reply")
    with open(path, "wb") as file:
        file.write(content)
    lab.keep(Process([program("bench_reply"), "--listen-port", str(REPLY_PORT), "--file", path]))
    return "http://127.0.0.1:%d/" % REPLY_PORT


class Bucket:
    """An S3 server in memory."""

    def __init__(self, lab):
        keys, ready = peers.environment(), os.path.join(lab.folder, "s3fault.port")
        self.url = "http://127.0.0.1:%d" % S3FAULT_PORT
        self.daemon = Daemon([program("s3fault"), "--port", str(S3FAULT_PORT), "--bucket", "bench", "--port-file",
                              ready, "--access-key", keys["AWS_ACCESS_KEY_ID"], "--secret-key",
                              keys["AWS_SECRET_ACCESS_KEY"]], os.path.join(lab.folder, "s3fault.log"), ready)
        self.daemon.start()

    def close(self):
        self.daemon.stop()


class Content:
    """Two shards' worth of RANGES ranges, and what each range must be."""

    def __init__(self, daemons):
        os.makedirs(daemons.path("source"))
        self.path = daemons.path("source/weights.bin")
        with open(self.path, "wb") as file:
            for _ in range(RANGES):
                file.write(os.urandom(RANGE))
        daemons.cairn("put", daemons.path("source"), "bench/whole@1")
        self.offsets = [RANGE * i for i in range(RANGES)]

    def at(self, offset):
        with open(self.path, "rb") as file:
            file.seek(offset)
            return file.read(RANGE)

    def check(self, url, path):
        """One range, byte for byte."""
        subprocess.run(["curl", "-sfL", "-o", path, "-r", "%d-%d" % (RANGE, 2 * RANGE - 1), url], check=True,
                       timeout=600)
        with open(path, "rb") as file:
            if file.read() != self.at(RANGE):
                raise RuntimeError("%s is another range" % url)


def serve_range(lab):
    """The folder is in memory, as the buffer is: on a disk both sides would have to read it."""
    daemons = lab.keep(Daemons(lab, within=lab.shared))
    content = Content(daemons)
    content.check(STORED, daemons.path("range"))
    bare = bare_url(lab, content.at(0))
    ours, theirs = lab.pairs(lambda: fetch_ranges(STORED, False, content.offsets),
                             lambda: fetch_ranges(bare, True, content.offsets))
    lab.report("folder", [a / b for a, b in zip(ours, theirs)], 0.85, "higher", ours, theirs, unit="GB/s",
               bytes=RANGE * RANGES)


def location(url):
    """Where the server sends who asks for this shard of a bucket: a 307 to the store itself."""
    said = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", url],
                          capture_output=True, text=True, timeout=60).stdout.split()
    if len(said) != 2 or said[0] != "307":
        raise RuntimeError("%s was answered with %s, not with a 307" % (url, said))
    return said[1]


def serve_range_s3(lab):
    store = lab.keep(Bucket(lab))
    daemons = lab.keep(Daemons(lab, store, grace="1h"))  # so long a URL may live
    content = Content(daemons)
    content.check(STORED + "?via=proxy", daemons.path("range"))
    ours, theirs = lab.pairs(lambda: fetch_ranges(STORED + "?via=proxy", False, content.offsets),
                             lambda: fetch_ranges(location(STORED + "?via=redirect"), False, content.offsets))
    lab.report("proxy", [a / b for a, b in zip(ours, theirs)], 0.5, "higher", ours, theirs, unit="GB/s",
               bytes=RANGE * RANGES)


def both(lab):
    serve_range(lab)
    lab.close_all()
    serve_range_s3(lab)


FIGURES["serve-range"] = Figure(
    both, "a shard by ranges of %d MiB, every block verified: of a folder, against a bare libmicrohttpd that "
    "answers with a buffer of that size; of a bucket through the server, against the store itself by the URL of a "
    "307" % (RANGE >> 20),
    [("folder", 0.85, "higher"), ("proxy", 0.5, "higher")],
    {"cairn-server", "cairn-uploader", "cairn-command", "bench_reply", "s3fault"}, ())

FIGURES["hf-view"] = Figure(
    hf_view, "a model of 1.1 GiB out of %d ranks' shards over {C}/hf, against the same bytes as one stored shard; "
    "and how much more memory the server has meanwhile" % RANKS,
    [("rate", 0.7, "higher"), ("memory", 64, "lower")],
    {"cairn-server", "cairn-uploader", "cairn-command", "transformer-save"}, ())
