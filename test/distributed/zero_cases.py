# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zero=1 on four ranks against the steps of one process, bit for bit."""

import contextlib
import os

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from stepc import errors
from zero_values import SHAPES, compare, mean, parameters, step_whole, step_zero, values
from zoo import ALL, some


@case
def every_optimizer_with_reduced_gradients():
    for make in some("zero reduced").values():
        compare(make, "reduced", torch.float32)


@case
def every_optimizer_with_local_gradients():
    for make in some("zero local").values():
        compare(make, "local", torch.float32)


@case
def every_optimizer_in_bf16_and_one_in_f16():
    for make in some("zero bf16").values():
        compare(make, "local", torch.bfloat16)
        compare(make, "reduced", torch.bfloat16)
    compare(ALL["AdamW"], "local", torch.float16)


class Counted:
    """A work, and how many are begun and not waited for."""

    now = most = 0

    def __init__(self, work):
        self.work = work
        Counted.now += 1
        Counted.most = max(Counted.most, Counted.now)

    def wait(self):
        Counted.now -= 1
        return self.work.wait()


@contextlib.contextmanager
def under_way():
    """The most buckets of gradients that cross at the same time."""
    whole, found = dist.all_to_all_single, []
    Counted.now = Counted.most = 0
    dist.all_to_all_single = lambda *own, **more: Counted(whole(*own, **more))
    try:
        yield found
        found.append(Counted.most)
    finally:
        dist.all_to_all_single = whole


@case
def buckets_are_stepped_while_others_are_under_way():
    """Where a definition steps each tensor by itself; in one step else, or without overlap."""
    for make in some("lines").values():
        compare(make, "reduced", torch.float32, bucket_bytes=3000)
        with under_way() as most:
            compare(make, "local", torch.float32, bucket_bytes=3000)
        assert 1 < most[0] <= 4, most
    for name in ("AdamW", "CAME"):
        for dtype in (torch.float32, torch.bfloat16):
            with under_way() as most:
                compare(ALL[name], "local", dtype, bucket_bytes=3000, overlap=False)
            assert most == [1], most


@case
def gradients_of_another_kind_between_steps():
    """A reduced gradient of another dtype: the plan that was made for float32 is not stepped
    in part."""
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = (
        ALL["AdamW"](plain),
        ALL["AdamW"](sharded, zero=1, gradients="reduced", bucket_bytes=3000),
    )
    for k, own in enumerate(grads):
        step_whole(reference, plain, own)
        for i, param in enumerate(sharded):
            param.grad = None
            param.grad = None
            param.grad = mean(own, i, param.dtype)
            if k == 2 and i == 4:  # the mean has few bits
                param.grad_dtype = None
                param.grad = param.grad.bfloat16()
        optimizer.step()
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def a_hyper_parameter_that_changes_between_steps_of_buckets():
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = (
        ALL["AdamW"](plain),
        ALL["AdamW"](sharded, zero=1, gradients="local", bucket_bytes=3000),
    )
    for k, own in enumerate(grads):
        for each in (reference, optimizer):
            each.param_groups[0]["lr"] = 1e-2 / (k + 1)
            each.param_groups[0]["weight_decay"] = 0.0 if k == 2 else 0.1
        step_whole(reference, plain, own, {1, 4} if k == 3 else ())
        step_zero(optimizer, sharded, own, "local", {1, 4} if k == 3 else ())
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")
        assert float(optimizer.state[b]["step"]) == float(reference.state[a]["step"])


def rounded_mean(own, i, dtype):
    """Of what crosses in the dtype, added up in f32 in the order of the ranks."""
    total = torch.zeros(own[0][i].shape)
    for of_rank in own:
        total += of_rank[i].to(dtype)
    return total / len(own)


@case
def gradients_cross_in_another_type():
    generator = torch.Generator().manual_seed(5)
    for dtype in (torch.float32, torch.bfloat16):
        for sent in (torch.bfloat16, torch.float16, torch.float32):
            made, _ = values(dtype)
            grads = [
                [[torch.randn(s, generator=generator).to(dtype) for s in SHAPES] for _ in range(4)]
                for _ in range(2)
            ]
            for arguments in ({}, {"bucket_bytes": 3000}):
                plain, sharded = parameters(made), parameters(made)
                reference, optimizer = (
                    ALL["AdamW"](plain),
                    ALL["AdamW"](
                        sharded, zero=1, gradients="local", reduce_dtype=sent, **arguments
                    ),
                )
                for own in grads:
                    for i, param in enumerate(plain):
                        param.grad_dtype = None
                        param.grad = rounded_mean(own, i, sent)
                    reference.step()
                    step_zero(optimizer, sharded, own, "local")
                for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
                    same_bits(b, a, f"{dtype} by {sent}, parameter {i}")


@case
def a_gradient_on_one_rank_only():
    """Zero on the others, as DistributedDataParallel has it with unused parameters."""
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference, optimizer = ALL["AdamW"](plain), ALL["AdamW"](sharded, zero=1, gradients="local")
    for own in grads:
        shown = [
            [g if i != 0 or r == 2 else torch.zeros_like(g) for i, g in enumerate(of_rank)]
            for r, of_rank in enumerate(own)
        ]
        step_whole(reference, plain, shown)
        step_zero(optimizer, sharded, own, "local", (), {0} if dist.get_rank() != 2 else ())
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def frozen_parameters():
    """Before the first step, later, and again, with what is bound anew then: what ranks have of
    the others stays."""
    frozen = [{1, 4}, {1, 4}, {4}, {0, 4}]
    for stage in (1, 2):
        made, grads = values()
        plain, sharded = parameters(made), parameters(made)
        for params in (plain, sharded):
            for i in frozen[0]:
                params[i].requires_grad_(False)
        reference = ALL["AdamW"](plain)
        optimizer = ALL["AdamW"](sharded, zero=stage, gradients="local", bucket_bytes=3000)
        for k, own in enumerate(grads):
            for params in (plain, sharded):
                for i, param in enumerate(params):
                    param.requires_grad_(i not in frozen[k])
            optimizer.zero_grad()
            if k == 3:
                optimizer.load_state_dict(optimizer.state_dict())
            absent = frozen[k] | {i for i, param in enumerate(plain) if not param.numel()}
            step_whole(reference, plain, own, absent)
            if stage == 2:
                pairs = enumerate(zip(sharded, own[dist.get_rank()], strict=True))
                sum((p * g).sum() for i, (p, g) in pairs if i not in absent).backward()
                optimizer.step()
            else:
                step_zero(optimizer, sharded, own, "local", absent)
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"zero={stage}, parameter {i}")


@case
def reduced_gradients_that_differ_are_refused():
    made, grads = values()
    params = parameters(made)
    optimizer = st.AdamW([(f"w{i}", p) for i, p in enumerate(params)], zero=1, gradients="reduced")
    before = [p.detach().clone() for p in params]
    for i, param in enumerate(params):
        param.grad = mean(grads[0], i, param.dtype)
    if dist.get_rank() == 1:
        params[4].grad[3, 5] += 1e-3
    try:
        optimizer.step()
    except errors.TensorError as error:
        assert "the gradient of parameter 'w4' is another one on some ranks" in str(error), error
    else:
        raise AssertionError("it was not refused")
    for param, then in zip(params, before, strict=True):
        same_bits(param, then, "parameter")
    try:  # it is looked for again
        optimizer.step()
    except errors.TensorError as error:
        assert "is another one on some ranks" in str(error), error
    else:
        raise AssertionError("it was not refused again")


@case
def each_step_is_compared_where_it_is_asked_for():
    """With STEPC_CHECK=1; without it the first step alone."""
    made, grads = values()
    for check in ("", "1"):
        params = parameters(made)
        optimizer = st.AdamW(params, zero=1, gradients="reduced")
        os.environ["STEPC_CHECK"] = check
        try:
            for own in grads[:2]:
                step_zero(optimizer, params, own, "reduced")
            if dist.get_rank() == 1:
                grads[2][0][4][3, 5] += 1.0  # of the mean that this rank alone makes
            before = [p.detach().clone() for p in params]
            step_zero(optimizer, params, grads[2], "reduced")
            assert not check, "it was not refused"
        except errors.TensorError as error:
            assert check, error
            assert "the gradient of parameter 4 of group 0 is another one" in str(error), error
            for param, then in zip(params, before, strict=True):
                same_bits(param, then, "parameter")
        finally:
            del os.environ["STEPC_CHECK"]


@case
def an_overflow_on_one_rank_skips_on_all():
    made, grads = values()
    params = parameters(made)
    optimizer = ALL["AdamW, clipped"](params, zero=1, gradients="local")
    step_zero(optimizer, params, grads[0], "local")
    before = [p.detach().clone() for p in params]
    if dist.get_rank() == 3:
        grads[1][3][0][0, 0] = float("inf")
    step_zero(optimizer, params, grads[1], "local")
    assert optimizer.last_step.skipped and optimizer.loss_scale == 1.0
    for param, then in zip(params, before, strict=True):
        same_bits(param, then, "parameter")


@case
def a_process_group_of_some_ranks():
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = halves[dist.get_rank() // 2]
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    make = ALL["hf.Adafactor"]
    reference = make(plain)
    optimizer = make(sharded, zero=1, gradients="reduced", process_group=group)
    for own in grads:
        step_whole(reference, plain, own)
        step_zero(optimizer, sharded, own, "reduced")
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


def not_contiguous(values):
    # clone() keeps strides.
    made = [v.t().contiguous().t() if v.dim() == 2 else v for v in values]
    return [torch.nn.Parameter(value.clone()) for value in made]


@case
def parameters_that_are_not_contiguous():
    """A remainder of theirs is kept too, while nobody writes the parameter."""
    for name, dtype, more in [
        ("CAME", torch.float32, {}),
        ("AdamW", torch.bfloat16, {"master": "remainder"}),
    ]:
        made, grads = values(dtype)
        plain, sharded = not_contiguous(made), not_contiguous(made)
        assert not sharded[0].is_contiguous()
        reference = ALL[name](plain, **more)
        optimizer = ALL[name](sharded, zero=1, gradients="reduced", **more)
        for own in grads:
            step_whole(reference, plain, own)
            step_zero(optimizer, sharded, own, "reduced")
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"{name}, parameter {i}")


@case
def a_scaler_whose_overflow_is_one_on_all_ranks():
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference = ALL["AdamW"](plain)
    optimizer = ALL["AdamW"](sharded, zero=1, gradients="local")
    scaler = st.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    scales = []
    for k, own in enumerate(grads):
        scaled = [[scaler.get_scale() * g for g in of_rank] for of_rank in own]
        if k == 1 and dist.get_rank() == 2:
            scaled[2][3] = torch.full_like(scaled[2][3], float("inf"))
        for param, grad in zip(sharded, scaled[dist.get_rank()], strict=True):
            param.grad = grad.clone()
        scaler.scale(torch.zeros(1))  # as a loss would
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        if k != 1:
            step_whole(reference, plain, own)
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"step {k}, parameter {i}")
    assert scales == [8.0, 4.0, 4.0, 8.0], scales
    theirs = torch.amp.GradScaler("cpu", init_scale=8.0)
    theirs.load_state_dict(scaler.state_dict())
    theirs.scale(torch.zeros(1))
    try:
        theirs.step(optimizer)
    except errors.StepcError as error:
        assert "use stepc.torch.GradScaler" in str(error), error
    else:
        raise AssertionError("torch's scaler was not refused")


def refused(words, **arguments):
    try:
        st.AdamW([torch.nn.Parameter(torch.ones(2))], **arguments)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{arguments} was not refused")


@case
def arguments_that_are_refused():
    refused("gradients is None, expected 'reduced'", zero=1)
    refused("gradients is 'summed', expected 'reduced'", zero=1, gradients="summed")
    refused("zero is 4, expected stepc.torch.Zero(1, ...) or Zero(2)", zero=4, gradients="local")
    for stage in (3, st.Zero(3), st.Zero("gemini")):
        refused("Gemini, shares parameters too: call torch's fully_shard(model)", zero=stage)
    refused("gradients is of no use without zero=Zero(...)", gradients="local")
    refused("process_group is of no use without zero=Zero(...)", process_group=dist.group.WORLD)
    refused("bucket_bytes is of no use without zero=Zero(...)", bucket_bytes=8)
    refused("overlap is of no use without zero=Zero(...)", overlap=False)
    refused("reduce_dtype is torch.int8, expected torch.bfloat16, torch.float16", zero=1,
            gradients="local", reduce_dtype=torch.int8)  # fmt: skip
    refused("reduce_dtype is of no use where no gradient is reduced here", zero=1,
            gradients="reduced", reduce_dtype=torch.bfloat16)  # fmt: skip
    refused("reduce_dtype is of no use where", reduce_dtype=torch.float32)
    refused("bucket_bytes is 0, expected a positive number", zero=2, gradients="local",
            bucket_bytes=0)  # fmt: skip
    refused("over DistributedDataParallel, which has reduced them, zero=1", zero=2,
            gradients="reduced")  # fmt: skip


if __name__ == "__main__":
    main()
