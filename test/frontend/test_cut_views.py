# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views by which small dims are merged and long ones cut, beside parameters of their own to the
bit, and beside the formulas of Distributed Shampoo and of the authors' SOAP.
test/distributed/cut_blocks_cases.py has ranks."""

import copy
import itertools
import math
import warnings

import pytest
import stepc.torch as st
import torch
from common import bits_equal, make_params, set_grads, train
from stepc import errors
from stepc.torch.tensors import cutting
from test_shampoo import Formulas as Shampoo
from test_soap import Formulas as Soap
from test_soap import authors_state

pytestmark = pytest.mark.filterwarnings("ignore:stepc. S.* has no (bases|factors) of vectors")


def merged_by_meta(shape, most, dims):
    """merge_small_dims, by its docstring."""
    if dims == math.inf:
        return shape
    left = [n for n in shape if n != 1] or [1]
    at = len(left) - 1
    while at > 0 and len(left) > dims:
        if left[at - 1] * left[at] <= most:
            left[at - 1 : at + 1] = [left[at - 1] * left[at]]
        at -= 1
    return tuple(left)


def cut(tensor, side):
    """multi_dim_split: along the first dim, then along the next."""
    found = [tensor]
    for dim in range(tensor.dim()):
        found = list(itertools.chain.from_iterable(own.split(side, dim) for own in found))
    return found


def as_rows(tensor):
    return tensor if tensor.dim() != 1 else tensor[None]


def blocks_of(param, shape, side, value=None):
    """Copies of the blocks of a parameter, or of what has its elements."""
    value = param.detach() if value is None else value
    return [as_rows(own).clone() for own in cut(value.reshape(shape), side)]


KINDS = {
    "SOAP": (st.SOAP, {"precondition_frequency": 2}),
    "Shampoo": (st.Shampoo, {"grafting_type": "adam", "momentum": 0.5}),
    "Muon": (st.Muon, {"lr": 0.1}),
    "AdamW": (st.AdamW, {}),
    "Dion": (st.Dion, {"rank_fraction": 0.4}),
    "Adafactor": (st.hf.Adafactor, {"lr": 0.01, "relative_step": False}),
}
MASTERS = {"f32": {"master": "f32"}, "remainder": {"master": "remainder"}}


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_as_parameters_of_their_own(kind):
    """Of 2 x 2 and remainders, with all that a step has beside."""
    make, settings = KINDS[kind]
    more = {"clip": st.ClipByNorm(0.5), "average": st.EMA(0.5)}
    for dtype, kept in ((torch.float32, {}), (torch.bfloat16, MASTERS[("f32", "remainder")[
        kind in ("SOAP", "AdamW")]])):  # fmt: skip
        params = make_params([(10, 13), (5, 12), (14, 3)], dtype)
        own = [blocks_of(p, p.shape, 6) for p in params]
        alone = [[torch.nn.Parameter(b) for b in blocks] for blocks in own]
        groups = [{"params": [p], "view": "blocks(6)"} for p in params]
        optimizer = make(groups, **settings, **more, **kept)
        other = make([{"params": blocks} for blocks in alone], **settings, **more, **kept)
        for step in range(4):
            set_grads(params, seed=step)
            if step == 3:
                params[0].grad = params[0].grad.mT.contiguous().mT
            for param, blocks in zip(params, alone, strict=True):
                for block, grad in zip(
                    blocks, blocks_of(param, param.shape, 6, param.grad), strict=True
                ):
                    block.grad = grad
            optimizer.step()
            other.step()
        for param, blocks in zip(params, alone, strict=True):
            assert bits_equal(blocks_of(param, param.shape, 6), blocks)
            for name, state in optimizer.state[param].items():
                theirs = [other.state[b][name] for b in blocks if name in other.state[b]]
                if name == "step":
                    assert state == theirs[0]
                elif state.shape == param.shape and len(theirs) == len(blocks):
                    assert bits_equal(blocks_of(param, param.shape, 6, state), theirs), name
                else:
                    line = torch.cat([own.reshape(-1) for own in theirs])
                    assert bits_equal([state.reshape(-1)], [line]), name
        assert optimizer.last_step.grad_norm == other.last_step.grad_norm
        twins = [torch.nn.Parameter(p.detach().clone()) for p in params]
        again = make([{"params": [p], "view": "blocks(6)"} for p in twins], **settings, **more,
                     **kept)  # fmt: skip
        again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        set_grads(params, twins, seed=9)
        optimizer.step()
        again.step()
        assert bits_equal(params, twins)
        with optimizer.averaged(), again.averaged():
            assert bits_equal(params, twins)


SHAPES = [(10, 12), (6, 2, 3), (3, 4), (11,), (1, 9), (16, 2, 1, 4), ()]


@pytest.mark.parametrize(("dims", "most"), [(1, 8), (2, 12), (math.inf, 4), (1, math.inf)])
def test_shampoo_as_the_original_cuts(dims, most):
    """With a large epsilon, as what merges to a vector has a singular factor."""
    shapes = [s for s in SHAPES if len(merged_by_meta(s, most, dims)) < 3]
    more = {"grafting_type": "adam", "betas": (0.9, 0.99), "epsilon": 1e-3, "weight_decay": 0.1}
    more |= {"max_preconditioner_dim": most, "precondition_frequency": 2}
    ours = make_params(shapes, torch.float64)
    optimizer = st.Shampoo(ours, target_parameter_dimensionality=dims, **more)
    how = [(merged_by_meta(s, most, dims), 2**40 if most == math.inf else most) for s in shapes]
    blocks = [
        [torch.nn.Parameter(b) for b in blocks_of(p, *own)]
        for p, own in zip(ours, how, strict=True)
    ]
    written = Shampoo(list(itertools.chain.from_iterable(blocks)), **more)
    for step in range(9):
        set_grads(ours, seed=step)
        for param, own, of in zip(ours, how, blocks, strict=True):
            for block, grad in zip(of, blocks_of(param, *own, param.grad), strict=True):
                block.grad = grad
        optimizer.step()
        written.step()
    for param, own, of in zip(ours, how, blocks, strict=True):
        for got, expected in zip(blocks_of(param, *own), of, strict=True):
            torch.testing.assert_close(got, expected.detach(), rtol=1e-7, atol=1e-7)
        names = {name for name in optimizer.state[param] if name.startswith("factor")}
        assert bool(names) == (param.numel() > 1), (param.shape, names)


def merged_by_soap(shape, most):
    """merge_dims of the authors."""
    made = [1]
    for extent in shape:
        if made[-1] * extent <= most:
            made[-1] *= extent
        elif made[-1] == 1:
            made[-1:] = [extent, 1]
        else:
            made.append(extent)
    made = made[:-1] if made[-1] == 1 and len(made) > 1 else made
    return tuple(made)


@pytest.mark.parametrize("vectors", [False, True])
def test_soap_as_the_authors_merge(vectors):
    """And from a state of theirs, in which what is merged to one dim has one basis."""
    shapes, most = [(10, 12), (6, 2, 3), (3, 4), (11,), (13, 2)], 12
    seen = [s if len(s) < 2 else merged_by_soap(s, most) for s in shapes]
    assert seen == [(10, 12), (12, 3), (12,), (11,), (13, 2)]
    seen = [(1, *s) if s == (12,) or (s == (11,) and vectors) else s for s in seen]
    settings = {"precondition_frequency": 3, "max_precond_dim": most}
    more = {"merge_dims": True, "precondition_1d": vectors}
    ours = make_params(shapes, torch.float64)
    theirs = [torch.nn.Parameter(p.detach().reshape(s).clone())
              for p, s in zip(ours, seen, strict=True)]  # fmt: skip
    optimizer, written = st.SOAP(ours, **settings, **more), Soap(theirs, **settings)

    def step(number):
        set_grads(ours, seed=number)
        for p, q in zip(ours, theirs, strict=True):
            q.grad = p.grad.reshape(q.shape).clone()

    for number in range(15):  # of theirs alone, until no factor is singular
        step(number)
        written.step()
    packed = authors_state(written)
    for number, (p, q) in enumerate(zip(ours, theirs, strict=True)):
        p.data.copy_(q.detach().reshape(p.shape))
        own = packed[number]
        for name in ("exp_avg", "exp_avg_sq"):
            own[name] = own[name].reshape(p.shape)
        if seen[number][0] == 1:  # the authors have one dim
            own["GG"], own["Q"] = own["GG"][1:], own["Q"][1:]
    optimizer.load_state_dict({**optimizer.state_dict(), "state": packed})
    for number in range(15, 25):
        step(number)
        written.step()
        optimizer.step()
    for p, q, s in zip(ours, theirs, shapes, strict=True):
        torch.testing.assert_close(p.detach().reshape(q.shape), q.detach(), rtol=1e-7, atol=1e-7)
        state = optimizer.state[p]
        assert state["exp_avg"].shape == s and ("Q_1" in state) == (len(s) > 1 or vectors)


@pytest.mark.parametrize("shape, more, of_row", [
    ((13,), {"precondition_1d": True}, True),  # longer than max_precond_dim
    ((7, 1), {"merge_dims": True, "max_precond_dim": 7}, True),
    ((13,), {"merge_dims": True}, False),
    ((9,), {"precondition_1d": True}, True),
    ((), {"merge_dims": True}, False),  # a matrix of which they have
])  # fmt: skip
def test_a_row_of_the_authors_goes_on(shape, more, of_row):
    """What they have as one dim, with a basis or without, does not begin anew when it is loaded."""
    (param,) = make_params([shape], torch.float64)
    optimizer = st.SOAP([param], **{"max_precond_dim": 12, "precondition_frequency": 2, **more})
    train((optimizer,), ([param],), 5)
    other = torch.nn.Parameter(param.detach().clone())
    loaded = st.SOAP([other], **{"max_precond_dim": 12, "precondition_frequency": 2, **more})
    own = dict(optimizer.state[param])
    assert ("Q_0" in own) == of_row
    for name in ("GG", "Q"):
        own.pop(f"{name}_0", None)
        own[name] = [own.pop(f"{name}_1", [] if shape else torch.ones(1, 1).double())]
    own["step"] = own["step"] - 1
    loaded.load_state_dict({**optimizer.state_dict(), "state": {0: own}})
    train((optimizer, loaded), ([param], [other]), 4, first=5)
    assert bits_equal([param], [other])


def test_soap_in_blocks():
    """Merged first: each block has bases, and a root mean square, of its own."""
    more = {"max_precond_dim": 12, "merge_dims": True, "normalize_grads": True}
    (param,) = make_params([(8, 2, 2, 3)], torch.float32)
    with pytest.raises(ValueError, match=r"makes dims \(8, 4, 3\) of the shape \(8, 2, 2, 3\)"):
        st.SOAP([param], merge_dims=True, max_precond_dim=8)
    blocks = [torch.nn.Parameter(b) for b in blocks_of(param, (8, 12), 5)]
    optimizer = st.SOAP([param], block_size=5, **more)
    alone = st.SOAP(blocks, max_precond_dim=12, normalize_grads=True)
    assert optimizer.param_groups[0]["view"] == "merge_first(12), blocks(5)"
    for step in range(12):
        set_grads([param], seed=step)
        for block, grad in zip(blocks, blocks_of(param, (8, 12), 5, param.grad), strict=True):
            block.grad = grad
        optimizer.step()
        alone.step()
    assert bits_equal(blocks_of(param, (8, 12), 5), blocks)
    assert optimizer.state[param]["exp_avg"].shape == (8, 2, 2, 3)


def test_what_is_told_later():
    """A limit cannot be set anew where it has cut; nothing changes then."""
    for kind, more, key in (
        (st.SOAP, {"block_size": 5}, "block_size"),
        (st.SOAP, {"merge_dims": True, "max_precond_dim": 9}, "max_precond_dim"),
        (st.Shampoo, {"target_parameter_dimensionality": 2, "max_preconditioner_dim": 5},
         "max_preconditioner_dim"),
    ):  # fmt: skip
        (param,) = make_params([(7, 8)], torch.float32)
        optimizer = kind([param], **more)
        train((optimizer,), ([param],), 2)
        before = param.detach().clone()
        optimizer.param_groups[0][key] = 6
        with pytest.raises(ValueError, match="the group has view '.*', and its other keys ask"):
            optimizer.step()
        assert bits_equal([param], [before])
        optimizer.param_groups[0][key] = more[key]
        optimizer.step()
        with pytest.raises(ValueError, match="the group has view 'n m -> n m', and its other"):
            kind([{"params": [param], "view": "n m -> n m"}], **more)


def limits():
    """Of each class and view: from which limit to which, and what is said of it."""
    of_soap = st.SOAP, "max_precond_dim", "Q", {"precondition_frequency": 2}
    of_shampoo = st.Shampoo, "max_preconditioner_dim", "factor_matrix", {}
    total = "(2 n + n) m -> (2 n) m + n m"
    for kind, key, name, more in (of_soap, of_shampoo):
        for view, shape, dim in (("blocks(5)", (13, 4), 0), (total, (9, 4), 0)):
            yield kind, key, more, shape, view, (10, 4), f"has state '{name}_{dim}'"
            some = f"has state '{name}_{dim}', which only some of its blocks have"
            yield kind, key, more, shape, view, (4, 10), some


@pytest.mark.parametrize("kind, key, more, shape, view, limit, words", [*limits()])
def test_a_limit_of_some_blocks(kind, key, more, shape, view, limit, words):
    """By a limit that is set later no block may lose its matrices, and where some have them no
    other may get them: nothing has changed then, and steps go on."""
    first, then = limit
    (param,) = make_params([shape], torch.float32)
    optimizer = kind([{"params": [param], "view": view}], **more, **{key: first})
    train((optimizer,), ([param],), 4)
    before, states = param.detach().clone(), copy.deepcopy(optimizer.state_dict()["state"][0])
    optimizer.param_groups[0][key] = then
    set_grads([param], seed=5)
    with pytest.raises(ValueError, match=f"{key} is {then}, but parameter 0 of .*{words}"):
        optimizer.step()
    assert bits_equal([param], [before])
    now = optimizer.state_dict()["state"][0]
    assert all(bits_equal([now[name]], [value]) for name, value in states.items())
    optimizer.param_groups[0][key] = first
    optimizer.step()
    assert not bits_equal([param], [before])


def test_a_view_beside_keys_that_ask_for_one():
    """The error says which of them are to be set, and that works."""
    conv, mat, vector = make_params([(6, 4, 3, 3), (9, 7), (5,)], torch.float32)
    soap = {"block_size": 5, "precondition_1d": True}
    shampoo = {"target_parameter_dimensionality": 1, "max_preconditioner_dim": 5}
    own = {"params": [conv], "view": "merge_last(36, 2), blocks(5)"}
    for kind, more, off, words in (
        (st.SOAP, soap, {"block_size": None, "precondition_1d": False},
         "set precondition_1d to False and block_size to None beside a view of your own$"),
        (st.Shampoo, shampoo, {"target_parameter_dimensionality": None},
         "in this group set target_parameter_dimensionality to None beside a view of your own$"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            kind([dict(own), {"params": [mat, vector]}], **more)
        optimizer = kind([{**own, **off}, {"params": [mat, vector]}], **more)
        train((optimizer,), ([conv, mat, vector],), 2)
        assert [group["view"].count("blocks(5)") for group in optimizer.param_groups] == [1, 1]


def test_whole_numbers_that_are_floats():
    (param,) = make_params([(13, 4)], torch.float32)
    assert st.SOAP([param], block_size=8.0).param_groups[0]["view"] == "blocks(8)"
    limit = {"max_preconditioner_dim": 8.0, "target_parameter_dimensionality": 2}
    assert st.Shampoo([param], **limit).param_groups[0]["view"].endswith("blocks(8)")


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4), (0,), (5, 0)])
def test_no_elements_of_many_dims(shape):
    """Distributed Shampoo makes one dim of them."""
    params = make_params([shape, (3, 2)], torch.float32)
    optimizer = st.Shampoo(params, target_parameter_dimensionality=1, max_preconditioner_dim=3)
    train((optimizer,), (params,), 2)
    assert params[0].shape == shape and not params[0].numel()


def test_matrices_of_other_blocks_are_not_of_a_limit():
    """What is said of a view that was set later."""
    (param,) = make_params([(13, 4)], torch.float32)
    optimizer = st.SOAP([{"params": [param], "view": "blocks(5)"}], precondition_frequency=2)
    train((optimizer,), ([param],), 3)
    before = param.detach().clone()
    optimizer.param_groups[0]["view"] = "blocks(6)"
    with pytest.raises(errors.TensorError, match=r"state 'GG_0' of .* has shape \(59,\)"):
        optimizer.step()
    assert bits_equal([param], [before])


@pytest.mark.parametrize("kind, more, then", [
    (st.SOAP, {"merge_dims": True, "max_precond_dim": 8}, {"max_precond_dim": 12}),
    (st.Shampoo, {"target_parameter_dimensionality": 2, "max_preconditioner_dim": 4},
     {"max_preconditioner_dim": 64}),
])  # fmt: skip
def test_a_refused_group_is_as_it_was(kind, more, then):
    """It has no view of the keys that it was refused with, and can be given others."""
    first, more_dims = make_params([(3, 3), (8, 2, 2, 3)], torch.float32)
    optimizer = kind([first], **more)
    group = {"params": [more_dims]}
    with pytest.raises(ValueError, match="expected at most two"):
        optimizer.add_param_group(group)
    assert list(group) == ["params"] and len(optimizer.param_groups) == 1
    optimizer.add_param_group({**group, **then})
    assert len(optimizer.param_groups) == 2


REFUSED = {
    "blocks": r"has 'blocks', expected merge_first\(N\), merge_last\(N, D\), vectors and blocks",
    "blocks(0)": r"has 'blocks\(0\)', expected merge_first",
    "blocks(4, 2)": r"has 'blocks\(4, 2\)', expected merge_first",
    "blocks(4), vectors": "has 'vectors' where it cannot be, expected merge_first",
    "vectors, vectors": "has 'vectors' where it cannot be",
    "merge_last(4), n m": "has 'n m', expected merge_first",
    "merge_last(2, 3)": r"makes dims \(2, 3, 4\) of the shape \(2, 3, 4\), expected at most two",
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text):
    (param,) = make_params([(2, 3, 4)], torch.float32)
    with pytest.raises(ValueError, match=REFUSED[text]):
        st.AdamW([{"params": [param], "view": text}])


def test_codes_are_refused():
    (param,) = make_params([(64, 64)], torch.float32)
    optimizer = st.AdamW([{"params": [param], "view": "blocks(32)"}], state_dtype="q8")
    param.grad = torch.ones_like(param)
    before = param.detach().clone()
    with pytest.raises(Exception, match="whose blocks have strides, and state_dtype keeps states"):
        optimizer.step()
    assert bits_equal([param], [before])


def test_what_has_no_factor_is_not_said_of_blocks():
    named = [
        ("w", make_params([(7, 9)], torch.float32)[0]),
        ("b", torch.nn.Parameter(torch.ones(4))),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        st.Shampoo(named, max_preconditioner_dim=5, target_parameter_dimensionality=math.inf)
        st.SOAP(named, max_precond_dim=5, block_size=5, precondition_1d=True)
    with pytest.warns(RuntimeWarning, match=r"parameters 'w' \(7, 9\), 'b' \(4,\)"):
        st.Shampoo(named, max_preconditioner_dim=5)


def test_shapes_of_any_parameter():
    """The blocks have all elements, once, in row-major order of blocks."""
    for shape in [(), (0,), (0, 3), (1, 1), (7,), (5, 6), (4, 3, 2), (2, 2, 2, 2)]:
        for text in ("merge_last(64, 1), vectors, blocks(3)", "merge_first(64), blocks(3)"):
            view = cutting.parse(text)
            whole = torch.arange(math.prod(shape)).reshape(shape)
            found = view.cut(whole, shape)
            assert [tuple(own.shape) for own in found] == view.shapes(shape)
            seen = torch.cat([own.reshape(-1) for own in found]).sort()[0]
            assert torch.equal(seen, whole.reshape(-1))
            memory = whole.untyped_storage()._cdata
            assert all(own.untyped_storage()._cdata == memory for own in found)
