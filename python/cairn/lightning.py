# SPDX-License-Identifier: Apache-2.0
"""Lightning's checkpoints in Cairn: `Trainer(plugins=[cairn.lightning.CairnCheckpointIO("llm/7b")])`.

Lightning names its checkpoints (`epoch=1-step=16.ckpt`, `last.ckpt`); the name is a label of the version, and the step
is the trainer's. What ModelCheckpoint removes goes to the trash, from where `cairn undelete` takes it."""
from __future__ import annotations

import os
import re
from typing import Any, Literal

try:
    from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO
except ImportError:
    from lightning_fabric.plugins.io.checkpoint_io import CheckpointIO

from . import errors
from ._run import Run, run as open_run, session_of
from .checkpoint import Checkpoint

_STEP = re.compile(r"step=(\d+)|(\d+)\D*$")


class CairnCheckpointIO(CheckpointIO):
    """delete="ignore": what ModelCheckpoint removes stays, and the run's policy says what is kept."""

    def __init__(self, run: str, *, delete: Literal["trash", "ignore"] = "trash", **options: Any) -> None:
        self._name, self._delete, self._options = run, delete, options
        self._last_writer: Run | None = None

    def _open_writer(self) -> Run | None:
        run = self._last_writer
        return run if run is not None and not session_of(run).closed else None

    def _writer(self) -> Run:
        # One rank writes a checkpoint that is whole: to Cairn it is a world of one.
        run = self._last_writer = self._open_writer() or open_run(self._name, rank=0, world_size=1, **self._options)
        return run

    def _reader(self) -> Run:
        return self._open_writer() or open_run(self._name, rank=0, world_size=1, read_only=True)

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        name = os.path.basename(str(path))
        found = _STEP.search(name)
        step = checkpoint.get("global_step")
        if step is None and not found:
            raise errors.make(f"{path}: neither the checkpoint nor its name has a step", code="invalid")
        self._writer().async_save(int(step if step is not None else (found[1] or found[2]) if found else 0), checkpoint,
                                  labels={"name": name}, on_exists="new-version")

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        found = self._find(path)
        location = map_location if not callable(map_location) else None
        with found:
            return found.load(map_location=location, weights_only=bool(weights_only))

    def _find(self, path: Any) -> Checkpoint:
        self._settle()
        name = os.path.basename(str(path).rstrip("/"))
        found = self._reader().named(name)
        if found is None and (name.isdigit() or name in ("latest", "best") or name.startswith("ckpt_")):
            found = self._reader().at(name)
        if found is None:
            raise errors.make(f"run {self._name} has no checkpoint {name}", code="not-found", run=self._name)
        return found

    def _settle(self) -> None:
        """What this process has saved is looked for only once it is committed."""
        run = self._open_writer()
        for saving in list(session_of(run).saves) if run else ():
            saving.save.committed.result()

    def remove_checkpoint(self, path: Any) -> None:
        if self._delete == "ignore":
            return
        with self._find(path) as found:
            version = found.version
        self._writer().remove(version)

    def teardown(self) -> None:
        run = self._open_writer()
        if run:
            run.close()


__all__ = ["CairnCheckpointIO"]
