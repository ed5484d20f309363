# SPDX-License-Identifier: Apache-2.0
"""The session of a run with its node's uploader, as the package has it: how a save is begun, copied and watched, what
has failed, and how it all ends. cairn.Run is what a user has of it.

Calls that copy or wait for memory run in one thread of the session, in order, so that a signal in the main thread
(Ctrl-C, a preemption notice) never ends a save half way; the caller waits for a future."""
from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import ctypes
import json
import logging
import os
import queue
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import _lib, errors
from ._arrays import Pinned
from ._pieces import Pieces, Prepared, prepare
from ._saves import Saving, SaveFuture, block_signals, watcher
from ._version import Version

if TYPE_CHECKING:
    from ._run import Run

log = logging.getLogger("cairn")
# Memory comes in whole units, of which libcairn's headers take part of the first (client/session/session.h): to ask for
# less would only bring the next larger save to ask again.
_UNIT_BYTES, _FIRST_BYTES = 2 << 20, 256 << 10


def _whole_units(bytes: int) -> int:
    return _FIRST_BYTES + -(-max(0, bytes - _FIRST_BYTES) // _UNIT_BYTES) * _UNIT_BYTES


class Session:
    """Of one Run, which makes it."""

    def __init__(self, run: Run, *, local_rank: int, local_world_size: int, job: str | None, resume: str | None,
                 bytes: int, socket: str | None, timeout: float) -> None:
        self.run, self.name, self.rank = run, run.name, run.rank
        self.local_world, self.timeout_s = local_world_size, timeout
        self.pid, self.socket = os.getpid(), socket or os.environ.get("CAIRN_SOCKET")
        self.handle = ctypes.c_void_p()
        self.closed = False
        self.pieces: Pieces | None = None
        self.saves: set[Saving] = set()
        self._reserved = bytes
        self._failed: deque[Saving] = deque()
        self._problems: deque[errors.CairnError] = deque()
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._versions: weakref.WeakSet[Version] = weakref.WeakSet()
        options = _lib.OpenOptions(
            run=_lib.text(run.name), job=_lib.text(job), rank=run.rank, world_size=run.world_size, local_rank=local_rank,
            local_world_size=local_world_size, bytes=bytes, resume=_lib.text(resume), socket=_lib.text(socket),
            timeout_ms=self.ms(timeout), read_only=run.read_only, interruptible=1)
        self.resumed = _lib.Resume()
        _lib.call("cairn_open", ctypes.byref(options), ctypes.byref(self.handle), ctypes.byref(self.resumed), again=True,
                  run=run.name, rank=run.rank)

    @staticmethod
    def ms(seconds: float | None) -> int:
        return 0 if seconds is None else max(1, min(int(seconds * 1000), 2**32 - 1))

    def alive(self, write: bool = False) -> ctypes.c_void_p:
        if os.getpid() != self.pid:
            raise errors.Forked(
                f"run {self.name} was opened by process {self.pid}, which has forked this one", code="invalid",
                run=self.name, rank=self.rank,
                hint="open it in the process that uses it, or start processes with multiprocessing's `spawn`")
        if self.closed:
            raise errors.make(f"run {self.name} is closed", code="invalid", run=self.name, rank=self.rank)
        if write and self.run.read_only:
            raise errors.make(f"run {self.name} was opened read-only", code="invalid", run=self.name,
                              hint="cairn.run(name) without read_only saves")
        return self.handle

    def call(self, name: str, *arguments: Any, **context: Any) -> None:
        _lib.call(name, *arguments, again=True, run=self.name, rank=self.rank, **context)

    # ---- save ----

    def is_sending(self) -> bool:
        return any(not saving.save.durable.done() for saving in self.saves)

    def options(self, on_exists: str, when_busy: str, labels: Mapping[str, str] | None = None,
                meta: Mapping[str, Any] | None = None, metrics: Mapping[str, float] | None = None,
                timeout: float | None = None, prepared: Prepared | None = None) -> _lib.SaveOptions:
        if on_exists not in _lib.EXISTS:
            raise errors.make(f"on_exists={on_exists!r}: it is one of {', '.join(_lib.EXISTS)}", code="invalid")
        told: dict[str, Any] = {**self.run.meta, **(meta or {}), **_library_versions()}
        if metrics:
            told["metrics"] = {name: float(value) for name, value in metrics.items()}
        options = _lib.SaveOptions(
            on_exists=_lib.EXISTS[on_exists], skip=when_busy == "skip", format=_lib.text(self.run.format),
            labels_json=json.dumps({**self.run.labels, **(labels or {})}).encode(),
            meta_json=json.dumps(told).encode(), timeout_ms=self.ms(timeout))
        if prepared and prepared.pieces.splits.handles:
            handles = prepared.pieces.splits.handles
            options.splits = (ctypes.c_void_p * len(handles))(*handles)
            options.split_count = len(handles)
        return options

    def prepare(self, state: Any) -> Prepared:
        """With the structs of the save before, which nobody else has until this one is copied."""
        with self._lock:
            known, self.pieces = self.pieces, None
        return prepare(state, known, self.run.world_size, self.rank)

    def stage(self, saving: Saving, prepared: Prepared, options: _lib.SaveOptions, background: bool) -> None:
        """In the session's thread: memory, begin, describe, copy."""
        self.reserve(prepared.bytes, saving)
        self.begin(saving, options)
        pieces, context = prepared.pieces, saving.context()
        self._describe(saving, pieces)
        saving.held = prepared, self._put_items(saving, prepared.items)
        saving.copied = lambda: setattr(self, "pieces", pieces)
        if background:
            _lib.call("cairn_save_stage_begin", saving.handle, **context)
            watcher.add(saving)
            if saving.fenced:  # it was waited for before there was anything to wait for
                saving.fence()
        else:
            self.copy(saving)

    def _describe(self, saving: Saving, pieces: Pieces) -> None:
        context = saving.context()
        if _lib.HAS_ARRAYS and pieces.count:
            _lib.call("cairn_save_tensors", saving.handle, pieces.structs, pieces.count, None, **context)
            return
        for row in range(pieces.count):
            _lib.call("cairn_save_tensor", saving.handle, ctypes.byref(pieces.structs[row]), **context)

    def begin(self, saving: Saving, options: _lib.SaveOptions) -> None:
        made = ctypes.c_void_p()
        _lib.call("cairn_save_begin", self.handle, saving.step, ctypes.byref(options), ctypes.byref(made),
                  **saving.context())
        with saving.lock:
            saving.handle = made
            if saving.cancelled:
                _lib.attempt("cairn_save_cancel", made, saving.cancelled.encode())

    def _put_items(self, saving: Saving, items: Mapping[str, Any]) -> list[Pinned]:
        held: list[Pinned] = []
        for name, data in items.items():
            pinned = Pinned(data)
            held.append(pinned)
            item = _lib.Item(name=_lib.text(name), kind=_lib.LOCAL, source=pinned.pointer, bytes=pinned.bytes)
            _lib.call("cairn_save_item", saving.handle, ctypes.byref(item), **saving.context())
        return held

    def copy(self, saving: Saving) -> None:
        _lib.call("cairn_save_stage", saving.handle, **saving.context())
        saving.release()
        saving.save.staged.settle(None)
        watcher.add(saving)

    def reserve(self, bytes: int, saving: Saving | None) -> None:
        if bytes <= self._reserved:
            return
        wanted = _whole_units(bytes + bytes // 8)
        _lib.call("cairn_session_reserve", self.handle, wanted, 0, 0, **(saving.context() if saving else {}))
        self._reserved = wanted

    # ---- the thread that stages ----

    def submit(self, saving: Saving, job: Callable[[], None]) -> None:
        saving.begun = True
        with self._lock:
            self.saves.add(saving)
        self._post(lambda: self._guarded(saving, job))

    def _post(self, job: Callable[[], None]) -> None:
        if self._worker is None:
            self._worker = threading.Thread(target=_work_off, args=(self._work,), name="cairn-stage", daemon=True)
            self._worker.start()
        self._work.put(job)

    def in_worker(self, job: Callable[[], None]) -> None:
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                job()
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)
        self._post(run)
        done.result()

    def _guarded(self, saving: Saving, job: Callable[[], None]) -> None:
        try:
            job()
        except errors.CairnError as error:
            self.give_up(saving, error)
        except BaseException as error:
            self.give_up(saving, errors.make(f"{type(error).__name__}: {error}", code="internal", **saving.context()))

    def give_up(self, saving: Saving, error: errors.CairnError) -> None:
        """The other ranks hear why."""
        with saving.lock:
            if saving.handle is not None:
                _lib.attempt("cairn_save_cancel", saving.handle, error.message.encode()[:300])
        saving.fail(error)
        self.over(saving)

    def over(self, saving: Saving) -> None:
        with self._lock:
            self.saves.discard(saving)
            if saving.failure:
                self._failed.append(saving)

    # ---- what went wrong ----

    def problems(self) -> list[errors.CairnError]:
        self._gather()
        return [*(saving.failure for saving in self._failed if saving.failure and not saving.told), *self._problems]

    def check(self) -> None:
        self._gather()
        error = None
        while self._failed and not error:
            saving = self._failed.popleft()
            error = None if saving.told else saving.failure
            saving.told = True
        if not error and self._problems:
            error = self._problems.popleft()
        if error is None:
            return
        if self.run.on_error == "warn":
            warnings.warn(str(error), RuntimeWarning, stacklevel=3)
            return
        raise error

    def _gather(self) -> None:
        if self.closed or os.getpid() != self.pid:
            return
        for name in ("cairn_session_problem", "cairn_session_warning"):
            while True:
                code, err = _lib.attempt(name, self.handle)
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

    # ---- load ----

    def open(self, ref: str | None, *, look: bool = False) -> Version:
        """look: for names and sizes alone, without a lease, so that the version may be removed at once."""
        found = Version(self, ref, look=look)
        if not look:
            self._versions.add(found)
        return found

    # ---- end ----

    def close(self, timeout: float | None) -> None:
        """Raises the first failure that nobody was told of."""
        if self.closed or os.getpid() != self.pid:
            return
        self.finish(timeout)
        failed = next((saving.failure for saving in self._failed if not saving.told), None)
        if failed:
            raise failed

    def finish(self, timeout: float | None) -> None:
        end = time.monotonic() + (timeout if timeout is not None else self.timeout_s)
        _await([saving.save.committed for saving in list(self.saves)], end)
        for saving in list(self.saves):
            saving.leave()
        for found in list(self._versions):
            found.close()
        self.closed = True
        self._work.put(None)
        code, err = _lib.attempt("cairn_close", self.handle)
        _forget(self)
        if code not in (_lib.OK, _lib.INTERRUPTED):
            raise _lib.error_of(code, err, run=self.name, rank=self.rank)

    def exit(self, seconds: float) -> None:
        """At the interpreter's exit: what is not committed is waited for, then named."""
        end = time.monotonic() + seconds
        pending = sorted(self.saves, key=lambda saving: saving.step)
        with contextlib.suppress(BaseException):
            _await([saving.save.committed for saving in pending], end)
        for saving in pending:
            about = f"cairn: step {saving.step} of run {self.name}"
            if saving.failure and not saving.told:
                say(f"{about} failed: {saving.failure}")
            elif not saving.save.committed.done():
                what = "the uploader goes on with it" if saving.save.staged.done() else "it was not staged and is lost"
                say(f"{about} is not committed at the end of this process; {what}")
        for saving in self._failed:
            if saving not in pending and not saving.told:
                say(f"cairn: step {saving.step} of run {self.name} failed: {saving.failure}")
        with contextlib.suppress(errors.CairnError):
            self.finish(max(0.1, end - time.monotonic()))


def _await(futures: Iterable[SaveFuture], end: float) -> None:
    """Without being told what has failed."""
    concurrent.futures.wait(futures, timeout=max(0.0, end - time.monotonic()))


def _work_off(work: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    block_signals()
    while (job := work.get()) is not None:
        job()
        del job


def _library_versions() -> dict[str, Any]:
    import platform
    found = {"python": platform.python_version()}
    for name in ("torch", "numpy", "jax", "transformers", "lightning", "deepspeed"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name] = str(version)
    return {"made_by": found}


def say(line: str) -> None:
    log.error("%s", line)
    with contextlib.suppress(Exception):
        print(line, file=sys.stderr, flush=True)


# ---- the sessions of this process ----

_opened: dict[tuple[str, int, bool], Session] = {}
_opened_lock = threading.Lock()


def sessions() -> list[Session]:
    return list(_opened.values())


def known_or_made(name: str, rank: int, read_only: bool, make: Callable[[], Session]) -> Session:
    """One for a run and a rank: a session that saves is the one that reads, too."""
    with _opened_lock:
        for key in ((name, rank, read_only), (name, rank, False)):
            found = _opened.get(key)
            if found is not None and not found.closed and found.pid == os.getpid():
                return found
        made = _opened[name, rank, read_only] = make()
    return made


def _forget(session: Session) -> None:
    with _opened_lock:
        for key, known in list(_opened.items()):
            if known is session:
                del _opened[key]


def _at_exit() -> None:
    seconds = float(os.environ.get("CAIRN_EXIT_WAIT", "10"))
    for session in sessions():
        if session.pid == os.getpid() and not session.closed:
            session.exit(seconds)


def _after_fork() -> None:
    """The parent's sessions are none of this process; their objects say so when they are used."""
    global _opened_lock
    _opened_lock = threading.Lock()
    _opened.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
