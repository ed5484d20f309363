# SPDX-License-Identifier: Apache-2.0
"""A save as its caller knows it: four futures, each of a promise that libcairn makes; and what the package does for it.

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
    from ._session import Session

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

    def __init__(self, saving: Saving) -> None:
        super().__init__()
        self._saving = saving
        self.set_running_or_notify_cancel()

    def _check_begun(self) -> None:
        """To wait for the save of a block inside the block, or after one that an exception has ended, would last for ever."""
        if not self._saving.begun:
            raise errors.make(f"step {self._saving.step}: this save has not begun", code="invalid",
                              hint="it begins at the end of its `with` block, if no exception ends that",
                              **self._saving.context())

    def result(self, timeout: float | None = None) -> Save:
        self._check_begun()
        if self is self._saving.save.staged:
            self._saving.fence()
        try:
            return super().result(timeout)
        except errors.CairnError:
            self._saving.told = True
            raise
        except concurrent.futures.TimeoutError:
            if timeout is None:  # of a signal's handler
                raise
            raise self._saving.late(timeout) from None

    def wait(self, timeout: float | None = None) -> Save:
        return self.result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._check_begun()
        found = super().exception(timeout)
        if found is not None:
            self._saving.told = True
        return found

    def cancel(self) -> bool:
        return self._saving.save.cancel()

    def settle(self, error: BaseException | None) -> None:
        if self.done():
            return
        if error is None:
            self.set_result(self._saving.save)
        else:
            self.set_exception(error)

    def __await__(self) -> Generator[Any, None, Save]:
        self._check_begun()
        return asyncio.wrap_future(self).__await__()


class Save:
    """One rank's part of one checkpoint.

    staged: sources may change. durable: the store has checked this rank's bytes. committed: the whole checkpoint
    can be resumed from. partnered: another node has a copy, or it is committed. Each is a future whose result is
    this save, and `await save` awaits the commit."""

    def __init__(self, saving: Saving) -> None:
        self.run, self.step = saving.session.run, saving.step
        self.staged, self.durable = SaveFuture(saving), SaveFuture(saving)
        self.partnered, self.committed = SaveFuture(saving), SaveFuture(saving)
        self.pickled: list[str] = []
        self._saving = saving

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
        if self.problem:
            return "failed"
        for name in ("committed", "durable", "staged"):
            if getattr(self, name).done():
                return name
        return "begun"

    @property
    def problem(self) -> errors.CairnError | None:
        """Why it failed; None while it has not."""
        return self._saving.failure

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
        return self._saving.progress()

    def cancel(self, reason: str = "cancelled by the trainer") -> bool:
        """Gives the save up for all ranks. False: it is committed already."""
        return self._saving.cancel(reason)


def await_staged(save: Save, submit: Callable[[], None] | None = None) -> None:
    """submit: what begins the save. Whatever a signal's handler raises in here, the caller may change its sources from then
    on: half a copy is given up."""
    try:
        if submit:
            submit()
        save.staged.result()
    except BaseException as error:
        if not save.staged.done():
            save.cancel(f"interrupted by {type(error).__name__}")
        raise


class Saving:
    """What the package knows of a save, and does for it: `save` is what the caller has."""

    def __init__(self, session: Session, step: int) -> None:
        self.session, self.step = session, step
        self.lock = threading.Lock()
        self.handle: ctypes.c_void_p | None = None
        self.cancelled: str | None = None
        self.failure: errors.CairnError | None = None
        self.begun = False  # it is in its session's thread, or was there
        self.told = False  # the caller knows of the failure
        self.held: Any = None  # what libcairn reads until the copy is whole
        self.copied: Callable[[], None] | None = None
        self.verifies = self.fenced = False  # sources are compared once staged is waited for
        self.decided: Callable[[], None] | None = None  # called once rank 0 has sealed
        self._last: Progress | None = None
        self.save = Save(self)

    @property
    def futures(self) -> tuple[SaveFuture, SaveFuture, SaveFuture, SaveFuture]:
        save = self.save
        return save.staged, save.durable, save.partnered, save.committed

    def progress(self) -> Progress:
        with self.lock:
            if self.handle is None:
                return self._last or Progress(0, 0, 0, 0, 0.0, 0.0, "")
            return self._look()

    def _look(self) -> Progress:
        status = _lib.SaveStatus()
        _lib.LIB.cairn_save_status(self.handle, ctypes.byref(status))
        self._last = Progress(status.total_bytes, status.staged_bytes, status.sent_bytes, status.durable_bytes,
                              status.stall_us / 1e6, status.wait_us / 1e6, status.version.decode(), bool(status.away))
        return self._last

    def cancel(self, reason: str) -> bool:
        with self.lock:
            if self.save.committed.done():
                return False
            self.cancelled = reason
            if self.handle is None:
                return True
            code, _ = _lib.attempt("cairn_save_cancel", self.handle, reason.encode())
        return code == _lib.OK

    def late(self, timeout: float | None) -> errors.CairnError:
        """The sentence that libcairn has for what is missing."""
        with self.lock:
            if self.handle is not None:
                code, err = _lib.attempt("cairn_save_poll", self.handle, _lib.COMMITTED)
                if code in (_lib.UPLOADER_GONE, _lib.TIMEOUT):
                    return self._error(code, err)
        missing = "staged" if not self.save.staged.done() else "committed"
        return errors.make(f"step {self.step}: not {missing} after {timeout} s", code="timeout", retryable=True,
                           **self.context())

    def context(self) -> dict[str, Any]:
        return {"run": self.session.name, "step": self.step, "rank": self.session.rank}

    def _error(self, code: int, err: _lib.Error) -> errors.CairnError:
        return _lib.error_of(code, err, **self.context())

    def fail(self, error: errors.CairnError) -> None:
        self.failure = error
        watcher.remove(self)  # before its descriptor is closed, whose number the next save may have
        self._free()
        self.release()
        for future in self.futures:
            future.settle(error)

    def release(self) -> None:
        """The copy is whole, or nothing is read any more."""
        copied, self.copied, self.held = self.copied, None, None
        if copied:
            copied()

    def leave(self) -> None:
        """Its session ends: nobody will hear how it ends."""
        watcher.remove(self)
        self._free()
        what = "the uploader goes on with it" if self.save.staged.done() else "it was not staged"
        error = errors.make(f"step {self.step}: its run was closed before it was committed; {what}", code="timeout",
                            **self.context())
        for future in self.futures:
            future.settle(error)

    def fence(self) -> None:
        """Of a save that verifies its sources: they are to be compared now. Waits for nothing."""
        if not self.verifies or self.save.staged.done():
            return
        with self.lock:
            self.fenced = True
            if self.handle is not None:
                _lib.attempt("cairn_save_fence", self.handle, 1)

    def _free(self) -> None:
        with self.lock:
            if self.handle is not None:
                self._look()
                handle, self.handle = self.handle, None
                _lib.LIB.cairn_save_free(handle)

    def _is_decided(self) -> bool:
        return bool(self.decided) and _lib.attempt("cairn_save_poll", self.handle, _lib.DECIDED)[0] == _lib.OK

    def poll(self) -> bool:
        """Sets the futures of what was reached. True: it is over."""
        failed: errors.CairnError | None = None
        reached: list[str] = []
        with self.lock:
            if self.handle is None:
                return True
            for name, milestone in _MILESTONES:
                if getattr(self.save, name).done():
                    continue
                code, err = _lib.attempt("cairn_save_poll", self.handle, milestone)
                if code == _lib.OK:
                    reached.append(name)
                elif code not in (_lib.TIMEOUT, _lib.UPLOADER_GONE):
                    failed = self._error(code, err)
                    break
            decided = self.decided if not failed and self._is_decided() else None
        if decided:
            self.decided = None
            decided()
        if failed:
            self.fail(failed)
            return True
        if "committed" in reached:  # what lies in the store needs no partner
            self._free()
            reached = [name for name, _ in _MILESTONES]
        if "staged" in reached:
            self.release()
        for name in reached:
            getattr(self.save, name).settle(None)
        return "committed" in reached


class Watcher:
    """One thread for the saves of all runs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._saves: dict[int, Saving] = {}
        self._poll: select.epoll | None = None

    def add(self, saving: Saving) -> None:
        with self._lock:
            if self._poll is None:
                self._poll = select.epoll()
                threading.Thread(target=self._watch, args=(self._poll,), name="cairn-saves", daemon=True).start()
            fd = _lib.LIB.cairn_save_fd(saving.handle)
            if fd < 0:
                saving.fail(errors.make("no descriptor is left to watch the save with", code="io-error",
                                        hint="raise the limit: ulimit -n", **saving.context()))
                return
            self._keep(fd, saving)

    def _keep(self, fd: int, saving: Saving) -> None:
        if self._poll is not None and fd not in self._saves:
            self._saves[fd] = saving
            self._poll.register(fd, select.EPOLLIN)

    def _take(self, fd: int) -> Saving | None:
        """Out of the set: its descriptor is closed with its handle."""
        with self._lock:
            saving = self._saves.pop(fd, None)
            if saving is not None and self._poll is not None:
                self._poll.unregister(fd)
            return saving

    def remove(self, saving: Saving) -> None:
        for fd, known in list(self._saves.items()):
            if known is saving:
                self._take(fd)

    def _watch(self, poll: select.epoll) -> None:
        block_signals()
        while True:
            for fd, _ in poll.poll():
                saving = self._take(fd)
                if saving is None:
                    continue
                if saving.poll():
                    saving.session.over(saving)
                    continue
                with self._lock:
                    self._keep(fd, saving)

    def forget(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._lock, self._saves, self._poll = threading.Lock(), {}, None


watcher = Watcher()
os.register_at_fork(after_in_child=watcher.forget)
