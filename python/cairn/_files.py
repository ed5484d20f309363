# SPDX-License-Identifier: Apache-2.0
"""A checkpoint as a folder of files that is being written: for programs that know files only.

Each file is anonymous memory until the save begins, and becomes a shard under its own name; the uploader reads it
from there, so no copy is made and no size need be known before. The checkpoint is committed whole: by the rename
that ends it (`.metadata.tmp` to `.metadata`, `tmp_1200` to `1200`), at the end of a transaction, or at the close of a
file that belongs to none of these.

Where several ranks write one checkpoint, the first one knows when it is whole. The others begin their part of the save
as soon as they write, or make its folder, and are told by Cairn when the first has sealed its own; no collective is
called, and no process group is needed."""
from __future__ import annotations

import io
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from . import _lib, errors
from ._place import place
from ._run import Run, run as open_run, session_of
from ._saves import Save, Saving, watcher
from .checkpoint import Row

# Frameworks' names of a step's folder; a version bears its own as the label `name`.
_STEP = re.compile(r"(?:(?:global_?step|step|checkpoint|epoch|iteration|iter)[-_]?)?(\d+)")
# Files of which more follow until something is renamed.
_PART_OF_MORE = (".distcp", ".metadata", ".metadata.tmp")
_CARRIED_BYTES = 16 << 20


def is_part(name: str) -> bool:
    return name.endswith(_PART_OF_MORE) or name.startswith("tmp_")


def step_of(name: str) -> int | None:
    """Of a folder `1200`, `step-1200`, `checkpoint-1200`, `epoch_3`; None: it is an alias, a version or `latest`."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None


def name_of(row: Row) -> str:
    """The folder that a version was written as."""
    name = row.labels.get("name", "")
    return name if step_of(name) == row.step else str(row.step)


class WriteFile(io.RawIOBase):
    """One file of a checkpoint. close() raises where it cannot become part of it."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder, self.name, self.mode = folder, name, "wb"
        self._fd = os.memfd_create(f"cairn:{name[-200:]}", os.MFD_CLOEXEC)
        self._discarded = False
        self._handled = sys.exc_info()[1]  # a file may be written where an exception is handled

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError("write to a closed file")
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            done += os.write(self._fd, view[done:])
        return len(view)

    def seek(self, offset: int, whence: int = 0) -> int:
        return os.lseek(self._fd, offset, whence)

    def tell(self) -> int:
        return os.lseek(self._fd, 0, 1)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        os.ftruncate(self._fd, size)
        return size

    def discard(self) -> None:
        self._discarded = True
        self.close()

    def close(self) -> None:
        if self.closed:
            return
        raised, handled, self._handled = sys.exc_info()[1], self._handled, None  # whose frames hold what was saved
        if raised is not None and raised is not handled and not self._discarded:
            # The end of a block of fsspec.open(), and of a text or compressed file, calls close() whether or not there was an
            # exception: half a file would be committed.
            self._discarded = True
            warnings.warn(f"cairn://{self._folder.run.name}/{self._folder.name}/{self.name} is not saved, because it is closed "
                          f"while {type(raised).__name__} is raised or handled", RuntimeWarning, stacklevel=2)
        super().close()
        if self._discarded:
            os.close(self._fd)
            self._folder.dropped(self.name)
        else:
            self._folder.closed(self.name, self._fd)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self._discarded = True  # half a file is no file
        self.close()


class Folder:
    """One step that this process writes files of."""

    def __init__(self, run: Run, step: int, sealed_by_itself: bool = False, name: str | None = None) -> None:
        self.run, self.step, self.name = run, step, name or str(step)
        self._session = session_of(run)
        self.sealed_by_itself = sealed_by_itself  # each rank calls seal() or commit()
        self.files: dict[str, int] = {}
        self.opened: set[str] = set()
        self.transaction = False
        self._saving: Saving | None = None
        self._lock = threading.RLock()
        self._one_commit = threading.Lock()  # of files that are committed by their close
        self._closed, self._covered = 0, 0   # files so far, and those of the last commit
        self._joined = False
        self._decided = False

    # ---- files ----

    def open(self, name: str) -> WriteFile:
        with self._lock:
            self.opened.add(name)
        return WriteFile(self, name)

    def closed(self, name: str, fd: int) -> None:
        with self._lock:
            self.opened.discard(name)
            if name in self.files:
                os.close(self.files[name])
            self.files[name] = fd
            self._closed += 1
            own = self._closed
            alone = not (self.opened or self.transaction or self.sealed_by_itself or any(map(is_part, self.files))
                         or self.follows)
        if alone:
            with self._one_commit:
                if own > self._covered:  # else the commit of another thread's file had it
                    self.join()
                    with self._lock:
                        covers = self._closed
                    self.commit(keep=True)
                    self._covered = covers

    @property
    def rests(self) -> bool:
        """Nothing of it is to be committed."""
        with self._lock:
            return 0 < self._covered == self._closed and not self.opened

    def join(self) -> None:
        """Files that a committed version of the step has already stay in it, also where another process wrote them."""
        if self._joined or self.run.world_size != 1:
            return
        try:
            found = self.run.at(self.step)
        except errors.NotFound:
            found = None
        if found is not None:
            with found:
                if found.tensors:
                    raise errors.make(f"{self.run.name}@{self.step} is a checkpoint of tensors, which a file cannot join",
                                      code="step-exists", run=self.run.name, step=self.step,
                                      hint="write to another step, or remove the checkpoint first")
                for name, shard in found.shards.items() if found.world_size == 1 else ():
                    fd = os.memfd_create(f"cairn:{name[-200:]}", os.MFD_CLOEXEC)
                    with open(fd, "wb", closefd=False) as file:
                        for at in range(0, shard.bytes, _CARRIED_BYTES):
                            file.write(shard.read(at, min(_CARRIED_BYTES, shard.bytes - at)))
                    with self._lock:
                        if self.files.setdefault(name, fd) != fd:
                            os.close(fd)
        self._joined = True

    def change(self, change: Callable[[], object]) -> None:
        """Of files that a version has already: another version takes its place, with its files changed."""
        with self._one_commit:
            self.join()
            with self._lock:
                change()
                self._closed += 1
                covers = self._closed
            self.commit(keep=True)
            self._covered = covers

    def dropped(self, name: str) -> None:
        """A file that was not written to its end."""
        with self._lock:
            self.opened.discard(name)
            empty = not (self.opened or self.files or self.transaction or self.sealed_by_itself or takes_part())
        if empty:
            forget(self)

    def rename(self, name: str, to: str) -> None:
        with self._lock:
            if name not in self.files:
                raise errors.make(f"{self.run.name}@{self.step}: no file {name} is being written", code="not-found",
                                  run=self.run.name, step=self.step)
            if to in self.files:
                os.close(self.files[to])
            self.files[to] = self.files.pop(name)

    def remove(self, name: str) -> bool:
        with self._lock:
            fd = self.files.pop(name, None)
        if fd is None:
            return False
        os.close(fd)
        return True

    def size(self, name: str) -> int | None:
        fd = self.files.get(name)
        return None if fd is None else os.fstat(fd).st_size

    def modified(self, name: str) -> float | None:
        """When the file, or the newest one below a folder of this name ("" for all), was written; None: there is none."""
        with self._lock:
            return max((os.fstat(fd).st_mtime for known, fd in self.files.items()
                        if not name or known == name or known.startswith(name + "/")), default=None)

    def read(self, name: str) -> bytes:
        return os.pread(self.files[name], os.fstat(self.files[name]).st_size, 0)

    def discard(self) -> None:
        if self.follows and self._saving and not self._decided:
            self._saving.cancel("its folder was given up")
        for name in list(self.files):
            self.remove(name)

    # ---- the save ----

    @property
    def save(self) -> Save | None:
        return self._saving.save if self._saving else None

    def commit(self, timeout: float | None = None, keep: bool = False) -> None:
        """All files, as one checkpoint; returns when it is committed. keep: further files of this step join them, in
        a version that supersedes this one."""
        try:
            self._stage().save.committed.result(timeout)
        finally:
            if not keep:
                forget(self)

    def seal(self) -> None:
        """This rank's files are whole."""
        if self._saving is None:
            self._stage()
            forget(self)

    def give_up(self, why: BaseException) -> None:
        """This rank will not finish its files: the ranks that wait for the commit hear why."""
        session, told = self._session, f"{type(why).__name__}: {why}"
        if self._saving is None:
            saving = self._saving = Saving(session, self.step)
            options = self._options()

            def work() -> None:
                session.begin(saving, options)
                raise errors.make(told, code="internal", **saving.context())
            session.submit(saving, work)
            saving.save.committed.exception()  # who calls raises it
        else:
            self._saving.cancel(told)
        self.discard()

    def _stage(self) -> Saving:
        saving = self._saving = Saving(self._session, self.step)
        options = self._options()

        def work() -> None:
            self._session.begin(saving, options)
            self._hand_over(saving)
        self._session.submit(saving, work)
        saving.save.staged.result()
        return saving

    def _options(self) -> _lib.SaveOptions:
        return self._session.options("supersede", "wait", None if self.name.isdigit() else {"name": self.name})

    def _hand_over(self, saving: Saving) -> None:
        with self._lock:  # another thread may close a file of the same step
            for name, fd in self.files.items():
                _lib.call("cairn_save_file", saving.handle, _lib.text(name), fd, os.fstat(fd).st_size, **saving.context())
        self._session.copy(saving)

    # ---- several ranks ----

    @property
    def follows(self) -> bool:
        return self.run.world_size > 1 and self.run.rank != 0 and not self.sealed_by_itself

    def follow(self) -> None:
        """In a rank that is not the first: begins, and seals its files when the first rank has sealed its own."""
        session, options = self._session, self._options()
        saving = self._saving = Saving(session, self.step)
        options.follow = 1

        def work() -> None:
            session.begin(saving, options)
            saving.decided = lambda: session.submit(saving, seal)
            watcher.add(saving)

        def seal() -> None:
            self._decided = True
            try:
                self._hand_over(saving)
            finally:
                forget(self)
        session.submit(saving, work)


# ---- folders of this process ----

_folders: dict[tuple[str, int], Folder] = {}
_lock = threading.Lock()


def folder(name: str, step: int, make: bool, run: Run | None = None, sealed_by_itself: bool = False,
           called: str | None = None) -> Folder | None:
    """The one that is being written, or a new one. What is over of other steps of the run goes."""
    key = (name, step)
    with _lock:
        found = _folders.get(key)
    if found and called not in (None, found.name):
        if make:
            raise _two_names(name, step, found.name, str(called))
        return None
    if found and not make and found.rests:
        return None  # what is committed is read from there: another process may have added to it
    if found or not make:
        return found
    made = Folder(run or open_run(name), step, sealed_by_itself, called)
    if called and not made.follows:
        _check_name(made)
    with _lock:
        over = [known for known in _folders.values() if known.run is made.run and known.save
                and known.save.committed.done()]
        found = _folders.setdefault(key, made)
    for known in over:
        forget(known)
    if found is made and made.follows:
        made.follow()
    return found


def _check_name(made: Folder) -> None:
    try:
        row = made.run.find(made.step)
    except errors.CairnError as error:
        if not error.retryable:
            raise
        return  # a save does not fail because the server is away for a moment
    if row and row.state == "committed" and name_of(row) != made.name:
        raise _two_names(made.run.name, made.step, name_of(row), made.name)


def _two_names(run: str, step: int, one: str, other: str) -> errors.CairnError:
    return errors.make(f"cairn://{run}/{other} has the step number of cairn://{run}/{one}, which it would replace",
                       code="step-exists", run=run, step=step, hint="write to another run, or remove the other first")


def forget(known: Folder) -> None:
    with _lock:
        if _folders.get((known.run.name, known.step)) is known:
            del _folders[known.run.name, known.step]
    known.discard()


def takes_part() -> bool:
    """Whether this process is one of several ranks."""
    return place(None, None)[1] > 1
