# SPDX-License-Identifier: Apache-2.0
"""A run: the session of this rank with its node's uploader, what it saves and what it loads.

Calls that copy or wait for memory run in one thread of the run, in order, so that a signal in the main thread
(Ctrl-C, a preemption notice) never ends a save half way; the caller waits for a future."""
from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import ctypes
import json
import logging
import os
import pathlib
import queue
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Generator, Mapping
from typing import Any, Literal

from . import _lib, errors
from ._arrays import Pinned
from ._pieces import Pieces, Prepared, prepare
from ._place import common_job, local_place, place
from ._saves import Save, SaveFuture, block_signals, watcher
from .checkpoint import Checkpoint, Row

log = logging.getLogger("cairn")
OnExists = Literal["error", "new-version", "supersede"]
WhenBusy = Literal["wait", "skip", "error"]
_TIMEOUT_S = 60.0
# Memory comes in whole units, of which libcairn's headers take part of the first (client/session/session.h): to ask for
# less would only bring the next larger save to ask again.
_UNIT_BYTES, _FIRST_BYTES = 2 << 20, 256 << 10
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


def _whole_units(bytes: int) -> int:
    return _FIRST_BYTES + -(-max(0, bytes - _FIRST_BYTES) // _UNIT_BYTES) * _UNIT_BYTES


class Run:
    """Made by cairn.run(); see there."""

    def __init__(self, name: str, *, rank: int, world_size: int, local_rank: int, local_world_size: int,
                 job: str | None, resume: str | None, bytes: int, socket: str | None, timeout: float,
                 read_only: bool, labels: Mapping[str, str] | None, meta: Mapping[str, Any] | None,
                 on_error: Literal["raise", "warn"], format: str | None) -> None:
        self.name, self.rank, self.world_size, self.read_only = name, rank, world_size, read_only
        self.labels, self.meta, self.on_error, self.format = dict(labels or {}), dict(meta or {}), on_error, format
        self._local_world, self._timeout_s = local_world_size, timeout
        self._pid, self._socket = os.getpid(), socket or os.environ.get("CAIRN_SOCKET")
        self._handle = ctypes.c_void_p()
        self._closed = False
        self._reserved = bytes
        self._pieces: Pieces | None = None
        self._saves: set[Save] = set()
        self._failed: deque[Save] = deque()
        self._problems: deque[errors.CairnError] = deque()
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._checkpoints: weakref.WeakSet[Checkpoint] = weakref.WeakSet()
        options = _lib.OpenOptions(
            run=_lib.text(name), job=_lib.text(job), rank=rank, world_size=world_size, local_rank=local_rank,
            local_world_size=local_world_size, bytes=bytes, resume=_lib.text(resume), socket=_lib.text(socket),
            timeout_ms=self._ms(timeout), read_only=read_only, interruptible=1)
        found = _lib.Resume()
        _lib.call("cairn_open", ctypes.byref(options), ctypes.byref(self._handle), ctypes.byref(found), again=True,
                  run=name, rank=rank)
        self.attempt = found.attempt
        self.resumed_step: int | None = found.step if found.found else None
        self.resumed_version: str | None = found.version.decode() if found.found else None

    def __repr__(self) -> str:
        return f"<cairn.Run {self.name} rank {self.rank} of {self.world_size}{' (closed)' if self._closed else ''}>"

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @staticmethod
    def _ms(seconds: float | None) -> int:
        return 0 if seconds is None else max(1, min(int(seconds * 1000), 2**32 - 1))

    def _alive(self, write: bool = False) -> ctypes.c_void_p:
        if os.getpid() != self._pid:
            raise errors.Forked(
                f"run {self.name} was opened by process {self._pid}, which has forked this one", code="invalid",
                run=self.name, rank=self.rank,
                hint="open it in the process that uses it, or start processes with multiprocessing's `spawn`")
        if self._closed:
            raise errors.make(f"run {self.name} is closed", code="invalid", run=self.name, rank=self.rank)
        if write and self.read_only:
            raise errors.make(f"run {self.name} was opened read-only", code="invalid", run=self.name,
                              hint="cairn.run(name) without read_only saves")
        return self._handle

    def _call(self, name: str, *arguments: Any, **context: Any) -> None:
        _lib.call(name, *arguments, again=True, run=self.name, rank=self.rank, **context)

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
        self._alive(write=True)
        self.check()
        if when_busy == "error" and any(not save.durable.done() for save in self._saves):
            raise errors.make(f"step {step}: an earlier save is still being sent", code="slow-down", retryable=True,
                              run=self.name, step=step, rank=self.rank)
        prepared = self._prepare(state)
        save = Save(self, step)
        save.pickled = prepared.pickled
        if prepared.pickled:
            log.info("run %s step %d: %d values were pickled, the first is %s", self.name, step,
                     len(prepared.pickled), prepared.pickled[0])
        options = self._options(on_exists, when_busy, labels, meta, metrics, timeout, prepared)
        save._verifies = background and verify_sources
        options.verify_sources = save._verifies
        self._submit(save, lambda: self._stage(save, prepared, options, background))
        if not background:
            self._await_staged(save)
        return save

    def save(self, step: int, state: Any = None, *, timeout: float | None = None, **options: Any) -> Any:
        """With a state: async_save that waits for the commit. Without: a save of raw bytes under names,
        `with run.save(step) as ck: ck.put(name, data)`."""
        if state is None:
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
            self._await_staged(save)

    def fence(self, timeout: float | None = None) -> None:
        """Waits until every state given to a background save is copied."""
        for save in list(self._saves):
            if not save.staged.done():
                save.staged.result(timeout)

    def fence_before(self, optimizer: Any) -> Any:
        """Calls fence() before each step of a torch optimizer; returns the handle that removes it."""
        def fence(*_: Any) -> None:
            self.fence()
        return optimizer.register_step_pre_hook(fence)

    def _await_staged(self, save: Save) -> None:
        try:
            save.staged.result()
        except (KeyboardInterrupt, SystemExit):
            save.cancel("interrupted")
            raise

    def _options(self, on_exists: str, when_busy: str, labels: Any, meta: Any, metrics: Any, timeout: float | None,
                 prepared: Prepared | None) -> _lib.SaveOptions:
        if on_exists not in _lib.EXISTS:
            raise errors.make(f"on_exists={on_exists!r}: it is one of {', '.join(_lib.EXISTS)}", code="invalid")
        told: dict[str, Any] = {**self.meta, **(meta or {}), **_library_versions()}
        if metrics:
            told["metrics"] = {name: float(value) for name, value in metrics.items()}
        options = _lib.SaveOptions(
            on_exists=_lib.EXISTS[on_exists], skip=when_busy == "skip", format=_lib.text(self.format),
            labels_json=json.dumps({**self.labels, **(labels or {})}).encode(),
            meta_json=json.dumps(told).encode(), timeout_ms=self._ms(timeout))
        if prepared and prepared.pieces.splits.handles:
            handles = prepared.pieces.splits.handles
            options.splits = (ctypes.c_void_p * len(handles))(*handles)
            options.split_count = len(handles)
        return options

    def _prepare(self, state: Any) -> Prepared:
        """With the structs of the save before, which nobody else has until this one is copied."""
        with self._lock:
            known, self._pieces = self._pieces, None
        return prepare(state, known, self.world_size, self.rank)

    def _stage(self, save: Save, prepared: Prepared, options: _lib.SaveOptions, background: bool) -> None:
        """In the run's thread: memory, begin, describe, copy."""
        self._reserve(prepared.bytes, save)
        self._begin(save, options)
        pieces, context = prepared.pieces, save._context()
        self._describe(save, pieces)
        save._held = prepared, self._put_items(save, prepared.items)
        save._copied = lambda: setattr(self, "_pieces", pieces)
        if background:
            _lib.call("cairn_save_stage_begin", save._handle, **context)
            watcher.add(save)
            if save._fenced:  # it was waited for before there was anything to wait for
                save._fence()
        else:
            self._copy(save)

    def _describe(self, save: Save, pieces: Pieces) -> None:
        context = save._context()
        if _lib.HAS_ARRAYS and pieces.count:
            _lib.call("cairn_save_tensors", save._handle, pieces.structs, pieces.count, None, **context)
            return
        for row in range(pieces.count):
            _lib.call("cairn_save_tensor", save._handle, ctypes.byref(pieces.structs[row]), **context)

    def _begin(self, save: Save, options: _lib.SaveOptions) -> None:
        made = ctypes.c_void_p()
        _lib.call("cairn_save_begin", self._handle, save.step, ctypes.byref(options), ctypes.byref(made),
                  **save._context())
        with save._lock:
            save._handle = made
            if save._cancelled:
                _lib.attempt("cairn_save_cancel", made, save._cancelled.encode())

    def _put_items(self, save: Save, items: Mapping[str, Any]) -> list[Pinned]:
        held: list[Pinned] = []
        for name, data in items.items():
            pinned = Pinned(data)
            held.append(pinned)
            item = _lib.Item(name=_lib.text(name), kind=_lib.LOCAL, source=pinned.pointer, bytes=pinned.bytes)
            _lib.call("cairn_save_item", save._handle, ctypes.byref(item), **save._context())
        return held

    def _copy(self, save: Save) -> None:
        _lib.call("cairn_save_stage", save._handle, **save._context())
        save._release()
        save.staged.settle(None)
        watcher.add(save)

    def _reserve(self, bytes: int, save: Save | None) -> None:
        if bytes <= self._reserved:
            return
        wanted = _whole_units(bytes + bytes // 8)
        _lib.call("cairn_session_reserve", self._handle, wanted, 0, 0, **(save._context() if save else {}))
        self._reserved = wanted

    def reserve(self, state: Any) -> None:
        """Memory for saves of such a state, before the first one asks for it."""
        self._alive(write=True)
        prepared = self._prepare(state)
        needed, self._pieces = prepared.bytes, prepared.pieces
        self._in_worker(lambda: self._reserve(needed, None))

    # ---- the thread that stages ----

    def _submit(self, save: Save, job: Any) -> None:
        with self._lock:
            self._saves.add(save)
        self._post(lambda: self._guarded(save, job))

    def _post(self, job: Any) -> None:
        if self._worker is None:
            self._worker = threading.Thread(target=_worker, args=(self._work,), name="cairn-stage", daemon=True)
            self._worker.start()
        self._work.put(job)

    def _in_worker(self, job: Any) -> None:
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                job()
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)
        self._post(run)
        done.result()

    def _guarded(self, save: Save, job: Any) -> None:
        try:
            job()
        except errors.CairnError as error:
            self._give_up(save, error)
        except BaseException as error:
            self._give_up(save, errors.make(f"{type(error).__name__}: {error}", code="internal", **save._context()))

    def _give_up(self, save: Save, error: errors.CairnError) -> None:
        """The other ranks hear why."""
        with save._lock:
            if save._handle is not None:
                _lib.attempt("cairn_save_cancel", save._handle, error.message.encode()[:300])
        save._fail(error)
        self._over(save)

    def _over(self, save: Save) -> None:
        with self._lock:
            self._saves.discard(save)
            if save.problem:
                self._failed.append(save)

    # ---- what went wrong ----

    @property
    def problems(self) -> list[errors.CairnError]:
        """What has failed in the background and was told to nobody yet; it waits for nothing and forgets nothing."""
        self._gather()
        return [*(save.problem for save in self._failed if save.problem and not save._told), *self._problems]

    def check(self) -> None:
        """Raises the first failure that nobody was told of (on_error="warn": warns)."""
        self._gather()
        error = None
        while self._failed and not error:
            save = self._failed.popleft()
            error = None if save._told else save.problem
            save._told = True
        if not error and self._problems:
            error = self._problems.popleft()
        if error is None:
            return
        if self.on_error == "warn":
            warnings.warn(str(error), RuntimeWarning, stacklevel=3)
            return
        raise error

    def _gather(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        for name in ("cairn_session_problem", "cairn_session_warning"):
            while True:
                code, err = _lib.attempt(name, self._handle)
                if code == _lib.OK:
                    break
                error = _lib.error_of(code, err, run=self.name, rank=self.rank)
                if name == "cairn_session_warning" or code == _lib.UNAVAILABLE:  # delayed, not failed
                    log.warning("%s", error)
                    warnings.warn(str(error), RuntimeWarning, stacklevel=4)
                else:
                    self._problems.append(error)
                if code == _lib.SLUGS.index("invalid"):
                    return

    def warmup(self, timeout: float | None = None) -> None:
        """Goes the way of a save once, so that what would fail the first one fails now."""
        options = _lib.WarmupOptions(timeout_ms=self._ms(timeout))
        self._call("cairn_warmup", self._alive(write=True), ctypes.byref(options))

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
        found = self._open(str(ref), missing_ok=False)
        assert found
        return found

    def _look(self, ref: int | str) -> Checkpoint:
        """As at(), for names and sizes alone: without a lease, so that it may be removed at once."""
        return Checkpoint(self, str(ref), look=True)

    def named(self, name: str) -> Checkpoint | None:
        """Of those whose label `name` is this the one that was saved last."""
        for row in self.list():
            if row.labels.get("name") == name:
                return self.at(row.version)
        return None

    def _open(self, ref: str | None, missing_ok: bool = True) -> Checkpoint | None:
        try:
            found = Checkpoint(self, ref)
        except errors.NotFound:
            if missing_ok:
                return None
            raise
        self._checkpoints.add(found)
        return found

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
        self._call("cairn_find", self._alive(), ctypes.byref(options), ctypes.byref(rows), ctypes.byref(count))
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
        self._call("cairn_annotate", self._alive(), _lib.text(str(ref)), ctypes.byref(options))

    def alias(self, name: str, ref: int | str | None) -> None:
        """`name` is that version from here on, which nothing removes while it is; None: it is none any more."""
        self._call("cairn_alias_set", self._alive(), _lib.text(name), None if ref is None else _lib.text(str(ref)), 0)

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
            code, err = _lib.attempt("cairn_remove", self._alive(), version.encode(), 0)
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
        if self._closed or os.getpid() != self._pid:
            return
        self._finish(timeout)
        failed = next((save.problem for save in self._failed if not save._told), None)
        if failed:
            raise failed

    def _finish(self, timeout: float | None) -> None:
        end = time.monotonic() + (timeout if timeout is not None else self._timeout_s)
        _await([save.committed for save in list(self._saves)], end)
        for save in list(self._saves):
            save._leave()
        for found in list(self._checkpoints):
            found.close()
        self._closed = True
        self._work.put(None)
        code, err = _lib.attempt("cairn_close", self._handle)
        _forget(self)
        if code not in (_lib.OK, _lib.INTERRUPTED):
            raise _lib.error_of(code, err, run=self.name, rank=self.rank)

    def _exit(self, seconds: float) -> None:
        """At the interpreter's exit: what is not committed is waited for, then named."""
        end = time.monotonic() + seconds
        pending = sorted(self._saves, key=lambda save: save.step)
        with contextlib.suppress(BaseException):
            _await([save.committed for save in pending], end)
        for save in pending:
            if save.problem and not save._told:
                _say(f"cairn: step {save.step} of run {self.name} failed: {save.problem}")
            elif not save.committed.done():
                what = "the uploader goes on with it" if save.staged.done() else "it was not staged and is lost"
                _say(f"cairn: step {save.step} of run {self.name} is not committed at the end of this process; {what}")
        for save in self._failed:
            if save not in pending and not save._told:
                _say(f"cairn: step {save.step} of run {self.name} failed: {save.problem}")
        with contextlib.suppress(errors.CairnError):
            self._finish(max(0.1, end - time.monotonic()))


class RawSave:
    """Bytes and files under names of the caller's choice: the checkpoint of a program that keeps its own format."""

    def __init__(self, run: Run, step: int, *, timeout: float | None = None, on_exists: OnExists = "error",
                 when_busy: WhenBusy = "wait", **told: Any) -> None:
        self.run, self._timeout = run, timeout
        self._parts: dict[str, Pinned] = {}
        self._files: dict[str, tuple[int, int]] = {}
        run._alive(write=True)
        run.check()
        self.save = Save(run, step)
        self._options = run._options(on_exists, when_busy, told.get("labels"), told.get("meta"), told.get("metrics"),
                                     timeout, None)

    def put(self, name: str, data: Any) -> None:
        """Any object with the buffer protocol; it must not change until the block ends."""
        self._parts[name] = Pinned(data)

    def put_file(self, name: str, path: Any) -> None:
        """A file, which is not read into memory; it must not change until the save is durable."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._files[name] = fd, os.fstat(fd).st_size

    def put_folder(self, folder: Any) -> None:
        """The files below it, by their paths in it: what a framework that knows folders only has written."""
        for path in sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file()):
            self.put_file(str(path.relative_to(folder)), path)

    def __enter__(self) -> RawSave:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._close_files()
            return
        self.run._submit(self.save, self._stage)
        try:
            self.run._await_staged(self.save)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        for fd, _ in self._files.values():
            os.close(fd)
        self._files = {}

    def _stage(self) -> None:
        run, save, context = self.run, self.save, self.save._context()
        if self._parts:
            run._reserve(sum(part.bytes + _RAW_PADDING_BYTES for part in self._parts.values()), save)
        run._begin(save, self._options)
        for name, part in self._parts.items():
            _lib.call("cairn_save_raw", save._handle, _lib.text(name), part.pointer, part.bytes, **context)
        for name, (fd, size) in self._files.items():
            _lib.call("cairn_save_file", save._handle, _lib.text(name), fd, size, **context)
        run._copy(save)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.save, name)


def _await(futures: list[SaveFuture], end: float) -> None:
    """Without being told what has failed."""
    concurrent.futures.wait(futures, timeout=max(0.0, end - time.monotonic()))


def _worker(work: queue.SimpleQueue[Any]) -> None:
    block_signals()
    while (job := work.get()) is not None:
        job()
        del job


def _library_versions() -> dict[str, Any]:
    import platform
    import sys
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "jax", "transformers", "lightning", "deepspeed"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = str(version)
    return {"made_by": found}


def _say(line: str) -> None:
    import sys
    log.error("%s", line)
    with contextlib.suppress(Exception):
        print(line, file=sys.stderr, flush=True)


# ---- the runs of this process ----

_open_runs: dict[tuple[str, int, bool], Run] = {}
_open_lock = threading.Lock()


def _forget(run: Run) -> None:
    with _open_lock:
        for key, known in list(_open_runs.items()):
            if known is run:
                del _open_runs[key]


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
    key = (known, rank, read_only)
    with _open_lock:
        for have in (key, (known, rank, False)):
            found = _open_runs.get(have)
            if found is not None and not found._closed and found._pid == os.getpid():
                return found
        opened = Run(
            known, rank=rank, world_size=world_size,
            local_rank=local_rank or 0, local_world_size=local_world_size or 1,
            job=job or (None if read_only else common_job(known, rank, world_size)),
            resume=str(resume) if resume is not None else ref, bytes=bytes, socket=socket, timeout=timeout,
            read_only=read_only, labels=labels, meta=meta, on_error=on_error, format=format)
        _open_runs[key] = opened
    return opened


def _at_exit() -> None:
    seconds = float(os.environ.get("CAIRN_EXIT_WAIT", "10"))
    for opened in list(_open_runs.values()):
        if opened._pid == os.getpid() and not opened._closed:
            opened._exit(seconds)


def _after_fork() -> None:
    """The parent's runs are none of this process; their objects say so when they are used."""
    global _open_lock
    _open_lock = threading.Lock()
    _open_runs.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
