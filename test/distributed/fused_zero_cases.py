# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``fused_backward=True`` beside ``zero=``: gradients leave as they come, and the bits are those of
a step behind the pass, and of one process with the mean."""

import itertools

import hybrid_cases as hybrid
import stepc.torch as st
import torch
import torch.distributed as dist
from named_values import named_values
from on_ranks import case, main, same_bits
from stepc import errors
from torch.utils.checkpoint import checkpoint
from zoo import ALL

LAYERS = 4


def net(dtype=torch.float32, width=24):
    torch.manual_seed(0)
    pairs = [(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(LAYERS)]
    return torch.nn.Sequential(*itertools.chain.from_iterable(pairs)).to(dtype)


def loss_of(model, number, rank=None):
    """Of a batch that each rank has for itself."""
    rank = dist.get_rank() if rank is None else rank
    torch.manual_seed(1000 * number + rank)
    first = next(model.parameters())
    batch = torch.randn(5, first.shape[-1]).to(first.dtype)
    return model(batch).float().square().mean()


def none_left(model):
    assert all(param.grad is None for param in model.parameters())


def same_models(model, optimizer, twin, other, what):
    for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
        same_bits(a, b, f"{what}: {name}")
        left, right = optimizer.state.get(a, {}), other.state.get(b, {})
        assert set(left) == set(right), (what, name, set(left), set(right))
    ours, theirs = optimizer.full_state_dict()["state"], other.full_state_dict()["state"]
    for key, state in theirs.items():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                same_bits(ours[key][name], value, f"{what}: {name} of {key}")


def compare(make, zero, behind=None, dtype=torch.float32, loss=loss_of, steps=3, change=None):
    """The model within the pass, its twin behind it."""
    model, twin = net(dtype), net(dtype)
    fused = make(model.named_parameters(), zero=zero, fused_backward=True)
    plain = make(twin.named_parameters(), zero=behind or zero)
    what = f"{type(fused).__name__}, {zero}"
    for number in range(steps):
        for own, optimizer in ((model, fused), (twin, plain)):
            if change is not None:
                change(own, optimizer, number)
            optimizer.scale(loss(own, number)).backward()
            if own is model:
                none_left(model)
            optimizer.step()
            optimizer.zero_grad()
        same_models(model, fused, twin, plain, f"{what}, step {number}")
    return model, fused


ELEMENTWISE = {
    "AdamW": lambda params, **k: st.AdamW(params, lr=1e-2, **k),
    "SGD": lambda params, **k: st.SGD(params, lr=1e-2, momentum=0.9, **k),
    "Lion": lambda params, **k: st.Lion(params, lr=1e-3, **k),
    "clipped by value": lambda params, **k: st.AdamW(
        params, lr=1e-2, clip=st.ClipByValue(1e-3), loss_scale=4.0, **k
    ),
}
# What needs all tensors, or exchanges statistics: the sums stay until the step ends.
TOGETHER = {
    "Adafactor": lambda params, **k: st.hf.Adafactor(params, **k),
    "LAMB": lambda params, **k: st.deepspeed.FusedLamb(params, **k),
    "FusedAdam": lambda params, **k: st.deepspeed.FusedAdam(params, **k),
    "clipped by norm": lambda params, **k: st.AdamW(params, lr=1e-2, clip=st.ClipByNorm(1e-2), **k),
    "an average": lambda params, **k: st.AdamW(params, lr=1e-2, average=st.EMA(0.9), **k),
    "a dynamic scale": lambda params, **k: st.AdamW(
        params, lr=1e-2, loss_scale=st.DynamicLossScale(), **k
    ),
}


def local(stage=1, **more):
    return st.Zero(stage, gradients="local", **{"bucket_bytes": 3000, **more})


@case
def elementwise_definitions_have_the_bits_of_a_step_behind_the_pass():
    for make, stage in itertools.product(ELEMENTWISE.values(), (1, 2)):
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
            compare((ELEMENTWISE | TOGETHER)[name], local(2, **more))


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


def reduced_by_hooks(model):
    """As who reduces gradients before they are accumulated."""

    def mean(grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad / dist.get_world_size()

    for param in model.parameters():
        param.register_hook(mean)
    return model


@case
def gradients_that_are_reduced_already():
    zero = st.Zero(1, gradients="reduced", bucket_bytes=3000)
    for name in ("AdamW", "clipped by value", "Adafactor", "clipped by norm"):
        make = (ELEMENTWISE | TOGETHER)[name]
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


# --- One process ---------------------------------------------------------------------


SHAPES = {"a": (33, 20), "b": (17,), "c": (5, 7, 9), "d": (130, 64), "e": (3,), "f": (2, 3, 5, 7)}


def exact(steps=4):
    """Parameters, and for each step and rank gradients whose mean is exact."""
    made = {name: torch.randn(shape) * 0.1 for name, shape in SHAPES.items()}
    grads = [
        [
            {name: torch.randint(-8, 9, shape) / 64.0 for name, shape in SHAPES.items()}
            for _ in range(dist.get_world_size())
        ]
        for _ in range(steps)
    ]
    return made, grads


def named(made):
    return [(name, torch.nn.Parameter(value.clone())) for name, value in made.items()]


def backward(params, grads):
    """A pass with these gradients, of those that there are."""
    terms = [(param * grads[name]).sum() for name, param in params if name in grads]
    if terms:
        sum(terms).backward()


# What has no gradient in a step: by rank, None for all of them.
ABSENT = [{}, {"b": (0, 2), "d": (1,)}, {"a": None, "e": (3,)}, {"f": (0, 1, 2), "c": None}]


def own_of(grads, absent):
    rank = dist.get_rank()
    return {n: g for n, g in grads[rank].items()
            if n not in absent or (absent[n] is not None and rank not in absent[n])}  # fmt: skip


def mean_of(grads, absent):
    """With zeros for what a rank has not, where another has it."""
    found, world = {}, len(grads)
    for name in SHAPES:
        gone = absent.get(name, ())
        if gone is not None:
            there = [own[name] for rank, own in enumerate(grads) if rank not in gone]
            found[name] = sum(there[1:], there[0]) / world
    return found


@case
def ranks_that_have_gradients_of_other_parameters():
    """Also one that has none at all; what none has stays as it is."""
    for make, stage in itertools.product((ELEMENTWISE | TOGETHER).values(), (1, 2)):
        made, grads = exact(len(ABSENT))
        plain, sharded = named(made), named(made)
        reference = make(plain)
        fused = make(sharded, zero=local(stage, bucket_bytes=2000), fused_backward=True)
        scale = fused.loss_scale
        for number, (own, absent) in enumerate(zip(grads, ABSENT, strict=True)):
            both = mean_of(own, absent)
            for name, param in plain:
                param.grad = both[name] * scale if name in both else None
            reference.step()
            backward(sharded, {n: g * scale for n, g in own_of(own, absent).items()})
            fused.step()
            what = f"{type(fused).__name__}, step {number}"
            for (name, param), (_, expected) in zip(sharded, plain, strict=True):
                assert param.grad is None
                statistics = make in TOGETHER.values()
                if statistics:
                    torch.testing.assert_close(param, expected, rtol=1e-6, atol=1e-7, msg=name)
                else:
                    same_bits(param, expected, f"{what}: {name}")
                here, there = fused.state.get(param, {}), reference.state.get(expected, {})
                assert set(here) == set(there), (what, name)
                assert float(here.get("step", 0)) == float(there.get("step", 0)), (what, name)


@case
def a_rank_whose_pass_has_no_gradient():
    made, grads = exact(2)
    plain, sharded = named(made), named(made)
    reference = st.AdamW(plain)
    fused = st.AdamW(sharded, zero=local(2, bucket_bytes=2000), fused_backward=True)
    for own in grads:
        both = {n: sum(g[n] for g in own[1:]) / len(own) for n in SHAPES}
        for name, param in plain:
            param.grad = both[name]
        reference.step()
        backward(sharded, own[dist.get_rank()] if dist.get_rank() else {})
        fused.step()
        for (name, param), (_, expected) in zip(sharded, plain, strict=True):
            same_bits(param, expected, name)


# --- Inside of tensor parallelism ----------------------------------------------------


def compare_cut(name, kind, stage, partial=()):
    """Ranks (2, 2) of zero and tensor parallelism, against one process."""
    mesh = hybrid.grid()
    made, grads = named_values(hybrid.SHAPES, 2, 3)
    plain = hybrid.named(made)
    reference = ALL[name](plain)
    params, said = hybrid.spread(kind, mesh, made, partial)
    zero = st.Zero(stage, "local", mesh["dp"].get_group(), bucket_bytes=300)
    fused = ALL[name](params, **said, zero=zero, fused_backward=True)
    for own in grads:
        both, scale = hybrid.mean(own), fused.loss_scale
        for key, param in plain:
            param.grad = both[key] * scale
        reference.step()
        mine = {n: g * scale for n, g in own[mesh.get_local_rank("dp")].items()}
        hybrid.backward(kind, mesh, params, mine, partial)
        fused.step()
        assert all(param.grad is None for _, param in params), (name, kind)
        hybrid.same_as(kind, mesh, params, dict(plain), f"{name}, {kind}, stage {stage}")


@case
def what_tensor_parallelism_has_cut():
    for kind, stage in itertools.product(hybrid.KINDS, (1, 2)):
        compare_cut("AdamW", kind, stage)
        compare_cut("hf.Adafactor" if stage == 1 else "AdamW, clipped", kind, stage)


@case
def gradients_that_are_partial():
    """A DTensor's comes as it is to be; one that a layout says is summed by the end of the step."""
    for kind, name in itertools.product(hybrid.KINDS[:2], ("AdamW", "hf.Adafactor")):
        compare_cut(name, kind, 2, partial=("norm",))


# --- What autograd and users do ------------------------------------------------------


@case
def frozen_parameters_and_those_that_thaw():
    def change(model, optimizer, number):
        model[0].weight.requires_grad_(number > 0)
        model[2].bias.requires_grad_(number != 1)
        optimizer.zero_grad()  # which looks for what has thawed

    def make(params, **more):
        params = list(params)
        params[0][1].requires_grad_(False)
        return st.AdamW(params, lr=1e-2, **more)

    compare(make, local(2), change=change, steps=4)


@case
def several_groups_and_one_that_is_added():
    def make(params, **more):
        params = list(params)
        groups = [
            {"params": params[:3], "lr": 1e-2},
            {"params": params[3:6], "lr": 1e-3, "weight_decay": 0.1},
        ]
        optimizer = st.AdamW(groups, **more)
        optimizer.later = params[6:]
        return optimizer

    def change(model, optimizer, number):
        for param in (p for _, p in optimizer.later):
            param.requires_grad_(number > 0)
        if number == 1:
            optimizer.add_param_group({"params": optimizer.later, "lr": 3e-3})

    for stage in (1, 2):
        compare(make, local(stage), change=change, steps=4)


@case
def weights_that_are_used_several_times():
    """Their gradient is whole once, when nothing of the pass reads them any more."""

    def tied(model, number):
        torch.manual_seed(1000 * number + dist.get_rank())
        out = model(torch.randn(5, 24))
        return (model(out) @ model[0].weight[:3].T).square().mean()

    compare(ELEMENTWISE["AdamW"], local(2), loss=tied)


@case
def what_is_recomputed():
    def recomputed(reentrant):
        def loss(model, number):
            torch.manual_seed(1000 * number + dist.get_rank())
            out = torch.randn(5, 24, requires_grad=True)
            for layer in model:
                out = checkpoint(layer, out, use_reentrant=reentrant)
            return out.square().mean()

        return loss

    for reentrant in (False, True):
        compare(ELEMENTWISE["AdamW"], local(2), loss=recomputed(reentrant))


@case
def what_would_read_a_new_weight_is_noticed():
    """A use that autograd has cut off is one of which the weight's gradient knows nothing."""
    model = net()
    optimizer = st.AdamW(model.named_parameters(), zero=local(2), fused_backward=True)
    first = torch.randn(5, 24, requires_grad=True)
    out = model(first @ model[6].weight.detach())
    try:
        out.square().mean().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error), error
    else:
        raise AssertionError("a new weight was read in the pass of the old one")
    optimizer.zero_grad()
    loss_of(model, 1).backward()
    optimizer.step()


@case
def a_gradient_set_by_hand_is_stepped():
    made, grads = exact(2)
    plain, sharded = named(made), named(made)
    reference, fused = st.AdamW(plain), st.AdamW(sharded, zero=local(1), fused_backward=True)
    for own in grads:
        for (_, a), (name, b) in zip(plain, sharded, strict=True):
            a.grad, b.grad = mean_of(own, {})[name], own[dist.get_rank()][name].clone()
        reference.step()
        fused.step()
        for (name, param), (_, expected) in zip(sharded, plain, strict=True):
            assert param.grad is None
            same_bits(param, expected, name)


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
    model, fused = compare(ELEMENTWISE["AdamW"], local(2))
    saved = fused.state_dict()
    other = st.AdamW(net().named_parameters(), lr=1e-2, zero=local(2), fused_backward=True)
    other.load_state_dict(saved)
    twin = net()
    twin.load_state_dict(model.state_dict())
    other = st.AdamW(twin.named_parameters(), lr=1e-2, zero=local(2), fused_backward=True)
    other.load_state_dict(saved)
    for own, optimizer in ((model, fused), (twin, other)):
        loss_of(own, 9).backward()
        optimizer.step()
    same_models(model, fused, twin, other, "loaded")


# --- LOMO ----------------------------------------------------------------------------


def lomo_pair(make, zero, steps=3):
    """With the mean over ranks of the gradient, as one process takes it."""
    model, twin = net(), net()
    optimizer, other = make(model, zero=zero), make(twin)
    for number in range(steps):
        mean, norms = sum(loss_of(twin, number, rank) for rank in range(4)) / 4, []
        for own, each, loss in (
            (model, optimizer, loss_of(model, number)),
            (twin, other, mean),
        ):
            if each.clip_grad_norm is not None:
                norm = each.grad_norm(loss)
                none_left(own)
                norms.append(float(norm))
            each.fused_backward(loss, 1e-2)
            none_left(own)
        if norms:
            torch.testing.assert_close(*map(torch.tensor, norms), rtol=1e-5, atol=0.0)
        for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=f"{name}, step {number}")
            every = [torch.empty_like(a) for _ in range(4)]
            dist.all_gather(every, a.detach())
            for own in every:
                same_bits(own, a, name)


@case
def lomo_and_adalomo():
    for kind, stage in itertools.product((st.lomo.Lomo, st.lomo.AdaLomo), (1, 2)):
        for clip in ({}, {"clip_grad_norm": 0.02}, {"clip_grad_value": 1e-3}):
            lomo_pair(lambda m, k=kind, c=clip, **more: k(m, **c, **more), local(stage))


@case
def lomo_with_gradients_that_are_reduced():
    for kind in (st.lomo.Lomo, st.lomo.AdaLomo):
        for norm in (None, 0.02):
            model, twin = reduced_by_hooks(net()), net()
            zero = st.Zero(1, gradients="reduced", bucket_bytes=3000)
            optimizer, other = (
                kind(model, clip_grad_norm=norm, zero=zero),
                kind(twin, clip_grad_norm=norm),
            )
            for number in range(2):
                mean = sum(loss_of(twin, number, rank) for rank in range(4)) / 4
                for own, each, loss in (
                    (model, optimizer, loss_of(model, number)),
                    (twin, other, mean),
                ):
                    if norm is not None:
                        each.grad_norm(loss)
                    each.fused_backward(loss, 1e-2)
                    none_left(own)
            for (name, a), b in zip(model.named_parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)


# --- Memory --------------------------------------------------------------------------


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
