# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ctrl-C on one rank while it waits for the others: it stays a KeyboardInterrupt, and the optimizer
says until a state is loaded that it may be apart from the others'."""

import copy
import signal

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main
from stepc import errors
from stepc._mesh import SUM_F64
from stepc._shared_memory import SharedGroup
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def make(mesh):
    """A clipped optimizer, whose step has a round, after the first step."""
    whole = torch.arange(32, dtype=torch.float32).reshape(8, 4)
    param = torch.nn.Parameter(distribute_tensor(whole, mesh, [Shard(0)]))
    optimizer = st.AdamW([param], clip=st.ClipByNorm(1.0))
    param.grad = distribute_tensor(torch.ones(8, 4), mesh, [Shard(0)])
    optimizer.step()
    return param, optimizer


@case
def interrupted_in_a_round():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    param, optimizer = make(mesh)
    before, state = param.to_local().clone(), copy.deepcopy(optimizer.state_dict())
    if dist.get_rank() == 0:
        real = SharedGroup.reduce

        def interrupted(self, calls):
            real(self, calls)
            if calls[0].reduction == SUM_F64:  # of the step, not of what ranks tell before it
                signal.raise_signal(signal.SIGINT)  # it came while this rank waited

        SharedGroup.reduce = interrupted
        try:
            optimizer.step()
            raise AssertionError("it was not interrupted")
        except KeyboardInterrupt:
            SharedGroup.reduce = real
        assert param.to_local().equal(before), "it stepped"
        try:
            optimizer.step()
            raise AssertionError("it steps again")
        except errors.StatusError as error:
            assert error.status == "STEPC_POISONED", error
            assert "KeyboardInterrupt came in a step of several ranks" in str(error), error
    else:
        optimizer.step()
        assert not param.to_local().equal(before)
    with torch.no_grad():
        param.to_local().copy_(before)
    optimizer.load_state_dict(state)
    optimizer.step()
    assert not param.to_local().equal(before)


if __name__ == "__main__":
    main()
