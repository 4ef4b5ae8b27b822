# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dion beside the formulas of Microsoft's package. The first Q is taken from the generator of
random numbers by way of a copy of ours: test/interpreter compares it with the paper's."""

import copy
import math

import pytest
import torch
from common import Written, bits_equal, clone_params, make_params, set_grads, train
from stepc.errors import TensorError
from stepc.torch import Dion

# Tall, wide, square; a row, a column, an element.
SHAPES = [(12, 7), (7, 12), (9, 9), (40, 3), (3, 40), (1, 6), (6, 1), (1, 1), (33, 65)]
OTHERS = [(5,), (), (2, 3, 4)]


def first_q(shape, rank, number, dtype):
    """Of a step whose gradient is zero: Q stays, but for its columns' norms."""
    params = [torch.nn.Parameter(torch.zeros(1, 1, dtype=dtype)) for _ in range(number)]
    params.append(torch.nn.Parameter(torch.zeros(shape, dtype=dtype)))
    optimizer = Dion(params, rank=rank, epsilon=0.0)
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step()
    return optimizer.state[params[-1]]["Q"]


class WrittenDion(Written):
    """The package's dion_update with "qr", lion_update and adamw_update. The size of a first Q's
    columns makes no difference: P is what they span."""

    defaults = {
        "lr": 0.01, "mu": 0.95, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.01,
        "epsilon": 1e-8, "rank": None, "algorithm": "dion",
    }  # fmt: skip

    def matrix(self, p, group, m, q):
        b = m + p.grad.to(m.dtype)
        tall = b.shape[0] >= b.shape[1]
        a = b if tall else b.mT
        basis, upper = torch.linalg.qr(a @ q)
        basis = basis * torch.where(upper.diagonal() < 0, -1, 1)
        r = a.mT @ basis
        low = basis @ r.mT
        m = b - (1 - group["mu"]) * (low if tall else low.mT)
        q = r / (r.norm(dim=0, keepdim=True) + group["epsilon"])
        u = basis @ q.mT
        return (u if tall else u.mT) * math.sqrt(p.shape[0] / p.shape[1]), m, q

    def elements(self, p, group, m, v, step):
        beta1, beta2, g = group["beta1"], group["beta2"], p.grad.to(m.dtype)
        if group["algorithm"] == "lion":
            return torch.sign(torch.lerp(m, g, 1 - beta1)), torch.lerp(m, g, 1 - beta2), v
        m, v = torch.lerp(m, g, 1 - beta1), beta2 * v + (1 - beta2) * g * g
        root = v.sqrt() / math.sqrt(1 - beta2**step) + group["epsilon"]
        return m / root / (1 - beta1**step), m, v

    def step_one(self, p, group, step=0, m=None, v=0.0, q=None):
        step += 1
        m = torch.zeros_like(p) if m is None else m
        if group["algorithm"] == "dion":
            q = self.first[id(p)] if q is None else q
            u, m, q = self.matrix(p, group, m, q)
        else:
            u, m, v = self.elements(p, group, m, v, step)
        p.copy_(p * (1 - group["lr"] * group["weight_decay"]) - group["lr"] * u)
        return {"step": step, "m": m, "v": v, "q": q}


def groups_of(params, others, **group):
    algorithm = {"algorithm": group.pop("algorithm", "lion")}
    return [{"params": params, **group}, {"params": others, **algorithm}]


def run(steps=20, dtype=torch.float64, tolerance=1e-8, shapes=SHAPES, rank=None, **group):
    """Steps of ours and of the formulas from the same gradients."""
    shapes = [*shapes, *OTHERS]
    low = len(shapes) - len(OTHERS)
    ours, theirs = make_params(shapes, dtype), make_params(shapes, dtype)
    optimizer = Dion(groups_of(ours[:low], ours[low:], rank=rank, **group))
    written = WrittenDion(groups_of(theirs[:low], theirs[low:], rank=rank, **group))
    written.first = {
        id(q): first_q(q.shape, rank, number, dtype) for number, q in enumerate(theirs[:low])
    }
    train((optimizer, written), (ours, theirs), steps)
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=tolerance, atol=tolerance)
        own, other = optimizer.state[p], written.state[q]
        names = {"momentum": "m", "Q": "q", "variance": "v"}
        for name in own.keys() - {"step"}:
            value = other[names[name]].to(own[name].dtype)
            torch.testing.assert_close(own[name], value, rtol=tolerance, atol=tolerance)
    return optimizer, ours


@pytest.mark.parametrize(("rank", "algorithm"), [(None, "lion"), (1, "adamw"), (3, "lion")])
def test_as_the_formulas(rank, algorithm):
    optimizer, params = run(rank=rank, algorithm=algorithm)
    extents = [min(p.shape) for p in params if p.dim() == 2]
    expected = [extent if rank is None else min(rank, extent) for extent in extents]
    found = [optimizer.state[p]["Q"].shape for p in params if p.dim() == 2]
    assert [shape[1] for shape in found] == expected
    assert [shape[0] for shape in found] == extents


@pytest.mark.parametrize("group", [{"mu": 0.5, "weight_decay": 0.3}, {"epsilon": 0.1, "lr": 0.1}],
                         ids=str)  # fmt: skip
def test_arguments(group):
    run(rank=4, **group)


def test_in_single_precision():
    """Where the momentum fills the columns: of others rounding makes a direction."""
    run(dtype=torch.float32, tolerance=2e-3, steps=8, rank=3, shapes=[(12, 7), (7, 12), (33, 65)])


def test_a_gradient_of_zeros_moves_nothing_but_the_decay():
    params = make_params([(6, 4), (4, 6)], torch.float64)
    before = clone_params(params)
    optimizer = Dion(params, lr=0.5, weight_decay=0.25, rank=3)
    for _ in range(3):
        for param in params:
            param.grad = torch.zeros_like(param)
        optimizer.step()
    for param, old in zip(params, before, strict=True):
        torch.testing.assert_close(param.detach(), old.detach() * (1 - 0.125) ** 3)
        torch.testing.assert_close(
            optimizer.state[param]["Q"].norm(dim=0), torch.ones(3, dtype=torch.float64)
        )
    set_grads(params)
    optimizer.step()
    assert all((param - old).abs().max() > 0.1 for param, old in zip(params, before, strict=True))


def test_first_bases_are_of_the_parameter_and_the_seed():
    def bases(**more):
        params = make_params([(30, 20), (30, 20)], torch.float32)
        optimizer = Dion(params, rank=10, mu=1.0, **more)
        set_grads(params)
        optimizer.step()
        return [optimizer.state[p]["Q"] for p in params]

    first = bases()
    torch.manual_seed(3)
    assert all(bits_equal(a, b) for a, b in zip(first, bases(), strict=True))
    assert not any(bits_equal(a, b) for a, b in zip(first, bases(projection_seed=1.0), strict=True))


FRACTIONS = [
    # In floats 0.14 * 50 is more than 7, which the package rounds up.
    (0.14, 1, [(50, 60), (7, 9), (12, 5), (1, 1)], [8, 1, 1, 1]),
    (0.25, 1, [(12, 7), (40, 33), (8, 8)], [2, 9, 2]),
    (0.3, 8, [(12, 7), (33, 65), (20, 20)], [7, 16, 8]),
    (1.0, 4, [(6, 5), (9, 9)], [5, 9]),
]


@pytest.mark.parametrize(("fraction", "multiple", "shapes", "ranks"), FRACTIONS)
def test_a_rank_that_is_a_fraction(fraction, multiple, shapes, ranks):
    """Of one group each matrix has its own: as groups of each alone with that rank, to the bit."""
    ours, theirs = make_params([*shapes, (5,)]), make_params([*shapes, (5,)])
    groups = [{"params": [p], "rank": rank} for p, rank in zip(theirs, ranks, strict=False)]
    lion = {"algorithm": "lion"}
    more = {"rank_fraction": fraction, "rank_multiple_of": multiple}
    optimizer = Dion([{"params": ours[:-1]}, {"params": ours[-1:], **lion}], **more)
    alone = Dion([*groups, {"params": theirs[-1:], **lion}])
    for step in range(4):
        set_grads(ours, theirs, seed=step)
        if step == 2:  # which all of the plan's groups are to get
            for group in (*optimizer.param_groups, *alone.param_groups):
                group["lr"] = 0.07
        if step == 0:  # without the first matrix, which is bound later
            ours[0].grad = theirs[0].grad = None
        optimizer.step()
        alone.step()
    for p, q in zip(ours, theirs, strict=True):
        assert bits_equal([p], [q])
        assert bits_equal(optimizer.state[p].values(), alone.state[q].values())
    found = [optimizer.state[p]["Q"].shape[1] for p in ours[:-1]]
    least = [min(shape) for shape in shapes]
    expected = [min(multiple * math.ceil(fraction * m / multiple), m) for m in least]
    assert found == expected == ranks


def test_a_group_has_a_rank_or_a_fraction():
    """Its own stands for what the constructor says of the other."""
    params = make_params([(8, 6), (8, 6), (8, 6), (8, 6)])
    optimizer = Dion([params[0]], rank_fraction=0.5)
    optimizer.add_param_group({"params": [params[1]], "rank": 4})
    other = Dion([params[2]], rank=4)
    other.add_param_group({"params": [params[3]], "rank_fraction": 0.5})
    set_grads(params)
    for one in (optimizer, other):
        one.precompile()
        one.step()
    states = [*optimizer.state.values(), *other.state.values()]
    assert [own["Q"].shape[1] for own in states] == [3, 4, 4, 3]
    saved = optimizer.state_dict()
    for group in saved["param_groups"][1:]:  # as of before there were fractions
        del group["rank_fraction"], group["rank_multiple_of"]
    again = Dion([params[0]], rank_fraction=0.5)
    again.add_param_group({"params": [params[1]], "rank": 4})
    again.load_state_dict(saved)
    again.step()
    optimizer.param_groups[0]["rank_fraction"] = 1.0
    with pytest.raises(TensorError, match=r"state 'Q' of parameter 0 of group 0 has shape"):
        optimizer.step()
    optimizer.param_groups[0]["rank_fraction"] = 0.5
    optimizer.step()


def test_goes_on_from_a_checkpoint():
    shapes = [(12, 7), (7, 12), (5,)]
    ours = make_params(shapes, torch.float32)
    build = lambda params: Dion(groups_of(params[:2], params[2:], rank=4))  # noqa: E731
    optimizer = build(ours)
    train((optimizer,), (ours,), 5)
    later = clone_params(ours)
    again = build(later)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for step in range(5, 10):
        set_grads(ours, later, seed=step)
        optimizer.step()
        again.step()
    assert all(bits_equal(p, q) for p, q in zip(ours, later, strict=True))


REFUSED = [
    ({"lr": -1.0}, "Invalid learning rate: -1.0"),
    ({"mu": -1.0}, "Invalid momentum factor (mu): -1.0"),
    ({"betas": (-0.1, 0.9)}, "Invalid betas: (-0.1, 0.9)"),
    ({"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
    ({"rank": 0}, "rank is 0, expected a whole number from 1 on"),
    ({"rank": 0.25}, "rank is 0.25, expected a whole number from 1 on"),
    ({"rank_fraction": 0.0}, "Invalid rank fraction: 0.0"),
    ({"rank_fraction": 1.5}, "Invalid rank fraction: 1.5"),
    ({"rank_fraction": math.nan}, "Invalid rank fraction: nan"),
    ({"rank_multiple_of": 0}, "Invalid rank multiple of: 0"),
    ({"rank_multiple_of": 1.5}, "rank_multiple_of is 1.5, expected a whole number from 1 on"),
    ({"rank": 2, "rank_fraction": 0.5}, "rank is 2, with rank_fraction 0.5 and rank_multiple_of "
     "1: a group has the one or the others"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(more, message):
    with pytest.raises(ValueError) as caught:
        Dion([torch.nn.Parameter(torch.ones(3, 4))], **more)
    assert str(caught.value) == message


def test_refused_groups():
    vector, matrix = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3, 4))
    with pytest.raises(ValueError) as caught:
        Dion([matrix, vector])
    assert str(caught.value) == (
        "parameter 1 has shape (3,), expected a matrix: give others to a group with algorithm "
        "'lion' or 'adamw'"
    )
    optimizer = Dion([matrix])
    with pytest.raises(ValueError, match="^Unknown algorithm: sgd$"):
        optimizer.add_param_group({"params": [vector], "algorithm": "sgd"})
    group = {"params": [vector], "rank": 2}
    with pytest.raises(ValueError, match="expected a matrix"):
        optimizer.add_param_group(group)
    assert group == {"params": [vector], "rank": 2}
    assert len(optimizer.param_groups) == 1
