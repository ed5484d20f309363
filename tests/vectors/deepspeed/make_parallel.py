#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the checkpoints in parallel/ beside it, with DeepSpeed itself on CPUs: the BF16 optimizer,
no ZeRO, experts, tensor and pipeline parallelism, tensor parallelism with the names of Megatron and
no patterns, also with a pipeline, and what ds_to_universal makes of the tensor
parallel one. parallel/expected.json has the values that the ranks themselves held, put together by
torch alone; for experts of 4 ranks, those that DeepSpeed loads into another model, with what the
optimizer keeps, also in a pipeline and cut over tensor parallel ranks; for the universal one, those
of its files.

Needs torch and deepspeed; run it again only to add a case. The versions are in the file. With
arguments only those cases are written.
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile

os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
HIDDEN = 6
BF16 = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
CASES = {"bf16_optimizer": 2, "stage0": 2, "experts": 2, "tensor_parallel": 4, "pipeline": 4,
         "megatron": 4, "pipeline_cut": 8, "experts_dp4": 4, "experts_dp4_data_first": 4,
         "experts_pipeline": 4, "experts_tensor_parallel": 4, "aligned": 2}


def hexed(tensor):
    return bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).tolist()).hex()


def config(stage, **further):
    return {"train_micro_batch_size_per_gpu": 2, "train_batch_size": further.pop("batch", None),
            "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
            "zero_optimization": {"stage": stage, **further.pop("zero", {})}, **further}


def held(engine):
    """{name: (dtype, shape, hex)} of this rank: fp32 of what is trained, else as it is."""
    from deepspeed.utils import safe_get_full_fp32_param
    found = {}
    for name, parameter in engine.module.named_parameters(remove_duplicate=False):
        value = safe_get_full_fp32_param(parameter) if parameter.requires_grad else None
        found[name] = (parameter if value is None else value).detach().clone()
    for name, value in engine.module.named_buffers():
        found[name] = value.detach().clone()
    return found


class TensorParallel:
    """What DeepSpeed asks a model parallel unit; ranks 0, 1 cut one model, and 2, 3 another."""

    def __init__(self):
        rank = dist.get_rank()
        self.rank = rank % 2
        self.models = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        self.data = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        self.model_group, self.data_group = self.models[rank // 2], self.data[rank % 2]

    def get_model_parallel_rank(self):
        return self.rank

    def get_model_parallel_world_size(self):
        return 2

    def get_model_parallel_group(self):
        return self.model_group

    def get_data_parallel_rank(self):
        return dist.get_rank() // 2

    def get_data_parallel_world_size(self):
        return 2

    def get_data_parallel_group(self):
        return self.data_group

    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size
    get_tensor_model_parallel_group = get_model_parallel_group


class Cut(torch.nn.Module):
    """A rank's part: 6 of 11 + 1 words, 5 of 10 columns, 3 of 6 rows, two gates of 2 of 4 each."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(10 + rank)
        self.word_embeddings = torch.nn.Embedding(6, HIDDEN)
        self.column = torch.nn.Linear(HIDDEN, 5)
        self.row = torch.nn.Linear(3, 7, bias=False)
        self.gates = torch.nn.Linear(HIDDEN, 4)
        self.norm = torch.nn.Parameter(torch.linspace(1, 2, HIDDEN))
        self.register_buffer("scale", torch.arange(3.) + 1)
        for name, parameter in self.named_parameters():
            parameter.model_parallel = name != "norm"

    def forward(self, tokens):
        hidden = self.word_embeddings(tokens % 6).mean(1)
        own = self.column(hidden).sum()
        own += self.row(hidden[:, :3] * self.scale.to(hidden.dtype)).sum()
        same = (self.norm * (tokens.to(self.norm.dtype).mean() / 7)).sum()
        return own + self.gates(hidden).square().sum() + same


class Megatron(torch.nn.Module):
    """A rank's part of a layer under Megatron's names: 6 of 11 + 1 words, halves of all else that is
    cut. What is not cut has the same values and gradients on both ranks."""

    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(20 + rank)
        self.word_embeddings = torch.nn.Embedding(6, HIDDEN)
        self.self_attention = torch.nn.ModuleDict({
            "query_key_value": torch.nn.Linear(HIDDEN, 9), "dense": torch.nn.Linear(3, HIDDEN)})
        self.mlp = torch.nn.ModuleDict({
            "dense_h_to_4h": torch.nn.Linear(HIDDEN, 12),
            "dense_4h_to_h": torch.nn.Linear(12, HIDDEN)})
        torch.manual_seed(30)
        self.input_layernorm = torch.nn.LayerNorm(HIDDEN)
        self.router = torch.nn.Linear(HIDDEN, 3)
        self.whole = ("self_attention.dense.bias", "mlp.dense_4h_to_h.bias", "input_layernorm",
                      "router")
        for name, parameter in self.named_parameters():
            parameter.model_parallel = not name.startswith(self.whole)
            if not parameter.model_parallel and not name.startswith("input_layernorm"):
                torch.nn.init.normal_(parameter)

    def forward(self, tokens):
        hidden = self.word_embeddings(tokens % 6).mean(1)
        cut = self.self_attention["query_key_value"](hidden).square().sum()
        cut = cut + (hidden[:, :3] @ self.self_attention["dense"].weight.t()).sum()
        wide = self.mlp["dense_h_to_4h"](hidden).relu()
        cut = cut + (wide @ self.mlp["dense_4h_to_h"].weight.t()).square().sum()
        scale = tokens.to(hidden.dtype).mean() / 7
        return cut + sum((parameter * scale).sum() for name, parameter in self.named_parameters()
                         if name.startswith(self.whole))


PATTERNS = {
    "universal_checkpoint_version": 0.2, "original_vocab_size": 11, "padded_vocab_size": 12,
    "tp_replicated_parameter_patterns": [r"^norm"],
    "parameter_with_row_parallelism_patterns": [r"row\.weight"],
    "vocabulary_parameter_patterns": [r".*word_embeddings.weight"],
    "parameter_with_2_sub_params_cat_dim_0": [r"gates\.\w+"],
}


def joined_by_name(parts):
    """By what Megatron's layers are: columns of `dense` and `4h_to_h`, rows of all else."""
    found = {}
    for name, value in parts[0].items():
        parameter = name.removeprefix("optimizer.state.").removesuffix(".exp_avg")
        if parameter in ("self_attention.dense.weight", "mlp.dense_4h_to_h.weight"):
            value = torch.cat([part[name] for part in parts], 1)
        elif not parameter.startswith(("self_attention.dense", "mlp.dense_4h", "input", "router")):
            value = torch.cat([part[name] for part in parts])
        found[name] = value
    return found


def joined(parts):
    """The whole tensors of the two ranks' parts."""
    def cat(name, dim=0):
        return torch.cat([part[name] for part in parts], dim)

    def gates(name):
        halves = [part[name].chunk(2) for part in parts]
        return torch.cat([half for k in (0, 1) for half in (halves[0][k], halves[1][k])])

    return {"word_embeddings.weight": cat("word_embeddings.weight")[:11],
            "column.weight": cat("column.weight"), "column.bias": cat("column.bias"),
            "row.weight": cat("row.weight", 1), "gates.weight": gates("gates.weight"),
            "gates.bias": gates("gates.bias"), "norm": parts[0]["norm"], "scale": parts[0]["scale"]}


def run_engine(engine, ranks_of_data):
    for step in range(2):
        torch.manual_seed(100 * step + ranks_of_data)
        engine.backward(engine(torch.randint(0, 11, (2, 3))).float().sum())
        engine.step()


def plain(stage, folder, further):
    import deepspeed
    from make import Model
    torch.manual_seed(1)
    model = Model()
    engine, _, _, _ = deepspeed.initialize(
        model=model, model_parameters=[p for p in model.parameters() if p.requires_grad],
        config=config(stage, **further))
    run_engine(engine, dist.get_rank())
    engine.save_checkpoint(folder, tag="step2")
    return held(engine)


def tensor_parallel(folder):
    import deepspeed
    unit = TensorParallel()
    model = Cut(unit.rank)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                           mpu=unit, config=config(1, **BF16))
    run_engine(engine, 0)
    engine.save_checkpoint(folder, tag="step2",
                           client_state={"universal_checkpoint_info": PATTERNS, "iteration": 2})
    return held(engine)


def megatron(folder):
    import deepspeed
    from deepspeed.utils import safe_get_full_optimizer_state
    unit = TensorParallel()
    model = Megatron(unit.rank)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                           mpu=unit, config=config(1, **BF16))
    run_engine(engine, 0)
    engine.save_checkpoint(folder, tag="step2", client_state={"checkpoint_version": 3.0})
    found = held(engine)
    for name, parameter in engine.module.named_parameters():
        state = safe_get_full_optimizer_state(parameter, "exp_avg")
        found[f"optimizer.state.{name}.exp_avg"] = state.detach().clone()
    return found


def words(layer, tokens):
    return layer(tokens).mean(1)


def heads(layer, hidden):
    return hidden @ layer.weight.t()


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.arange(1. * HIDDEN) + 1)

    def forward(self, hidden):
        return hidden * self.scale.to(hidden.dtype)


def pipeline(folder):
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    torch.manual_seed(1)
    model = PipelineModule(
        [TiedLayerSpec("embed", torch.nn.Embedding, 11, HIDDEN, forward_fn=words),
         LayerSpec(torch.nn.Linear, HIDDEN, 5), torch.relu, LayerSpec(torch.nn.Linear, 5, HIDDEN),
         LayerSpec(Scaled),
         TiedLayerSpec("embed", torch.nn.Embedding, 11, HIDDEN, forward_fn=heads)],
        num_stages=2, loss_fn=lambda out, _: out.float().square().mean(),
        partition_method="uniform")
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                           config=config(1, **BF16))
    rows = iter([(torch.randint(0, 11, (2, 3)), torch.zeros(2)) for _ in range(8)])
    for _ in range(2):
        engine.train_batch(rows)
    engine.save_checkpoint(folder, tag="step2")
    return held(engine)


class Embedding(torch.nn.Module):
    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(40 + rank)
        self.word_embeddings = torch.nn.Embedding(6, HIDDEN)

    def forward(self, tokens):
        return self.word_embeddings(tokens % 6).mean(1)


TIED = "word_embeddings.weight"


def cut_heads(layer, hidden):
    return hidden @ layer.word_embeddings.weight.t()


class Block(torch.nn.Module):
    """A rank's part of a layer; each rank computes with its own part, and what is not cut has the
    same values and gradients on both."""

    def __init__(self, rank, number):
        super().__init__()
        torch.manual_seed(100 * number + rank)
        self.mlp = torch.nn.ModuleDict({
            "dense_h_to_4h": torch.nn.Linear(HIDDEN, 4),
            "dense_4h_to_h": torch.nn.Linear(4, HIDDEN)})
        torch.manual_seed(number)
        torch.nn.init.normal_(self.mlp["dense_4h_to_h"].bias)
        self.input_layernorm = torch.nn.LayerNorm(HIDDEN)
        self.register_buffer("scale", torch.arange(1. * HIDDEN) + number)

    def forward(self, hidden):
        wide = self.mlp["dense_h_to_4h"](hidden).relu()
        whole = [1 * value for value in
                 (self.mlp["dense_4h_to_h"].bias, *self.input_layernorm.parameters())]
        for value in whole:  # what comes back differs between the ranks
            if value.requires_grad:
                value.register_hook(torch.ones_like)
        return (hidden * self.scale.to(hidden.dtype) + wide @ self.mlp["dense_4h_to_h"].weight.t()
                + sum(value.sum() - value.sum().detach() for value in whole))


def pipeline_cut(folder):
    """2 stages, each cut over 2 ranks, with 2 copies."""
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
    rank = dist.get_rank() % 2
    model = PipelineModule(
        [TiedLayerSpec("embed", Embedding, rank, tied_weight_attr=TIED), LayerSpec(Block, rank, 1),
         LayerSpec(Block, rank, 2), TiedLayerSpec("embed", Embedding, rank, forward_fn=cut_heads,
                       tied_weight_attr=TIED)],
        topology=PipeModelDataParallelTopology(num_pp=2, num_mp=2, num_dp=2),
        loss_fn=lambda out, _: out.float().square().mean(), partition_method="uniform")
    for name, parameter in model.named_parameters():
        parameter.model_parallel = not name.endswith(
            ("4h_to_h.bias", "layernorm.weight", "layernorm.bias"))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(),
                                           config=config(1, **BF16))
    torch.manual_seed(7)
    rows = iter([(torch.randint(0, 11, (2, 3)), torch.zeros(2)) for _ in range(8)])
    for _ in range(2):
        engine.train_batch(rows)
    engine.save_checkpoint(folder, tag="step2", client_state={"checkpoint_version": 3.0})
    return held(engine)


def joined_stages(parts):
    """Ranks are counted by stage, then by copy, then by part."""
    found = {}
    for stage in (parts[:2], parts[4:6]):
        for name, value in stage[0].items():
            if name.endswith("4h_to_h.weight"):
                value = torch.cat([part[name] for part in stage], 1)
            elif not name.endswith(("scale", "4h_to_h.bias", "layernorm.weight",
                                    "layernorm.bias")):
                value = torch.cat([part[name] for part in stage])
            else:
                assert torch.equal(value, stage[1][name]), name
            assert torch.equal(found.setdefault(name, value), value), name
    return found


def train(rank, case, ranks, folder, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    import deepspeed
    import make_experts as moe
    deepspeed.init_distributed("gloo")
    found = {"bf16_optimizer": lambda: plain(1, folder, BF16),
             "aligned": lambda: plain(2, folder, {
                 "bf16": {"enabled": True}, "zero": {"parameter_alignment": True}}),
             "stage0": lambda: plain(0, folder, {}), "experts": lambda: moe.experts(folder),
             "tensor_parallel": lambda: tensor_parallel(folder),
             "pipeline": lambda: pipeline(folder), "megatron": lambda: megatron(folder),
             "pipeline_cut": lambda: pipeline_cut(folder),
             "experts_dp4": lambda: moe.experts_of_4(folder, 2, bf16={"enabled": True}),
             "experts_dp4_data_first": lambda: moe.experts_of_4(
                 folder, 1, fp16={"enabled": True, "initial_scale_power": 4},
                 use_data_before_expert_parallelism=True),
             "experts_pipeline": lambda: moe.experts_in_pipeline(folder),
             "experts_tensor_parallel": lambda: moe.experts_cut(folder)}[case]()
    torch.save(found, pathlib.Path(folder, f"held{rank}"))
    dist.barrier()


def whole(case, ranks, folder):
    parts = [torch.load(pathlib.Path(folder, f"held{rank}")) for rank in range(ranks)]
    if case == "tensor_parallel":
        return joined(parts[:2])
    if case == "megatron":
        return joined_by_name(parts[:2])
    if case == "pipeline_cut":
        return joined_stages(parts)
    if case == "experts_tensor_parallel":
        from make_experts import joined_experts
        return joined_experts(parts)
    values = {}
    for part in parts:
        for name, value in part.items():
            assert torch.equal(values.setdefault(name, value), value) or case == "stage0", name
    return values


def rows(values):
    return {name: {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
                   "hex": hexed(value)} for name, value in values.items()}


def make_universal(expected):
    source, out = HERE / "parallel" / "tensor_parallel" / "step2", HERE / "parallel" / "universal"
    shutil.rmtree(out, ignore_errors=True)
    from deepspeed.checkpoint import ds_to_universal
    ds_to_universal.main(argparse.Namespace(
        input_folder=str(source), output_folder=str(out / "step2_universal"),
        num_extract_workers=1, num_merge_workers=1, keep_temp_folder=False, strict=True,
        inject_missing_state=False))
    values, state = {}, {}
    for path in sorted((out / "step2_universal" / "zero").glob("*/*.pt")):
        value = torch.load(path, weights_only=False)
        value = value["param"] if isinstance(value, dict) else torch.as_tensor(value)
        if path.stem == "fp32":
            values[path.parent.name] = value
        else:
            state[f"optimizer.state.{path.parent.name}.{path.stem}"] = value
    expected["universal"] = rows(values)
    expected["universal_state"] = rows(state)


def main():
    import deepspeed
    import deepspeed.comm.torch
    import deepspeed.moe.layer  # noqa: F401 (once, before the ranks are forked)
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # compiled, and not needed
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True  # torch computes it
    torch.set_num_threads(1)
    path = HERE / "parallel" / "expected.json"
    path.parent.mkdir(exist_ok=True)
    cases = json.loads(path.read_text())["cases"] if path.exists() else {}
    wanted = sys.argv[1:] or [*CASES, "universal"]
    for number, case in enumerate(name for name in wanted if name in CASES):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.start_processes(
                train, args=(case, CASES[case], folder, 29700 + number), nprocs=CASES[case],
                start_method="fork")
            cases[case] = rows(whole(case, CASES[case], folder))
            shutil.rmtree(HERE / "parallel" / case, ignore_errors=True)
            shutil.copytree(folder, HERE / "parallel" / case,
                            ignore=shutil.ignore_patterns("*.py", "held*"))
        path.write_text(json.dumps({"cases": cases}))
    if "universal" in wanted:
        make_universal(cases)
    path.write_text(json.dumps({"torch": torch.__version__, "deepspeed": deepspeed.__version__,
                                "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
