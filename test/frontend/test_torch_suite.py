# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch's tests of its optimizers on ours: constructors, errors, and steps beside
torch's loop over tensors, for every optimizer and every input of torch's table."""

import inspect

import pytest
import stepc.torch
import torch
from common import KEYWORDS, bits_equal, make_params, set_grads, train
from torch.testing._internal.common_optimizers import OptimizerErrorEnum
from torch_table import (
    ABSENT,
    APART,
    CASES,
    INFOS,
    NAMES,
    assert_agree,
    compiled_only,
    default_dtype,
    each_input,
    each_optimizer,
    ours,
    pair,
    theirs,
    torchs_own_step,
)

STEPS = 10

# --- The table ----------------------------------------------------------------


def test_every_optimizer_of_torch_is_here_or_named():
    of_torch = {
        name
        for name, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)
    }
    assert of_torch - {"Optimizer"} == set(INFOS) == set(NAMES) | set(ABSENT) | set(APART)
    assert len(NAMES) == 12 and len(CASES) >= 90
    assert not any(hasattr(stepc.torch, name) for name in ABSENT)


@each_optimizer
def test_constructor_is_torchs(name):
    mine, original = getattr(stepc.torch, name), getattr(torch.optim, name)
    parameters = list(inspect.signature(mine).parameters.values())
    expected = [
        (p.name, p.kind, p.default) for p in inspect.signature(original).parameters.values()
    ]
    assert [(p.name, p.kind, p.default) for p in parameters[: -len(KEYWORDS)]] == expected
    assert [(p.name, p.default) for p in parameters[-len(KEYWORDS) :]] == KEYWORDS
    assert mine.__name__ == name
    assert isinstance(mine(make_params([(2, 2)])), original)


def test_adamw_is_an_adam():
    assert issubclass(stepc.torch.AdamW, stepc.torch.Adam)
    assert isinstance(stepc.torch.AdamW(make_params([(2,)])), torch.optim.Adam)


def error_cases():
    for name in NAMES:
        for entry in INFOS[name].optim_error_inputs_func("cpu", torch.float32):
            yield pytest.param(name, entry, id=f"{name} {entry.optimizer_error_input.desc}")


@pytest.mark.filterwarnings("ignore:stepc")
@pytest.mark.parametrize(("name", "entry"), list(error_cases()))
def test_errors(name, entry):
    given = entry.optimizer_error_input
    params = make_params([(2, 3)]) if given.params is None else given.params
    make = getattr(stepc.torch, name)
    if entry.error_on is OptimizerErrorEnum.STEP_ERROR:
        optimizer = make(params, **given.kwargs)
        with pytest.raises(entry.error_type, match=entry.error_regex):
            optimizer.step()
    elif issubclass(entry.error_type, Warning):
        with pytest.warns(entry.error_type, match=entry.error_regex):
            make(params, **given.kwargs)
    else:
        with pytest.raises(entry.error_type, match=entry.error_regex):
            make(params, **given.kwargs)


# --- Steps --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@each_input
def test_steps(name, kwargs, dtype):
    """As torch's loop; no gradients in one step, and none for one parameter."""
    with default_dtype(dtype), compiled_only():
        left, right = pair(name, dtype, **kwargs)
        for step in range(STEPS):
            set_grads(left[0], right[0], seed=step)
            for params in (left[0], right[0]):
                for index, param in enumerate(params):
                    if step == 3 or (step in (0, 5) and index == 4):
                        param.grad = None
            for _, optimizer in (left, right):
                optimizer.step()
        print(f"{name} {kwargs} {dtype}: {assert_agree(left, right):.1f} ulp")


@pytest.mark.parametrize("lists", [False, True])
@each_optimizer
def test_foreach_makes_no_difference(name, lists):
    with compiled_only():
        left, right = pair(name)[0], pair(name, foreach=lists)[0]
        train((left[1], right[1]), (left[0], right[0]), 3)
    assert bits_equal(left[0], right[0])


@pytest.mark.parametrize("name", [n for n in NAMES if INFOS[n].supports_fused_on])
def test_fused_makes_no_difference(name):
    with compiled_only():
        left, right = pair(name)[0], pair(name, fused=True)[0]
        train((left[1], right[1]), (left[0], right[0]), 3)
    assert bits_equal(left[0], right[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@each_optimizer
def test_mixed_dtypes_in_one_group(name, dtype):
    """Compiled with bfloat16 or float16 among them."""
    params = [*make_params([(3,), (4, 2)]), *make_params([(5, 2)], torch.float64, seed=1)]
    left, right = pair(name, params=[*params, *make_params([(6, 2)], dtype, seed=2)])
    with compiled_only():
        train((left[1], right[1]), (left[0], right[0]), 5)
    for mine, other in zip(left[0][:2], right[0][:2], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    # float32 scalars of NAdam and ASGD in torch: 1e-7 of a step.
    torch.testing.assert_close(left[0][2], right[0][2], rtol=1e-6, atol=1e-7)
    # torch rounds states to the dtype, too: within a few of its units.
    torch.testing.assert_close(left[0][3], right[0][3], rtol=0.05, atol=0.05)
    floating = [s for s in left[1].state[left[0][3]].values() if s.is_floating_point()]
    assert all(s.dtype is torch.float32 for s in floating)


# --- What is left to torch's own step -----------------------------------------


@pytest.mark.filterwarnings("ignore:stepc")
@each_optimizer
def test_complex(name):
    params = [torch.nn.Parameter(torch.randn(3, 2, dtype=torch.complex64)) for _ in range(2)]
    left, right = pair(name, params=[*params, *make_params([(4, 2)])])
    for step in range(4):
        for p, q in zip(left[0], right[0], strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        if not INFOS[name].supports_complex:
            for _, optimizer in (left, right):
                with pytest.raises(RuntimeError, match=f"{name} does not support complex"):
                    optimizer.step()
            return
        if step == 0:
            with torchs_own_step():
                left[1].step()
        else:
            left[1].step()
        right[1].step()
    # torch's own step takes those that are complex, a compiled one the other.
    assert bits_equal(left[0][:2], right[0][:2])
    torch.testing.assert_close(left[0][2], right[0][2])


@pytest.mark.filterwarnings("ignore:stepc", "ignore:Sparse invariant checks")
@each_optimizer
def test_sparse_gradients(name):
    left, right = pair(name, params=make_params([(6, 2)]))
    for step in range(3):
        for p in (left[0][0], right[0][0]):
            torch.manual_seed(step)
            p.grad = torch.sparse_coo_tensor([[1, 4]], torch.randn(2, 2), p.shape)
        if INFOS[name].supports_sparse:
            left[1].step()
            right[1].step()
            continue
        messages = []
        for _, optimizer in (left, right):
            with pytest.raises(Exception) as caught:
                optimizer.step()
            messages.append((caught.type, str(caught.value)))
        assert messages[0] == messages[1]
    assert bits_equal(left[0], right[0])


@pytest.mark.parametrize("flag", ["differentiable", "fused", "maximize"])
@each_optimizer
def test_flags(name, flag):
    """``differentiable`` is torch's own step, to the bit; ``fused=False`` is any."""
    arguments = inspect.signature(getattr(torch.optim, name)).parameters
    if flag not in arguments:
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{flag}'"):
            ours(name, make_params([(2, 2)]), **{flag: True})
        return
    kwargs = {flag: flag != "fused"}
    left, right = pair(name, **kwargs)
    if flag != "differentiable":
        with compiled_only():
            train((left[1], right[1]), (left[0], right[0]), 5)
        assert_agree(left, right)
        return
    # torch's step would change a leaf that autograd follows.
    for param in (*left[0], *right[0]):
        param.requires_grad_(False)
    with torchs_own_step():
        set_grads(left[0], right[0])
        left[1].step()
    right[1].step()
    train((left[1], right[1]), (left[0], right[0]), 5)
    assert bits_equal(left[0], right[0])


@pytest.mark.filterwarnings("ignore:stepc")
@pytest.mark.parametrize(("name", "kwargs"), [("SGD", {"weight_decay": 0.1}), ("Adam", {})])
def test_autograd_through_steps(name, kwargs):
    """Of ``differentiable=True``: by gradients and first values, as through torch's and as
    differences say. Two steps, so that Adam's second differentiates by its states, too; SGD
    has no momentum here, whose first value torch detaches."""

    def stepped(make, start, grads):
        param = start.clone()
        optimizer = make(name, [param], lr=0.1, differentiable=True, **kwargs)
        for grad in grads.unbind():
            param.grad = grad.clone()
            optimizer.step()
        return param

    torch.manual_seed(0)
    start = torch.randn(5, dtype=torch.float64, requires_grad=True)
    grads = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    found = [
        torch.autograd.grad(stepped(make, start, grads).square().sum(), (start, grads))
        for make in (ours, theirs)
    ]
    assert bits_equal(*found) and all(bool(g.abs().min() > 0.0) for g in found[0])
    assert torch.autograd.gradcheck(lambda *args: stepped(ours, *args), (start, grads))


@each_optimizer
def test_capturable_is_refused_as_torch_refuses_it(name):
    if not INFOS[name].has_capturable_arg and name not in ("Adam", "AdamW"):
        assert "capturable" not in inspect.signature(getattr(stepc.torch, name)).parameters
        return
    left, right = pair(name, params=make_params([(3,)]), capturable=True)
    set_grads(left[0], right[0])
    with pytest.raises(AssertionError) as theirs:
        right[1].step()
    with torchs_own_step(), pytest.raises(AssertionError) as mine:
        left[1].step()
    assert str(mine.value) == str(theirs.value)


@pytest.mark.parametrize("found", [0.0, 1.0])
@pytest.mark.parametrize("name", [n for n in NAMES if INFOS[n].supports_fused_on])
def test_found_inf_and_grad_scale(name, found):
    """What a scaler of torch's sets for a fused step is for torch's fused step."""
    left, right = pair(name, params=make_params([(3,), (2, 4)]), fused=True)
    for _, optimizer in (left, right):
        optimizer.grad_scale = torch.tensor(4.0)
        optimizer.found_inf = torch.tensor(found)
    set_grads(left[0], right[0])
    before = [p.detach().clone() for p in left[0]]
    with torchs_own_step():
        left[1].step()
    right[1].step()
    assert bits_equal(left[0], right[0]) and bits_equal(left[0], before) == bool(found)
    for _, optimizer in (left, right):
        del optimizer.grad_scale, optimizer.found_inf
    with compiled_only():
        set_grads(left[0], right[0], seed=1)
        left[1].step()
    right[1].step()
    assert_agree(left, right)


def test_a_group_of_adamw_without_its_decay():
    """A key of a group that torch's step reads, and no constructor sets."""
    left, right = pair("AdamW", weight_decay=0.5)
    for _, optimizer in (left, right):
        optimizer.param_groups[0]["decoupled_weight_decay"] = False
    with torchs_own_step():
        set_grads(left[0], right[0])
        left[1].step()
    right[1].step()
    assert bits_equal(left[0], right[0])
