# SPDX-License-Identifier: Apache-2.0
"""py_save.py KIND FOLDER BYTES TENSORS: one side of the figures of the Python package. Each line `go` is one save of
the same tensors; the answer says for how long it kept the trainer.

KIND: background (cairn, the copy beside a loop that computes), now (cairn, copied when the call returns), copy
(Tensor.copy_ into warm memory), stager (DCP's DefaultStager as it is for CPU tensors), stager-async (the same with its thread,
beside that loop), dcp (torch.distributed.checkpoint.async_save with its default stager, into FOLDER), torch (torch.save into
FOLDER), describe (cairn, what Python takes of it), first
(the same for a state that was not saved before), load (cairn, verified, into place), dcp-load, safetensors (load_file, into place), durable (cairn, until this
rank's bytes are verified in the store), s3 (dcp.save with s3torchconnector's writer; FOLDER is its s3://bucket/prefix)."""
import json
import os
import resource
import sys
import time
import warnings

import torch

warnings.filterwarnings("ignore")
kind, folder, size, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(0)
each = max(1, size // count // 4)
state = {f"layers.{at}.weight": torch.randn(each) for at in range(count)}
step = 0


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def loop_until(done):
    """Seconds of a loop that computes until it is done."""
    began = time.perf_counter()
    work = torch.randn(256, 256)
    while not done():
        work @ work
    return time.perf_counter() - began


def cairn_side():
    import cairn
    from cairn._run import session_of
    run = cairn.run(f"bench/py-{kind}", bytes=2 * size + count * 2048 + (8 << 20))

    def background():
        save = run.async_save(step, state, background=True)
        beside = loop_until(save.staged.done)
        run.fence()
        return save, beside

    def go():
        global step
        step += 1
        if kind == "first":
            session_of(run).pieces = None  # nothing is known of the state
        began, used = time.perf_counter(), time.thread_time()
        beside = 0.0
        if kind == "background":
            save, beside = background()
        else:
            save = run.async_save(step, state)
        total, used = time.perf_counter() - began, time.thread_time() - used
        save.committed.result(600)
        return used if kind in ("describe", "first") else (total - beside, total)
    return go


def stager_side():
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    threaded = kind == "stager-async"
    stager = DefaultStager(StagingOptions(False, False, threaded, False))  # what it can do without an accelerator

    def go():
        began, beside = time.perf_counter(), 0.0
        staged = stager.stage(state)
        if threaded:
            beside = loop_until(staged.done)
            staged.result()
        total = time.perf_counter() - began
        return total - beside, total
    return go


def load_side():
    import safetensors.torch
    import torch.distributed.checkpoint as dcp

    import cairn
    run = cairn.run("bench/py-load")
    path = os.path.join(folder, "state.safetensors")
    if kind == "load":
        run.save(1, state, on_exists="supersede")
    elif kind == "safetensors":
        safetensors.torch.save_file(state, path)
    else:
        dcp.save(state, checkpoint_id=folder, no_dist=True)
    into = {name: torch.empty_like(value) for name, value in state.items()}

    def go():
        began = time.perf_counter()
        if kind == "load":
            with run.at(1) as found:
                found.load(into=into)
        elif kind == "safetensors":  # it maps the file; what is not read is not loaded
            for name, value in safetensors.torch.load_file(path).items():
                into[name].copy_(value)
        else:
            dcp.load(into, checkpoint_id=folder, no_dist=True)
        took = time.perf_counter() - began
        assert torch.equal(into["layers.0.weight"], state["layers.0.weight"])
        return took
    return go


def durable_side():
    import cairn
    run = cairn.run("bench/py-durable")

    def go():
        global step
        step += 1
        began = time.perf_counter()
        save = run.async_save(step, state)
        save.durable.result(600)
        took = time.perf_counter() - began
        save.committed.result(600)
        return took
    return go


def s3_side():
    import torch.distributed.checkpoint as dcp
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector.dcp import S3StorageWriter
    from s3torchconnector.dcp.s3_file_system import S3FileSystem
    region = os.environ["AWS_REGION"]
    config = S3ClientConfig(part_size=8 << 20, force_path_style=True)
    client = S3Client(region, endpoint=os.environ["AWS_ENDPOINT_URL"], s3client_config=config)

    def go():
        global step
        step += 1
        path = f"{folder}/{step}"
        writer = S3StorageWriter(region, path, thread_count=os.cpu_count())
        writer.fs = S3FileSystem(region, s3_client=client)  # its constructor takes no endpoint
        writer.path = writer.fs.init_path(path)
        began = time.perf_counter()
        dcp.save(state, storage_writer=writer, no_dist=True)
        return time.perf_counter() - began
    return go


def other_side():
    import torch.distributed.checkpoint as dcp
    kept = {name: torch.empty_like(value) for name, value in state.items()}
    for value in kept.values():
        value.fill_(1)

    def go():
        global step
        step += 1
        began, future = time.perf_counter(), None
        if kind == "copy":
            for name, value in state.items():
                kept[name].copy_(value)
        elif kind == "torch":
            torch.save(state, os.path.join(folder, "state.pt"))
        else:
            future = dcp.async_save(state, checkpoint_id=os.path.join(folder, str(step % 2)), no_dist=True)
        took = time.perf_counter() - began
        if future is not None:
            future.result()
        return took
    return go


SIDES = {"background": cairn_side, "now": cairn_side, "describe": cairn_side, "first": cairn_side, "stager": stager_side,
         "stager-async": stager_side, "load": load_side, "dcp-load": load_side,
         "safetensors": load_side, "durable": durable_side, "s3": s3_side}
go = SIDES.get(kind, other_side)()
if kind not in ("describe", "first"):
    go()
print(json.dumps({"ready": True}), flush=True)
for _ in sys.stdin:
    used, took = cpu(), go()
    blocked, total = took if isinstance(took, tuple) else (took, took)
    print(json.dumps({"ok": True, "seconds": blocked, "total": total, "cpu": cpu() - used, "bytes": size,
                      "crc32c": None}), flush=True)
