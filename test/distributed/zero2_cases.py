# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zero=2 on four ranks: gradients are reduced in buckets during the backward pass. The
loss of a rank is linear, so that its gradients are known and their mean is exact."""

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from zero_values import parameters, values
from zoo import ALL, some


def backward(params, grads, absent=()):
    """A pass in which the gradient of each parameter is what it is in ``grads``."""
    used = [(p, g) for i, (p, g) in enumerate(zip(params, grads, strict=True)) if i not in absent]
    sum((param * grad).sum() for param, grad in used if param.numel()).backward()


def mean(passes, i):
    """Over ranks of the sum over passes, in f32."""
    world = dist.get_world_size()
    return sum(own[r][i].float() for own in passes for r in range(world)) / world


def step_whole(optimizer, params, passes, absent=()):
    for i, param in enumerate(params):
        param.grad_dtype = None
        has = i not in absent and param.numel() > 0
        param.grad = mean(passes, i) if has else None
    optimizer.step()


def compare(name, passes=1, dtype=torch.float32, bucket_bytes=3000, absent=(), **more):
    made, grads = values(dtype, steps=4 * passes)
    plain, sharded = parameters(made), parameters(made)
    reference = ALL[name](plain)
    optimizer = ALL[name](sharded, zero=2, gradients="local", bucket_bytes=bucket_bytes, **more)
    for k in range(4):
        own = grads[k * passes : (k + 1) * passes]
        optimizer.zero_grad()
        for of_pass in own:
            backward(sharded, of_pass[dist.get_rank()], absent)
            assert all(param.grad is None for param in sharded)
        step_whole(reference, plain, own, absent)
        optimizer.step()
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"{name}, step {k}, parameter {i}")
    calls = optimizer._binding.plan.info().exchangeCalls
    assert calls >= 4 * (3 * passes + 3) or bucket_bytes > 10**6, calls
    return optimizer, sharded


@case
def every_optimizer():
    for name in some("zero2 f32"):
        compare(name)


@case
def every_optimizer_in_bf16():
    """The mean stays f32: it is not rounded to the parameter's type."""
    for name in some("zero2 bf16"):
        compare(name, dtype=torch.bfloat16)


@case
def micro_batches_add_up_in_the_shard():
    for name in ("AdamW", "hf.Adafactor"):
        compare(name, passes=3)


@case
def one_bucket_for_all_and_one_for_each():
    compare("CAME", bucket_bytes=10**9)
    compare("CAME", bucket_bytes=1)


@case
def without_overlap():
    for name in ("AdamW", "CAME"):
        compare(name, passes=2, overlap=False)


@case
def gradients_cross_in_another_type():
    """Of which each micro-batch is rounded, and the sum is f32."""
    generator = torch.Generator().manual_seed(5)
    made, _ = values()
    for sent in (torch.bfloat16, torch.float32):
        plain, sharded = parameters(made), parameters(made)
        reference = st.AdamW(plain)
        optimizer = st.AdamW(
            sharded, zero=2, gradients="local", bucket_bytes=3000, reduce_dtype=sent
        )
        passes = [
            [[torch.randn(p.shape, generator=generator) for p in made] for _ in range(4)]
            for _ in range(2)
        ]
        for own in passes:
            backward(sharded, own[dist.get_rank()])
        for i, param in enumerate(plain):
            total = torch.zeros(param.shape)
            for own in passes:
                of_pass = torch.zeros(param.shape)
                for rank in range(4):
                    of_pass += own[rank][i].to(sent)
                total += of_pass
            param.grad = total / 4 if param.numel() else None
        reference.step()
        optimizer.step()
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"by {sent}, parameter {i}")


@case
def a_parameter_without_gradient_anywhere():
    optimizer, params = compare("AdamW", absent={1, 4})
    assert params[1] not in optimizer.state or not optimizer.state[params[1]]


@case
def a_parameter_without_gradient_on_one_rank():
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = (
        ALL["AdamW"](plain),
        ALL["AdamW"](sharded, zero=2, gradients="local", bucket_bytes=3000),
    )
    for own in grads:
        mine = {0, 4} if dist.get_rank() == 2 else set()
        optimizer.zero_grad()
        backward(sharded, own[dist.get_rank()], mine)
        shown = [
            [torch.zeros_like(g) if r == 2 and i in (0, 4) else g for i, g in enumerate(of_rank)]
            for r, of_rank in enumerate(own)
        ]
        step_whole(reference, plain, [shown])
        optimizer.step()
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def no_sync_keeps_gradients_until_the_next_pass():
    made, grads = values(steps=3)
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = st.AdamW(plain), st.AdamW(sharded, zero=2, gradients="local")
    with optimizer.no_sync():
        for own in grads[:2]:
            backward(sharded, own[dist.get_rank()])
    assert all(p.grad is not None for p in sharded if p.numel())
    backward(sharded, grads[2][dist.get_rank()])
    assert all(p.grad is None for p in sharded)
    step_whole(reference, plain, grads)
    optimizer.step()
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def gradients_that_no_pass_brought_are_reduced_by_the_step():
    """On some ranks, or left by no_sync, beside what a pass has sent before."""
    made, grads = values(steps=2)
    plain, sharded = parameters(made), parameters(made)
    reference = st.AdamW(plain)
    optimizer = st.AdamW(sharded, zero=2, gradients="local", bucket_bytes=3000)
    backward(sharded, grads[0][dist.get_rank()])
    with optimizer.no_sync():
        backward(sharded, grads[1][dist.get_rank()], {0} if dist.get_rank() == 1 else ())
    grads[1][1][0].zero_()
    step_whole(reference, plain, grads)
    optimizer.step()
    assert all(param.grad is None for param in sharded)
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def a_gradient_that_comes_twice_in_a_pass():
    """As of a weight in two segments that are computed again, each in a pass of its own."""
    from torch.utils.checkpoint import checkpoint

    def step(optimizer, weight, head):
        x = torch.full((8,), 0.5, requires_grad=True)
        for _ in range(2):
            x = checkpoint(lambda own: own * weight, x, use_reentrant=True)
        (x * head).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    made = [torch.linspace(0.5, 1.5, 8), torch.linspace(1.0, 2.0, 8)]
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = st.AdamW(plain), st.AdamW(sharded, zero=2, gradients="local")
    for _ in range(3):  # the same on all ranks, whose mean is exact
        step(reference, *plain)
        step(optimizer, *sharded)
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def zero_grad_forgets():
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = st.AdamW(plain), st.AdamW(sharded, zero=2, gradients="local")
    backward(sharded, grads[0][dist.get_rank()])
    optimizer.zero_grad()
    backward(sharded, grads[1][dist.get_rank()])
    step_whole(reference, plain, grads[1:2])
    optimizer.step()
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


class Breaks(torch.autograd.Function):
    """A pass that ends in the user's own error."""

    @staticmethod
    def forward(_, value):
        return value.clone()

    @staticmethod
    def backward(_, grad):
        raise ZeroDivisionError("the user's own")


@case
def a_pass_that_breaks_off_is_forgotten():
    """With some of the buckets under way and some not full; the next pass is whole again."""
    for overlap in (True, False):
        made, grads = values(steps=2)
        plain, sharded = parameters(made), parameters(made)
        reference = ALL["AdamW"](plain)
        optimizer = ALL["AdamW"](
            sharded, zero=2, gradients="local", bucket_bytes=3000, overlap=overlap
        )
        for k, own in enumerate(grads):
            mine = own[dist.get_rank()]
            used = [i for i, param in enumerate(sharded) if param.numel()]
            # The last in the order of the pass, which is that of the sum from its end.
            first = (Breaks.apply(sharded[used[0]]) * 3).sum()
            rest = sum(((sharded[i] * mine[i]).sum() for i in used[1:]), start=first)
            try:
                rest.backward()
            except ZeroDivisionError as error:
                assert str(error) == "the user's own"
            else:
                raise AssertionError("the pass did not break off")
            optimizer.zero_grad()
            backward(sharded, mine)
            step_whole(reference, plain, [own])
            optimizer.step()
            for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
                same_bits(b, a, f"overlap={overlap}, step {k}, parameter {i}")


@case
def an_overflow_on_one_rank_skips_on_all():
    made, grads = values()
    params = parameters(made)
    optimizer = ALL["AdamW, clipped"](params, zero=2, gradients="local")
    backward(params, grads[0][dist.get_rank()])
    optimizer.step()
    before = [p.detach().clone() for p in params]
    optimizer.zero_grad()
    grads[1][3][0][0, 0] = float("inf")
    backward(params, grads[1][dist.get_rank()])
    optimizer.step()
    assert optimizer.last_step.skipped and optimizer.loss_scale == 1.0
    for param, then in zip(params, before, strict=True):
        same_bits(param, then, "parameter")


@case
def a_group_that_is_added():
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    optimizers = st.AdamW(plain[:4]), st.AdamW(sharded[:4], zero=2, gradients="local")
    for optimizer, params in zip(optimizers, (plain, sharded), strict=True):
        optimizer.add_param_group({"params": params[4:], "lr": 1e-2})
    backward(sharded, grads[0][dist.get_rank()])
    step_whole(optimizers[0], plain, grads[:1])
    optimizers[1].step()
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def a_full_state_loads_into_other_stages():
    made, grads = values()
    params = parameters(made)
    optimizer = ALL["CAME"](params, zero=2, gradients="local", bucket_bytes=3000)
    backward(params, grads[0][dist.get_rank()])
    optimizer.step()
    full = optimizer.full_state_dict()
    copies = [parameters(params) for _ in range(2)]
    other = ALL["CAME"](copies[0], zero=1, gradients="reduced")
    whole = ALL["CAME"](copies[1])
    try:
        other.load_state_dict(optimizer.state_dict())
    except ValueError as error:
        assert "full_state_dict() makes a state that loads anywhere" in str(error), error
    else:
        raise AssertionError("it was not refused")
    for own in (other, whole):
        own.load_state_dict(full)
    optimizer.zero_grad()
    backward(params, grads[1][dist.get_rank()])
    optimizer.step()
    step_whole(whole, copies[1], grads[1:2])
    step_whole(other, copies[0], grads[1:2])
    for i, param in enumerate(params):
        same_bits(copies[0][i], param, f"zero=1, parameter {i}")
        same_bits(copies[1][i], param, f"whole, parameter {i}")


if __name__ == "__main__":
    main()
