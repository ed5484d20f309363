# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=60 thirds=3 rooms=python,client,uploader,server
"""Sharded states of torch: FSDP2, tensor parallel, HSDP and DDP save as boxes, each byte once, and load into every
other layout, by cairn's own calls and by torch.distributed.checkpoint."""
import json
import textwrap

import package
import ranks

MODEL = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(37, 130)
        self.down = torch.nn.Linear(130, 37, bias=False)
        self.register_buffer("seen", torch.zeros(3))
    def forward(self, x):
        self.seen += 1
        return self.down(torch.relu(self.up(x)))

def whole(state):
    '''Full tensors, on each rank.'''
    return {name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
            for name, value in state.items() if torch.is_tensor(value)}

def trained(mesh=None, steps=2, seed=1):
    torch.manual_seed(seed)
    net = Net()
    if mesh is not None:
        fully_shard(net, mesh=mesh)
    adam = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(steps):
        torch.manual_seed(step)
        net(torch.randn(8, 37)).square().sum().backward()
        adam.step(); adam.zero_grad()
    return net, adam
"""


class Dcp(package.Worlds):
    needs = ("torch",)

    def ranks(self, world, text, *arguments, **options):
        return ranks.run(MODEL + textwrap.dedent(text), world, self.name, *arguments, **options)

    def test_fsdp2_saves_each_byte_once_and_loads_on_fewer_ranks(self):
        self.ranks(4, """
            net, adam = trained(init_device_mesh("cpu", (4,)))
            model, optim = get_state_dict(net, adam)
            run = cairn.run(sys.argv[1])
            run.save(2, {"model": model, "optim": optim, "step": 2, "own": cairn.local(torch.full((2,), float(RANK)))})
            full = whole(model)
            if RANK == 0:
                torch.save(full, sys.argv[2])
        """, self.folder / "full.pt")
        found = self.world.run(self.name, read_only=True).at(2)
        self.assertEqual(found.tensors["model.up.weight"].shape, (130, 37))
        elements = 130 * 37 * 2 + 130
        self.assertLess(found.bytes, 3 * elements * 4 + 4 * 40_000)  # weights, two of Adam, headers, and no copy
        for world in (1, 3):
            self.ranks(world, """
                net, adam = trained(init_device_mesh("cpu", (WORLD,)), steps=1, seed=9)
                model, optim = get_state_dict(net, adam)
                state = {"model": model, "optim": optim, "step": 0, "own": cairn.local(torch.zeros(2))}
                cairn.run(sys.argv[1], read_only=True).at(2).load(into=state)
                set_state_dict(net, adam, model_state_dict=state["model"], optim_state_dict=state["optim"])
                full, want = whole(net.state_dict()), torch.load(sys.argv[2], weights_only=True)
                assert all(torch.equal(full[name], want[name]) for name in want), "values differ"
                assert state["step"] == 2 and state["own"][0] == RANK, state["own"]
                assert float(next(iter(adam.state.values()))["step"]) == 2
            """, self.folder / "full.pt")

    def test_two_dimensional_meshes_and_replicas_are_boxes_of_the_same_tensors(self):
        self.ranks(4, """
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            torch.manual_seed(0)
            source = {name: torch.randn(*shape) for name, shape in
                      {"rows": (33, 8), "columns": (9, 64), "both": (50, 50), "norm": (20000,), "hsdp": (128, 256)}.items()}
            placed = {"rows": (Shard(0), Replicate()), "columns": (Replicate(), Shard(1)), "both": (Shard(0), Shard(1)),
                      "norm": (Replicate(), Replicate()), "hsdp": (Replicate(), Shard(0))}
            state = {name: distribute_tensor(source[name], mesh, placed[name]) for name in source}
            run = cairn.run(sys.argv[1])
            run.save(1, state)
            found = run.at(1)
            want = sum(value.numel() * 4 for value in source.values())
            small = 33 * 8 * 4 + 9 * 64 * 4
            assert found.bytes < want + small + 4 * 20000, (found.bytes, want)
            loaded = found.load()
            assert all(torch.equal(loaded[name], source[name]) for name in source), "new"
            for turned in ((Shard(1), Shard(0)), (Shard(0), Shard(0)), (Replicate(), Shard(0))):
                into = {name: distribute_tensor(torch.zeros_like(value), mesh, turned if value.dim() > 1 else
                        (Replicate(), Shard(0))) for name, value in source.items()}
                found.load(into=into)
                full = whole(into)
                assert all(torch.equal(full[name], source[name]) for name in source), turned
        """)

    def test_replicated_data_parallel_states_are_saved_once(self):
        self.ranks(3, """
            torch.manual_seed(0)
            state = {f"layer.{at}.w": torch.randn(256, 256) for at in range(6)}
            run = cairn.run(sys.argv[1])
            run.save(1, {**state, "rank": RANK})
            found = run.at(1)
            assert found.bytes < 6 * 256 * 1024 + 3 * 20000, found.bytes
            loaded = found.load()
            assert all(torch.equal(loaded[name], state[name]) for name in state) and loaded["rank"] == RANK
        """)

    def test_dcps_own_calls_save_and_load_by_the_writer_and_the_reader(self):
        self.ranks(4, """
            net, adam = trained(init_device_mesh("cpu", (4,)))
            model, optim = get_state_dict(net, adam)
            run = cairn.run(sys.argv[1])
            state = {"model": model, "optim": optim, "epoch": 3, "text": "x", "list": [1, "two"]}
            dcp.save(state, storage_writer=cairn.dcp.Writer(run, 1))
            writer = cairn.dcp.Writer(run)
            future = dcp.async_save(state, storage_writer=writer.at(2))
            with torch.no_grad():
                for value in net.parameters():
                    value.zero_()
            future.result()
            other, adam = trained(init_device_mesh("cpu", (2, 2), mesh_dim_names=("r", "s")), steps=1, seed=5)
            for step in (1, 2):
                model, optim = get_state_dict(other, adam)
                found = {"model": model, "optim": optim, "epoch": 0, "text": "", "list": []}
                dcp.load(found, storage_reader=cairn.dcp.Reader(run, step))
                assert (found["epoch"], found["text"], found["list"]) == (3, "x", [1, "two"]), found
                full = whole(found["model"])
                again = run.at(step).load(prefix="model")
                assert all(torch.equal(full[name], again[name]) for name in full if name in again)
                assert full["up.weight"].abs().sum() > 0
        """)

    def test_dcps_own_calls_save_and_load_fsdp_over_tensor_parallel(self):
        self.ranks(4, """
            from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            def laid_out(seed):
                torch.manual_seed(seed)
                net = torch.nn.Sequential(Net(), torch.nn.LayerNorm(37))  # the norm is a DTensor on `dp` alone
                parallelize_module(net[0], mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
                return {"model": fully_shard(net, mesh=mesh["dp"]).state_dict()}
            run = cairn.run(sys.argv[1])
            saved = laid_out(1)
            dcp.save(saved, storage_writer=cairn.dcp.Writer(run, 1))
            found = laid_out(2)
            dcp.load(found, storage_reader=cairn.dcp.Reader(run, 1))
            for name, value in saved["model"].items():
                own = [local.to_local() if isinstance(local, DTensor) else local for local in (value, found["model"][name])]
                assert torch.equal(*own), name
            whole = sum(value.numel() * 4 for value in saved["model"].values())
            assert run.at(1).bytes < whole + 4 * 8000, (run.at(1).bytes, whole)
        """)

    def test_what_dcp_saved_is_read_by_tensor_name_and_exported_without_torch(self):
        self.ranks(2, """
            mesh = init_device_mesh("cpu", (2,))
            state = {"w": distribute_tensor(torch.arange(24.0).reshape(6, 4).bfloat16(), mesh, [Shard(0)])}
            dcp.save(state, storage_writer=cairn.dcp.Writer(cairn.run(sys.argv[1]), 1))
        """)
        import urllib.request
        with urllib.request.urlopen(f"{self.world.url}/v1/runs/{self.name}/checkpoints/1/tensors/w/data?dtype=F32") as reply:
            data = reply.read()
        self.assertEqual(list(memoryview(data).cast("f")), [float(at) for at in range(24)])
        self.world.cairn("export", f"{self.name}@1", str(self.folder / "hf"))
        header = (self.folder / "hf" / "model.safetensors").read_bytes()
        size = int.from_bytes(header[:8], "little")
        self.assertEqual(json.loads(header[8:8 + size])["w"]["shape"], [6, 4])

    def test_a_planner_that_changes_values_is_refused_by_its_name(self):
        self.ranks(1, """
            class Casting(dcp.DefaultSavePlanner):
                def transform_object(self, item, value):
                    return super().transform_object(item, value)
            run = cairn.run(sys.argv[1])
            try:
                dcp.save({"w": torch.zeros(2)}, storage_writer=cairn.dcp.Writer(run, 1), planner=Casting())
            except BaseException as error:
                assert "Casting changes what is saved" in str(error), error
            else:
                raise SystemExit("it was taken")
        """)


if __name__ == "__main__":
    package.main()
