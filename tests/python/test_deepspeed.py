# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=120 rooms=python,client,uploader,server
"""DeepSpeed with the real library, where it is installed: each ZeRO stage, experts, pipelines and the parallel_write of
their layers, other numbers of ranks, and what goes wrong in one rank."""
import textwrap

import package
import ranks

KIT = """
import logging, pathlib
import deepspeed, cairn.deepspeed
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
logging.disable(logging.WARNING)
# Compiled extensions are not built: the lock of a build that was killed is waited for for ever.
deepspeed.ops.__compatible_ops__.update(dict.fromkeys(deepspeed.ops.__compatible_ops__, False))
name, folder = sys.argv[1:3]

def net_of():
    return torch.nn.Sequential(torch.nn.Linear(8, 17), torch.nn.ReLU(), torch.nn.Linear(17, 1))

def engine_of(stage, net=None, seed=0, **more):
    torch.manual_seed(seed)
    net = net or net_of()
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={
        "train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_gather_16bit_weights_on_model_save": True},
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, **more})
    return engine

def steps(engine, first, last):
    losses = []
    for step in range(first, last):
        torch.manual_seed(step * WORLD + RANK)
        out = engine(torch.randn(4, 8))
        loss = (out[0] if isinstance(out, tuple) else out).square().mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses

def whole(engine):
    found = {}
    for at, (key, value) in enumerate(engine.module.named_parameters()):
        found[key] = safe_get_full_fp32_param(value).clone()
        for part in ("exp_avg", "exp_avg_sq"):
            found[f"{key}.{part}"] = safe_get_full_optimizer_state(value, part).clone()
    return found
"""


class DeepSpeed(package.Worlds):
    needs = ("torch", "deepspeed")

    def ranks(self, text, world=2, **options):
        return ranks.run(KIT + textwrap.dedent(text), world, self.name, self.folder / self.name.partition("/")[2],
                         env={"DS_ACCELERATOR": "cpu"}, **options)

    def test_each_stage_saves_and_goes_on_as_if_it_had_not_ended(self):
        self.ranks("""
            for stage in (0, 1, 2, 3):
                whole_job = steps(engine_of(stage), 0, 6)
                engine = engine_of(stage)
                run = cairn.run(f"{name}-{stage}")
                cairn.deepspeed.install(engine, run)
                first = steps(engine, 0, 3)
                engine.save_checkpoint(f"{folder}-{stage}", tag="global_step3", client_state={"told": stage})
                other = engine_of(stage, seed=5)
                cairn.deepspeed.install(other, run)
                assert cairn.deepspeed.prepare(run, f"{folder}-{stage}-elsewhere") == "global_step3"
                dist.barrier()
                path, client = other.load_checkpoint(f"{folder}-{stage}-elsewhere")
                assert path and client["told"] == stage, (path, client)
                assert first + steps(other, 3, 6) == whole_job, stage
                dist.barrier()
        """)

    def test_a_checkpoint_is_loaded_on_another_number_of_ranks(self):
        self.ranks("""
            for stage in (1, 2, 3):
                engine = engine_of(stage)
                cairn.deepspeed.install(engine, f"{name}-{stage}")
                assert cairn.deepspeed.load(engine, folder) == (None, None)
                steps(engine, 0, 3)
                engine.save_checkpoint(folder)
                state = whole(engine)
                if RANK == 0:
                    torch.save(state, f"{folder}-{stage}.pt")
        """)
        for world in (1, 3):
            self.ranks("""
                for stage in (1, 2, 3):
                    saved = torch.load(f"{folder}-{stage}.pt")
                    engine = engine_of(stage, seed=7)
                    cairn.deepspeed.install(engine, cairn.run(f"{name}-{stage}"))
                    path, _ = cairn.deepspeed.load(engine, f"{folder}-{WORLD}-{stage}")
                    assert path and engine.global_steps == 3, (path, engine.global_steps)
                    found = whole(engine)
                    assert found.keys() == saved.keys()
                    for key, value in saved.items():
                        assert torch.equal(found[key], value), (WORLD, stage, key, found[key], value)
                    steps(engine, 3, 4)
                    assert len(list(pathlib.Path(f"{folder}-{WORLD}-{stage}").glob("*universal*"))) == 0
            """, world)

    def test_a_model_saved_beside_checkpoints_is_a_file_and_no_version(self):
        self.ranks("""
            for stage in (1, 3):
                engine = engine_of(stage)
                run = cairn.run(f"{name}-{stage}")
                cairn.deepspeed.install(engine, run)
                steps(engine, 0, 2)
                engine.save_checkpoint(folder)
                assert engine.save_16bit_model(f"{folder}/out", "model.bin")
                assert engine.save_16bit_model(f"{folder}/global_step2", f"model-{stage}.bin")
                dist.barrier()
                assert [row.step for row in run.list()] == [2]
                names = list(run.latest().shards)
                assert not any("bin" in one for one in names) and len(names) >= 2, names
                for path in ("out/model.bin", f"global_step2/model-{stage}.bin"):
                    assert torch.load(f"{folder}/{path}")["0.weight"].shape == (17, 8)
                dist.barrier()
        """)

    def test_a_rank_that_cannot_save_fails_the_save_on_all_ranks_and_the_next_one_succeeds(self):
        self.ranks("""
            engine = engine_of(3)
            run = cairn.run(name)
            cairn.deepspeed.install(engine, run)
            steps(engine, 0, 1)
            try:
                engine.save_checkpoint(folder, client_state={"own": (lambda: 0) if RANK == 1 else 0})
            except cairn.CairnError as error:
                assert RANK == 0 and "rank 1" in str(error) and "ickle" in str(error), error
            except Exception as error:
                assert RANK == 1 and "ickle" in str(error), error
            else:
                raise SystemExit("it was saved")
            assert run.latest() is None
            steps(engine, 1, 2)
            engine.save_checkpoint(folder)
            assert [row.step for row in run.list()] == [2]
        """)

    def test_a_save_that_is_not_waited_for_is_whole_before_the_next_one(self):
        self.ranks("""
            engine = engine_of(2)
            run = cairn.run(name)
            engines = cairn.deepspeed.install(engine, run, wait=False)
            for step in range(3):
                steps(engine, step, step + 1)
                engine.save_checkpoint(folder)
            engines.last.committed.result()
            assert [row.step for row in run.list()] == [3, 2, 1]
            other = engine_of(2, seed=3)
            cairn.deepspeed.install(other, run)
            assert cairn.deepspeed.load(other, folder + "-elsewhere")[0]
            assert steps(other, 3, 5) == steps(engine, 3, 5)
        """)

    def test_what_deepspeed_saved_before_is_loaded_from_its_files(self):
        self.ranks("""
            plain = engine_of(3)
            steps(plain, 0, 3)
            plain.save_checkpoint(folder)
            engine = engine_of(3, seed=3)
            run = cairn.run(name)
            cairn.deepspeed.install(engine, run)
            assert engine.load_checkpoint(folder)[0]
            assert steps(engine, 3, 5) == steps(plain, 3, 5)
            engine.save_checkpoint(folder)
            assert run.latest().step == 5
        """)

    def test_experts_are_saved_and_loaded(self):
        self.ranks("""
            from deepspeed.moe.layer import MoE
            from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
                    self.experts = MoE(8, torch.nn.Sequential(torch.nn.Linear(8, 8)), num_experts=4, ep_size=2, k=1,
                                       use_rts=False)
                def forward(self, x):
                    return self.last(self.experts(self.first(x))[0])

            def engine(seed):
                torch.manual_seed(seed)
                net = Net()
                groups = split_params_into_different_moe_groups_for_optimizer({"params": list(net.parameters()), "name": "all"})
                made, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(groups, lr=0.01), config={
                    "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2},
                    "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False})
                return made
            expected = steps(engine(0), 0, 5)
            first = engine(0)
            run = cairn.run(name)
            cairn.deepspeed.install(first, run)
            seen = steps(first, 0, 3)
            first.save_checkpoint(folder)
            assert sum("expert" in one for one in run.latest().shards) == 4, list(run.latest().shards)
            other = engine(4)
            cairn.deepspeed.install(other, run)
            assert cairn.deepspeed.load(other, folder + "-elsewhere")[0]
            assert seen + steps(other, 3, 5) == expected
        """)

    def test_pipeline_stages_are_saved_and_loaded_with_and_without_parallel_write(self):
        self.ranks("""
            from deepspeed.pipe import PipelineModule, LayerSpec
            deepspeed.init_distributed("gloo")

            def engine(seed, parallel):
                torch.manual_seed(seed)
                layers = [LayerSpec(torch.nn.Linear, 8, 8) for _ in range(5)] + [LayerSpec(torch.nn.Linear, 8, 1)]
                net = PipelineModule(layers=layers, num_stages=2, loss_fn=lambda out, wanted: (out - wanted).square().mean(),
                                     base_seed=seed)
                made, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={
                    "train_batch_size": 8 * WORLD // 2, "train_micro_batch_size_per_gpu": 4,
                    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
                    "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True,
                    "zero_force_ds_cpu_optimizer": False,
                    "checkpoint": {"parallel_write": {"pipeline_stage": parallel}}})
                return made

            def batches(step):
                torch.manual_seed(step)
                while True:
                    yield torch.randn(4, 8), torch.randn(4, 1)

            def trained(made, first, last):
                return [made.train_batch(batches(step)).item() for step in range(first, last)]
            for parallel in (False, True):
                expected = trained(engine(1, parallel), 0, 5)
                first = engine(1, parallel)
                run = cairn.run(f"{name}-{parallel}")
                cairn.deepspeed.install(first, run)
                seen = trained(first, 0, 3)
                first.save_checkpoint(f"{folder}-{parallel}")
                names = list(run.latest().shards)
                assert sum(one.startswith("layer_") for one in names) == 6, names
                other = engine(9, parallel)
                cairn.deepspeed.install(other, run)
                assert cairn.deepspeed.load(other, f"{folder}-{parallel}-elsewhere")[0]
                assert seen + trained(other, 3, 5) == expected
                dist.barrier()
        """, 4)


if __name__ == "__main__":
    package.main()
