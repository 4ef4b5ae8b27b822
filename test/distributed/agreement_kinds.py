# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kinds of optimizers that one rank has otherwise than the others, for agreement_cases.py."""

import stepc.torch as st
import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from zoo import ALL

ODD = 2  # the rank that differs
LAMB = ALL["FusedLamb"]
SHAPES = [(8, 4), (8,), (4, 8)]


def odd(there, here):
    return there if dist.get_rank() == ODD else here


def named(shapes=SHAPES, names=("w0", "w1", "w2"), dtype=torch.float32):
    return [(n, torch.ones(s, dtype=dtype)) for n, s in zip(names, shapes, strict=True)]


def spread(tensors, mesh, placements=None):
    """DTensors by dim 0, or as ``placements`` has it by name."""
    found = []
    for name, tensor in tensors:
        own = [(placements or {}).get(name, Shard(0))]
        # Ranks may have other tensors: nothing is sent.
        local = distribute_tensor(tensor, mesh, own, src_data_rank=None)
        found.append((name, torch.nn.Parameter(local)))
    return found


def here(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def plain(tensors):
    return [(name, torch.nn.Parameter(tensor)) for name, tensor in tensors]


def stepped(optimizer):
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.ones_like(param) if param.requires_grad else None
    optimizer.step()


def grouped(make, params, *starts):
    """Groups that begin at these places."""
    ends = [*starts[1:], len(params)]
    return make([{"params": params[a:b]} for a, b in zip(starts, ends, strict=True)])


def frozen(params, index):
    params[index][1].requires_grad_(dist.get_rank() != ODD)
    return params


def with_lr(make, params, lr, group=0):
    optimizer = make(params)
    optimizer.param_groups[group]["lr"] = lr
    return optimizer


def stepped_before(make, params, steps):
    """A state in which a parameter has taken some steps."""
    optimizer = make(params)
    for _, param in params:
        local = {n: torch.zeros_like(param) for n in ("exp_avg", "exp_avg_sq")}
        optimizer.state[param] = {"step": torch.tensor(float(steps)), **local}
    return optimizer


def of_parts(mesh, layout, **more):
    """A plain part of a larger tensor, by ``layouts``."""
    return LAMB(plain([("w", torch.ones(4, 4))]), layouts=[("w", layout(mesh))], **more)


def clipped(*norm):
    return lambda params: st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(*norm))


def scaled(scale):
    return lambda params: st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(1.0), loss_scale=scale)


def zero(mesh, stage=1, gradients="local", make=ALL["AdamW"], tensors=None, **more):
    """Elementwise, so that the ranks have no rounds."""
    more = {"process_group": mesh.get_group(), "gradients": gradients, **more}
    return make(plain(tensors or named()), zero=stage, **more)


# A kind: the optimizer that a rank has, and what the others are told of the odd one, after
# "there". What the odd one is told is after "here".
KINDS = {
    "definition": (
        lambda m: odd(ALL["hf.Adafactor"], LAMB)(spread(named(), m)),
        "definition 'adafactor'",
    ),
    "option": (
        lambda m: st.deepspeed.FusedLamb(spread(named(), m), bias_correction=odd(False, True)),
        "bias_correction=false",
    ),
    "a fraction": (
        lambda m: st.Dion(spread(named([(8, 4), (8, 3), (4, 8)]), m), rank_fraction=odd(0.25, 0.5)),
        "rank_fraction 0.25 and rank_multiple_of 1 of group 0",
    ),
    "a fragment": (
        lambda m: odd(ALL["AdamW, clipped"], clipped(0.5))(spread(named(), m)),
        "definition 'adamw'",
    ),
    "another fragment": (
        lambda m: clipped(0.5, odd(float("inf"), 2.0))(spread(named(), m)),
        "definition 'adamw' with",
    ),
    "groups": (
        lambda m: grouped(LAMB, spread(named(), m), 0, *odd((1, 2), (1,))),
        "3 parameter groups",
    ),
    "the group of a parameter": (
        lambda m: grouped(LAMB, spread(named(), m), 0, odd(2, 1)),
        "parameter 'w1' of group 0",
    ),
    "fewer parameters": (lambda m: LAMB(spread(named(), m)[: odd(2, 3)]), "nothing"),
    "more parameters": (lambda m: LAMB(spread(named(), m)[: odd(3, 2)]), "parameter 'w2' of group"),
    "their order": (lambda m: LAMB(spread(named(), m)[:: odd(-1, 1)]), "parameter 'w2' of group 0"),
    "a name": (
        lambda m: LAMB(spread(named(names=("w0", odd("other", "w1"), "w2")), m)),
        "parameter 'other'",
    ),
    "a shape": (
        lambda m: LAMB(spread(named([(8, 4), (odd(12, 8),), (4, 8)]), m)),
        "of shape (12,)",
    ),
    "a dtype": (
        lambda m: LAMB(spread(named(dtype=odd(torch.bfloat16, torch.float32)), m)),
        "bfloat16",
    ),
    "the dim that is cut": (
        lambda m: LAMB(spread(named(), m, {"w2": Shard(odd(1, 0))})),
        "of S(1)",
    ),
    "cut or whole": (
        lambda m: LAMB(spread(named(), m, {"w1": odd(Replicate(), Shard(0))})),
        "of R over",
    ),
    "all whole": (
        lambda m: LAMB(
            spread(
                named(names=("x", "y", "z")),
                m,
                dict.fromkeys(("x", "y", "z"), odd(Replicate(), Shard(0))),
            )
        ),
        "of R over",
    ),
    "a frozen parameter": (lambda m: LAMB(frozen(spread(named(), m), 1)), "'w1' frozen"),
    "a hyper-parameter": (lambda m: with_lr(LAMB, spread(named(), m), odd(2e-3, 1e-3)), "0.002"),
    "a hyper-parameter of a fragment": (
        lambda m: clipped(odd(0.25, 0.5))(spread(named(), m)),
        "0.25",
    ),
    "steps taken": (
        lambda m: stepped_before(LAMB, spread(named(), m), odd(7, 3)),
        "'w0' after 7 steps",
    ),
    "the dim of a plain part": (
        lambda m: of_parts(m, lambda mesh: st.Layout(mesh, [Shard(odd(1, 0))])),
        "layout S(1)",
    ),
    "a plain part's gradient": (
        lambda m: of_parts(
            m,
            lambda mesh: st.Layout(mesh, [Shard(0)], grad_divisor=odd(2.0, None)),
        ),
        "divided by 2.0",
    ),
    "zero's stage": (lambda m: zero(m, odd(2, 1)), "zero=2"),
    "zero's gradients": (
        lambda m: zero(m, gradients=odd("reduced", "local")),
        "gradients='reduced'",
    ),
    "bucket_bytes": (lambda m: zero(m, 2, bucket_bytes=odd(2000, 1000)), "bucket_bytes=2000"),
    "gather_bucket_bytes": (
        lambda m: zero(m, gather_bucket_bytes=odd(2000, 1000)),
        "gather_bucket_bytes=2000",
    ),
    "gather_bucket_bytes that is the default's": (
        lambda m: zero(m, bucket_bytes=odd(25 * 2**20, None)),
        "bucket_bytes=26214400",
    ),
    "gather_bucket_bytes of one alone": (
        lambda m: zero(m, gather_bucket_bytes=odd(None, 25 * 2**20)),
        "gather_bucket_bytes=default",
    ),
    "predivide": (lambda m: zero(m, predivide=odd(True, False)), "predivide=True"),
    "flatten_parameters": (
        lambda m: zero(m, flatten_parameters=odd(True, False)),
        "flatten_parameters=True",
    ),
    "predivide of a plain part": (
        lambda m: of_parts(
            m,
            lambda mesh: st.Layout(
                mesh, [Replicate()], "partial", grad_divisor=4, predivide=odd(True, False)
            ),
        ),
        "gradient partial divided by 4 before the sum",
    ),
    "reduce_dtype": (
        lambda m: zero(m, reduce_dtype=odd(torch.bfloat16, None)),
        "reduce_dtype=torch.bfloat16",
    ),
    "master": (
        lambda m: zero(m, tensors=named(dtype=torch.bfloat16), master=odd("f32", "remainder")),
        "master='f32'",
    ),
    "the least number of elements of codes": (
        lambda m: zero(m, state_dtype=st.Codes("q8", min_size=odd(4097, 4096))),
        "state_dtype=Codes('q8', min_size=4097)",
    ),
    "state_dtype": (
        lambda m: zero(m, state_dtype=odd({"exp_avg": torch.bfloat16}, None)),
        "state_dtype={'exp_avg': torch.bfloat16}",
    ),
    "reproducible": (
        # Under names on which the ranks have not agreed before.
        lambda m: st.deepspeed.FusedLamb(
            spread(named(names=("r0", "r1", "r2")), m), reproducible=odd(True, False)
        ),
        "reproducible=True",
    ),
    "overlap": (lambda m: zero(m, overlap=odd(False, True)), "overlap=False"),
    "reduce_dtype of a plain part": (
        lambda m: of_parts(
            m,
            lambda mesh: st.Layout(mesh, [Replicate()], grad="partial"),
            reduce_dtype=odd(torch.bfloat16, None),
        ),
        "reduce_dtype=torch.bfloat16",
    ),
    "zero's parameters": (
        lambda m: zero(m, tensors=named([(8, 4), (odd(9, 8),), (4, 8)])),
        "of shape (9,)",
    ),
    "zero's definition": (
        lambda m: zero(m, make=odd(ALL["Lion"], ALL["AdamW"])),
        "definition 'lion'",
    ),
}
