# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DTensor parameters on four ranks against the same steps of whole tensors.

Sums over ranks are f64 and are rounded where they meet a tensor: with these values they
give the bits of the whole, as almost always; in general they lie within a rounding of
the statistic (test/sharding has that bound).
"""

import copy
import math
import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from on_ranks import case, main, same_bits, whole
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from zoo import ALL, some

SHAPES = [(33, 20), (17,), (5, 7, 9), (130, 64), (1, 6), (3,)]
TWO_DIMS = [[Shard(0), Shard(1)], [Shard(0), Replicate()], [Shard(0), Shard(2)],
            [Shard(0), Shard(0)], [Replicate(), Shard(1)], [Shard(0), Shard(0)]]  # fmt: skip


def grid():
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def tensors(dtype=torch.float32, steps=4):
    params = [(torch.randn(s) * 0.1).to(dtype) for s in SHAPES]
    grads = [[torch.randn(s).to(dtype) for s in SHAPES] for _ in range(steps)]
    return params, grads


def parameters(values):
    return [torch.nn.Parameter(value.clone()) for value in values]


def spread(values, mesh, placements):
    return [
        torch.nn.Parameter(distribute_tensor(v.clone(), mesh, p))
        for v, p in zip(values, placements, strict=True)
    ]


def run(optimizer, params, grads, mesh=None, placements=None, absent=()):
    """Steps with these gradients; ``absent`` has pairs of step and parameter."""
    for k, own in enumerate(grads):
        for group in optimizer.param_groups:
            group["lr"] *= 0.9
        for i, (param, grad) in enumerate(zip(params, own, strict=True)):
            if (k, i) in absent:
                param.grad = None
            elif mesh is None:
                param.grad = grad.clone()
            else:
                param.grad = distribute_tensor(grad.clone(), mesh, placements[i])
        optimizer.step()


def compare(make, dtype=torch.float32, absent=()):
    mesh = grid()
    values, grads = tensors(dtype)
    plain, spread_out = parameters(values), spread(values, mesh, TWO_DIMS)
    reference, optimizer = make(plain), make(spread_out)
    run(reference, plain, grads, absent=absent)
    run(optimizer, spread_out, grads, mesh, TWO_DIMS, absent)
    for i, (a, b) in enumerate(zip(plain, spread_out, strict=True)):
        same_bits(whole(b), a, f"parameter {i}")
        assert set(optimizer.state[b]) == set(reference.state[a])
        for name, state in optimizer.state[b].items():
            expected = reference.state[a][name]
            scalar = name == "step" or name in optimizer._scalar_states
            assert isinstance(state, DTensor) != scalar, name
            same_bits(whole(state), expected, f"state {name} of {i}")
            if name != "step" and state.shape == b.shape:
                assert state.placements == b.placements
    return reference, optimizer


@case
def every_optimizer_in_f32():
    for make in some("dtensor f32").values():
        compare(make)


@case
def every_optimizer_in_bf16():
    for make in some("dtensor bf16").values():
        compare(make, torch.bfloat16)


@case
def an_estimate_of_the_hessian_is_of_each_ranks_part():
    mesh = grid()
    values, grads = tensors()
    plain, spread_out = parameters(values), spread(values, mesh, TWO_DIMS)
    for params, *where in ((plain,), (spread_out, mesh, TWO_DIMS)):
        optimizer = st.SophiaG(params, lr=1e-2, rho=1e-3)
        run(optimizer, params, grads[:2], *where)
        optimizer.update_hessian()
        run(optimizer, params, grads[2:], *where)
    for i, (a, b) in enumerate(zip(plain, spread_out, strict=True)):
        same_bits(whole(b), a, f"parameter {i}")
        assert optimizer.state[b]["hessian"].placements == b.placements
        assert float(whole(optimizer.state[b]["hessian"]).max()) > 0
    optimizer = st.SophiaG(plain, zero=1, gradients="reduced")
    try:
        optimizer.update_hessian()
    except ValueError as error:
        assert "a rank's states are of a part of the parameters" in str(error), error
    else:
        raise AssertionError("an estimate was taken with zero=1")


@case
def what_is_behind_16_bits_is_sharded_with_it():
    for dtype in (torch.bfloat16, torch.float16):
        compare(lambda params: st.AdamW(params, lr=1e-2, master="f32"), dtype)
    made, grads = tensors(torch.bfloat16)
    plain, spread_out = parameters(made), spread(made, mesh := grid(), TWO_DIMS)
    keywords = {"lr": 1e-2, "master": "remainder", "state_dtype": torch.bfloat16}
    reference, optimizer = st.AdamW(plain, **keywords), st.AdamW(spread_out, **keywords)
    run(reference, plain, grads)
    run(optimizer, spread_out, grads, mesh, TWO_DIMS)
    saved = optimizer.full_state_dict()["state"]
    for i, (a, b) in enumerate(zip(plain, spread_out, strict=True)):
        same_bits(whole(b), a, f"parameter {i}")
        assert isinstance(optimizer.state[b]["remainder"], DTensor)
        for name, expected in reference.state[a].items():
            same_bits(saved[i][name], expected, f"state {name} of {i}")


@case
def random_bits_are_those_of_the_whole():
    """Stochastic rounding, in both spaces and in states too."""
    for name in ("AdamW", "SGD", "hf.Adafactor", "CAME"):

        def rounded(params, name=name):
            keywords = {"state_dtype": torch.bfloat16, "seed": 7}
            return ALL[name](params, rounding="stochastic", **keywords)

        compare(rounded, torch.bfloat16, absent={(1, 2)})


@case
def random_bits_of_strided_shards():
    """What FSDP2 makes of a dim that tensor parallelism has cut is a block; where rows of
    ranks alternate an owner steps the whole."""
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = grid()
    value, grad = torch.randn(16, 6).bfloat16(), torch.randn(16, 6).bfloat16()
    plain = torch.nn.Parameter(value.clone())
    reference = st.AdamW([plain], lr=1e-2, rounding="stochastic")
    plain.grad = grad.clone()
    reference.step()
    block = [_StridedShard(0, split_factor=2), Shard(0)]
    alternating = [Shard(0), _StridedShard(0, split_factor=2)]
    for placements in (block, alternating):
        param = torch.nn.Parameter(distribute_tensor(value.clone(), mesh, placements))
        param.grad = distribute_tensor(grad.clone(), mesh, placements)
        optimizer = st.AdamW([param], lr=1e-2, rounding="stochastic")
        optimizer.step()
        same_bits(whole(param), plain, f"{placements}")
        assert ("rows alternate" in optimizer.describe_layouts()) == (placements is alternating)


@case
def averages_and_copies_lie_as_the_parameters():
    """Also behind masters; the model has its averages within ``averaged()``."""

    def make(params):
        keywords = {"master": "f32"} if params[0].dtype is torch.bfloat16 else {}
        average = st.EMA(0.9) if keywords else st.SWA()
        return st.AdamW(params, lr=1e-2, average=average, param_copy=torch.bfloat16, **keywords)

    for dtype in (torch.float32, torch.bfloat16):
        reference, optimizer = compare(make, dtype)
        saved = optimizer.full_state_dict()["state"]
        averages = optimizer.averaged_parameters()
        copies = optimizer.parameter_copies()
        for i, expected in enumerate(reference.averaged_parameters()):
            same_bits(whole(averages[i]), expected, f"average of {i}")
            same_bits(whole(copies[i]), reference.parameter_copies()[i], f"copy of {i}")
            assert any(value.equal(expected) for value in saved[i].values() if value.dim())
        params = optimizer.param_groups[0]["params"]
        before = [whole(p).clone() for p in params]
        with optimizer.averaged():
            for i, param in enumerate(params):
                same_bits(whole(param), whole(averages[i]).to(dtype), f"parameter {i} within")
        for i, param in enumerate(params):
            same_bits(whole(param), before[i], f"parameter {i} after")


@case
def a_gradient_missing_everywhere():
    for name in ("AdamW", "hf.Adafactor", "AdamW, clipped"):
        compare(ALL[name], absent={(0, 1), (2, 0), (2, 3)})


@case
def reports_are_those_of_the_whole():
    reference, optimizer = compare(ALL["AdamW, clipped"])
    # A sum of f64 in another order.
    ours, theirs = optimizer.last_step.grad_norm, reference.last_step.grad_norm
    assert math.isclose(ours, theirs, rel_tol=2**-48), (ours, theirs)
    assert optimizer.last_step.skipped == reference.last_step.skipped
    assert optimizer.loss_scale == reference.loss_scale


@case
def an_overflow_on_one_rank_skips_on_all():
    mesh = grid()
    values, grads = tensors()
    params = spread(values, mesh, TWO_DIMS)
    optimizer = ALL["AdamW, clipped"](params)
    run(optimizer, params, grads[:1], mesh, TWO_DIMS)
    before = [whole(p).clone() for p in params]
    for param, grad, placement in zip(params, grads[1], TWO_DIMS, strict=True):
        param.grad = distribute_tensor(grad.clone(), mesh, placement)
    if dist.get_rank() == 2:
        params[3].grad.to_local()[0, 0] = float("inf")
    optimizer.step()
    assert optimizer.last_step.skipped and optimizer.loss_scale == 1.0
    for i, (param, then) in enumerate(zip(params, before, strict=True)):
        same_bits(whole(param), then, f"parameter {i}")
    assert all(float(optimizer.state[p]["step"]) == 1 for p in params)


@case
def gradients_in_other_placements():
    mesh = grid()
    values, grads = tensors()
    placements = [[Replicate(), Replicate()] for _ in SHAPES]
    for name in ("AdamW", "CAME"):
        plain, spread_out = parameters(values), spread(values, mesh, placements)
        reference, optimizer = ALL[name](plain), ALL[name](spread_out)
        for own in grads:
            for i, (a, b, grad) in enumerate(zip(plain, spread_out, own, strict=True)):
                a.grad = 4 * grad
                if i % 2:  # the same on all ranks, still to be summed: exact, by powers of 2
                    b.grad = DTensor.from_local(grad.clone(), mesh, [Partial(), Partial()])
                else:
                    b.grad = distribute_tensor(4 * grad, mesh, [Shard(0), Replicate()])
            reference.step()
            optimizer.step()
        for i, (a, b) in enumerate(zip(plain, spread_out, strict=True)):
            same_bits(whole(b), a, f"{name}, parameter {i}")


def otherwise(grad, mesh, placement, step):
    """A gradient that lies as the parameter; in other placements; transposed in memory; in
    bfloat16."""
    if step % 4 == 1:
        return distribute_tensor(grad, mesh, [Replicate(), Shard(0)])
    spread_out = distribute_tensor(grad.bfloat16() if step % 4 == 3 else grad, mesh, placement)
    if step % 4 != 2:
        return spread_out
    local = spread_out.to_local()
    turned = local.mT.contiguous().mT if local.dim() > 1 else local.repeat_interleave(2)[::2]
    return DTensor.from_local(turned, mesh, placement, shape=grad.shape, stride=grad.stride())


@case
def gradients_of_another_kind_in_each_step():
    """What a gradient is like is read anew in each step."""
    mesh = grid()
    values, grads = tensors(steps=5)
    for name in ("AdamW", "CAME", "AdamW, clipped"):
        plain, spread_out = parameters(values), spread(values, mesh, TWO_DIMS)
        reference, optimizer = ALL[name](plain), ALL[name](spread_out)
        for step, own in enumerate(grads):
            for a, b, grad, placement in zip(plain, spread_out, own, TWO_DIMS, strict=True):
                a.grad = b.grad = a.grad_dtype = b.grad_dtype = None
                a.grad = grad.bfloat16() if step % 4 == 3 else grad.clone()
                b.grad = otherwise(grad, mesh, placement, step)
            reference.step()
            optimizer.step()
            for i, (a, b) in enumerate(zip(plain, spread_out, strict=True)):
                same_bits(whole(b), a, f"{name}, step {step}, parameter {i}")


@case
def several_meshes_and_whole_parameters():
    mesh = grid()
    values, grads = tensors()
    places = [(mesh, [Shard(0), Shard(1)]), (mesh["dp"], [Shard(0)]), (mesh["tp"], [Shard(2)]),
              None, (mesh["tp"], [Replicate()]), None]  # fmt: skip
    for name in ("AdamW", "AdamW, clipped", "hf.Adafactor", "FusedLamb"):
        plain = parameters(values)
        mixed = [
            torch.nn.Parameter(v.clone() if p is None else distribute_tensor(v.clone(), *p))
            for v, p in zip(values, places, strict=True)
        ]
        reference, optimizer = ALL[name](plain), ALL[name](mixed)
        for own in grads:
            for a, b, grad, place in zip(plain, mixed, own, places, strict=True):
                a.grad = grad.clone()
                b.grad = grad.clone() if place is None else distribute_tensor(grad.clone(), *place)
            reference.step()
            optimizer.step()
        for i, (a, b) in enumerate(zip(plain, mixed, strict=True)):
            same_bits(whole(b), a, f"{name}, parameter {i}")


@case
def groups_schedulers_and_added_groups():
    mesh = grid()
    values, grads = tensors()
    plain, spread_out = parameters(values), spread(values, mesh, TWO_DIMS)

    def make(params):
        optimizer = st.AdamW([{"params": params[:2], "lr": 1e-3}, {"params": params[2:4]}])
        return optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    made = [make(plain), make(spread_out)]
    for k, own in enumerate(grads):
        for (optimizer, scheduler), params in zip(made, (plain, spread_out), strict=True):
            if k == 2:
                optimizer.add_param_group({"params": params[4:], "weight_decay": 0.1})
            for param, grad, placement in zip(params, own, TWO_DIMS, strict=True):
                param.grad = (
                    grad.clone() if params is plain else distribute_tensor(grad, mesh, placement)
                )
            optimizer.step()
            scheduler.step()
    for i, (a, b) in enumerate(zip(plain, spread_out, strict=True)):
        same_bits(whole(b), a, f"parameter {i}")


@case
def a_state_dict_goes_on_where_it_was():
    mesh = grid()
    values, grads = tensors()
    for name in ("AdamW", "CAME", "AdamW, clipped"):
        params = spread(values, mesh, TWO_DIMS)
        optimizer = ALL[name](params)
        run(optimizer, params, grads[:2], mesh, TWO_DIMS)
        copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
        again = ALL[name](copies)
        again.load_state_dict(optimizer.state_dict())
        run(optimizer, params, grads[2:], mesh, TWO_DIMS)
        run(again, copies, grads[2:], mesh, TWO_DIMS)
        for i, (a, b) in enumerate(zip(params, copies, strict=True)):
            same_bits(whole(b), whole(a), f"{name}, parameter {i}")


@case
def a_checkpoint_loads_in_another_layout():
    mesh = grid()
    other = [[Shard(1), Replicate()], [Replicate(), Shard(0)], [Shard(2), Shard(0)],
             [Replicate(), Replicate()], [Shard(0), Shard(1)], [Replicate(), Shard(0)]]  # fmt: skip
    values, grads = tensors()
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    for name in ("AdamW", "CAME"):
        params, moved = spread(values, mesh, TWO_DIMS), spread(values, mesh, other)
        optimizer, again = ALL[name](params), ALL[name](moved)
        run(optimizer, params, grads[:2], mesh, TWO_DIMS)
        run(again, moved, grads[:1], mesh, other)  # makes states to load into
        saved = {"state": {str(i): optimizer.state[p] for i, p in enumerate(params)}}
        dcp.save(saved, checkpoint_id=f"{folder[0]}/{name}")
        target = {"state": {str(i): dict(again.state[p]) for i, p in enumerate(moved)}}
        dcp.load(target, checkpoint_id=f"{folder[0]}/{name}")
        for i, param in enumerate(moved):
            for key, value in target["state"][str(i)].items():
                same_bits(whole(value), whole(optimizer.state[params[i]][key]), f"{name} {key}")
            again.state[param] = target["state"][str(i)]
            with torch.no_grad():
                param.copy_(distribute_tensor(whole(params[i]), mesh, other[i]))
        for group in again.param_groups:
            group["lr"] = optimizer.param_groups[0]["lr"]
        run(optimizer, params, grads[2:], mesh, TWO_DIMS)
        run(again, moved, grads[2:], mesh, other)
        for i, (a, b) in enumerate(zip(params, moved, strict=True)):
            same_bits(whole(b), whole(a), f"{name}, parameter {i}")


@case
def a_full_state_loads_in_one_process_and_back():
    mesh = grid()
    values, grads = tensors()
    for name in ("AdamW", "CAME", "hf.Adafactor"):
        params = spread(values, mesh, TWO_DIMS)
        optimizer = ALL[name](params)
        run(optimizer, params, grads[:2], mesh, TWO_DIMS)
        full = optimizer.full_state_dict()
        plain = [torch.nn.Parameter(whole(p).detach().clone()) for p in params]
        alone = ALL[name](plain)
        alone.load_state_dict(full)
        copies = [torch.nn.Parameter(p.detach().clone()) for p in params]
        again = ALL[name](copies)
        again.load_state_dict(alone.state_dict())
        for own, where in ((optimizer, params), (again, copies)):
            run(own, where, grads[2:], mesh, TWO_DIMS)
        run(alone, plain, grads[2:])
        for i, (a, b, c) in enumerate(zip(params, plain, copies, strict=True)):
            same_bits(b, whole(a), f"{name} in one process, parameter {i}")
            same_bits(whole(c), whole(a), f"{name} back, parameter {i}")


@case
def a_state_in_other_placements_is_refused():
    mesh = grid()
    values, grads = tensors()
    params = spread(values, mesh, TWO_DIMS)
    optimizer = st.AdamW(params)
    run(optimizer, params, grads[:1], mesh, TWO_DIMS)
    state = optimizer.state[params[0]]
    state["exp_avg"] = state["exp_avg"].redistribute(mesh, [Replicate(), Replicate()])
    before = whole(params[0]).clone()
    try:
        optimizer.step()
    except errors.TensorError as error:
        assert "state 'exp_avg' of parameter 0 of group 0 has placements" in str(error), error
    else:
        raise AssertionError("it was not refused")
    same_bits(whole(params[0]), before, "parameter")


@case
def first_gradients_come_at_different_steps():
    for name in ("AdamW", "CAME", "AdamW, clipped", "Adagrad"):
        compare(ALL[name], absent={(0, 0), (0, 3), (1, 3), (0, 5), (1, 5), (2, 5)})


@case
def a_first_gradient_after_a_load_comes_later():
    """What steps make then is seen, and saved."""
    mesh = grid()
    values, grads = tensors()
    plain, spread_out = parameters(values), spread(values, mesh, TWO_DIMS)
    reference, optimizer = ALL["AdamW"](plain), ALL["AdamW"](spread_out)
    run(reference, plain, grads[:1])
    run(optimizer, spread_out, grads[:1], mesh, TWO_DIMS)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    absent = {(0, 0), (0, 3)}
    run(reference, plain, grads[1:], absent=absent)
    run(optimizer, spread_out, grads[1:], mesh, TWO_DIMS, absent)
    expected = reference.state_dict()["state"]
    for i, own in optimizer.state_dict()["state"].items():
        same_bits(whole(spread_out[i]), plain[i], f"parameter {i}")
        for name, state in own.items():
            same_bits(whole(state), expected[i][name], f"{name} of {i}")


@case
def elementwise_definitions_exchange_nothing():
    mesh = grid()
    values, grads = tensors()
    params = spread(values, mesh, TWO_DIMS)
    optimizer = st.AdamW(params)
    run(optimizer, params, grads, mesh, TWO_DIMS)
    info = optimizer._binding.plan.info()
    assert (info.exchangeRounds, info.exchangeCalls) == (0, 0)


@case
def rounds_do_not_grow_with_tensors():
    """Clipping 1, LAMB 1, Adafactor 1, CAME 2 where rows are shared out and whole."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    expected = {"clip": 1, "FusedLamb": 1, "hf.Adafactor": 1, "CAME": 2}
    zoo = ALL | {"clip": lambda params: st.AdamW(params, clip=st.ClipByNorm(1.0))}
    for name, rounds in expected.items():
        for number in (1, 4):
            params = spread([torch.randn(9, 6) for _ in range(number)], mesh, [[Shard(0)]] * number)
            optimizer = zoo[name](params)
            for param in params:
                param.grad = distribute_tensor(torch.randn(9, 6), mesh, [Shard(0)])
            optimizer.step()
            info = optimizer._binding.plan.info()
            found = (info.exchangeRounds, info.exchangeCalls)
            assert found == (rounds, rounds), (name, number, found)


if __name__ == "__main__":
    main()
