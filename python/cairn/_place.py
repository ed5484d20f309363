# SPDX-License-Identifier: Apache-2.0
"""Which rank this process is, and what ranks of one job share without a collective: torch's store."""
from __future__ import annotations

import os
import re
import sys
from typing import Any

from . import errors


def distributed() -> Any:
    """torch.distributed, where the program has set it up."""
    module = sys.modules.get("torch.distributed")
    return module if module is not None and module.is_available() and module.is_initialized() else None


def store() -> Any:
    """The store of torch's process group: a set and a get of one rank wait for no other."""
    if not distributed():
        raise errors.make("there is no torch.distributed", code="unsupported",
                          hint="call torch.distributed.init_process_group")
    from torch.distributed import distributed_c10d
    return getattr(distributed_c10d, "_get_default_store")()  # torch has no public name for it


def number(*names: str) -> int | None:
    """The first of these variables that is a number."""
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This process's rank and the world's size: as given, as torch.distributed has it, as the launcher says."""
    if rank is None and world_size is None:
        group = distributed()
        if group:
            return group.get_rank(), group.get_world_size()
        rank = number("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
        world_size = number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
        if rank is None or world_size is None:
            return 0, 1
    rank, world_size = rank or 0, world_size or 1
    if rank >= world_size:
        raise errors.make(f"rank {rank} of {world_size}", code="invalid", hint="ranks count from 0")
    return rank, world_size


def local_place(world_size: int) -> tuple[int, int]:
    """This process's place among the ranks of its node, and their number, as the launcher says. (0, 1) where the world is not
    the launcher's (one rank of a job may have a run of its own), or where it says no number: Lightning and Accelerate's
    own launchers set LOCAL_RANK alone."""
    if world_size != number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"):
        return 0, 1
    rank = number("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK") or 0
    size = number("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    if size is None and number("LOCAL_RANK") is None:
        size = _tasks_of_node(os.environ.get("SLURM_STEP_TASKS_PER_NODE", ""), number("SLURM_NODEID") or 0)
    return (rank, size) if size is not None and rank < size <= world_size else (0, 1)


def _tasks_of_node(tasks: str, node: int) -> int | None:
    """Slurm's `2(x3),1`: three nodes of two tasks and one of one."""
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks):
        node -= int(times or 1)
        if node < 0:
            return int(count)
    return None


_opened: dict[str, int] = {}


def common_job(run: str, rank: int, world_size: int) -> str | None:
    """A job string that all ranks share, where no launcher gives one and a process group can."""
    if world_size == 1 or any(os.environ.get(name) for name in ("CAIRN_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")):
        return None
    if not distributed():
        return None
    _opened[run] = _opened.get(run, 0) + 1
    key = f"cairn/job/{run}/{_opened[run]}"
    if rank == 0:
        store().set(key, os.urandom(16).hex())
    return store().get(key).decode()
