#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the ZeRO checkpoints beside it, with DeepSpeed itself on CPUs, and expected.json: what
DeepSpeed's own zero_to_fp32 makes of them.

    make.py [CASE ...]

Needs torch and deepspeed; run it again only to add a case. The versions are in expected.json.
stage2_python_3_11_2 is of Debian 12's Python 3.11.2, which pickles the members of an enumeration by
their names; every other case is of a Python that pickles them by their numbers.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
import torch  # noqa: E402
import torch.multiprocessing  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CASES = {  # name: (stage, ranks, bf16, further settings of zero_optimization)
    "stage1": (1, 2, True, {}),
    "stage1_fp32": (1, 3, False, {}),
    "stage2": (2, 3, True, {"round_robin_gradients": True}),
    "stage3": (3, 2, True, {}),
    "stage3_subgroups": (3, 3, True, {"sub_group_size": 20}),
    "stage2_python_3_11_2": (2, 2, True, {}),
}


class Model(torch.nn.Module):
    """Sizes that no number of ranks divides, a tied weight, frozen parameters and a buffer."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 7)
        self.first = torch.nn.Linear(7, 5)
        self.frozen = torch.nn.Linear(5, 3)
        self.last = torch.nn.Linear(3, 7)
        self.head = torch.nn.Linear(7, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.arange(3.) + 1)
        for parameter in self.frozen.parameters():
            parameter.requires_grad = False

    def forward(self, tokens):
        hidden = self.frozen(self.first(self.embed(tokens).mean(1)))
        return self.head(self.last(hidden * self.scale.to(hidden.dtype)))


def train(rank, ranks, stage, bf16, further, folder, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import deepspeed
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    model = Model()
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.0}]
    config = {"train_micro_batch_size_per_gpu": 2,
              "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0,
                                    **further}}
    if bf16:
        config["bf16"] = {"enabled": True}
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=groups, config=config)
    for _ in range(2):
        loss = engine(torch.randint(0, 11, (2, 3))).float().sum()
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(folder, tag="step2")
    torch.distributed.barrier()


def hexed(tensor):
    return bytes(tensor.detach().float().contiguous().view(-1).view(torch.uint8).tolist()).hex()


def main():
    import deepspeed
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    path = HERE / "expected.json"
    cases = json.loads(path.read_text())["cases"] if path.exists() else {}
    expected = {"torch": torch.__version__, "deepspeed": deepspeed.__version__, "cases": cases}
    for number, (name, (stage, ranks, bf16, further)) in enumerate(CASES.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(
                train, args=(ranks, stage, bf16, further, folder, 29600 + number), nprocs=ranks)
            merged = get_fp32_state_dict_from_zero_checkpoint(folder)
            expected["cases"][name] = {key: {"shape": list(value.shape), "fp32": hexed(value)}
                                       for key, value in merged.items()}
            shutil.rmtree(HERE / name, ignore_errors=True)
            shutil.copytree(folder, HERE / name, ignore=shutil.ignore_patterns("*.py"))
    path.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
