# SPDX-License-Identifier: Apache-2.0
"""Programs of several gloo ranks: each a Python process of its own, with the environment that a launcher gives it."""
import functools
import os
import subprocess
import tempfile
import textwrap

import forks
import package
import ports  # of tests/e2e

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


the_forks = functools.cache(forks.Forks)


def start(text, world, *arguments, env=None, preamble=PREAMBLE, imports=()):
    """One process a rank; each writes to a file of its own, so that none waits for a reader. imports: what takes long to
    import beside torch."""
    port = str(ports.free())
    job = os.urandom(8).hex()
    found = []
    for rank in range(world):
        out = tempfile.TemporaryFile("w+")
        found.append((the_forks(*imports).fork(preamble + textwrap.dedent(text), arguments, {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1",
            "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "CAIRN_JOB": job,
            **(env or {})}, out), out))
    return found


def finish(started, status=0):
    """What each rank printed; fails where one ended otherwise."""
    told = []
    for process, _ in started:
        try:
            process.wait(package.JOB_S)
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
