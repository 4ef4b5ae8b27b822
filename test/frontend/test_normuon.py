# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NorMuon beside its authors' formulas in plain torch."""

import copy
import math

import pytest
import torch
from common import Written, bits_equal, clone_params, make_params, set_grads, train
from stepc.torch import Muon, NorMuon

SHAPES = [(12, 7), (7, 12), (9, 9), (40, 3), (3, 40), (1, 6), (6, 1), (1, 1), (33, 65)]


class Formulas(Written):
    """The authors' normuon.py, of matrices."""

    defaults = {
        "lr": 0.02, "weight_decay": 0.0, "momentum": 0.95, "beta2": 0.95, "nesterov": True,
    }  # fmt: skip

    def step_one(self, p, group, v=None, rows=None):
        g = p.grad.to(torch.promote_types(p.dtype, torch.float32))
        v = torch.zeros_like(g) if v is None else v
        rows = torch.zeros_like(g[:, :1]) if rows is None else rows
        v = v.lerp(g, 1 - group["momentum"])
        u = g.lerp(v, group["momentum"]) if group["nesterov"] else v
        x = self.orthogonalize(u)
        norm = x.norm()
        rows = rows.lerp((x * x).mean(1, keepdim=True), 1 - group["beta2"])
        x = x / (rows.sqrt() + 1e-10)
        x = x * (norm / (x.norm() + 1e-10))
        x = x * math.sqrt(max(1, g.shape[0] / g.shape[1]))
        kept = p.to(g.dtype) * (1 - group["lr"] * group["weight_decay"])
        p.copy_(kept - group["lr"] * x)
        return {"v": v, "rows": rows}

    @staticmethod
    def orthogonalize(u):
        a, b, c = 3.4445, -4.7750, 2.0315
        x = u.mT if u.shape[0] > u.shape[1] else u
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            gram = x @ x.mT
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x.mT if u.shape[0] > u.shape[1] else x


def run(steps=20, dtype=torch.float64, shapes=SHAPES, tolerance=1e-9, **more):
    ours, theirs = make_params(shapes, dtype), make_params(shapes, dtype)
    optimizer, written = NorMuon(ours, **more), Formulas(theirs, **more)
    train((optimizer, written), (ours, theirs), steps)
    for p, q in zip(ours, theirs, strict=True):
        own, other = optimizer.state[p], written.state[q]
        pairs = {
            "param": (p.detach(), q.detach()),
            "momentum_buffer": (own["momentum_buffer"], other["v"]),
            "second_momentum_buffer": (own["second_momentum_buffer"], other["rows"]),
        }
        for name, (one, two) in pairs.items():
            assert one.shape == two.shape, name
            # Of the largest element: what rounds is a sum of elements.
            two, size = two.to(one.dtype), float(two.abs().max())
            torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance * size)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"weight_decay": 0.1, "lr": 0.3},
        {"momentum": 0.0},
        {"beta2": 0.0},
        {"momentum": 0.8, "beta2": 0.99, "nesterov": False},
    ],
    ids=str,
)
def test_as_the_formulas(more):
    run(**more)


def test_float32():
    run(dtype=torch.float32, tolerance=2e-4)


def test_rows_move_alike():
    """A row of small numbers moves as far as another, which Muon's does not."""
    moved = {}
    for kind in (Muon, NorMuon):
        (param,) = make_params([(6, 48)], torch.float32)
        before = param.detach().clone()
        optimizer = kind([param], lr=0.02, weight_decay=0.0)
        grad = torch.randn(6, 48, generator=torch.Generator().manual_seed(1))
        grad[3] *= 1e-3
        param.grad = grad
        optimizer.step()
        moved[kind] = (param.detach() - before).norm(dim=1)
    rows = moved[NorMuon]
    assert rows.max() / rows.min() < 1.001
    assert moved[Muon].max() / moved[Muon].min() > 5


def test_resumed():
    ours = make_params([(12, 7), (7, 12)], torch.float32)
    optimizer = NorMuon(ours)
    for step in range(4):
        others = clone_params(ours)
        resumed = NorMuon(others)
        resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        set_grads(ours, others, seed=step)
        optimizer.step()
        resumed.step()
        assert bits_equal(ours, others), step


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"weight_decay": -0.1}, "Invalid weight_decay value: -0.1"),
        ({"momentum": 1.0}, "Invalid momentum value: 1.0"),
        ({"beta2": math.nan}, "Invalid beta2 value: nan"),
    ],
    ids=str,
)
def test_refused(more, words):
    with pytest.raises(ValueError, match=words):
        NorMuon(make_params([(3, 3)], torch.float32), **more)


def test_named_parameters_and_a_closure():
    params = make_params([(4, 3)], torch.float32)
    optimizer = NorMuon([("matrix", params[0])])
    set_grads(params, seed=0)
    assert optimizer.step(lambda: 2.5) == 2.5
    with pytest.raises(ValueError, match="parameter 'bias' has shape"):
        optimizer.add_param_group({"params": [("bias", torch.nn.Parameter(torch.ones(3)))]})


def test_what_is_no_matrix_is_refused():
    optimizer = NorMuon(make_params([(3, 3)], torch.float32))
    for shape in ((), (4,), (2, 3, 3)):
        with pytest.raises(ValueError, match=r"parameter 0 has shape .* expected a matrix"):
            optimizer.add_param_group({"params": make_params([shape], torch.float32)})
    assert len(optimizer.param_groups) == 1
