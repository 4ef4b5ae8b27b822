# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps inside the backward pass on ranks: of the parts that fully_shard and tensor parallelism
make, with the bits of one process; and beside what reduces gradients behind it, which is refused
before anything is changed: each rank would step with a gradient of its own."""

import itertools

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits
from stepc import errors
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from zoo import OF_EACH_GRADIENT

KINDS = (st.lomo.Lomo, st.lomo.AdaLomo)


def made():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def accumulators_hooked(model):
    """As Megatron and apex reduce: by a hook of Python's on what accumulates a gradient."""
    model.kept = []
    for param in model.parameters():
        node = param.expand_as(param).grad_fn.next_functions[0][0]
        node.register_hook(lambda *_: None)
        model.kept.append(node)
    return model


WRAPPERS = {
    "DDP": DistributedDataParallel,
    "DDP, buckets as gradients": lambda m: DistributedDataParallel(m, gradient_as_bucket_view=True),
    "DDP, a graph that stays": lambda m: DistributedDataParallel(m, static_graph=True),
    "DDP, what is not used": lambda m: DistributedDataParallel(m, find_unused_parameters=True),
    "replicate": replicate,
    "hooks of Python": accumulators_hooked,
}


def loss_of(model):
    torch.manual_seed(1 + dist.get_rank())
    return model(torch.randn(5, 8)).square().mean()


def refused(words, call):
    try:
        call()
    except errors.StepcError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"it was not refused: {words}")


@case
def what_reduces_gradients_is_refused():
    """Wrapped before the optimizer is made or after, and the one or the other given to it."""
    orders = itertools.product(KINDS, WRAPPERS.items(), ("before", "behind", "given"), (None, 1.0))
    for kind, (name, wrap), when, norm in orders:
        model = made()
        if when == "behind":
            optimizer = kind(model, clip_grad_norm=norm)
            wrapped = wrap(model)
        else:
            wrapped = wrap(model)
            optimizer = kind(wrapped if when == "given" else model, clip_grad_norm=norm)
        before = [p.detach().clone() for p in model.parameters()]
        words = "0.weight' has a hook where its gradient is accumulated, as DistributedDataParallel"
        loss = loss_of(wrapped)
        if norm is None:
            refused(words, lambda o=optimizer, x=loss: o.fused_backward(x, 1e-2))
        else:
            refused(words, lambda o=optimizer, x=loss: o.grad_norm(x))
        for param, then in zip(model.parameters(), before, strict=True):
            assert param.grad is None, name
            same_bits(param, then, f"{kind.__name__}, {name}, {when}")
        assert not optimizer.state


@case
def wrapped_between_two_steps():
    model = made()
    optimizer = st.lomo.AdaLomo(model)
    optimizer.fused_backward(loss_of(model), 1e-2)
    before = [p.detach().clone() for p in model.parameters()]
    # The gradients of that step were each rank's own: they are so again.
    wrapped = accumulators_hooked(model)
    refused("has a hook", lambda: optimizer.fused_backward(loss_of(wrapped), 1e-2))
    for param, then in zip(model.parameters(), before, strict=True):
        same_bits(param, then, "a refused step")


@case
def a_rank_by_itself_steps():
    """What no other rank has a part in goes on, frozen parameters and hooks of users too."""
    for kind in KINDS:
        model = made()
        model[0].bias.requires_grad_(False)
        seen = []
        handle = model[2].weight.register_post_accumulate_grad_hook(seen.append)
        twin = made()
        twin[0].bias.requires_grad_(False)
        left, right = kind(model), kind(twin)
        for _ in range(3):
            left.fused_backward(loss_of(model), 1e-2)
            right.fused_backward(loss_of(twin), 1e-2)
        assert len(seen) == 3
        handle.remove()
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            same_bits(a, b, kind.__name__)


def one_batch(model, number, dtype=torch.float32):
    """The same on all ranks: their mean is what one process has."""
    torch.manual_seed(100 + number)
    out = model(torch.randn(8, 8, dtype=dtype))
    return (out.full_tensor() if isinstance(out, DTensor) else out).square().mean()


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def same_as_one_process(model, optimizer, twin, other, what):
    for (name, a), b in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert a.grad is None, f"{what}: {name} has a gradient"
        same_bits(whole(a), b[1], f"{what}: {name}")
        for key, value in other.state[b[1]].items():
            if isinstance(value, torch.Tensor):
                same_bits(whole(optimizer.state[a][key]), value, f"{what}: {key} of {name}")


def parallel(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def train_both(make, model, twin):
    """The model within the pass, its twin behind it."""
    fused, plain = make(model.parameters(), fused_backward=True), make(twin.parameters())
    for number in range(3):
        for made, optimizer in ((model, fused), (twin, plain)):
            optimizer.backward(one_batch(made, number))
            optimizer.step()
        plain.zero_grad()
    return fused, plain


@case
def any_class_steps_parts_of_fully_shard_and_of_tensor_parallelism():
    for (name, make), wrap in itertools.product(OF_EACH_GRADIENT.items(), (fully_shard, parallel)):
        model, twin = wrap(made()), wrap(made())
        optimizer, other = train_both(make, model, twin)
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            assert a.grad is None
            same_bits(whole(a), whole(b), f"{name}, {wrap.__name__}")
            for key, value in other.state[b].items():
                if isinstance(value, torch.Tensor):
                    same_bits(whole(optimizer.state[a][key]), whole(value), f"{name}: {key}")


@case
def parts_are_stepped_as_one_process_steps_them():
    """Gradients that no reduction rounds: of four ranks the mean of four equal ones."""
    for name, make in OF_EACH_GRADIENT.items():
        model, twin = fully_shard(made()), made()
        optimizer, other = train_both(make, model, twin)
        same_as_one_process(model, optimizer, twin, other, name)


@case
def lomo_steps_parts_of_fully_shard():
    for norm, value in ((None, None), (None, 1e-3), (0.05, None)):
        model, twin = fully_shard(made()), made()
        pair = []
        for net in (model, twin):
            optimizer = st.lomo.Lomo(net, clip_grad_norm=norm, clip_grad_value=value)
            for number in range(3):
                loss = one_batch(net, number)
                if norm is not None:
                    found = optimizer.grad_norm(loss)
                    assert found > norm
                optimizer.fused_backward(loss, 1e-2)
            pair.append(optimizer)
        for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
            what = f"{name} with norm {norm}, value {value}"
            if norm is None:
                same_bits(whole(a), b, what)
            else:  # the norm is added up in another order
                torch.testing.assert_close(whole(a), b.detach(), rtol=1e-6, atol=1e-7, msg=what)


@case
def the_norm_of_parts_has_a_pass_of_its_own():
    for wrap, clip in itertools.product((fully_shard, parallel), (0.02, 1e3)):
        model, twin = wrap(made()), made()
        keywords = {"lr": 1e-2, "clip": st.ClipByNorm(clip)}
        fused = st.AdamW(model.parameters(), fused_backward=True, **keywords)
        plain = st.AdamW(twin.parameters(), **keywords)
        for number in range(3):
            norm = fused.backward(one_batch(model, number))
            fused.step()
            one_batch(twin, number).backward()
            plain.step()
            plain.zero_grad()
            torch.testing.assert_close(float(norm), plain.last_step.grad_norm, rtol=1e-6, atol=0.0)
        for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
            assert a.grad is None
            torch.testing.assert_close(whole(a), b.detach(), rtol=1e-5, atol=1e-7, msg=name)


@case
def what_needs_other_ranks_in_the_pass_is_refused():
    model = fully_shard(made())
    optimizer = st.lomo.AdaLomo(model)
    before = [whole(p).clone() for p in model.parameters()]
    try:
        optimizer.fused_backward(one_batch(model, 0), 1e-2)
    except errors.StatusError as error:
        assert "'adalomo' computes something of all tensors together" in str(error), error
    else:
        raise AssertionError("rows of parts were stepped alone")
    for a, b in zip(model.parameters(), before, strict=True):
        same_bits(whole(a), b, "a refused step")


@case
def any_class_is_refused_behind_ddp():
    for name, wrap in WRAPPERS.items():
        model = made()
        wrapped = wrap(model)
        optimizer = st.AdamW(model.parameters(), fused_backward=True)
        before = [p.detach().clone() for p in model.parameters()]
        refused("has a hook where its gradient is accumulated", loss_of(wrapped).backward)
        for param, then in zip(model.parameters(), before, strict=True):
            same_bits(param, then, name)
        assert not optimizer.state


@case
def a_gradient_that_is_still_to_be_summed_is_refused():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    param = torch.nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Replicate()]))
    optimizer = st.AdamW([param], fused_backward=True)
    parts = distribute_tensor(torch.ones(4, 4), mesh, [Replicate()]).redistribute(
        placements=[Shard(0)]
    )
    local = param.to_local(grad_placements=[Partial()])
    try:
        (local[: parts.to_local().shape[0]] * parts.to_local()).sum().backward()
    except errors.TensorError as error:
        assert "its gradient is a DTensor of (Partial(sum),)" in str(error), error
    else:
        raise AssertionError("a rank stepped with its part of a sum")
    same_bits(whole(param), torch.ones(4, 4), "a refused step")
    assert not optimizer.state


@case
def what_cannot_be_known_is_refused():
    from stepc.torch.ranks import accumulators as _accumulators

    found, _accumulators._place_of_hooks = _accumulators._place_of_hooks, lambda: 0
    try:
        model = made()
        optimizer = st.lomo.Lomo(model)
        loss = loss_of(model)
        refused("needs to know who reduces", lambda: optimizer.fused_backward(loss, 1e-2))
    finally:
        _accumulators._place_of_hooks = found
    assert found() > 0


if __name__ == "__main__":
    main()
