# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``fused_backward=True`` beside ``zero=``: gradients leave as they come, and the bits are those of
a step behind the pass."""

import itertools

import stepc.torch as st
import torch
import torch.distributed as dist
from fused_zero_models import (
    TOGETHER,
    compare,
    local,
    loss_of,
    net,
    none_left,
    reduced_by_hooks,
    same_models,
)
from on_ranks import case, main
from stepc import errors
from zoo import OF_EACH_GRADIENT


@case
def elementwise_definitions_have_the_bits_of_a_step_behind_the_pass():
    for make, stage in itertools.product(OF_EACH_GRADIENT.values(), (1, 2)):
        compare(make, local(stage))


@case
def what_needs_all_tensors_keeps_its_part_of_the_sums():
    for make, stage in itertools.product(TOGETHER.values(), (1, 2)):
        compare(make, local(stage))


@case
def arguments_of_zero_change_no_bit():
    for more in (
        {"bucket_bytes": None},
        {"overlap": False},
        {"flatten_parameters": True},
        {"gather_bucket_bytes": 700},
        {"gather_bucket_bytes": 20000},
        {"reduce_dtype": torch.bfloat16},
        {"predivide": True},
    ):
        for name in ("AdamW", "Adafactor"):
            compare((OF_EACH_GRADIENT | TOGETHER)[name], local(2, **more))


@case
def other_types_of_parameters():
    for dtype, more in (
        (torch.bfloat16, {}),
        (torch.bfloat16, {"master": "f32"}),
        (torch.bfloat16, {"master": "remainder"}),
        (torch.float16, {"loss_scale": 256.0}),
        (torch.float64, {}),
    ):
        compare(
            lambda params, m=more, **k: st.AdamW(params, lr=1e-2, **m, **k), local(1), dtype=dtype
        )


@case
def gradients_that_are_reduced_already():
    zero = st.Zero(1, gradients="reduced", bucket_bytes=3000)
    for name in ("AdamW", "clipped by value", "Adafactor", "clipped by norm"):
        make = (OF_EACH_GRADIENT | TOGETHER)[name]
        model, twin = reduced_by_hooks(net()), reduced_by_hooks(net())
        fused = make(model.named_parameters(), zero=zero, fused_backward=True)
        plain = make(twin.named_parameters(), zero=zero)
        for number in range(3):
            for own, optimizer in ((model, fused), (twin, plain)):
                optimizer.scale(loss_of(own, number)).backward()
                optimizer.step()
                if own is model:
                    none_left(model)
                optimizer.zero_grad()
            same_models(model, fused, twin, plain, f"{name}, step {number}")


@case
def other_gradients_than_reduced_ones_are_named():
    model = net()
    optimizer = st.AdamW(
        model.named_parameters(), zero=st.Zero(1, gradients="reduced"), fused_backward=True
    )
    loss_of(model, 0).backward()
    try:
        optimizer.step()
    except errors.TensorError as error:
        assert "is another one on some ranks" in str(error), error
    else:
        raise AssertionError("ranks stepped with gradients of their own")
    try:
        optimizer.step()
    except errors.StatusError as error:
        assert error.status == "STEPC_POISONED", error
    else:
        raise AssertionError("parameters of other steps were stepped")


@case
def an_infinite_gradient_under_a_loss_scale():
    """As behind the pass: its elements are none, and nobody waits."""

    def overflows(model, number):
        factor = 1e30 if number == 1 and dist.get_rank() == 2 else 1.0
        return loss_of(model, number) * factor * factor

    compare(
        lambda params, **k: st.AdamW(params, lr=1e-2, loss_scale=256.0, **k),
        local(1),
        loss=overflows,
    )
    # One that is dynamic leaves the step out.
    compare(TOGETHER["a dynamic scale"], local(2), loss=overflows)


@case
def states_come_and_go():
    model, fused = compare(OF_EACH_GRADIENT["AdamW"], local(2))
    saved = fused.state_dict()
    twin = net()
    twin.load_state_dict(model.state_dict())
    other = st.AdamW(twin.named_parameters(), lr=1e-2, zero=local(2), fused_backward=True)
    other.load_state_dict(saved)
    for own, optimizer in ((model, fused), (twin, other)):
        loss_of(own, 9).backward()
        optimizer.step()
    same_models(model, fused, twin, other, "loaded")


@case
def gradients_that_are_alive_at_once():
    """One or two at a time, where a pass without it has them all; and what the plan has beside
    its part of their sum is that of buckets under way."""
    found = {}
    for fused in (True, False):
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(40)])
        params, most = list(model.parameters()), 0

        def look(_, params=params):
            nonlocal most
            most = max(most, sum(p.grad.nbytes for p in params if p.grad is not None))

        for param in params:  # ahead of the optimizer's hooks, which free the gradient
            param.register_post_accumulate_grad_hook(look)
        zero = local(1, bucket_bytes=64 * 64 * 4)
        optimizer = st.AdamW(model.named_parameters(), zero=zero, fused_backward=fused)
        for number in range(3):
            loss_of(model, number).backward()
            optimizer.step()
            optimizer.zero_grad()
        found[fused] = most, optimizer._binding.plan.info().bytesAllocated
    whole = sum(p.nbytes for p in params)
    assert found[False][0] == whole
    assert found[True][0] <= 2 * 64 * 64 * 4 + 1000, found
    # Behind the pass a rank keeps its quarter of all sums, within it that of one bucket.
    assert found[True][1] < found[False][1] - whole // 5, found


if __name__ == "__main__":
    main()
