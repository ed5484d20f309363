# SPDX-License-Identifier: Apache-2.0
"""The programs of Cairn (cairn, cairn-server, cairn-uploader) for those who install by pip: wheel `cairn-ckpt-daemons`."""
from __future__ import annotations

import os
import pathlib
import sys

BIN = pathlib.Path(__file__).with_name("bin")


def _start(name: str) -> None:
    program = str(BIN / name)
    os.execv(program, [program, *sys.argv[1:]])


def command() -> None:
    _start("cairn")


def server() -> None:
    _start("cairn-server")


def uploader() -> None:
    _start("cairn-uploader")
