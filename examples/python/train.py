# SPDX-License-Identifier: Apache-2.0
"""A tiny GPT, trained with FSDP2 (over tensor parallel, if wanted) or DDP on any number of ranks, that can be killed at
any moment and goes on where its last committed checkpoint was, on as many ranks as there are then.

    cairn up ./ckpt &
    torchrun --nproc-per-node 4 examples/python/train.py demo/gpt --steps 200
    torchrun --nproc-per-node 2 examples/python/train.py demo/gpt --steps 400     # goes on with two

What Cairn costs it is six lines; each is marked with (cairn)."""
import argparse
import os
import random
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import cairn  # (cairn)

VOCABULARY, WIDTH, HEADS, LAYERS, CONTEXT = 65, 64, 4, 2, 32
BATCH = 12  # of all ranks together, so that a step is the same on each number of them


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.attend = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.project = torch.nn.Linear(WIDTH, WIDTH)
        self.widen = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.attend(self.norms[0](x)).reshape(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(torch.nn.functional.gelu(self.widen(self.norms[1](x))))


class Gpt(torch.nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.places = torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.drop = torch.nn.Dropout(dropout)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight  # tied: stored once

    def forward(self, tokens):
        x = self.drop(self.tokens(tokens) + self.places.weight[:tokens.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch_of(step, part, parts):
    """A text that can be learned: each token follows from the one before."""
    generator = torch.Generator().manual_seed(step)
    first = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
    tokens = (first + 7 * torch.arange(CONTEXT + 1)) % VOCABULARY
    own = tokens[part * BATCH // parts:(part + 1) * BATCH // parts]
    return own[:, :-1], own[:, 1:]


def shard(model, world, tensor):
    """The model as parts of the ranks, computing in bf16 over parameters in fp32. tensor: of as many ranks each has a part
    of the large layers (tensor parallel), which FSDP2 divides among the others."""
    mesh = init_device_mesh("cpu", (world // tensor, tensor), mesh_dim_names=("dp", "tp"))
    if tensor > 1:
        parallelize_module(model, mesh["tp"], {
            "tokens": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate()),
            "blocks.*.widen": ColwiseParallel(), "blocks.*.narrow": RowwiseParallel()})
        model.head.weight = model.tokens.weight
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    return model


def build(parallel, world, tensor, dropout=0.1):
    """What is called for the model, and the state of a job before its first step, with the optimizer in two groups."""
    torch.manual_seed(0)
    model = Gpt(dropout)
    if parallel == "ddp":
        # Otherwise DDP divides gradients anew after the first step, and a job that goes on would sum in another order.
        called = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    else:
        called = shard(model, world, tensor)
    decayed = [value for value in model.parameters() if value.dim() > 1]
    others = [value for value in model.parameters() if value.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10) * 0.999 ** step)
    return called, {"model": model, "optimizer": optimizer, "schedule": schedule, "random": Random(), "step": 0}


class Random:
    """The states of the random generators, which are each rank's own."""

    def state_dict(self):
        return {"torch": cairn.local(torch.get_rng_state()), "python": random.getstate()}  # (cairn)

    def load_state_dict(self, state):
        torch.set_rng_state(state["torch"])
        random.setstate(state["python"])


def train(options, log):
    rank, world = dist.get_rank(), dist.get_world_size()
    called, state = build(options.parallel, world, options.tensor, options.dropout)
    optimizer, schedule, steps = state["optimizer"], state["schedule"], options.steps
    part, parts = rank // options.tensor, world // options.tensor  # of the data, which a tensor-parallel group shares
    torch.manual_seed(100 + part)
    run = cairn.run(options.run)  # (cairn)
    found = run.latest()  # (cairn)
    if found:
        found.load(into=state)  # (cairn)
        if rank == 0:
            print(f"goes on from step {state['step']}", flush=True)
    shown = None
    for step in range(state["step"], steps):
        tokens, targets = batch_of(step, part, parts)
        logits = called(tokens).float()
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        shown = loss.detach() / world
        dist.all_reduce(shown)
        if rank == 0 and log:
            log.write(f"{step} {shown.item().hex()}\n")
            log.flush()
        state["step"] = step + 1
        if state["step"] % options.every == 0 or state["step"] == steps:
            run.async_save(state["step"], state, on_exists="supersede")  # (cairn)
        time.sleep(options.step_ms / 1000)
    run.close()  # (cairn)
    if rank == 0:
        print(f"step {steps}: " + ("nothing was left to do" if shown is None else f"loss {shown.item():.4f}"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("run", help="project/run")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=10, help="steps between two saves")
    parser.add_argument("--parallel", choices=("fsdp", "ddp"), default="fsdp", help="ddp: the whole model on each rank")
    parser.add_argument("--tensor", type=int, default=1, help="ranks of a tensor-parallel group, with fsdp")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--step-ms", type=int, default=0, help="a pause after each step, for who watches")
    parser.add_argument("--losses", dest="log", help="a file that each loss is added to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    log = open(options.log, "a") if options.log and dist.get_rank() == 0 else None
    train(options, log)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
