# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's files as a folder of the local disk, for frameworks that read files only."""
from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
import time

from . import errors
from ._place import number
from .checkpoint import Checkpoint, Shard

MARK = ".cairn-version"  # a file that says which version a folder is of
_FETCH_S = 3600


def cached(version: str) -> pathlib.Path:
    return pathlib.Path(tempfile.gettempdir(), f"cairn-{os.getuid()}", version)


def has(target: pathlib.Path, found: Checkpoint) -> bool:
    """Whether the folder is this version, and whole: a job may have been killed while it removed older folders."""
    try:
        return (target / MARK).read_text() == found.version and \
            all((target / name).stat().st_size == shard.bytes for name, shard in found.shards.items())
    except OSError:
        return False


def fetch(found: Checkpoint, target: pathlib.Path) -> None:
    """The files, and the version's name beside them, under the target's name at once; nothing where that is there."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix=".cairn-", dir=target.parent))
    try:
        for name, shard in found.shards.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _copy(shard, path)
        (made / MARK).write_text(found.version)
        try:
            made.rename(target)
        except OSError:  # another process of this node was first
            if not target.exists():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def fetch_once(found: Checkpoint, target: pathlib.Path) -> None:
    """The first rank of a node fetches, and replaces what is there in part or of another version; the others wait."""
    if (number("LOCAL_RANK") or 0) == 0:
        if target.exists() and not has(target, found):
            shutil.rmtree(target)
        fetch(found, target)
        return
    end = time.monotonic() + _FETCH_S
    while not has(target, found):
        if time.monotonic() > end:
            raise errors.make(f"{target} was not fetched by the node's first rank within {_FETCH_S} s", code="timeout",
                              run=found.run.name, rank=found.run.rank)
        time.sleep(0.05)


def _copy(shard: Shard, path: pathlib.Path) -> None:
    with open(path, "w+b") as file:
        for at in range(0, shard.bytes, 64 << 20):
            file.write(shard.read(at, min(64 << 20, shard.bytes - at)))
