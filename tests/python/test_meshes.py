# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=25 thirds=3 rooms=python,client,uploader,server
"""Tensors on meshes of up to four dimensions, on 16 ranks that are forked with torch's process group that sends nothing,
since nothing has to be sent: each rank's part is saved once, the server's proof of the whole passes, and every layout loads
what another one saved."""
import package

PLAY = """
import os, sys, traceback, warnings
warnings.filterwarnings("ignore")
import torch
import torch._dynamo  # placing a DTensor imports it: here once, not in each rank that is forked
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
import cairn
from cairn import _torch

torch.set_num_threads(1)
WORLD = 16
ROWS = 65  # which no number of ranks divides

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(24)
        self.up, self.down = torch.nn.Linear(24, 40), torch.nn.Linear(40, 24)
        self.scale = torch.nn.Parameter(torch.rand(1))      # all ranks but one have nothing of it
        self.wide = torch.nn.Parameter(torch.rand(20000))   # large enough to be divided where it is replicated

class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.tokens, self.head = torch.nn.Embedding(ROWS, 24), torch.nn.Linear(24, ROWS, bias=False)
        self.block = Block()
        self.head.weight = self.tokens.weight

def tensor_parallel(net, mesh):
    parallelize_module(net, mesh, {"tokens": RowwiseParallel(), "head": ColwiseParallel(), "block.up": ColwiseParallel(),
                                   "block.down": RowwiseParallel()}, src_data_rank=None)
    net.head.weight = net.tokens.weight

def sharded(net, mesh):
    fully_shard(net.block, mesh=mesh)
    fully_shard(net, mesh=mesh)

def fsdp(net):
    sharded(net, init_device_mesh("cpu", (WORLD,)))

def fsdp_tp(net):
    mesh = init_device_mesh("cpu", (8, 2), mesh_dim_names=("outer", "inner"))  # names that say nothing
    tensor_parallel(net, mesh["inner"])
    sharded(net, mesh["outer"])

def hsdp_tp(net):
    mesh = init_device_mesh("cpu", (2, 4, 2), mesh_dim_names=("replicate", "shard", "tp"))
    tensor_parallel(net, mesh["tp"])
    sharded(net, mesh["replicate", "shard"])

def ddp_tp(net):
    mesh = init_device_mesh("cpu", (4, 4), mesh_dim_names=("dp", "tp"))
    tensor_parallel(net, mesh["tp"])

def pipeline(net):
    mesh = init_device_mesh("cpu", (2, 2, 2, 2), mesh_dim_names=("pp", "replicate", "shard", "tp"))
    tensor_parallel(net, mesh["tp"])
    sharded(net, mesh["replicate", "shard"])

def unflattened(net):
    world = init_device_mesh("cpu", (WORLD,), mesh_dim_names=("world",))
    mesh = world._unflatten(0, (2, 2, 2, 2), ("pp", "replicate", "shard", "tp"))
    tensor_parallel(net, mesh["tp"])
    sharded(net, mesh["replicate", "shard"])

SOME, FURTHER = (fsdp_tp, hsdp_tp, pipeline), (fsdp, ddp_tp, unflattened)  # the further ones with --full alone
LAYOUTS = {how.__name__: how for how in SOME + (FURTHER if os.environ.get("CAIRN_TEST_SLOW") else ())}

def as_ranks(work):
    children = []
    for rank in range(WORLD):
        child = os.fork()
        if child:
            children.append(child)
            continue
        try:
            dist.init_process_group("fake", rank=rank, world_size=WORLD, store=FakeStore())
            work(rank)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert not any([os.waitpid(child, 0)[1] for child in children])

def stages(how):
    return 2 if how in (pipeline, unflattened) else 1

def state_of(how, rank):
    '''The model in this layout; a stage of a pipeline has one of its own.'''
    stage = rank * stages(how) // WORLD
    net = Net(1 + stage)
    how(net)
    return {f"stage.{stage}": net.state_dict()}

def local(value):
    return value.to_local() if isinstance(value, DTensor) else value

def saved(name, how):
    def save(rank):
        with cairn.run(name, rank=rank, world_size=WORLD, local_rank=rank, local_world_size=WORLD, job="one") as run:
            run.save(1, state_of(how, rank))
    as_ranks(save)

def check_whole(name, how):
    with cairn.run(name, read_only=True, rank=0, world_size=1) as run:
        found = run.at(1)
        loaded = found.load()
        for stage in range(stages(how)):
            want = Net(1 + stage).state_dict()
            assert found.tensors[f"stage.{stage}.head.weight"].alias_of == f"stage.{stage}.tokens.weight"
            if stage == 0:
                got = loaded["stage.0"]
            else:
                got = {key: found.tensor(f"stage.{stage}.{key}") for key in want}
            for key, value in want.items():
                assert torch.equal(got[key], value), (how.__name__, stage, key)
        whole = sum(value.numel() * value.element_size() for value in Net(1).state_dict().values()) - ROWS * 24 * 4
        # Whole tensors below 64 KiB are saved by each rank that has them; beside them each byte once, and headers.
        assert found.bytes < stages(how) * whole + WORLD * 16000, (how.__name__, found.bytes, whole)

def check_loaded(name, how):
    def load(rank):
        run = cairn.run(name, rank=rank, world_size=WORLD, read_only=True)
        state = state_of(how, rank)
        (stage, values), = state.items()
        want = {key: local(value).clone() for key, value in values.items()}
        for value in values.values():
            local(value).fill_(-1)
        run.at(1).load(into=state, strict=False)
        run.close()
        for key, value in want.items():
            assert torch.equal(local(state[stage][key]), value), (how.__name__, rank, key)
    as_ranks(load)
"""


class Meshes(package.Worlds):
    needs = ("torch",)

    def play(self, text):
        self.program(PLAY + text, self.name)

    def test_every_layout_is_saved_once_and_comes_back_whole_and_in_place(self):
        self.play("""
for name, how in LAYOUTS.items():
    saved(f"{sys.argv[1]}-{name}", how)
    check_whole(f"{sys.argv[1]}-{name}", how)
    check_loaded(f"{sys.argv[1]}-{name}", how)
""")

    def test_what_one_layout_saved_loads_into_each_other(self):
        self.play("""
saved(sys.argv[1], fsdp_tp)
for how in (hsdp_tp, fsdp, ddp_tp)[:3 if os.environ.get("CAIRN_TEST_SLOW") else 1]:
    check_loaded(sys.argv[1], how)
""")

    def test_places_are_those_of_torch_chunk(self):
        self.play("""
from torch.distributed.tensor.placement_types import _StridedShard
import itertools
for sizes, placements in (((4,), (Shard(0),)), ((2, 3), (Shard(0), Shard(0))), ((3, 2), (Shard(1), Shard(0))),
                          ((2, 3), (_StridedShard(0, split_factor=3), Shard(0))),
                          ((2, 2, 3), (Replicate(), _StridedShard(1, split_factor=3), Shard(1)))):
    order = list(reversed(range(len(sizes)))) if any(hasattr(p, "split_factor") for p in placements) else range(len(sizes))
    for rows, columns in itertools.product((1, 2, 5, 7, 12), (1, 6, 13)):
        whole = torch.arange(rows * columns).reshape(rows, columns)
        for coordinate in itertools.product(*map(range, sizes)):
            part = whole
            for d in order:
                if isinstance(placements[d], Replicate):
                    continue
                chunks = list(torch.chunk(part, sizes[d], placements[d].dim))
                part = chunks[coordinate[d]] if coordinate[d] < len(chunks) else chunks[0].narrow(placements[d].dim, 0, 0)
            box = _torch.place_of((rows, columns), sizes, placements, coordinate)
            at = tuple(slice(first, first + count) for first, count in zip(box.start, box.count))
            assert torch.equal(whole[at], part), (sizes, placements, coordinate, box)
try:
    _torch.place_of((8,), (2, 3), (_StridedShard(0, split_factor=2), Shard(0)), (0, 0))
except cairn.CairnError as error:
    assert error.code == "unsupported", error
else:
    raise SystemExit("cuts that nothing explains were taken")
""")

    def test_a_dtensor_whose_part_is_not_what_its_placements_say_is_refused(self):
        self.play("""
def save(rank):
    mesh = init_device_mesh("cpu", (WORLD,))
    odd = DTensor.from_local(torch.zeros(2 if rank else 3), mesh, [Shard(0)], run_check=False, shape=torch.Size([33]), stride=(1,))
    try:
        cairn.run(sys.argv[1], rank=rank, world_size=WORLD, job="one").async_save(1, {"odd": odd})
    except cairn.CairnError as error:
        assert error.code == "invalid" and "odd" in str(error) and "placements" in str(error), error
        return
    raise SystemExit("it was taken")
as_ranks(lambda rank: rank == 15 and save(rank))  # by torch.chunk: 11 parts of three, and none of the rest
""")


if __name__ == "__main__":
    package.main()
