# SPDX-License-Identifier: Apache-2.0
"""py_save.py KIND FOLDER BYTES TENSORS: one side of the figures of the Python package. Each line `go` is one save of
the same tensors; the answer says for how long it kept the trainer.

KIND: background (cairn, the copy beside a loop that computes), now (cairn, copied when the call returns), copy
(Tensor.copy_ into warm memory), dcp (torch.distributed.checkpoint.async_save with its default stager, into FOLDER), torch
(torch.save into FOLDER), describe (cairn, what Python takes of it), first
(the same for a state that was not saved before), load (cairn, verified, into place), dcp-load."""
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


def cairn_side():
    import cairn
    run = cairn.run(f"bench/py-{kind}", bytes=2 * size + count * 2048 + (8 << 20))
    work = torch.randn(256, 256)

    def background():
        save = run.async_save(step, state, background=True)
        began = time.perf_counter()
        while not save.staged.done():
            work @ work
        fenced = time.perf_counter()
        run.fence()
        return save, fenced - began

    def go():
        global step
        step += 1
        if kind == "first":
            run._pieces = None  # nothing is known of the state
        began, used = time.perf_counter(), time.thread_time()
        beside = 0.0
        if kind == "background":
            save, beside = background()
        else:
            save = run.async_save(step, state)
        blocked, used = time.perf_counter() - began - beside, time.thread_time() - used
        save.committed.result(600)
        return used if kind in ("describe", "first") else blocked
    return go


def load_side():
    import torch.distributed.checkpoint as dcp

    import cairn
    run = cairn.run("bench/py-load")
    if kind == "load":
        run.save(1, state, on_exists="supersede")
    else:
        dcp.save(state, checkpoint_id=folder, no_dist=True)
    into = {name: torch.empty_like(value) for name, value in state.items()}

    def go():
        began = time.perf_counter()
        if kind == "load":
            with run.at(1) as found:
                found.load(into=into)
        else:
            dcp.load(into, checkpoint_id=folder, no_dist=True)
        took = time.perf_counter() - began
        assert torch.equal(into["layers.0.weight"], state["layers.0.weight"])
        return took
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


go = cairn_side() if kind in ("background", "now", "describe", "first") else load_side() if "load" in kind else other_side()
if kind not in ("describe", "first"):
    go()
print(json.dumps({"ready": True}), flush=True)
for _ in sys.stdin:
    used = cpu()
    print(json.dumps({"ok": True, "seconds": go(), "cpu": cpu() - used, "bytes": size, "crc32c": None}), flush=True)
