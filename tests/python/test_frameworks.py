# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=90 rooms=python,client,uploader,server
"""Frameworks with the real libraries, each where it is installed: Lightning, Hugging Face's Trainer, DeepSpeed,
torch_checkpointing, NumPy, JAX."""
import importlib.util
import unittest

import package
import ranks


def only_with(*modules):
    missing = [name for name in modules if not importlib.util.find_spec(name)]
    return unittest.skipIf(missing, f"no {', '.join(missing)}")


class Frameworks(package.Worlds):
    needs = ("torch",)

    @only_with("lightning")
    def test_lightning_resumes_by_name_and_keeps_the_best_and_the_last(self):
        self.program("""
            import sys, warnings, logging
            warnings.filterwarnings("ignore")
            import lightning as L, torch
            from lightning.pytorch.callbacks import ModelCheckpoint
            from cairn.lightning import CairnCheckpointIO
            logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
            class Net(L.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.layer, self.seen = torch.nn.Linear(8, 1), []
                def training_step(self, batch, at):
                    loss = self.layer(batch[0]).square().mean()
                    self.seen.append(loss.item())
                    self.log("loss", loss)
                    return loss
                def configure_optimizers(self):
                    return torch.optim.AdamW(self.parameters(), lr=0.1)
            def fit(epochs, resume=None):
                L.seed_everything(1, verbose=False)
                data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 8)), batch_size=4)
                io = CairnCheckpointIO(name)
                keep = ModelCheckpoint(dirpath=folder, save_top_k=2, monitor="loss", save_last=True,
                                       filename="{epoch}-{step}")
                trainer = L.Trainer(max_epochs=epochs, plugins=[io], callbacks=[keep], accelerator="cpu", logger=False,
                                    enable_progress_bar=False, enable_model_summary=False)
                net = Net()
                trainer.fit(net, data, ckpt_path=resume)
                names = [row.step for row in io._reader().list()]
                io.teardown()
                return net.seen, names
            name, folder = sys.argv[1:]
            whole, _ = fit(6)
            name = name + "-two"
            first, steps = fit(3)
            assert 24 in steps, steps
            second, steps = fit(6, folder + "/last.ckpt")
            assert first + second == whole, (len(first), len(second), len(whole))
            assert 48 in steps and len(set(steps)) <= 6, steps
        """, self.name, self.folder / "lightning")

    @only_with("transformers", "accelerate")
    def test_the_trainer_goes_on_from_the_newest_whole_checkpoint(self):
        self.program("""
            import os, sys, warnings, shutil
            warnings.filterwarnings("ignore")
            import torch, transformers, cairn, cairn.hf
            transformers.logging.set_verbosity_error()
            name, folder = sys.argv[1:]
            losses = {}
            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(4, 1)
                def forward(self, x, labels=None):
                    out = self.layer(torch.nn.functional.dropout(x, 0.2, self.training))
                    return {"loss": (out.squeeze(-1) - labels).square().mean(), "logits": out}
            class Note(transformers.TrainerCallback):
                def on_log(self, args, state, control, logs=None, **_):
                    if "loss" in (logs or {}):
                        losses[state.global_step] = logs["loss"]
            def train(run, out, steps):
                torch.manual_seed(0)
                data = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(64)]
                args = transformers.TrainingArguments(output_dir=out, max_steps=steps, save_steps=4, logging_steps=1, seed=3,
                    per_device_train_batch_size=4, save_total_limit=1, report_to=[], disable_tqdm=True, use_cpu=True,
                    lr_scheduler_type="constant")
                trainer = transformers.Trainer(model=Net(), args=args, train_dataset=data,
                                               callbacks=[cairn.hf.CairnCallback(run), Note()])
                trainer.train(resume_from_checkpoint=cairn.hf.resume_dir(run, out))
            whole_run, run = cairn.run(name + "-whole"), cairn.run(name)
            assert cairn.hf.resume_dir(run, folder + "/b") is None
            train(whole_run, folder + "/a", 12)
            whole, losses = dict(losses), {}
            train(run, folder + "/b", 8)
            shutil.rmtree(folder + "/b")                              # another machine
            os.makedirs(folder + "/b/checkpoint-99")                  # what a killed job left half written
            train(run, folder + "/b", 12)
            assert losses == whole, (losses, whole)
            found = cairn.hf.folder(f"cairn://{name}/latest")
            assert os.path.exists(found + "/trainer_state.json")
            assert [row.step for row in run.list()] == [12, 8, 4]
        """, self.name, self.folder / "hf")

    @only_with("torch_checkpointing")
    def test_torch_checkpointing_saves_in_its_process_and_loads(self):
        self.program("""
            import sys, torch
            from torch_checkpointing.checkpoint_manager import CheckpointManager
            from cairn.torch_checkpointing import CairnStorageConfig
            import cairn
            if __name__ == "__main__":
                name = sys.argv[1]
                for how, step in (("with_sync_save", 1), ("with_async_save", 2)):
                    config = getattr(CheckpointManager.Config, how)()
                    config.storage_config = CairnStorageConfig(f"{name}-{how[5]}")
                    manager = config.build()
                    state = {"model": {"w": torch.arange(10.0) + step}, "step": {"n": step}}
                    future = manager.save(f"step_{step}", state)
                    if future is not None:
                        future.result()
                    into = {"model": {"w": torch.zeros(10)}, "step": {"n": 0}}
                    found = manager.load(f"step_{step}", into)
                    assert torch.equal(found["model"]["w"], state["model"]["w"]), found
                    manager.close()
                    with cairn.run(f"{name}-{how[5]}", read_only=True) as run:
                        assert [row.step for row in run.list()] == [step]
        """, self.name)

    @only_with("torch_checkpointing")
    def test_torch_checkpointing_on_two_ranks_is_committed_by_the_rename_of_the_first(self):
        ranks.run("""
            from torch_checkpointing.checkpoint_manager import CheckpointManager
            from cairn.torch_checkpointing import CairnStorageConfig
            config = CheckpointManager.Config.with_sync_save()
            config.storage_config = CairnStorageConfig(sys.argv[1])
            manager = config.build()
            manager.save("step_7", {"model": {"w": torch.full((4,), float(RANK))}})
            dist.barrier()
            found = manager.load("step_7", {"model": {"w": torch.zeros(4)}})
            assert found["model"]["w"][0] == RANK, found
            dist.barrier()
            manager.close()
        """, 2, self.name)

    @only_with("deepspeed")
    def test_deepspeed_zero_saves_and_resumes(self):
        ranks.run("""
            import logging
            import deepspeed, cairn.deepspeed
            logging.disable(logging.WARNING)
            name, folder = sys.argv[1:]
            def engine_of(stage):
                torch.manual_seed(0)
                net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
                engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config={
                    "train_batch_size": 4 * WORLD, "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
                    "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "none"}},
                    "zero_force_ds_cpu_optimizer": False})
                return engine
            def steps(engine, first, last):
                losses = []
                for step in range(first, last):
                    torch.manual_seed(step * WORLD + RANK)
                    loss = engine(torch.randn(4, 8)).square().mean()
                    engine.backward(loss)
                    engine.step()
                    losses.append(loss.item())
                return losses
            for stage in (1, 3):
                whole = steps(engine_of(stage), 0, 6)
                engine = engine_of(stage)
                run = cairn.run(f"{name}-{stage}")
                cairn.deepspeed.install(engine, run)
                first = steps(engine, 0, 3)
                engine.save_checkpoint(f"{folder}-{stage}", tag="global_step3")
                other = engine_of(stage)
                cairn.deepspeed.install(other, run)
                assert cairn.deepspeed.prepare(run, f"{folder}-{stage}-elsewhere") == "global_step3"
                dist.barrier()
                path, _ = other.load_checkpoint(f"{folder}-{stage}-elsewhere")
                assert path, "not found"
                assert first + steps(other, 3, 6) == whole
        """, 2, self.name, self.folder / "ds", env={"DS_ACCELERATOR": "cpu", "CAIRN_JOB": "ds-1"})

    @only_with("numpy")
    def test_numpy_arrays_of_each_type_and_layout_come_back(self):
        import numpy
        run = self.opened()
        state = {"f": numpy.arange(24, dtype="float32").reshape(2, 3, 4), "turned": numpy.arange(12).reshape(3, 4).T,
                 "steps": numpy.arange(20)[::2], "bool": numpy.array([True, False]), "c": numpy.ones(3, complex),
                 "scalar": numpy.float64(2.5), "empty": numpy.zeros((0, 3)), "half": numpy.ones(3, "float16")}
        run.save(1, state)
        found = run.at(1).load()
        for name, value in state.items():
            self.assertTrue(numpy.array_equal(found[name], value), name)
            if name != "scalar":  # which derives from float, and comes back as one
                self.assertEqual(found[name].dtype, value.dtype, name)
        into = {name: numpy.zeros_like(value) for name, value in state.items() if name != "scalar"}
        run.at(1).load(into=into, strict=False)
        for name, value in into.items():
            self.assertTrue(numpy.array_equal(value, state[name]), name)

    @only_with("jax", "numpy")
    def test_sharded_jax_arrays_are_boxes_and_load_on_another_mesh(self):
        self.program("""
            import sys
            import jax, numpy
            from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
            import cairn
            devices = numpy.array(jax.devices())
            assert len(devices) == 8
            mesh = Mesh(devices.reshape(4, 2), ("x", "y"))
            whole = {"w": numpy.arange(64 * 6, dtype="float32").reshape(64, 6), "b": numpy.arange(8, dtype="int32"),
                     "h": numpy.ones((8, 8), "float16")}
            spec = {"w": P("x", "y"), "b": P(None), "h": P("y")}
            state = {name: jax.device_put(value, NamedSharding(mesh, spec[name])) for name, value in whole.items()}
            run = cairn.run(sys.argv[1])
            run.save(1, {"params": state, "step": 1})
            found = run.at(1)
            assert found.tensors["params.w"].shape == (64, 6)
            other = Mesh(devices.reshape(2, 4), ("x", "y"))
            into = {"params": {name: jax.device_put(numpy.zeros_like(value), NamedSharding(other, P("y") if name == "w" else P()))
                               for name, value in whole.items()}, "step": 0}
            loaded = found.load(into=into)
            for name, value in whole.items():
                got = loaded["params"][name]
                assert numpy.array_equal(numpy.asarray(got), value), name
                assert got.sharding == into["params"][name].sharding
            assert numpy.array_equal(numpy.asarray(found.load()["params"]["w"]), whole["w"])
        """, self.name, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"})


if __name__ == "__main__":
    package.main()
