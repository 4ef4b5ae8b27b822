# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""APOLLO beside its authors' formulas. Random projections are taken from ours: which they are is
said by the language, and test/interpreter compares them with the generator."""

import copy
import math

import pytest
import torch
from common import Written, bits_equal, canonical, clone_params, make_params, set_grads, train
from stepc.torch import APOLLOAdamW
from test_galore import SHAPES, VECTORS

SIDES = {"std": (True, False), "reverse_std": (False, True), "right": (True, True),
                "left": (False, False)}  # fmt: skip


class WrittenApollo(Written):
    """The authors' AdamW and projectors."""

    defaults = {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0, "correct_bias": True,
        "scale_front": False, "disable_nl": False,
    }  # fmt: skip

    def project(self, g, group, given):
        """The projection, and whether it is on the right."""
        tall, wide = SIDES[group["proj_type"]]
        right = tall if g.shape[0] >= g.shape[1] else wide
        if given is not None:
            return given.to(g.dtype), right
        u, _, vh = torch.linalg.svd(g.double(), full_matrices=False)
        return canonical((vh.mT if right else u)[:, : group["rank"]]).to(g.dtype), right

    def scaled(self, p, g, low, u, group, norm):
        dim = 0 if g.shape[0] < g.shape[1] else 1
        if group["scale_type"] == "channel":
            factor = u.norm(dim=dim, keepdim=True) / (low.norm(dim=dim, keepdim=True) + 1e-8)
        else:
            factor = u.norm() / (low.norm() + 1e-8)
        d, root = g * factor, math.sqrt(group["scale"])
        d = d * root if group["scale_front"] else d
        if not group["disable_nl"]:
            length = d.norm()
            limiter = 1.0
            if norm is not None:
                limiter = max(length / (norm + 1e-8), torch.tensor(1.01, dtype=d.dtype)) / 1.01
            d, norm = d / limiter, length / limiter
        return (d if group["scale_front"] else d * root), norm

    def step_one(self, p, group, step=0, m=0.0, v=0.0, basis=None, norm=None):
        wide = torch.promote_types(p.dtype, torch.float32)
        g = low = p.grad.to(wide)
        if "rank" in group:
            if step % group["update_proj_gap"] == 0:
                basis = self.project(
                    g, group, self.of_ours(p) if group["proj"] == "random" else None
                )
            low = g @ basis[0] if basis[1] else basis[0].mT @ g
        step += 1
        beta1, beta2 = group["betas"]
        m = beta1 * m + (1 - beta1) * low
        v = beta2 * v + (1 - beta2) * low * low
        u = m / (v.sqrt() + group["eps"])
        alpha = group["lr"]
        if group["correct_bias"]:
            alpha = alpha * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        if "rank" in group:
            u, norm = self.scaled(p, g, low, u, group, norm)
        new = p.to(wide) - alpha * u
        p.copy_(new - group["lr"] * group["weight_decay"] * new)
        return {"step": step, "m": m, "v": v, "basis": basis, "norm": norm}


def groups_of(params, others, **group):
    low = {"rank": 3, "proj": "random", "scale_type": "channel", "scale": 2.0, "proj_type": "std",
           "update_proj_gap": 7, **group}  # fmt: skip
    return [{"params": params, **low}, {"params": others}]


def run(steps=30, dtype=torch.float64, tolerance=1e-9, shapes=SHAPES, group=(), **more):
    """Steps of ours and of the formulas from the same gradients."""
    shapes = [*shapes, *VECTORS]
    low = len(shapes) - len(VECTORS)
    ours, theirs = make_params(shapes, dtype), make_params(shapes, dtype)
    more = {"lr": 0.01, **more}
    optimizer = APOLLOAdamW(groups_of(ours[:low], ours[low:], **dict(group)), **more)
    more.pop("projection_seed", None)
    written = WrittenApollo(groups_of(theirs[:low], theirs[low:], **dict(group)), **more)
    pairs = {id(q): p for p, q in zip(ours, theirs, strict=True)}
    written.of_ours = lambda q: optimizer.state[pairs[id(q)]]["projection"]
    train((optimizer, written), (ours, theirs), steps)
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=tolerance, atol=tolerance)
        own, other = optimizer.state[p], written.state[q]
        for name, value in (("exp_avg", other["m"]), ("exp_avg_sq", other["v"])):
            torch.testing.assert_close(
                own[name], value.to(own[name].dtype), rtol=tolerance, atol=tolerance
            )
        if other["norm"] is not None:
            norm = other["norm"].reshape(1, 1).to(own["scaled_grad"].dtype)
            torch.testing.assert_close(own["scaled_grad"], norm, rtol=tolerance, atol=0.0)
        assert ("scaled_grad" in own) == (other["norm"] is not None)
    return optimizer, ours


@pytest.mark.parametrize(
    ("scale_type", "proj", "rank"),
    [("channel", "random", 3), ("channel", "random", 100), ("tensor", "random", 1),
     ("channel", "svd", 3), ("tensor", "svd", 100)],
)  # fmt: skip
def test_as_the_formulas(scale_type, proj, rank):
    run(group={"rank": rank, "proj": proj, "scale_type": scale_type})


@pytest.mark.parametrize("proj_type", ["reverse_std", "right", "left"])
def test_of_other_sides(proj_type):
    run(group={"proj_type": proj_type, "scale_type": "tensor"})


@pytest.mark.parametrize(
    "more",
    [
        {"scale_front": True},
        {"disable_nl": True, "projection_seed": 7.5},
        {"weight_decay": 0.3, "correct_bias": False},
    ],
    ids=str,
)
def test_arguments(more):
    run(**more)


def test_in_single_precision():
    run(dtype=torch.float32, tolerance=2e-4, steps=20)


def projections(seed=0.0, shapes=((40, 30), (40, 30), (30, 40)), steps=1, gap=2, rank=20):
    params = make_params(shapes, torch.float32)
    optimizer = APOLLOAdamW(
        [{"params": params, "rank": rank, "update_proj_gap": gap}], projection_seed=seed
    )
    for step in range(steps):
        set_grads(params, seed=step)
        optimizer.step()
    return [optimizer.state[p]["projection"] * math.sqrt(rank) for p in params]


def test_projections_are_random_numbers_of_their_own():
    """Of each parameter, refresh and seed; the same again, whatever torch's generator does."""
    first = projections()
    torch.manual_seed(5)
    assert all(bits_equal(a, b) for a, b in zip(first, projections(), strict=True))
    assert all(bits_equal(a, b) for a, b in zip(first, projections(steps=2), strict=True))
    for others in ([first[1], *first[:1]], projections(steps=3), projections(seed=1.0)):
        for own, other in zip(first, others, strict=False):
            joint = torch.corrcoef(torch.stack([own.ravel(), other.ravel()]))
            assert abs(joint[0, 1]) < 0.2
    for own in first:
        assert abs(own.mean()) < 0.2 and abs(own.std() - 1) < 0.15


def test_goes_on_in_the_middle_of_a_gap():
    """A checkpoint holds tensors and numbers alone, and training goes on to the bit."""
    shapes = [(12, 7), (7, 12), (5,)]
    ours = make_params(shapes, torch.float32)
    build = lambda params: APOLLOAdamW(groups_of(params[:2], params[2:]), lr=0.01)  # noqa: E731
    optimizer = build(ours)
    train((optimizer,), (ours,), 10)
    saved, later = copy.deepcopy(optimizer.state_dict()), clone_params(ours)
    again = build(later)
    again.load_state_dict(saved)
    for own in saved["state"].values():
        assert all(isinstance(value, torch.Tensor | int | float) for value in own.values())
    for step in range(10, 20):
        set_grads(ours, seed=step)
        set_grads(later, seed=step)
        optimizer.step()
        again.step()
    assert all(bits_equal(p, q) for p, q in zip(ours, later, strict=True))


MATRIX, TALL = {"rank": 2}, {"rank": 2, "shape": (9, 4)}
REFUSED = [
    ({"rank": 0}, "rank is 0, expected a whole number from 1 on"),
    ({**MATRIX, "update_proj_gap": 0}, "update_proj_gap is 0, expected a whole number from 1 on"),
    ({**MATRIX, "proj": "svds"}, "proj is 'svds', expected 'random' or 'svd'"),
    ({**MATRIX, "scale_type": "row"}, "scale_type is 'row', expected 'channel' or 'tensor'"),
    ({**MATRIX, "proj_type": "full"}, "proj_type is 'full', expected a projection of one side"),
    ({**MATRIX, "shape": (3,)}, "parameter 0 of a group with rank 2 has shape (3,): only matrices "
     "are projected, others are for a group without rank"),
    ({**TALL, "proj_type": "left"}, "parameter 0 has shape (9, 4) and proj_type 'left', which "
     "projects the longer side: a scale for each channel is of the shorter one, use proj_type "
     "'std' or scale_type 'tensor'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("group", "message"), REFUSED, ids=[message[:24] for _, message in REFUSED]
)
def test_refused(group, message):
    group = dict(group)
    param = torch.nn.Parameter(torch.ones(group.pop("shape", (4, 9))))
    with pytest.raises(ValueError) as caught:
        APOLLOAdamW([{"params": [param], **group}])
    assert str(caught.value) == message


@pytest.mark.parametrize(("more", "message"), [
    ({"lr": -1.0}, "Invalid learning rate: -1.0 - should be >= 0.0"),
    ({"betas": (1.0, 0.9)}, "Invalid beta parameter: 1.0 - should be in [0.0, 1.0)"),
    ({"eps": -1.0}, "Invalid epsilon value: -1.0 - should be >= 0.0"),
])  # fmt: skip
def test_refused_arguments(more, message):
    with pytest.raises(ValueError) as caught:
        APOLLOAdamW([torch.nn.Parameter(torch.ones(3))], **more)
    assert str(caught.value) == message


def test_projections_beside_stochastic_rounding():
    """Both are of the position: the same projection, and parameters that are rounded."""

    def run_16(**more):
        params = make_params([(12, 7), (5,)], torch.bfloat16)
        optimizer = APOLLOAdamW(groups_of(params[:1], params[1:]), **more)
        train((optimizer,), (params,), 3)
        return params, optimizer.state[params[0]]["projection"]

    (plain, basis), (rounded, same), (again, _) = (
        run_16(),
        *(run_16(rounding="stochastic") for _ in range(2)),
    )
    assert bits_equal(basis, same)
    assert all(bits_equal(p, q) for p, q in zip(rounded, again, strict=True))
    assert not bits_equal(plain[0], rounded[0])
