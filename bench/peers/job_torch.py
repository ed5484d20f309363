# SPDX-License-Identifier: Apache-2.0
"""job_torch.py KIND FOLDER WIDTH RANK RANKS PORT: one rank of the job of bench/job.c, with PyTorch.

KIND is dcp (torch.distributed.checkpoint.async_save of DTensors), torch (torch.save of each rank's
part, with fsync) or safetensors (save_file of it, with fsync). Lines and answers are bench/job.c's.
"""
import json
import os
import resource
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

kind, folder = sys.argv[1:3]
width, rank, ranks, port = map(int, sys.argv[3:7])
LAYERS = 5
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
                  TP_SOCKET_IFNAME="lo")
torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))


def shapes():
    hidden = width * 43 // 16
    yield "embed", (4 * width, width)
    for layer in range(LAYERS):
        for name in ("wq", "wk", "wv", "wo"):
            yield "layers.%d.%s" % (layer, name), (width, width)
        for name in ("w1", "w3"):
            yield "layers.%d.%s" % (layer, name), (hidden, width)
        yield "layers.%d.w2" % layer, (width, hidden)
        yield "layers.%d.norm" % layer, (width,)


def cpu():
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF,
                                                         resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


class Job:
    def __init__(self):
        torch.manual_seed(rank)
        self.step = 0
        self.own = {name: torch.randn(shape[0] // ranks, *shape[1:]) for name, shape in shapes()}
        if kind == "dcp":
            dist.init_process_group("gloo", rank=rank, world_size=ranks)
            self.mesh = init_device_mesh("cpu", (ranks,))

    def state(self, tensors):
        if kind != "dcp":
            return tensors
        return {name: DTensor.from_local(tensor, self.mesh, [Shard(0)], run_check=False)
                for name, tensor in tensors.items()}

    def path(self):
        return os.path.join(folder, str(self.step))

    def save(self):
        old = self.path()
        self.step += 1
        if rank == 0 and os.path.isdir(old):
            shutil.rmtree(old)
        state = self.state(self.own)
        used, began = cpu(), time.monotonic()
        if kind == "dcp":
            future = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(self.path()))
            stall = time.monotonic() - began
            future.result()
        else:
            os.makedirs(self.path(), exist_ok=True)
            self.write(os.path.join(self.path(), "rank-%d" % rank))
            sync(self.path())
            stall = time.monotonic() - began
        return {"stall": stall, "durable": time.monotonic() - began, "cpu": cpu() - used}

    def write(self, path):
        if kind == "torch":
            torch.save(self.own, path)
        else:
            import safetensors.torch
            safetensors.torch.save_file(self.own, path)
        sync(path)

    def read(self, tensors):
        path = os.path.join(self.path(), "rank-%d" % rank)
        if kind == "dcp":
            dcp.load(self.state(tensors), storage_reader=dcp.FileSystemReader(self.path()))
        else:
            if kind == "torch":
                found = torch.load(path)
            else:
                import safetensors.torch
                found = safetensors.torch.load_file(path)
            for name, tensor in tensors.items():
                tensor.copy_(found[name])

    def restore(self):
        tensors = {name: torch.zeros_like(tensor) for name, tensor in self.own.items()}
        used, began = cpu(), time.monotonic()
        self.read(tensors)
        took, used = time.monotonic() - began, cpu() - used
        for name, tensor in tensors.items():
            if not torch.equal(tensor, self.own[name]):
                raise SystemExit("%s came back otherwise" % name)
        return {"restore": took, "cpu": used}


job = Job()
print(json.dumps({"ready": True, "bytes": sum(t.nbytes for t in job.own.values())}), flush=True)
for line in sys.stdin:
    print(json.dumps(job.save() if line.startswith("save") else job.restore()), flush=True)
