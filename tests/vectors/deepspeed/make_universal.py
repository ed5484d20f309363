#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes stage3_universal: what DeepSpeed's ds_to_universal makes of stage3. Needs torch and deepspeed."""
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def main():
    folder = HERE / "stage3_universal"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
                    HERE / "stage3" / "step2", "--output_folder", folder / "step2_universal",
                    "--num_extract_workers", "1", "--num_merge_workers", "1"],
                   check=True, env={**os.environ, "DS_ACCELERATOR": "cpu"})


if __name__ == "__main__":
    main()
