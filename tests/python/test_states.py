# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=10 rooms=python,client,uploader,server
"""States as programs have them, loaded into what is there: optimizers of torch of every kind, NumPy's scalars and masked
arrays; and the sentence about a tensor that has no elements in memory."""
import copy

import package
import cairn


class Optimizers(package.Worlds):
    needs = ("torch",)

    def steps(self, parameters, optimizer, count):
        """Losses."""
        def closure():
            optimizer.zero_grad()
            loss = sum((value.float() ** 2).sum() for value in parameters)
            loss.backward()
            return loss
        return [float(optimizer.step(closure)) for _ in range(count)]

    def made(self, optimizer, dtype, seed):
        import torch
        torch.manual_seed(seed)
        parameters = [torch.nn.Parameter(torch.randn(4, 3).to(dtype)) for _ in range(2)]
        return parameters, optimizer(parameters)

    def same(self, one, other, path=""):
        """States, with the types of their tensors."""
        import torch
        if isinstance(one, dict):
            self.assertEqual(one.keys(), other.keys(), path)
            one, other = list(one.values()), [other[key] for key in one]
        if isinstance(one, (list, tuple)):
            self.assertEqual(len(one), len(other), path)
            for at, rows in enumerate(zip(one, other)):
                self.same(*rows, f"{path}.{at}")
        elif torch.is_tensor(one):
            self.assertEqual((one.dtype, one.tolist()), (other.dtype, other.tolist()), path)
        else:
            self.assertEqual(one, other, path)

    def resumed(self, optimizer, dtype):
        """A new optimizer has the state that was saved, to the last bit, and goes on as the first one does."""
        import torch
        parameters, first = self.made(optimizer, dtype, 1)
        self.steps(parameters, first, 3)
        with self.world.run(f"{self.name}-{type(first).__name__}-{dtype}") as run:
            run.save(3, {"parameters": parameters, "optimizer": first})
            saved = copy.deepcopy(first.state_dict())
            goes_on = self.steps(parameters, first, 3)
            again, second = self.made(optimizer, dtype, 2)
            gradients = [torch.ones_like(value) if dtype == torch.bfloat16 else None for value in again]
            for value, gradient in zip(again, gradients):
                value.grad = gradient  # of a step before, or none yet
            run.at(3).load(into={"parameters": again, "optimizer": second})
            self.assertTrue(all(value.grad is gradient for value, gradient in zip(again, gradients)))
        self.same(saved, second.state_dict())
        self.assertEqual(self.steps(again, second, 3), goes_on)

    def test_the_state_of_each_optimizer_is_the_saved_one_with_its_types(self):
        import torch
        for name in ("Adam", "NAdam", "ASGD", "LBFGS"):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(optimizer=name, dtype=dtype):
                    self.resumed(lambda parameters: getattr(torch.optim, name)(parameters, lr=0.01), dtype)

    def test_moments_in_fp32_over_parameters_in_bf16_stay_in_fp32(self):
        import torch

        class Precise(torch.optim.AdamW):
            def step(self, closure=None):
                loss = super().step(closure)
                for state in self.state.values():
                    state["exp_avg"], state["exp_avg_sq"] = state["exp_avg"].float(), state["exp_avg_sq"].float()
                return loss

        parameters, first = self.made(Precise, torch.bfloat16, 1)
        self.steps(parameters, first, 1)
        for state in first.state.values():
            state["exp_avg"] += torch.rand(4, 3) / 3
        run = self.opened()
        run.save(1, {"optimizer": first})
        _, second = self.made(Precise, torch.bfloat16, 2)
        run.at(1).load(into={"optimizer": second})
        self.same(first.state_dict(), second.state_dict())


class Odd(package.Worlds):
    needs = ("torch", "numpy")

    def test_scalars_and_masked_arrays_of_numpy_come_back(self):
        import numpy
        state = {"best": numpy.float32(1.5), "epoch": numpy.int64(3), "done": numpy.bool_(True), "c": numpy.complex64(1 + 2j),
                 "masked": numpy.ma.masked_array([1.0, 2.0], [True, False]), "words": numpy.array(["a", "b"])}
        run = self.opened()
        save = run.async_save(1, state)
        save.result(60)
        self.assertEqual(save.pickled, ["masked", "words"])
        into = {"best": numpy.float32(0), "epoch": numpy.int64(0), "done": numpy.bool_(False), "c": numpy.complex64(0),
                "masked": numpy.ma.masked_array([0.0, 0.0]), "words": numpy.array(["", ""])}
        for found in (run.at(1).load(weights_only=False), run.at(1).load(into=into, weights_only=False)):
            self.assertEqual([found[name] for name in ("best", "epoch", "done", "c")], [1.5, 3, True, 1 + 2j])
            self.assertEqual((found["masked"].mask.tolist(), found["words"].tolist()), ([True, False], ["a", "b"]))

    def test_a_tensor_without_elements_in_memory_is_named(self):
        import torch

        class Wrapper(torch.Tensor):  # as those of torchao are
            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32)

            def __init__(self, inner):
                self.inner = inner

            @classmethod
            def __torch_dispatch__(cls, function, types, arguments=(), named=None):
                raise NotImplementedError(function)

        run = self.opened()
        for value, said in ((Wrapper(torch.ones(2)), "a Wrapper has no memory of its own"),
                            (torch.nn.parameter.UninitializedParameter(), "a UninitializedParameter is not taken: Attempted"),
                            (torch.empty(2, device="meta"), "a tensor of the meta device has no elements"),
                            (torch.eye(2).to_sparse(), "a sparse, nested or quantized tensor is not taken")):
            with self.subTest(said=said), self.assertRaises(cairn.CairnError) as caught:
                run.save(1, {"model": {"w": value}})
            self.assertIn(f"model.w: {said}", str(caught.exception))
            self.assertNotIn("of one release", caught.exception.hint)


if __name__ == "__main__":
    package.main()
