# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=90 rooms=python,client,uploader,server
"""Frameworks with the real libraries, each where it is installed: Lightning, Hugging Face's Trainer, accelerate,
torch_checkpointing, Ray Train, torchtitan, NumPy, JAX. DeepSpeed: test_deepspeed.py."""
import package
import ranks


class Frameworks(package.Worlds):
    needs = ("torch",)

    @package.only_with("lightning")
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

    @package.only_with("lightning")
    def test_lightning_on_two_ranks_is_written_by_the_first_and_read_by_both(self):
        ranks.run("""
            import logging
            import lightning as L
            from lightning.pytorch.callbacks import ModelCheckpoint
            from cairn.lightning import CairnCheckpointIO
            logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
            name, folder = sys.argv[1:]

            class Net(L.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.layer, self.seen = torch.nn.Linear(8, 1), []
                def training_step(self, batch, at):
                    loss = self.layer(batch[0]).square().mean()
                    self.seen.append(loss.item())
                    return loss
                def configure_optimizers(self):
                    return torch.optim.AdamW(self.parameters(), lr=0.1)

            def fit(name, epochs, resume=None):
                L.seed_everything(1, verbose=False)
                data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 8)), batch_size=4)
                io = CairnCheckpointIO(name)
                trainer = L.Trainer(max_epochs=epochs, plugins=[io], callbacks=[ModelCheckpoint(dirpath=folder, save_last=True)],
                                    accelerator="cpu", strategy="ddp", devices=WORLD, logger=False, enable_progress_bar=False,
                                    enable_model_summary=False)
                net = Net()
                trainer.fit(net, data, ckpt_path=resume)
                io.teardown()
                dist.barrier()
                return net.seen
            whole = fit(name + "-whole", 4)
            first = fit(name, 2)
            assert first + fit(name, 4, folder + "/last.ckpt") == whole
            with cairn.run(name, read_only=True) as run:
                assert run.latest().world_size == 1, run.latest()
        """, 2, self.name, self.folder / "lightning-ddp")

    @package.only_with("transformers", "accelerate")
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
            again = cairn.hf.resume_dir(run, folder + "/c")
            files = sorted(os.listdir(again))
            os.remove(again + "/" + files[-1])                        # what a killed job left half removed
            assert cairn.hf.resume_dir(run, folder + "/c") == again and sorted(os.listdir(again)) == files, files
            found = cairn.hf.folder(f"cairn://{name}/latest")
            assert os.path.exists(found + "/trainer_state.json")
            assert [row.step for row in run.list()] == [12, 8, 4]
        """, self.name, self.folder / "hf")

    @package.only_with("accelerate")
    def test_accelerate_saves_what_each_rank_wrote_and_goes_on(self):
        ranks.run("""
            import os
            import accelerate, cairn.accelerate
            name, folder = sys.argv[1:]

            def job(seed):
                made = accelerate.Accelerator(cpu=True)
                accelerate.utils.set_seed(seed, device_specific=True)
                net = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.Dropout(0.3), torch.nn.Linear(9, 1))
                adam = torch.optim.AdamW(net.parameters(), lr=0.01)
                schedule = torch.optim.lr_scheduler.StepLR(adam, 2)
                return made, made.prepare(net, adam, schedule)

            def steps(job, first, last):
                made, (net, adam, schedule) = job
                seen = []
                for step in range(first, last):
                    loss = net(torch.full((8, 4), step + RANK + 1.0)).square().mean()
                    made.backward(loss)
                    adam.step(); schedule.step(); adam.zero_grad()
                    seen.append(loss.item())
                return seen
            run = cairn.run(name)
            first = job(1)
            assert cairn.accelerate.load_state(first[0], run) is None
            seen = steps(first, 0, 3)
            save = cairn.accelerate.save_state(first[0], run, 3, metrics={"loss": seen[-1]})
            after = steps(first, 3, 6)
            save.committed.result()
            other = job(2)
            assert cairn.accelerate.load_state(other[0], run, folder=folder) == 3
            assert steps(other, 3, 6) == after
            with run.at(3) as found:
                names = set(found.shards)
                assert {"random_states_0.pkl", "random_states_1.pkl"} <= names, names
            dist.barrier()
        """, 2, self.name, self.folder)

    @package.only_with("torch_checkpointing")
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
                    if how == "with_async_save":  # its process imports torch, which a busy machine takes long for
                        config.save.process_config.subprocess_init_timeout_secs = 300
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

    @package.only_with("torch_checkpointing")
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

    @package.only_with("torch_checkpointing")
    def test_torch_checkpointing_without_a_temporary_folder_is_committed_on_one_rank_and_refused_on_two(self):
        for world in (1, 2):
            ranks.run("""
                from torch_checkpointing.checkpoint_manager import CheckpointManager
                from cairn.torch_checkpointing import CairnStorageConfig
                config = CheckpointManager.Config.with_sync_save()
                config.storage_config = CairnStorageConfig(sys.argv[1])
                config.save.writer_config.write_to_temp_dir = False
                manager = config.build()
                state = {"model": {"w": torch.arange(10.0)}, "step": {"n": 3}}
                try:
                    manager.save("step_7", state)
                except cairn.CairnError as error:
                    assert WORLD == 2 and "write_to_temp_dir" in str(error), error
                else:
                    assert WORLD == 1
                    found = manager.load("step_7", {"model": {"w": torch.zeros(10)}, "step": {"n": 0}})
                    assert torch.equal(found["model"]["w"], state["model"]["w"]) and found["step"]["n"] == 3, found
                manager.close()
            """, world, f"{self.name}-{world}")

    @package.only_with("torch_checkpointing")
    def test_files_of_a_committed_checkpoint_of_torch_checkpointing_are_renamed_and_deleted(self):
        """As its consolidation replaces a file: written under another name, and renamed."""
        for part in ("first", "second"):
            self.program("""
                import sys
                from pathlib import Path
                import cairn
                from cairn.torch_checkpointing import CairnStorageConfig
                name, part = sys.argv[1:]
                storage = CairnStorageConfig(name).create_storage()
                file, other, folder = Path("step_3/model"), Path("step_3/.model.tmp"), Path("step_3")
                if part == "first":
                    for data in (b"one", b"two"):
                        storage.write(other, data)
                        storage.rename(other, file)
                        assert storage.ls(folder) == ["model"] and storage.read(file) == data, storage.ls(folder)
                    storage.write(Path("step_3/more"), b"more")
                else:  # another process has none of its files
                    storage.rename(Path("step_3/more"), Path("step_3/rest"))
                    assert storage.ls(folder) == ["model", "rest"] and storage.read(Path("step_3/rest")) == b"more"
                    storage.delete(file)
                    assert not storage.exists(file) and storage.ls(folder) == ["rest"]
                    for missing in (storage.delete, lambda path: storage.rename(path, other)):
                        try:
                            missing(file)
                        except FileNotFoundError:
                            continue
                        raise SystemExit("it is not there")
                    storage.delete(Path("step_3/rest"))
                    assert not storage.exists(folder)
            """, self.name, part)

    @package.only_with("torchtitan", "tyro", "fsspec")
    def test_torchtitan_saves_and_resumes_by_the_url_of_its_folder(self):
        ranks.run("""
            import fsspec, logging
            from cairn.fs import CairnFileSystem
            fsspec.register_implementation("cairn", CairnFileSystem, clobber=True)
            from torchtitan.components.checkpointer.dcp import CheckpointManager
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard
            logging.disable(logging.WARNING)

            class Kept:
                def __init__(self):
                    self.kept = {"step": 0}
                def state_dict(self):
                    return dict(self.kept)
                def load_state_dict(self, state):
                    self.kept = dict(state)

            def manager(seed, mode):
                torch.manual_seed(seed)
                net = fully_shard(torch.nn.Linear(8, 6), mesh=init_device_mesh("cpu", (WORLD,)))
                train, config = Kept(), CheckpointManager.Config(
                    enable=True, folder=f"cairn://{sys.argv[1]}-{mode}", interval=1, keep_latest_k=2, async_mode=mode,
                    last_save_model_only=False)
                made = CheckpointManager(config, dataloader=None, model_parts=[net], optimizers=Kept(), lr_schedulers=Kept(),
                                         states={"train_state": train}, sd_adapter=None)
                return made, net, train
            for mode in ("disabled", "async"):
                made, net, train = manager(1, mode)
                assert not made.load()
                for step in range(1, 6):
                    with torch.no_grad():
                        net.weight.add_(1)
                    train.kept["step"] = step
                    made.save(curr_step=step, last_step=step == 5)
                    made.maybe_wait_for_staging()
                made.close()
                dist.barrier()
                other, loaded, told = manager(2, mode)
                assert other.load() and told.kept["step"] == 5, told.kept
                assert torch.equal(loaded.weight.full_tensor(), net.weight.full_tensor())
                dist.barrier()
                fs = fsspec.filesystem("cairn")
                names = [one.rpartition("/")[2] for one in fs.ls(f"cairn://{sys.argv[1]}-{mode}", detail=False)]
                # Two, and the last one, for which it makes no room. One that is not committed yet does not count.
                assert [name for name in names if name != "step-2"] == ["step-3", "step-4", "step-5"], names
                assert mode == "async" or "step-2" not in names, names
                other.close()
                dist.barrier()
        """, 2, self.name)

    @package.only_with("megatron.core")
    def test_a_folder_that_megatron_core_wrote_is_loaded_by_another_number_of_ranks(self):
        for world in (2, 3):
            ranks.run("""
                import pathlib, shutil
                from megatron.core import dist_checkpointing
                from megatron.core.dist_checkpointing import ShardedTensor
                # Its strategies take a device for granted.
                torch.cuda.synchronize, torch.cuda.current_device = lambda *_: None, lambda: "cpu"
                name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
                whole, rows = torch.arange(24 * 6.0).reshape(24, 6), 24 // WORLD
                own = whole[rows * RANK:rows * (RANK + 1)]

                def state(part):
                    return {"weight": ShardedTensor.from_rank_offsets("weight", part, (0, RANK, WORLD)), "step": 7}
                if WORLD == 2:
                    written = folder / "iter_0000007"
                    written.mkdir(parents=True, exist_ok=True)
                    dist.barrier()
                    dist_checkpointing.save(state(own.clone()), str(written))
                    if RANK == 0:  # of a folder that all ranks share
                        with cairn.run(name, rank=0, world_size=1) as run:
                            with run.save(7, labels={"name": written.name}) as raw:
                                raw.put_folder(written)
                            raw.committed.result()
                        shutil.rmtree(written)
                else:
                    if RANK == 0:
                        with cairn.run(name, read_only=True) as run, run.latest() as found:
                            found.fetch(folder / "again")
                    dist.barrier()
                    found = dist_checkpointing.load(state(torch.zeros_like(own)), str(folder / "again"))
                    assert torch.equal(found["weight"], own) and found["step"] == 7, found
                dist.barrier()
            """, world, self.name, self.folder / "megatron")

    @package.only_with("ray")
    def test_a_job_of_ray_train_whose_worker_dies_goes_on_from_what_all_have_committed(self):
        told, _ = self.program("""
            import json, os, sys, tempfile, warnings
            warnings.filterwarnings("ignore")
            os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
            import ray, ray.train, ray.train.torch
            name, folder = sys.argv[1:]

            def train(config):
                import torch, cairn
                import torch.distributed as dist
                run = cairn.run(config["name"])
                rank = ray.train.get_context().get_world_rank()
                state, own, first = {"w": torch.zeros(5), "step": 0}, torch.full((2,), float(rank)), 0
                found = run.latest()
                if found:
                    own.zero_()
                    state = found.load(into={**state, "own": cairn.local(own)})
                    first = state["step"]
                    with open(ray.train.get_checkpoint().path + "/pointer.json") as file:
                        assert json.load(file)["uri"].startswith("cairn://"), "the pointer"
                for step in range(first + 1, 7):
                    state["w"] += step
                    dist.all_reduce(state["w"], op=dist.ReduceOp.AVG)
                    state["step"] = step
                    run.save(step, {**state, "own": cairn.local(own)})
                    with tempfile.TemporaryDirectory() as made:
                        with open(made + "/pointer.json", "w") as file:
                            json.dump({"uri": f"cairn://{config['name']}/{step}"}, file)
                        ray.train.report({"step": step, "first": first},
                                         checkpoint=ray.train.Checkpoint.from_directory(made) if rank == 0 else None)
                    if step == 3 and not found and rank == 1:
                        os._exit(1)
                assert state["w"][0] == 21 and own[0] == rank, (state, own)
                run.close()

            ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
            result = ray.train.torch.TorchTrainer(
                train, train_loop_config={"name": name}, torch_config=ray.train.torch.TorchConfig(backend="gloo"),
                scaling_config=ray.train.ScalingConfig(num_workers=2),
                run_config=ray.train.RunConfig(name="job", storage_path=folder,
                                               failure_config=ray.train.FailureConfig(max_failures=1))).fit()
            print("went on from", result.metrics["first"])
            ray.shutdown()
            import cairn
            with cairn.run(name, read_only=True) as run:
                assert run.latest().step == 6 and run.latest().load(only=["w"])["w"][0] == 21
        """, self.name, self.folder / "ray")
        self.assertIn("went on from 3", told)

    @package.only_with("numpy")
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

    @package.only_with("jax", "numpy")
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

    @package.only_with("jax", "numpy")
    def test_arrays_of_two_jax_processes_are_one_tensor_and_load_on_another_mesh(self):
        ranks.run("""
            import os, sys
            import jax, numpy
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", world, rank)
            from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
            import cairn
            devices = numpy.array(jax.devices())
            assert len(devices) == 8 and len(jax.local_devices()) == 4
            whole = {"w": numpy.arange(64 * 6, dtype="float32").reshape(64, 6), "half": numpy.arange(32, dtype="int32"),
                     "same": numpy.arange(20_000, dtype="float32")}

            def on(mesh, specs, of=lambda value: value):
                return {name: jax.make_array_from_callback(value.shape, NamedSharding(mesh, specs[name]),
                                                           lambda index, value=value: of(value)[index])
                        for name, value in whole.items()}
            saved = on(Mesh(devices.reshape(4, 2), ("x", "y")), {"w": P("x", "y"), "half": P("y"), "same": P()})
            run = cairn.run(sys.argv[1])
            run.save(1, {"params": saved, "step": 1})
            found = run.at(1)
            assert found.tensors["params.w"].shape == (64, 6)
            assert found.bytes < sum(value.nbytes for value in whole.values()) + 2 * 8192, found.bytes
            specs = {"w": P(None, "x"), "half": P("x"), "same": P("y")}
            into = {"params": on(Mesh(devices.reshape(2, 4), ("x", "y")), {**specs, "same": P("x")}, numpy.zeros_like), "step": 0}
            loaded = found.load(into=into)
            for name, value in whole.items():
                for shard in loaded["params"][name].addressable_shards:
                    assert numpy.array_equal(numpy.asarray(shard.data), value[shard.index]), (name, shard.index)
            assert loaded["step"] == 1
            jax.distributed.shutdown()
        """, 2, self.name, preamble="", env={"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"})


if __name__ == "__main__":
    package.main()
