# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rank that steps with something else than the others from some step on is named by all of
them, with what it is, before anything is written; and all go on once it is as theirs again."""

import stepc.torch as st
import torch
import torch.distributed as dist
from agreement_kinds import ODD, here, named, plain
from later_kinds import COUNT, SAME_GRADIENTS, WAYS, changes, params_of
from on_ranks import case, main, same_bits
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh

SEEN: dict[str, int] = {}  # changes that were tried, by way


def step(optimizer, missing=False):
    """Of gradients that are there on all ranks, or on the odd one but for the second."""
    params = params_of(optimizer)
    if optimizer._reducer is not None:
        optimizer.zero_grad()
        sum(param.sum() for param in params if param.requires_grad).backward()
    for number, param in enumerate(params if optimizer._reducer is None else ()):
        there = param.requires_grad and not (missing and dist.get_rank() == ODD and number == 1)
        param.grad = torch.ones_like(param) if there else None
    optimizer.step()


def snapshot(optimizer):
    values = [here(param).detach().clone() for param in params_of(optimizer)]
    for state in optimizer.state.values():
        values += [here(v).detach().clone() for v in state.values() if isinstance(v, torch.Tensor)]
    return values


def refusal(optimizer, **how):
    """What the step says, of this rank; "" where it was made."""
    try:
        step(optimizer, **how)
    except errors.CommunicationError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check_words(what, said, word):
    """Every rank names the odd one, and the odd one all others; both say the values."""
    ranks = f"rank {ODD} exchanges"
    if dist.get_rank() == ODD:
        ranks = "ranks 0, 1, 3 exchange"
    start = f"DisagreementError: {ranks} other things than rank {dist.get_rank()}: here "
    assert said.startswith(start), f"{what}: {said or 'it was not refused'}"
    ours, theirs = said.removeprefix(start).split(", there ")
    assert ours != theirs and word in (ours if dist.get_rank() == ODD else theirs), (
        f"{what}: {said}"
    )


def try_one(way, make, mesh, number):
    """The change of this number; False where there is none."""
    optimizer = make(mesh)
    step(optimizer)
    found = dict(enumerate(changes(optimizer)))
    if number not in found:
        return False
    name, word, change, undo = found[number]
    what = f"{way}: {name}"
    before = snapshot(optimizer)
    if dist.get_rank() == ODD:
        change()
    said = refusal(optimizer)
    check_words(what, said, word)
    # The count that was loaded is the odd rank's own.
    if name != COUNT or dist.get_rank() != ODD:
        for now, then in zip(snapshot(optimizer), before, strict=True):
            same_bits(now, then, what)
    if dist.get_rank() == ODD:
        undo()
    step(optimizer)
    return True


def try_all(ways):
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    for way in ways:
        number = 0
        while try_one(way, WAYS[way], mesh, number):
            number += 1
        SEEN[way] = number


@case
def of_dtensors():
    try_all([way for way in WAYS if "DTensor" in way or "owners" in way])


@case
def of_layouts():
    try_all([way for way in WAYS if "layouts" in way])


@case
def of_zero():
    try_all([way for way in WAYS if "zero" in way])


@case
def of_replicas():
    try_all([way for way in WAYS if "DDP" in way])


@case
def each_way_has_been_tried():
    assert SEEN.keys() == WAYS.keys()
    assert all(number >= 3 for number in SEEN.values()), SEEN
    assert sum(SEEN.values()) > 100, SEEN


@case
def a_gradient_that_only_some_ranks_have_where_all_must():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    for way in sorted(SAME_GRADIENTS):
        optimizer = WAYS[way](mesh)
        step(optimizer)
        said = refusal(optimizer, missing=True)
        if "DDP" in way:
            check_words(way, said, "without a gradient")
        assert "parameter 'w1'" in said, f"{way}: {said}"
        step(optimizer)


@case
def replicas_that_have_become_others_are_named():
    """By their bits, at the step that is a multiple of ``check_every``."""
    optimizer = st.AdamW(plain(named()), check_every=2)
    for number in range(3):
        if number == 1 and dist.get_rank() == ODD:
            with torch.no_grad():
                params_of(optimizer)[1][3] += 1.0
        said = refusal(optimizer)
        assert ("parameter 'w1'" in said and "checksum" in said) == (number == 2), said


@case
def ranks_that_step_alone_are_compared_over_their_group():
    half = dist.new_group([0, 2]), dist.new_group([1, 3])
    own = half[dist.get_rank() % 2]
    lr = 1e-3 * (1 + dist.get_rank() % 2)
    optimizer = st.AdamW(plain(named()), lr=lr, check_every=1, process_group=own)
    step(optimizer)
    if dist.get_rank() == ODD:
        optimizer.param_groups[0]["lr"] = 1.0
    said = refusal(optimizer)
    assert ("lr=1.0" in said) == (dist.get_rank() % 2 == 0), said


if __name__ == "__main__":
    main()
