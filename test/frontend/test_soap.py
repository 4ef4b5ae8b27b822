# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SOAP beside its authors' formulas, with torch's decompositions, and beside another's code.

A sign of an eigenvector is free: of both it is made the one with which the largest component is
positive; of QR that with which R's diagonal is. Where a preconditioner is singular, as that of the
longer side in the first steps, its bases are free too, and what is done depends on them: the
formulas go on from ours there (``warm``).
"""

import copy
import math

import pytest
import stepc.torch
import torch
from common import Written, bits_equal, canonical, clone_params, make_params, set_grads, train
from stepc.torch import SOAP

pytestmark = pytest.mark.filterwarnings("ignore:stepc. SOAP has no bases")
SQUARE = [(9, 9), (1, 1), (2, 2), (17, 17), (33, 33), (5,), ()]
# Tall, wide; a row, a column; and what has no bases.
SHAPES = [(12, 7), (7, 12), (40, 3), (3, 40), (1, 6), (6, 1), (33, 65), (5,), ()]


class Formulas(Written):
    """The authors' soap.py, of parameters with two dims at most. ``group`` as theirs."""

    defaults = {
        "lr": 3e-3, "betas": (0.95, 0.95), "shampoo_beta": -1, "eps": 1e-8,
        "weight_decay": 0.01, "precondition_frequency": 10, "max_precond_dim": 10000,
        "normalize_grads": False, "correct_bias": True,
    }  # fmt: skip

    @staticmethod
    def project(x, bases, back=False):
        for dim, q in enumerate(bases):
            if q is not None:
                x = torch.tensordot(x, q, dims=[[dim], [1 if back else 0]]).movedim(-1, dim)
        return x

    def step_one(self, p, group, **state):
        g = p.grad.to(torch.promote_types(p.dtype, torch.float32))
        first = not state
        if first:
            state = self.begin(g, group)
        else:
            state["step"] += 1
            self.move(p, g, state, group)
        beta = group["shampoo_beta"] if group["shampoo_beta"] >= 0 else group["betas"][1]
        for dim, gram in enumerate(state["GG"]):
            if gram is not None:
                other = g if dim == 0 else g.mT
                gram.lerp_(other @ other.mT, 1 - beta)
        if first:
            state["Q"] = [
                gram if gram is None else canonical(torch.linalg.eigh(gram)[1].flip(1))
                for gram in state["GG"]
            ]
        elif state["step"] % group["precondition_frequency"] == 0:
            self.turn(state)
        return state

    def begin(self, g, group):
        sizes = g.shape if g.dim() == 2 else ()
        grams = [
            torch.zeros(n, n, dtype=g.dtype) if n <= group["max_precond_dim"] else None
            for n in sizes
        ]
        return {"step": 0, "m": torch.zeros_like(g), "v": torch.zeros_like(g), "GG": grams}

    def turn(self, state):
        m = self.project(state["m"], state["Q"], back=True)
        for dim, (gram, q) in enumerate(zip(state["GG"], state["Q"], strict=True)):
            if gram is None:
                continue
            order = torch.argsort(torch.diag(q.mT @ gram @ q), descending=True)
            state["v"] = state["v"].index_select(dim, order)
            basis, r = torch.linalg.qr(gram @ q[:, order])
            state["Q"][dim] = basis * torch.diag(r).sign()
        state["m"] = self.project(m, state["Q"])

    def move(self, p, g, state, group):
        beta1, beta2 = group["betas"]
        x = self.project(g, state["Q"])
        state["m"] = beta1 * state["m"] + (1 - beta1) * x
        state["v"] = beta2 * state["v"] + (1 - beta2) * x * x
        alpha = group["lr"]
        if group["correct_bias"]:
            t = state["step"]
            alpha = alpha * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        u = self.project(state["m"] / (state["v"].sqrt() + group["eps"]), state["Q"], back=True)
        if group["normalize_grads"]:
            u = u / (1e-30 + (u * u).mean().sqrt())
        new = p.to(g.dtype) - alpha * u
        p.copy_(new - group["lr"] * group["weight_decay"] * new)


def near(x, y, tolerance):
    torch.testing.assert_close(x.detach(), y.detach(), rtol=tolerance, atol=tolerance)


def states_of(optimizer, written, pair):
    """Pairs of ours and the written ones', by name."""
    own, other = optimizer.state[pair[0]], written.state[pair[1]]
    pairs = {"exp_avg": (own["exp_avg"], other["m"]), "exp_avg_sq": (own["exp_avg_sq"], other["v"])}
    for dim, gram in enumerate(other["GG"]):
        assert (f"Q_{dim}" in own) == (f"GG_{dim}" in own) == (gram is not None)
        if gram is not None:
            pairs[f"GG_{dim}"] = own[f"GG_{dim}"], gram
            pairs[f"Q_{dim}"] = own[f"Q_{dim}"], other["Q"][dim]
    return pairs


def go_on(written, optimizer, ours, theirs):
    """The formulas from where ours are."""
    for p, q in zip(ours, theirs, strict=True):
        own, dims = optimizer.state[p], range(p.dim())
        most = written.param_groups[0]["max_precond_dim"]
        for d in dims:
            assert (f"Q_{d}" in own) == (p.dim() == 2 and p.shape[d] <= most)
        written.state[q] = {
            "step": int(own["step"]) - 1, "m": own["exp_avg"].clone(),
            "v": own["exp_avg_sq"].clone(),
            **{
                name: [own[f"{name}_{d}"].clone() if f"{name}_{d}" in own else None for d in dims]
                for name in ("GG", "Q")
            },
        }  # fmt: skip
        with torch.no_grad():
            q.copy_(p)


def run(steps=30, dtype=torch.float64, shapes=SHAPES, tolerance=1e-8, warm=30, **more):
    """Steps of ours and of the formulas from the same gradients, behind ``warm`` of ours alone."""
    ours, theirs = make_params(shapes, dtype), make_params(shapes, dtype)
    more = {"lr": 0.01, "precondition_frequency": 7, **more}
    optimizer, written = SOAP(ours, **more), Formulas(theirs, **more)
    if warm:
        train((optimizer,), (ours,), warm)
        go_on(written, optimizer, ours, theirs)
    train((optimizer, written), (ours, theirs), steps, first=warm)
    for pair in zip(ours, theirs, strict=True):
        near(*pair, tolerance)
        for name, (own, other) in states_of(optimizer, written, pair).items():
            assert own.shape == other.shape, name
            near(own, other.to(own.dtype), tolerance)
    return optimizer, ours


def test_as_the_formulas():
    run()


@pytest.mark.parametrize("frequency", [1, 2, 29, 100])
def test_from_the_first_step(frequency):
    run(shapes=SQUARE, warm=0, precondition_frequency=frequency)


@pytest.mark.parametrize("shape", [(12, 7), (7, 12)])
def test_from_the_first_step_on_one_side(shape):
    """On the shorter one, whose preconditioner is not singular."""
    optimizer, (param,) = run(shapes=[shape], max_precond_dim=7, warm=0)
    assert len([name for name in optimizer.state[param] if name[0] == "Q"]) == 1


@pytest.mark.parametrize("frequency", [1, 2, 44])
def test_frequencies(frequency):
    run(precondition_frequency=frequency)


@pytest.mark.parametrize("most", [2, 8, 12, 1])
def test_dims_that_have_no_basis(most):
    optimizer, ours = run(max_precond_dim=most)
    have = {name for p in ours for name in optimizer.state[p]}
    assert ("Q_0" in have) and ("Q_1" in have)


@pytest.mark.parametrize(
    "more",
    [
        {"betas": (0.9, 0.99), "shampoo_beta": 0.8},
        {"shampoo_beta": 0.0, "shapes": SQUARE, "warm": 0},
        {"correct_bias": False},
        {"normalize_grads": True},
        {"weight_decay": 0.0, "eps": 1e-3},
        {"betas": (0.0, 0.9)},
    ],
    ids=str,
)
def test_settings(more):
    run(**more)


def test_float32():
    """A rounding, 6e-8, over the gaps of eigenvalues, some hundredths of the largest one."""
    run(dtype=torch.float32, shapes=[(12, 7), (7, 12), (5,)], steps=12, tolerance=3e-5)


def test_the_first_step_makes_the_bases_alone():
    params = make_params([(6, 4), (5,)], torch.float32)
    before = clone_params(params)
    optimizer = SOAP(params)
    set_grads(params, seed=0)
    optimizer.step()
    assert bits_equal(params, before)
    state = optimizer.state[params[0]]
    assert not state["exp_avg"].any() and not state["exp_avg_sq"].any()
    for name, size in (("Q_0", 6), ("Q_1", 4)):
        q = state[name]
        near(q.mT @ q, torch.eye(size), 1e-5)
    set_grads(params, seed=1)
    optimizer.step()
    assert not any(p.equal(q) for p, q in zip(params, before, strict=True))


@pytest.mark.parametrize("most", [100, 10])
def test_resumed_between_turns(most):
    """To the bit, in a step before one that turns the bases and in others."""
    shapes, more = [(12, 7), (7, 12), (5,)], {"precondition_frequency": 3, "max_precond_dim": most}
    ours = make_params(shapes, torch.float32)
    optimizer = SOAP(ours, **more)
    for step in range(8):
        saved = copy.deepcopy(optimizer.state_dict())
        others = clone_params(ours)
        resumed = SOAP(others, **more)
        resumed.load_state_dict(saved)
        set_grads(ours, others, seed=step)
        optimizer.step()
        resumed.step()
        assert bits_equal(ours, others), step


def authors_state(written):
    """What the authors' code saves of the formulas' state."""
    own = written.state
    return {
        number: {
            "step": own[p]["step"], "exp_avg": own[p]["m"], "exp_avg_sq": own[p]["v"],
            "GG": [[] if m is None else m for m in own[p]["GG"]] or [[]],
            "Q": [[] if m is None else m for m in own[p]["Q"]] or [[]],
            "precondition_frequency": 3, "shampoo_beta": 0.95,
        }
        for number, p in enumerate(own)
    }  # fmt: skip


@pytest.mark.parametrize("steps", [1, 2, 12])
def test_a_checkpoint_of_the_authors(steps):
    shapes, more = [(9, 9), (12, 7), (5,)], {"precondition_frequency": 3, "max_precond_dim": 9}
    theirs = make_params(shapes, torch.float64)
    written = Formulas(theirs, **more)
    train((written,), (theirs,), steps)
    ours = clone_params(theirs)
    optimizer = SOAP(ours, **more)
    packed = {**optimizer.state_dict(), "state": authors_state(written)}
    optimizer.load_state_dict(packed)
    train((optimizer, written), (ours, theirs), 8, first=steps)
    for p, q in zip(ours, theirs, strict=True):
        near(p, q, 1e-8)


def test_a_checkpoint_of_pytorch_optimizer_is_refused():
    ours = make_params([(3, 3)], torch.float32)
    optimizer = SOAP(ours)
    state = {0: {"exp_avg": torch.ones(3, 3), "GG": [], "Q": None}}
    with pytest.raises(ValueError, match="parameter 0 has 'GG' and no 'step'"):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def test_what_has_no_basis_any_more_begins_anew():
    """Averages with it: they would be in another basis."""
    ours = make_params([(9, 5), (5,)], torch.float32)
    optimizer = SOAP(ours, max_precond_dim=5)
    train((optimizer,), (ours,), 12)
    optimizer.param_groups[0]["max_precond_dim"] = 9
    before = ours[0].detach().clone()
    train((optimizer,), (ours,), 1, first=12)
    state = optimizer.state[ours[0]]
    assert "Q_0" in state and before.equal(ours[0].detach())
    assert not state["exp_avg"].any() and not state["exp_avg_sq"].any()
    train((optimizer,), (ours,), 1, first=13)
    assert ours[0].isfinite().all() and not before.equal(ours[0].detach())


def test_a_dim_keeps_its_basis():
    ours = make_params([(9, 5)], torch.float32)
    optimizer = SOAP(ours)
    train((optimizer,), (ours,), 3)
    before = copy.deepcopy(optimizer.state_dict())
    optimizer.param_groups[0]["max_precond_dim"] = 8
    set_grads(ours, seed=5)
    with pytest.raises(
        ValueError, match=r"max_precond_dim is 8, but parameter 0 of shape \(9, 5\)"
    ):
        optimizer.step()
    optimizer.param_groups[0]["max_precond_dim"] = 10000
    assert all(
        torch.equal(value, before["state"][0][name])
        for name, value in optimizer.state_dict()["state"][0].items()
    )


def test_a_count_that_was_set_back():
    """Averages of a first step are without weight."""
    ours = make_params([(9, 5), (5,)], torch.float32)
    optimizer = SOAP(ours)
    train((optimizer,), (ours,), 3)
    for param in ours:
        optimizer.state[param]["step"].zero_()
    train((optimizer,), (ours,), 2, first=3)
    assert all(param.isfinite().all() for param in ours)


@pytest.mark.parametrize("name", ["merge_dims", "precondition_1d"])
def test_what_is_told_later_is_refused(name):
    """A group has its blocks when it is added; so with what a loaded one says."""
    ours = make_params([(3, 3)], torch.float32)
    optimizer = SOAP(ours)
    train((optimizer,), (ours,), 1)
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.param_groups[0][name] = True
    with pytest.raises(ValueError, match="the group has view 'None', and its other keys ask for"):
        optimizer.step()
    saved["param_groups"][0][name] = True
    loaded = SOAP(make_params([(3, 3)], torch.float32))
    with pytest.raises(ValueError, match="the group has view 'None', and its other keys ask for"):
        loaded.load_state_dict(saved)
    assert loaded.param_groups[0][name] is False


def test_a_group_is_the_callers():
    """As torch's: what the caller changes in it later is meant."""
    group = {"params": (p for p in make_params([(3, 3)], torch.float32))}
    optimizer = SOAP([group])
    assert optimizer.param_groups[0] is group and len(group["params"]) == 1


def test_named_parameters_and_a_closure():
    params = make_params([(4, 3), (5,)], torch.float32)
    optimizer = SOAP(zip(("matrix", "vector"), params, strict=True), shampoo_beta=None)
    set_grads(params, seed=0)
    assert optimizer.step(lambda: 2.5) == 2.5
    kernel = torch.nn.Parameter(torch.ones(2, 2, 2))
    with pytest.raises(ValueError, match="parameter 'conv' has shape"):
        optimizer.add_param_group({"params": [("conv", kernel)]})


def test_beside_pytorch_optimizer():
    """Which keeps ``exp_avg`` as it is, not turned, and ends in the same place. Its averages
    begin in the second step, as the authors' do."""
    other = pytest.importorskip("pytorch_optimizer")
    shapes = [(5, 5), (9, 9), (17, 17), (30, 7), (7, 30)]
    ours, theirs = make_params(shapes, torch.float64), make_params(shapes, torch.float64)
    more = {"lr": 0.01, "weight_decay": 0.1, "precondition_frequency": 5}
    optimizer = SOAP(ours, max_precond_dim=17, **more)
    reference = other.SOAP(theirs, max_precondition_dim=17, **more)
    train((optimizer, reference), (ours, theirs), 30)
    for p, q in zip(ours, theirs, strict=True):
        near(p, q, 1e-4)  # its bases are float32


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ({"shampoo_beta": 1.0}, "Invalid shampoo_beta: 1.0"),
        ({"eps": -1e-8}, "Invalid epsilon value: -1e-08"),
        ({"weight_decay": -0.1}, "Invalid weight_decay value: -0.1"),
        ({"precondition_frequency": 0}, "precondition_frequency is 0, expected a whole"),
        ({"precondition_frequency": 2.5}, "precondition_frequency is 2.5, expected a whole"),
        ({"max_precond_dim": math.inf}, "max_precond_dim is inf, expected a whole"),
        ({"max_precond_dim": 2**63}, "max_precond_dim is 9223372036854775808, expected a whole"),
        ({"block_size": 0}, "block_size is 0, expected a whole"),
        ({"data_format": "channels_last"}, "data_format is 'channels_last', expected"),
    ],
    ids=str,
)
def test_refused(more, words):
    with pytest.raises(ValueError, match=words):
        SOAP(make_params([(3, 3)], torch.float32), **more)


def test_more_than_two_dims_are_refused():
    """Before anything is changed; a generator is not used up."""
    params = make_params([(3, 3)], torch.float32)
    optimizer = SOAP(params)
    kernel = torch.nn.Parameter(torch.ones(2, 3, 3))
    with pytest.raises(ValueError, match=r"parameter 1 has shape \(2, 3, 3\), expected at most"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2)), kernel]})
    assert len(optimizer.param_groups) == 1
    more = make_params([(2, 2), (4,)], torch.float32)
    optimizer.add_param_group({"params": (p for p in more)})
    assert len(optimizer.param_groups[1]["params"]) == 2
    assert isinstance(stepc.torch.SOAP(iter(more)), SOAP)


@pytest.mark.filterwarnings("error")
def test_what_has_no_basis_is_named():
    shapes = [(4, 3), (9, 3), (3,), (1, 9), (), (1, 4)]
    named = zip(("a", "b", "c", "d", "e", "f"), make_params(shapes, torch.float32), strict=True)
    with pytest.warns(RuntimeWarning, match="no bases") as caught:
        optimizer = SOAP(named, max_precond_dim=5)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert "parameters 'b' (9, 3), 'c' (3,), 'd' (1, 9) are" in str(caught[0].message)
    with pytest.warns(RuntimeWarning, match=r"parameters 'g' \(4,\) are stepped in that of"):
        more = zip(("g", "h"), make_params([(4,), ()], torch.float32), strict=True)
        optimizer.add_param_group({"params": list(more)})
    SOAP(make_params([(4, 4), (1, 1), ()], torch.float32))
