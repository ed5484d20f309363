# SPDX-License-Identifier: Apache-2.0
"""Figures of other programs' files: looked into, exported, converted, imported; and of saving one."""
import glob
import json
import os
import shutil
import subprocess
import tempfile
import time

from bench import peers
from bench.figures_job import (CairnJob, Daemons, TorchJob, cool, files_below, one_round, timed)
from bench.figures_s3 import Figure
from bench.harness import ROOT, Skip
from bench.programs import Side, program

FIGURES = {}
TEMPLATE = os.path.join(ROOT, "tests", "vectors", "deepspeed", "stage3", "step2")
RANKS = 8
MEMORY_MIB = 256
LOOK_SECONDS = 0.01
MIB = 1 << 20


def figure(name, about, metrics, targets, wanted=()):
    def keep(run):
        FIGURES[name] = Figure(run, about, metrics, targets, wanted)
        return run
    return keep


# ---- checkpoints ----


def zero_script(*words):
    done = subprocess.run([peers.python_of("torch"), peers.script("zero.py"), *map(str, words)],
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("zero.py %s: %s" % (words[0], done.stderr[-500:]))
    return done.stdout


class Checkpoint:
    """Of DeepSpeed's ZeRO-3 over 8 ranks, and what is made of it, in one folder."""

    def __init__(self, lab, size, sums=True):
        if not peers.name_of("torch"):
            raise Skip("torch, which writes the checkpoint, could not be installed")
        self.wanted = size
        self.base = os.path.join(lab.folder, "zero" if sums else "zero-without-sums")
        self.folder, self.out = self.path("checkpoint"), self.path("out")
        os.makedirs(self.base)
        lab.keep(self)
        self.bytes = json.loads(zero_script("write", TEMPLATE, self.folder, RANKS, size,
                                            int(sums)))["bytes"]
        self.partitions = sorted(glob.glob(os.path.join(self.folder, "*", "*_optim_states.pt")))

    def path(self, name):
        return os.path.join(self.base, name)

    def close(self):
        shutil.rmtree(self.base, ignore_errors=True)

    def begin(self):
        """Nothing was written yet, and nothing of what is read lies in memory."""
        shutil.rmtree(self.out, ignore_errors=True)
        os.makedirs(self.out)
        cool(self.folder)

    def check(self, dtype):
        zero_script("check", self.out, self.wanted, dtype)


def own_memory(pid):
    """Anonymous and shared resident bytes; file pages that are mapped are not counted."""
    try:
        with open("/proc/%d/status" % pid, encoding="ascii") as file:
            return 1024 * sum(int(line.split()[1]) for line in file
                              if line.startswith(("RssAnon:", "RssShmem:")))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def watched(command, environment=None):
    """(seconds, CPU seconds, most own memory seen) of a whole program."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        start, most = time.monotonic(), 0
        child = subprocess.Popen(command, env=environment or peers.environment(),
                                 stdout=subprocess.DEVNULL, stderr=said)
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            most = max(most, own_memory(child.pid))
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise RuntimeError("%s ended with %d: %s" % (" ".join(command[:3]), child.returncode,
                                                         said.read()[-500:]))
    return seconds, usage.ru_utime + usage.ru_stime, most


def export(checkpoint, dtype="fp32"):
    checkpoint.begin()
    took = watched([program("cairn"), "export", checkpoint.folder, checkpoint.out, "--dtype",
                    dtype])
    checkpoint.check(dtype)
    return took


def cat(checkpoint):
    """The partitions in one file: the same bytes but for the headers of a few KiB."""
    checkpoint.begin()
    out = os.path.join(checkpoint.out, "cat")
    took = timed(["sh", "-c", 'out=$1; shift; cat "$@" > "$out" && sync -d "$out"', "cat", out,
                  *checkpoint.partitions], peers.environment())
    same = subprocess.run(["sh", "-c", 'out=$1; shift; cat "$@" | cmp - "$out"', "cmp", out,
                           *checkpoint.partitions])
    if same.returncode:
        raise RuntimeError("cat gave other bytes")
    return took


def zero_to_fp32(checkpoint):
    """Its files reach the disk inside the clock, as ours do."""
    checkpoint.begin()
    took = watched([peers.python_of("deepspeed"), "-m", "deepspeed.utils.zero_to_fp32",
                    checkpoint.folder, checkpoint.out, "--safe_serialization"],
                   dict(peers.environment(), DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES=""))
    start = time.monotonic()
    subprocess.run(["sync", "-d", *files_below(checkpoint.out)], check=True)
    took = took[0] + time.monotonic() - start, *took[1:]
    checkpoint.check("fp32")
    return took


def report_seconds(lab, metric, ours, theirs, goal, **more):
    lab.report(metric, [y[0] / x[0] for x, y in zip(ours, theirs)], goal, "higher",
               [x[0] for x in ours], [y[0] for y in theirs], unit="s",
               cpu=[round(sum(x[1] for x in side) / len(side), 2) for side in (ours, theirs)],
               **more)


# ---- figures ----


@figure("export-zero", "ZeRO-3 of 8 ranks to F32 safetensors, cold, against cat and zero_to_fp32",
        [("vs_cat", 0.8, "higher"), ("memory_mib", MEMORY_MIB, "lower"),
         ("vs_zero_to_fp32", 3, "higher"), ("memory", 0.1, "lower")], {"cairn-command"},
        ("torch", "deepspeed"))
def export_zero(lab):
    checkpoint = Checkpoint(lab, 4 * lab.bytes)
    a, b = lab.pairs(lambda: export(checkpoint), lambda: cat(checkpoint))
    report_seconds(lab, "vs_cat", a, b, 0.8, peer="cat, sync -d", bytes=checkpoint.bytes)
    report_memory(lab, checkpoint, a)
    if peers.name_of("deepspeed"):
        a, b = lab.pairs(lambda: export(checkpoint), lambda: zero_to_fp32(checkpoint))
        peer = peers.name_of("deepspeed")
        report_seconds(lab, "vs_zero_to_fp32", a, b, 3, peer=peer)
        lab.report("memory", [x[2] / y[2] for x, y in zip(a, b)], 0.1, "lower",
                   [x[2] / MIB for x in a], [y[2] / MIB for y in b], unit="MiB", peer=peer)
    else:
        for metric, goal, better in (("vs_zero_to_fp32", 3, "higher"), ("memory", 0.1, "lower")):
            lab.absent(metric, goal, better, "DeepSpeed could not be installed")
    lab.opened.remove(checkpoint)
    checkpoint.close()
    for factor in (1, 8):
        checkpoint = Checkpoint(lab, factor * lab.bytes)
        report_memory(lab, checkpoint, [export(checkpoint) for _ in range(3)])
        lab.opened.remove(checkpoint)
        checkpoint.close()


def report_memory(lab, checkpoint, runs):
    lab.report("memory_mib", [x[2] / MIB for x in runs], MEMORY_MIB, "lower",
               [x[2] / MIB for x in runs], unit="MiB", bytes=checkpoint.bytes,
               most=round(max(x[2] for x in runs) / MIB, 1))


@figure("export-sums", "the export of export-zero with the CRC-32 of each entry compared, and without",
        [("seconds", 1.03, "lower")], {"cairn-command"}, ("torch",))
def export_sums(lab):
    """torch can leave the CRC-32 out of its files; nothing is compared then."""
    with_sums, plain = Checkpoint(lab, 4 * lab.bytes), Checkpoint(lab, 4 * lab.bytes, sums=False)
    # A difference of a few per cent is less than one pair of a disk's runs tells.
    a, b = lab.pairs(lambda: export(with_sums), lambda: export(plain), 3 * lab.pairs_wanted)
    lab.report("seconds", [x[0] / y[0] for x, y in zip(a, b)], 1.03, "lower", [x[0] for x in a],
               [y[0] for y in b], unit="s", peer="the same files without CRC-32",
               cpu=[round(sum(x[1] for x in side) / len(side), 2) for side in (a, b)],
               least=[round(min(x[0] for x in side), 3) for side in (a, b)],
               bytes=with_sums.bytes)


def flow(checkpoint, side):
    checkpoint.begin()
    run = side.go()
    written = os.path.getsize(os.path.join(checkpoint.out, "flow"))
    if run.bytes < checkpoint.bytes or written < checkpoint.bytes // 2:
        raise RuntimeError("bench_flow moved %d and %d bytes" % (run.bytes, written))
    return run.seconds, run.cpu


@figure("export-bf16", "ZeRO-3 of 8 ranks to BF16 safetensors, cold, against a bare read and write",
        [("vs_buffered", 0.8, "higher"), ("vs_direct", None, "higher")],
        {"cairn-command", "bench_flow"}, ("torch",))
def export_bf16(lab):
    checkpoint = Checkpoint(lab, 4 * lab.bytes)
    for kind, goal in (("buffered", 0.8), ("direct", None)):
        side = lab.keep(Side([program("bench_flow"), kind, "--out",
                              os.path.join(checkpoint.out, "flow"), "--part", "2",
                              *checkpoint.partitions]))
        a, b = lab.pairs(lambda: export(checkpoint, "bf16"), lambda s=side: flow(checkpoint, s))
        report_seconds(lab, "vs_" + kind, a, b, goal, bytes=checkpoint.bytes * 3 // 2)


@figure("convert", "F32 to BF16 by one thread in windows of 8 MiB, against memcpy of the same bytes",
        [("read", 0.7, "higher"), ("read_and_written", None, "higher")], {"bench_convert"})
def convert(lab):
    ours, theirs = (lab.keep(Side([program("bench_convert"), kind, "--bytes", str(lab.bytes)]))
                    for kind in ("bf16", "memcpy"))
    a, b = lab.pairs(ours.go, theirs.go)
    for metric, goal, moved in (("read", 0.7, 1), ("read_and_written", None, 0.75)):
        lab.report(metric, [moved * y.seconds / x.seconds for x, y in zip(a, b)], goal, "higher",
                   [moved * x.bytes / x.seconds / 1e9 for x in a],
                   [y.bytes / y.seconds / 1e9 for y in b], unit="GB/s")


def stored_bytes(folder):
    return sum(os.path.getsize(path) for path in files_below(folder))


def wait_empty(folder, size):
    """What was removed is gone from the disk: an import does not share it with a sweep."""
    until = time.monotonic() + 60
    while stored_bytes(folder) >= size:
        if time.monotonic() > until:
            raise RuntimeError("a removed version keeps its bytes")
        time.sleep(0.1)


@figure("import-zero", "cairn import of a ZeRO-3 folder, cold, with real daemons, against cp",
        [("speed", 0.8, "higher")],
        {"cairn-server", "cairn-uploader", "cairn-command"}, ("torch",))
def import_zero(lab):
    checkpoint, daemons = Checkpoint(lab, 2 * lab.bytes), lab.keep(Daemons(lab))
    size = sum(os.path.getsize(path) for path in files_below(checkpoint.folder))
    state = {"step": 0}

    def ours():
        state["step"] += 1
        ref = "bench/zero@%d" % state["step"]
        checkpoint.begin()
        used = daemons.cpu()
        took, cpu = timed([program("cairn"), "import", "deepspeed", checkpoint.folder, ref],
                          daemons.environment)
        cpu += daemons.cpu() - used
        if stored_bytes(daemons.store) < size:
            raise RuntimeError("the store holds less than was imported")
        daemons.cairn("verify", ref, "--store", daemons.store)
        if state["step"] == 1:
            daemons.cairn("export", ref, checkpoint.out, "--store", daemons.store)
            checkpoint.check("fp32")
        daemons.cairn("rm", ref, "--yes")
        wait_empty(daemons.store, size)
        return took, cpu

    def theirs():
        checkpoint.begin()
        took = timed(["sh", "-c", 'cp -r "$1" "$2" && find "$2" -type f -exec sync -d {} +', "copy",
                      checkpoint.folder, os.path.join(checkpoint.out, "copy")], daemons.environment)
        copied = os.path.join(checkpoint.out, "copy")
        if subprocess.run(["diff", "-r", checkpoint.folder, copied]).returncode:
            raise RuntimeError("cp gave other files")
        return took

    a, b = lab.pairs(ours, theirs)
    report_seconds(lab, "speed", a, b, 0.8, peer="cp -r, sync -d", bytes=size)


# ---- a look ----


TENSORS, HOLLOW_BYTES = 1000, 10_000_000_000


def hollow_safetensors(path):
    """A header and a hole behind it."""
    each, header = HOLLOW_BYTES // TENSORS, {}
    for i in range(TENSORS):
        header["layers.%d.weight" % i] = {"dtype": "BF16", "shape": [each // 2],
                                          "data_offsets": [i * each, (i + 1) * each]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + HOLLOW_BYTES)


def look(path):
    """(seconds, bytes of all its reads) of a new process, its own start included."""
    cool(os.path.dirname(path))
    start = time.monotonic()
    child = subprocess.Popen([program("cairn"), "inspect", path, "--output", "json"],
                             env=peers.environment(), stdout=subprocess.PIPE)
    answer = child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # /proc still has it
    seconds = time.monotonic() - start
    with open("/proc/%d/io" % child.pid, encoding="ascii") as file:
        counted = int(dict(line.split(": ") for line in file)["rchar"])
    child.stdout.close()
    tensors = json.loads(answer)["tensors"] if child.wait() == 0 else []
    named = {row["name"]: row["shape"] for row in tensors}
    if named != {"layers.%d.weight" % i: [HOLLOW_BYTES // TENSORS // 2] for i in range(TENSORS)}:
        raise RuntimeError("cairn inspect of %s told other tensors" % os.path.basename(path))
    return seconds, counted


@figure("inspect", "names and shapes of 1,000 tensors in a sparse file of 10 GB, cold, a new process",
        [("ms", 50, "lower"), ("read_mib", 2, "lower")], {"cairn-command"}, ("torch",))
def inspect(lab):
    folder = os.path.join(lab.folder, "hollow")
    os.makedirs(folder)
    files = {"safetensors": os.path.join(folder, "model.safetensors")}
    hollow_safetensors(files["safetensors"])
    if peers.name_of("torch"):
        files["torch"] = os.path.join(folder, "model.pt")
        zero_script("hollow", files["torch"], TENSORS, HOLLOW_BYTES)
    for form, path in files.items():
        look(path)
        runs = [look(path) for _ in range(lab.pairs_wanted)]
        lab.report("ms", [1000 * x[0] for x in runs], 50, "lower", unit="ms", form=form)
        lab.report("read_mib", [x[1] / MIB for x in runs], 2, "lower", unit="MiB", form=form)
    shutil.rmtree(folder)


# ---- Fast-LLM's table ----


SAVE_GOALS = {"raw": 0.9, "safetensors": 2.5, "numpy": None, "torch": None}


@figure("save-format", "1 GiB durable and back as Cairn's shard, against raw bytes, numpy, torch.save "
        "and safetensors", [("save", 0.9, "higher"), ("load", 0.9, "higher")],
        {"bench_job", "cairn-server", "cairn-uploader", "cairn-command"}, ("torch",))
def save_format(lab):
    """As a trainer has it: from its tensors, with the copy to the slab, to the disk; and cold back
    into tensors that were touched."""
    if not peers.name_of("torch"):
        raise Skip("torch could not be installed")
    width = max(128, round((lab.bytes / 257) ** 0.5 / 128) * 128)
    daemons = lab.keep(Daemons(lab))
    ours = CairnJob(lab, daemons, width, 1)
    for kind, goal in SAVE_GOALS.items():
        theirs = TorchJob(lab, kind, width, 1, daemons.folder)
        a, b = lab.pairs(lambda: one_round(ours), lambda t=theirs: one_round(t))
        for metric, part in (("save", "durable"), ("load", "restore")):
            lab.report(metric, [y[part] / x[part] for x, y in zip(a, b)], goal, "higher",
                       [x[part] for x in a], [y[part] for y in b], unit="s", peer=theirs.name,
                       bytes=ours.ranks.bytes)
        lab.opened.pop().close()
        shutil.rmtree(theirs.place)
