# SPDX-License-Identifier: Apache-2.0
# ctest: labels=torch seconds=10 rooms=python,client,uploader,server
"""States as programs have them, loaded into what is there: optimizers of torch of every kind."""
import copy

import package


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


if __name__ == "__main__":
    package.main()
