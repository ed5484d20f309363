# SPDX-License-Identifier: Apache-2.0
"""Figures of one node without a network: copying, a folder as the store."""
import os
import resource
import shutil
import subprocess
import time

from bench import peers
from bench.daemons import World
from bench.figures_s3 import PART, Figure
from bench.programs import Side, program

FIGURES = {}


def figure(name, about, metrics, targets, wanted=()):
    def keep(run):
        FIGURES[name] = Figure(run, about, metrics, targets, wanted)
        return run
    return keep


SAVE_BYTES = 256 << 20  # a rank's share; larger ones only fill the disk
# Of common/crc.c: so one machine shows what another one has that lacks some of its instructions.
IMPLEMENTATIONS = ("avx512", "avx2", "sse4.2", "pclmul", "pclmul-2", "pclmul-3", "armv8", "pmull", "pmull-2", "pmull-3")


@figure("stage", "what a save costs the trainer, against memcpy of the same bytes",
        [("copy", 1.25, "lower"), ("copy_by", None, "lower"), ("stall", 1.5, "lower")],
        {"bench_copy", "bench_trainer", "cairn-server", "cairn-uploader"})
def stage(lab):
    staged = lab.keep(Side([program("bench_copy"), "staged", "--bytes", str(lab.bytes)]))
    plain = lab.keep(Side([program("bench_copy"), "memcpy", "--bytes", str(lab.bytes)]))
    a, b = lab.pairs(staged.go, plain.go)
    lab.report("copy", [x.seconds / y.seconds for x, y in zip(a, b)], 1.25, "lower",
               [x.bytes / x.seconds / 1e9 for x in a], [y.bytes / y.seconds / 1e9 for y in b],
               unit="GB/s", by=a[-1].note)
    for name in IMPLEMENTATIONS:
        command = [program("bench_copy"), "staged", "--bytes", str(lab.bytes), "--crc32c", name]
        try:
            forced = lab.keep(Side(command))
        except RuntimeError:
            continue  # this CPU has it not
        a, b = lab.pairs(forced.go, plain.go)
        lab.report("copy_by", [x.seconds / y.seconds for x, y in zip(a, b)], None, "lower",
                   [x.bytes / x.seconds / 1e9 for x in a], [y.bytes / y.seconds / 1e9 for y in b],
                   unit="GB/s", by=name)
        forced.close()
    size = min(lab.bytes, SAVE_BYTES)
    world = lab.keep(World(lab, size))
    plain = lab.keep(Side([program("bench_copy"), "memcpy", "--bytes", str(size)]))

    def save():
        run = world.save()
        world.settle()
        return run

    a, b = lab.pairs(save, plain.go)
    lab.report("stall", [x.seconds / y.seconds for x, y in zip(a, b)], 1.5, "lower",
               [x.seconds for x in a], [y.seconds for y in b], unit="s")


@figure("stage-strided", "staging half of a matrix's columns, and its transpose, against only "
        "moving them", [("rows", 1.3, "lower"), ("turned", 1.3, "lower")], {"bench_strided"})
def stage_strided(lab):
    for view in ("rows", "turned"):
        staged = lab.keep(Side([program("bench_strided"), "staged", view, "--bytes",
                                str(lab.bytes)]))
        plain = lab.keep(Side([program("bench_strided"), "copy", view, "--bytes", str(lab.bytes)]))
        a, b = lab.pairs(staged.go, plain.go)
        lab.report(view, [x.seconds / y.seconds for x, y in zip(a, b)], 1.3, "lower",
                   [x.bytes / x.seconds / 1e9 for x in a],
                   [y.bytes / y.seconds / 1e9 for y in b], unit="GB/s")


@figure("server-away", "stall of saves while the server is stopped, against saves while it is there",
        [("stall", 1.2, "lower")], {"bench_trainer", "cairn-server", "cairn-uploader"})
def server_away(lab):
    world = lab.keep(World(lab, min(lab.bytes, SAVE_BYTES)))

    def three(away):
        """Three saves; the stall of the second and the third together."""
        world.save()
        world.settle()
        if away:
            world.server.stop()
        second, third = world.save(), world.save()
        if away:
            world.server.start()
        world.settle()
        return second.seconds + third.seconds

    a, b = lab.pairs(lambda: three(True), lambda: three(False))
    lab.report("stall", [x / y for x, y in zip(a, b)], 1.2, "lower", [x / 2 for x in a],
               [y / 2 for y in b], unit="s")


def emptied(folder, side):
    """Each run begins with an empty folder: neither side pays for the other's old files."""
    def go():
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        os.sync()
        return side.go()
    return go


@figure("folder-save", "a save into a folder, durable, against O_DIRECT and against buffered writes",
        [("vs_direct", 0.9, "higher"), ("vs_buffered", 2.3, "higher"),
         ("cpu_s_per_gb_more", 0.05, "lower")], {"bench_put", "bench_disk"})
def folder_save(lab):
    store, other = os.path.join(lab.folder, "store"), os.path.join(lab.folder, "other")
    os.makedirs(store), os.makedirs(other)
    ours = lab.keep(Side([program("bench_put"), "--store", store, "--journal", lab.folder,
                          "--bytes", str(lab.bytes), "--part", str(PART), "--staged", "1"],
                         peers.environment()))
    sides = {kind: lab.keep(Side([program("bench_disk"), kind, "--folder", other, "--bytes",
                                  str(lab.bytes)])) for kind in ("direct", "buffered")}
    objects = os.path.join(store)

    def save():
        for entry in os.listdir(objects):
            shutil.rmtree(os.path.join(objects, entry), ignore_errors=True)
        os.sync()
        return ours.go()

    a, b = lab.pairs(save, emptied(other, sides["direct"]))
    lab.report("vs_direct", [y.seconds / x.seconds for x, y in zip(a, b)], 0.9, "higher",
               [x.bytes / x.seconds / 1e9 for x in a], [y.bytes / y.seconds / 1e9 for y in b])
    lab.report("cpu_s_per_gb_more", [(x.cpu - y.cpu) / x.bytes * 1e9 for x, y in zip(a, b)], 0.05,
               "lower", [x.cpu / x.bytes * 1e9 for x in a], [y.cpu / y.bytes * 1e9 for y in b],
               unit="s/GB", scale=0.05)
    a, b = lab.pairs(save, emptied(other, sides["buffered"]))
    lab.report("vs_buffered", [y.seconds / x.seconds for x, y in zip(a, b)], 2.3, "higher",
               [x.bytes / x.seconds / 1e9 for x in a], [y.bytes / y.seconds / 1e9 for y in b])


FILE_BYTES = 4096
FILES_MOST, FILES_SHORT = 65536, 8192  # of a checkpoint; in a short run
FILES_IN_FOLDER = 400


class Copies:
    """One side of many-files; each go() does it once more and leaves nothing of the time before."""

    def __init__(self, command, before=None):
        self.command, self.before = command, before

    def go(self):
        if self.before:
            self.before()
        os.sync()
        begun = time.monotonic()
        for command in self.command():
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - begun


@figure("many-files", "put, verify and get of 65,536 files of 4 KiB, by daemons and a command that may have 512 descriptors, "
        "against cp -a and sync", [("put", 2, "lower"), ("verify", 2, "lower"), ("get", 2, "lower")],
        {"cairn", "cairn-server", "cairn-uploader"})
def many_files(lab):
    tree, copy, back = (os.path.join(lab.folder, name) for name in ("tree", "copy", "back"))
    for number in range(min(FILES_SHORT if lab.judge else FILES_MOST, lab.bytes // FILE_BYTES)):
        if number % FILES_IN_FOLDER == 0:
            folder = os.path.join(tree, str(number // FILES_IN_FOLDER))
            os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, str(number)), "wb") as file:
            file.write(number.to_bytes(4, "little") * (FILE_BYTES // 4))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))  # of what is started from here on
    try:
        world = lab.keep(World(lab, None))
        step = iter(range(1, 1000))
        saved = []

        def put():
            saved.append("bench/many@%d" % next(step))
            yield [program("cairn"), "put", tree, saved[-1], "-s", world.url, "--socket", world.socket, "--progress", "none"]

        def verb(*words):
            def commands():
                yield [program("cairn"), words[0], saved[-1], "-s", world.url, "--progress", "none", *words[1:]]
            return commands

        copying = Copies(lambda: (["cp", "-a", tree, copy], ["sync"]),
                         before=lambda: shutil.rmtree(copy, ignore_errors=True))
        for name, ours in (("put", Copies(put)), ("verify", Copies(verb("verify"))),
                           ("get", Copies(verb("get", "-d", back), before=lambda: shutil.rmtree(back, ignore_errors=True)))):
            a, b = lab.pairs(ours.go, copying.go)
            lab.report(name, [x / y for x, y in zip(a, b)], 2, "lower", a, b, unit="s")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@figure("reshard", "one rank's plan of a restore on 12,288 ranks of what 16,384 saved, 1,015,808 fragments",
        [("plan_s", 0.05, "lower")], {"bench_reshard"})
def reshard(lab):
    side = lab.keep(Side([program("bench_reshard")]))
    side.go()
    runs = [side.go() for _ in range(lab.pairs_wanted)]
    lab.report("plan_s", [run.seconds for run in runs], 0.05, "lower", unit="s",
               fragments=runs[0].bytes)
