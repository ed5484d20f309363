# SPDX-License-Identifier: Apache-2.0
"""A storage of torch_checkpointing: its checkpoints go to Cairn, also from the process that it starts for saving.

    CheckpointManager(CheckpointManager.Config(storage_config=CairnStorageConfig("llm/7b"), ...))
    manager.save("step_100", {...})

A checkpoint id ends in its step. Files are collected under the temporary name that torch_checkpointing gives them; the
rename of the first rank commits, and the other ranks seal when they look for the folder after the barrier, so that no
rank waits for another in Cairn."""
from __future__ import annotations

import io
import os
import pathlib
import re
from dataclasses import dataclass
from typing import Any

from torch_checkpointing.storage.base_storage import ReadArgs, Storage, StorageConfig

from . import _files, errors
from ._place import common_job, place
from ._run import Run, run as open_run, session_of
from .checkpoint import Checkpoint, Shard
from .fs import ReadFile

_STEP = re.compile(r"(\d+)\D*$")


@dataclass
class CairnStorageConfig(StorageConfig):
    """run: project/run. It can be pickled: rank, world size and job are those of the process that made it."""
    run: str
    socket: str | None = None
    temp_dir_prefix: str = "tmp_"
    rank: int | None = None
    world_size: int | None = None
    job: str | None = None

    def __post_init__(self) -> None:
        self.rank, self.world_size = place(self.rank, self.world_size)
        self.job = self.job or common_job(self.run, self.rank, self.world_size)
        self.socket = self.socket or os.environ.get("CAIRN_SOCKET")

    def create_storage(self) -> Storage:
        return CairnStorage(self)


class CairnStorage(Storage):
    def __init__(self, config: CairnStorageConfig) -> None:
        self._config = config

    @property
    def mmap_fill_workers(self) -> int | None:
        return 4

    @property
    def mmap_fill_chunk_bytes(self) -> int | None:
        return 64 << 20

    # ---- paths ----

    def _split(self, path: Any) -> tuple[str, str]:
        """The folder of the checkpoint and the file in it."""
        text = str(path).removeprefix("cairn:/").lstrip("/").removeprefix(self._config.run).lstrip("/")
        folder, _, file = text.partition("/")
        return folder, file

    def _step(self, folder: str) -> int:
        found = _STEP.search(folder)
        if not found:
            raise errors.make(f"checkpoint id {folder!r} has no step number", code="invalid", run=self._config.run,
                              hint="end it in the step: step_1200")
        return int(found[1])

    def _is_temporary(self, folder: str) -> bool:
        return folder.startswith(self._config.temp_dir_prefix)

    def _writing(self, folder: str, make: bool) -> _files.Folder | None:
        config = self._config
        found, named_at_last = _files.folder(config.run, self._step(folder), make=False), self._is_temporary(folder)
        same = found and found.sealed_by_itself == named_at_last  # or it is the other one of `tmp_step_3` and `step_3`
        if same or not make:
            return found if same else None
        if found:
            _files.forget(found)
        if not named_at_last and config.world_size != 1:
            raise errors.make(f"{folder} is written under its own name, so that no rank knows when it is whole",
                              code="unsupported", run=config.run, step=self._step(folder),
                              hint="let CheckpointWriterConfig keep its barrier_config and write_to_temp_dir")
        run = open_run(config.run, rank=config.rank, world_size=config.world_size, job=config.job, socket=config.socket)
        return _files.folder(config.run, self._step(folder), make=True, run=run, sealed_by_itself=named_at_last)

    def _reader(self) -> Run:
        return open_run(self._config.run, read_only=True, socket=self._config.socket, rank=self._config.rank,
                        world_size=self._config.world_size)

    def _committed(self, folder: str, look: bool = True) -> Checkpoint | None:
        """look: for names and sizes alone, without a lease that would keep the version."""
        if not _STEP.search(folder):
            return None
        run = self._reader()
        try:
            return Checkpoint(session_of(run).open(str(self._step(folder)), look=look))
        except errors.NotFound:
            return None

    # ---- reading ----

    def _shard(self, path: Any, look: bool = False) -> Shard:
        folder, file = self._split(path)
        found = self._committed(folder, look) if not self._is_temporary(folder) else None
        shards = found.shards if found else {}
        if file not in shards:
            raise FileNotFoundError(str(path))
        return shards[file]

    def stream_read(self, path: pathlib.Path, read_args: ReadArgs | None = None) -> io.RawIOBase:
        folder, file = self._split(path)
        writing = self._writing(folder, make=False) if self._is_temporary(folder) else None
        if writing and file in writing.files:
            return _Bytes(writing.read(file))
        return ReadFile(self._shard(path))

    def exists(self, path: pathlib.Path) -> bool:
        folder, file = self._split(path)
        if self._is_temporary(folder):
            # A rank may have no file; it seals that, or the checkpoint would never be whole.
            writing = self._writing(folder, make=not file and self._config.world_size != 1)
            if not file and writing and writing.run.rank != 0:
                writing.seal()
                return True
            return bool(writing and (not file or file in writing.files))
        found = self._committed(folder)
        return bool(found) and (not file or file in found.shards or
                                any(name.startswith(file + "/") for name in found.shards))

    def isdir(self, path: pathlib.Path) -> bool:
        folder, file = self._split(path)
        return not file and (bool(self._writing(folder, make=False)) if self._is_temporary(folder)
                             else bool(self._committed(folder)))

    def getsize(self, path: pathlib.Path) -> int:
        return self._shard(path, look=True).bytes

    def ls(self, path: pathlib.Path) -> list[str]:
        folder, file = self._split(path)
        if not folder:
            return [f"step_{row.step}" for row in self._reader().list() if not row.superseded]
        writing = self._writing(folder, make=False) if self._is_temporary(folder) else None
        found = None if writing else self._committed(folder)
        names = list(writing.files) if writing else list(found.shards) if found else []
        head = file + "/" if file else ""
        return sorted({name[len(head):].split("/")[0] for name in names if name.startswith(head)})

    # ---- writing ----

    def stream_write(self, path: pathlib.Path) -> io.IOBase:
        folder, file = self._split(path)
        writing = self._writing(folder, make=True)
        assert writing
        return writing.open(file)

    def write(self, path: pathlib.Path, data: Any) -> None:
        with self.stream_write(path) as stream:
            stream.write(data)

    def mkdir(self, path: pathlib.Path, recursive: bool = True) -> None:
        folder, _ = self._split(path)
        self._writing(folder, make=True)

    def _of_committed(self, folder: str, file: str) -> _files.Folder | None:
        """To change a file of a committed checkpoint that nobody writes; None: it has none of that name, or of several ranks."""
        if self._is_temporary(folder) or self._config.world_size != 1:
            return None
        found = self._committed(folder)
        files = self._writing(folder, make=True) if found and file in found.shards else None
        if files:
            files.join()
        return files

    def delete(self, path: pathlib.Path) -> None:
        folder, file = self._split(path)
        writing = self._writing(folder, make=False)
        if writing and writing.remove(file):
            return
        committed = None if writing else self._of_committed(folder, file)
        if not committed:
            raise FileNotFoundError(str(path))
        if len(committed.files) > 1:
            committed.change(lambda: committed.remove(file))
        else:
            self.rmdir(pathlib.Path(folder))

    def rmdir(self, path: pathlib.Path) -> None:
        folder, _ = self._split(path)
        writing = self._writing(folder, make=False)
        if writing:
            _files.forget(writing)
            return
        self._reader().remove(self._step(folder))

    def rename(self, src_path: pathlib.Path, dst_path: pathlib.Path, *arguments: Any, **options: Any) -> None:
        folder, file = self._split(src_path)
        to_folder, to_file = self._split(dst_path)
        writing = self._writing(folder, make=False)
        if file:
            committed = None if writing or folder != to_folder else self._of_committed(folder, file)
            files = writing or committed
            if not files or folder != to_folder:
                raise FileNotFoundError(str(src_path))
            if any(name.startswith(to_file + "/") for name in files.files):
                raise IsADirectoryError(str(dst_path))
            if committed:
                committed.change(lambda: committed.rename(file, to_file))
            else:
                files.rename(file, to_file)
            return
        if not writing or self._step(folder) != self._step(to_folder):
            raise FileNotFoundError(f"{src_path}: nothing is being written there, or {dst_path} is another step")
        found = self._committed(to_folder)
        if found and found.attempt >= writing.run.attempt:  # an earlier job's, from which this one did not go on, is replaced
            raise FileExistsError(f"{dst_path} is a committed checkpoint; save under another step, or delete it first")
        writing.commit()

    def remap_path(self, path: pathlib.Path) -> str:
        folder, file = self._split(path)
        return f"cairn://{self._config.run}/{self._step(folder)}/{file}".rstrip("/")


class _Bytes(io.RawIOBase):
    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        return self._data.readinto(into)


__all__ = ["CairnStorage", "CairnStorageConfig"]
