# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What goes wrong on one rank of ``fused_backward=True`` beside ``zero=``, or is refused: named on
all ranks, none waits for good, and ranks have the same parameters."""

import datetime
import itertools

import stepc.torch as st
import torch
import torch.distributed as dist
from agreement_kinds import ODD, odd
from on_ranks import case, main, same_bits
from stepc import errors
from torch.nn.parallel import DistributedDataParallel

SHAPES = [(64, 48), (37, 64), (5,), (200, 48)]
SECONDS = datetime.timedelta(seconds=10)


def parameters(shapes=SHAPES):
    torch.manual_seed(0)
    return [(f"p{i}", torch.nn.Parameter(torch.randn(s))) for i, s in enumerate(shapes)]


def fused(named, make=st.AdamW, **more):
    zero = st.Zero(**{"stage": 2, "bucket_bytes": 8000, **more})
    return make(named, zero=zero, fused_backward=True, timeout=SECONDS)


def loss_of(named, batch):
    """Its gradients are of rank and batch."""
    factor = 1.0 + dist.get_rank() + 10 * batch
    return sum((param * param).sum() * factor for _, param in named)


class Fails:
    """A hook with which a pass ends with an error at a parameter; None: it does not."""

    def __init__(self, named, at):
        self._hook = None if at is None else named[at][1].register_hook(self._fail)

    def _fail(self, _):
        raise ArithmeticError("broke off")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._hook is not None:
            self._hook.remove()


def said_of(function, kind=(errors.StepcError, ArithmeticError, RuntimeError)):
    try:
        function()
    except kind as error:
        return f"{type(error).__name__}: {error}"
    return ""


def alike(named, optimizer, what):
    """That all ranks have the same parameters, and as many steps."""
    for name, param in named:
        every = [torch.empty_like(param) for _ in range(dist.get_world_size())]
        dist.all_gather(every, param.detach())
        for other in every:
            same_bits(param, other, f"{what}: {name}")
        count = torch.tensor(float(optimizer.state.get(param, {}).get("step", 0)))
        counts = [torch.empty_like(count) for _ in every]
        dist.all_gather(counts, count)
        assert all(one == count for one in counts), (what, name, counts)


def go_on(named, optimizer, what):
    before = [param.detach().clone() for _, param in named]
    for batch in (2, 3):
        loss_of(named, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        alike(named, optimizer, f"{what}, batch {batch}")
    assert not any(torch.equal(p, b) for (_, p), b in zip(named, before, strict=True)), what


NAMED = (
    f"AbandonedError: the backward pass of rank {ODD} along 'zero' ended before all its gradients"
)


@case
def a_pass_that_breaks_off_on_one_rank_is_named_on_the_others():
    """Wherever it does, in the first pass and later; what all ranks had all gradients of is stepped
    on all, and they go on."""
    places = range(len(SHAPES) - 1)  # the gradient of the last comes first
    for overlap, at, first in itertools.product((True, False), places, (True, False)):
        named = parameters()
        optimizer = fused(named, overlap=overlap)
        if not first:
            go_on(named, optimizer, "before")
        before = [param.detach().clone() for _, param in named]
        with Fails(named, odd(at, None)):
            said = said_of(loss_of(named, 0).backward)
        if dist.get_rank() == ODD:
            assert said.startswith("ArithmeticError: broke off"), said
            optimizer.zero_grad()
        else:
            assert said == "", said
            said = said_of(optimizer.step)
            assert said.startswith(NAMED), said
        alike(named, optimizer, f"broken at {at}")
        moved = [not torch.equal(p, b) for (_, p), b in zip(named, before, strict=True)]
        assert moved == [number > at for number in range(len(SHAPES))], (at, moved)
        go_on(named, optimizer, f"behind a break at {at}")


@case
def nothing_is_stepped_of_what_needs_all_tensors():
    for make in (st.hf.Adafactor, lambda n, **k: st.AdamW(n, clip=st.ClipByNorm(1.0), **k)):
        named = parameters()
        optimizer = fused(named, make)
        before = [param.detach().clone() for _, param in named]
        with Fails(named, odd(1, None)):
            said_of(loss_of(named, 0).backward)
        if dist.get_rank() == ODD:
            optimizer.zero_grad()
        else:
            said = said_of(optimizer.step)
            assert said.startswith(NAMED) and "; 0 tensors" in said, said
        for (name, param), then in zip(named, before, strict=True):
            same_bits(param, then, name)
        go_on(named, optimizer, "behind a break")


@case
def a_pass_that_broke_off_is_not_gone_on_with():
    """Neither by a step, which says so, nor by another pass: the end of the one before has written
    what the forward pass has read."""
    for then in ("step", "pass"):
        named = parameters()
        optimizer = fused(named)
        with Fails(named, odd(1, None)):
            said_of(loss_of(named, 0).backward)
        if dist.get_rank() != ODD:
            assert said_of(optimizer.step).startswith(NAMED)
        else:
            call = optimizer.step if then == "step" else loss_of(named, 1).backward
            said = said_of(call)
            assert said.startswith("StepcError: a backward pass broke off"), said
        go_on(named, optimizer, then)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, param in parameters():
            self.register_parameter(name, param)


@case
def what_was_noted_of_reduced_gradients_goes_with_the_pass():
    """Of a pass that broke off ranks have noted the bits of different gradients: the next step is
    of its own ones, and what has none in it is alike."""
    named = parameters()
    optimizer = fused(named, st.hf.Adafactor, stage=1, gradients="reduced")
    with Fails(named, odd(1, None)):
        said = said_of(lambda: sum((param * param).sum() for _, param in named).backward())
    assert bool(said) == (dist.get_rank() == ODD), said
    said_of(optimizer.zero_grad if dist.get_rank() == ODD else optimizer.step)
    named[-1][1].square().sum().backward()
    optimizer.step()


@case
def lomos_pass_that_breaks_off():
    for kind, norm in itertools.product((st.lomo.Lomo, st.lomo.AdaLomo), (None, 1.0)):
        model = Model()
        named = list(model.named_parameters())
        zero = st.Zero(2, bucket_bytes=8000)
        optimizer = kind(model, clip_grad_norm=norm, zero=zero, timeout=SECONDS)

        def step(batch, named=named, optimizer=optimizer, norm=norm):
            if norm is not None:
                optimizer.grad_norm(loss_of(named, batch) * 1e-3)
            optimizer.fused_backward(loss_of(named, batch) * 1e-3, 1e-3)

        for number in range(3):
            with Fails(named, odd(1, None)):
                said = said_of(lambda n=number, s=step: s(n))
            expected = "ArithmeticError" if dist.get_rank() == ODD else "AbandonedError"
            assert said.startswith(expected), said
            assert "the backward pass of rank" in said or dist.get_rank() == ODD, said
            alike(named, optimizer, "broken")
            step(number)
            alike(named, optimizer, "behind it")
            assert all(param.grad is None for _, param in named)


@case
def other_numbers_are_named_before_a_gradient_crosses():
    named = parameters()
    optimizer = fused(named)
    go_on(named, optimizer, "before")
    before = [param.detach().clone() for _, param in named]
    optimizer.param_groups[0]["lr"] = odd(0.5, 1e-3)
    said = said_of(loss_of(named, 0).backward)
    assert said.startswith("DisagreementError") and "lr=" in said, said
    for (name, param), then in zip(named, before, strict=True):
        same_bits(param, then, name)
        assert param.grad is None
    optimizer.param_groups[0]["lr"] = 1e-3
    go_on(named, optimizer, "behind it")


@case
def a_rank_that_does_not_come_is_named():
    group = dist.new_group()  # which is of no use behind this
    named = parameters()
    optimizer = fused(named, process_group=group)
    go_on(named, optimizer, "before")
    if dist.get_rank() != ODD:
        said = said_of(lambda: (loss_of(named, 0).backward(), optimizer.step()))
        assert said.startswith("CommunicationError"), said
        assert f"no word of rank {ODD}" in said, said
        said = said_of(optimizer.step)
        assert "an earlier step failed midway" in said, said


@case
def what_adds_up_or_reduces_is_refused():
    named = parameters()
    optimizer = fused(named)
    said = said_of(optimizer.no_sync)
    assert "zero=Zero(2) without it adds up several passes" in said, said
    loss_of(named, 0).backward()
    said = said_of(loss_of(named, 1).backward)
    assert "has been stepped since the last step()" in said, said
    assert all(param.grad is None for _, param in named)
    optimizer.step()  # of the first pass, which was whole
    go_on(named, optimizer, "behind it")
    more = {"zero": st.Zero(2), "fused_backward": True, "accumulation_steps": 2}
    said = said_of(lambda: st.AdamW(named, **more), ValueError)
    assert "zero=Zero(2) sums them where they are stepped" in said, said


@case
def behind_ddp_it_is_refused():
    for zero in (st.Zero(1, gradients="local"), st.Zero(1, gradients="reduced"), st.Zero(2)):
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8)
        wrapped = DistributedDataParallel(model)
        optimizer = st.AdamW(model.named_parameters(), zero=zero, fused_backward=True)
        before = model.weight.detach().clone()
        said = said_of(wrapped(torch.ones(2, 8)).sum().backward)
        assert not optimizer.state
        assert "as DistributedDataParallel has to reduce it" in said, said
        same_bits(model.weight, before, str(zero))


if __name__ == "__main__":
    main()
