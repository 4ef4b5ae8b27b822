# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State tensors whose memory is replaced behind the optimizer's back."""

import pytest
import stepc.torch
import torch
from common import clone_params, distance, make_params, needs_table, set_grads, train
from stepc.torch.tensors import walk as _walk

SHAPES = [(3,), (200, 200), (2, 4), (130,)]
WAYS = ("direct", "static", "objects", "python")


def by_data(tensor):
    tensor.data = tensor.data.clone() * 2


def by_set(tensor):
    tensor.set_((tensor.clone() * 2).detach())


def by_part(tensor):
    """A place inside other memory."""
    memory = torch.zeros(2 * tensor.numel() + 5)
    part = memory[5 : 5 + tensor.numel()].view(tensor.shape)
    part.copy_(tensor)
    tensor.data = part


def by_sharing(tensor):
    tensor.share_memory_()


def by_resizing(tensor):
    """As libraries do that give memory back between steps."""
    copied = tensor.clone()
    storage = tensor.untyped_storage()
    size, base = storage.size(), tensor.storage_offset()
    kept = torch.empty(0, dtype=tensor.dtype).set_(storage).clone()
    storage.resize_(0)
    held = torch.empty(size, dtype=torch.uint8)  # so that the address differs
    storage.resize_(size)
    torch.empty(0, dtype=tensor.dtype).set_(storage).copy_(kept)
    assert tensor.equal(copied) and tensor.storage_offset() == base and held.numel()


CHANGES = {
    "data": by_data,
    "set_": by_set,
    "part": by_part,
    "share_memory_": by_sharing,
    "resize_": by_resizing,
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(_walk, "load_extension", lambda: None)
    elif request.param == "objects":
        monkeypatch.setattr(_walk, "direct_functions", lambda: _walk._NO_DIRECT)
    return request.param


@pytest.mark.parametrize("place", [0, 1], ids=["small", "large"])
@pytest.mark.parametrize("name", ["exp_avg", "step"])
@pytest.mark.parametrize("change", CHANGES)
def test_replaced_memory(change, name, place, way):
    """Steps go on in the new memory, the old is neither read nor written."""
    ours = make_params(SHAPES)
    theirs = clone_params(ours)
    a = stepc.torch.AdamW(ours, lr=0.1, static_grads=way == "static")
    b = torch.optim.AdamW(theirs, lr=0.1)
    set_grads(ours, theirs)
    for _ in range(2):
        a.step(), b.step()
    state = a.state[ours[place]][name]
    old = state.data  # keeps the old memory, and shares it
    before = old.clone()
    if change == "resize_" and not state.untyped_storage().resizable():
        # It is a part of a block, and says so; the block stays.
        with pytest.raises(RuntimeError, match="not resizable"):
            by_resizing(state)
        change = "data"
    with torch.no_grad():
        CHANGES[change](state)
        CHANGES[change](b.state[theirs[place]][name])
    place_now = state.data_ptr()
    for _ in range(3):
        a.step(), b.step()
    assert distance(ours, theirs) < 50
    assert a.state[ours[place]][name] is state and state.data_ptr() == place_now
    assert distance([state], [b.state[theirs[place]][name]]) < 50
    if change in ("data", "set_", "part"):
        assert old.equal(before)
    elif change == "share_memory_":
        assert state.is_shared()


def test_freed_memory_is_not_written():
    """What gets the memory that a state gave up stays as it is."""
    ours = make_params([(100_000,)])
    optimizer = stepc.torch.AdamW(ours)
    train((optimizer,), (ours,), 2)
    state = optimizer.state[ours[0]]["exp_avg"]
    state.share_memory_()
    others = [torch.full((100_000,), 7.0) for _ in range(20)]
    train((optimizer,), (ours,), 2)
    assert all(bool((other == 7.0).all()) for other in others)


def test_memory_that_stays_is_not_bound_anew():
    ours = make_params(SHAPES)
    optimizer = stepc.torch.AdamW(ours)
    train((optimizer,), (ours,), 1)
    binding = optimizer._binding
    for state in optimizer.state.values():
        state["exp_avg"].mul_(0.5)
        state["exp_avg"].data = state["exp_avg"].data  # the same memory
    train((optimizer,), (ours,), 3)
    assert optimizer._binding is binding


@needs_table
def test_memory_offsets_are_known():
    assert all(_walk.direct_functions()[-3:])
