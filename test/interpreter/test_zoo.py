# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The zoo's definitions with reductions in the interpreter, beside the papers'
equations: ranks 0 to 4, odd extents, groups with hyper-parameters of their own."""

import copy
import itertools

import numpy as np
import pytest
from models import run_definition
from oracle import ZOO
from originals import make_groups, set_gradients
from papers import HYPERS, OF_MATRICES, OF_SQUARES, OPTIONS, PAPERS

SHAPES = [(), (5,), (1,), (3, 7), (9, 2), (1, 4), (2, 3, 5), (2, 2, 3, 5), (1, 67, 3)]
MATRICES = [(3, 7), (9, 2), (1, 4), (5, 5), (1, 1), (67, 3), (6, 1)]
SQUARES = [(3, 3), (9, 9), (1, 1), (5, 5), (2, 2), (7, 7), (4,)]
STEPS = 20
# Least of a storage, greatest difference of a parameter or state after the steps, of
# its largest element.
BOUNDS = {("f64", "f64", "f64"): 1e-12, ("f32", "f32", "f32"): 2e-4}
# Times that: of a singular factor small eigenvalues are roundings of large ones; and what
# another order of operations leaves.
AMPLIFIED = {"shampoo": 40, "gram_muon": 5}


# Whose bases are not known where a gradient is singular.
FREE = {
    "galore_adamw": "test_galore.py", "galore_adafactor": "test_galore.py", "soap": "test_soap.py",
    "dion": "test_dion.py",
}  # fmt: skip
# Of which roundings beside a huge element are roots of small eigenvalues.
ROUNDED = {"shampoo"}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def combinations(name):
    names = OPTIONS.get(name, [])
    for values in itertools.product([False, True], repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def run_paper(name, options, groups, spoil=lambda grads, step: None, steps=STEPS):
    """The groups after some steps, and the gradients of all."""
    groups, history, rng, memory = copy.deepcopy(groups), [], np.random.default_rng(3), {}
    for step in range(steps):
        set_gradients(groups, step, rng)
        grads = [[t.grad for t in group.tensors] for group in groups]
        spoil(grads, step)
        for group, own in zip(groups, grads, strict=True):
            for tensor, grad in zip(group.tensors, own, strict=True):
                tensor.grad = grad
        history.append(copy.deepcopy(grads))
        PAPERS[name](groups, options, memory)
    return groups, history, memory


def distance(actual, expected):
    """The largest difference, of the largest element; where one is not finite, both
    must be the same."""
    actual = np.broadcast_to(actual.astype("f8"), expected.shape)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    if not finite.any():
        return 0.0
    scale = np.abs(expected[finite]).max() or 1.0
    return float(np.abs(actual[finite] - expected[finite]).max() / scale)


def assert_close(run, groups, bound):
    for group, other in zip(run.groups, groups, strict=True):
        for actual, expected in zip(group.tensors, other.tensors, strict=True):
            assert distance(actual.param, np.asarray(expected.param)) < bound
            for name in expected.states:
                assert distance(actual.states[name], expected.states[name]) < bound, name


def compare(name, options, spoil=lambda grads, step: None, storages=("f64",) * 3, **settings):
    shapes = {**dict.fromkeys(OF_MATRICES, MATRICES), **dict.fromkeys(OF_SQUARES, SQUARES)}
    groups = make_groups(name, shapes=shapes.get(name, SHAPES))
    expected, history, memory = run_paper(name, options, groups, spoil)
    run = run_definition(
        [ZOO / f"{name}.mlir"], groups, options, history, storages=storages, **settings
    )
    assert_close(run, expected, BOUNDS[storages] * AMPLIFIED.get(name, 1))
    return run, memory


@pytest.mark.sample(one_of=2)
@pytest.mark.parametrize("name", PAPERS)
def test_every_option(name):
    for options in combinations(name):
        compare(name, options)


@pytest.mark.parametrize("name", PAPERS)
def test_f32(name):
    options = dict.fromkeys(OPTIONS.get(name, []), False)
    compare(name, options, storages=("f32", "f32", "f32"))


@pytest.mark.parametrize("name", PAPERS)
def test_f64_mode_of_f32_storage(name):
    options = dict.fromkeys(OPTIONS.get(name, []), False)
    compare(name, options, mode="f64")


def no_gradient(grads, step):
    for own in grads:
        own[:] = [np.zeros_like(g) for g in own]


def row_of_zeros(grads, step):
    for grad in itertools.chain(*grads):
        if grad.ndim > 1:
            grad[..., 0, :] = 0


def huge_element(grads, step):
    if step == 3:
        for grad in itertools.chain(*grads):
            grad[(0,) * grad.ndim] = 1e12


def not_a_number(grads, step):
    if step == 4:
        grads[0][3][1, 1] = np.nan


def missing(grads, step):
    """Tensors, and once all of a group, take no part."""
    if step % 3 == 1:
        grads[0][2] = grads[0][5] = None
    if step in (0, 5):
        grads[1][:] = [None] * len(grads[1])


@pytest.mark.parametrize(
    "spoil", [no_gradient, row_of_zeros, huge_element, not_a_number, missing],
    ids=lambda spoil: spoil.__name__,
)  # fmt: skip
@pytest.mark.parametrize("name", PAPERS)
def test_odd_gradients(name, spoil):
    if name in FREE and spoil in (no_gradient, row_of_zeros, huge_element):
        pytest.skip(f"vectors of one value are free: test/frontend/{FREE[name]}")
    if name in ROUNDED and spoil is huge_element:
        pytest.skip("small eigenvalues are roundings: test/frontend/test_shampoo.py")
    for options in list(combinations(name))[:: max(1, 2 ** len(OPTIONS.get(name, [])) - 1)]:
        compare(name, options, spoil)


def test_d_adaptation_finds_a_rate():
    run, memory = compare("dadapt_sgd", {})
    assert memory["d"] > 1e-4
    assert run.scalar("d")[-1] == pytest.approx(memory["d"], rel=1e-11)
    assert run.scalar("g0_norm")[-1] == pytest.approx(memory["c"], rel=1e-12)
    options = {"decouple": False, "use_bias_correction": True}
    run, memory = compare("dadapt_adam", options)
    for index in range(2):
        assert memory[index]["d"] > 1e-4
        assert run.scalar("d")[-1, index] == pytest.approx(memory[index]["d"], rel=1e-11)


def test_the_norm_of_fused_lamb_is_reported():
    options = dict.fromkeys(OPTIONS["fused_lamb"], True)
    run, memory = compare("fused_lamb", options)
    assert run.report("grad_norm")[-1] == pytest.approx(memory["grad_norm"], rel=1e-12)


@pytest.mark.parametrize("name", ["adafactor", "came", "adalomo"])
def test_rows_of_zeros_survive_in_f32(name):
    """Where transformers and came_pytorch have NaN: see test_originals.py."""
    param, grad = np.ones((2, 4), "f4"), np.array([[0.0] * 4, [1e8] * 4], "f4")
    [group, _] = make_groups(name, shapes=[(2, 4)], eps1=1e-30, eps2=1e-3)
    group.tensors[0].param = param
    run = run_definition(
        [ZOO / f"{name}.mlir"], [group], {}, [[[grad]]] * 3, storages=("f32", "f32", "f32")
    )
    assert np.isfinite(run.groups[0].tensors[0].param).all()


@pytest.mark.parametrize("name", PAPERS)
def test_every_hyper_parameter_matters(name):
    """Each of HYPERS, moved, moves the result: none is hidden by another."""
    matters = dict.fromkeys(HYPERS[name], False)
    for options, hyper in itertools.product(combinations(name), HYPERS[name]):
        if matters[hyper]:
            continue
        results = []
        for hypers in ({}, {hyper: HYPERS[name][hyper] * 0.95}):
            shapes = [(3, 7), (5, 1) if name in OF_MATRICES else (5,)]
            groups = make_groups(name, shapes=shapes, **hypers)
            groups, _, _ = run_paper(name, options, groups, steps=8)
            # Nothing reads ASGD's average but its user.
            tensors = [t for g in groups for t in g.tensors]
            results.append([t.states.get("ax", t.param).ravel() for t in tensors])
        one, other = map(np.concatenate, results)
        matters[hyper] = np.abs(one - other).max() > 1e-7
    assert all(matters.values()), matters
