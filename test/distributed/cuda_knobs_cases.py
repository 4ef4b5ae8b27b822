# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bucket sizes, division before the sum and deadlines on devices of the double: the bits of the
processor's engine; and what is refused there."""

import datetime

import pytest
import stepc.torch as st
import torch
import torch.distributed as dist
from cuda_zero_cases import SMALL, by_passes, trained
from on_cuda import compare, contents, on_device
from on_ranks import case, main
from owners_cases import make as make_square
from stepc import errors
from stepc.torch.ranks.exchanges import group_among
from torch.distributed.tensor import DTensor, Replicate, Shard
from zero_values import values
from zoo import ALL

BF16 = torch.bfloat16
MINUTE = datetime.timedelta(minutes=1)


@case
def two_bucket_sizes():
    """Lines that are gathered together, and in pieces."""
    for name in ("AdamW", "CAME"):
        more = {"reduce_bucket_bytes": SMALL, "gather_bucket_bytes": 4 * SMALL}
        compare(trained(name, "local", **more), f"{name}, together")
        compare(by_passes(name, bucket_bytes=None, **more), f"{name}, together, zero=2")
        compare(trained(name, "local", gather_bucket_bytes=640), f"{name}, in pieces")


@case
def division_before_the_sum():
    for more in ({"reduce_dtype": BF16}, {"bucket_bytes": SMALL}):
        compare(trained("AdamW", "local", predivide=True, **more), str(more))
        compare(by_passes("AdamW", predivide=True, **more), f"zero=2, {more}")
    compare(trained("AdamW", "local", BF16, predivide=True, master="f32"), "narrow parameters")


@case
def division_by_three_before_the_sum():
    """A quotient there too, and no product with a third."""
    group = dist.new_group([0, 1, 2], use_local_synchronization=True) if dist.get_rank() < 3 else 0
    if group:
        compare(trained("SGD", "local", process_group=group, predivide=True), "three ranks")


def partial(dtype, reduce_dtype):
    """Of two ranks in each step: a sum of three is rounded as the order of its terms is, which
    Gloo takes from the size of the message, and on the processor's that has a digest besides."""

    def train(place):
        torch.manual_seed(0)
        mesh = place.mesh((4,), mesh_dim_names=("dp",))
        how = st.Layout(mesh, [Replicate()], "partial", grad_divisor=3.0, predivide=True)
        param = torch.nn.Parameter(place.place(torch.randn(9, 5).to(dtype)))
        more = {"layouts": [(".*", how)], "reduce_dtype": reduce_dtype}
        optimizer = ALL["AdamW"]([("one", param)], **more)
        for step in range(3):
            torch.manual_seed(4 * step + dist.get_rank())
            grad = torch.randint(-8, 9, (9, 5)).to(dtype)
            param.grad = place.place(grad) if dist.get_rank() in (step, step + 1) else None
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def division_of_partial_gradients_before_the_sum():
    compare(partial(torch.float32, None), "float32")
    compare(partial(torch.float32, BF16), "by bfloat16")
    compare(partial(BF16, torch.float32), "bfloat16")


@case
def deadlines_change_no_bit():
    compare(trained("CAME", "local", bucket_bytes=SMALL, timeout=MINUTE), "zero=1")
    compare(by_passes("AdamW", timeout=MINUTE), "zero=2")


@case
def a_rank_that_does_not_come_is_named():
    """By what the hosts exchange, while their devices wait for nobody."""
    if not dist.get_rank():
        return
    group = group_among((1, 2, 3), dist.group.WORLD)  # other groups some alone have made
    second = datetime.timedelta(seconds=1)
    more = {"zero": 1, "gradients": "local", "process_group": group, "timeout": second}
    with on_device() as place:
        params = [torch.nn.Parameter(place.place(value)) for value in values()[0]]
        optimizer = ALL["AdamW"](params, **more)
        for param in params:
            param.grad = place.place(torch.ones(param.shape))
        optimizer._timeout = MINUTE  # code is compiled for the first step
        optimizer.step()
        optimizer._timeout = second
        if dist.get_rank() < 3:
            words = r"the gradients could not be compared before the step \(no word of rank 3\)"
            with pytest.raises(errors.CommunicationError, match=words):
                optimizer.step()
            with pytest.raises(errors.StatusError, match="an earlier step failed midway"):
                optimizer.step()


@case
def flat_parameters_are_refused():
    with on_device() as place:
        params = [torch.nn.Parameter(place.place(value)) for value in values()[0]]
        before = [param.data_ptr() for param in params]
        words = "is on device 'cuda:0', not on 'cpu'; flatten_parameters=True would take it"
        for zero in (1, 2):
            with pytest.raises(errors.TensorError, match=words):
                ALL["AdamW"](params, zero=zero, gradients="local", flatten_parameters=True)
        assert before == [param.data_ptr() for param in params]


@case
def parameters_that_an_owner_would_step_are_refused():
    with on_device() as place:
        mesh = place.mesh((4,), mesh_dim_names=("dp",))
        local = place.place(torch.ones(2, 8))
        param = torch.nn.Parameter(DTensor.from_local(local, mesh, [Shard(0)], run_check=False))
        optimizer = make_square([("query", param)])
        grad = place.place(torch.ones(2, 8))
        param.grad = DTensor.from_local(grad, mesh, [Shard(0)], run_check=False)
        words = "'query' is on device 'cuda:0', and rule .* has .*; an owner steps what is on 'cpu'"
        with pytest.raises(errors.TensorError, match=words):
            optimizer.step()


if __name__ == "__main__":
    main()
