# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer: its checkpoints go to Cairn in the background, and a job goes on from the newest whole one.

    run = cairn.run("llm/7b")
    trainer = Trainer(..., callbacks=[cairn.hf.CairnCallback(run)])
    trainer.train(resume_from_checkpoint=cairn.hf.resume_dir(run, args.output_dir))

    model = AutoModelForCausalLM.from_pretrained(cairn.hf.folder("cairn://llm/7b/latest"))"""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import tempfile
from typing import Any

from transformers import TrainerCallback

from ._place import number
from ._run import Run, parse_name, run as open_run
from ._saves import Save

_OF_A_RANK = re.compile(r"(?:rng_state_|rank[_-]?)(\d+)")


class CairnCallback(TrainerCallback):
    """Each folder that the Trainer has saved is saved as the checkpoint of its step. The uploader reads the files
    from where they lie; `save_total_limit` may remove them meanwhile."""

    def __init__(self, run: Run | str, *, wait: bool = False) -> None:
        self.run = open_run(run) if isinstance(run, str) else run
        self.wait = wait
        self.last: Save | None = None

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = pathlib.Path(args.output_dir, f"checkpoint-{state.global_step}")
        with self.run.save(state.global_step, on_exists="supersede", meta={"hf": {"folder": folder.name}},
                           labels={"name": folder.name}) as raw:
            for path in self._own(folder):
                raw.put_file(str(path.relative_to(folder)), path)
        self.last = raw.save
        if self.wait:
            raw.save.committed.result()

    def _own(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Files of this rank: those that bear its number; the first rank has all that bear none."""
        own = []
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            found = _OF_A_RANK.search(path.name)
            if (int(found[1]) if found else 0) == self.run.rank:
                own.append(path)
        return own

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.last:
            self.last.committed.result()


def folder(source: Any, into: Any = None) -> str:
    """The files of a checkpoint (`cairn://project/run/REF`, or an open one) as a local folder."""
    if isinstance(source, str):
        name, ref = parse_name(source)
        found = open_run(name, read_only=True).at(ref or "latest")
    else:
        found = source
    target = pathlib.Path(into) if into is not None else \
        pathlib.Path(tempfile.gettempdir(), f"cairn-{os.getuid()}", found.version)
    if target.exists():
        return str(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix=".cairn-", dir=target.parent))
    try:
        for name, shard in found.shards.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            _copy(shard, path)
        try:
            made.rename(target)
        except OSError:  # another process of this node was first
            if not target.exists():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return str(target)


def _copy(shard: Any, path: pathlib.Path) -> None:
    with open(path, "w+b") as file:
        for at in range(0, shard.bytes, 64 << 20):
            file.write(shard.read(at, min(64 << 20, shard.bytes - at)))


def resume_dir(run: Run | str, output_dir: Any) -> str | None:
    """A folder `checkpoint-STEP` to resume from: the newest committed one, fetched where it is not there; None on a
    first run. Half-written folders of an earlier life are never taken."""
    opened = open_run(run) if isinstance(run, str) else run
    found = opened.latest()
    if found is None:
        return None
    with found:
        target = pathlib.Path(output_dir, f"checkpoint-{found.step}")
        mark = target / ".cairn-version"
        if target.exists() and not (mark.exists() and mark.read_text() == found.version):
            if (number("LOCAL_RANK") or 0) == 0:
                shutil.rmtree(target)
        folder(found, target)
        mark.write_text(found.version)
    return str(target)


__all__ = ["CairnCallback", "folder", "resume_dir"]
