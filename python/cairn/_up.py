# SPDX-License-Identifier: Apache-2.0
"""Server and uploader on one folder, for a notebook, one machine or a test: `cairn up` as a child of this process."""
from __future__ import annotations

import atexit
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from . import errors


def program(name: str = "cairn") -> str:
    """Of CAIRN_BIN_DIR, the wheel `cairn-ckpt-daemons`, or PATH."""
    given = os.environ.get("CAIRN_BIN_DIR")
    places = [pathlib.Path(given) / name] if given else []
    daemons = importlib.util.find_spec("cairn_daemons")
    if daemons and daemons.origin:
        places.append(pathlib.Path(daemons.origin).with_name("bin") / name)
    places.append(pathlib.Path(sys.executable).with_name(name))
    for place in places:
        if os.access(place, os.X_OK) and not place.is_dir() and not _is_script(place):
            return str(place)
    found = shutil.which(name)
    if found:
        return found
    raise errors.make(f"the program {name} is not installed", code="not-found",
                      hint="pip install 'cairn-ckpt[daemons]', or let CAIRN_BIN_DIR name the folder of the programs")


def _is_script(path: pathlib.Path) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


class Up:
    """A server and an uploader that run. Their address is in the environment while this is the last one."""

    def __init__(self, folder: Any = None, *, store: str | None = None, listen: str = "127.0.0.1:0",
                 memory: str = "1GiB", environment: bool = True) -> None:
        self._own = folder is None
        self.folder = pathlib.Path(folder if folder is not None else tempfile.mkdtemp(prefix="cairn-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._former: dict[str, str | None] = {}
        log = open(self.folder / "up.log", "ab")
        arguments = [program(), "up", str(self.folder), "--listen", listen, "--memory", memory, "--json"]
        arguments += ["--store", store] if store else []
        try:
            self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        finally:
            log.close()
        told = self._first_object()
        self.url, self.socket, self.store = told["url"], told["socket"], told["store"]
        if environment:
            self._set(CAIRN_URL=self.url, CAIRN_SOCKET=self.socket)
        atexit.register(self.close)

    def _first_object(self) -> dict[str, Any]:
        text = b""
        assert self.process.stdout
        while line := self.process.stdout.readline():
            text += line
            try:
                return json.loads(text)
            except json.JSONDecodeError:
                continue
        self.process.wait()
        said = (self.folder / "up.log").read_text(errors="replace").strip().splitlines()
        raise errors.make(f"`cairn up` ended: {said[-1] if said else 'it said nothing'}", code="unavailable")

    def _set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._former[name] = os.environ.get(name)
            os.environ[name] = value

    def run(self, name: str, **options: Any) -> Any:
        from ._run import run
        return run(name, socket=self.socket, **options)

    def cairn(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs the command against this server."""
        return subprocess.run([program(), *arguments], check=check, capture_output=True, text=True,
                              env={**os.environ, "CAIRN_URL": self.url, "CAIRN_SOCKET": self.socket,
                                   "CAIRN_PROGRESS": "none"})

    def __enter__(self) -> Up:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends both; a folder that was made for it is removed."""
        atexit.unregister(self.close)
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        for name, value in self._former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._former = {}
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)


def up(folder: Any = None, **options: Any) -> Up:
    """Starts a server and an uploader on a folder (a temporary one where none is given), and lets this process's
    runs use them. `cairn up FOLDER` in a shell is the same for longer than this process."""
    return Up(folder, **options)
