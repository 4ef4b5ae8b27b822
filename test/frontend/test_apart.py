# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that torch's own step takes, beside the compiled step of all others."""

import copy
import warnings

import pytest
import stepc.torch
import torch
from common import bits_equal, make_params, set_grads

SHAPES = [(30, 5), (7,), (4, 4)]


def quiet_step(optimizer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer.step()


def sparse(shape, seed):
    torch.manual_seed(seed)
    return torch.sparse_coo_tensor([[1, 4]], torch.randn(2, *shape[1:]), shape)


def with_embedding(kind, *, first=False, **kwargs):
    """Three dense parameters and one whose gradients are sparse."""
    params = make_params(SHAPES)
    (table,) = make_params([(6, 2)])
    mixed = [table, *params] if first else [*params, table]
    return params, table, kind.SGD(mixed, lr=0.1, **kwargs)


@pytest.mark.parametrize("first", [False, True])
def test_a_sparse_gradient(first):
    """The others are compiled: as if there were no such parameter, to the bit."""
    params, table, ours = with_embedding(stepc.torch, first=first)
    _, other_table, theirs = with_embedding(torch.optim, first=first)
    twin = make_params(SHAPES)
    alone = stepc.torch.SGD(twin, lr=0.1)
    for step in range(4):
        set_grads(params, twin, seed=step)
        table.grad, other_table.grad = sparse((6, 2), step), sparse((6, 2), step)
        for optimizer in (ours, alone, theirs):
            quiet_step(optimizer)
        assert table.grad.is_sparse and all(p.grad is not None for p in params)
        assert ours._binding.plan.info().numTensors == 3
    assert ours._binding.plan.info().steps == 4  # of one binding
    assert bits_equal(params, twin) and bits_equal([table], [other_table])
    name = "parameter 0 of group 0" if first else "parameter 3 of group 0"
    assert stepc.torch.info(ours).apart == (name,) and stepc.torch.info(ours).eager is None
    assert f"torch's own step takes {name}" in str(ours)


def test_one_warning():
    params, table, optimizer = with_embedding(stepc.torch)
    with pytest.warns(RuntimeWarning) as caught:
        for step in range(3):
            set_grads(params, seed=step)
            table.grad = sparse((6, 2), step)
            optimizer.step()
    words = [str(w.message) for w in caught if "torch's own step" in str(w.message)]
    assert len(words) == 1 and "for 1 parameter: parameter 3 of group 0 has a gradient" in words[0]


def test_in_turns():
    """Dense, sparse, dense: each step by whom it can be."""
    params, table, ours = with_embedding(stepc.torch)
    others, other_table, theirs = with_embedding(torch.optim)
    for step in range(6):
        set_grads(params, others, seed=step)
        gradient = sparse((6, 2), step)
        gradient = gradient if step % 3 == 1 else gradient.to_dense()
        table.grad, other_table.grad = gradient, gradient.clone()
        quiet_step(ours)
        theirs.step()
        assert ours._binding is not None
    torch.testing.assert_close(params, others)
    torch.testing.assert_close(table, other_table)


@pytest.mark.parametrize("kind", ["AdamW", "Adagrad", "SGD"])
def test_complex_parameters(kind):
    def make(library):
        torch.manual_seed(3)
        wave = torch.nn.Parameter(torch.randn(5, dtype=torch.complex64))
        params = make_params(SHAPES)
        groups = [{"params": params[:1]}, {"params": [wave, *params[1:]], "lr": 0.05}]
        return params, wave, getattr(library, kind)(groups, lr=0.1)

    params, wave, ours = make(stepc.torch)
    others, other_wave, theirs = make(torch.optim)
    for step in range(3):
        set_grads(params, others, seed=step)
        wave.grad = torch.randn(5, dtype=torch.complex64)
        other_wave.grad = wave.grad.clone()
        quiet_step(ours)
        theirs.step()
        assert ours._binding.plan.info().numTensors == 3
    torch.testing.assert_close(params, others)
    assert wave.equal(other_wave)
    assert len(ours.state) == len(theirs.state)


def test_states_of_narrow_parameters_stay():
    """torch's step of one parameter leaves the f32 states of the others alone."""
    params = make_params(SHAPES, dtype=torch.bfloat16)
    twin = make_params(SHAPES, dtype=torch.bfloat16)
    wave = torch.nn.Parameter(torch.randn(5, dtype=torch.complex64))
    a, b = stepc.torch.AdamW([*params, wave], lr=0.1), stepc.torch.AdamW(twin, lr=0.1)
    for step in range(3):
        set_grads(params, twin, seed=step)
        wave.grad = torch.randn_like(wave)
        quiet_step(a)
        b.step()
    assert bits_equal(params, twin)
    for name in ("exp_avg", "exp_avg_sq"):
        ours = [a.state[p][name] for p in params]
        assert bits_equal(ours, [b.state[p][name] for p in twin])
        assert all(value.dtype is torch.float32 for value in ours)


def test_what_torch_refuses_changes_nothing():
    params = make_params(SHAPES)
    (table,) = make_params([(6, 2)])
    optimizer = stepc.torch.AdamW([*params, table], lr=0.1)
    for first in (True, False):
        set_grads(params)
        table.grad = sparse((6, 2), 0)
        before = [p.detach().clone() for p in (*params, table)]
        with pytest.raises(RuntimeError, match="does not support sparse gradients"):
            quiet_step(optimizer)
        assert bits_equal([*params, table], before) and bool(optimizer.state) is not first
        table.grad = table.grad.to_dense()
        optimizer.step()
        assert not bits_equal([*params, table], before)


def test_what_torch_cannot_do_is_refused():
    """Clipping spans all gradients."""
    params, table, optimizer = with_embedding(stepc.torch, clip=stepc.torch.ClipByNorm(1.0))
    set_grads(params)
    table.grad = sparse((6, 2), 0)
    before = [p.detach().clone() for p in params]
    with pytest.raises(stepc.StepcError, match="does not do what was asked for: ClipByNorm"):
        optimizer.step()
    assert bits_equal(params, before) and all(p.grad is not None for p in (*params, table))


def test_copies_find_theirs():
    params, table, optimizer = with_embedding(stepc.torch)
    set_grads(params)
    table.grad = sparse((6, 2), 0)
    quiet_step(optimizer)
    # Sparse tensors with a gradient cannot be copied by deepcopy in every release.
    table.grad = None
    again = copy.deepcopy(optimizer)
    (group,) = again.param_groups
    for p in group["params"][:-1]:
        p.grad = torch.ones_like(p)
    group["params"][-1].grad = sparse((6, 2), 1)
    before = [p.detach().clone() for p in group["params"]]
    quiet_step(again)
    assert not any(p.equal(q) for p, q in zip(group["params"], before, strict=True))
    assert again._binding.plan.info().numTensors == 3
