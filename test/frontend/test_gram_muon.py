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


SPECTRA = {
    "even": torch.ones(64),
    "1 / k": 1.0 / torch.arange(1, 65),
    "to 1e-6": torch.logspace(0, -6, 64),
    "one large": torch.cat([torch.full((1,), 1000.0), torch.ones(63)]),
    "of few": (torch.arange(64) < 5).float(),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_factors_of_bfloat16(spectrum):
    """As near to orthogonal as torch's, or exact numbers, to a part in 50: torch's roundings make
    singular values of what has none. No further from exact numbers than some percent, or torch's;
    and no singular value is much larger than polynomials make one."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(n, 64, generator=generator))[0] for n in (64, 200))
    grad = left @ torch.diag(SPECTRA[spectrum]) @ right.mT
    if spectrum == "even":
        grad = torch.randn(64, 200, generator=generator)
    moved = {}
    gram = {"factors": torch.bfloat16}
    for name, kind, dtype, more in (
        ("wide", stepc.torch.GramMuon, torch.float32, gram),
        ("tall", stepc.torch.GramMuon, torch.float32, gram),
        ("torch", torch.optim.Muon, torch.float32, {}),
        ("exact", stepc.torch.Muon, torch.float64, {}),
    ):
        own = grad.mT.contiguous() if name == "tall" else grad
        param = torch.nn.Parameter(torch.zeros(own.shape, dtype=dtype))
        param.grad = own.to(dtype)
        kind([param], lr=1.0, adjust_lr_fn="match_rms_adamw", weight_decay=0.0, **more).step()
        result = param.detach().double() / (0.2 * max(own.shape) ** 0.5)
        moved[name] = result.mT if name == "tall" else result
    torch.testing.assert_close(moved["wide"], moved["tall"], rtol=0.02, atol=0.02)
    least = max(orthogonality(moved[name]) for name in ("torch", "exact"))
    far = {name: float((own - moved["exact"]).norm()) for name, own in moved.items()}
    for name in ("wide", "tall"):
        assert 1e-3 * float(moved["exact"].norm()) < far[name], "nothing was rounded"
        assert orthogonality(moved[name]) < 1.02 * least, name
        assert far[name] < max(0.15 * float(moved["exact"].norm()), far["torch"]), name
        assert torch.linalg.matrix_norm(moved[name], 2) < 1.35, name


def test_factors_of_bfloat16_of_square_matrices_are_muons():
    params = make_params([(9, 9), (40, 40)])
    optimizer, plain, twins = both(params, factors=torch.bfloat16)
    train((optimizer, plain), (params, twins), 3)
    assert bits_equal(params, twins)


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
