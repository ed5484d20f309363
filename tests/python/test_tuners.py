# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=60 rooms=python,client,uploader,server
"""torchtune and verl with the real libraries, each where it is installed: jobs that go on, on other machines, from the
folders that their own checkpointers wrote. The classes through which they save are those of docs/python.md."""
import re
import textwrap

import package
import ranks


def of_the_page(library):
    """The code of docs/python.md that needs a library."""
    text = (package.TREE / "docs" / "python.md").read_text()
    return re.search(rf"^```python {library}\n(.*?)^```$", text, re.M | re.S)[1]


class Torchtune(package.Worlds):
    needs = ("torch", "torchtune", "torchao.dtypes.nf4tensor")

    def test_a_job_goes_on_from_the_folder_that_its_checkpointer_wrote(self):
        self.program("import cairn\n" + of_the_page("torchtune") + textwrap.dedent("""
            import json, logging, pathlib, shutil, sys, warnings
            import torch
            from safetensors.torch import save_file
            from torchtune.models import convert_weights
            from torchtune.models.llama3 import llama3
            warnings.filterwarnings("ignore")
            logging.disable(logging.WARNING)
            folder = pathlib.Path(sys.argv[1])
            base = folder / "base"

            def net_of():
                torch.manual_seed(0)
                return llama3(vocab_size=32, num_layers=2, num_heads=4, num_kv_heads=2, embed_dim=16, max_seq_len=16,
                              intermediate_dim=32)

            def job(checkpointer):
                state, net = checkpointer.load_checkpoint(), net_of()
                net.load_state_dict(state["model"])
                adam = torch.optim.AdamW(net.parameters(), lr=0.01)
                if "optimizer" in state:
                    adam.load_state_dict(state["optimizer"])
                return net, adam, state.get("epochs_run", 0)

            def train(checkpointer, last):
                net, adam, first = job(checkpointer)
                losses = []
                for epoch in range(first, last):
                    torch.manual_seed(epoch)
                    loss = net(torch.randint(0, 32, (4, 8))).square().mean()
                    loss.backward()
                    adam.step()
                    adam.zero_grad()
                    losses.append(loss.item())
                    checkpointer.save_checkpoint({"model": net.state_dict(), "optimizer": adam.state_dict(),
                                                  "epochs_run": epoch + 1}, epoch, intermediate_checkpoint=True)
                return losses

            def checkpointer(kind, out, files=("model.safetensors",), **more):
                return kind(str(base), list(files), "LLAMA3", str(out), **more)
            base.mkdir()
            (base / "config.json").write_text(json.dumps(
                {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16}))
            save_file(convert_weights.tune_to_hf(net_of().state_dict(), num_heads=4, num_kv_heads=2, dim=16),
                      base / "model.safetensors")
            whole = train(checkpointer(FullModelHFCheckpointer, folder / "whole"), 4)
            first = train(checkpointer(ToCairn, folder / "one"), 2)
            shutil.rmtree(folder / "one")
            run = cairn.run("llm/tune", rank=0, world_size=1)
            assert [row.step for row in run.list()] == [1, 0] and run.find("latest").labels["name"] == "epoch_1"
            run.latest().fetch(folder / "two")
            again = checkpointer(ToCairn, folder / "two", ["epoch_1/model-00001-of-00001.safetensors"],
                                 should_load_recipe_state=True)
            assert first + train(again, 4) == whole, (first, whole)
        """), self.folder)

    def test_a_distributed_checkpoint_is_loaded_by_another_number_of_ranks(self):
        folder = self.folder / "distributed"
        for world in (2, 3):
            ranks.run("""
                import logging, pathlib, shutil
                from torch.distributed.device_mesh import init_device_mesh
                from torch.distributed.fsdp import fully_shard
                from torchtune.training import DistributedCheckpointer
                logging.disable(logging.WARNING)
                name, folder = sys.argv[1], pathlib.Path(sys.argv[2])

                def state_of(seed):
                    torch.manual_seed(seed)
                    net = fully_shard(torch.nn.Linear(8, 6), mesh=init_device_mesh("cpu", (WORLD,)))
                    return {"model": net.state_dict(), "epochs_run": seed}

                def full(state):
                    return {key: value.full_tensor() for key, value in state["model"].items()}
                saved = full(state_of(5))
                if WORLD == 2:
                    checkpointer = DistributedCheckpointer(str(folder), str(folder / "out"))
                    for epoch, later in ((3, False), (4, True)):
                        checkpointer.save_checkpoint(state_of(epoch + 1), epoch, save_async=later)
                    checkpointer._checkpoint_future.result()
                    dist.barrier()
                    if RANK == 0:  # of a folder that all ranks share
                        with cairn.run(name, rank=0, world_size=1) as run:
                            with run.save(4, labels={"name": "dist_epoch_4"}) as raw:
                                raw.put_folder(folder / "out" / "dist_epoch_4")
                            raw.committed.result()
                        shutil.rmtree(folder / "out")
                else:
                    if RANK == 0:
                        with cairn.run(name, read_only=True) as run, run.latest() as found:
                            found.fetch(folder / "again" / "dist_epoch_4")
                    dist.barrier()
                    own = state_of(9)
                    assert not all(torch.equal(value, saved[key]) for key, value in full(own).items())
                    loaded = DistributedCheckpointer(str(folder), str(folder / "again")).load_checkpoint(own)
                    assert loaded["epochs_run"] == 5
                    for key, value in full(loaded).items():
                        assert torch.equal(value, saved[key]), key
                dist.barrier()
            """, world, self.name, folder)

    def test_it_makes_a_local_path_of_a_url_so_that_none_can_be_its_folder(self):
        """Where this fails, torchtune takes URLs, and docs/python.md has more to say."""
        from torchtune.training import DistributedCheckpointer
        self.assertEqual(str(DistributedCheckpointer("a", "cairn://llm/tune")._output_dir), "cairn:/llm/tune")


class Verl(package.Worlds):
    needs = ("torch", "verl", "transformers")

    KIT = """
        import logging, pathlib
        logging.disable(logging.WARNING)
        import transformers
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path
        from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
        name, folder = sys.argv[1], pathlib.Path(sys.argv[2])

        def manager_of(seed):
            torch.manual_seed(seed)
            net = transformers.LlamaForCausalLM(transformers.LlamaConfig(
                vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, attention_dropout=0.2))
            net = fully_shard(net, mesh=init_device_mesh("cpu", (WORLD,)))
            adam = torch.optim.AdamW(net.parameters(), lr=0.01)
            return FSDPCheckpointManager(net, adam, torch.optim.lr_scheduler.StepLR(adam, 2))

        def steps(manager, number):
            losses = []
            for _ in range(number):
                batch = torch.randint(0, 32, (4, 8))  # of the generator whose state verl saves
                loss = manager.model(input_ids=batch, labels=batch).loss
                loss.backward()
                manager.optimizer.step(); manager.lr_scheduler.step(); manager.optimizer.zero_grad()
                losses.append(loss.item())
            return losses
    """

    def ranks(self, text, **options):
        return ranks.run(textwrap.dedent(self.KIT) + textwrap.dedent(text), 2, self.name,
                         self.folder / self.name.partition("/")[2], imports=("transformers",), **options)

    def test_ranks_with_folders_of_their_own_save_and_resume_what_its_manager_wrote(self):
        self.ranks("""
            own = folder / f"node-{RANK}" / "global_step_3"
            manager = manager_of(RANK)
            seen = steps(manager, 3)
            manager.save_checkpoint(str(own), global_step=3)
            run = cairn.run(name)
            with run.save(3, labels={"name": own.name}) as raw:
                raw.put_folder(own)
            raw.committed.result()
            whole = steps(manager, 3)
            with run.latest() as found:
                assert found.world_size == 2
                found.fetch(folder / f"other-{RANK}" / own.name)
            other = manager_of(7)
            other.load_checkpoint(str(folder / f"other-{RANK}" / own.name))
            assert steps(other, 3) == whole
            dist.barrier()
        """)

    def test_its_callback_saves_the_folder_of_all_ranks_from_the_driver(self):
        page = self.folder / "of_the_page.py"
        page.write_text("import cairn\n" + of_the_page("verl"))
        self.ranks("""
            import shutil
            from omegaconf import OmegaConf
            from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
            sys.path.insert(0, sys.argv[2].rpartition("/")[0])
            out = folder / "out"
            manager = manager_of(RANK)
            steps(manager, 2)
            manager.save_checkpoint(str(out / "global_step_2"), global_step=2)
            whole = steps(manager, 2)
            if RANK == 0:  # verl's driver is a process of its own
                callback = build_checkpoint_callback(OmegaConf.create({"trainer": {
                    "checkpoint_callback_class": "of_the_page.ToCairn"}}))
                callback.on_save(trainer=None, global_step=2, checkpoint_dir=str(out / "global_step_2"))
                shutil.rmtree(out)
                found = cairn.run("llm/verl", rank=0, world_size=1).latest()
                assert found.step == 2 and found.labels == {"name": "global_step_2"}, found.labels
                found.fetch(out / "global_step_2")
                (out / "latest_checkpointed_iteration.txt").write_text("2")
            dist.barrier()
            other = manager_of(7)
            other.load_checkpoint(find_latest_ckpt_path(str(out)))
            assert steps(other, 2) == whole
            dist.barrier()
        """)


if __name__ == "__main__":
    package.main()
