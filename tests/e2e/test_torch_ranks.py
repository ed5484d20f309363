# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=60
"""Rank files that torch itself writes on four ranks over gloo: DTensors of FSDP2, of tensor parallelism, of both on
one dimension and of HSDP, ShardedTensors of FSDP1. Exported, each tensor is what torch makes of all ranks.

It needs a Python with torch, as test_torch.py does."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from test_export import export, read
from test_torch import PYTHON, have_torch

WRITE = """
import json, os, sys, warnings
warnings.filterwarnings("ignore")
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

folder, store, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.environ.update(RANK=str(rank), WORLD_SIZE="4", LOCAL_RANK=str(rank))
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=4)
made = {}

def keep(kind, name, state, whole):
    os.makedirs(f"{folder}/{kind}", exist_ok=True)
    torch.save(state, f"{folder}/{kind}/{name}")
    flat = lambda tensor: bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()).hex()
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
            made[name][f"optimizer.state.{number}.{key}"] = bytes(
                value.detach().contiguous().reshape(-1).view(torch.uint8).tolist()).hex()

net = FSDP(model(), device_id=torch.device("cpu"), use_orig_params=True)
with FSDP.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
    state = net.state_dict()
keep("fsdp1", f"ep0-ba1-rank{rank}.pt", state, model().state_dict())
if rank == 0:
    print(json.dumps(made))
dist.barrier()
dist.destroy_process_group()
"""


class Ranks(unittest.TestCase):
    def setUp(self):
        if not have_torch():
            raise unittest.SkipTest(f"no torch for {PYTHON}; CAIRN_TEST_TORCH names another Python")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-torch-ranks-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_what_four_ranks_of_torch_wrote_is_whole_again(self):
        ranks = [subprocess.Popen([PYTHON, "-c", WRITE, str(self.folder), str(self.folder / "store"), str(rank)],
                                  env={"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for rank in range(4)]
        answers = [rank.communicate() for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * 4, "".join(said for _, said in answers)[-3000:])
        expected = json.loads(answers[0][0].splitlines()[-1])
        self.assertEqual(sorted(expected), ["fsdp1", "fsdp2", "fsdp2-tp", "placed"])
        for kind, tensors in expected.items():
            out = self.folder / f"out-{kind}"
            told = json.loads(export(self.folder / kind, out, "--json", "--optimizer", "--strict").stdout)
            found = {name: row[2].hex() for name, row in read(out).items()}
            found.update({name: found[of] for name, of in told["aliases"].items()})
            self.assertEqual(told["left_out"], [], kind)
            self.assertEqual(found, tensors, kind)


if __name__ == "__main__":
    unittest.main()
