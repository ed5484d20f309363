# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=10 rooms=python,client,uploader,server
"""A state of the same form is saved again without being taken apart: what is saved is what it holds now, whatever has
changed in it."""
import package
import ranks


class Again(package.Worlds):
    needs = ("torch",)

    def test_every_change_of_a_state_is_in_the_next_save(self):
        import torch
        from cairn import _pieces
        w, b = torch.arange(4.0), torch.zeros(3)
        state = {"model": {"w": w, "b": b}, "optim": {0: {"m": torch.ones(2), "step": 1}}, "lr": 0.5, "list": [1, "x"]}
        run = self.opened()
        taken_apart = []
        flatten = _pieces.flatten
        _pieces.flatten = lambda state: taken_apart.append(1) or flatten(state)
        self.addCleanup(setattr, _pieces, "flatten", flatten)
        step = 0

        def saved(anew):
            nonlocal step
            step += 1
            taken_apart.clear()
            run.save(step, state)
            self.assertEqual(bool(taken_apart), anew, step)
            found = run.at(step).load()
            self.assertEqual(str(found), str(state))
            self.assertEqual(list(found), list(state))
        saved(True)
        w.add_(1)
        state["lr"], state["list"][1], state["optim"][0]["step"] = float("inf"), "other", 2
        saved(False)
        state["model"]["b"] = torch.full((3,), 7.0)        # other memory of the same form
        saved(False)
        state["model"] = {"w": w.detach(), "b": state["model"]["b"].detach()}  # as state_dict() gives them
        saved(False)
        state["model"]["w"] = torch.arange(4)               # another type
        saved(True)
        state["model"]["b"] = torch.zeros(1, 3)             # another shape
        saved(True)
        state["model"]["w"] = torch.arange(8)[::2]          # other strides
        saved(True)
        state["model"]["new"] = 5
        saved(True)
        state["model"] = dict(reversed(state["model"].items()))
        saved(True)
        state["optim"] = {1: state["optim"][0]}
        saved(True)
        state["list"][0] = [1]                              # a value becomes a list
        saved(True)
        state["again"] = {"b": torch.ones(4)}
        saved(True)
        state["again"]["b"] = state["same"] = torch.ones(4)
        saved(True)                                         # tied
        state["again"]["b"].add_(1)
        saved(False)
        state["again"]["b"] = state["same"] = torch.full((4,), 3.0)  # tied, elsewhere
        saved(False)
        state["same"] = torch.full((4,), 4.0)               # tied no more
        saved(True)

    def test_tensors_of_each_rank_and_parts_of_dtensors_are_known_again(self):
        ranks.run("""
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
            from cairn import _pieces
            flatten, taken_apart = _pieces.flatten, []
            _pieces.flatten = lambda state: taken_apart.append(1) or flatten(state)
            mesh = init_device_mesh("cpu", (2,))
            run = cairn.run(sys.argv[1])
            own = torch.full((3,), float(RANK))
            source = {"rows": torch.arange(35.0).reshape(7, 5), "one": torch.arange(5.0)[:1], "all": torch.arange(40_000.0)}
            laid_out = {"rows": Shard(0), "one": Shard(0), "all": Replicate()}  # "one" has no elements on the second rank
            state = {name: distribute_tensor(value, mesh, [laid_out[name]]) for name, value in source.items()}
            state = {**state, "tied": state["rows"], "own": cairn.local(own), "step": 0}
            layer = torch.nn.Parameter(distribute_tensor(torch.ones(6, 4), mesh, [Shard(1)]))
            state["layer"] = layer.detach()

            def saved(step, anew):
                taken_apart.clear()
                state["step"] = step
                run.save(step, state)
                assert bool(taken_apart) == anew, (step, taken_apart)
                with run.at(step) as found:
                    told = found.load()
                    for name in ("rows", "one", "all", "tied", "layer"):
                        whole = state[name].full_tensor()
                        assert torch.equal(told[name], whole), (step, name, told[name], whole)
                    assert told["step"] == step and torch.equal(told["own"], own), (step, told["own"])
                dist.barrier()
            saved(1, True)
            own.add_(10)
            state["rows"].to_local().mul_(2)
            saved(2, False)
            with torch.no_grad():
                layer.mul_(3)
            state["layer"] = layer.detach()  # as state_dict() has it, each time another object
            state["rows"] = state["tied"] = distribute_tensor(source["rows"] + 5, mesh, [Shard(0)])
            saved(3, False)
            state["layer"] = distribute_tensor(torch.ones(6, 4), mesh, [Shard(0)])  # laid out in another way
            saved(4, True)
            state["layer"] = distribute_tensor(torch.full((6, 4), 2.0), mesh, [Replicate()])
            saved(5, True)
            state["tied"] = distribute_tensor(source["rows"] + 6, mesh, [Shard(0)])
            saved(6, True)
        """, 2, self.name)

    def test_memory_that_becomes_shared_is_seen(self):
        import torch
        run = self.opened()
        run.save(1, {"a": torch.ones(3), "b": torch.zeros(3)})
        tied = torch.full((3,), 2.0)
        run.save(2, {"a": tied, "b": tied})
        found = run.at(2)
        self.assertEqual(found.tensors["b"].alias_of, "a")
        self.assertEqual(found.load()["b"].tolist(), [2.0] * 3)

    def test_nothing_of_a_state_is_held_after_its_save(self):
        import weakref

        import torch
        run = self.opened()
        state = {"w": torch.ones(1000)}
        gone = weakref.ref(state["w"])
        for step in (1, 2):
            run.save(step, state)
        state.clear()
        run.save(3, {"w": torch.zeros(1000)})
        self.assertIsNone(gone())


if __name__ == "__main__":
    package.main()
