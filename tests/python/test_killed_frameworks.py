# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=90 rooms=python,client,uploader,server,examples
"""Jobs of frameworks, each where it is installed, are killed with SIGKILL at random moments and go on from their last
checkpoint, as tests/python/test_killed.py does it with torch alone: Hugging Face's Trainer, torch_checkpointing, DeepSpeed
with ZeRO 3. On as many ranks their losses are those of a job that was never killed, to the last bit.

With CAIRN_TEST_SLOW each is killed 20 times on 2 ranks, and 20 times on 4, 3, 2 and 1 ranks."""
import importlib.util
import os
import unittest

import package
import ranks
from lives import OTHER_WORLDS, SLOW, Lives

BEGIN = """
import os, sys, time, warnings
warnings.filterwarnings("ignore")
sys.path.insert(0, sys.argv[6])
import torch
import torch.distributed as dist
import cairn
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
RANK, WORLD, STEPS, EVERY = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[5]), 3
name, folder, DROPOUT = sys.argv[1], sys.argv[3], float(sys.argv[4])
log = open(sys.argv[2], "a") if RANK == 0 else None

def note(step, loss):
    if log:
        log.write(f"{step} {loss.item().hex()}\\n")
        log.flush()
        # The Trainer makes one step more than it was told to if it goes on from its last one.
        while step == STEPS - 1 and os.environ.get("CAIRN_TEST_HELD"):
            time.sleep(1)  # step of a poll: it is killed here
"""
TRAINER = """
import transformers, cairn.hf
transformers.logging.set_verbosity_error()

class Noted(transformers.Trainer):
    def compute_loss(self, *arguments, **named):
        loss = super().compute_loss(*arguments, **named)
        note(self.state.global_step, loss.detach())
        return loss

torch.manual_seed(0)
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
    n_layer=2, n_embd=64, n_head=4, vocab_size=65, n_positions=32, resid_pdrop=DROPOUT, embd_pdrop=DROPOUT, attn_pdrop=DROPOUT))
tokens = [(first + 7 * torch.arange(32)) % 65 for first in range(65)]
arguments = transformers.TrainingArguments(
    output_dir=folder, max_steps=STEPS, save_steps=EVERY, logging_steps=10, seed=3, per_device_train_batch_size=12 // WORLD,
    save_total_limit=2, report_to=[], disable_tqdm=True, use_cpu=True, ddp_backend="gloo", learning_rate=3e-3)
run = cairn.run(name)
trainer = Noted(model=model, args=arguments, train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
                callbacks=[cairn.hf.CairnCallback(run)])
found = cairn.hf.resume_dir(run, folder)
if found and RANK == 0:
    print(f"goes on from step {found}", flush=True)
trainer.train(resume_from_checkpoint=found)
run.close()
print(f"step {trainer.state.global_step}", flush=True)
"""
CHECKPOINTING = """
import train
from torch.distributed.checkpoint.state_dict import _init_optim_state
from torch_checkpointing.checkpoint_layout import LayoutInfo, TorchSerialization
from torch_checkpointing.checkpoint_manager import CheckpointManager
from torch_checkpointing.schema import ItemSpec
from cairn.torch_checkpointing import CairnStorageConfig

dist.init_process_group("gloo")
called, state = train.build("ddp", WORLD, 1, DROPOUT)
model, optimizer = state["model"], state["optimizer"]
_init_optim_state(optimizer)
torch.manual_seed(100 + RANK)

def state_of(step):
    parts = {f"{number}.{key}": value for number, row in optimizer.state_dict()["state"].items() for key, value in row.items()}
    own = {"random": {"torch": torch.get_rng_state()}, "step": {"n": step}} if DROPOUT else {}
    return {"model": dict(model.state_dict()), "optimizer": parts, **own}

def manager_of(items):
    config = CheckpointManager.Config.with_sync_save()
    config.storage_config, config.items = CairnStorageConfig(name), items
    return config.build()

first = 0
latest = [None]
if RANK == 0:  # a save of the job before may be committed at any moment: one rank says for all which is the latest
    with cairn.run(name, read_only=True) as run:
        row = run.find("latest")
        latest = [row and row.step]
dist.broadcast_object_list(latest)
if latest[0] is not None:
    # Files are each rank's own, and the first rank's are what all ranks hold: a new rank has no others. (torch_checkpointing
    # 0.1.1 divides DTensors anew, but gathers what it needs for that on CUDA devices alone.)
    of_the_first = {} if DROPOUT else {
        item: ItemSpec(layout=LayoutInfo(f"{item}_0.pt", TorchSerialization())) for item in ("model", "optimizer")}
    loader = manager_of(of_the_first)
    found = loader.load(f"step_{latest[0]}", state_of(0))
    loader.close()
    model.load_state_dict(found["model"])
    own = optimizer.state_dict()
    for number, values in own["state"].items():
        for key in values:
            values[key] = found["optimizer"][f"{number}.{key}"]
    optimizer.load_state_dict(own)
    first = latest[0]
    if DROPOUT:
        torch.set_rng_state(found["random"]["torch"])
        assert first == found["step"]["n"]
    if RANK == 0:
        print(f"goes on from step {first}", flush=True)
manager = manager_of({})
for step in range(first, STEPS):
    for group in optimizer.param_groups:
        group["lr"] = 3e-3 * min(1.0, (step + 1) / 10) * 0.999 ** step
    tokens, targets = train.batch_of(step, RANK, WORLD)
    loss = torch.nn.functional.cross_entropy(called(tokens).float().reshape(-1, 65), targets.reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    shown = loss.detach() / WORLD
    dist.all_reduce(shown)
    note(step, shown)
    if (step + 1) % EVERY == 0:
        manager.save(f"step_{step + 1}", state_of(step + 1))
dist.barrier()
manager.close()
print(f"step {STEPS}", flush=True)
"""
DEEPSPEED = """
import logging
import train
import deepspeed, cairn.deepspeed
logging.disable(logging.WARNING)
# Compiled extensions are not built: the lock of a build that was killed is waited for for ever.
deepspeed.ops.__compatible_ops__.update(dict.fromkeys(deepspeed.ops.__compatible_ops__, False))

dist.init_process_group("gloo")
torch.manual_seed(0)
engine, *_ = deepspeed.initialize(model=train.Gpt(DROPOUT), config={
    "train_batch_size": 12, "train_micro_batch_size_per_gpu": 12 // WORLD, "zero_force_ds_cpu_optimizer": False,
    "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "torch_adam": True}}, "zero_optimization": {"stage": 3}})
run = cairn.run(name)
cairn.deepspeed.install(engine, run)
path, _ = cairn.deepspeed.load(engine, folder)
if path:
    if RANK == 0:
        print(f"goes on from step {engine.global_steps}", flush=True)
for step in range(engine.global_steps, STEPS):
    torch.manual_seed(step * WORLD + RANK)  # of dropout
    tokens, targets = train.batch_of(step, RANK, WORLD)
    loss = torch.nn.functional.cross_entropy(engine(tokens).float().reshape(-1, 65), targets.reshape(-1))
    engine.backward(loss)
    engine.step()
    shown = loss.detach() / WORLD
    dist.all_reduce(shown)
    note(step, shown)
    if (step + 1) % EVERY == 0:
        engine.save_checkpoint(folder)
dist.barrier()
run.close()
print(f"step {STEPS}", flush=True)
"""

DEEPSPEED_STEPS = 80 if SLOW else 40
IMPORTS = {TRAINER: ("transformers.trainer", "transformers.models.gpt2.modeling_gpt2"), CHECKPOINTING: ("torch_checkpointing",),
           DEEPSPEED: ("deepspeed",)}


def only_with(*modules):
    missing = [name for name in modules if not importlib.util.find_spec(name)]
    return unittest.skipIf(missing, f"no {', '.join(missing)}")


class KilledFrameworks(Lives):
    needs = ("torch",)
    program_text, dropout = "", 0.1

    def start(self, name, log, world):
        os.environ["DS_ACCELERATOR"] = "cpu"
        return ranks.start(self.program_text, world, name, log, self.folder / name.partition("/")[2], self.dropout,
                           self.steps, package.TREE / "examples" / "python", preamble=BEGIN, imports=IMPORTS[self.program_text])

    def other_numbers_of(self, program_text, **options):
        self.program_text, self.dropout = program_text, 0
        self.other_numbers(OTHER_WORLDS, **options)

    @only_with("transformers", "accelerate")
    def test_losses_of_the_trainer_are_those_of_a_job_that_was_never_killed(self):
        self.program_text = TRAINER
        self.never_killed(world=2)

    @only_with("transformers", "accelerate")
    def test_the_trainer_goes_on_with_other_numbers_of_ranks(self):
        self.other_numbers_of(TRAINER, apart=None)

    @only_with("torch_checkpointing")
    def test_losses_with_torch_checkpointing_are_those_of_a_job_that_was_never_killed(self):
        self.program_text = CHECKPOINTING
        self.never_killed(world=2)

    @only_with("torch_checkpointing")
    def test_torch_checkpointing_goes_on_with_other_numbers_of_ranks(self):
        self.other_numbers_of(CHECKPOINTING)

    @only_with("deepspeed")
    def test_losses_with_zero_3_are_those_of_a_job_that_was_never_killed(self):
        self.program_text, self.steps = DEEPSPEED, DEEPSPEED_STEPS
        self.never_killed(world=2)

    @only_with("deepspeed")
    def test_zero_3_goes_on_with_other_numbers_of_ranks(self):
        self.steps = DEEPSPEED_STEPS
        self.other_numbers_of(DEEPSPEED)


if __name__ == "__main__":
    package.main()
