# SPDX-License-Identifier: Apache-2.0
"""accelerate's checkpoints in Cairn; every rank calls both:

    cairn.accelerate.save_state(accelerator, run, step)
    step = cairn.accelerate.load_state(accelerator, run)     None on a first run

What accelerator.save_state writes goes through a folder of this rank's own, whose files the uploader reads from where they
lie; so a rank saves what it wrote, on as many nodes as there are."""
from __future__ import annotations

import pathlib
import shutil
import tempfile
from typing import Any

from . import errors
from ._folders import cached, fetch_once
from ._run import Run, run as open_run
from ._saves import Save


def save_state(accelerator: Any, run: Run | str, step: int, *, folder: Any = None, **options: Any) -> Save:
    """Returns when the files are written; the uploader sends them meanwhile. folder: on the disk that has room for
    them (the system's temporary one). options: those of run.save, such as metrics and labels."""
    opened = open_run(run) if isinstance(run, str) else run
    if accelerator.project_configuration.automatic_checkpoint_naming:
        raise errors.make("accelerate names its folders by itself", code="invalid", run=opened.name,
                          hint="ProjectConfiguration(automatic_checkpoint_naming=False)")
    own = pathlib.Path(tempfile.mkdtemp(prefix="cairn-", dir=folder))
    try:
        accelerator.save_state(str(own))
        told: dict[str, Any] = {"on_exists": "supersede", **options}
        with opened.save(step, **told) as raw:
            raw.put_folder(own)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    return raw.save


def load_state(accelerator: Any, run: Run | str, ref: int | str | None = None, *, folder: Any = None) -> int | None:
    """The step of the newest checkpoint, or of `ref`, whose state every object that the accelerator prepared has now."""
    opened = open_run(run) if isinstance(run, str) else run
    found = opened.latest() if ref is None else opened.at(ref)
    if found is None:
        return None
    with found:
        target = pathlib.Path(folder, found.version) if folder is not None else cached(found.version)
        fetch_once(found, target)
        accelerator.load_state(str(target))
        return found.step


__all__ = ["load_state", "save_state"]
