# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's checkpoints in Cairn: `cairn.deepspeed.install(engine, "llm/7b")` after deepspeed.initialize.

engine.save_checkpoint and engine.load_checkpoint stay as they are. DeepSpeed has no place for an engine of others, so
this sets `engine.checkpoint_engine`. It looks for files by their names before it asks the engine for them, so empty ones
are left under these names, and `prepare` makes them where a job goes on on another machine."""
from __future__ import annotations

import os
import pathlib
import re
from typing import Any

import torch
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine

from . import errors
from ._files import Folder, WriteFile
from ._run import Run, run as open_run

_STEP = re.compile(r"(\d+)\D*$")


class CairnCheckpointEngine(CheckpointEngine):
    def __init__(self, run: Run | str) -> None:
        super().__init__()
        self.name = "CairnCheckpointEngine"
        self.run = open_run(run) if isinstance(run, str) else run
        self._folder: Folder | None = None

    @staticmethod
    def _step(tag: str) -> int:
        found = _STEP.search(tag)
        if not found:
            raise errors.make(f"tag {tag!r} has no step number", code="invalid", hint="end it in the step")
        return int(found[1])

    def create(self, info: Any) -> None:
        self._begin(str(info.tag))

    def _begin(self, tag: str) -> Folder:
        step = self._step(tag)
        if self._folder is None or self._folder.step != step:
            if self._folder:
                self._folder.discard()
            self._folder = Folder(self.run, step, sealed_by_itself=True)
        return self._folder

    def save(self, state_dict: Any, path: str) -> None:
        place = pathlib.Path(path)
        folder = self._begin(place.parent.name)
        stream: Any = WriteFile(folder, place.name)
        with stream:
            torch.save(state_dict, stream)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()

    def load(self, path: str, map_location: Any = None) -> Any:
        place = pathlib.Path(path)
        with self.run.at(self._step(place.parent.name)) as found:
            data = found.shard(place.name)
            import io
            from .fs import ReadFile
            return torch.load(io.BufferedReader(ReadFile(data), 1 << 20), map_location=map_location, weights_only=False)

    def commit(self, info: Any) -> Any:
        folder = self._begin(str(info.tag))
        self._folder = None
        try:
            folder.seal()
            assert folder.save
            folder.save.committed.result()
        finally:
            folder.discard()
        return True

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        os.makedirs(path, exist_ok=exist_ok)


def prepare(run: Run | str, load_dir: Any) -> str | None:
    """The names of the newest committed checkpoint's files, and `latest`, in a folder that has them not; its tag, or
    None on a first run."""
    opened = open_run(run) if isinstance(run, str) else run
    found = opened.latest()
    if found is None:
        return None
    with found:
        tag = f"global_step{found.step}"
        folder = pathlib.Path(load_dir, tag)
        folder.mkdir(parents=True, exist_ok=True)
        for name in found.shards:
            (folder / name).touch()
    (folder.parent / "latest").write_text(tag)
    return tag


def install(engine: Any, run: Run | str) -> Any:
    """Lets a DeepSpeed engine save to and load from a run; every rank calls it."""
    engine.checkpoint_engine = CairnCheckpointEngine(run)
    return engine.checkpoint_engine


__all__ = ["CairnCheckpointEngine", "install", "prepare"]
