# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a definition keeps between steps for each group: D-Adaptation's d."""

import copy
import pickle

import pytest
import stepc.torch
import torch
from common import ZOO, bits_equal, clone_params, make_params, set_grads, train
from stepc import errors

SHAPES = [(3, 5), (7,), (2, 3, 4), (33, 17)]


def make(params, **kwargs):
    groups = [{"params": params[:2]}, {"params": params[2:], "weight_decay": 0.1}]
    return stepc.torch.Optimizer(groups, ZOO / "dadapt_adam.mlir", **kwargs)


def test_one_for_each_group():
    params = make_params(SHAPES)
    optimizer = make(params)
    assert optimizer.scalars == {}
    set_grads(params)  # the same each time: d grows
    for _ in range(5):
        optimizer.step()
    d = optimizer.scalars["d"]
    assert len(d) == 2 and d[0] != d[1] and all(value >= 1e-6 for value in d)
    assert optimizer.last_step.d != d  # that of the step, not the next one's
    saved = optimizer.state_dict()["param_groups"]
    assert [group["scalars"]["d"] for group in saved] == d


def test_set():
    params, twin = make_params(SHAPES), make_params(SHAPES)
    a, b = make(params), make(twin)
    a.set_scalar("d", 1e-4)
    assert a.scalars["d"] == [1e-4, 1e-4]
    train((a, b), (params, twin), 1)
    assert a.last_step.d == [1e-4, 1e-4] and b.last_step.d == [1e-6, 1e-6]
    b.set_scalar("d", [1e-3, 1e-2])
    train((b,), (twin,), 1, first=1)
    assert b.last_step.d == [1e-3, 1e-2] and b.state[twin[0]]["step"] == 2
    words = "optimizer 'dadapt_adam' has no scalar 'e'; it has 'd', 'numerator_weighted'"
    with pytest.raises(errors.NameNotFoundError, match=words):
        a.set_scalar("e", 1.0)


@pytest.mark.parametrize("how", ["state_dict", "deepcopy", "pickle"])
def test_kept(how):
    whole, half = make_params(SHAPES), make_params(SHAPES)
    a, b = make(whole), make(half)
    train((a,), (whole,), 8)
    train((b,), (half,), 4)
    if how == "state_dict":
        resumed = clone_params(half)
        c = make(resumed)
        c.load_state_dict(pickle.loads(pickle.dumps(b.state_dict())))
    else:
        c = copy.deepcopy(b) if how == "deepcopy" else pickle.loads(pickle.dumps(b))
        resumed = [p for group in c.param_groups for p in group["params"]]
    assert c.scalars == b.scalars
    train((c,), (resumed,), 4, first=4)
    assert bits_equal(whole, resumed) and c.scalars == a.scalars


def test_a_group_that_comes_later():
    params, more = make_params(SHAPES), make_params([(4, 4)], seed=1)
    optimizer = make(params)
    train((optimizer,), (params,), 4)
    before = optimizer.scalars["d"]
    optimizer.add_param_group({"params": more})
    train((optimizer,), (params + more,), 1, first=4)
    assert optimizer.last_step.d == [*before, 1e-6]


def test_d_finds_its_size():
    """A quadratic: the parameters come close to its minimum without a rate."""
    torch.manual_seed(0)
    target = torch.randn(20, 20)
    param = torch.nn.Parameter(torch.zeros(20, 20))
    optimizer = stepc.torch.Optimizer([param], ZOO / "dadapt_adam.mlir")
    for _ in range(300):
        param.grad = param.detach() - target
        optimizer.step()
    assert float((param.detach() - target).square().mean()) < 0.1 * float(target.square().mean())
