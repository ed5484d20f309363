# SPDX-License-Identifier: Apache-2.0
"""Models with experts, for make_parallel.py: what DeepSpeed holds of them when they are trained, and
what it loads into another model."""
import torch
import torch.distributed as dist
from make_parallel import HIDDEN, TensorParallel, config, held, run_engine


class Routed(torch.nn.Module):
    def __init__(self, second=2):
        super().__init__()
        from deepspeed.moe.layer import MoE
        self.embed = torch.nn.Embedding(11, HIDDEN)
        linear = torch.nn.Linear
        expert = linear(HIDDEN, HIDDEN) if second == 2 else torch.nn.Sequential(
            linear(HIDDEN, 5), linear(5, HIDDEN))  # 2 of 71: cut within one, and with padding
        self.first = MoE(HIDDEN, expert, num_experts=4, ep_size=2, k=1)
        self.second = MoE(HIDDEN, torch.nn.Linear(HIDDEN, HIDDEN), num_experts=second,
                          ep_size=second, k=1)
        self.last = torch.nn.Linear(HIDDEN, 7)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        hidden = hidden + self.first(hidden)[0]
        return self.last(hidden + self.second(hidden)[0])


def routed_engine(seed, stage, second, **further):
    """Experts of a rank are copies of one, and those of other ranks, too, until they are drawn."""
    import deepspeed
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
    torch.manual_seed(seed)
    model = Routed(second)
    torch.manual_seed(10 * seed + dist.get_rank())
    for name, value in model.named_parameters():
        if second > 2 and ".deepspeed_experts." in name:
            torch.nn.init.normal_(value)
            value.requires_grad = stage != 1 or not name.endswith(".0.bias")  # some are frozen
    groups = split_params_into_different_moe_groups_for_optimizer(
        {"params": [value for value in model.parameters() if value.requires_grad], "name": "all"})
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=groups,
                                           config=config(stage, **further))
    return engine


def numbered(engine, found):
    """Values of this rank's experts under their numbers among all ranks'."""
    named = {}
    for name, value in found.items():
        head, found_at, tail = name.partition(".deepspeed_experts.")
        if found_at:
            number, _, rest = tail.partition(".")
            layer = engine.module.get_submodule(
                head.removeprefix("optimizer.state.").partition(".deepspeed_moe")[0])
            from deepspeed.utils import groups
            rank = groups._get_expert_parallel_rank(layer.expert_group_name)
            name = f"{head}{found_at}{int(number) + rank * layer.num_local_experts}.{rest}"
        named[name] = value
    return named


def experts(folder):
    engine = routed_engine(1, 2, 2, bf16={"enabled": True})
    run_engine(engine, dist.get_rank())
    engine.save_checkpoint(folder, tag="step2")
    return numbered(engine, held(engine))


def with_state(engine):
    from deepspeed.utils import safe_get_full_optimizer_state
    found = held(engine)
    engine.optimizer._hp_optimizer_states_linked = False  # it was, when only group 0 had stepped
    engine.optimizer._lazy_init_hp_params_optimizer_state()
    for name, parameter in engine.module.named_parameters():
        for what in ("exp_avg", "exp_avg_sq") if parameter.requires_grad else ():
            value = safe_get_full_optimizer_state(parameter, what)
            found[f"optimizer.state.{name}.{what}"] = value.detach().clone()
    steps = {float(row["step"]) for row in engine.optimizer.optimizer.state.values()}
    assert steps == {2.0}, steps
    return numbered(engine, found)


def experts_of_4(folder, stage, **further):
    """Two groups of experts: one cut over two ranks each, and one over none."""
    engine = routed_engine(1, stage, 4, **further)
    run_engine(engine, dist.get_rank())
    return loaded_again(folder, engine, routed_engine(5, stage, 4, **further))


def loaded_again(folder, engine, other):
    engine.save_checkpoint(folder, tag="step2")
    before = with_state(engine)
    assert other.load_checkpoint(folder, tag="step2")[0]
    loaded = with_state(other)
    for name, value in before.items():
        assert torch.equal(loaded[name], value), name
    return loaded


def in_groups(model):
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
    return split_params_into_different_moe_groups_for_optimizer(
        {"params": list(model.parameters()), "name": "all"})


class RoutedBlock(torch.nn.Module):
    def __init__(self, **further):
        super().__init__()
        from deepspeed.moe.layer import MoE
        self.moe = MoE(HIDDEN, torch.nn.Linear(HIDDEN, HIDDEN), num_experts=4, ep_size=2, k=1,
                       **further)

    def forward(self, hidden):
        return hidden + self.moe(hidden)[0]


def experts_in_pipeline(folder):
    """Each stage calls its own layers of experts 0, 1, ... and writes no files of layers."""
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule

    def engine_of(seed):
        torch.manual_seed(seed)
        model = PipelineModule(
            [LayerSpec(torch.nn.Embedding, 11, HIDDEN), LayerSpec(RoutedBlock),
             LayerSpec(RoutedBlock), LayerSpec(torch.nn.Linear, HIDDEN, 3)],
            num_stages=2, loss_fn=lambda out, _: out.float().square().mean(),
            partition_method="uniform")
        return deepspeed.initialize(model=model, model_parameters=in_groups(model),
                                    config=config(1, bf16={"enabled": True}))[0]
    engine = engine_of(1)
    torch.manual_seed(7)
    rows = iter([(torch.randint(0, 11, (2, 3)), torch.zeros(2)) for _ in range(8)])
    for _ in range(2):
        engine.train_batch(rows)
    return loaded_again(folder, engine, engine_of(5))


def experts_cut(folder):
    """Each tensor parallel rank has rows of every expert; all else is the same on both."""
    import deepspeed
    import deepspeed.moe.sharded_moe as sharded
    sharded.gather_tokens = sharded.drop_tokens = lambda tokens, dim=0: tokens  # gloo cannot

    class Model(torch.nn.Module):
        def __init__(self, seed):
            super().__init__()
            torch.manual_seed(seed)
            self.embed = torch.nn.Embedding(11, HIDDEN)
            self.block = RoutedBlock(enable_expert_tensor_parallelism=True)
            for name, value in self.named_parameters():
                if "experts" in name:
                    torch.manual_seed(seed + 10 * dist.get_rank())
                    torch.nn.init.normal_(value)
                else:
                    value.register_hook(torch.ones_like)  # what comes back differs

        def forward(self, tokens):
            return self.block(self.embed(tokens))

    def engine_of(seed):
        unit = TensorParallel()
        model = Model(seed)
        return deepspeed.initialize(model=model, model_parameters=in_groups(model), mpu=unit,
                                    config=config(1, bf16={"enabled": True}))[0]
    engine = engine_of(1)
    run_engine(engine, dist.get_rank() // 2)
    return loaded_again(folder, engine, engine_of(5))


def joined_experts(parts):
    """Ranks 0 and 1 cut some experts, and 2 and 3 the others."""
    found = {}
    for pair in (parts[:2], parts[2:]):
        for name, value in pair[0].items():
            if ".deepspeed_experts." in name:
                value = torch.cat([part[name] for part in pair])
            else:
                assert torch.equal(value, pair[1][name]), name
            assert torch.equal(found.setdefault(name, value), value), name
    return found
