# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Definitions with dims of their own, from Python: the shapes of states follow from the
parameter's and from options; what a user writes into a given state is projected by."""

import pytest
import stepc.errors
import stepc.torch
import torch

DEFINITION = """
step.optimizer @projected {
  %lr = step.hyper "lr" = 0.1
  %rank = step.option "rank" = 4
  %half = step.constant 0.5
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m],
                    %q: state "projection"[...b, m, r] given, %v: state "low"[...b, n, r],
                    %s: state "blocks"[...b, k, 1] kept)
      dim r = min %rank, n, m dim k = m / 64 where rank ge 2 {
    %low = step.matmul %g, %q : [...b, n, m], [...b, m, r]
    %v1 = step.lerp %v, %low, %half : [...b, n, r], [...b, n, r], f64
    %qt = step.transpose %q : [...b, m, r]
    %u = step.matmul %v1, %qt : [...b, n, r], [...b, r, m]
    %d = step.mul %u, %lr : [...b, n, m], f64
    %p1 = step.sub %p, %d : [...b, n, m]
    %k = step.extent k
    %s1 = step.add %s, %k : [...b, k, 1], f64
    step.return %p1, %v1, %s1 : [...b, n, m], [...b, n, r], [...b, k, 1]
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %d = step.mul %g, %lr : [*], f64
    %p1 = step.sub %p, %d : [*]
    step.return %p1
  }
}
"""
SHAPES = [(9, 130), (3, 2), (2, 7, 65), (5,)]


@pytest.fixture
def definition(tmp_path):
    path = tmp_path / "projected.mlir"
    path.write_text(DEFINITION)
    return path


def make_params(dtype=torch.float32):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]
    for param in params:
        param.grad = torch.randn_like(param)
    return params


@pytest.mark.parametrize("rank", [1, 4, 100])
def test_states_have_their_own_shapes(definition, rank):
    params = make_params()
    optimizer = stepc.torch.Optimizer(params, definition, rank=rank)
    optimizer.step()
    for param in params[:3]:
        *batch, n, m = param.shape
        r = min(rank, n, m)
        state = optimizer.state[param]
        assert state["projection"].shape == (*batch, m, r)
        assert state["low"].shape == (*batch, n, r)
        assert state["blocks"].shape == (*batch, -(-m // 64), 1)
        assert (state["blocks"] == -(-m // 64)).all()
    assert "low" not in optimizer.state[params[3]]


def test_groups_have_ranks_of_their_own(definition):
    params = make_params()
    groups = [{"params": params[:1], "rank": 2}, {"params": params[1:]}]
    optimizer = stepc.torch.Optimizer(groups, definition)
    optimizer.step()
    assert optimizer.state[params[0]]["low"].shape == (9, 2)
    assert optimizer.state[params[2]]["low"].shape == (2, 7, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_written_is_projected_by(definition, dtype):
    params = make_params(dtype)
    optimizer = stepc.torch.Optimizer(params, definition)
    optimizer.step()
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    before = [param.detach().to(wide, copy=True) for param in params]
    lows = [torch.zeros_like(optimizer.state[p]["low"]) for p in params[:3]]
    for param in params[:3]:
        optimizer.state[param]["projection"].copy_(
            torch.randn(optimizer.state[param]["projection"].shape)
        )
    optimizer.step()
    for param, old, low in zip(params, before, lows, strict=False):
        state = optimizer.state[param]
        low = low + 0.5 * (param.grad.to(wide) @ state["projection"] - low)
        torch.testing.assert_close(state["low"], low)
        new = old - 0.1 * low @ state["projection"].mT
        torch.testing.assert_close(param.detach(), new.to(dtype))


def test_a_checkpoint_has_them(definition):
    params, others = make_params(), make_params()
    optimizer = stepc.torch.Optimizer(params, definition)
    optimizer.step()
    optimizer.state[params[0]]["projection"].fill_(0.25)
    optimizer.step()
    again = stepc.torch.Optimizer(others, definition)
    again.load_state_dict(optimizer.state_dict())
    with torch.no_grad():
        for param, other in zip(params, others, strict=True):
            other.copy_(param)
    optimizer.step()
    again.step()
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))


def test_a_dim_of_nothing_is_refused(definition):
    params = make_params()
    before = [param.detach().clone() for param in params]
    optimizer = stepc.torch.Optimizer(params, definition, rank=0)
    with pytest.raises(stepc.errors.StepcError, match="dim 'r' of rule 'matrix' is 0"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))
