#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes, with torch (2.13 made what is kept here) on four ranks over gloo, folders in which each rank has saved
its state dict by torch.save: DTensors of several placements, of FSDP2 (a mesh of two dimensions), of FSDP2 over tensor
parallelism with its optimizer, and ShardedTensors of FSDP1. expected.json has the bytes of each whole tensor, as torch
gives them.

    make.py [FOLDER]     (default: beside this file)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

RANKS = 4
if len(sys.argv) < 4:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    folder = folder if folder.is_dir() else folder.parent
    with tempfile.TemporaryDirectory() as store:
        ranks = [subprocess.Popen([sys.executable, __file__, folder, f"{store}/store", str(rank)],
                                  env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(RANKS)]
        sys.exit(max(abs(rank.wait()) for rank in ranks))

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

folder, store, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank))
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS)
made = {}



def flat(tensor):
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()).hex()


def keep(kind, name, state, whole):
    os.makedirs(f"{folder}/{kind}", exist_ok=True)
    torch.save(state, f"{folder}/{kind}/{name}")
    made[kind] = {key: flat(tensor) for key, tensor in whole.items()}


def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5))


def whole_of(state):
    return {key: value.full_tensor() if hasattr(value, "full_tensor") else value for key, value in state.items()}


one = init_device_mesh("cpu", (4,))
two = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(1)
a, b, c = torch.randn(10, 3), torch.randn(7), torch.randn(4, 6).to(torch.bfloat16)
placed = {"rows": distribute_tensor(a, one, [Shard(0)]), "uneven": distribute_tensor(b, one, [Shard(0)]),
          "columns": distribute_tensor(c, one, [Shard(1)]), "hsdp": distribute_tensor(c, two, [Replicate(), Shard(1)]),
          "both": distribute_tensor(c, two, [Shard(0), Shard(0)]), "crossed": distribute_tensor(a, two, [Shard(1), Shard(0)]),
          "copies": distribute_tensor(b, one, [Replicate()]), "plain": torch.arange(5),
          "parameter": torch.nn.Parameter(distribute_tensor(a, one, [Shard(0)]))}
keep("placed", f"model_world_size_4_rank_{rank}.pt", placed, whole_of(placed))

for name, tp in (("fsdp2", False), ("fsdp2-tp", True)):
    net = model()
    if tp:
        parallelize_module(net, two["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(net, mesh=two["dp"] if tp else two)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    net(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    keep(name, f"model_world_size_4_rank_{rank}.pt", net.state_dict(), whole_of(net.state_dict()))
    torch.save(optimizer.state_dict(), f"{folder}/{name}/optim_world_size_4_rank_{rank}.pt")
    for number, row in optimizer.state_dict()["state"].items():
        for key, value in whole_of(row).items():
            made[name][f"optimizer.state.{number}.{key}"] = flat(value)

net = FSDP(model(), device_id=torch.device("cpu"), use_orig_params=True)
with FSDP.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
    state = net.state_dict()
keep("fsdp1", f"ep0-ba1-rank{rank}.pt", state, model().state_dict())
if rank == 0:
    with open(f"{folder}/expected.json", "w") as file:
        json.dump(made, file, indent=1, sort_keys=True)
dist.barrier()
dist.destroy_process_group()
