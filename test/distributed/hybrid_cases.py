# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""zero=1 inside of tensor parallelism, tp = 2 x dp = 2, against one process."""

import io
import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from model import batch, loss_of
from models_cases import STEPS, model, near, slowly, tensor_parallel
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from zoo import ALL, some

SHAPES = {
    "up": (10, 6),
    "down": (6, 10),
    "bias": (10,),
    "norm": (6,),
    "experts": (4, 5, 6),
    "one": (1, 8),
}
CUT = {"up": 0, "bias": 0, "down": 1, "experts": 2, "one": 1}


def grid():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def mean(own):
    return {n: (own[0][n] + own[1][n]) / 2 for n in SHAPES}


def named(tensors):
    return [(name, torch.nn.Parameter(tensor.clone())) for name, tensor in tensors.items()]


def part(tensor, name, at):
    return tensor.chunk(2, CUT[name])[at].clone() if name in CUT else tensor


def layouts(mesh, partial=()):
    """As of the mesh of tensor parallelism alone, or of all."""
    beside = [] if mesh.ndim == 1 else [Replicate()]
    return [
        (
            name,
            st.Layout(
                mesh,
                [*beside, Shard(CUT[name]) if name in CUT else Replicate()],
                grad="partial" if name in partial else "reduced",
            ),
        )
        for name in SHAPES
    ]


def arguments(mesh, mode="local"):
    return {"zero": 1, "gradients": mode, "process_group": mesh["dp"].get_group()}


def spread(kind, mesh, made, partial=()):
    """Parameters and the optimizer's arguments of one way to say that tp cuts them."""
    at = mesh.get_local_rank("tp")
    if kind == "DTensor":
        cut = {n: Shard(d) for n, d in CUT.items()}
        own = {
            n: distribute_tensor(v.clone(), mesh["tp"], [cut.get(n, Replicate())])
            for n, v in made.items()
        }
        return [(n, torch.nn.Parameter(v)) for n, v in own.items()], {}
    params = named({n: part(v, n, at) for n, v in made.items()})
    of = mesh["tp"] if kind == "layouts of tp" else mesh
    return params, {"layouts": layouts(of, partial)}


def give(kind, mesh, params, own):
    at = mesh.get_local_rank("tp")
    for name, param in params:
        if kind == "DTensor":
            param.grad = distribute_tensor(own[name], mesh["tp"], param.placements)
        else:
            param.grad = part(own[name], name, at).clone()


def backward(kind, mesh, params, own, partial=()):
    """A pass with these gradients; of ``partial`` ones each tp rank has a share that is still
    to be summed."""
    at = mesh.get_local_rank("tp")
    loss = 0
    for name, param in params:
        share = (0.25, 0.75)[at] if name in partial else 1
        if kind == "DTensor":
            to = {"grad_placements": [Partial()]} if name in partial else {}
            param = param.to_local(**to)
        loss = loss + (param * part(own[name], name, at) * share).sum()
    loss.backward()


def same_as(kind, mesh, params, expected, what):
    at = mesh.get_local_rank("tp")
    for name, param in params:
        if kind == "DTensor":
            same_bits(whole(param), expected[name], f"{what}, {name}")
        else:
            same_bits(param, part(expected[name].detach(), name, at), f"{what}, {name}")


KINDS = ("DTensor", "layouts of tp", "layouts of all")


def compare(name, kind, mode="local", steps=3):
    mesh = grid()
    made, grads = named_values(SHAPES, 2, steps)
    plain = named(made)
    reference = ALL[name](plain)
    params, said = spread(kind, mesh, made)
    optimizer = ALL[name](params, **said, **arguments(mesh, mode))
    for own in grads:
        both = mean(own)
        for key, param in plain:
            param.grad = both[key].clone()
        reference.step()
        give(kind, mesh, params, own[mesh.get_local_rank("dp")] if mode == "local" else both)
        optimizer.step()
        same_as(kind, mesh, params, dict(plain), f"{name}, {kind}")
    return mesh, reference, optimizer, plain, params


@case
def every_optimizer_over_dtensors():
    for name in some("hybrid"):
        compare(name, "DTensor")


@case
def the_ways_to_say_it():
    for kind in KINDS[1:]:
        for name in ("AdamW", "hf.Adafactor", "CAME", "FusedLamb", "AdamW, clipped"):
            compare(name, kind, "local" if name != "CAME" else "reduced")


def compare_stage2(name, kind, passes=2, partial=(), **more):
    """With buckets smaller than all, against the mean of the sum over passes."""
    mesh = grid()
    made, grads = named_values(SHAPES, 2, 3 * passes)
    plain = named(made)
    reference = ALL[name](plain)
    params, said = spread(kind, mesh, made, partial)
    own = arguments(mesh) | {"zero": 2, "bucket_bytes": 200} | more
    optimizer = ALL[name](params, **said, **own)
    for step in range(3):
        of_step = grads[step * passes : (step + 1) * passes]
        optimizer.zero_grad()
        for of_pass in of_step:
            backward(kind, mesh, params, of_pass[mesh.get_local_rank("dp")], partial)
            left = {key for key, param in params if param.grad is not None}
            assert left == (set(partial) if kind != "DTensor" else set())
        for key, param in plain:
            param.grad = sum(mean(of_pass)[key] for of_pass in of_step)
        reference.step()
        optimizer.step()
        assert all(param.grad is None for _, param in params)
        same_as(kind, mesh, params, dict(plain), f"{name}, {kind}, step {step}")
    calls = optimizer._binding.plan.info().exchangeCalls
    assert calls > 3 * passes * 3, calls  # more than three buckets in a pass
    return optimizer


@case
def stage_2_of_every_optimizer_over_dtensors():
    for name in some("hybrid stage 2"):
        compare_stage2(name, "DTensor", 1)


@case
def stage_2_with_layouts_and_gradients_that_are_partial():
    for kind in ("DTensor", "layouts of tp"):
        for name in ("AdamW", "hf.Adafactor", "AdamW, clipped"):
            compare_stage2(name, kind, partial=("norm",))
    compare_stage2("AdamW", "layouts of all")
    # What is sent is rounded to the type; these gradients have few bits.
    for kind in ("DTensor", "layouts of tp"):
        compare_stage2("AdamW", kind, partial=("norm",), reduce_dtype=torch.bfloat16)


@case
def partial_gradients_cross_in_another_type():
    """Of a DTensor and of a plain parameter, with zero=1: as rounded, and widened again."""
    mesh = grid()
    generator = torch.Generator().manual_seed(3)
    shares = torch.randn(2, 40, generator=generator)
    expected = torch.nn.Parameter(torch.ones(40))
    reference = st.SGD([expected], lr=1.0)
    expected.grad = shares.bfloat16().sum(0).float()
    assert not torch.equal(expected.grad, shares.sum(0))
    reference.step()
    own = shares[mesh.get_local_rank("tp")]
    plain = torch.nn.Parameter(torch.ones(40))
    plain.grad = own.clone()
    how = [("w", st.Layout(mesh["tp"], [Replicate()], grad="partial"))]
    st.SGD([("w", plain)], lr=1.0, layouts=how, reduce_dtype=torch.bfloat16).step()
    same_bits(plain, expected, "plain")
    spread_out = torch.nn.Parameter(distribute_tensor(torch.ones(40), mesh["tp"], [Replicate()]))
    spread_out.grad = DTensor.from_local(own.clone(), mesh["tp"], [Partial()])
    st.SGD([spread_out], lr=1.0, reduce_dtype=torch.bfloat16).step()
    same_bits(whole(spread_out), expected, "DTensor")


@case
def states_are_shared():
    """Every element of a moment is on one rank, and no rank has much more than a fourth."""
    mesh, reference, optimizer, plain, params = compare("CAME", "DTensor")
    sizes = torch.tensor([optimizer.state[p]["exp_avg"].numel() for _, p in params])
    total = sizes.clone()
    dist.all_reduce(total)
    replicated = [2 if n not in CUT else 1 for n in SHAPES]
    assert total.tolist() == [k * p.numel() for k, (_, p) in zip(replicated, plain, strict=True)]
    assert sizes.sum() <= sum(p.numel() for _, p in plain) / 4 + 40
    full = optimizer.full_state_dict()["state"]
    for (key, own), expected in zip(
        full.items(), reference.state_dict()["state"].values(), strict=True
    ):
        assert set(own) == set(expected)
        for name, state in expected.items():
            same_bits(own[name], state, f"{key}, {name}")


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@case
def states_go_on_where_they_were():
    """By state_dict on the same rank, by full_state_dict, and by a checkpoint of parts."""
    place = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(place)
    for name in ("AdamW", "CAME", "hf.Adafactor"):
        for kind in KINDS[:2]:
            mesh, reference, optimizer, plain, params = compare(name, kind)
            state, full = through_a_file(optimizer.state_dict()), optimizer.full_state_dict()
            folder = f"{place[0]}/{name}/{kind}"
            dcp.save({"state": optimizer.state_dict()["state"]}, checkpoint_id=folder)
            others = {}
            for how in ("state_dict", "full", "checkpoint"):
                again, said = spread(kind, mesh, {k: p.detach() for k, p in plain})
                other = ALL[name](again, **said, **arguments(mesh))
                if how == "checkpoint":
                    give(kind, mesh, again, {n: torch.zeros(s) for n, s in SHAPES.items()})
                    other.param_groups[0]["lr"] = 0.0
                    other.step()
                    target = other.state_dict()
                    dcp.load({"state": target["state"]}, checkpoint_id=folder)
                    for group, then in zip(
                        target["param_groups"], state["param_groups"], strict=True
                    ):
                        group["lr"] = then["lr"]
                    other.load_state_dict(target)
                    again, _ = refilled(kind, mesh, again, plain)
                else:
                    other.load_state_dict(state if how == "state_dict" else full)
                others[how] = (other, again)
            _, grads = named_values(SHAPES, 2, 4)
            both = mean(grads[3])
            for key, param in plain:
                param.grad = both[key].clone()
            reference.step()
            for how, (other, again) in others.items():
                give(kind, mesh, again, grads[3][mesh.get_local_rank("dp")])
                other.step()
                same_as(kind, mesh, again, dict(plain), f"{name}, {kind}, {how}")


def refilled(kind, mesh, again, plain):
    at = mesh.get_local_rank("tp")
    with torch.no_grad():
        for (name, param), (_, value) in zip(again, plain, strict=True):
            own = part(value.detach(), name, at)
            (param.to_local() if kind == "DTensor" else param).copy_(own)
    return again, at


@case
def the_guide_of_colossalai():
    """Adafactor under HybridParallelPlugin, tp = 2 x zero = 2: a transformer, ten steps."""
    mesh = grid()
    for name in ("hf.Adafactor", "AdamW"):
        make = slowly(name)
        alone = model()
        reference = make(alone.parameters())
        net = tensor_parallel(model(), mesh["tp"])
        optimizer = make(net.parameters(), **arguments(mesh))
        shadows = [torch.nn.Parameter(whole(p).detach().clone()) for p in net.parameters()]
        other = make(shadows)
        at, losses, expected = mesh.get_local_rank("dp"), [], []
        for step in range(STEPS):
            tokens, targets = batch(step)
            reference.zero_grad()
            loss = loss_of(alone, tokens, targets)
            loss.backward()
            reference.step()
            expected.append(float(loss.detach()))
            optimizer.zero_grad()
            loss = loss_of(net, tokens.chunk(2)[at], targets.chunk(2)[at])
            loss.backward()
            # The mean over dp of the gradients that tp has, stepped whole.
            for own, param in zip(shadows, net.parameters(), strict=True):
                own.grad = whole(param.grad).clone()
                total = own.grad.clone()
                dist.all_reduce(total, group=mesh["dp"].get_group())
                own.grad = total / 2
            other.step()
            optimizer.step()
            losses.append(float(loss.detach()))
        for (key, param), shadow in zip(net.named_parameters(), shadows, strict=True):
            same_bits(whole(param), shadow, f"{name}, {key}")
        near(losses, expected)


@case
def the_guide_of_colossalai_with_stage_2():
    """The same, of which gradients are reduced in the backward pass: as with stage 1."""
    mesh = grid()
    for name in ("hf.Adafactor", "AdamW"):
        nets = [tensor_parallel(model(), mesh["tp"]) for _ in range(2)]
        make = slowly(name)
        both = [
            make(net.parameters(), **(arguments(mesh) | {"zero": stage}))
            for stage, net in enumerate(nets, 1)
        ]
        at, losses = mesh.get_local_rank("dp"), ([], [])
        for step in range(STEPS):
            tokens, targets = batch(step)
            for net, optimizer, own in zip(nets, both, losses, strict=True):
                optimizer.zero_grad()
                loss = loss_of(net, tokens.chunk(2)[at], targets.chunk(2)[at])
                loss.backward()
                optimizer.step()
                own.append(float(loss.detach()))
        for (key, one), two in zip(nets[0].named_parameters(), nets[1].parameters(), strict=True):
            same_bits(whole(one), whole(two), f"{name}, {key}")
        assert losses[0] == losses[1]


@case
def an_overflow_on_one_rank_skips_on_all():
    mesh = grid()
    made, grads = named_values(SHAPES, 2, 3)
    for kind in KINDS[:2]:
        params, said = spread(kind, mesh, made)
        optimizer = ALL["AdamW, clipped"](params, **said, **arguments(mesh))
        give(kind, mesh, params, grads[0][mesh.get_local_rank("dp")])
        own = params[0][1].grad
        if dist.get_rank() == 2:
            (own.to_local() if kind == "DTensor" else own)[0, 0] = float("inf")
        before = [whole(p).detach().clone() for _, p in params]
        optimizer.step()
        assert optimizer.last_step.skipped
        for (key, param), then in zip(params, before, strict=True):
            same_bits(whole(param), then, f"{kind}, {key}")


@case
def a_scaler_hears_of_an_overflow_at_the_other_corner():
    """Ranks that share no group learn it over two."""
    mesh = grid()
    made, grads = named_values(SHAPES, 2, 3)
    params, said = spread("layouts of tp", mesh, made)
    optimizer = ALL["AdamW"](params, **said, **arguments(mesh))
    scaler = st.GradScaler("cpu", init_scale=8.0)
    give("layouts of tp", mesh, params, grads[0][mesh.get_local_rank("dp")])
    if dist.get_rank() == 3:
        params[0][1].grad[0, 0] = float("inf")
    scaler.scale(torch.zeros(1))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4.0, scaler.get_scale()


@case
def what_is_refused():
    mesh = grid()
    made, grads = named_values(SHAPES, 2, 3)
    params, said = spread("DTensor", mesh, made)
    own = arguments(mesh) | {"process_group": mesh["tp"].get_group()}
    words = "'up' is another part on each rank of the process group"
    optimizer = ALL["AdamW"](params, **own)
    give("DTensor", mesh, params, grads[0][0])
    refused(words, optimizer.step)
    # A group of more ranks than those that have other parts, by default all of them.
    params, said = spread("DTensor", mesh, made)
    optimizer = ALL["AdamW"](params, zero=1, gradients="reduced")
    give("DTensor", mesh, params, grads[0][0])
    refused(words, optimizer.step)
    for kind in KINDS[:2]:  # before anything crosses
        params, said = spread(kind, mesh, made)
        refused(words, lambda p=params, s=said: ALL["AdamW"](p, **s, **(own | {"zero": 2})))


def refused(words, function):
    try:
        function()
    except errors.TensorError as error:
        assert words in str(error), error
    else:
        raise AssertionError("it was not refused")


if __name__ == "__main__":
    main()
