# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""GaLore-AdamW beside its authors' formulas, with singular vectors by torch.

A sign of a singular vector is free: of both it is made the one with which the largest component
is positive.
"""

import copy
import math

import pytest
import stepc.torch
import torch
from common import (
    Written,
    bits_equal,
    canonical,
    clone_params,
    make_params,
    set_grads,
    strided,
    train,
)
from stepc.torch import GaLoreAdamW
from stepc.torch.colossal import DistGaloreAwamW, get_galore_param_groups

# Tall, wide, square; a row, a column, an element.
SHAPES = [(12, 7), (7, 12), (9, 9), (40, 3), (3, 40), (1, 6), (6, 1), (1, 1), (33, 65)]
VECTORS = [(5,), (), (2, 3, 4)]
PROJECTIONS = ["std", "reverse_std", "right", "left", "full"]


class WrittenGaLore(Written):
    """The authors' AdamW and projector."""

    defaults = {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0, "correct_bias": True,
        "corrected_eps": False,
    }  # fmt: skip

    def bases(self, g, group):
        """Of the left side and of the right one; None where none is projected on."""
        u, _, vh = torch.linalg.svd(g.double(), full_matrices=False)
        u, v = (canonical(side[:, : group["rank"]]).to(g.dtype) for side in (u, vh.mT))
        tall = g.shape[0] >= g.shape[1]
        right = {"std": tall, "reverse_std": not tall, "right": True, "left": False}
        if group["proj_type"] == "full":
            return u, v
        return (None, v) if right[group["proj_type"]] else (u, None)

    def step_one(self, p, group, step=0, m=0.0, v=0.0, bases=None):
        wide = torch.promote_types(p.dtype, torch.float32)
        g = p.grad.to(wide)
        if "rank" in group:
            if step % group["update_proj_gap"] == 0:
                bases = self.bases(g, group)
            left, right = bases
            g = g if left is None else left.mT @ g
            g = g if right is None else g @ right
        step += 1
        beta1, beta2 = group["betas"]
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        root = math.sqrt(1 - beta2**step)
        eps = group["eps"] * (root if group["corrected_eps"] else 1.0)
        alpha = group["lr"]
        if group["correct_bias"]:
            alpha = alpha * root / (1 - beta1**step)
        u = m / (v.sqrt() + eps)
        if "rank" in group:
            u = u if left is None else left @ u
            u = u if right is None else u @ right.mT
            u = u * group["scale"]
        new = p.to(wide) - alpha * u
        p.copy_(new - group["lr"] * group["weight_decay"] * new)
        return {"step": step, "m": m, "v": v, "bases": bases}


def groups_of(params, others, **group):
    low = {"rank": 3, "update_proj_gap": 7, "scale": 0.5, "proj_type": "std", **group}
    return [{"params": params, **low}, {"params": others}]


def states_of(optimizer, written, param):
    """Pairs of ours and the written ones', by name."""
    own, theirs = optimizer.state[param[0]], written.state[param[1]]
    pairs = {
        "exp_avg": (own["exp_avg"], theirs["m"]),
        "exp_avg_sq": (own["exp_avg_sq"], theirs["v"]),
    }
    if theirs["bases"] is not None:
        bases = [basis for basis in theirs["bases"] if basis is not None]
        for name, basis in zip(("projection", "projection_right"), bases, strict=False):
            pairs[name] = (own[name], basis)
    return pairs


def assert_near(optimizer, ours, written, theirs, tolerance):
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=tolerance, atol=tolerance)
        for name, (own, other) in states_of(optimizer, written, (p, q)).items():
            assert own.shape == other.shape, name
            torch.testing.assert_close(own, other.to(own.dtype), rtol=tolerance, atol=tolerance)


def run(steps=50, dtype=torch.float64, shapes=SHAPES, tolerance=1e-9, kind=GaLoreAdamW, **more):
    """Steps of ours and of the formulas from the same gradients."""
    group = {k: more.pop(k) for k in ("rank", "update_proj_gap", "scale", "proj_type") if k in more}
    of_class = {k: more.pop(k) for k in ("nbits",) if k in more}
    corrected = {"corrected_eps": True} if kind is DistGaloreAwamW else {}
    shapes = [*shapes, *VECTORS]
    low = len(shapes) - len(VECTORS)
    ours, theirs = make_params(shapes, dtype), make_params(shapes, dtype)
    more = {"lr": 0.01, **more}
    optimizer = kind(groups_of(ours[:low], ours[low:], **group), **more, **of_class)
    written = WrittenGaLore(groups_of(theirs[:low], theirs[low:], **group), **more, **corrected)
    train((optimizer, written), (ours, theirs), steps)
    assert_near(optimizer, ours, written, theirs, tolerance)
    return optimizer, ours


@pytest.mark.parametrize("rank", [1, 3, 100])
@pytest.mark.parametrize("proj_type", PROJECTIONS)
def test_as_the_formulas(proj_type, rank):
    """In float64, where what is found of a Gram matrix and by a decomposition of the gradient
    itself agree to a billionth."""
    run(proj_type=proj_type, rank=rank)


@pytest.mark.parametrize("gap", [1, 2, 49, 1000])
def test_gaps(gap):
    run(update_proj_gap=gap)


@pytest.mark.parametrize("proj_type", PROJECTIONS)
def test_in_single_precision(proj_type):
    """Vectors are found in float64, and rounded: bases, averages and parameters are off by some
    units of float32's last place. In its own bases, as "full" has both of, a gradient has zeros
    beside the diagonal: what rounding makes of them, eps is to leave small."""
    eps = 1e-2 if proj_type == "full" else 1e-6
    run(dtype=torch.float32, tolerance=1e-6, proj_type=proj_type, steps=20, eps=eps)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"weight_decay": 0.3}, {"correct_bias": False}, {"betas": (0.5, 0.7), "eps": 1e-2},
        {"scale": 2.0, "lr": 0.1}, {"betas": (0.0, 0.0)},
    ],
    ids=str,
)  # fmt: skip
def test_hyper_parameters(kwargs):
    run(steps=10, **kwargs)


def test_colossal():
    """Its eps is that of bitsandbytes."""
    kwargs = {"nbits": 32, "eps": 1e-2, "weight_decay": 0.2, "betas": (0.8, 0.9)}
    run(steps=20, kind=DistGaloreAwamW, **kwargs)


def test_colossal_with_8_bits():
    """Its default: averages are codes, those of a projected gradient too; a basis is float32. As
    by names of states, and on from what was saved, to the bit; near those of 32 bits."""
    shapes, low = [(96, 160), (160, 64), (40, 30), (16, 32, 3, 3), (5000,)], 3
    by_name = dict.fromkeys(("exp_avg", "exp_avg_sq"), "q8")
    kinds = [{}, {"nbits": 32, "state_dtype": by_name}, {"nbits": 32}, {"nbits": 8}]
    begin, *lists = [make_params(shapes) for _ in range(1 + len(kinds))]
    optimizers = [
        DistGaloreAwamW(groups_of(ps[:low], ps[low:], rank=64), **kind)
        for ps, kind in zip(lists, kinds, strict=True)
    ]
    train(optimizers[:3], lists[:3], 4)
    lists[3] = clone_params(lists[0])
    groups = groups_of(lists[3][:low], lists[3][low:], rank=64)
    optimizers[3] = DistGaloreAwamW(groups, nbits=8)
    optimizers[3].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    train(optimizers, lists, 6, first=4)
    assert bits_equal(lists[0], lists[1]) and bits_equal(lists[0], lists[3])
    for param, wide, first in zip(lists[0], lists[2], begin, strict=True):
        way = (wide - first).norm()
        assert (param - wide).norm() < 0.1 * way
    coded = [
        sorted(n for n, s in optimizers[0].state[p].items() if s.dtype is torch.uint8)
        for p in lists[0]
    ]
    both = sorted(by_name)
    assert coded == [both, both, [], both, []]
    assert optimizers[0].state[lists[0][0]]["exp_avg"].shape == (64, 160)
    assert optimizers[0].nbits == copy.deepcopy(optimizers[0]).nbits == 8


def test_groups_of_their_own():
    shapes = [(8, 5), (5, 8), (6, 6), (4,)]
    ours, theirs = make_params(shapes, torch.float64), make_params(shapes, torch.float64)

    def groups(params):
        return [
            {"params": params[:1], "rank": 2, "update_proj_gap": 3, "scale": 1.0,
             "proj_type": "left", "lr": 0.1},
            {"params": params[1:2], "rank": 4, "update_proj_gap": 2, "scale": 0.5,
             "proj_type": "full", "weight_decay": 0.1},
            {"params": params[2:]},
        ]  # fmt: skip

    optimizer, written = GaLoreAdamW(groups(ours)), WrittenGaLore(groups(theirs))
    for number in range(12):
        set_grads(ours, theirs, seed=number)
        if number in (3, 4):
            ours[0].grad = theirs[0].grad = None  # its gap is of its own steps
        for one in (optimizer, written):
            one.param_groups[1]["lr"] = 0.01 * (number + 1)
            one.step()
    assert_near(optimizer, ours, written, theirs, 1e-9)
    assert optimizer.state[ours[0]]["exp_avg"].shape == (2, 5)
    assert optimizer.state[ours[1]]["exp_avg"].shape == (4, 4)
    assert optimizer.state[ours[1]]["projection_right"].shape == (8, 4)
    assert optimizer.state[ours[2]]["exp_avg"].shape == (6, 6)  # no rank: AdamW
    assert "projection" not in optimizer.state[ours[2]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_states(dtype):
    params = make_params(SHAPES, dtype)
    optimizer = GaLoreAdamW(groups_of(params, []))
    train((optimizer,), (params,), 2)
    wide = torch.promote_types(dtype, torch.float32)
    for param in params:
        n, m = param.shape
        r = min(3, n, m)
        state = optimizer.state[param]
        assert set(state) == {"step", "projection", "exp_avg", "exp_avg_sq"}
        assert state["projection"].shape == ((m, r) if n >= m else (n, r))
        assert state["exp_avg"].shape == ((n, r) if n >= m else (r, m))
        assert {value.dtype for name, value in state.items() if name != "step"} == {wide}
        basis = state["projection"].double()
        torch.testing.assert_close(
            basis.mT @ basis, torch.eye(r, dtype=torch.float64), rtol=0, atol=1e-6
        )


@pytest.mark.parametrize("proj_type", PROJECTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_resumed_in_the_middle_of_a_gap(proj_type, dtype):
    """Bit for bit, from a file of tensors and numbers alone."""
    params = make_params(SHAPES, dtype)
    one = GaLoreAdamW(groups_of(params, [], update_proj_gap=5, proj_type=proj_type), lr=0.1)
    train((one,), (params,), 7)
    saved = copy.deepcopy(one.state_dict())
    mirror = clone_params(params)
    other = GaLoreAdamW(groups_of(mirror, [], rank=1, proj_type=proj_type), lr=0.5)
    other.load_state_dict(saved)
    train((one, other), (params, mirror), 8, first=7)
    assert bits_equal(params, mirror)
    for p, q in zip(params, mirror, strict=True):
        assert all(one.state[p][name].equal(other.state[q][name]) for name in one.state[p])
    values = [v for state in saved["state"].values() for v in state.values()]
    assert all(isinstance(value, torch.Tensor) for value in values)


def test_a_projection_that_is_not_there_is_made():
    """As the authors' is where a state has no projector."""
    (param,) = make_params([(8, 5)])
    optimizer = GaLoreAdamW(groups_of([param], [], update_proj_gap=100))
    train((optimizer,), ([param],), 3)
    saved = optimizer.state_dict()
    del saved["state"][0]["projection"]
    other = clone_params([param])
    again = GaLoreAdamW(groups_of(other, [], update_proj_gap=100))
    again.load_state_dict(saved)
    train((again,), (other,), 1, first=3)
    basis = again.state[other[0]]["projection"]
    vectors = canonical(torch.linalg.svd(other[0].grad.double())[2].mT[:, :3])
    torch.testing.assert_close(basis.double(), vectors, rtol=0, atol=1e-5)


@pytest.mark.parametrize("proj_type", PROJECTIONS)
def test_a_gradient_of_zeros(proj_type):
    params = make_params(SHAPES)
    optimizer = GaLoreAdamW(groups_of(params, [], proj_type=proj_type), lr=0.1, weight_decay=0.5)
    before = [p.detach().clone() for p in params]
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step()
    for param, old in zip(params, before, strict=True):
        torch.testing.assert_close(param.detach(), old * 0.95)
        state = optimizer.state[param]
        assert not state["exp_avg"].any() and not state["exp_avg_sq"].any()
        assert state["projection"].isfinite().all()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_no_number(value):
    """In a step in which the projection is made all of the parameter is NaN; others do not
    notice, and nothing hangs."""
    shapes = [(9, 6), (6, 9), (5, 5)]
    plain, params = make_params(shapes), make_params(shapes)
    a, b = GaLoreAdamW(groups_of(plain, [])), GaLoreAdamW(groups_of(params, []))
    for number in range(2):
        set_grads(plain, params, seed=number)
        if number == 0:
            params[1].grad[2, 3] = value
        a.step()
        b.step()
    assert params[1].isnan().all() and b.state[params[1]]["projection"].isnan().all()
    assert bits_equal(plain[::2], params[::2])


def test_a_gradient_of_low_rank():
    """What the others leave is a basis all the same, and of no effect: the step is that of the
    gradient's own rank."""
    params = make_params([(12, 8), (8, 12)], torch.float64)
    others = clone_params(params)
    optimizer, other = (
        GaLoreAdamW(groups_of(own, [], rank=rank, scale=1.0), lr=1.0)
        for own, rank in ((params, 5), (others, 1))
    )
    generator = torch.Generator().manual_seed(0)
    for param, twin in zip(params, others, strict=True):
        left, right = torch.randn(2, 12, dtype=torch.float64, generator=generator)
        param.grad = twin.grad = torch.outer(left[: param.shape[0]], right[: param.shape[1]])
    optimizer.step()
    other.step()
    for param, twin in zip(params, others, strict=True):
        basis = optimizer.state[param]["projection"]
        torch.testing.assert_close(basis.mT @ basis, torch.eye(5, dtype=torch.float64))
        torch.testing.assert_close(param, twin, rtol=0, atol=1e-8)


@pytest.mark.parametrize("how", ["transposed", "sliced"])
def test_memory_in_other_orders(how):
    plain = make_params(SHAPES)
    params = [torch.nn.Parameter(strided(p.detach(), how)) for p in plain]
    a, b = (GaLoreAdamW(groups_of(one, [], update_proj_gap=2)) for one in (plain, params))
    for number in range(4):
        set_grads(plain, seed=number)
        for p, q in zip(plain, params, strict=True):
            q.grad = strided(p.grad, how)
        a.step()
        b.step()
    assert bits_equal(plain, params)


def test_any_number_of_threads():
    """Matrices are shared out among threads; each is one's."""
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            params = make_params(SHAPES * 2)
            optimizer = GaLoreAdamW(groups_of(params, [], update_proj_gap=2))
            train((optimizer,), (params,), 4)
            results.append(params)
    finally:
        torch.set_num_threads(threads)
    assert bits_equal(results[0], results[1]) and bits_equal(results[0], results[2])


def test_groups_of_a_model():
    model = torch.nn.Sequential(
        torch.nn.Embedding(7, 4), torch.nn.Linear(4, 5), torch.nn.LayerNorm(5),
        torch.nn.Conv1d(5, 2, 3),
    )  # fmt: skip
    groups = get_galore_param_groups(model, 0.3, rank=2)
    shapes = [[tuple(p.shape) for p in group["params"]] for group in groups]
    assert shapes == [[(7, 4), (5, 4)], [(5,), (2, 5, 3)], [(5,), (5,), (2,)]]
    assert [group["weight_decay"] for group in groups] == [0.3, 0.3, 0.0]
    assert groups[0]["rank"] == 2 and groups[0]["update_proj_gap"] == 200
    optimizer = DistGaloreAwamW(groups, nbits=32)
    for param in model.parameters():
        param.grad = torch.randn_like(param)
    optimizer.step()
    assert optimizer.state[model[0].weight]["projection"].shape == (4, 2)


def test_clipped_by_norm():
    """As by hand: of all parameters, before the projection."""
    shapes = [(6, 5), (5, 6), (4,)]
    ours, theirs = make_params(shapes, torch.float64), make_params(shapes, torch.float64)
    clip = stepc.torch.ClipByNorm(0.5)
    optimizer = GaLoreAdamW(groups_of(ours[:2], ours[2:]), clip=clip)
    written = WrittenGaLore(groups_of(theirs[:2], theirs[2:]))
    for number in range(3):
        set_grads(ours, theirs, seed=number)
        if number == 1:  # below the bound
            for param in (*ours, *theirs):
                param.grad.mul_(1e-2)
        norm = float(torch.nn.utils.clip_grad_norm_(theirs, 0.5))
        optimizer.step()
        written.step()
        assert optimizer.last_step.grad_norm == pytest.approx(norm, rel=1e-12)
        coefficient = min(1.0, 0.5 / (norm + 1e-6))
        assert optimizer.last_step.clip_coef == pytest.approx(coefficient, rel=1e-12)
        assert (coefficient < 1.0) == (number != 1)
    assert_near(optimizer, ours, written, theirs, 1e-9)


def test_what_is_not_due_is_not_done():
    """A projection keeps its bits until it is due, whatever gradients come."""
    params = make_params(SHAPES)
    optimizer = GaLoreAdamW(groups_of(params, [], update_proj_gap=6, proj_type="full"))
    names, before = ("projection", "projection_right"), []
    for number in range(13):
        train((optimizer,), (params,), 1, first=number)
        bases = [optimizer.state[p][name].clone() for p in params for name in names]
        if number % 6:
            assert bits_equal(bases, before), number
        elif number:
            # Of one element each it is 1, whatever the gradient.
            moved = [not a.equal(b) for a, b in zip(bases, before, strict=True)]
            assert moved == [a.numel() > 1 for a in bases], number
        before = bases
