# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A definition with several rules and an integer option, in one optimizer."""

import copy

import pytest
import stepc.torch
import torch
from common import bits_equal, clone_params, make_params, set_grads, train
from stepc import errors

TEXT = """step.optimizer @picky {
  %lr = step.hyper "lr" = 0.5
  %min = step.option "min_dim" = 4
  %rows = step.option "rows" = true

  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m], %r: state "row"[...b, n, 1])
      where extent -1 ge %min, extent -2 ge 2, %rows {
    %mean = step.mean %g over [m] : [...b, n, m]
    %r1 = step.add %r, %mean : [...b, n, 1]
    %u = step.mul %r1, %lr : [...b, n, 1], f64
    %p1 = step.sub %p, %u : [...b, n, m], [...b, n, 1]
    step.return %p1, %r1 : [...b, n, m], [...b, n, 1]
  }
  step.rule @vector(%p: param[n], %g: grad[n], %s: state "sum"[n]) where rank eq 1 {
    %s1 = step.add %s, %g : [n]
    %u = step.mul %s1, %lr : [n], f64
    %p1 = step.sub %p, %u : [n]
    step.return %p1, %s1 : [n], [n]
  }
  LAST
}
"""
LAST = """step.rule @any(%p: param[*], %g: grad[*]) {
    %u = step.mul %g, %lr : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }"""
SHAPES = [(3, 4), (2, 3, 5), (3, 3), (1, 9), (7,), (), (0, 4), (4, 0)]
TAKEN = ["row", "row", None, None, "sum", None, None, None]


@pytest.fixture
def picky(tmp_path):
    path = tmp_path / "picky.mlir"
    path.write_text(TEXT.replace("LAST", LAST))
    return path


def names(optimizer, params):
    return [next((n for n in optimizer.state[p] if n != "step"), None) for p in params]


def expected_step(params, states, min_dim=4, rows=True, lr=0.5):
    """The rules in torch; ``states`` is updated."""
    for i, p in enumerate(params):
        with torch.no_grad():
            if rows and p.dim() >= 2 and p.shape[-1] >= min_dim and p.shape[-2] >= 2:
                mean = p.grad.double().mean(-1, keepdim=True).float()
                states[i] = states.get(i, 0) + mean
                p.sub_(states[i] * lr)
            elif p.dim() == 1:
                states[i] = states.get(i, 0) + p.grad
                p.sub_(states[i] * lr)
            else:
                p.sub_(p.grad * lr)


def test_each_takes_its_rule(picky):
    ours, twin = make_params(SHAPES), make_params(SHAPES)
    optimizer = stepc.torch.Optimizer(ours, picky)
    kept = {}
    for step in range(4):
        set_grads(ours, twin, seed=step)
        optimizer.step()
        expected_step(twin, kept)
    assert names(optimizer, ours) == TAKEN
    assert optimizer.state[ours[1]]["row"].shape == (2, 3, 1)
    assert all(torch.allclose(p, q) for p, q in zip(ours, twin, strict=True))
    assert all(optimizer.state[p]["step"] == 4 for p in ours)


def test_integer_option_of_a_group(picky, compiler_runs):
    """It chooses rules, and makes no variants."""
    lists = [make_params(SHAPES) for _ in range(4)]
    values = [{}, {"min_dim": 5}, {"min_dim": 1000}, {"rows": False}]
    groups = [{"params": p, **kwargs} for p, kwargs in zip(lists, values, strict=True)]
    optimizer = stepc.torch.Optimizer(groups, picky)
    train((optimizer,), (sum(lists, []),), 2)
    assert names(optimizer, lists[0]) == TAKEN
    assert names(optimizer, lists[1]) == [None, "row", *TAKEN[2:]]
    assert names(optimizer, lists[2]) == [None, None, *TAKEN[2:]] == names(optimizer, lists[3])
    asked = [argument for run in compiler_runs for argument in run if "variant" in argument]
    assert len(asked) == 2 and not any("min_dim" in argument for argument in asked)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"min_dim": 4.0}, "option 'min_dim' is 4.0, expected an integer"),
        ({"min_dim": True}, "option 'min_dim' is True, expected an integer"),
        ({"rows": 1}, "option 'rows' is 1, expected True or False"),
    ],
)
def test_values_of_another_kind(picky, kwargs, words):
    with pytest.raises(TypeError, match=words):
        stepc.torch.Optimizer(make_params(SHAPES), picky, **kwargs)


def test_option_that_changes_the_rule(picky):
    """The next step binds anew; states that the new rule does not know stay."""
    params = make_params([(3, 4)])
    optimizer = stepc.torch.Optimizer(params, picky)
    train((optimizer,), (params,), 2)
    row = optimizer.state[params[0]]["row"].clone()
    optimizer.param_groups[0]["min_dim"] = 5
    before = params[0].detach().clone()
    train((optimizer,), (params,), 1, first=2)
    assert torch.equal(params[0].detach(), before - params[0].grad * 0.5)
    assert optimizer.state[params[0]]["row"].equal(row)
    optimizer.param_groups[0]["min_dim"] = 4
    train((optimizer,), (params,), 1, first=3)
    assert not optimizer.state[params[0]]["row"].equal(row)
    assert optimizer.state[params[0]]["step"] == 4


def test_checkpoints(picky):
    whole, half = make_params(SHAPES), make_params(SHAPES)
    a, b = (stepc.torch.Optimizer(p, picky, min_dim=5) for p in (whole, half))
    train((a,), (whole,), 6)
    train((b,), (half,), 3)
    resumed = clone_params(half)
    c = stepc.torch.Optimizer(resumed, picky)
    c.load_state_dict(copy.deepcopy(b.state_dict()))
    train((c,), (resumed,), 3, first=3)
    assert bits_equal(whole, resumed) and c.param_groups[0]["min_dim"] == 5


def test_shape_that_no_rule_takes(tmp_path):
    path = tmp_path / "picky.mlir"
    path.write_text(TEXT.replace("LAST", ""))
    params = make_params([(3, 4), (3, 3)])
    optimizer = stepc.torch.Optimizer([("a", params[0]), ("b", params[1])], path)
    set_grads(params)
    before = clone_params(params)
    words = (
        r"no rule of optimizer 'picky' takes parameter 'b' of shape \(3, 3\); "
        "rules: 'matrix', 'vector'; min_dim=4, rows=true"
    )
    with pytest.raises(errors.TensorError, match=words):
        optimizer.step()
    assert bits_equal(params, before) and not optimizer.state
    params[1].grad = None
    optimizer.step()
    assert optimizer.state[params[0]]["step"] == 1
