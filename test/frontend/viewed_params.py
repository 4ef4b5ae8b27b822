# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters with views, and the same optimizer of parameters that are reshaped by hand."""

import stepc.torch as st
import torch
from common import ZOO, bits_equal, make_params, set_grads
from stepc.torch import moonlight, muon

CONV = ((6, 3, 2, 2), "o i h w -> o (i h w)", (6, 12))
BLOCKS = ((12, 5), "(3 n) m -> 3 n m", (3, 4, 5))
HEADS = ((4, 12), "m (h 3) -> m h 3", (4, 4, 3))
ROW = ((7,), "n -> 1 n", (1, 7))
LINE = ((3, 4), "n m -> (n m)", (12,))
OF_MATRICES = (CONV, ROW)
OF_BATCHES = (CONV, BLOCKS, HEADS)
OF_ALL_DIMS = ("momentum_buffer", "momentum", "filtered_grad")


def own(groups, **more):
    """A definition by its file."""
    return st.Optimizer(groups, ZOO / "adafactor.mlir", **more)


KINDS = {
    "Muon": (st.Muon, OF_MATRICES),
    "GramMuon": (st.GramMuon, OF_MATRICES),
    "NorMuon": (st.NorMuon, OF_MATRICES),
    "Jordan's": (muon.SingleDeviceMuon, OF_BATCHES),
    "Moonshot's": (None, OF_MATRICES),
    "Dion": (lambda groups: st.Dion(groups, rank=3), OF_MATRICES),
    "SOAP": (lambda groups: st.SOAP(groups, precondition_frequency=2), (CONV, ROW, LINE)),
    "Shampoo": (lambda groups: st.Shampoo(groups, grafting_type="adam"), (CONV, LINE)),
    "GaLore": (lambda groups: st.GaLoreAdamW([g | {"rank": 2} for g in groups]), OF_MATRICES),
    "APOLLO": (lambda groups: st.APOLLOAdamW([g | {"rank": 2} for g in groups]), OF_MATRICES),
    "AdamW": (st.AdamW, (CONV, BLOCKS, HEADS, ROW, LINE)),
    "a file": (own, (CONV, BLOCKS, HEADS, ROW, LINE)),
}


def groups_of(params, cases, views):
    return [
        {"params": [param]} | ({"view": text} if views else {})
        for param, (_, text, _) in zip(params, cases, strict=True)
    ]


def made(name, params, cases, views=True):
    make = KINDS[name][0]
    groups = groups_of(params, cases, views)
    if name != "Moonshot's":
        return make(groups)
    optimizer = moonlight.Muon(muon_params=make_params([(2, 2)]))
    for group in groups:
        optimizer.add_param_group(group)
    return optimizer


def by_hand(params, cases):
    return [
        torch.nn.Parameter(p.detach().reshape(seen).clone())
        for p, (*_, seen) in zip(params, cases, strict=True)
    ]


def give(params, hand, step):
    """The same gradients; that of the first is as a user may have made it."""
    set_grads(params, seed=step)
    first = params[0].grad
    params[0].grad = first.mT.contiguous().mT if first.dim() > 1 else first
    for p, q in zip(params, hand, strict=True):
        q.grad = p.grad.reshape(q.shape).clone()


def assert_alike(optimizer, params, alone, hand):
    """Parameters and states: of all dims that are seen in the parameter's shape."""
    for p, q in zip(params, hand, strict=True):
        assert bits_equal([p.detach().reshape(q.shape)], [q])
        assert set(optimizer.state[p]) == set(alone.state[q])
        for name, state in alone.state[q].items():
            held = optimizer.state[p][name]
            assert held.shape in (p.shape, state.shape), name
            assert name not in OF_ALL_DIMS or held.shape == p.shape, name
            assert bits_equal([held.reshape(state.shape)], [state]), name


def train_adafactor(steps=2, views=True, cases=(CONV, BLOCKS, ROW), first=0, params=None, **more):
    """``hf.Adafactor``, whose rows and columns are of what is seen."""
    params = make_params([shape for shape, *_ in cases]) if params is None else params
    groups = groups_of(params, cases, views)
    optimizer = st.hf.Adafactor(groups, lr=1e-2, relative_step=False, beta1=0.9, **more)
    for step in range(first, first + steps):
        set_grads(params, seed=step)
        optimizer.step()
    return optimizer, params
