# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several threads and one optimizer, or several."""

import copy
import pickle
import sys
import threading

import pytest
import stepc.torch
import torch
from common import bits_equal, clone_params, each_way, make_params, set_grads, train
from stepc import _trace, errors
from torch.multiprocessing.reductions import StorageWeakRef


def test_second_thread_is_refused():
    """While one steps; nothing is changed by the refusal."""
    ours = make_params([(3,), (4, 5)])
    twin = clone_params(ours)
    a, b = stepc.torch.AdamW(ours), stepc.torch.AdamW(twin)
    train((a, b), (ours, twin), 1)
    inside, leave, seen = threading.Event(), threading.Event(), []
    real = a._read_hypers

    def slow(group):
        inside.set()
        assert leave.wait(60)
        return real(group)

    a._read_hypers = slow
    set_grads(ours, twin, seed=1)
    first = threading.Thread(target=a.step)
    first.start()
    assert inside.wait(60)
    with pytest.raises(errors.BusyError, match="another thread is stepping this optimizer") as e:
        a.step()
    seen.append(e.value.status)
    leave.set()
    first.join()
    b.step()
    train((a, b), (ours, twin), 1, first=2)
    assert bits_equal(ours, twin) and seen == ["STEPC_BUSY"]


def test_an_error_lets_go():
    params = [torch.nn.Parameter(torch.ones(3, device="meta"))]
    optimizer = stepc.torch.Lion(params)
    params[0].grad = torch.ones(3, device="meta")
    for _ in range(2):
        with pytest.raises(errors.TensorError, match="device 'meta'"):
            optimizer.step()


@pytest.mark.parametrize("how", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_have_a_lock_of_their_own(how):
    params = make_params([(3,)])
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 1)
    again = how(optimizer)
    with optimizer._lock:
        set_grads(again.param_groups[0]["params"])
        again.step()


# --- Gradients that others drop -------------------------------------------------


class Dropper:
    """A thread that drops gradients when it is told to, and has their memory reused if it can."""

    def __init__(self, params):
        self.params, self.grads = params, [param.grad for param in params]
        self.places = [grad.data_ptr() for grad in self.grads]
        self.lost = []  # places of gradients whose memory was free
        self.now, self.done = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        assert self.now.wait(60)
        self.grads.clear()
        kept = []
        for param, place in zip(self.params, self.places, strict=True):
            shape = param.shape
            param.grad = None
            kept += [torch.full(shape, torch.nan) for _ in range(20)]
            self.lost += [place for junk in kept if junk.data_ptr() == place]
        self.done.set()

    def drop(self, name, begin):
        """Of a trace: before the first kernel."""
        self.now.set()
        assert self.done.wait(60)


@each_way
@pytest.mark.parametrize("at", [0, 2], ids=["first", "third"])
@pytest.mark.usefixtures("way")
def test_gradients_live_until_the_step_has_ended(at):
    shapes = [(300, 50), (7,), (64, 64)]
    ours, twin = make_params(shapes), make_params(shapes)
    a, b = stepc.torch.AdamW(ours, lr=0.1), stepc.torch.AdamW(twin, lr=0.1)
    train((a, b), (ours, twin), at)
    set_grads(ours, twin, seed=at)
    dropper = Dropper(ours)
    with _trace.told(dropper.drop):
        a.step()
    dropper.thread.join()
    b.step()
    assert set(a.state) == set(ours) and all("exp_avg" in state for state in a.state.values())
    assert dropper.lost == [] and all(param.grad is None for param in ours)
    assert bits_equal(ours, twin)


@each_way
@pytest.mark.usefixtures("way")
def test_nothing_is_held_after_the_step():
    """With another thread beside, which makes that gradients are held at all."""
    params = make_params([(300, 50), (7,)])
    optimizer = stepc.torch.AdamW(params)
    beside = threading.Event()
    thread = threading.Thread(target=beside.wait)
    thread.start()
    for step in range(3):
        set_grads(params, seed=step)
        optimizer.step()
        storages = [StorageWeakRef(param.grad.untyped_storage()) for param in params]
        for param in params:
            param.grad = None
        assert all(storage.expired() for storage in storages), step
    beside.set()
    thread.join()


@each_way
@pytest.mark.usefixtures("way")
def test_what_a_step_calls_may_drop_gradients(monkeypatch):
    """A trace, on the thread that steps, where it is the only one."""
    monkeypatch.setattr(sys, "_current_frames", lambda: {threading.get_ident(): None})
    shapes = [(300, 50), (7,), (64, 64)]
    ours, twin = make_params(shapes), make_params(shapes)
    a, b = stepc.torch.AdamW(ours, lr=0.1), stepc.torch.AdamW(twin, lr=0.1)
    train((a, b), (ours, twin), 1)
    set_grads(ours, twin, seed=1)
    storages = [StorageWeakRef(param.grad.untyped_storage()) for param in ours]
    alive = []

    def drop(name, begin):
        for param in ours:
            param.grad = None
        alive.extend(not storage.expired() for storage in storages)

    with _trace.told(drop):
        a.step()
    b.step()
    assert alive and all(alive) and all(storage.expired() for storage in storages)
    assert bits_equal(ours, twin)


@each_way
@pytest.mark.usefixtures("way")
def test_nothing_is_held_after_a_step_that_failed(monkeypatch):
    params = make_params([(300, 50), (7,)])
    optimizer = stepc.torch.AdamW(params)
    set_grads(params)
    optimizer.step()

    def fail():
        raise errors.DisagreementError("another rank has other gradients")

    with _trace.told(lambda name, begin: None):
        set_grads(params)
        monkeypatch.setattr(optimizer._binding.plan, "step", fail)
        with pytest.raises(errors.DisagreementError, match="other gradients"):
            optimizer.step()
        storages = [StorageWeakRef(param.grad.untyped_storage()) for param in params]
        for param in params:
            param.grad = None
        assert all(storage.expired() for storage in storages)
