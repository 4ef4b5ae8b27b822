# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Muon with factors of bfloat16, beside itself in float32 and beside torch's."""

import copy
import pickle

import pytest
import stepc.torch
import torch

pytestmark = pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon is of torch 2.9 and later"
)

Muon = getattr(stepc.torch, "Muon", None)


@pytest.mark.parametrize("shape", [(48, 96), (64, 40)])
def test_factors_of_bfloat16_are_near_to_float32_and_to_torch(shape):
    """What is rounded is what torch rounds, and less; so the step is another one."""

    def run(make, **arguments):
        torch.manual_seed(5)
        param = torch.nn.Parameter(torch.randn(shape))
        optimizer = make([param], lr=0.02, **arguments)
        for _ in range(3):
            param.grad = torch.randn(shape)
            optimizer.step()
        return param.detach()

    exact, rounded = run(Muon), run(Muon, factors=torch.bfloat16)
    theirs = run(torch.optim.Muon)
    assert not exact.equal(rounded)
    # Three updates of spectral norm 0.02 * sqrt(max(1, rows / columns)), each within some percent
    # of float32's, which torch's are too.
    moved = 3 * 0.02 * max(1, shape[0] / shape[1]) ** 0.5
    for near in (exact, theirs):
        assert torch.linalg.matrix_norm(rounded - near, 2) < 0.1 * moved


def test_factors_of_bfloat16_orthogonalize_as_well_as_torch():
    """Singular values of the update, of a gradient whose own are far apart."""
    torch.manual_seed(6)
    left, right = torch.linalg.qr(torch.randn(96, 48))[0], torch.linalg.qr(torch.randn(48, 48))[0]
    grad = left @ torch.diag(torch.logspace(0, -2, 48)) @ right

    def spread(make, **arguments):
        param = torch.nn.Parameter(torch.zeros(96, 48))
        param.grad = grad.clone()
        make([param], lr=1.0, weight_decay=0.0, **arguments).step()
        values = torch.linalg.svdvals(param.detach() / 2**0.5)
        return values.min().item(), values.max().item()

    low, high = spread(Muon, factors=torch.bfloat16)
    their_low, their_high = spread(torch.optim.Muon)
    assert low > 0.95 * their_low and high < 1.05 * their_high, (low, high)


def test_factors_are_kept_and_refused():
    param = torch.nn.Parameter(torch.randn(6, 4))
    param.grad = torch.randn(6, 4)
    for words in ("torch.float16", "torch.float64"):
        with pytest.raises(ValueError, match=f"factors is {words}, expected torch.float32 or"):
            Muon([param], factors=getattr(torch, words[6:]))
    optimizer = Muon([param], factors=torch.bfloat16)
    optimizer.step()
    twin = copy.deepcopy(optimizer)
    assert pickle.loads(pickle.dumps(optimizer)).factors == twin.factors == torch.bfloat16
    param.grad = torch.randn(6, 4)
    other = twin.param_groups[0]["params"][0]
    other.grad = param.grad.clone()
    optimizer.step()
    twin.step()
    assert param.equal(other)
