# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SophiaG with estimates of the Hessian, beside the authors' code; and a state that is given
in a definition of one's own."""

import pytest
import stepc.torch
import torch


class Original(torch.optim.Optimizer):
    """SophiaG of Liuhong99/Sophia, written out: of one group, without maximize."""

    def __init__(self, params, lr=1e-4, betas=(0.965, 0.99), rho=0.04, weight_decay=1e-1):
        super().__init__(params, {"lr": lr, "betas": betas, "rho": rho, "decay": weight_decay})

    def _state(self, param):
        state = self.state[param]
        if not state:
            state["exp_avg"] = torch.zeros_like(param)
            state["hessian"] = torch.zeros_like(param)
        return state

    @torch.no_grad()
    def update_hessian(self):
        (group,) = self.param_groups
        beta2 = group["betas"][1]
        for param in group["params"]:
            if param.grad is not None:
                hessian = self._state(param)["hessian"]
                hessian.mul_(beta2).addcmul_(param.grad, param.grad, value=1 - beta2)

    @torch.no_grad()
    def step(self, bs=5120):
        (group,) = self.param_groups
        lr, beta1 = group["lr"], group["betas"][0]
        for param in group["params"]:
            if param.grad is None:
                continue
            state = self._state(param)
            param.mul_(1 - lr * group["decay"])
            state["exp_avg"].mul_(beta1).add_(param.grad, alpha=1 - beta1)
            below = group["rho"] * bs * state["hessian"] + 1e-15
            ratio = (state["exp_avg"].abs() / below).clamp(None, 1)
            param.addcmul_(state["exp_avg"].sign(), ratio, value=-lr)


def parameters(dtype, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(30, 20), (7,), (2, 3, 4)]
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=dtype)) for s in shapes]


def gradients(params, number, absent=()):
    generator = torch.Generator().manual_seed(100 + number)
    for index, param in enumerate(params):
        grad = torch.randn(param.shape, generator=generator, dtype=param.dtype)
        param.grad = None if index in absent else grad


@pytest.mark.parametrize("dtype, most", [(torch.float32, 1e-5), (torch.float64, 1e-14)])
def test_training_with_estimates(dtype, most):
    theirs, ours = parameters(dtype), parameters(dtype)
    # Some elements are clipped, others are not.
    original = Original(theirs, lr=1e-2, rho=0.05)
    optimizer = stepc.torch.SophiaG(ours, lr=1e-2, rho=0.05)
    clipped = []
    for number in range(23):
        for params, one in ((theirs, original), (ours, optimizer)):
            gradients(params, number, absent=(1,) if number == 3 else ())
            one.step(bs=40)
            if number % 6 == 0:
                gradients(params, 50 + number, absent=(2,) if number == 6 else ())
                one.update_hessian()
        state = original.state[theirs[0]]
        clipped.append((state["exp_avg"].abs() > 0.05 * 40 * state["hessian"]).double().mean())
        waits = number % 6 == 0
        assert ("estimate" in optimizer.state[ours[0]]) == waits
        assert optimizer.param_groups[0]["refresh"] == waits
    assert 0.05 < clipped[-1] < 0.95
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(b, a, rtol=most, atol=most)
        for name, expected in original.state[a].items():
            torch.testing.assert_close(optimizer.state[b][name], expected, rtol=most, atol=most)


def test_a_skipped_step_leaves_the_estimate_to_the_next():
    params = parameters(torch.float32)
    optimizer = stepc.torch.SophiaG(params, skip_nonfinite=True)
    gradients(params, 0)
    optimizer.update_hessian()
    params[0].grad[0, 0] = torch.inf
    optimizer.step()
    assert optimizer.last_step.skipped and optimizer.param_groups[0]["refresh"]
    squares = optimizer.state[params[1]]["estimate"].clone()
    gradients(params, 1)
    optimizer.step()
    assert not optimizer.last_step.skipped and not optimizer.param_groups[0]["refresh"]
    torch.testing.assert_close(optimizer.state[params[1]]["hessian"], squares * (1 - 0.99))


def test_a_checkpoint_between_estimate_and_step():
    def run(resumed):
        params = parameters(torch.float32)
        optimizer = stepc.torch.SophiaG(params, lr=1e-2)
        for number in range(4):
            gradients(params, number)
            optimizer.step(bs=2)
            if number == 1:
                gradients(params, 10)
                optimizer.update_hessian()
                if resumed:
                    saved = optimizer.state_dict()
                    optimizer = stepc.torch.SophiaG(params, lr=1e-2)
                    optimizer.load_state_dict(saved)
        return params

    for a, b in zip(run(False), run(True), strict=True):
        assert torch.equal(a, b)


TEXT = """
step.optimizer @preconditioned {
  %lr = step.hyper "lr" = 0.5
  step.rule @any(%p: param[*], %g: grad[*], %d: state "diagonal"[*] = 1.0 given) {
    %direction = step.div %g, %d : [*]
    %u = step.mul %direction, %lr : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
}
"""


def test_a_state_of_your_own_is_given(tmp_path):
    path = tmp_path / "preconditioned.mlir"
    path.write_text(TEXT)
    param = torch.nn.Parameter(torch.zeros(5))
    optimizer = stepc.torch.Optimizer([param], path)
    param.grad = torch.ones(5)
    optimizer.step()
    assert torch.equal(param, torch.full((5,), -0.5))
    optimizer.state[param]["diagonal"].copy_(torch.arange(1.0, 6.0))
    before = optimizer.state[param]["diagonal"].clone()
    optimizer.step()
    assert torch.equal(param, -0.5 - 0.5 / before)
    assert torch.equal(optimizer.state[param]["diagonal"], before)
