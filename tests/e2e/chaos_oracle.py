# SPDX-License-Identifier: Apache-2.0
"""What must be true when the dust has settled: every step that was staged is committed byte for
byte, or each rank that staged it was told why. A loss is never excused by what was done to a
daemon; only by a trainer that died, or a disk that was full, and then it must be told."""
import collections
import json
import os
import pathlib
import re
import struct
import subprocess

from s3world import S3World, signed
from world import BIN

STAGED = ("ok",)  # copied; without an uploader the session goes on with the next
GOES_ON = ("and is asked on", "and is tried on")  # a server or store that fails: nothing is lost or given up
RAW_BYTES, PAGE_BYTES = 4096, 4096


class Rank:
    """What one trainer has said; its lines come in while it runs."""

    def __init__(self, run, rank, process, keeps):
        self.run, self.rank, self.process, self.keeps = run, rank, process, keeps
        self.begun, self.staged, self.told, self.ended = {}, {}, collections.defaultdict(list), {}
        self.begun_s, self.called_s = {}, {}  # when it was answered, and asked; time.monotonic()
        self.opened, self.done, self.killed, self.stray = None, False, False, []
        self.notices = []  # problems that end nothing

    def read(self):
        for line in self.process.stdout:
            self.hear(json.loads(line))

    def hear(self, line):
        step = line.get("step")
        if "open" in line:
            self.opened = f"{line['open']} {line['text']}".strip()
        elif "begin" in line:
            self.begun[step], self.begun_s[step] = line["begin"], line["at"] / 1000
            self.called_s[step] = line["since"] / 1000
            if line["begin"] != "ok":
                self.told[step].append((line["begin"], line["text"]))
        elif "stage" in line:
            self.staged[step] = line["stage"]
            if line["stage"] not in STAGED:
                self.told[step].append((line["stage"], line["text"]))
        elif "ended" in line:
            self.ended[step] = line["ended"]
            if line["ended"] != "ok":
                self.told[step].append((line["ended"], line["text"]))
        elif "problem" in line:
            named = re.search(r"\bstep (\d+)", line["text"])
            if any(words in line["text"] for words in GOES_ON):
                self.notices.append(line["text"])
            elif named:
                self.told[int(named.group(1))].append((line["problem"], line["text"]))
            else:
                self.stray.append(f"{line['problem']}: {line['text']}")
        elif "done" in line:
            self.done = True

    def times_told(self):
        return len(self.stray) + sum(len(texts) for texts in self.told.values())

    def has_staged(self, step):
        return self.staged.get(step) in STAGED


def tag_of(run):
    tag = 2166136261
    for byte in run.encode():
        tag = (tag ^ byte) * 16777619 & 0xFFFFFFFF
    return tag


def expected(run, rank, step, start_page, size):
    tag = tag_of(run)
    return b"".join(struct.pack("<IIII", step, rank, tag, page) * (PAGE_BYTES // 16)
                    for page in range(start_page, start_page + size // PAGE_BYTES))


def whose(data):
    """Which saves' bytes these are, for a message."""
    seen = collections.Counter(struct.unpack_from("<III", data, at)[:2] for at in range(0, len(data) - 15, PAGE_BYTES))
    return ", ".join(f"step {step} rank {rank}: {n} pages" for (step, rank), n in seen.items())


def stored(world, key):
    """The bytes of one object, read past Cairn."""
    if not isinstance(world, S3World):
        return (pathlib.Path(world.store) / key).read_bytes()
    return signed({**os.environ, **world.env}, f"/{world.s3.bucket}/{world.prefix}/{key}")


def check_bytes(world, run, version, ranks, size):
    """Faults of one committed version, read from the store alone."""
    step, faults = version["step"], []
    folder = f"{run}/{step:012}/{version['version']}"
    for rank in range(ranks):
        for name, page, length in ((f"rank-{rank:05}.safetensors", 0, size),
                                   (f"rank-{rank:05}/state", size // PAGE_BYTES, RAW_BYTES)):
            try:
                data = stored(world, f"{folder}/data/{name}")[-length:]
            except OSError as error:
                faults.append(f"{run} step {step} is committed, but {name}: {error}")
                continue
            if data != expected(run, rank, step, page, length):
                faults.append(f"{run} step {step} {name} is committed with other bytes: "
                              f"{whose(data)}")
    return faults


class Oracle:
    """excused(ranks, step, committed) says whether a step of these ranks may be lost, if it is told;
    refused(rank, step) whether its begin was refused for what was done at that very time to the
    uploader of its node: while that is away nothing can be staged. deleted: {(run, step)} that
    somebody has deleted, or tried to, once committed."""

    def __init__(self, world, ranks, excused, refused, deleted=frozenset()):
        self.world, self.ranks, self.excused, self.deleted = world, ranks, excused, deleted
        self.refused = refused
        self.runs = sorted({rank.run for rank in ranks})

    def of(self, run):
        return [rank for rank in self.ranks if rank.run == run]

    def versions(self, run):
        status, _, body = self.world.get(f"/v1/runs/{run}/checkpoints?limit=1000")
        return json.loads(body)["items"] if status == 200 else None

    def open_saves(self):
        """What is still to be decided: steps that were staged and neither committed nor told,
        handles without an end, versions that are open."""
        found = []
        for run in self.runs:
            versions = self.versions(run)
            if versions is None:
                return [f"{run}: no list"]
            committed = {v["step"] for v in versions if v["state"] == "committed"}
            committed |= {step for of, step in self.deleted if of == run}
            found += [f"{run} step {v['step']} is {v['state']}, trashed: {v['trashed']}"
                      for v in versions
                      if v["trashed"] or v["state"] not in ("committed", "gone")]
            for rank in self.of(run):
                if rank.killed:
                    continue
                found += [f"{run} step {step} rank {rank.rank}: staged, not committed, not told"
                          for step in rank.staged
                          if rank.has_staged(step) and step not in committed and
                          not rank.told[step]]
                if rank.keeps:
                    found += [f"{run} step {step} rank {rank.rank}: its handle has not ended"
                              for step in rank.staged if step not in rank.ended]
        return found

    def judge(self, size):
        """Faults, once it is quiet."""
        faults = self.open_saves()
        for run in self.runs:
            versions, ranks = self.versions(run) or [], self.of(run)
            committed = {v["step"]: v for v in versions if v["state"] == "committed" and not v["trashed"]}
            for step in sorted({step for rank in ranks for step in rank.begun}):
                if step in committed:
                    faults += self.judge_committed(run, committed[step], ranks, size)
                elif (run, step) not in self.deleted and not self.excused(ranks, step, committed):
                    faults += self.judge_lost(run, step, ranks)
            faults += [f"{run} rank {rank.rank} was told without a step: {text}"
                       for rank in ranks for text in rank.stray]
            if committed:  # the product's own look, at the newest
                said = self.world.cairn("verify", f"{run}@{max(committed)}", "--store", self.world.store, status=None)
                faults += [f"cairn verify: {said.stderr}"] if said.returncode else []
        return faults

    def judge_committed(self, run, version, ranks, size):
        faults, step = check_bytes(self.world, run, version, len(ranks), size), version["step"]
        for rank in ranks:
            if not rank.killed and not rank.has_staged(step):
                faults.append(f"{run} step {step}: committed, but rank {rank.rank} did not stage")
            if rank.told[step]:
                faults.append(f"{run} step {step}: committed, but rank {rank.rank} was told "
                              f"{rank.told[step]}")
        return faults

    def was_refused(self, rank, step, ranks):
        """While the uploader is away nothing can be begun, which ends the step for all ranks."""
        away = any(self.refused(other, step) for other in ranks)
        return self.refused(rank, step) or \
            (away and "checkpoint-aborted" in (rank.begun.get(step), rank.staged.get(step)))

    def judge_lost(self, run, step, ranks):
        """Nothing was done that a step may be lost for."""
        lost = [rank for rank in ranks if rank.has_staged(step)]
        said = {str(told) for rank in ranks for told in rank.told[step]}
        refused = [rank.rank for rank in ranks if not rank.has_staged(step) and not self.was_refused(rank, step, ranks)]
        if len(lost) == len(ranks):
            return [f"{run} step {step}: staged by all ranks, LOST; told: {sorted(said)[:2]}"]
        return [f"{run} step {step}: not staged by ranks {refused}: {sorted(said)[:2]}" for _ in refused[:1]]


def journal_lines(world):
    """Open entries of the journals; the uploaders have ended."""
    found = []
    for number in range(len(world.uploaders)):
        said = subprocess.run(
            [BIN / "cairn-uploader", "--print-journal", "--node", f"node-{number}", "--store",
             world.store, "--state-dir", world.root / f"uploader-{number}"],
            capture_output=True, text=True, check=False)
        if said.returncode:
            found.append(f"journal of node {number}: {said.stderr.strip()}")
        found += [f"in the journal of node {number}: {line}" for line in said.stdout.splitlines() if line.strip()]
    return found
