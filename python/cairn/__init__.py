# SPDX-License-Identifier: Apache-2.0
"""Cairn: checkpoints that are whole or not there, saved while training goes on.

    import cairn

    run = cairn.run("llm/7b")
    state = {"model": model, "optimizer": optimizer, "step": 0}
    if found := run.latest():
        state = found.load(into=state)
    for step in range(state["step"], 1000):
        ...
        save = run.async_save(step, state)

docs/python.md goes from here to torch.distributed.checkpoint, fsspec, Lightning, Hugging Face and DeepSpeed."""
from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from ._arrays import Array, local
from ._preemption import preemption
from ._run import RawSave, Run, run
from ._saves import Progress, Save, SaveFuture
from .checkpoint import Checkpoint, Row, Shard, Tensor
from .errors import (Cancelled, CairnError, Corrupt, Forked, Gone, Invalid, NotFound, Skipped, Timeout)

if TYPE_CHECKING:
    from . import (accelerate as accelerate, dcp as dcp, deepspeed as deepspeed, fs as fs, hf as hf, jax as jax,
                   lightning as lightning, testing as testing, torch as torch, torch_checkpointing as torch_checkpointing)
    from ._up import up as up

logging.getLogger("cairn").addHandler(logging.NullHandler())

open = run

# What needs a framework is imported when it is asked for.
_LAZY = ("accelerate", "dcp", "deepspeed", "fs", "hf", "jax", "lightning", "testing", "torch", "torch_checkpointing")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"cairn.{name}")
    if name == "up":
        return importlib.import_module("cairn._up").up
    raise AttributeError(f"module 'cairn' has no attribute {name!r}")


def version() -> str:
    """Of the library that is loaded."""
    from . import _lib
    return _lib.LIB.cairn_version().decode()


__all__ = ["Array", "CairnError", "Cancelled", "Checkpoint", "Corrupt", "Forked", "Gone", "Invalid", "NotFound",
           "Progress", "RawSave", "Row", "Run", "Save", "SaveFuture", "Shard", "Skipped", "Tensor", "Timeout", "local",
           "open", "preemption", "run", "version"]
