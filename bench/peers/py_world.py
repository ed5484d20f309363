# SPDX-License-Identifier: Apache-2.0
"""py_world.py real RANK WORLD TENSORS PORT and py_world.py played FIRST COUNT WORLD TENSORS OF_A_NODE: ranks of a job whose tensors
are divided among all of them, 64 bytes of each tensor a rank. Each line of standard input is one save of them.

real: one gloo process a rank. `dcp` is what dcp.save does beside writing (plans of all ranks gathered, made one and sent
back): its writer stores nothing. `cairn` is a whole save, from the state to the commit.
played: COUNT ranks in one process, each with a session of its own; `cairn` as above, of all of them. OF_A_NODE of them, one
after another, have an uploader together: CAIRN_SOCKET with the number of their node behind it."""
import json
import os
import resource
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.futures import Future

import cairn

ROWS = 16  # of each tensor a rank
warnings.filterwarnings("ignore")
torch.set_num_threads(1)


class Nothing(StorageWriter):
    def reset(self, checkpoint_id=None):
        pass

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        pass

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def write_data(self, plan, planner):
        done = Future()
        done.set_result([WriteResult(index=item.index, size_in_bytes=64, storage_data=None) for item in plan.items])
        return done

    def finish(self, metadata, results):
        pass

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


def state_of(rank, world, tensors):
    mesh = init_device_mesh("cpu", (world,))
    return {f"layers.{at}.weight": DTensor.from_local(
        torch.full((ROWS,), float(rank)), mesh, [Shard(0)], run_check=False, shape=torch.Size([ROWS * world]), stride=(1,))
        for at in range(tensors)}


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def real(rank, world, tensors, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=world)
    state = state_of(rank, world, tensors)
    run = cairn.run(f"bench/world-{world}", rank=rank, world_size=world, local_rank=rank, local_world_size=world,
                    job=f"world-{port}")

    def save(how, step):
        if how == "dcp":
            dcp.save(state, storage_writer=Nothing(), planner=dcp.DefaultSavePlanner())
        else:
            run.async_save(step, state).committed.result(600)
    return save


def played(first, count, world, tensors, of_a_node):
    from torch.testing._internal.distributed.fake_pg import FakeStore
    ranks = []
    for rank in range(first, first + count):
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        run = cairn.run("bench/played", rank=rank, world_size=world, local_rank=rank % of_a_node, local_world_size=of_a_node,
                        job="played", socket=f"{os.environ['CAIRN_SOCKET']}{rank // of_a_node}")
        ranks.append((run, state_of(rank, world, tensors)))
        dist.destroy_process_group()

    def save(how, step):
        saves = [run.async_save(step, state, background=True) for run, state in ranks]
        for one in saves:
            one.committed.result(600)
    return save


kind, *numbers = sys.argv[1:]
save, step = (real if kind == "real" else played)(*map(int, numbers)), 0
print(json.dumps({"ready": True, "bytes": 0}), flush=True)
for line in sys.stdin:
    step += 1
    used, began = cpu(), time.monotonic()
    save(line.strip(), step)
    print(json.dumps({"seconds": time.monotonic() - began, "cpu": cpu() - used}), flush=True)
