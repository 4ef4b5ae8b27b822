# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters with views by which they are stepped as several tensors, and the same optimizer of a
parameter for each of these."""

import math

import stepc.torch as st
import torch
from common import bits_equal, make_params, set_grads

# A parameter's shape, its view, and the blocks that it is of.
EXPERTS = ((3, 6, 4), "e n m -> e n m", [(6, 4)] * 3)
QKV = ((12, 5), "(3 n) m -> 3 n m", [(4, 5)] * 3)
COLUMNS = ((4, 6), "m (h 3) -> m h 3", [(2, 3)] * 4)
LAYERS = ((2, 3, 4, 5), "l e n m -> l e n m", [(4, 5)] * 6)
GROUPED = ((24, 7), "(4 n + n + n) m -> (4 n) m + n m + n m", [(16, 7), (4, 7), (4, 7)])
HEADS = ((18, 7), "(4 n + n + n) m -> 4 n m + n m + n m", [(3, 7)] * 6)
CASES = (EXPERTS, QKV, COLUMNS, LAYERS, GROUPED, HEADS)

LOW = {"rank": 2, "update_proj_gap": 2}
KINDS = {
    "SOAP": (st.SOAP, {"precondition_frequency": 2, "max_precond_dim": 9}),
    "Shampoo": (st.Shampoo, {"grafting_type": "adam", "momentum": 0.5}),
    "Dion": (st.Dion, {"rank": 3}),
    "Dion of fractions": (st.Dion, {"rank_fraction": 0.4}),
    "GaLore": (lambda g, **more: st.GaLoreAdamW([own | LOW for own in g], **more), {}),
    "GaLore's Adafactor": (
        lambda g, **more: st.GaLoreAdafactor([own | LOW for own in g], **more),
        {"relative_step": False, "lr": 0.01, "beta1": 0.9},
    ),
    "APOLLO": (lambda g, **more: st.APOLLOAdamW([own | LOW for own in g], **more), {}),
}


def pieces(tensor, shapes):
    """Copies of the blocks of a parameter, or of what has its elements."""
    parts = tensor.detach().reshape(-1).split([math.prod(shape) for shape in shapes])
    return [part.reshape(shape).clone() for part, shape in zip(parts, shapes, strict=True)]


def made_of(cases, dtype=torch.float32):
    """Parameters, and of each its blocks as parameters of their own."""
    params = make_params([shape for shape, *_ in cases], dtype)
    blocks = [
        [torch.nn.Parameter(own) for own in pieces(param, shapes)]
        for param, (*_, shapes) in zip(params, cases, strict=True)
    ]
    return params, blocks


def groups_of(params, cases):
    return [{"params": [p], "view": text} for p, (_, text, _) in zip(params, cases, strict=True)]


def optimizers_of(kind, params, blocks, cases, **more):
    """With views, and of parameters that are the blocks."""
    make, settings = KINDS[kind]
    optimizer = make(groups_of(params, cases), **settings, **more)
    return optimizer, make([{"params": own} for own in blocks], **settings, **more)


def stepped(optimizer, alone, params, blocks, cases, step):
    """One step of both, with the same gradients."""
    set_grads(params, seed=step)
    for param, own, (*_, shapes) in zip(params, blocks, cases, strict=True):
        for block, grad in zip(own, pieces(param.grad, shapes), strict=True):
            block.grad = grad
    optimizer.step()
    alone.step()


def alike(optimizer, alone, params, blocks, cases):
    """Parameters and states: one tensor of all blocks that have it, one behind the other."""
    for param, own, (*_, shapes) in zip(params, blocks, cases, strict=True):
        assert bits_equal(pieces(param, shapes), own)
        states = [alone.state[block] for block in own]
        assert set(optimizer.state[param]) == set().union(*states)
        for name, state in optimizer.state[param].items():
            theirs = [of_block[name] for of_block in states if name in of_block]
            if theirs[0].dim() == 0:  # as of "step" all blocks have the same
                assert state.shape == () and all(state == own for own in theirs)
                continue
            expected = torch.cat([tensor.reshape(-1) for tensor in theirs])
            assert bits_equal([state.reshape(-1)], [expected]), name
            shapes = {t.shape for t in theirs}
            as_one = len(shapes) == 1 and state.shape[-theirs[0].dim() :] in shapes
            assert as_one or state.shape == param.shape or state.dim() == 1, name
