# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer: its checkpoints go to Cairn in the background, and a job goes on from the newest whole one.

    run = cairn.run("llm/7b")
    trainer = Trainer(..., callbacks=[cairn.hf.CairnCallback(run)])
    trainer.train(resume_from_checkpoint=cairn.hf.resume_dir(run, args.output_dir))

    model = AutoModelForCausalLM.from_pretrained(cairn.hf.folder("cairn://llm/7b/latest"))"""
from __future__ import annotations

import itertools
import pathlib
import re
from typing import Any

from transformers import TrainerCallback

from . import errors
from ._folders import MARK, cached, fetch, fetch_once
from ._place import number
from ._run import Run, parse_name, run as open_run
from ._saves import Save
from ._session import log

# Names of files that one rank has: random states, DeepSpeed's parts, DCP's parts of FSDP.
_OF_A_RANK = re.compile(r"(?:rng_state_|rank[_-]?|^__)(\d+)")


class CairnCallback(TrainerCallback):
    """Each folder that the Trainer has saved is saved as the checkpoint of its step. The uploader reads the files
    from where they lie; `save_total_limit` may remove them meanwhile."""

    def __init__(self, run: Run | str, *, wait: bool = False) -> None:
        self.run = open_run(run) if isinstance(run, str) else run
        self.wait = wait
        self.last: Save | None = None

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = pathlib.Path(args.output_dir, f"checkpoint-{state.global_step}")
        if self.run.rank == 0 and not (folder / "trainer_state.json").exists():
            raise errors.make(f"{folder} is not whole", code="not-found", run=self.run.name, step=state.global_step,
                              hint="save_total_limit keeps the highest steps: remove folders of an earlier job")
        with self.run.save(state.global_step, on_exists="supersede", meta={"hf": {"folder": folder.name}},
                           labels={"name": folder.name}) as raw:
            for path in self._own(folder):
                raw.put_file(str(path.relative_to(folder)), path)
        self.last = raw.save
        if self.wait:
            raw.save.committed.result()

    def _own(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Files of this rank: those that bear its number; the first rank has all that bear none."""
        own: list[pathlib.Path] = []
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MARK):
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
    target = pathlib.Path(into) if into is not None else cached(found.version)
    fetch(found, target)
    return str(target)


def resume_dir(run: Run | str, output_dir: Any) -> str | None:
    """A folder `checkpoint-STEP` to resume from: the newest committed one, fetched where it is not there; None on a
    first run. Half-written folders of an earlier life are never taken. The first rank of a node fetches, the others wait
    for it."""
    opened = open_run(run) if isinstance(run, str) else run
    found = opened.latest()
    if found is None:
        return None
    with found:
        target = pathlib.Path(output_dir, f"checkpoint-{found.step}")
        if (number("LOCAL_RANK") or 0) == 0:
            _put_aside_later(target.parent, found.step)
        fetch_once(found, target)
    return str(target)


def _put_aside_later(folder: pathlib.Path, step: int) -> None:
    """Folders of steps that this job does not go on from: save_total_limit would keep them, and remove its own instead.
    They may be all that is left of a job, so they get a name that the Trainer does not know."""
    for path in folder.glob("checkpoint-*"):
        number_of = path.name.removeprefix("checkpoint-")
        if not number_of.isdigit() or int(number_of) <= step:
            continue
        aside = next(name for name in (folder / f"not-resumed-{at}-{path.name}" for at in itertools.count(1))
                     if not name.exists())
        path.rename(aside)
        log.warning("%s is of a later step than the resumed one, %d; it is now %s", path, step, aside.name)


__all__ = ["CairnCallback", "folder", "resume_dir"]
