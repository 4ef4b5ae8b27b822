# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``timeout=`` of an optimizer, on process groups whose own is a minute: a rank that is stopped,
or late by more, is named by the others when it is over, by what they exchange; the optimizer
then refuses to step until a state is loaded, and the groups have their own timeout again.
"""

import datetime
import types

import pytest
import stepc.torch as st
import torch
from killing import said_of, warm_up
from samples import sample
from stepc import errors
from stepc.torch.ranks import agreement as _agreement
from stepc.torch.ranks import exchanges as _exchanges

KINDS = ("local", "zero2", "partial", "dtensor", "redistributed", "owned", "norm")
MESHES = ("of two dims", "owned of two dims", "in tensor parallelism")


@pytest.fixture(scope="module", autouse=True)
def warm():
    warm_up(KINDS + MESHES)


def test_a_rank_that_is_stopped_is_named_after_the_timeout():
    """At a collective of a later step, and at the first, before which plans are compared; the
    check takes a third of the points."""
    points = [
        "local,9",
        "zero2,9",
        "partial,9",
        "dtensor,9",
        "redistributed,3",
        "owned,7",
        "norm,3",
        "local,0",
        "zero2,0",
    ]
    chosen = [f"{point},stopped,own" for point in sample(points, "timeout", 3)]
    assert said_of(chosen[::2]) == ""
    assert said_of(chosen[1::2], shared=False) == ""


def test_groups_of_a_mesh_have_it_too():
    """For which torch has 30 minutes; where no timeout is given, the default group's is theirs."""
    points = ["of two dims,9,stopped", "owned of two dims,3,stopped"]
    assert said_of([*points, "in tensor parallelism,9,stopped,own"]) == ""


def test_a_rank_that_is_late_says_it_too():
    assert said_of(["partial,5,late,own"], shared=False) == ""
    assert said_of(["zero2,7,late,own"]) == ""


def test_times_that_are_none_are_refused():
    params = [torch.nn.Parameter(torch.ones(2))]
    with pytest.raises(TypeError, match=r"timeout is 3, expected a datetime\.timedelta"):
        st.AdamW(params, timeout=3)
    with pytest.raises(ValueError, match="timeout is 0:00:00, expected a positive time"):
        st.AdamW(params, timeout=datetime.timedelta(0))


def test_a_backend_without_a_timeout_is_named():
    class Group:
        _device_types = [torch.device("cpu")]

        def _get_backend(self, device):
            return object()

    group, found = Group(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_exchanges.dist, "get_backend", lambda group: "ours")
        with (
            _exchanges.within(datetime.timedelta(seconds=1)),
            pytest.raises(errors.StepcError, match="backend 'ours' of a process group has none"),
            _exchanges.exchanging("nothing", group),
        ):
            found.append("came here")
    assert not found
    assert _exchanges.timeout_of(group) == datetime.timedelta(minutes=30)


def test_backends_of_devices_alone_keep_their_own():
    """As their calls are work on a stream: NCCL would end the process."""

    class Backend:
        def __init__(self):
            self.options, self.set = types.SimpleNamespace(_timeout=minute), []

        def _set_default_timeout(self, timeout):
            self.set.append(timeout)

    class Group:
        _device_types = [torch.device("cpu"), torch.device("cuda")]

        def __init__(self):
            self.of = {device.type: Backend() for device in self._device_types}

        def _get_backend(self, device):
            return self.of[device.type]

    minute, second = datetime.timedelta(minutes=1), datetime.timedelta(seconds=1)
    group = Group()
    with _exchanges.within(second), _exchanges.exchanging("nothing", group):
        assert _exchanges.timeout_of(group) == second
    assert group.of["cpu"].set == [second, minute]
    assert group.of["cuda"].set == []


def test_a_store_that_is_lost_is_not_a_deadline_that_is_over():
    """As where the process that keeps it has ended."""

    class Lost:
        def wait(self, keys, timeout=None):
            raise torch.distributed.DistNetworkError("Connection reset by peer")

        check = wait

    class Group:
        _device_types = ()

    with pytest.raises(errors.CommunicationError) as found:
        _agreement._read(Lost(), {"place": 3}, Group())
    assert "the store of the process group failed after 0.0 s, while rank 3" in str(found.value)
    assert "Connection reset by peer" in str(found.value)
    assert "1800" not in str(found.value)
