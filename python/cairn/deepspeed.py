# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's checkpoints in Cairn: `cairn.deepspeed.install(engine, "llm/7b")` after deepspeed.initialize.

engine.save_checkpoint and engine.load_checkpoint stay as they are. DeepSpeed has no place for an engine of others, so
this sets `engine.checkpoint_engine`. It looks for files by their names before it asks the engine for them, so empty ones
are left under these names, and `prepare` makes them where a job goes on on another machine. `load` does that, and loads
what another number of ranks has saved, too."""
from __future__ import annotations

import argparse
import contextlib
import io
import os
import pathlib
import re
import shutil
from typing import IO, Any, cast

import torch
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine

from . import errors
from ._files import Folder, WriteFile
from ._folders import fetch_once
from ._place import number
from ._run import Run, run as open_run
from ._saves import Save
from .checkpoint import Checkpoint
from .fs import ReadFile

_STEP = re.compile(r"(\d+)\D*$")


def _step(tag: str) -> int:
    found = _STEP.search(tag)
    if not found:
        raise errors.make(f"tag {tag!r} has no step number", code="invalid", hint="end it in the step")
    return int(found[1])


class CairnCheckpointEngine(CheckpointEngine):
    """DeepSpeed announces a checkpoint by create(); then every rank makes the checkpoint's folder, saves its files and
    calls commit(), which fails on all ranks if one of them cannot save. A file beside checkpoints
    (engine.save_16bit_model) is announced alike, but only the first rank makes its folder: it is written to its path."""

    def __init__(self, run: Run | str, wait: bool = True) -> None:
        super().__init__()
        self.name = "CairnCheckpointEngine"
        self.run = open_run(run) if isinstance(run, str) else run
        self.wait = wait
        self.last: Save | None = None
        self._wanted: tuple[str, pathlib.Path | None] = "", None  # tag, and its folder where DeepSpeed tells it
        self._place: pathlib.Path | None = None
        self._folder: Folder | None = None
        self._failure: Exception | None = None

    def create(self, info: Any) -> None:
        self._drop()
        last, self.last = self.last, None
        if last is not None:
            last.committed.result()  # on all ranks alike, so that none waits for another in what follows
        tag = str(getattr(info, "tag", info))  # before release 0.17 the tag is all that it tells
        saved_in = getattr(info, "save_dir", None)
        self._wanted = tag, None if saved_in is None else pathlib.Path(os.path.abspath(saved_in), tag)

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        os.makedirs(path, exist_ok=exist_ok)
        tag, wanted = self._wanted
        place = pathlib.Path(os.path.abspath(path))
        if self._folder is None and tag and (place == wanted if wanted else place.name == tag):
            self._place, self._folder = place, Folder(self.run, _step(tag), sealed_by_itself=True)

    def save(self, state_dict: Any, path: Any) -> None:
        place = pathlib.Path(os.path.abspath(path))
        folder = self._folder
        if folder is None or place.parent != self._place:
            torch.save(state_dict, place)
            return
        try:
            with WriteFile(folder, place.name) as stream:
                torch.save(state_dict, cast("IO[bytes]", stream))
            open(place, "wb").close()
        except Exception as error:  # raised by commit(): before it, DeepSpeed's ranks still wait for each other
            self._failure = self._failure or error

    def load(self, path: Any, map_location: Any = None) -> Any:
        place = pathlib.Path(path)
        if place.exists() and place.stat().st_size:  # DeepSpeed's own, from before this engine was installed
            return torch.load(place, map_location=map_location, weights_only=False)
        with self.run.at(_step(place.parent.name)) as found:
            stream = io.BufferedReader(ReadFile(found.shard(place.name)), 1 << 20)
            return torch.load(stream, map_location=map_location, weights_only=False)

    def commit(self, info: Any) -> Any:
        folder, failure = self._folder, self._failure
        try:
            if failure is not None and folder is not None:
                folder.give_up(failure)
                raise failure
            if folder is not None:
                folder.seal()
                if self.wait and folder.save:
                    folder.save.committed.result()
                else:
                    self.last = folder.save
        finally:
            self._drop()
        return True

    def _drop(self) -> None:
        if self._folder is not None:
            self._folder.discard()
        self._wanted, self._place, self._folder, self._failure = ("", None), None, None, None


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
    own = folder.parent / f".latest-{opened.rank}"
    own.write_text(tag)
    own.replace(folder.parent / "latest")
    return tag


def load(engine: Any, load_dir: Any, **options: Any) -> tuple[str | None, Any]:
    """engine.load_checkpoint of the newest committed checkpoint, as many ranks as have saved it; every rank calls it.
    (None, None) on a first run. load_dir: for the names of files; where the number of ranks is another, DeepSpeed's
    universal form of the checkpoint is made in it, loaded, and removed."""
    from deepspeed import comm
    run: Run = engine.checkpoint_engine.run
    found = run.latest()
    if found is None:
        return None, None
    with found:
        same = found.world_size == run.world_size or not engine.zero_optimization()
        if not same:
            return _load_universal(engine, found, pathlib.Path(load_dir), options)
    tag = prepare(run, load_dir)
    comm.barrier()
    return engine.load_checkpoint(str(load_dir), tag=tag, **options)


def _load_universal(engine: Any, found: Checkpoint, load_dir: pathlib.Path, options: Any) -> tuple[str | None, Any]:
    from deepspeed import comm
    fetched, made = load_dir / f".cairn-{found.version}", load_dir / f"global_step{found.step}_universal"
    first = (number("LOCAL_RANK") or 0) == 0
    fetch_once(found, fetched)
    if first:
        shutil.rmtree(made, ignore_errors=True)
        _convert(fetched, made)
    comm.barrier()
    config, before = engine._config, engine._config.load_universal_checkpoint
    config.load_universal_checkpoint = True
    try:
        return engine.load_checkpoint(str(load_dir), tag=made.name, **options)
    finally:
        config.load_universal_checkpoint = before
        comm.barrier()
        if first:
            for folder in (fetched, made):
                shutil.rmtree(folder, ignore_errors=True)
            (load_dir / "latest_universal").unlink(missing_ok=True)


def _convert(fetched: pathlib.Path, made: pathlib.Path) -> None:
    """As DeepSpeed's own ds_to_universal does, in this process."""
    from deepspeed.checkpoint import ds_to_universal
    with contextlib.redirect_stdout(io.StringIO()):
        ds_to_universal.main(argparse.Namespace(
            input_folder=str(fetched), output_folder=str(made), num_extract_workers=1, num_merge_workers=1,
            keep_temp_folder=False, strict=True, inject_missing_state=True))


def install(engine: Any, run: Run | str, *, wait: bool = True) -> Any:
    """Lets a DeepSpeed engine save to and load from a run; every rank calls it. wait=False: engine.save_checkpoint
    returns when the files are handed to the uploader, and a save that fails is raised by the next one."""
    engine.checkpoint_engine = CairnCheckpointEngine(run, wait)
    return engine.checkpoint_engine


__all__ = ["CairnCheckpointEngine", "install", "load", "prepare"]
