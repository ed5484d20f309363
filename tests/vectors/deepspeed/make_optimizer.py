#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes optimizer.json: what the optimizer keeps of each parameter of the checkpoints beside it, as
DeepSpeed's own converter to universal checkpoints cuts it (its folders zero/<parameter>/*.pt).

Needs torch and deepspeed; the versions are in the file.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
import torch  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


def hexed(tensor):
    return bytes(tensor.detach().float().contiguous().view(-1).view(torch.uint8).tolist()).hex()


def main():
    import deepspeed
    cases = {}
    for case in sorted(json.loads((HERE / "expected.json").read_text())["cases"]):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder",
                 HERE / case / "step2", "--output_folder", folder, "--num_extract_workers", "1",
                 "--num_merge_workers", "1", "--inject_missing_state"], check=True)
            rows = {}
            for path in sorted(pathlib.Path(folder, "zero").glob("*/*.pt")):
                value = torch.load(path, weights_only=False)
                value = value["param"] if isinstance(value, dict) else value
                if path.stem == "fp32":
                    continue
                rows[f"optimizer.state.{path.parent.name}.{path.stem}"] = {
                    "shape": list(value.shape), "fp32": hexed(value)}
            cases[case] = rows
    (HERE / "optimizer.json").write_text(json.dumps(
        {"torch": torch.__version__, "deepspeed": deepspeed.__version__, "cases": cases},
        indent=1) + "\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
