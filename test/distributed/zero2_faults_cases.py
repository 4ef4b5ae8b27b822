# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What goes wrong on one rank of zero=2 before or in a backward pass, and exchanges that fail in
the middle of a step: named on all ranks, and no process ends."""

import datetime

import stepc.torch as st
import torch
import torch.distributed as dist
from agreement_kinds import ODD, odd
from on_ranks import case, main, same_bits
from stepc import errors

SHAPES = [(64, 48), (37, 64), (5,), (200, 48)]
SECONDS = datetime.timedelta(seconds=10)


def parameters(shapes=SHAPES, dtype=torch.float32):
    torch.manual_seed(0)
    return [(f"p{i}", torch.nn.Parameter(torch.randn(s).to(dtype))) for i, s in enumerate(shapes)]


def zero2(named, **more):
    more = {"zero": 2, "gradients": "local", "bucket_bytes": 8000, "timeout": SECONDS, **more}
    return st.AdamW(named, **more)


def backward(named, batch, breaks_at=None):
    """A pass whose gradients are of rank and batch; it may end with an error at a parameter."""

    def fail(_):
        raise ArithmeticError("broke off")

    hook = None if breaks_at is None else named[breaks_at][1].register_hook(fail)
    try:
        factor = 1.0 + dist.get_rank() + 10 * batch
        sum((param * param).sum() * factor for _, param in named).backward()
    finally:
        if hook is not None:
            hook.remove()


def said_of(function, kind=errors.StepcError):
    try:
        function()
    except kind as error:
        return f"{type(error).__name__}: {error}"
    return ""


# What the odd rank has otherwise, by its name, and what is said of it there.
MODELS = {
    "order": (
        lambda: parameters()[:: odd(-1, 1)],
        "'p3', torch.float32 of shape (200, 48)",
    ),
    "dtype": (lambda: parameters(dtype=odd(torch.bfloat16, torch.float32)), "torch.bfloat16"),
    "fewer": (lambda: parameters(SHAPES[: odd(3, 4)]), "3 parameters"),
    "more": (lambda: parameters([*SHAPES, (3,)][: odd(5, 4)]), "'p4', torch.float32 of shape (3,)"),
    "a shape": (lambda: parameters([*SHAPES[:3], (odd(201, 200), 48)]), "shape (201, 48)"),
}


@case
def other_parameters_are_named_before_a_gradient_crosses():
    for name, (make, words) in MODELS.items():
        for more in ({}, {"overlap": False}, {"reduce_dtype": torch.float32}):
            named = make()
            optimizer = zero2(named, **more)
            for _ in range(2):  # it stays so
                optimizer.zero_grad()
                said = said_of(lambda named=named: backward(named, 0))
                assert said.startswith("DisagreementError"), (name, said)
                there = said.partition(", there ")[0 if dist.get_rank() == ODD else 2]
                assert words in there, (name, said)


@case
def other_arguments_are_named_before_a_gradient_crosses():
    kinds = {"bucket_bytes": (9000, 8000), "predivide": (True, False), "overlap": (False, True)}
    for name, values in kinds.items():
        named = parameters()
        optimizer = zero2(named, **{name: odd(*values)})
        said = said_of(lambda named=named: backward(named, 0))
        assert "DisagreementError" in said and name in said, (name, said)
        del optimizer


@case
def a_group_that_one_rank_adds_is_named():
    """It sends what it had before, with other words."""
    for overlap in (True, False):
        named = parameters()
        optimizer = zero2(named, overlap=overlap)
        backward(named, 0)
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == ODD:
            named += [("more", torch.nn.Parameter(torch.ones(7)))]
            optimizer.add_param_group({"params": named[-1:]})
        said = said_of(lambda named=named: backward(named, 1))
        assert "DisagreementError" in said and "'more'" in said, said


def reference(batches):
    """One process, of the means; what a batch gives that is left out counts for nothing."""
    named = parameters()
    optimizer = st.AdamW(named)
    for batch in batches:
        factors = [1.0 + rank + 10 * batch for rank in range(4)]
        for _, param in named:
            grads = [2.0 * param.detach() * factor for factor in factors]
            param.grad = sum(grads[1:], grads[0]) / 4
        optimizer.step()
    return named


@case
def a_pass_that_breaks_off_on_one_rank_is_named_on_the_others():
    """Wherever it does, and with buckets of other sizes. What it had added up is forgotten, and all
    go on."""
    for overlap in (True, False):
        named = parameters()
        optimizer = zero2(named, overlap=overlap)
        for place in range(len(SHAPES) - 1):  # the gradient of the last comes first
            backward(named, 0)
            breaks = odd(place, None)
            said = said_of(
                lambda n=named, b=breaks: backward(n, 1, b), (RuntimeError, ArithmeticError)
            )
            if dist.get_rank() == ODD:
                assert said.startswith("ArithmeticError"), said
            else:
                assert said.startswith(f"CommunicationError: the backward pass of rank {ODD}"), said
            optimizer.zero_grad()
        for batch in (2, 3):
            backward(named, batch)
            optimizer.step()
            optimizer.zero_grad()
        for (name, param), (_, expected) in zip(named, reference((2, 3)), strict=True):
            same_bits(param, expected, name)


@case
def a_rank_that_is_a_pass_behind_is_named():
    """As one that broke off before its first gradient, of which nobody knows."""
    named = parameters()
    optimizer = zero2(named)
    backward(named, 0)
    last = len(SHAPES) - 1
    if dist.get_rank() == ODD:
        assert "broke off" in said_of(lambda: backward(named, 1, last), ArithmeticError)
        optimizer.zero_grad()
    said = said_of(lambda: backward(named, 2))
    assert said.startswith("DisagreementError"), said
    assert "sent for the 1. time" in said and "sent for the 2. time" in said, said


@case
def passes_that_break_off_on_all_ranks_go_on():
    """Each at another place; nobody says more than its own error."""
    named = parameters()
    optimizer = zero2(named)
    said = said_of(lambda: backward(named, 1, dist.get_rank() % 3), (RuntimeError, ArithmeticError))
    assert said.startswith("ArithmeticError"), said
    optimizer.zero_grad()
    backward(named, 2)
    optimizer.step()
    for (name, param), (_, expected) in zip(named, reference((2,)), strict=True):
        same_bits(param, expected, name)


@case
def a_pass_that_broke_off_is_not_gone_on_with():
    """Neither by a step, which says so, nor by another pass, which begins at the first bucket."""
    for then in ("step", "pass"):
        named = parameters()
        optimizer = zero2(named)
        breaks = odd(2, None)
        said_of(lambda n=named, b=breaks: backward(n, 1, b), (RuntimeError, ArithmeticError))
        if then == "step" and dist.get_rank() == ODD:
            said = said_of(optimizer.step)
            assert said.startswith("StepcError: the backward pass broke off"), said
        for _, param in named:  # in place of zero_grad
            param.grad = None
        backward(named, 2)
        optimizer.step()
        for (name, param), (_, expected) in zip(named, reference((2,)), strict=True):
            same_bits(param, expected, f"{name}, {then}")


# --- In the middle of a step ---------------------------------------------------------


def fails(*_, **__):
    raise RuntimeError("the wire was cut")


def step_that_fails(optimizer, named, name):
    """On all ranks, so that none waits."""
    whole = getattr(dist, name)
    backward(named, 1)
    setattr(dist, name, fails)
    try:
        said = said_of(optimizer.step)
    finally:
        setattr(dist, name, whole)
    assert "the wire was cut" in said, said


@case
def states_of_two_steps_are_not_saved():
    """After the exchange of parameters has failed; before, they are of one."""
    for more in ({}, {"bucket_bytes": 10**7}, {"zero": 1}):
        named = parameters()
        optimizer = zero2(named, **more)
        backward(named, 0)
        optimizer.step()
        saved = optimizer.state_dict()
        optimizer.zero_grad()
        step_that_fails(optimizer, named, "broadcast")
        for save in (optimizer.state_dict, optimizer.full_state_dict):
            said = said_of(save)
            assert "parameters and states are of two steps" in said, said
            assert "the wire was cut" in said, said
        optimizer.load_state_dict(saved)
        optimizer.zero_grad()
        backward(named, 2)
        optimizer.step()
        assert optimizer.state_dict()["state"]


@case
def states_of_one_step_are_saved_where_nothing_was_written():
    """In what ranks tell each other before it, and where gradients cross."""
    for more, name in (({}, "all_reduce"), ({"zero": 1}, "all_to_all_single")):
        named = parameters()
        optimizer = zero2(named, **more)
        backward(named, 0)
        optimizer.step()
        before = {k: v.clone() for k, v in optimizer.state_dict()["state"][0].items()}
        optimizer.zero_grad()
        step_that_fails(optimizer, named, name)
        for key, value in optimizer.state_dict()["state"][0].items():
            same_bits(value, before[key], key)


if __name__ == "__main__":
    main()
