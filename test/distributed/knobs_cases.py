# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sizes of buckets, and division before the sum, on four ranks, against one process."""

import contextlib

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from zero_values import compare, parameters, values
from zoo import ALL


@contextlib.contextmanager
def counted(name):
    """How often a collective is called."""
    found, function = [], getattr(dist, name)
    setattr(dist, name, lambda *own, **more: [found.append(1), function(*own, **more)][1])
    try:
        yield found
    finally:
        setattr(dist, name, function)


def calls_of(**sizes):
    """Of a step: what brings gradients, and what gathers parameters."""
    with counted("all_to_all_single") as buckets, counted("broadcast") as gathers:
        compare(ALL["AdamW"], "local", torch.float32, **sizes)
    return len(buckets) / 4, len(gathers) / 4  # four steps


@case
def parameters_are_gathered_in_pieces_or_several_buckets_at_once():
    buckets, both = calls_of(bucket_bytes=3000)
    of_pieces, pieces = calls_of(bucket_bytes=3000, gather_bucket_bytes=1000)
    of_all, at_once = calls_of(reduce_bucket_bytes=3000, gather_bucket_bytes=10**6)
    of_some, some = calls_of(reduce_bucket_bytes=3000, gather_bucket_bytes=5000)
    assert of_pieces == of_all == of_some == buckets > 2
    assert at_once == 4 < some < both < pieces, (at_once, some, both, pieces)


@case
def the_bits_are_those_of_any_sizes():
    for name, mode, dtype, sizes in [
        ("CAME", "local", torch.float32, {"reduce_bucket_bytes": 3000}),
        ("AdamW", "reduced", torch.float32, {"gather_bucket_bytes": 3000}),
        ("AdamW", "local", torch.bfloat16, {"reduce_bucket_bytes": 1, "gather_bucket_bytes": 9999}),
        ("AdamW", "local", torch.float32, {"bucket_bytes": 9999, "reduce_bucket_bytes": 3000,
                                           "overlap": False}),
        ("CAME", "local", torch.float32, {"gather_bucket_bytes": 64, "overlap": False}),
    ]:  # fmt: skip
        compare(ALL[name], mode, dtype, **sizes)


@case
def types_that_follow_each_other_are_gathered_apart():
    made, grads = values()
    mixed = [value.to((torch.float32, torch.bfloat16)[i % 2]) for i, value in enumerate(made)]
    mixed[4] = mixed[4].t().contiguous().t()
    plain, sharded = parameters(mixed), parameters(mixed)
    sharded[4] = torch.nn.Parameter(mixed[4].clone(memory_format=torch.preserve_format))
    assert not sharded[4].is_contiguous()
    reference = ALL["AdamW"](plain)
    optimizer = ALL["AdamW"](
        sharded, zero=1, gradients="local", reduce_bucket_bytes=200, gather_bucket_bytes=10**6
    )
    for own in grads:
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            a.grad = sum(of_rank[i].double() for of_rank in own).div(4).to(a.dtype)
            b.grad = own[dist.get_rank()][i].to(b.dtype)
        reference.step()
        with counted("broadcast") as found:
            optimizer.step()
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")
    assert 4 < len(found) <= 8, len(found)  # from each rank, of two types


@case
def sizes_of_zero2():
    """What no pass has brought crosses in buckets; parameters come together again in one call
    of each rank."""
    made, grads = values()
    plain, sharded = parameters(made), parameters(made)
    reference = ALL["AdamW"](plain)
    optimizer = ALL["AdamW"](
        sharded, zero=2, gradients="local", reduce_bucket_bytes=3000, gather_bucket_bytes=10**6
    )
    for k, own in enumerate(grads):
        optimizer.zero_grad()
        for i, param in enumerate(sharded):
            param.grad = own[dist.get_rank()][i].clone()
            plain[i].grad = sum(of_rank[i] for of_rank in own) / 4
        reference.step()
        with counted("broadcast") as found, counted("all_to_all_single") as buckets:
            optimizer.step()
        assert len(found) == 4 and len(buckets) > 2, (len(found), len(buckets))
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"step {k}, parameter {i}")


# --- Division before the sum ------------------------------------------------------


def divided_before(grads, sent):
    """The mean of what crosses in a type, divided by each rank, and added up in f32."""
    total = torch.zeros(grads[0].shape)
    for grad in grads:
        total += (grad.float() / len(grads)).to(sent)
    return total


def divided_after(grads, sent):
    total = torch.zeros(grads[0].shape)
    for grad in grads:
        total += grad.to(sent)
    return total / len(grads)


def random_gradients(made, passes, ranks=3):
    generator = torch.Generator().manual_seed(5)
    draw = lambda p: torch.randn(p.shape, generator=generator).to(p.dtype)  # noqa: E731
    return [[[draw(p) for p in made] for _ in range(ranks)] for _ in range(passes)]


@case
def gradients_are_divided_before_they_cross():
    """By three ranks, so that it makes a difference; rounded to the type that crosses."""
    group = dist.new_group([0, 1, 2])
    if dist.get_rank() == 3:
        return
    differ = False
    for dtype, sent in [
        (torch.float32, None),
        (torch.bfloat16, None),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float16),
    ]:
        made, _ = values(dtype)
        plain, sharded = parameters(made), parameters(made)
        reference = ALL["AdamW"](plain)
        optimizer = ALL["AdamW"](
            sharded, zero=1, gradients="local", predivide=True, process_group=group,
            reduce_dtype=sent,
        )  # fmt: skip
        for own in random_gradients(made, 3):
            for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
                grads = [of_rank[i] for of_rank in own]
                mean = divided_before(grads, sent or dtype)
                differ |= not torch.equal(mean, divided_after(grads, sent or dtype))
                a.grad_dtype = None
                a.grad = mean
                b.grad = own[dist.get_rank()][i]
            reference.step()
            optimizer.step()
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"{dtype} by {sent}, parameter {i}")
    assert differ


@case
def micro_batches_are_divided_before_they_cross():
    group = dist.new_group([0, 1, 2])
    if dist.get_rank() == 3:
        return
    made, _ = values(torch.bfloat16)
    plain, sharded = parameters(made), parameters(made)
    reference = ALL["SGD"](plain)
    optimizer = ALL["SGD"](
        sharded, zero=2, gradients="local", predivide=True, process_group=group, bucket_bytes=3000
    )
    passes = random_gradients(made, 2)
    for own in passes:
        used = zip(sharded, own[dist.get_rank()], strict=True)
        sum((p * g).sum() for p, g in used if p.numel()).backward()
    for i, param in enumerate(plain):
        sums = [divided_before([r[i] for r in own], torch.bfloat16) for own in passes]
        param.grad_dtype = None
        param.grad = sums[0] + sums[1] if param.numel() else None
    reference.step()
    optimizer.step()
    for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
        same_bits(b, a, f"parameter {i}")


@case
def partial_gradients_are_divided_before_the_sum():
    """Of two ranks by three, in the type in which they cross; and where the sum would have
    overflown."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))["tp"]
    at = mesh.get_local_rank()
    differ = False
    for dtype, sent in [(torch.float32, None), (torch.bfloat16, None), (torch.float32, "bfloat16")]:
        made, _ = values(dtype)
        before, after = (
            st.Layout(mesh, [Replicate()], grad="partial", grad_divisor=3.0, predivide=early)
            for early in (True, False)
        )
        sent = sent and getattr(torch, sent)
        for how in (before, after):
            plain, own = parameters(made), parameters(made)
            reference = ALL["AdamW"](plain)
            named = [(f"w{i}", param) for i, param in enumerate(own)]
            optimizer = ALL["AdamW"](named, layouts=[(".*", how)], reduce_dtype=sent)
            words = (
                "divided by 3, summed over tp" if how is before else "summed over tp, divided by 3"
            )
            assert words in optimizer.describe_layouts(), optimizer.describe_layouts()
            (grads,) = random_gradients(made, 1, 2)
            for i, (a, b) in enumerate(zip(plain, own, strict=True)):
                two = [of_rank[i] for of_rank in grads]
                crosses = sent or dtype
                early = sum((g.float() / 3).to(crosses) for g in two).to(dtype)
                late = sum(g.to(crosses) for g in two).to(dtype) / 3
                differ |= not torch.equal(early, late)
                a.grad = early if how is before else late
                b.grad = two[at]
            reference.step()
            optimizer.step()
            for i, (a, b) in enumerate(zip(plain, own, strict=True)):
                same_bits(b, a, f"{dtype} by {sent}, predivide={how.predivide}, parameter {i}")
    assert differ
    for early in (True, False):
        param = torch.nn.Parameter(torch.zeros(4, dtype=torch.float16))
        how = st.Layout(mesh, [Replicate()], "partial", grad_divisor=2.0, predivide=early)
        optimizer = st.SGD([("w", param)], lr=2.0**-10, layouts=[("w", how)])
        param.grad = torch.full((4,), 40000.0, dtype=torch.float16)
        optimizer.step()
        assert param.isfinite().all() == early, param


@case
def gradients_are_divided_where_there_is_nothing_to_sum():
    """A parameter of this rank alone, or shared by ranks that are one: predivide asks for a
    division, not for a sum."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    at = dist.get_rank()
    for early in (True, False):
        own = st.Layout(mesh, ["distinct"], "partial", grad_divisor=3.0, predivide=early)
        one = st.Layout(mesh, [Replicate()], "partial", grad_divisor=3.0, predivide=early,
                        shared_over="pp")  # fmt: skip
        made, _ = values()
        plain, sharded = parameters(made), parameters(made)
        reference = ALL["AdamW"](plain)
        named = [(f"w{i}", param) for i, param in enumerate(sharded)]
        named += [("tied", torch.nn.Parameter(torch.ones(5)))] if at == 2 else []
        optimizer = ALL["AdamW"](named, layouts=[("tied", one), (".*", own)])
        (grads,) = random_gradients(made, 1, 4)
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            a.grad, b.grad = grads[at][i] / 3, grads[at][i]
        if at == 2:
            (alone,) = plain_tied = parameters([torch.ones(5)])
            alone.grad, named[-1][1].grad = torch.full((5,), 7.0) / 3, torch.full((5,), 7.0)
            ALL["AdamW"](plain_tied).step()
        reference.step()
        optimizer.step()
        for i, (a, b) in enumerate(zip(plain, sharded, strict=True)):
            same_bits(b, a, f"predivide={early}, parameter {i}")
        if at == 2:
            same_bits(named[-1][1], alone, f"predivide={early}, of one holder")


@case
def arguments_that_are_refused():
    mesh = init_device_mesh("cpu", (4,))
    param = [torch.nn.Parameter(torch.ones(2))]

    def refused(words, function):
        try:
            function()
        except ValueError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"it was not refused: {words}")

    for name in ("predivide", "reduce_bucket_bytes", "gather_bucket_bytes"):
        words = f"{name} is of no use without zero=Zero(...)"
        refused(words, lambda n=name: st.AdamW(param, **{n: True}))
    for name in ("reduce_bucket_bytes", "gather_bucket_bytes"):
        words = f"{name} is 0, expected a positive number"
        refused(words, lambda n=name: st.AdamW(param, zero=1, gradients="local", **{n: 0}))
    for name, value in [("predivide", True), ("reduce_bucket_bytes", 8)]:
        refused(f"{name} is of no use with gradients='reduced'",
                lambda n=name, v=value: st.AdamW(
                    param, zero=1, gradients="reduced", **{n: v}))  # fmt: skip
    for more in ({"grad": "partial"}, {"grad_divisor": 2.0}):
        words = "predivide is of no use without grad='partial' and a grad_divisor"
        refused(words, lambda m=more: st.Layout(mesh, [Replicate()], predivide=True, **m))


if __name__ == "__main__":
    main()
