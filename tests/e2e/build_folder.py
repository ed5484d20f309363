# SPDX-License-Identifier: Apache-2.0
"""Where the programs of this build are, and the libraries that are loaded before a program's own."""
import os
import pathlib

BIN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", "build/dev")).resolve()


def preload(name):
    """The environment of a process that loads lib<name>.so of the tests first. By its bare name: a space in LD_PRELOAD
    ends a path, and the build's own folder may have one."""
    others = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_PRELOAD": f"lib{name}.so", "LD_LIBRARY_PATH": f"{BIN / 'tests'}{':' + others if others else ''}"}
