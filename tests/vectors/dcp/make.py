#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the PyTorch DCP checkpoints beside it, with torch itself on CPUs, and expected.json: what
torch's own dcp_to_torch_save makes of them.

Needs torch; run it again only to add a case. The version is in expected.json.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.update(CUDA_VISIBLE_DEVICES="")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
import torch.multiprocessing  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CASES = {"single": 1, "fsdp": 3, "tensor_parallel": 2, "fsdp_and_tensor_parallel": 4}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8)
        self.first = torch.nn.Linear(8, 6)
        self.second = torch.nn.Linear(6, 8)
        self.register_buffer("scale", torch.arange(3.) + 1)

    def forward(self, tokens):
        return self.second(torch.relu(self.first(self.embed(tokens).mean(1))))


def train(rank, ranks, case, folder, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo")
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel, RowwiseParallel, parallelize_module)
    torch.manual_seed(1)
    model = Model()
    both = "and" in case
    mesh = init_device_mesh("cpu", (2, ranks // 2) if both else (ranks,),
                            mesh_dim_names=("dp", "tp") if both else ("all",))
    if "tensor_parallel" in case:
        parallelize_module(model, mesh["tp"] if both else mesh,
                           {"first": ColwiseParallel(), "second": RowwiseParallel()})
    if "fsdp" in case:
        fully_shard(model, mesh=mesh["dp"] if both else mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(2):
        model(torch.randint(0, 11, (2, 3))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state, "step": 2, "note": {"text": "x" * 5}},
             checkpoint_id=folder)
    dist.barrier()
    dist.destroy_process_group()


def rows(value, path, ret):
    if isinstance(value, torch.Tensor):
        ret[path] = {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
                     "bytes": bytes(value.contiguous().view(-1).view(torch.uint8).tolist()).hex()}
    elif isinstance(value, dict):
        for key, item in value.items():
            rows(item, f"{path}.{key}" if path else str(key), ret)
    elif isinstance(value, (list, tuple)):
        for key, item in enumerate(value):
            rows(item, f"{path}.{key}", ret)


def main():
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    expected = {"torch": torch.__version__, "cases": {}}
    for number, (case, ranks) in enumerate(CASES.items()):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(train, args=(ranks, case, folder, 29700 + number),
                                        nprocs=ranks)
            dcp_to_torch_save(folder, folder + "/whole.pt")
            ret = {}
            rows(torch.load(folder + "/whole.pt", weights_only=False), "", ret)
            os.unlink(folder + "/whole.pt")
            expected["cases"][case] = ret
            shutil.rmtree(HERE / case, ignore_errors=True)
            shutil.copytree(folder, HERE / case)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
