# SPDX-License-Identifier: Apache-2.0
"""Puts Cairn under torch_checkpointing's own tests, which know its LocalFileSystemStorage alone: a plugin for pytest
(`-p suite_storage`), and for the processes that the tests start, by what pytest's own process writes for them.

A folder of the tests is a checkpoint in a run of its parent's, its name a step number of ours. What is written through the
storage goes to Cairn, and a copy, read back from Cairn, to the disk, where the tests look for it with os.path. What is read
comes from Cairn, but for files that the test itself has put on the disk or changed there."""
import hashlib
import os
import pathlib
import shutil
import sys
import zlib

TEMPORARY = "tmp_"
FILESYSTEM = "torch_checkpointing.storage.filesystem"
# For the processes that tests start: Python imports it before anything else.
SITE = """
import importlib.machinery, sys

class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name != %r:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        run = found.loader.exec_module
        def exec_module(module):
            run(module)
            import suite_storage
            suite_storage.put_under(module)
        found.loader.exec_module = exec_module
        return found

sys.meta_path.insert(0, _Finder())
""" % FILESYSTEM


def _digest(path):
    return hashlib.sha256(str(path).encode()).hexdigest()[:20]


class _Known:
    """What processes of the tests tell each other: folders that are checkpoints, and which files of the disk are copies."""
    root = pathlib.Path(os.environ.get("CAIRN_SUITE_FOLDER", "/nonexistent"))

    @classmethod
    def _mark(cls, kind, path):
        return cls.root / f"{kind}-{_digest(os.path.abspath(path))}"

    @staticmethod
    def _look(path):
        status = os.stat(path)
        return f"{status.st_ino} {status.st_mtime_ns} {status.st_size}"

    @classmethod
    def is_folder(cls, path):
        return cls._mark("folder", path).exists()

    @classmethod
    def add_folder(cls, path):
        cls._mark("folder", path).touch()

    @classmethod
    def remove_folder(cls, path):
        cls._mark("folder", path).unlink(missing_ok=True)

    @classmethod
    def add_copy(cls, path):
        cls._mark("copy", path).write_text(cls._look(path))

    @classmethod
    def is_copy(cls, path):
        try:
            return cls._mark("copy", path).read_text() == cls._look(path)
        except OSError:
            return False


def _make(module):
    from cairn.torch_checkpointing import CairnStorageConfig

    class OverCairn(module.LocalFileSystemStorage):
        def __init__(self, config):
            super().__init__(config)
            self._runs = {}

        def _place(self, path):
            """The storage of the run that a path is in, and the path there; None: of no checkpoint."""
            path = pathlib.Path(os.path.abspath(path))
            above = [path, *path.parents][:-2]
            folder = next((one for one in above if one.name.startswith(TEMPORARY) or _Known.is_folder(one)), None)
            return (self._run(folder.parent), self._name(folder) / path.relative_to(folder), folder) if folder else None

        def _new_place(self, path):
            """Of a file that is written: of its folder, where that is no checkpoint yet."""
            found = self._place(path)
            if found is None:
                _Known.add_folder(pathlib.Path(path).parent)
                found = self._place(path)
            return found

        @staticmethod
        def _name(folder):
            head = TEMPORARY if folder.name.startswith(TEMPORARY) else ""
            return pathlib.Path(f"{head}step_{zlib.crc32(folder.name.removeprefix(TEMPORARY).encode())}")

        def _run(self, parent):
            if parent not in self._runs:
                self._runs[parent] = CairnStorageConfig(f"suite/{_digest(parent)}").create_storage()
            return self._runs[parent]

        def _copy(self, path):
            """What Cairn has of a file, to where the test looks for it."""
            run, inside, _ = self._place(path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with run.stream_read(inside) as read, open(path, "wb") as out:
                shutil.copyfileobj(read, out)
            _Known.add_copy(path)

        def stream_write(self, path):
            if not os.path.isdir(os.path.dirname(path)):
                return super().stream_write(path)  # which says so
            run, inside, _ = self._new_place(path)
            stream = run.stream_write(inside)
            close = stream.close

            def close_and_copy():
                over = stream.closed
                close()
                if not over and not stream._discarded:
                    self._copy(path)
            stream.close = close_and_copy
            return stream

        def write(self, path, data):
            with self.stream_write(path) as stream:
                stream.write(data)

        def stream_read(self, path, read_args=None):
            place = self._place(path) if _Known.is_copy(path) else None
            return place[0].stream_read(place[1], read_args) if place else super().stream_read(path, read_args)

        def mkdir(self, path, recursive=True):
            super().mkdir(path, recursive)
            place = self._place(path)
            if place:
                place[0].mkdir(place[1], recursive)

        def rmdir(self, path):
            place = self._place(path)
            if place and place[1].parent == pathlib.Path("."):
                if place[0].exists(place[1]):  # without files Cairn has no folder
                    place[0].rmdir(place[1])
                _Known.remove_folder(place[2])
            super().rmdir(path)

        def rename(self, src_path, dst_path, is_directory=False, background_cleanup=False):
            place = self._place(src_path)
            if place is None or place[2] != pathlib.Path(os.path.abspath(src_path)):
                return self._rename_file_of(place, src_path, dst_path)
            own = not _Known.is_folder(dst_path)
            if own and os.path.exists(dst_path) and (not os.path.isdir(dst_path) or os.listdir(dst_path)):
                raise FileExistsError(f"{dst_path} is occupied by files of the test's own")
            if not own and not os.path.exists(dst_path):  # the test has removed the checkpoint from the disk
                self._run(place[2].parent).rmdir(self._name(pathlib.Path(os.path.abspath(dst_path))))
            target = pathlib.Path(os.path.abspath(dst_path))
            names = [pathlib.Path(where, name).relative_to(src_path) for where, _, names in os.walk(src_path) for name in names]
            place[0].rename(place[1], self._name(target), is_directory, background_cleanup)
            _Known.add_folder(target)
            shutil.rmtree(src_path)
            os.makedirs(target, exist_ok=True)
            for name in names:
                self._copy(target / name)

        def _rename_file_of(self, place, src_path, dst_path):
            if place and _Known.is_copy(src_path):
                to = self._place(dst_path)
                place[0].rename(place[1], to[1] if to else pathlib.Path(dst_path))
                super().rename(src_path, dst_path)
                _Known.add_copy(dst_path)
            else:
                super().rename(src_path, dst_path)

        def ls(self, path):
            names = super().ls(path)
            place = self._place(path)
            return sorted({*names, *place[0].ls(place[1])}) if place else names

        def delete(self, path):
            place = self._place(path) if _Known.is_copy(path) else None
            if place:
                place[0].delete(place[1])
            super().delete(path)

        def exists(self, path):
            place = self._place(path)
            if place:
                place[0].exists(place[1])  # at which the ranks seal
            return super().exists(path)

        def getsize(self, path):
            place = self._place(path) if _Known.is_copy(path) else None
            return place[0].getsize(place[1]) if place else super().getsize(path)

    return OverCairn


def pytest_runtest_teardown():
    """Each test has runs of its own, whose sessions hold memory of the uploader."""
    module = sys.modules.get("cairn._session")
    for session in module.sessions() if module else ():
        session.close(None)


def put_under(module):
    over = _make(module)
    module.LocalFileSystemStorageConfig.create_storage = lambda config: over(config)


if FILESYSTEM not in sys.modules and "pytest" in sys.modules and _Known.root.exists():
    import torch_checkpointing.storage.filesystem as filesystem
    if filesystem.LocalFileSystemStorageConfig.create_storage.__module__ == FILESYSTEM:
        put_under(filesystem)
