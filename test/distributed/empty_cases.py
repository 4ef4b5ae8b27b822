# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rank that has none of the parameters, as a stage without any or one that is frozen: it
takes part in what is of all, whatever the optimizer and its options, and the others have the
bits of one process."""

import functools
import inspect

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from samples import BREADTH, sample
from torch.distributed.device_mesh import init_device_mesh
from zoo import some

SHAPES = [(6, 5), (7,), (4, 3, 2)]
MATRICES = [(6, 5), (7, 4), (4, 6)]
OF_DIMS = [(6, 5), (7,), (4, 6)]
SHAPES_OF = {
    **dict.fromkeys(("Muon", "GramMuon", "NorMuon", "Dion"), MATRICES),
    **dict.fromkeys(("SOAP", "Shampoo"), OF_DIMS),
}
# Values of a group that switch options of the definition.
SWITCHES = {
    "amsgrad": True, "maximize": True, "centered": True, "momentum": 0.9, "nesterov": True,
    "weight_decay": 0.1, "decoupled_weight_decay": True, "scale_parameter": False,
    "beta1": 0.9, "adam_w_mode": False, "bias_correction": False,
}  # fmt: skip
CLASSES = [
    *(getattr(st, name) for name in st.__all__ if inspect.isclass(getattr(st, name))),
    st.hf.Adafactor, st.came.CAME, st.apex.FusedLAMB, st.deepspeed.FusedAdam,
    st.deepspeed.FusedLamb, st.colossal.Lamb,
]  # fmt: skip
CLASSES = [c for c in CLASSES if issubclass(c, torch.optim.Optimizer) and c is not st.Optimizer]


def options_of(kind):
    """Each switch that the class has alone, none, and all together."""
    takes = inspect.signature(kind).parameters
    own = {name: value for name, value in SWITCHES.items() if name in takes}
    alone = [{name: value} for name, value in own.items() if name != "nesterov"]
    return [{}, *alone, own]


def everything():
    """What no class itself refuses."""
    for kind in CLASSES:
        for options in options_of(kind):
            if kind is st.came.CAME:
                options = options | {"lr": 1e-2}
            if issubclass(kind, st.hf.Adafactor):
                options = options | {"lr": 1e-2, "relative_step": False}
            try:
                kind([torch.nn.Parameter(torch.ones(2, 2))], **options)
            except (RuntimeError, ValueError):
                continue
            yield kind, options


def layouts():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("pp",))
    return [(".*", st.Layout(mesh, ["distinct"]))]


def steps(make, *, frozen=False, shapes=SHAPES):
    """Rank 0 has all parameters; two steps, the second with a gradient less."""
    torch.manual_seed(0)
    made = [torch.randn(shape) for shape in shapes]
    grads = [[torch.randn(shape) for shape in shapes] for _ in range(2)]
    ours = [(f"p{i}", torch.nn.Parameter(v.clone())) for i, v in enumerate(made)]
    theirs = [(f"p{i}", torch.nn.Parameter(v.clone())) for i, v in enumerate(made)]
    if dist.get_rank() == 0:
        optimizer = make(ours, layouts=layouts())
    elif frozen:
        stage = [("f", torch.nn.Parameter(torch.ones(3), requires_grad=False))]
        optimizer = make(stage, layouts=layouts())
    else:
        optimizer = make([{"params": []}], layouts=layouts())
    whole = make(theirs)
    for number, own in enumerate(grads):
        for (_, a), (_, b), grad in zip(ours, theirs, own, strict=True):
            a.grad, b.grad = grad.clone(), grad.clone()
        if number == 1:
            ours[1][1].grad = theirs[1][1].grad = None
        optimizer.step()
        whole.step()
    if dist.get_rank() == 0:
        for (name, a), (_, b) in zip(ours, theirs, strict=True):
            same_bits(a, b, name)


@case
def every_class_with_its_options():
    number = 0
    for kind, options in sample(everything(), "empty", 3):
        shapes = SHAPES_OF.get(kind.__name__, SHAPES)
        for more in ({}, {"clip": st.ClipByNorm(1.0)}):
            try:
                steps(functools.partial(kind, **options, **more), shapes=shapes)
            except Exception as error:
                raise AssertionError(f"{kind.__name__}, {options}, {more}") from error
            number += 1
    assert number > (80 if BREADTH else 25), number


@case
def the_zoo_of_cases_with_a_frozen_stage():
    for name, make in some("frozen").items():
        for frozen in (False, True):
            try:
                steps(make, frozen=frozen)
            except Exception as error:
                raise AssertionError(f"{name}, {frozen}") from error


if __name__ == "__main__":
    main()
