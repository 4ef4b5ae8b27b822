# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Muon in Gram space beside Muon: the same in exact numbers."""

import copy

import pytest
import stepc.torch
import torch
from common import bits_equal, clone_params, make_params, set_grads, train

pytestmark = pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon is of torch 2.9 and later"
)
# Wide, tall and square; a row, a column, an element.
SHAPES = [(7, 12), (12, 7), (9, 9), (40, 3), (3, 40), (1, 6), (6, 1), (1, 1), (33, 65)]


def both(params, **more):
    twins = clone_params(params)
    return stepc.torch.GramMuon(params, **more), stepc.torch.Muon(twins, **more), twins


@pytest.mark.parametrize(
    "more",
    [{"lr": 0.3}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"},
     {"ns_coefficients": (2.0, -1.5, 0.5), "eps": 0.5, "momentum": 0.0}],
    ids=str,
)  # fmt: skip
def test_as_muon(more):
    """In float64 to a part in 10^9, and square matrices to the bit."""
    params = make_params(SHAPES, torch.float64)
    optimizer, plain, twins = both(params, **more)
    train((optimizer, plain), (params, twins), 10)
    for p, q in zip(params, twins, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-9)
        assert optimizer.state[p]["momentum_buffer"].equal(plain.state[q]["momentum_buffer"])
        assert p.equal(q) or p.shape[0] != p.shape[1]


def orthogonality(moved):
    gram = moved @ moved.mT if moved.shape[0] <= moved.shape[1] else moved.mT @ moved
    return float((gram - torch.eye(len(gram), dtype=gram.dtype)).norm())


@pytest.mark.parametrize("spectrum", ["even", "decaying", "of few"])
@pytest.mark.parametrize("shape", [(48, 160), (160, 48)], ids=str)
def test_in_single_precision(shape, spectrum):
    """As near to orthogonal as Muon in float64, whatever the singular values: eigenvalues of the
    Gram matrix that rounding has made negative stay small without a restart."""
    generator = torch.Generator().manual_seed(0)
    grad = torch.randn(shape, dtype=torch.float64, generator=generator)
    if spectrum != "even":
        u, s, vh = torch.linalg.svd(grad, full_matrices=False)
        decaying = torch.logspace(0, -6, len(s), dtype=torch.float64)
        s = decaying if spectrum == "decaying" else (torch.arange(len(s)) < 5).double()
        grad = u @ (s[:, None] * vh)
    moved = {}
    for kind, dtype in ((stepc.torch.GramMuon, torch.float32), (stepc.torch.Muon, torch.float64)):
        param = torch.nn.Parameter(torch.zeros(shape, dtype=dtype))
        optimizer = kind([param], lr=1.0, adjust_lr_fn="match_rms_adamw")
        param.grad = grad.to(dtype)
        optimizer.step()
        moved[kind] = param.detach().double() / (0.2 * max(shape) ** 0.5)
    ours, exact = moved.values()
    assert orthogonality(ours) == pytest.approx(orthogonality(exact), rel=1e-3)
    assert (ours - exact).abs().max() < 1e-3 * exact.abs().max()


def test_checkpoints_of_torchs():
    """Of the same form, both ways; training goes on to the bit from ours."""
    theirs = make_params(SHAPES)
    torchs = torch.optim.Muon(theirs, lr=0.2)
    train((torchs,), (theirs,), 2)
    params = clone_params(theirs)
    optimizer = stepc.torch.GramMuon(params)
    optimizer.load_state_dict(copy.deepcopy(torchs.state_dict()))
    train((optimizer,), (params,), 2, first=2)
    saved = copy.deepcopy(optimizer.state_dict())
    torchs.load_state_dict(saved)
    mirror = clone_params(params)
    again = stepc.torch.GramMuon(mirror)
    again.load_state_dict(saved)
    assert again.param_groups[0]["lr"] == 0.2
    train((optimizer, again), (params, mirror), 1, first=4)
    assert bits_equal(params, mirror)


def test_other_steps_are_refused():
    params = make_params([(3, 4)])
    optimizer = stepc.torch.GramMuon(params, ns_steps=4)
    set_grads(params)
    with pytest.raises(ValueError, match="ns_steps is 4, expected 5"):
        optimizer.step()
    optimizer.param_groups[0]["ns_steps"] = 5
    optimizer.step()
    optimizer.param_groups[0]["adjust_lr_fn"] = "none"
    with pytest.raises(ValueError, match="Adjust learning rate function none is not supported"):
        optimizer.step()


def test_what_is_no_matrix_is_refused():
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        stepc.torch.GramMuon(make_params([(4,)]))
