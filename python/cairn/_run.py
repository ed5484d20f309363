# SPDX-License-Identifier: Apache-2.0
"""A run: what this rank saves, and what it loads. Its session does the work (_session.py)."""
from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import time
import warnings
from collections.abc import Generator, Mapping
from typing import Any, Literal

from . import _lib, errors
from ._arrays import Pinned
from ._place import common_job, local_place, place
from ._saves import Save, Saving, await_staged
from ._session import Session, known_or_made, log, say
from .checkpoint import Checkpoint, Row

OnExists = Literal["error", "new-version", "supersede"]
WhenBusy = Literal["wait", "skip", "error"]
_TIMEOUT_S = 60.0
# Of run.save(step): a state that is None is a mistake of the caller's, such as a function without its return.
_RAW: Any = object()
_RAW_PADDING_BYTES = 64
# How long a lease that was given back may still be known to the server.
_RELEASE_S = 2.0


def parse_name(name: str) -> tuple[str, str | None]:
    """`project/run` and the reference behind it: of cairn://project/run/REF, project/run@REF or project/run."""
    rest, ref = name.removeprefix("cairn://"), None
    if name.startswith("cairn://"):
        parts = rest.split("/")
        rest, ref = "/".join(parts[:2]), "/".join(parts[2:]) or None
    elif "@" in rest:
        rest, _, ref = rest.partition("@")
    if len(rest.split("/")) != 2 or not all(rest.split("/")):
        raise errors.make(f"{name!r} names no run", code="invalid", hint="a run is `project/run`")
    return rest, ref


def warn_empty(run: Run, step: int, why: str, stacklevel: int) -> None:
    """A rank of several may have nothing of its own; a job of one rank that saves nothing has made a mistake, and the
    empty checkpoint is what it would resume from."""
    warnings.warn(f"run {run.name} step {step}: the checkpoint is empty, because {why}", RuntimeWarning, stacklevel + 1)


class Run:
    """Made by cairn.run(); see there."""

    def __init__(self, name: str, *, rank: int, world_size: int, local_rank: int, local_world_size: int,
                 job: str | None, resume: str | None, bytes: int, socket: str | None, timeout: float,
                 read_only: bool, labels: Mapping[str, str] | None, meta: Mapping[str, Any] | None,
                 on_error: Literal["raise", "warn"], format: str | None) -> None:
        self.name, self.rank, self.world_size, self.read_only = name, rank, world_size, read_only
        self.labels, self.meta, self.on_error, self.format = dict(labels or {}), dict(meta or {}), on_error, format
        self._session = Session(self, local_rank=local_rank, local_world_size=local_world_size, job=job, resume=resume,
                                bytes=bytes, socket=socket, timeout=timeout)
        found = self._session.resumed
        self.attempt = found.attempt
        self.resumed_step: int | None = found.step if found.found else None
        self.resumed_version: str | None = found.version.decode() if found.found else None

    def __repr__(self) -> str:
        return f"<cairn.Run {self.name} rank {self.rank} of {self.world_size}{' (closed)' if self._session.closed else ''}>"

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """close(); an exception that ends the block stays that, and saves that failed are named on standard error."""
        try:
            self.close()
        except errors.CairnError as failure:
            if kind is None:
                raise
            for one in self._session.problems() or [failure]:
                say(f"cairn: {one}")

    # ---- save ----

    def async_save(self, step: int, state: Any, *, background: bool = False,
                   metrics: Mapping[str, float] | None = None, labels: Mapping[str, str] | None = None,
                   meta: Mapping[str, Any] | None = None, on_exists: OnExists = "error",
                   when_busy: WhenBusy = "wait", timeout: float | None = None,
                   verify_sources: bool = False) -> Save:
        """Saves `state` as the checkpoint of `step`; every rank calls it. It returns when the state is copied, and
        training goes on while the bytes are sent. With background=True it returns at once, and the sources must not
        change until `save.staged.result()`.

        metrics: numbers of the checkpoint, such as a loss. when_busy: what becomes of it while an earlier save is
        still being sent: it waits for memory, is skipped (Skipped), or is refused. verify_sources: for
        tests of background=True; the sources are read once more when `save.staged.result()` is called, and one that
        was changed before fails the save by its name."""
        session = self._session
        session.alive(write=True)
        session.check()
        if state is None:
            raise errors.make(f"step {step}: the state is None, so there is nothing to save", code="invalid", run=self.name,
                              step=step, rank=self.rank, hint="a rank that has nothing of its own saves {}")
        if when_busy == "error" and session.is_sending():
            raise errors.make(f"step {step}: an earlier save is still being sent", code="slow-down", retryable=True,
                              run=self.name, step=step, rank=self.rank)
        prepared = session.prepare(state)
        if prepared.is_empty and self.world_size == 1:
            warn_empty(self, step, "the state has no tensor and no value", 3)
        saving = Saving(session, step)
        saving.save.pickled = prepared.pickled
        if prepared.pickled:
            log.info("run %s step %d: %d values were pickled, the first is %s", self.name, step,
                     len(prepared.pickled), prepared.pickled[0])
        options = session.options(on_exists, when_busy, labels, meta, metrics, timeout, prepared)
        saving.verifies = background and verify_sources
        options.verify_sources = saving.verifies

        def submit() -> None:
            session.submit(saving, lambda: session.stage(saving, prepared, options, background))
        if background:
            submit()
        else:
            await_staged(saving.save, submit)
        return saving.save

    def save(self, step: int, state: Any = _RAW, *, timeout: float | None = None, **options: Any) -> Any:
        """With a state: async_save that waits for the commit. Without: a save of raw bytes under names,
        `with run.save(step) as ck: ck.put(name, data)`."""
        if state is _RAW:
            return RawSave(self, step, timeout=timeout, **options)
        save = self.async_save(step, state, **options)
        save.committed.result(timeout)
        return save

    @contextlib.contextmanager
    def saving(self, step: int, state: Any, **options: Any) -> Generator[Save, None, None]:
        """Copies the state while the body runs, which must not change it; the end of the block waits for the copy:

            with run.saving(step, state):
                loss.backward()
            optimizer.step()
        """
        save = self.async_save(step, state, background=True, **options)
        try:
            yield save
        finally:
            await_staged(save)

    def fence(self, timeout: float | None = None) -> None:
        """Waits until every state given to a background save is copied."""
        for saving in list(self._session.saves):
            if not saving.save.staged.done():
                saving.save.staged.result(timeout)

    def fence_before(self, optimizer: Any) -> Any:
        """Calls fence() before each step of a torch optimizer; returns the handle that removes it."""
        def fence(*_: Any) -> None:
            self.fence()
        return optimizer.register_step_pre_hook(fence)

    def reserve(self, state: Any) -> None:
        """Memory for saves of such a state, before the first one asks for it."""
        session = self._session
        session.alive(write=True)
        prepared = session.prepare(state)
        needed, session.pieces = prepared.bytes, prepared.pieces
        session.in_worker(lambda: session.reserve(needed, None))

    # ---- what went wrong ----

    @property
    def problems(self) -> list[errors.CairnError]:
        """What has failed in the background and was told to nobody yet; it waits for nothing and forgets nothing."""
        return self._session.problems()

    def check(self) -> None:
        """Raises the first failure that nobody was told of (on_error="warn": warns)."""
        self._session.check()

    def warmup(self, timeout: float | None = None) -> None:
        """Goes the way of a save once, so that what would fail the first one fails now."""
        options = _lib.WarmupOptions(timeout_ms=self._session.ms(timeout))
        self._session.call("cairn_warmup", self._session.alive(write=True), ctypes.byref(options))

    # ---- load ----

    def latest(self) -> Checkpoint | None:
        """The newest committed checkpoint, or None on a first run. In a run that saves it is the one that all ranks
        go on from, until this process has committed another."""
        return self._open("latest" if self.read_only or self.attempt == 0 else None)

    def best(self, metric: str | None = None) -> Checkpoint | None:
        """The best one by the metric of the run's policy."""
        del metric
        return self._open("best")

    def at(self, ref: int | str) -> Checkpoint:
        """By step, version id or alias; NotFound where there is none."""
        return Checkpoint(self._session.open(str(ref)))

    def named(self, name: str) -> Checkpoint | None:
        """Of those whose label `name` is this the one that was saved last."""
        for row in self.list():
            if row.labels.get("name") == name:
                return self.at(row.version)
        return None

    def _open(self, ref: str | None) -> Checkpoint | None:
        try:
            return Checkpoint(self._session.open(ref))
        except errors.NotFound:
            return None

    def list(self, state: str | None = "committed", *, labels: str | Mapping[str, str] | None = None,
             limit: int = 0, run: str | None = None) -> list[Row]:
        """Versions of the run, or of another, what the newest attempt saved first; none where nobody has saved. state=None: in any state.
        labels: a selector ("kind=eval,lang!=de") or a dict of labels that all must be there. limit: at most so many;
        0: all."""
        chosen = ",".join(f"{key}={value}" for key, value in labels.items()) if isinstance(labels, Mapping) else labels
        options = _lib.FindOptions(run=_lib.text(run), state=_lib.text(state), labels=_lib.text(chosen), limit=limit)
        return [row for row in self._find(options) if state is None or row.state == state]

    def find(self, ref: int | str) -> Row | None:
        """What is known of one version, by step, "latest", "best", alias or id, without opening it; None: there is
        none."""
        found = self._find(_lib.FindOptions(ref=_lib.text(str(ref))))
        return found[0] if found else None

    def _find(self, options: _lib.FindOptions) -> list[Row]:
        rows = ctypes.POINTER(_lib.VersionInfo)()
        count = ctypes.c_size_t()
        self._session.call("cairn_find", self._session.alive(), ctypes.byref(options), ctypes.byref(rows), ctypes.byref(count))
        try:
            return [Row.of(rows[at]) for at in range(count.value)]
        finally:
            _lib.LIB.cairn_find_free(rows)

    def annotate(self, ref: int | str, *, labels: Mapping[str, str | None] | None = None,
                 metrics: Mapping[str, float | None] | None = None, pin: bool | None = None) -> None:
        """Says more of a committed version: labels and metrics are merged with those that are there (None removes
        one); pin=True: no policy removes it."""
        told = {name: None if value is None else float(value) for name, value in metrics.items()} if metrics else None
        options = _lib.AnnotateOptions(
            labels_json=json.dumps(dict(labels)).encode() if labels else None,
            metrics_json=json.dumps(told).encode() if told else None,
            pin=_lib.PIN_KEEP if pin is None else _lib.PIN_YES if pin else _lib.PIN_NO)
        self._session.call("cairn_annotate", self._session.alive(), _lib.text(str(ref)), ctypes.byref(options))

    def alias(self, name: str, ref: int | str | None) -> None:
        """`name` is that version from here on, which nothing removes while it is; None: it is none any more."""
        self._session.call("cairn_alias_set", self._session.alive(), _lib.text(name), None if ref is None else _lib.text(str(ref)), 0)

    def wait(self, ref: int | str, timeout: float | None = None) -> Checkpoint:
        """Until it is committed."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return self.at(ref)
            except errors.NotFound:
                if end is not None and time.monotonic() >= end:
                    raise errors.make(f"{self.name}@{ref} is not committed after {timeout} s", code="timeout",
                                      retryable=True, run=self.name) from None
            time.sleep(0.1)

    def remove(self, ref: int | str) -> None:
        """Puts a version into the trash (`cairn undelete` takes it out)."""
        version = str(ref) if str(ref).startswith("ckpt_") else self._version_of(str(ref))
        end = time.monotonic() + _RELEASE_S
        while True:
            code, err = _lib.attempt("cairn_remove", self._session.alive(), version.encode(), 0)
            if code == _lib.OK:
                return
            if code != _lib.IN_USE or time.monotonic() > end:
                raise _lib.error_of(code, err, run=self.name, rank=self.rank)
            time.sleep(0.05)  # a lease that this session has just given back

    def _version_of(self, ref: str) -> str:
        found = self.find(ref)
        if found is None:
            raise errors.make(f"run {self.name} has no checkpoint {ref}", code="not-found", run=self.name)
        return found.version

    # ---- end ----

    def close(self, timeout: float | None = None) -> None:
        """Waits until every save is committed or has failed, `timeout` seconds at most (the run's own), and ends the
        session; the uploader finishes the rest. Raises the first failure that nobody was told of."""
        self._session.close(timeout)


class _Inside(Run):
    """For the package's own modules: what derives from a class may see its inside."""

    @staticmethod
    def session_of(run: Run) -> Session:
        return run._session


session_of = _Inside.session_of


class RawSave:
    """Bytes and files under names of the caller's choice: the checkpoint of a program that keeps its own format."""

    _ended = True  # where __init__ raises, there is nothing to warn of

    def __init__(self, run: Run, step: int, *, timeout: float | None = None, on_exists: OnExists = "error",
                 when_busy: WhenBusy = "wait", **told: Any) -> None:
        self.run, self._session = run, session_of(run)
        self._parts: dict[str, Pinned] = {}
        self._files: dict[str, tuple[int, int]] = {}
        self._session.alive(write=True)
        self._session.check()
        self._saving = Saving(self._session, step)
        self.save: Save = self._saving.save
        self._options = self._session.options(on_exists, when_busy, told.get("labels"), told.get("meta"), told.get("metrics"),
                                              timeout)
        self._ended = False

    def __del__(self) -> None:
        if not self._ended:
            self._close_files()
            warnings.warn(f"run {self.run.name} step {self.save.step}: nothing is saved, because run.save(step) without a state "
                          "is a block: `with run.save(step) as raw: raw.put(name, data)`", RuntimeWarning, stacklevel=2)

    def put(self, name: str, data: Any) -> None:
        """Any object with the buffer protocol; it must not change until the block ends."""
        self._check_new(name)
        self._parts[name] = Pinned(data)

    def put_file(self, name: str, path: Any) -> None:
        """A file, which is not read into memory; it must not change until the save is durable."""
        self._check_new(name)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._files[name] = fd, os.fstat(fd).st_size

    def put_folder(self, folder: Any) -> None:
        """The files below it, by their paths in it: what a framework that knows folders only has written. The mark of a
        folder that was fetched is not one of them."""
        from ._folders import MARK
        if not os.path.isdir(folder):  # a mistyped one would be an empty checkpoint
            kind = NotADirectoryError if os.path.exists(folder) else FileNotFoundError
            raise kind(f"{folder}: no folder to save as step {self.save.step} of run {self.run.name}")
        for path in sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file() and path.name != MARK):
            self.put_file(str(path.relative_to(folder)), path)

    def _check_new(self, name: str) -> None:
        if name in self._parts or name in self._files:
            raise errors.make(f"step {self.save.step}: {name} is given twice", code="invalid", **self._saving.context())

    def __enter__(self) -> RawSave:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._ended = True
        if kind is not None:
            self._close_files()
            return
        if not (self._parts or self._files) and self.run.world_size == 1:
            warn_empty(self.run, self.save.step, "nothing was put into it", 3)
        try:
            await_staged(self.save, lambda: self._session.submit(self._saving, self._stage))
        finally:
            self._close_files()

    def _close_files(self) -> None:
        for fd, _ in self._files.values():
            os.close(fd)
        self._files = {}

    def _stage(self) -> None:
        session, saving, context = self._session, self._saving, self._saving.context()
        if self._parts:
            session.reserve(sum(part.bytes + _RAW_PADDING_BYTES for part in self._parts.values()), saving)
        session.begin(saving, self._options)
        for name, part in self._parts.items():
            _lib.call("cairn_save_raw", saving.handle, _lib.text(name), part.pointer, part.bytes, **context)
        for name, (fd, size) in self._files.items():
            _lib.call("cairn_save_file", saving.handle, _lib.text(name), fd, size, **context)
        session.copy(saving)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.save, name)


def run(name: str, *, rank: int | None = None, world_size: int | None = None, local_rank: int | None = None,
        local_world_size: int | None = None, job: str | None = None, resume: str | int | None = None,
        bytes: int = 0, socket: str | None = None, timeout: float = _TIMEOUT_S, read_only: bool = False,
        labels: Mapping[str, str] | None = None, meta: Mapping[str, Any] | None = None,
        on_error: Literal["raise", "warn"] = "raise", format: str | None = None) -> Run:
    """Opens the run `project/run` (also cairn://project/run) through this node's uploader.

    Ranks come from torch.distributed or the launcher's variables (torchrun, Slurm, Open MPI) unless they are given.
    A run that may save begins an attempt: one job at a time. read_only=True only loads and lists, beside a job that
    saves. resume: "latest" (default), a step or a version to go on from; "none"; "keep" or "ahead" supersede nothing, and
    under "keep" a lower step than that of latest does not become latest. bytes: memory for one save, where it is known; else the first save asks for it. A second call for the same run in one process gives the same object."""
    known, ref = parse_name(name)
    rank, world_size = place(rank, world_size)
    if local_rank is None and local_world_size is None:
        local_rank, local_world_size = local_place(world_size)
    own_rank, own_size = local_rank or 0, local_world_size or 1

    def make() -> Session:
        return session_of(Run(
            known, rank=rank, world_size=world_size, local_rank=own_rank, local_world_size=own_size,
            job=job or (None if read_only else common_job(known, rank, world_size)),
            resume=str(resume) if resume is not None else ref, bytes=bytes, socket=socket, timeout=timeout,
            read_only=read_only, labels=labels, meta=meta, on_error=on_error, format=format))
    return known_or_made(known, rank, read_only, make).run
