# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``static_grads=True``: a promise, its use, and what happens when it is broken."""

import pytest
import torch
from common import OURS, bits_equal, clone_params, make_params, set_grads
from stepc import errors


def fill_grads(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad.copy_(torch.randn(p.shape, generator=generator))


def promised(kind="adamw", shapes=((3,), (4, 5), (70,))):
    params = make_params(shapes)
    set_grads(params)
    return params, OURS[kind](params, lr=0.1, static_grads=True)


@pytest.mark.parametrize("kind", OURS)
def test_same_steps(kind):
    ours, a = promised(kind)
    twin = clone_params(ours)
    b = OURS[kind](twin, lr=0.1)
    set_grads(twin)
    for step in range(5):
        fill_grads(ours, step)
        fill_grads(twin, step)
        a.param_groups[0]["lr"] = b.param_groups[0]["lr"] = 0.1 / (step + 1)
        a.step()
        b.step()
    assert bits_equal(ours, twin)
    binding = a._binding
    a.step()
    assert a._binding is binding


def test_nothing_is_read_again(monkeypatch):
    params, optimizer = promised()
    optimizer.step()

    class Loud:
        def bump(self):
            return True

        def moved(self):  # of states; nothing is promised about them
            return False

        def waking(self):
            return []

    optimizer._binding._walk = Loud()  # refresh() would raise
    optimizer.step()
    assert optimizer.state[params[0]]["step"] == 2


def test_zero_grad_keeps_the_tensors():
    params, optimizer = promised()
    optimizer.step()
    held = [p.grad for p in params]
    optimizer.zero_grad()
    assert all(p.grad is g and not g.any() for p, g in zip(params, held, strict=True))
    loss = sum((p * p).sum() for p in params)
    loss.backward()
    assert all(p.grad is g for p, g in zip(params, held, strict=True))
    optimizer.step()


def test_version_counters_still_move():
    params, optimizer = promised()
    optimizer.step()
    loss = sum((p * p).sum() for p in params)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_broken_promise_is_noticed():
    """Within as many steps as there are tensors, and without a crash."""
    params, optimizer = promised()
    optimizer.step()
    set_grads(params, seed=1)
    with pytest.raises(errors.StaticGradientsError, match="parameter . of group 0 is another tens"):
        for _ in range(len(params)):
            optimizer.step()


def test_no_freed_memory_is_touched():
    """Gradients and parameters that were let go are kept until the next binding."""
    params, optimizer = promised(shapes=((100_000,), (3,)))
    optimizer.step()
    old = params[0].data.data_ptr(), params[0].grad.data_ptr()
    params[0].data = torch.zeros(100_000)
    params[0].grad = None
    _, _, grad, memory = optimizer._binding._held[0]
    assert (memory.data_ptr(), grad.data_ptr()) == old
    others = [torch.full((100_000,), 7.0) for _ in range(20)]
    assert not {t.data_ptr() for t in others} & set(old)
    with pytest.raises(errors.StaticGradientsError):
        for _ in range(2):
            optimizer.step()
    assert all(bool((t == 7.0).all()) for t in others)
    assert not params[0].any()


def test_changes_that_are_allowed():
    params, optimizer = promised()
    optimizer.step()
    optimizer.param_groups[0]["maximize"] = True
    optimizer.step()
    (other,) = make_params([(6,)])
    set_grads([other])
    optimizer.add_param_group({"params": [other]})
    optimizer.step()
    assert optimizer.state[params[0]]["step"] == 3 and optimizer.state[other]["step"] == 1


@pytest.mark.parametrize("kind", OURS)
def test_first_gradients_that_come_later(kind):
    """Bound at the step that finds them, also one after the other."""
    ours = make_params([(3,), (4, 5), (70,), (6,)])
    twin = clone_params(ours)
    a = OURS[kind](ours, lr=0.1, static_grads=True)
    b = OURS[kind](twin, lr=0.1)
    for last in (1, 1, 2, 4, 4):
        for p, q in zip(ours[:last], twin[:last], strict=True):
            q.grad = torch.full_like(q, 0.5)
            if p.grad is None:
                p.grad = q.grad.clone()
        a.step()
        b.step()
    assert bits_equal(ours, twin)
    assert len(a._binding._held) == 4
