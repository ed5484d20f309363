# SPDX-License-Identifier: Apache-2.0
"""Programs of several gloo ranks: each a Python process of its own, as a launcher starts them."""
import os
import socket
import subprocess
import sys
import tempfile
import textwrap

import package

PREAMBLE = """
import os, sys, json, warnings
warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import cairn
torch.set_num_threads(1)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(text, world, *arguments, env=None, preamble=PREAMBLE):
    """One process a rank; each writes to a file of its own, so that none waits for a reader."""
    port = str(free_port())
    job = os.urandom(8).hex()
    found = []
    for rank in range(world):
        out = tempfile.TemporaryFile("w+")
        found.append((subprocess.Popen(
            [sys.executable, "-c", preamble + textwrap.dedent(text), *map(str, arguments)], stdout=out, stderr=out, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1",
                 "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "CAIRN_JOB": job,
                 **(env or {})}), out))
    return found


def finish(started, status=0):
    """What each rank printed; fails where one ended otherwise."""
    told = []
    for process, _ in started:
        try:
            process.wait(package.HANG_S)
        except subprocess.TimeoutExpired:
            for other, _ in started:
                other.kill()
    for process, out in started:
        out.seek(0)
        told.append(out.read())
        out.close()
    codes = [process.returncode for process, _ in started]
    if status is not None and any(code != status for code in codes):
        raise AssertionError(f"ranks ended with {codes}:\n" + "\n".join(told))
    return told


def run(text, world, *arguments, **options):
    return finish(start(text, world, *arguments, **options))


