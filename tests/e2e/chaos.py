# SPDX-License-Identifier: Apache-2.0
# ctest: with="--seeds 3" seconds=40 engines=again
# ctest: as=chaos_s3_long with="--store s3fault --seeds 50" labels=full
# ctest: as=chaos_long with="--seeds 50" labels=full
# ctest: as=chaos_behind_long with="--seeds 50" labels=full env=CAIRN_TEST_BEHIND=1
"""kill -9 of uploader, server or a trainer at a random moment of a save, by seed.

After the dust has settled every version is committed or aborted, committed ones verify, and nothing
is left behind: no temporary file, no open upload, no orphan object, no open journal entry, no slab,
no descriptor, and on S3 no secret in any log.

    python3 tests/e2e/chaos.py [--seeds N] [--first SEED]
                               [--store folder|s3fault|radosgw|environment]

`radosgw` starts one by tests/s3/radosgw.sh; `environment` is the endpoint that AWS_* variables name.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from s3world import RealS3, S3Fault, S3World
from world import BIN, files_below, HANG_S, wait_until, World

RANKS = 4
SETTLE_S = 60
VICTIM_TIMEOUT_MS = 8000
RADOSGW_PORT = "7680"


def trainer(world, step, rank, job, timeout_ms=60000):
    node = rank % len(world.uploaders)
    return subprocess.Popen(
        [BIN / "tests/trainer", "x/run", str(rank), str(RANKS), str(step)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "CAIRN_SOCKET": world.socket(node), "CAIRN_JOB": job,
             "TRAINER_TIMEOUT_MS": str(timeout_ms)})


def save_all(world, step, job, timeout=HANG_S):
    trainers = [trainer(world, step, rank, job) for rank in range(RANKS)]
    return [(t.wait(timeout), *t.communicate()) for t in trainers]


def leaks_of(daemon):
    """What a quiet daemon must not hold: deleted files, memory, processes, trainers."""
    links, folder = [], pathlib.Path(f"/proc/{daemon.process.pid}/fd")
    for fd in folder.iterdir():
        try:
            links.append(os.readlink(fd))
        except FileNotFoundError:
            pass
    leaks = [link for link in links if "memfd:" in link or "(deleted)" in link or "[pidfd]" in link]
    # Connections to the store and to each other are kept for the next request; those of trainers
    # must be gone.
    lines = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()]
    connected = {line[6] for line in lines if line[5] == "03" and line[-1].endswith(".sock")}
    return leaks + [link for link in links if link.startswith("socket:") and link[8:-1] in connected]


def quiet(daemon, seed):
    try:
        wait_until(lambda: not leaks_of(daemon), 30)
    except AssertionError:
        raise AssertionError(f"seed {seed}: still held: {leaks_of(daemon)}") from None


def strike(world, victim, trainers, chance):
    if victim == "server":
        world.server.kill()
        time.sleep(chance.random() * 0.3)  # pause of chaos
        world.start_server()
    elif victim == "uploader":
        daemon = chance.choice(world.uploaders)
        daemon.kill()
        time.sleep(chance.random() * 0.3)  # pause of chaos
        daemon.start()
    else:
        chance.choice(trainers).kill()


def settled(world):
    _, _, body = world.get("/v1/runs/x/run/checkpoints?limit=1000")
    items = json.loads(body)["items"]
    return items if all(i["state"] in ("committed", "gone") for i in items) else None


def orphans(world, known):
    """Objects of versions that are not committed: a request that was on the wire when its version
    was given up may still land; the second sweep takes it."""
    found = []
    for path in files_below(world.store):
        version = next((part for part in path.parts if part.startswith("ckpt_")), None)
        if version and "data" in path.parts and version not in known:
            found.append(path)
    return found


def audit(world, seed):
    """Everything that must hold once it is quiet."""
    wait_until(lambda: settled(world) is not None, SETTLE_S)
    versions = settled(world)
    for version in versions:
        if version["state"] == "committed":
            world.cairn("verify", f"x/run@{version['version']}", "--store", world.store)
    known = {v["version"] for v in versions if v["state"] == "committed"}
    if isinstance(world, S3World):
        world.audit()
        assert not world.leaks(), (seed, world.leaks())
    else:
        wait_until(lambda: not orphans(world, known), SETTLE_S)
        wait_until(lambda: not world.temporaries(), SETTLE_S)
    quiet(world.server, seed)
    for number, uploader in enumerate(world.uploaders):
        quiet(uploader, seed)
        assert uploader.stop() == 0, (seed, "uploader did not stop cleanly")
        status = subprocess.run(
            [BIN / "cairn-uploader", "--print-journal", "--node", f"node-{number}", "--store",
             world.store, "--state-dir", world.root / f"uploader-{number}"],
            capture_output=True, text=True, check=False)
        assert status.returncode == 0, (seed, status.stderr)
        entries = [line for line in status.stdout.splitlines() if line.strip()]
        assert not entries, (seed, "open journal entries", entries)
    return versions


def make_world(s3, seed):
    options = {"nodes": 2, "server_arguments": ["--sweep-interval", "200ms"],
               "uploader_arguments": ["--memory-tier-time", "1s", "--offer-wait", "2s", "--heartbeat", "200ms",
                                      "--part-size", "5MiB"]}
    if not s3:
        return World(**options)
    return S3World(s3, f"chaos-{os.getpid()}-{seed}", bucket=s3.bucket, **options)


def one(seed, s3=None):
    started = time.monotonic()
    chance = random.Random(seed)
    victim = ("uploader", "server", "trainer")[seed % 3]
    world = make_world(s3, seed)
    try:
        first = save_all(world, 1, f"job-{seed}-a")
        assert all(code == 0 for code, _, _ in first), (seed, first)
        job = f"job-{seed}-b"
        # A trainer that dies before its uploader knows it leaves the others to their own time-out.
        timeout_ms = VICTIM_TIMEOUT_MS if victim == "trainer" else 60000
        trainers = [trainer(world, 2, rank, job, timeout_ms) for rank in range(RANKS)]
        delay = chance.random() * 0.6
        time.sleep(delay)  # pause of chaos
        strike(world, victim, trainers, chance)
        said = [process.communicate(timeout=HANG_S)[1] for process in trainers]
        codes = [process.returncode for process in trainers]
        third = save_all(world, 3, f"job-{seed}-c")
        assert all(code == 0 for code, _, _ in third), (seed, third)
        versions = audit(world, seed)
        states = {v["step"]: v["state"] for v in versions}
        assert states[1] == "committed" and states[3] == "committed", (seed, states)
        if all(code == 0 for code in codes):
            assert states[2] == "committed", (seed, states)
        if states.get(2) == "committed":  # Q40: a time-out is all that may be said then
            wrong = [text for code, text in zip(codes, said) if code > 0 and "not committed yet" not in text]
            assert not wrong, (seed, "committed, but ranks were told", wrong)
        print(json.dumps({"seed": seed, "victim": victim, "after_s": round(delay, 3),
                          "trainers": codes, "step2": states.get(2, "none"),
                          "took_s": round(time.monotonic() - started, 1)}), flush=True)
    except BaseException:
        print(f"seed {seed} victim {victim}\n{world.logs()}", file=sys.stderr)
        raise
    finally:
        world.close()


def radosgw(verb, folder):
    script = pathlib.Path(__file__).resolve().parents[1] / "s3" / "radosgw.sh"
    return subprocess.run(["bash", script, verb, folder, RADOSGW_PORT], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def start_store(kind, folder):
    """The store's S3 server; None: a folder is the store."""
    if kind == "s3fault":
        return S3Fault(folder)
    if kind == "radosgw":
        radosgw("start", folder)
        for line in radosgw("env", folder).splitlines():
            name, value = line.removeprefix("export ").split("=", 1)
            os.environ[name] = value.strip("'")
    return RealS3() if kind != "folder" else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--store", default="folder", choices=("folder", "s3fault", "radosgw", "environment"))
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-chaos-"))
    s3 = None
    try:
        s3 = start_store(arguments.store, folder)
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            one(seed, s3)
            if isinstance(s3, S3Fault):
                s3.ask("reset", "")  # it keeps everything in memory
    finally:
        if s3:
            s3.stop()
        if arguments.store == "radosgw":
            radosgw("stop", folder)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{arguments.seeds} passed, 0 failed")


if __name__ == "__main__":
    main()
