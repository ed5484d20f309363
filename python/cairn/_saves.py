# SPDX-License-Identifier: Apache-2.0
"""A save as its caller knows it: four futures, each of a promise that libcairn makes.

A thread of the process waits for the descriptors of all saves and sets their futures; so no thread waits in a
call, and any number of event loops and threads can wait for one future."""
from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import os
import select
import signal
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _lib, errors

if TYPE_CHECKING:
    from ._run import Run

_MILESTONES = (("staged", _lib.COPIED), ("durable", _lib.DURABLE), ("partnered", _lib.PARTNERED), ("committed", _lib.COMMITTED))


def block_signals() -> None:
    """For threads of this package: a signal is for the program's own threads."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


@dataclass(frozen=True)
class Progress:
    """Bytes of this rank's objects, headers included; each grows up to total."""
    total: int
    staged: int
    sent: int
    durable: int
    stall_s: float
    wait_s: float
    version: str
    away: bool = False  # copied, but no uploader has it: the next one takes it over


class SaveFuture(concurrent.futures.Future["Save"]):
    """Its result is the save. Who has seen its exception is not told of it again by check()."""

    def __init__(self, save: Save) -> None:
        super().__init__()
        self._save = save
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Save:
        if self is self._save.staged:
            self._save._fence()
        try:
            return super().result(timeout)
        except errors.CairnError:
            self._save._seen()
            raise
        except concurrent.futures.TimeoutError:
            raise self._save._late(timeout) from None

    def wait(self, timeout: float | None = None) -> Save:
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        found = super().exception(timeout)
        if found is not None:
            self._save._seen()
        return found

    def cancel(self) -> bool:
        return self._save.cancel()

    def settle(self, error: BaseException | None) -> None:
        if self.done():
            return
        if error is None:
            self.set_result(self._save)
        else:
            self.set_exception(error)

    def __await__(self) -> Generator[Any, None, Save]:
        return asyncio.wrap_future(self).__await__()


class Save:
    """One rank's part of one checkpoint.

    staged: sources may change. durable: the store has checked this rank's bytes. committed: the whole checkpoint
    can be resumed from. partnered: another node has a copy, or it is committed. Each is a future whose result is
    this save, and `await save` awaits the commit."""

    def __init__(self, run: Run, step: int) -> None:
        self.run, self.step = run, step
        self.staged, self.durable = SaveFuture(self), SaveFuture(self)
        self.partnered, self.committed = SaveFuture(self), SaveFuture(self)
        self.pickled: list[str] = []
        self._lock = threading.Lock()
        self._handle: ctypes.c_void_p | None = None
        self._last: Progress | None = None
        self._cancelled: str | None = None
        self._failure: errors.CairnError | None = None
        self._told = False
        self._held: Any = None  # what libcairn reads until the copy is whole
        self._copied: Callable[[], None] | None = None
        self._verifies = self._fenced = False  # sources are compared once staged is waited for
        self._decided: Callable[[], None] | None = None  # called once rank 0 has sealed

    def __repr__(self) -> str:
        return f"<cairn.Save {self.run.name}@{self.step}: {self.state}>"

    @property
    def staging_completion(self) -> SaveFuture:
        return self.staged

    @property
    def upload_completion(self) -> SaveFuture:
        return self.committed

    @property
    def state(self) -> str:
        if self._failure:
            return "failed"
        for name in ("committed", "durable", "staged"):
            if getattr(self, name).done():
                return name
        return "begun"

    @property
    def problem(self) -> errors.CairnError | None:
        """Why it failed; None while it has not."""
        return self._failure

    @property
    def version(self) -> str:
        return self.progress().version

    def result(self, timeout: float | None = None) -> Save:
        """Waits for the commit."""
        return self.committed.result(timeout)

    def __await__(self) -> Generator[Any, None, Save]:
        return self.committed.__await__()

    def add_done_callback(self, done: Callable[[Save], Any]) -> None:
        """done(save) once it is committed or has failed."""
        self.committed.add_done_callback(lambda _: done(self))

    def progress(self) -> Progress:
        with self._lock:
            if self._handle is None:
                return self._last or Progress(0, 0, 0, 0, 0.0, 0.0, "")
            return self._look()

    def _look(self) -> Progress:
        status = _lib.SaveStatus()
        _lib.LIB.cairn_save_status(self._handle, ctypes.byref(status))
        self._last = Progress(status.total_bytes, status.staged_bytes, status.sent_bytes, status.durable_bytes,
                              status.stall_us / 1e6, status.wait_us / 1e6, status.version.decode(), bool(status.away))
        return self._last

    def cancel(self, reason: str = "cancelled by the trainer") -> bool:
        """Gives the save up for all ranks. False: it is committed already."""
        with self._lock:
            if self.committed.done():
                return False
            self._cancelled = reason
            if self._handle is None:
                return True
            code, _ = _lib.attempt("cairn_save_cancel", self._handle, reason.encode())
        return code == _lib.OK

    # ---- for the run ----

    def _seen(self) -> None:
        self._told = True

    def _late(self, timeout: float | None) -> errors.CairnError:
        """The sentence that libcairn has for what is missing."""
        with self._lock:
            if self._handle is not None:
                code, err = _lib.attempt("cairn_save_poll", self._handle, _lib.COMMITTED)
                if code == _lib.UPLOADER_GONE:
                    return self._error(code, err)
                if code == _lib.TIMEOUT:
                    return self._error(code, err)
        return errors.make(f"step {self.step}: not {'staged' if not self.staged.done() else 'committed'} after {timeout} s",
                           code="timeout", retryable=True, **self._context())

    def _context(self) -> dict[str, Any]:
        return {"run": self.run.name, "step": self.step, "rank": self.run.rank}

    def _error(self, code: int, err: _lib.Error) -> errors.CairnError:
        return _lib.error_of(code, err, **self._context())

    def _fail(self, error: errors.CairnError) -> None:
        self._failure = error
        watcher.remove(self)  # before its descriptor is closed, whose number the next save may have
        self._free()
        self._release()
        for future in (self.staged, self.durable, self.partnered, self.committed):
            future.settle(error)

    def _release(self) -> None:
        """The copy is whole, or nothing is read any more."""
        copied, self._copied, self._held = self._copied, None, None
        if copied:
            copied()

    def _leave(self) -> None:
        """Its session ends: nobody will hear how it ends."""
        watcher.remove(self)
        self._free()
        what = "the uploader goes on with it" if self.staged.done() else "it was not staged"
        error = errors.make(f"step {self.step}: its run was closed before it was committed; {what}", code="timeout",
                            **self._context())
        for future in (self.staged, self.durable, self.partnered, self.committed):
            future.settle(error)

    def _fence(self) -> None:
        """Of a save that verifies its sources: they are to be compared now. Waits for nothing."""
        if not self._verifies or self.staged.done():
            return
        with self._lock:
            self._fenced = True
            if self._handle is not None:
                _lib.attempt("cairn_save_fence", self._handle, 1)

    def _free(self) -> None:
        with self._lock:
            if self._handle is not None:
                self._look()
                handle, self._handle = self._handle, None
                _lib.LIB.cairn_save_free(handle)

    def _is_decided(self) -> bool:
        return bool(self._decided) and _lib.attempt("cairn_save_poll", self._handle, _lib.DECIDED)[0] == _lib.OK

    def _poll(self) -> bool:
        """Sets the futures of what was reached. True: it is over."""
        failed: errors.CairnError | None = None
        reached = []
        with self._lock:
            if self._handle is None:
                return True
            for name, milestone in _MILESTONES:
                if getattr(self, name).done():
                    continue
                code, err = _lib.attempt("cairn_save_poll", self._handle, milestone)
                if code == _lib.OK:
                    reached.append(name)
                elif code not in (_lib.TIMEOUT, _lib.UPLOADER_GONE):
                    failed = self._error(code, err)
                    break
            decided = self._decided if not failed and self._is_decided() else None
        if decided:
            self._decided = None
            decided()
        if failed:
            self._fail(failed)
            return True
        if "committed" in reached:  # what lies in the store needs no partner
            self._free()
            reached = ["staged", "durable", "partnered", "committed"]
        if "staged" in reached:
            self._release()
        for name in reached:
            getattr(self, name).settle(None)
        return "committed" in reached


class Watcher:
    """One thread for the saves of all runs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._saves: dict[int, Save] = {}
        self._poll: select.epoll | None = None

    def add(self, save: Save) -> None:
        with self._lock:
            if self._poll is None:
                self._poll = select.epoll()
                threading.Thread(target=self._watch, args=(self._poll,), name="cairn-saves", daemon=True).start()
            fd = _lib.LIB.cairn_save_fd(save._handle)
            if fd < 0:
                save._fail(errors.make("no descriptor is left to watch the save with", code="io-error",
                                       hint="raise the limit: ulimit -n", **save._context()))
                return
            self._keep(fd, save)

    def _keep(self, fd: int, save: Save) -> None:
        if self._poll is not None and fd not in self._saves:
            self._saves[fd] = save
            self._poll.register(fd, select.EPOLLIN)

    def _take(self, fd: int) -> Save | None:
        """Out of the set: its descriptor is closed with its handle."""
        with self._lock:
            save = self._saves.pop(fd, None)
            if save is not None and self._poll is not None:
                self._poll.unregister(fd)
            return save

    def remove(self, save: Save) -> None:
        for fd, known in list(self._saves.items()):
            if known is save:
                self._take(fd)

    def _watch(self, poll: select.epoll) -> None:
        block_signals()
        while True:
            for fd, _ in poll.poll():
                save = self._take(fd)
                if save is None:
                    continue
                if save._poll():
                    save.run._over(save)
                    continue
                with self._lock:
                    self._keep(fd, save)

    def forget(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._lock, self._saves, self._poll = threading.Lock(), {}, None


watcher = Watcher()
os.register_at_fork(after_in_child=watcher.forget)
