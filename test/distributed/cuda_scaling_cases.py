# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``clip_grad_norm_`` and ``GradScaler`` of gradients over ranks on devices of the double: what
they give on the processor, to the bit."""

import math

import stepc.torch as st
import torch
import torch.distributed as dist
from layouts_cases import parts, values
from on_cuda import compare, contents, on_device
from on_ranks import case, main
from torch.distributed.tensor import DTensor, Replicate, Shard


def spread(place, dtype=torch.float32):
    """Stages of two ranks with plain parts, a DTensor, and a tensor that all ranks have."""
    mesh = place.mesh((2, 2), mesh_dim_names=("pp", "tp"))
    stage, at = mesh.get_local_rank("pp"), mesh.get_local_rank("tp")
    own = parts(values(stage)[0], at, 2)
    params = [(n, torch.nn.Parameter(place.place(v.to(dtype)))) for n, v in own.items()]
    layouts = [
        ("up|bias", st.Layout(mesh, ["distinct", Shard(0)])),
        ("down", st.Layout(mesh, ["distinct", Shard(1)])),
        (".*", st.Layout(mesh, ["distinct", Replicate()])),
    ]
    optimizer = st.AdamW(params, lr=1e-2, layouts=layouts)
    local = place.place(torch.ones(4, 5, dtype=dtype))
    cut = torch.nn.Parameter(DTensor.from_local(local, mesh["tp"], [Shard(0)], run_check=False))
    return optimizer, cut, torch.nn.Parameter(place.place(torch.ones(5, dtype=dtype)))


def give(place, step, optimizer, *others, factor=1.0):
    for i, param in enumerate([*optimizer.param_groups[0]["params"], *others]):
        local = getattr(param, "_local_tensor", param)
        generator = torch.Generator().manual_seed(100 * step + i + dist.get_rank() * (i < 4))
        grad = torch.randn(local.shape, generator=generator).to(local.dtype) * factor
        grad = place.place(grad)
        if local is not param:
            mesh, placements = param.device_mesh, param.placements
            grad = DTensor.from_local(grad, mesh, placements, run_check=False)
        param.grad = grad


def clipped(norm_type, dtype):
    def train(place):
        optimizer, *others = spread(place, dtype)
        for step in range(2):
            give(place, step, optimizer, *others)
            norm = st.clip_grad_norm_([optimizer, *others], 0.3, norm_type)
            optimizer.step()
            found = {"norm": norm, **{f"gradient {i}": p.grad for i, p in enumerate(others)}}
            yield {n: place.host(v) for n, v in found.items()} | contents(place, optimizer)

    return train


@case
def clipping_by_the_norm():
    for norm_type in (2.0, math.inf):
        for dtype in (torch.float32, torch.bfloat16):
            compare(clipped(norm_type, dtype), f"{norm_type}, {dtype}")


@case
def clipping_waits_for_nothing():
    with on_device() as place:
        optimizer, *others = spread(place)
        for step in range(3):
            give(place, step, optimizer, *others)
            before = place.cuda.reads
            norm = st.clip_grad_norm_([optimizer, *others], 0.3)
            assert step == 0 or place.cuda.reads == before
        assert norm.device.type == "cuda"
        for param in others:
            param.grad = None
        give(place, 0, optimizer, factor=math.nan if dist.get_rank() == 3 else 1.0)
        try:
            st.clip_grad_norm_(optimizer, 0.3, error_if_nonfinite=True)
        except RuntimeError as error:
            assert "non-finite" in str(error), error
        else:
            raise AssertionError("a norm that is NaN was not refused")


def scaled(kind):
    """Of four steps the second overflows, on one rank; a rank has no gradient in the third."""

    def train(place):
        if kind == "layouts":
            optimizer, *_ = spread(place)
        else:
            params = [torch.nn.Parameter(place.place(v)) for v in values()[0].values()]
            more = {} if kind is None else {"zero": 1, "gradients": kind}
            optimizer = st.AdamW(params, lr=1e-2, **more)
        scaler = st.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        for step in range(4):
            scaler.scale(torch.ones(()))  # which makes its tensors
            give(place, step, optimizer, factor=8.0)
            if kind == "reduced":
                for param in optimizer.param_groups[0]["params"]:
                    param.grad = place.place(torch.full(param.shape, 0.5 + step))
            bad = step == 1 and (dist.get_rank() == 2 or kind == "reduced")
            params = optimizer.param_groups[0]["params"]
            if bad:
                params[1].grad = place.place(torch.full(params[1].shape, math.inf))
            if step == 2 and kind == "local" and dist.get_rank() == 1:
                for param in params:
                    param.grad = None
            scaler.step(optimizer)
            scaler.update()
            scale = {"scale": torch.tensor(scaler.get_scale())}
            yield scale | contents(place, optimizer)
        assert scaler.get_scale() == 8.0

    return train


@case
def a_scaler_over_ranks():
    """An overflow on one rank is one on all: the scale is halved once, and grows once."""
    for kind in ("layouts", "local", "reduced"):
        compare(scaled(kind), kind)


@case
def a_scaler_and_zero_2():
    with on_device() as place:
        params = [torch.nn.Parameter(place.place(v)) for v in values()[0].values()]
        optimizer = st.AdamW(params, zero=2, gradients="local")
        scaler = st.GradScaler("cpu")
        scaler.scale(torch.ones(()))
        try:
            scaler.step(optimizer)
        except RuntimeError as error:
            assert "loss_scale=DynamicLossScale()" in str(error), error
        else:
            raise AssertionError("it was not refused")


if __name__ == "__main__":
    main()
