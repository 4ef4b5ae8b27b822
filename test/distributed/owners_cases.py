# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters whose rules cannot be sharded as they lie: an owner steps the whole of each. On
four ranks against one process, to the bit."""

import io
import re
import tempfile
import warnings
from pathlib import Path

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import viewed
from named_values import named_values
from on_ranks import case, main, same_bits, whole
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

DEFINITION = Path(__file__).parent / "definitions" / "square.mlir"
SHAPES = {
    "query": (10, 10),
    "norm": (7,),
    "key": (6, 6),
    "up": (10, 6),
    "tiny": (2, 2),
    "row": (1, 9),
    "gate": (1, 1),
}
ONLY = {"query": (10, 10)}  # so that other ranks have nothing to step


def grid(names=("dp", "tp")):
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=names)


def line():
    return init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))


MATRICES = {"up": (10, 6), "down": (6, 10), "query": (9, 9), "row": (1, 7), "gate": (1, 1)}


def make(params, muon=False, galore=None, soap=None, shampoo=None, kind=st.GaLoreAdamW, **more):
    if shampoo:
        return st.Shampoo(params, lr=0.05, **shampoo, **more)
    if soap:
        return st.SOAP(params, lr=0.05, **soap, **more)
    if muon:
        kind = st.Muon if muon is True else muon
        return kind(params, lr=0.05, **more)
    if galore is not None:
        group = {"rank": 3, "update_proj_gap": 3, **galore}
        return kind([{"params": params, **group}], lr=0.05, **more)
    return st.Optimizer(params, DEFINITION, lr=0.05, **more)


def placements(way, shape):
    """Those of the mesh's dims."""
    last = Shard(len(shape) - 1)
    return {
        "fsdp2": [Shard(0)],
        "hsdp": [Replicate(), Shard(0)],
        "tp0": [Replicate(), Shard(0)],
        "tp1": [Replicate(), last],
        "tp x fsdp2": [Shard(0), last],
        "both of one dim": [Shard(0), Shard(0)],
    }[way]


def reference(made, grads, more=None, absent=()):
    """One process: its parameters after each step, and the optimizer."""
    params = [(n, torch.nn.Parameter(v.clone())) for n, v in made.items()]
    optimizer, after = make(params, **(more or {})), []
    for step, own in enumerate(grads):
        for name, param in params:
            param.grad = None if (step, name) in absent else own[name].clone()
        optimizer.step()
        after.append({n: p.detach().clone() for n, p in params})
    return params, optimizer, after


def spread(way, mesh, made):
    return [
        (n, torch.nn.Parameter(distribute_tensor(v.clone(), mesh, placements(way, v.shape))))
        for n, v in made.items()
    ]


def give(params, own, absent=()):
    for name, param in params:
        grad = distribute_tensor(own[name].clone(), param.device_mesh, param.placements)
        param.grad = None if name in absent else grad


def same_states(optimizer, params, expected, plain, what):
    full = optimizer.full_state_dict()["state"]
    for number, ((name, param), (_, alone)) in enumerate(zip(params, plain, strict=True)):
        own, theirs = optimizer.state[param], expected.state[alone]
        assert set(own) == set(theirs), f"{what}, {name}: {set(own)} and {set(theirs)}"
        for key, state in own.items():
            assert isinstance(state, DTensor) == (key != "step"), f"{what}, {name}, {key}"
            same_bits(full[number][key], theirs[key], f"{what}, {key} of {name}")


def compare(way, mesh, shapes=SHAPES, dtype=torch.float32, more=None):
    made, grads = named_values(shapes, 1, 4)
    made = {n: v.to(dtype) for n, v in made.items()}
    grads = [{n: g.to(dtype) for n, g in own[0].items()} for own in grads]
    plain, alone, after = reference(made, grads, more)
    params = spread(way, mesh, made)
    optimizer = make(params, **(more or {}))
    for step, own in enumerate(grads):
        versions = [param._version for _, param in params]
        give(params, own)
        optimizer.step()
        for (name, param), version in zip(params, versions, strict=True):
            same_bits(whole(param), after[step][name], f"{way}, {name} after step {step}")
            assert param._version > version, name
    same_states(optimizer, params, alone, plain, way)
    return optimizer, params, alone, plain


@case
def fully_sharded():
    compare("fsdp2", line())
    compare("fsdp2", line(), ONLY)
    compare("hsdp", grid(("replicate", "shard")))


@case
def tensor_parallel_and_both():
    for way in ("tp0", "tp1", "tp x fsdp2", "both of one dim"):
        compare(way, grid())
        compare(way, grid(), ONLY)


@case
def sixteen_bits_with_what_is_behind_them():
    for more in ({}, {"master": "f32"}, {"master": "remainder", "state_dtype": torch.bfloat16}):
        compare("fsdp2", line(), dtype=torch.bfloat16, more=more)


@case
def statistics_count_the_whole_once():
    """The norm of all gradients has the parts of owners and of all others: to the bit, as the
    squares of these values are added without rounding."""
    compare("fsdp2", line(), more={"clip": st.ClipByNorm(0.5)})
    compare("hsdp", grid(("replicate", "shard")), more={"clip": st.ClipByNorm(0.5)})
    compare("tp x fsdp2", grid(), more={"clip": st.ClipByNorm(0.5), "reproducible": True})


@case
def whole_matrices():
    """Muon's rules multiply them."""
    for way, mesh in (("fsdp2", line()), ("tp1", grid()), ("tp x fsdp2", grid())):
        optimizer, *_ = compare(way, mesh, MATRICES, more={"muon": True})
        assert "needs whole matrices" in optimizer.describe_layouts()
    compare("tp x fsdp2", grid(), MATRICES, more={"muon": st.muon.SingleDeviceMuon})
    more = {"muon": True, "clip": st.ClipByNorm(0.5), "master": "f32"}
    compare("fsdp2", line(), MATRICES, dtype=torch.bfloat16, more=more)


@case
def projected_matrices():
    """GaLore's rules decompose them. States of rows or columns and of the rank lie on ranks as
    parts, and the projection with them."""
    for way, mesh, projection in (
        ("fsdp2", line(), "std"),
        ("tp1", grid(), "reverse_std"),
        ("tp x fsdp2", grid(), "full"),
    ):
        more = {"galore": {"proj_type": projection}}
        optimizer, *_ = compare(way, mesh, MATRICES, more=more)
        assert "needs whole matrices" in optimizer.describe_layouts()
    factored = {"kind": st.GaLoreAdafactor, "relative_step": False, "beta1": 0.9}
    compare("tp x fsdp2", grid(), MATRICES, more={"galore": {"rank": 2}, **factored})
    # Random projections are those of the tensor, wherever it is.
    compare("tp x fsdp2", grid(), MATRICES, more={"galore": {}, "kind": st.APOLLOAdamW})
    compare("fsdp2", line(), MATRICES, more={"muon": st.Dion, "rank_fraction": 0.4})
    more = {"galore": {"update_proj_gap": 1}, "clip": st.ClipByNorm(0.5), "master": "f32"}
    compare("fsdp2", line(), MATRICES, dtype=torch.bfloat16, more=more)


@case
def turned_matrices():
    """SOAP's rules turn their bases, of a dim that has one. Both lie on ranks as parts."""
    for way, mesh in (("fsdp2", line()), ("tp1", grid()), ("tp x fsdp2", grid())):
        more = {"soap": {"precondition_frequency": 2, "max_precond_dim": 9}}
        optimizer, *_ = compare(way, mesh, MATRICES, more=more)
        assert "needs whole matrices" in optimizer.describe_layouts()


@case
def matrices_between_roots():
    """Shampoo's rules, of a dim that has a factor. Factors and roots lie on ranks as parts."""
    settings = {"precondition_frequency": 2, "max_preconditioner_dim": 9, "betas": (0.9, 0.9)}
    for way, mesh, kind in (("fsdp2", line(), "adam"), ("tp x fsdp2", grid(), "sgd")):
        more = {"shampoo": {"grafting_type": kind, **settings}}
        optimizer, *_ = compare(way, mesh, MATRICES, more=more)
        assert "needs whole matrices" in optimizer.describe_layouts()


@case
def averages_begin_as_the_parameter():
    compare("fsdp2", line(), more={"average": st.EMA(0.5)})


@case
def a_missing_gradient():
    """Missing on all ranks a tensor stays as it is; on one it counts as zero there."""
    mesh = line()
    made, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    absent = {(1, "query"), (1, "row")}
    plain, alone, after = reference(made, grads, absent=absent)
    params = spread("fsdp2", mesh, made)
    optimizer = make(params)
    for step, own in enumerate(grads):
        give(params, own, {n for s, n in absent if s == step})
        optimizer.step()
        for name, param in params:
            same_bits(whole(param), after[step][name], f"{name} after step {step}")
    same_states(optimizer, params, alone, plain, "absent")
    for name, param in params:  # on rank 1 alone
        first = whole(distribute_tensor(grads[0][name], mesh, [Shard(0)])).clone()
        rows = len(SHAPES[name]) and -(-SHAPES[name][0] // 4)
        first[rows : 2 * rows] = 0
        dict(plain)[name].grad = first
        param.grad = distribute_tensor(grads[0][name].clone(), mesh, [Shard(0)])
        if dist.get_rank() == 1 and name in ("query", "key"):
            param.grad = None
        elif name not in ("query", "key"):
            dict(plain)[name].grad = grads[0][name].clone()
    alone.step()
    optimizer.step()
    for name, param in params:
        same_bits(whole(param), dict(plain)[name], f"{name}, absent on one rank")


@case
def skipped_steps_change_nothing():
    mesh = line()
    made, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    grads[1]["query"][9, 3] = float("inf")
    grads[0]["up"][0, 0] = float("nan")
    plain, alone, after = reference(made, grads, {"skip_nonfinite": True})
    params = spread("fsdp2", mesh, made)
    optimizer = make(params, skip_nonfinite=True)
    for step, own in enumerate(grads):
        give(params, own)
        optimizer.step()
        assert optimizer.last_step.skipped == (step < 2)
        for name, param in params:
            same_bits(whole(param), after[step][name], f"{name} after step {step}")
    same_states(optimizer, params, alone, plain, "skipped")


@case
def plain_parts_and_zero():
    """``layouts``, and zero of whole tensors and of parts that tensor parallelism has cut."""
    made, grads = named_values(SHAPES, 1, 3)
    grads = [own[0] for own in grads]
    _, _, after = reference(made, grads)
    cut = {n: 1 if n in ("key", "tiny") else 0 for n, s in SHAPES.items() if n != "gate"}
    mesh = grid()
    at = mesh.get_local_rank("tp")

    def part(name, value):
        return value.chunk(2, cut[name])[at].clone() if name in cut and name != "row" else value

    def how(name):
        return Shard(cut[name]) if name in cut and name != "row" else Replicate()

    layouts = [(n, st.Layout(mesh["tp"], [how(n)])) for n in SHAPES]
    ways = {
        "layouts": ("part", {"layouts": layouts}),
        "zero": ("whole", {"zero": 1, "gradients": "reduced"}),
        "zero in layouts": ("part", {"layouts": layouts, "zero": 1, "gradients": "local",
                                     "process_group": mesh["dp"].get_group()}),
        "zero=2 in layouts": ("part", {"layouts": layouts, "zero": 2, "gradients": "local",
                                       "process_group": mesh["dp"].get_group()}),
    }  # fmt: skip
    for way, (kind, more) in ways.items():
        own = part if kind == "part" else lambda name, value: value.clone()
        params = [(n, torch.nn.Parameter(own(n, v.clone()))) for n, v in made.items()]
        optimizer = make(params, **more)
        for step, of_step in enumerate(grads):
            for name, param in params:
                (param * own(name, of_step[name])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            for name, param in params:
                same_bits(param, own(name, after[step][name]), f"{way}, {name} after {step}")
        buffer = io.BytesIO()
        torch.save(optimizer.state_dict(), buffer)
        again = make([(n, torch.nn.Parameter(p.detach().clone())) for n, p in params], **more)
        buffer.seek(0)
        if way == "zero":
            again.load_state_dict(torch.load(buffer, weights_only=True))


@case
def states_load_anywhere():
    """state_dict goes on to the bit; whole states are those of one process; a checkpoint loads
    under another layout."""
    made, grads = named_values(SHAPES, 1, 4)
    grads = [own[0] for own in grads]
    plain, alone, after = reference(made, grads)
    params = spread("fsdp2", line(), made)
    optimizer = make(params)
    for own in grads[:2]:
        give(params, own)
        optimizer.step()
    saved, full = optimizer.state_dict(), optimizer.full_state_dict()
    now = {n: whole(p).detach().clone() for n, p in params}
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    dcp.save({"optim": _by_name(optimizer, params)}, checkpoint_id=folder[0])
    for way, mesh, load in (
        ("fsdp2", line(), "state_dict"),
        ("tp1", grid(), "full"),
        ("tp x fsdp2", grid(), "checkpoint"),
    ):
        others = spread(way, mesh, now)
        again = make(others)
        if load == "checkpoint":
            give(others, grads[0])
            again.step()  # so that there are states to load into
            for name, param in others:
                param.data.copy_(distribute_tensor(now[name], mesh, param.placements))
            state = _by_name(again, others)
            dcp.load({"optim": state}, checkpoint_id=folder[0])
            for name, param in others:
                for key in again.state[param]:
                    again.state[param][key] = state[f"{name}.{key}"]
        else:
            again.load_state_dict(saved if load == "state_dict" else full)
        for step in (2, 3):
            give(others, grads[step])
            again.step()
            for name, param in others:
                same_bits(whole(param), after[step][name], f"{load}, {name} after step {step}")
        same_states(again, others, alone, plain, load)


def _by_name(optimizer, params):
    return {f"{n}.{key}": value for n, p in params for key, value in optimizer.state[p].items()}


@case
def the_dearest_is_the_first_ranks():
    """Of as many elements, or fewer, the wide one has more FLOPs, for SOAP's basis of its
    columns: so it is first, whatever the order of parameters."""
    made, grads = named_values({"square": (16, 16), "large": (17, 16), "wide": (8, 32)}, 1, 3)
    grads = [own[0] for own in grads]
    more = {"soap": {"precondition_frequency": 2, "max_precond_dim": 64}}
    _, _, after = reference(made, grads, more)
    params = spread("fsdp2", line(), made)
    optimizer = make(params, **more)
    for step, own in enumerate(grads):
        give(params, own)
        optimizer.step()
        for name, param in params:
            same_bits(whole(param), after[step][name], f"{name} after step {step}")
    described = optimizer.describe_layouts()
    for name, rank in {"wide": 0, "large": 1, "square": 2}.items():
        words = rf"parameter '{name}' of shape .* rank {rank} of 4 along dp steps the whole"
        assert re.search(words, described), described


@case
def views():
    viewed.of_what_is_cut(line(), grid())
    viewed.with_averages_and_norms(line())


@case
def states_of_views():
    viewed.load(line(), grid())
    viewed.a_state_that_lies_as_no_parameter(line())
    viewed.parts_of_any_memory(line())


@case
def views_of_plain_parts():
    viewed.plain_parts(grid(("pp", "tp")))
    viewed.another_view_on_one_rank(line())


@case
def what_is_done_is_said():
    """Once, with the place in the definition, the parameter, the owner and the bytes; and in
    describe_layouts."""
    made, grads = named_values({"query": (10, 10), "up": (10, 6)}, 1, 2)
    params = spread("fsdp2", line(), made)
    optimizer = make(params)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for own in grads:
            give(params, own[0])
            optimizer.step()
    said = [str(w.message) for w in caught if "stepc" in str(w.message)]
    lines = DEFINITION.read_text().splitlines()
    place = next(k for k, text in enumerate(lines, 1) if "step.rule @square" in text)
    # Of 100 elements 70 lie elsewhere, of the row state 7 of 10; three ranks have the columns.
    there, back = 70 * 12 + 7 * 4 + 3 * 40, 70 * 8 + 7 * 4 + 3 * 40
    words = (
        f"parameter 'query' of shape (10, 10): rule 'square' ({DEFINITION}:{place}:3) has dim 'n' "
        f"twice, and it is cut; rank 0 of 4 along dp steps the whole, {there} bytes go to it in a "
        f"step and {back} back"
    )
    assert said == [f"stepc: {words}"], said
    described = optimizer.describe_layouts()
    assert words in described, described
    assert re.search(r"^query +\(10, 10\)", described, re.MULTILINE), described


@case
def rounding_of_rows_that_alternate():
    """Random bits are of an element's place: an owner knows it, whoever has the rows."""
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = grid()
    value = torch.randn(16, 6).bfloat16()
    grads = [torch.randn(16, 6).bfloat16() for _ in range(3)]
    plain = torch.nn.Parameter(value.clone())
    own = [Shard(0), _StridedShard(0, split_factor=2)]
    param = torch.nn.Parameter(distribute_tensor(value.clone(), mesh, own))
    keywords = {"lr": 1e-2, "rounding": "stochastic", "state_dtype": torch.bfloat16}
    alone, optimizer = st.AdamW([plain], **keywords), st.AdamW([param], **keywords)
    for grad in grads:
        plain.grad = grad.clone()
        param.grad = distribute_tensor(grad.clone(), mesh, own)
        alone.step()
        optimizer.step()
        same_bits(whole(param), plain, "the parameter")
    for name, state in optimizer.state[param].items():
        same_bits(whole(state), alone.state[plain][name], f"state {name}")


if __name__ == "__main__":
    main()
