"""AdamW with states as bitsandbytes' CUDA kernels keep them, written in torch.

The map of 256 numbers is that of ``bitsandbytes.functional.create_dynamic_map``; blocks are of 256
elements of the flattened tensor, with the largest magnitude as the scale. A number has the code of
the nearest entry, so that what is small beside the largest one has the code of 0; but one with a
sign that this would lose, has the code below (csrc/kernels.cu, kOptimizerStatic8bit2StateBlockwise:
first moments below 0). Between two entries, and in the last bit of a share, the kernel may round
otherwise. bitsandbytes' code for processors differs: an exact 0 does not stay 0 there.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import torch

_BLOCK, _LEAST = 256, 4096  # elements of a block, and of a parameter with codes


def dynamic_map(signed):
    """256 numbers, in order."""
    found = [0.0, 1.0]
    for exponent in range(7):
        bounds = torch.linspace(0.1, 1, 2**exponent + 1 if signed else 2 ** (exponent + 1) + 1)
        means = 10.0 ** (exponent - 6) * ((bounds[:-1] + bounds[1:]) / 2)
        found += means.tolist() + ((-means).tolist() if signed else [])
    return torch.tensor(sorted(found))


class _Codes:
    def __init__(self, param, signed, never_0=False):
        self.signed, self.never_0 = signed, never_0 and not signed
        self.table, self.count = dynamic_map(signed), param.numel()
        self.middles = (self.table[:-1] + self.table[1:]) / 2
        blocks = -(-self.count // _BLOCK)
        self.codes = torch.full((blocks, _BLOCK), int((self.table == 0).nonzero()))
        self.scales = torch.zeros(blocks, 1)

    def read(self, shape):
        return (self.table[self.codes] * self.scales).view(-1)[: self.count].view(shape)

    def write(self, values):
        padded = torch.zeros(self.codes.numel())
        padded[: self.count] = values.reshape(-1)
        padded = padded.view(-1, _BLOCK)
        self.scales = padded.abs().amax(1, keepdim=True)
        shares = padded / self.scales.clamp_min(torch.finfo(torch.float32).tiny)
        self.codes = torch.bucketize(shares, self.middles)
        if self.signed:  # their sign stays: none below 0 has the code of 0
            self.codes -= (padded.signbit() & ~self.table[self.codes].signbit()).long()
        if self.never_0:
            self.codes = torch.where(padded > 0, self.codes.clamp_min(1), self.codes)


class DynamicMapAdamW(torch.optim.Optimizer):
    """The step of ``bitsandbytes.optim.AdamW8bit``: the update is of what was computed, the next
    step begins with what the codes stand for. ``never_0``: a second moment that is not 0 has no
    code of 0, which is not so there."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, never_0=False
    ):
        self.never_0 = never_0
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                self._step(param, group)

    def _step(self, param, group):
        (beta1, beta2), state = group["betas"], self.state[param]
        coded = param.numel() >= _LEAST
        if not state:
            kinds = {"exp_avg": True, "exp_avg_sq": False}
            state["step"] = 0
            for name, signed in kinds.items():
                state[name] = (
                    _Codes(param, signed, self.never_0) if coded else torch.zeros_like(param)
                )
        read = (lambda own: own.read(param.shape)) if coded else (lambda own: own)
        state["step"] += 1
        mean = read(state["exp_avg"]).lerp(param.grad, 1 - beta1)
        square = beta2 * read(state["exp_avg_sq"]) + (1 - beta2) * param.grad.square()
        first, second = (1 - beta ** state["step"] for beta in (beta1, beta2))
        rate, root = group["lr"] * second**0.5 / first, second**0.5
        param.addcdiv_(mean, square.sqrt() + group["eps"] * root, value=-rate)
        param.mul_(1 - group["lr"] * group["decay"])
        for name, values in (("exp_avg", mean), ("exp_avg_sq", square)):
            if coded:
                state[name].write(values)
            else:
                state[name] = values
