# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views by which a parameter is stepped as several tensors: experts, heads, and query, key and
value where rules take one matrix; parts of several sizes everywhere. Beside parameters of their
own, to the bit. test/distributed/view_blocks_cases.py has ranks, test_view_blocks_states.py
states."""

import pickle
import weakref

import numpy
import pytest
import stepc.torch as st
import torch
from common import ZOO, bits_equal, make_params, set_grads
from stepc import errors
from stepc.torch import moonlight, muon
from stepc.torch.tensors import patterns
from viewed_blocks import (
    CASES,
    EXPERTS,
    GROUPED,
    HEADS,
    KINDS,
    QKV,
    alike,
    groups_of,
    made_of,
    optimizers_of,
    pieces,
    stepped,
)

pytestmark = pytest.mark.filterwarnings("ignore:stepc. S.* has no (bases|factors) of vectors")


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_as_parameters_of_their_own(kind):
    params, blocks = made_of(CASES)
    optimizer, alone = optimizers_of(kind, params, blocks, CASES)
    where = [p.data_ptr() for p in params]
    for step in range(5):
        versions = [p._version for p in params]
        stepped(optimizer, alone, params, blocks, CASES, step)
        assert all(p._version > v for p, v in zip(params, versions, strict=True))
    alike(optimizer, alone, params, blocks, CASES)
    assert where == [p.data_ptr() for p in params]


@pytest.mark.parametrize("name", ["soap", "dion", "galore_adafactor"])
def test_a_definition_by_its_file(name):
    """Steps each matrix by itself where its rule for one has two dims; what has a batch stays one
    tensor."""
    more = {"rank": 2} if name != "soap" else {"precondition_frequency": 2}
    params, blocks = made_of(CASES)
    optimizer = st.Optimizer(groups_of(params, CASES), ZOO / f"{name}.mlir", **more)
    alone = st.Optimizer([{"params": own} for own in blocks], ZOO / f"{name}.mlir", **more)
    for step in range(3):
        stepped(optimizer, alone, params, blocks, CASES, step)
    alike(optimizer, alone, params, blocks, CASES)
    for own in ({"low_rank": False}, {}) if name == "galore_adafactor" else ():
        again = st.Optimizer(groups_of(params, CASES), ZOO / f"{name}.mlir", **own)
        assert again._steps_one_by_one(again.param_groups[0]) == (not own)


def moonshots(groups):
    optimizer = moonlight.Muon(muon_params=make_params([(2, 2)]))
    for group in groups:
        optimizer.add_param_group(group)
    return optimizer


# Whether rules take a batch of matrices, each as if it were alone, or look at the whole.
OTHERS = {
    "Muon": (st.Muon, True),
    "GramMuon": (st.GramMuon, True),
    "NorMuon": (st.NorMuon, True),
    "Jordan's": (muon.SingleDeviceMuon, True),
    "Moonshot's": (moonshots, True),
    "Adafactor": (lambda groups: st.hf.Adafactor(groups, lr=0.01, relative_step=False), False),
    "AdamW": (st.AdamW, True),
    "LAMB": (st.apex.FusedLAMB, False),
    "a file": (lambda groups: st.Optimizer(groups, ZOO / "gram_muon.mlir"), True),
}


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name", OTHERS)
def test_parts_of_several_sizes(name):
    """Each with the norms and means of its own."""
    make, batched = OTHERS[name]
    numbers = ((15, 6), "(9 + 4 + 2) m -> 9 m + 4 m + 2 m", [(9, 6), (4, 6), (2, 6)])
    cases = (GROUPED, numbers, HEADS) if batched else (GROUPED, numbers)
    params, blocks = made_of(cases)
    optimizer, alone = make(groups_of(params, cases)), make([{"params": b} for b in blocks])
    for step in range(3):
        stepped(optimizer, alone, params, blocks, cases, step)
    alike(optimizer, alone, params, blocks, cases)


def test_what_a_step_has_beside():
    """Clipping by the norm, averages, masters, copies; a compilation ahead; pickled."""
    cases = (EXPERTS, GROUPED)
    more = {"clip": st.ClipByNorm(0.1), "average": st.EMA(0.5), "param_copy": torch.bfloat16}
    for kind, dtype, kept in (
        ("SOAP", torch.float32, {}),
        ("GaLore", torch.bfloat16, {"master": "f32"}),
        ("Dion", torch.bfloat16, {"master": "remainder", "state_dtype": torch.bfloat16}),
    ):
        params, blocks = made_of(cases, dtype)
        optimizer, alone = optimizers_of(kind, params, blocks, cases, **more, **kept)
        optimizer.precompile()
        for step in range(3):
            stepped(optimizer, alone, params, blocks, cases, step)
        alike(optimizer, alone, params, blocks, cases)
        assert optimizer.last_step.grad_norm == alone.last_step.grad_norm
        assert f"view '{GROUPED[1]}'" in optimizer.describe_layouts()
        copies, theirs = optimizer.parameter_copies(), iter(alone.parameter_copies())
        for copy, param, (*_, shapes) in zip(copies, params, cases, strict=True):
            assert copy.shape == param.shape
            assert bits_equal(pieces(copy, shapes), [next(theirs) for _ in shapes])
        with optimizer.averaged(), alone.averaged():
            for param, own, (*_, shapes) in zip(params, blocks, cases, strict=True):
                assert bits_equal(pieces(param, shapes), own)
        stepped(optimizer, alone, params, blocks, cases, 3)
        alike(optimizer, alone, params, blocks, cases)
        again = pickle.loads(pickle.dumps(optimizer))
        twins = [group["params"][0] for group in again.param_groups]
        for step in (4, 5):
            set_grads(params, twins, seed=step)
            optimizer.step()
            again.step()
        assert bits_equal(params, twins)


def test_within_the_backward_pass():
    params, blocks = made_of((EXPERTS, GROUPED))
    twins = [torch.nn.Parameter(p.detach().clone()) for p in params]
    kinds = [optimizers_of("SOAP", p, blocks, (EXPERTS, GROUPED), **more)[0]
             for p, more in ((params, {"fused_backward": True}), (twins, {}))]  # fmt: skip
    for _ in range(3):
        for own, optimizer in zip((params, twins), kinds, strict=True):
            optimizer.zero_grad()
            sum(p.square().sum() + p.sin().sum() for p in own).backward()
            optimizer.step()
    assert bits_equal(params, twins) and params[0].grad is None


def test_gradients_come_and_go():
    """First without one, then strided; and nothing else has the memory of the user's behind a
    step."""
    params, blocks = made_of((EXPERTS, HEADS))
    optimizer, alone = optimizers_of("GaLore", params, blocks, (EXPERTS, HEADS))
    for step in range(4):
        set_grads(params, seed=step)
        for param, own, (*_, shapes) in zip(params, blocks, (EXPERTS, HEADS), strict=True):
            for block, grad in zip(own, pieces(param.grad, shapes), strict=True):
                block.grad = grad
            param.grad = param.grad.mT.contiguous().mT
        for missing in ((0,), (), (1,), ())[step]:
            params[missing].grad = None
            for block in blocks[missing]:
                block.grad = None
        optimizer.step()
        alone.step()
    alike(optimizer, alone, params, blocks, (EXPERTS, HEADS))
    memory = [numpy.ones(tuple(p.shape), numpy.float32) for p in params]
    for param, own in zip(params, memory, strict=True):
        param.grad = torch.from_numpy(own)
    known = [weakref.ref(own) for own in memory]
    del memory, own
    optimizer.step()
    optimizer.zero_grad()
    assert all(own() is None for own in known)


def test_parameters_that_move_and_take_another_view():
    params, blocks = made_of((QKV,))
    optimizer, alone = optimizers_of("Dion", params, blocks, (QKV,))
    (param,) = params
    for step in range(4):
        if step == 2:
            param.data = param.detach().clone()
        if step == 3:
            optimizer.param_groups[0]["lr"] = alone.param_groups[0]["lr"] = 0.3
        stepped(optimizer, alone, params, blocks, (QKV,), step)
    alike(optimizer, alone, params, blocks, (QKV,))
    optimizer.param_groups[0]["view"] = "(4 n) m -> 4 n m"
    before = param.detach().clone()
    words = r"state 'Q' of parameter 0 of group 0 has shape \(3, 4, 3\), expected \(4, 3, 3\)"
    with pytest.raises(errors.TensorError, match=words):
        optimizer.step()
    assert bits_equal([param], [before])
    optimizer.param_groups[0]["view"] = QKV[1]
    stepped(optimizer, alone, params, blocks, (QKV,), 4)
    alike(optimizer, alone, params, blocks, (QKV,))


def test_no_experts():
    """As a rank may have them; and a part of nothing, which has states all the same."""
    cases = [((9, 4), "(9 + n) m -> 9 m + n m", [(9, 4), (0, 4)])]
    params, blocks = made_of(cases)
    optimizer, alone = optimizers_of("SOAP", params, blocks, cases)
    for step in range(3):
        stepped(optimizer, alone, params, blocks, cases, step)
    alike(optimizer, alone, params, blocks, cases)
    (empty,), (param,) = make_params([(0, 4, 3)]), make_params([(2, 4, 3)])
    optimizer = st.SOAP([{"params": [p], "view": "e n m -> e n m"} for p in (empty, param)])
    for step in range(3):
        set_grads([empty, param], seed=step)
        optimizer.step()
    again = st.SOAP([{"params": [p], "view": "e n m -> e n m"} for p in (empty, param)])
    again.load_state_dict(optimizer.state_dict())
    again.step()


def test_what_is_read_of_options_is_of_blocks():
    """Limits of dims, and what is said of those that are over them."""
    (param,) = make_params([GROUPED[0]])
    group = [{"params": [("w", param)], "view": GROUPED[1]}]
    words = r"parameters 'w' \(16, 7\) are stepped in that"
    with pytest.warns(RuntimeWarning, match=words):
        optimizer = st.SOAP(group, max_precond_dim=9)
    set_grads([param])
    optimizer.step()
    assert optimizer.state[param]["Q_0"].shape == (2, 4, 4)
    optimizer.param_groups[0]["max_precond_dim"] = 5
    with pytest.raises(ValueError, match=r"of shape \(24, 7\) has state 'Q_1'"):
        optimizer.step()
    optimizer.param_groups[0]["max_precond_dim"] = 16
    words = r"of shape \(24, 7\) has state 'Q_0', which only some of its blocks have"
    with pytest.raises(ValueError, match=words):
        optimizer.step()
    optimizer.param_groups[0]["max_precond_dim"] = 9
    optimizer.step()
    with pytest.raises(ValueError, match=r"has shape \(4, 7\) and proj_type 'right', which proj"):
        st.APOLLOAdamW([group[0] | {"rank": 2, "proj_type": "right"}])


REFUSED = {
    "(2 n + n) m -> (2 n) m": "has a sum of 2 parts, and 1 views of them",
    "(2 n + n) m -> (2 n) m + n m + n m": "has a sum of 2 parts, and 3 views of them",
    "(n + ) m -> n m + n m": r"has a '\+' without a part before it or behind it",
    "(2 n + n) m -> (2 n) m + ": r"has a '\+' without a part before it or behind it",
    "(q + k) m -> q m + k m": "does not say how large 'q' and 'k' are: parts are numbers times one "
    "name, or numbers",
    "m (2 n + n) -> m (2 n) + m n": "has a sum that is not the first dim: parts of others lie "
    "apart",
    "(2 n + n) (m + 1) -> (2 n) m + n 1": "has a sum that is not the first dim",
    "n + m -> n m": r"has '\+', expected names, numbers and \( \)",
    "n m -> n + m": "has 2 views and no sum",
    "(2 n + n) m -> m (2 n) + n m": "changes the order of dims, which moves elements",
    "(2 n + n) m -> (2 n) k + n m": "has 'k', 'm' on one side alone",
    "(2 n + n) m -> 2 n m + n m": None,
    "(4 n + n) m -> (4 n) m + n m": r"does not fit the shape \(12, 5\): dim 0 is 12, expected a "
    "multiple of 5",
    "(7 + 4) m -> 7 m + 4 m": "dim 0 is 12, expected 11",
    "(7 + 2 n) m -> 7 m + (2 n) m": "dim 0 is 12, expected 7 and a multiple of 2",
    "(2 n + n) m k -> (2 n) (m k) + n (m k)": r"is of 3 dims, and the shape is \(12, 5\)",
}


@pytest.mark.parametrize("text", REFUSED)
def test_sums_that_are_refused(text):
    (param,) = make_params([(12, 5)])
    group = {"params": [("w", param)], "view": text}
    if REFUSED[text] is None:
        assert patterns.parse(text).shapes((12, 5)) == [(2, 4, 5), (4, 5)]
        st.NorMuon([group])
        return
    optimizer = st.AdamW([("v", *make_params([(2,)]))])
    for refused in (lambda: st.AdamW([group]), lambda: optimizer.add_param_group(group)):
        with pytest.raises(ValueError, match=REFUSED[text]):
            refused()
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("kind", "name", "more"),
    [(st.NAdam, "mu_product", {}), (st.ASGD, "eta", {"t0": 2.0, "lambd": 0.1, "lr": 0.1})],
)
def test_states_of_one_element(kind, name, more, fused):
    """All blocks have the same, of which the user has one: loaded, and written."""
    cases = (GROUPED, HEADS)
    params, blocks = made_of(cases)
    optimizer = kind(groups_of(params, cases), fused_backward=fused, **more)
    alone = kind([{"params": own} for own in blocks], **more)

    def step(number):
        set_grads(params, seed=number)
        grads = [param.grad.clone() for param in params]
        for grad, own, (*_, shapes) in zip(grads, blocks, cases, strict=True):
            for block, of_block in zip(own, pieces(grad, shapes), strict=True):
                block.grad = of_block
        if fused:
            optimizer.zero_grad()
            sum((p * g).sum() for p, g in zip(params, grads, strict=True)).backward()
        optimizer.step()
        alone.step()
        return grads

    for number in range(3):
        step(number)
    alike(optimizer, alone, params, blocks, cases)
    for param, own in zip(params, blocks, strict=True):
        optimizer.state[param][name].fill_(0.25)
        for block in own:
            alone.state[block][name].fill_(0.25)
    twins = [torch.nn.Parameter(param.detach().clone()) for param in params]
    again = kind(groups_of(twins, cases), **more)
    again.load_state_dict(optimizer.state_dict())
    for twin, grad in zip(twins, step(3), strict=True):
        twin.grad = grad
    again.step()
    alike(optimizer, alone, params, blocks, cases)
    assert bits_equal(params, twins)
    assert optimizer.state[params[0]][name].shape == ()


def test_what_cannot_be_stepped_by_blocks():
    """A part that is no matrix, in each class's words."""
    (param,) = make_params([GROUPED[0]])
    set_grads([param])
    line = "(4 n + n + n) m -> (4 n) m + n m + (n m)"
    for kind, words in {
        "Muon": r"size: torch.Size\(\[28\]\), as view",
        "NorMuon": r"has shape \(28,\), expected a matrix",
        "Dion": r"has shape \(28,\), expected a matrix",
    }.items():
        with pytest.raises(ValueError, match=words):
            getattr(st, kind)([{"params": [param], "view": line}])
    with pytest.raises(ValueError, match=r"has shape \(28,\): only matrices are projected"):
        st.GaLoreAdamW([{"params": [param], "view": line, "rank": 2}])
    with pytest.raises(ValueError, match=r"has shape \(3, 6, 4\), expected at most two dims"):
        st.SOAP(make_params([EXPERTS[0]]))
