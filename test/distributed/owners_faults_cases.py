# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Owners with one fault at a time, on four ranks: each makes steps differ from one process."""

import stepc.torch as st
import torch
import torch.distributed as dist
from named_values import named_values
from on_ranks import case, main, whole
from owners_cases import give, line, make, spread
from stepc.torch.ranks import owned_part as _owned_part
from stepc.torch.ranks import owners as _owners
from stepc.torch.ranks.owned_part import OwnedPart


def _sends(change):
    """What a rank sends, changed: head, parameter, gradient, states."""

    def seed(original):
        return lambda part: change(part, original(part))

    return (_owners, "_sent", seed)


def _head(place, value):
    def change(_, line):
        line[0][place] = value
        return line

    return change


def _swapped(a, b):
    def change(_, line):
        if len(line) > max(a, b) and line[a].shape == line[b].shape:
            line[a], line[b] = line[b], line[a]
        return line

    return change


def _first_places(original):
    """Every part is put where the first rank's would be."""

    def assign(self, owner, rank, at, before):
        first = [[range(len(own)) for own in of_rank] for of_rank in at]
        original(self, owner, rank, first, before)

    return assign


def _in_state(change):
    def seed(original):
        def take_back(self, part, reader):
            original(self, part, reader)
            change(part)

        return take_back

    return (_owners._Among, "_take_back", seed)


FAULTS = {
    "no gradient is sent": _sends(_head(0, 0)),
    "no state is sent": _sends(_head(1, 0)),
    "a gradient for the parameter": _sends(_swapped(1, 2)),
    "a gradient for a state": _sends(_swapped(2, 3)),
    "parts in the wrong place": (OwnedPart, "assign", lambda original: _first_places(original)),
    "a parameter that others have written is kept": (
        _owners, "_put_where_other", lambda original: lambda whole, at, part: None,
    ),
    "whole to the plan, so counted by coordinate 0": (
        _owned_part, "Layout", lambda original: lambda shape, distinct: original(shape),
    ),
    "the count of the step before": _in_state(lambda part: setattr(part, "count", part.count - 1)),
    "new states are dropped": _in_state(
        lambda part: [state.zero_() for state in part.parts.values()]
    ),
    "the new parameter is dropped": _in_state(lambda part: part.inner.local.detach().zero_()),
    "what is missing on a rank is missing": (
        _owners, "_taken_gradient",
        lambda original: lambda part, kinds, grad: original(part, [min(kinds)], grad),
    ),
}  # fmt: skip


def _differs(mesh, made, grads, after, alone):
    """Whether anything is another than on one process, on any rank, after three steps with
    what can go wrong: parameters and states that are written, a gradient missing on one
    rank."""
    params = spread("fsdp2", mesh, made)
    optimizer = make(params, clip=st.ClipByNorm(0.5))
    for step, own in enumerate(grads):
        absent = {"key"} if step == 1 and dist.get_rank() == 1 else ()
        give(params, own, absent)
        with torch.no_grad():
            for _, param in params:
                param.to_local().mul_(0.5)
                for name, state in optimizer.state[param].items():
                    if name != "step":
                        state.to_local().mul_(0.5)
        optimizer.step()
    full = optimizer.full_state_dict()["state"]
    off = any(not torch.equal(whole(p), after[n]) for n, p in params)
    for number, states in alone.items():
        own = full.get(number, {})
        off |= any(k not in own or not torch.equal(own[k], v) for k, v in states.items())
    found = torch.tensor(float(off))
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return bool(found)


@case
def faults_are_caught():
    mesh = line()
    shapes = {"query": (10, 10), "key": (6, 6), "up": (10, 6), "row": (1, 9)}
    made, grads = named_values(shapes, 1, 3)
    grads = [own[0] for own in grads]
    params = [(n, torch.nn.Parameter(v.clone())) for n, v in made.items()]
    optimizer = make(params, clip=st.ClipByNorm(0.5))
    for step, own in enumerate(grads):
        for name, param in params:
            param.grad = own[name].clone()
            if step == 1 and name == "key":
                param.grad[2:4] = 0  # the rows of rank 1
            param.data.mul_(0.5)
            for key, state in optimizer.state[param].items():
                if key != "step":
                    state.mul_(0.5)
        optimizer.step()
    after = {n: p.detach() for n, p in params}
    alone = optimizer.state_dict()["state"]
    assert not _differs(mesh, made, grads, after, alone)
    for what, (holder, name, seed) in FAULTS.items():
        original = getattr(holder, name)
        setattr(holder, name, seed(original))
        try:
            caught = _differs(mesh, made, grads, after, alone)
        finally:
            setattr(holder, name, original)
        assert caught, what


if __name__ == "__main__":
    main()
