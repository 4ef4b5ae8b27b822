# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The same optimizer of parameters on the processor and on the double's device."""

import stepc.torch as st
import torch

SHAPES = [(33, 20), (17,), (5, 7, 9), (), (130, 64), (3,)]
KINDS = {
    "adamw": lambda params, **k: st.AdamW(params, lr=1e-2, **k),
    "adam": lambda params, **k: st.Adam(params, lr=1e-2, amsgrad=True, **k),
    "sgd": lambda params, **k: st.SGD(params, lr=1e-2, momentum=0.9, nesterov=True, **k),
    "lion": lambda params, **k: st.Lion(params, lr=1e-3, **k),
    "rprop": lambda params, **k: st.Rprop(params, lr=1e-3, **k),
    "adadelta": lambda params, **k: st.Adadelta(params, **k),
    "asgd": lambda params, **k: st.ASGD(params, lr=1e-2, **k),
    "adafactor": lambda params, **k: st.hf.Adafactor(
        params, lr=1e-2, relative_step=False, scale_parameter=True, **k
    ),
    "came": lambda params, **k: st.came.CAME(params, lr=1e-2, **k),
    "lamb": lambda params, **k: st.deepspeed.FusedLamb(params, lr=1e-2, **k),
    "clipped": lambda params, **k: st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(0.5), **k),
}


def values(dtype, seed, shapes=SHAPES):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


class Pair:
    """The same optimizer of parameters on the processor and on the device."""

    def __init__(self, cuda, make, dtype=torch.float32, shapes=SHAPES, **keywords):
        self.cuda, self.dtype, self.shapes = cuda, dtype, shapes
        made = values(dtype, 0, shapes)
        self.plain = [torch.nn.Parameter(value.clone()) for value in made]
        self.placed = [cuda.parameter(value) for value in made]
        self.reference = make(self.plain, **keywords)
        self.optimizer = make(self.placed, **keywords)

    def give(self, step, absent=()):
        grads = values(self.dtype, 100 + step, self.shapes)
        grads = [None if i in absent else grad for i, grad in enumerate(grads)]
        for param, grad in zip(self.plain, grads, strict=True):
            param.grad = None if grad is None else grad.clone()
        self.cuda.set_grads(self.placed, grads)

    def overflow(self):
        """Gives one parameter a gradient that is not finite."""
        bad = torch.full(self.shapes[1], float("inf"))
        self.plain[1].grad = bad.clone()
        self.placed[1].grad = self.cuda.place(bad, "cuda:0")

    def step(self, step, absent=()):
        self.give(step, absent)
        self.reference.step()
        self.optimizer.step()

    def skip_some(self):
        """Four steps, of which the first and the third are skipped: behind each, whether it is."""
        for step in range(4):
            skipped = step in (0, 2)
            self.give(step)
            if skipped:
                self.overflow()
            self.reference.step()
            self.optimizer.step()
            yield skipped
            assert self.optimizer.last_step.skipped == skipped

    def captured(self):
        """A first step, and a graph of the next one, which is not launched yet."""
        self.cuda.stream = self.cuda.double.make_stream()
        self.step(0)
        self.give(1)
        with self.cuda.capture() as graphs:
            self.optimizer.step()
        return graphs[0]

    def set_lr(self, lr):
        for optimizer in (self.reference, self.optimizer):
            optimizer.param_groups[0]["lr"] = lr

    def check(self):
        for i, (ours, expected) in enumerate(zip(self.placed, self.plain, strict=True)):
            same(self.cuda, ours, expected, f"parameter {i}")
            found, wanted = self.optimizer.state[ours], self.reference.state[expected]
            assert list(found) == list(wanted)
            for name, value in wanted.items():
                same(self.cuda, found[name], value, f"{name} of parameter {i}")


def same(cuda, ours, expected, what):
    ours = cuda.host(ours)
    assert ours.dtype == expected.dtype, what
    assert torch.equal(ours.view(-1).view(torch.uint8), expected.view(-1).view(torch.uint8)), what
