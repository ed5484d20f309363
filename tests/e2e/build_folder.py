# SPDX-License-Identifier: Apache-2.0
"""Where the programs of this build are."""
import os
import pathlib

BIN = pathlib.Path(os.environ.get("CAIRN_BIN_DIR", "build/dev")).resolve()
