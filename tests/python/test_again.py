# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=10 rooms=python,client,uploader,server
"""A state of the same form is saved again without being taken apart: what is saved is what it holds now, whatever has
changed in it."""
import package


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
