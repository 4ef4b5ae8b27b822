# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several threads and one optimizer, or several."""

import copy
import pickle
import threading

import pytest
import stepc.torch
import torch
from common import bits_equal, clone_params, make_params, set_grads, train
from stepc import errors


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
