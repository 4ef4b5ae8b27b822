# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Norms of gradients that lie in every way, and what stages have in common, on four ranks."""

import math

import stepc.torch as st
import torch
import torch.distributed as dist
from layouts_cases import named, parts, refused, stepped, values
from on_ranks import case, main, same_bits
from on_ranks import whole as whole_of
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from zoo import ALL


@case
def the_norm_of_gradients_that_lie_in_every_way():
    """Two meshes, whole tensors, stages and two optimizers: as of one vector."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    stage, at = grid.get_local_rank("pp"), grid.get_local_rank("tp")
    made, _ = values()
    stages = [values(seed)[1][0] for seed in range(2)]
    spread = torch.randn(7, 5)
    everything = [g for grads in stages for g in grads.values()] + [2 * spread, spread[0]]
    plain = [torch.nn.Parameter(torch.zeros_like(g)) for g in everything]
    dtensors = [
        torch.nn.Parameter(distribute_tensor(torch.zeros(7, 5), grid["tp"], [Shard(0)])),
        torch.nn.Parameter(torch.zeros(5)),
    ]
    layouts = [
        ("up|bias", st.Layout(grid, ["distinct", Shard(0)])),
        ("down", st.Layout(grid, ["distinct", Shard(1)])),
        (".*", st.Layout(grid, ["distinct", Replicate()])),
    ]
    params = named(parts(made, at, 2))
    optimizer = st.AdamW(params, layouts=layouts)
    for norm_type in (2.0, math.inf):
        for param, grad in zip(plain, everything, strict=True):
            param.grad = grad.clone()
        for key, param in params:
            param.grad = parts(stages[stage], at, 2)[key].clone()
        dtensors[0].grad = distribute_tensor(2 * spread, grid["tp"], [Shard(0)])
        dtensors[1].grad = spread[0].clone()
        wide = torch.cat([p.grad.double().flatten() for p in plain])
        expected = torch.linalg.vector_norm(wide, norm_type)
        # Both stages have the DTensor and the plain tensor: they count once.
        norm = st.clip_grad_norm_([optimizer, *dtensors], 0.5, norm_type)
        assert math.isclose(float(norm), float(expected), rel_tol=2**-45), (norm, expected)
        coefficient = 0.5 / (float(expected) + 1e-6)
        for key, param in params:
            wanted = parts(stages[stage], at, 2)[key] * coefficient
            assert torch.allclose(param.grad, wanted, rtol=1e-6, atol=0), key
    for _, param in params:
        param.grad.fill_(float("nan") if dist.get_rank() == 3 else 1.0)
    assert st.clip_grad_norm_(optimizer, 1.0, math.inf).isnan()


HELD = {"first and last": (0, 3), "second and last": (1, 3), "third alone": (2,)}


def tied(mesh, holders, tied_layout, name="tied"):
    """A tensor that some stages have, one that all have, and one of each stage's own; the same
    as one process has them."""
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(3)
    sizes = [(5, 4), (6,), *[(3, 2)] * 4]
    values, grads = ([torch.randn(s, generator=generator) for s in sizes] for _ in range(2))
    own = {"whole": 1, "own": 2 + rank} | ({name: 0} if rank in holders else {})
    params = named({key: values[place] for key, place in own.items()})
    for key, param in params:
        param.grad = grads[own[key]].clone()
    layouts = [
        ("tied.*", tied_layout),
        ("whole", None),
        ("own", st.Layout(mesh, ["distinct"])),
    ]
    everything = [torch.nn.Parameter(v.clone()) for v in values]
    for param, grad in zip(everything, grads, strict=True):
        param.grad = grad.clone()
    return params, layouts, own, everything


@case
def the_norm_counts_what_stages_have_in_common_once():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    for words, holders in HELD.items():
        shared = None if holders[0] == 0 else "pp"
        for norm_type in (2.0, math.inf):
            how = st.Layout(mesh, [Replicate()], shared_over=shared)
            params, layouts, own, everything = tied(mesh, holders, how)
            optimizer = st.SGD(params, lr=0.1, layouts=layouts)
            # Beside them one that the stages have cut.
            whole = torch.nn.Parameter(torch.zeros(8, 2))
            whole.grad = torch.arange(16.0).view(8, 2) / 8
            cut = torch.nn.Parameter(distribute_tensor(whole.detach(), mesh, [Shard(0)]))
            cut.grad = distribute_tensor(whole.grad, mesh, [Shard(0)])
            everything.append(whole)
            norm = st.clip_grad_norm_([optimizer, cut], 0.3, norm_type)
            expected = torch.nn.utils.clip_grad_norm_(everything, 0.3, norm_type)
            assert math.isclose(norm, expected, rel_tol=1e-6), (words, norm, expected)
            for key, param in params:
                assert torch.allclose(param.grad, everything[own[key]].grad), (words, key)


@case
def the_norm_in_the_step_counts_what_later_stages_share_once():
    """Also under another name on each stage."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    for words, holders in HELD.items():
        how = st.Layout(mesh, [Replicate()], shared_over="pp")
        name = f"tied.{dist.get_rank()}"
        params, layouts, own, everything = tied(mesh, holders, how, name)
        clip = {"lr": 0.1, "clip": st.ClipByNorm(0.3)}
        alone, optimizer = st.SGD(everything, **clip), st.SGD(params, **clip, layouts=layouts)
        alone.step()
        optimizer.step()
        ours, theirs = optimizer.last_step.grad_norm, alone.last_step.grad_norm
        assert math.isclose(ours, theirs, rel_tol=2**-48), (words, ours, theirs)
        for key, param in params:
            same_bits(param, everything[own[key]], f"{words}, {key}")


@case
def stages_sum_the_gradient_of_what_they_share():
    """Each has its own of two tensors, in another order, that some stages have; where a stage
    has none of one, the others' counts. Also beside tensor parallelism, and on one stage."""
    grid = init_device_mesh("cpu", (4, 1), mesh_dim_names=("pp", "tp"))
    held = {"a": (0, 2, 3), "b": (2, 3), "c": (1,)}
    rank = dist.get_rank()
    how = st.Layout(grid, [Replicate()] * 2, "partial", grad_divisor=2.0, shared_over="pp")
    layouts = [("([abc])", how), (".*", st.Layout(grid, ["distinct", Replicate()]))]
    own = [torch.randint(-8, 9, (3, 4)) / 16.0 for _ in range(4)]
    for name, stage in [("AdamW, clipped", 0), ("CAME", 0), ("CAME", 1), ("AdamW", 2)]:
        group = grid["tp"].get_group()
        zero = {"zero": stage, "gradients": "local", "process_group": group} if stage else {}
        names = [n for n in sorted(held, reverse=rank == 3) if rank in held[n]]
        made = {n: torch.full((3, 4), 0.5) for n in [*names, f"own{rank}"]}
        params = named(made)
        optimizer = ALL[name](params, layouts=layouts, **zero)
        every = ["a", "b", "c", *(f"own{r}" for r in range(4))]
        plain = named({n: torch.full((3, 4), 0.5) for n in every})
        alone = ALL[name](plain)
        for step in range(3):
            for n, param in plain:
                holders = [r for r in held.get(n, ()) if (step, n, r) != (1, "a", 2)]
                param.grad = sum(own[r] for r in holders) / 2 if n in held else own[int(n[3])]
            optimizer.zero_grad()
            for n, param in params:
                param.grad = None if (step, n, rank) == (1, "a", 2) else own[rank].clone()
            alone.step()
            optimizer.step()
            for n, param in params:
                same_bits(param, dict(plain)[n], f"{name}, zero={stage}, step {step}, {n}")
    one = init_device_mesh("cpu", (1, 4), mesh_dim_names=("pp", "tp"))
    how = st.Layout(one, [Replicate()] * 2, shared_over="pp")
    stepped(named({"tied": torch.ones(3)}), layouts=[("tied", how)])


@case
def what_stages_sum_is_to_be_alike():
    """Also where ranks have other numbers of process groups."""
    if dist.get_rank() == 3:
        dist.new_group([3], use_local_synchronization=True)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    how = st.Layout(mesh, [Replicate()], "partial", shared_over="pp")
    shape = (3, 4) if dist.get_rank() == 3 else (4, 3)
    names = {"tied": torch.ones(shape)} if dist.get_rank() in (0, 3) else {}
    params = named({**names, f"own{dist.get_rank()}": torch.ones(2)})
    layouts = [("tied", how), (".*", st.Layout(mesh, ["distinct"]))]
    if names:
        refused(errors.CommunicationError, "exchanges other things than rank",
                lambda: stepped(params, layouts=layouts))  # fmt: skip
    else:
        stepped(params, layouts=layouts)


@case
def a_tensor_that_no_rank_counts_is_refused():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    words = "parameter 'tied' of rank 1 is whole along ranks 0, 1, 2, 3, of which rank 0"
    for how in (st.Layout(mesh, [Replicate()]), None):
        params, layouts, own, everything = tied(mesh, (1, 3), how)
        before = [param.detach().clone() for _, param in params]
        clipped = st.SGD(params, lr=0.1, clip=st.ClipByNorm(0.3), layouts=layouts)
        refused(errors.TensorError, words, clipped.step)
        for (key, param), then in zip(params, before, strict=True):
            same_bits(param, then, key)
        plain = st.SGD(params, lr=0.1, layouts=layouts)
        refused(errors.TensorError, words, lambda own=plain: st.clip_grad_norm_(own, 1.0))
        plain.step()  # counts nothing
        for param, value in zip(everything, everything, strict=True):
            value.data -= 0.1 * param.grad
        for key, param in params:
            assert torch.allclose(param, everything[own[key]]), key
    both = named({"tied.0": torch.ones(2), "tied.1": torch.ones(2)})
    for _, param in both:
        param.grad = torch.ones(2)
    how = st.Layout(mesh, [Replicate()], shared_over="pp")
    one = st.SGD(both, lr=0.1, layouts=[("tied.*", how)])
    refused(errors.TensorError, "'tied.0' and parameter 'tied.1' of rank 0 are of one layout",
            one.step)  # fmt: skip
    st.SGD(both, lr=0.1, layouts=[(r"tied\.(.*)", how)]).step()


@case
def a_norm_of_gradients_still_to_be_summed_is_refused():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    for partial in ({"grad": "partial"}, {"grad_divisor": 2.0}):
        params = named({"norm": torch.ones(6)})
        params[0][1].grad = torch.ones(6)
        layouts = [(".*", st.Layout(mesh, [Replicate()], **partial))]
        optimizer = st.AdamW(params, layouts=layouts)
        refused(ValueError, "is to be summed or divided by its optimizer's step first",
                lambda own=optimizer: st.clip_grad_norm_(own, 1.0))  # fmt: skip
        same_bits(params[0][1].grad, torch.ones(6), "the gradient")
    local = st.AdamW([torch.nn.Parameter(torch.ones(2))], zero=1, gradients="local")
    refused(ValueError, "an optimizer with gradients='local' takes their mean in its step",
            lambda: st.clip_grad_norm_(local, 1.0))  # fmt: skip


@case
def a_stage_without_parameters_takes_part():
    """The norm is that of what the others have, in the step and by itself."""
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("pp",))
    rank = dist.get_rank()
    stages = [values(stage) for stage in range(4)]
    for name in ("AdamW", "AdamW, clipped"):
        everything = {f"{s}.{k}": v for s in (0, 1, 3) for k, v in stages[s][0].items()}
        plain = named(everything)
        own = named({} if rank == 2 else {f"{rank}.{k}": v for k, v in stages[rank][0].items()})
        layouts = [(".*", st.Layout(mesh, ["distinct"]))]
        alone, optimizer = ALL[name](plain), ALL[name]([{"params": own}], layouts=layouts)
        for step in range(2):
            for params in (plain, own):
                for key, param in params:
                    stage, _, of_stage = key.partition(".")
                    param.grad = stages[int(stage)][1][step][of_stage].clone()
            expected = torch.nn.utils.clip_grad_norm_([p for _, p in plain], 1.0)
            norm = st.clip_grad_norm_(optimizer, 1.0)
            assert math.isclose(norm, expected, rel_tol=1e-6), (norm, expected)
            for params in (plain, own):
                for key, param in params:
                    stage, _, of_stage = key.partition(".")
                    param.grad = stages[int(stage)][1][step][of_stage].clone()
            alone.step()
            optimizer.step()
            whole = dict(plain)
            for key, param in own:
                same_bits(param, whole[key], key)
        optimizer.load_state_dict(optimizer.state_dict())


@case
def dtensors_of_stages():
    """Layouts say which DTensors are of a stage: the norm is that of all stages, in the step and by
    itself, with a DTensor and a plain tensor that both stages have."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    stage = grid.get_local_rank("pp")
    made, grads = ({k: torch.randn(8, 6) for k in ("own0", "own1", "tied", "plain")} for _ in "ab")
    own = {"own": f"own{stage}", "tied": "tied", "plain": "plain"}
    shared, others = [Replicate(), Replicate()], ["distinct", Replicate()]

    def cut(name, tensor):
        return (
            tensor.clone() if name == "plain" else distribute_tensor(tensor, grid["tp"], [Shard(0)])
        )

    layouts = [("tied|plain", st.Layout(grid, shared)), (".*", st.Layout(grid, others))]
    params = {k: torch.nn.Parameter(cut(k, made[of])) for k, of in own.items()}
    whole = {k: torch.nn.Parameter(v.clone()) for k, v in made.items()}
    clip = {"lr": 0.1, "clip": st.ClipByNorm(0.3)}
    optimizer = st.SGD(list(params.items()), **clip, layouts=layouts)
    alone = st.SGD(list(whole.values()), **clip)
    for key, param in whole.items():
        param.grad = grads[key].clone()
    for key, param in params.items():
        param.grad = cut(key, grads[own[key]])
    norm = st.clip_grad_norm_(optimizer, 1e9)
    expected = torch.nn.utils.get_total_norm(list(grads.values()))
    assert math.isclose(norm, expected, rel_tol=1e-6), (norm, expected)
    optimizer.step()
    alone.step()
    ours, theirs = optimizer.last_step.grad_norm, alone.last_step.grad_norm
    assert math.isclose(ours, theirs, rel_tol=2**-48), (ours, theirs)
    for key, param in params.items():
        same_bits(whole_of(param), whole[own[key]], key)
    lies = optimizer.describe_layouts()
    assert "(8, 6)  (4, 6)  others along pp, dim 0 over tp" in lies, lies


@case
def what_layouts_cannot_say_of_a_dtensor():
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    for placements, more, words in (
        ([Replicate(), Shard(1)], {}, "lies there as S(0); its layout has S(1) along tp"),
        ([Shard(0), Replicate()], {}, "is not of its mesh; its layout has S(0) along pp"),
        (["distinct", "distinct"], {}, "its layout has distinct along tp"),
        (["distinct", Replicate()], {"grad": "partial"}, "whose gradient says itself what is to"),
    ):
        param = torch.nn.Parameter(distribute_tensor(torch.ones(4, 4), grid["tp"], [Shard(0)]))
        layouts = [(".*", st.Layout(grid, placements, **more))]
        optimizer = st.SGD([("own", param)], lr=0.1, layouts=layouts)
        param.grad = param.detach().clone()
        refused(errors.TensorError, words, optimizer.step)
    layouts = [(".*", st.Layout(grid, ["distinct", Replicate()]))]
    optimizer = st.SGD([param], lr=0.1, layouts=layouts, clip=st.ClipByNorm(1.0))
    refused(errors.TensorError, "has no name; layouts needs named parameters", optimizer.step)


@case
def stages_whose_passes_wait_for_each_other():
    """As of a pipeline: with ``Zero(2)`` the first pass makes the plan, and a stage cannot ask the
    one before, whose pass begins when this one is over."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    stage, replicas = grid.get_local_rank("pp"), grid["dp"].get_group()
    beside = dist.get_rank() + (2 if stage == 0 else -2)
    others = st.Layout(grid, ["distinct", Replicate()])
    made = [torch.randn(4, 6), torch.randn(4, 6)]
    param = torch.nn.Parameter(made[stage].clone())
    whole = [torch.nn.Parameter(value.clone()) for value in made]
    clip = {"lr": 0.1, "clip": st.ClipByNorm(0.3)}
    zero = st.Zero(2, process_group=replicas)
    optimizer = st.SGD([("own", param)], **clip, layouts=[(".*", others)], zero=zero)
    alone = st.SGD(whole, **clip)
    for _ in range(2):
        word = torch.zeros(1)
        if stage == 0:
            dist.recv(word, beside)
        param.square().sum().backward()
        if stage == 1:
            dist.send(word, beside)
        optimizer.step()
        sum(other.square().sum() for other in whole).backward()
        alone.step()
        alone.zero_grad()
        optimizer.zero_grad()
        same_bits(param, whole[stage], "the parameter")


if __name__ == "__main__":
    main()
