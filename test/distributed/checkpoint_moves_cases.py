# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A run goes from DeepSpeed's ZeRO-2 on four ranks to ``zero=1`` on three, and back, and ends where
one that stays with DeepSpeed ends, to the bit. What DeepSpeed does is done by
``deepspeed_files.py``, from its sources; both step by AdamW of Stepc."""

import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from deepspeed_files import Zero2
from on_ranks import case, main, same_bits, whole
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

FIRST = {"up": (33, 20), "norm": (17,), "cube": (5, 7, 9)}
SECOND = {"gain": (), "down": (130, 64)}
SHAPES = {**FIRST, **SECOND}


def values(steps):
    generator = torch.Generator().manual_seed(3)
    made = {n: torch.randn(s, generator=generator) * 0.1 for n, s in SHAPES.items()}
    grads = [
        {n: torch.randint(-8, 9, s, generator=generator) / 64.0 for n, s in SHAPES.items()}
        for _ in range(steps)
    ]
    return made, grads


def groups_of(made):
    return [
        {"params": {n: made[n] for n in FIRST}, "lr": 0.01, "weight_decay": 0.1},
        {"params": {n: made[n] for n in SECOND}, "lr": 0.02, "weight_decay": 0.0},
    ]


def under_deepspeed(made):
    return Zero2(groups_of(made), 4, lambda groups: st.AdamW(groups, betas=(0.8, 0.9)))


def folder():
    made = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(made)
    return made[0]


def here(make=None, **more):
    """A model of other values, and its optimizer with other hyper-parameters."""
    named = {n: torch.nn.Parameter(torch.ones(s)) for n, s in SHAPES.items()}
    if make is not None:
        named = {n: make(param) for n, param in named.items()}
    groups = [{"params": [(n, named[n]) for n in own]} for own in (FIRST, SECOND)]
    return named, st.AdamW(groups, lr=1.0, **more)


def step_here(named, optimizer, grads):
    for name, param in named.items():
        grad = grads[name].clone()
        if isinstance(param, DTensor):
            grad = distribute_tensor(grad, param.device_mesh, param.placements)
        param.grad = grad
    optimizer.step()


@case
def a_run_goes_there_and_back():
    made, grads = values(9)
    place, unbroken, moved = folder(), under_deepspeed(made), under_deepspeed(made)
    for own in grads[:3]:
        unbroken.step(own)
    if dist.get_rank() == 0:
        unbroken.save(f"{place}/there")
    dist.barrier()
    named, optimizer = here(zero=1, gradients="reduced")
    st.checkpoint.load(optimizer, f"{place}/there", parameters=True)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.02]
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    for own in grads[3:6]:
        unbroken.step(own)
        step_here(named, optimizer, own)
        for name, value in unbroken.params().items():
            same_bits(named[name], value, name)
    st.checkpoint.save(optimizer, f"{place}/back", "universal")
    dist.barrier()
    moved.load_universal(f"{place}/back")
    for own in grads[6:]:
        unbroken.step(own)
        moved.step(own)
    for what in (lambda run: run.params(), lambda run: run.states("exp_avg"),
                 lambda run: run.states("exp_avg_sq")):  # fmt: skip
        for name, value in what(unbroken).items():
            same_bits(what(moved)[name], value, name)


@case
def into_every_layout_of_ranks():
    """And out of each, as one tensor."""
    made, grads = values(5)
    place, run = folder(), under_deepspeed(made)
    for own in grads[:3]:
        run.step(own)
    if dist.get_rank() == 0:
        run.save(f"{place}/there")
    dist.barrier()
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("dp",))

    def sharded(param):
        placements = [Shard(0) if param.dim() else Replicate()]
        return torch.nn.Parameter(distribute_tensor(param.detach(), mesh, placements))

    kinds = {
        "one": here(), "zero 2": here(zero=2, gradients="local"), "fsdp2": here(sharded),
        "codes": here(zero=1, gradients="reduced", state_dtype="q8"),
    }  # fmt: skip
    for kind, (_, optimizer) in kinds.items():
        st.checkpoint.load(optimizer, f"{place}/there", parameters=True)
        if kind == "codes":
            continue
        st.checkpoint.save(optimizer, f"{place}/{kind}", "dcp")
        dist.barrier()
        saved = st.checkpoint.read(f"{place}/{kind}")
        for key in ("exp_avg", "exp_avg_sq"):
            for name, value in run.states(key).items():
                same_bits(saved.states[name][key].read(), value, f"{kind}, {key} of {name}")
    for own in grads[3:]:
        run.step(own)
        for kind, (named, optimizer) in kinds.items():
            if kind == "zero 2":
                sum((param * own[name]).sum() for name, param in named.items()).backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                step_here(named, optimizer, own)
    for kind, (named, _) in kinds.items():
        for name, value in run.params().items():
            if kind == "codes" and name == "down":
                assert (whole(named[name]) - value).abs().max() < 0.02, kind
            else:
                same_bits(whole(named[name]), value, f"{kind}, {name}")


def there_and_on(kind, place, make, made, grads, dtype, cut):
    """Two steps of one process, saved; two more, and the same on ranks. ``cut``: states of which
    each rank is to have read its part alone."""

    def run(**zero):
        params = {n: torch.nn.Parameter(v.to(dtype)) for n, v in made.items()}
        return params, make(params.items(), **zero)

    def step(run, own):
        for name, param in run[0].items():
            param.grad = own[name].to(dtype)
        run[1].step()

    whole, shared = run(), run(zero=1, gradients="reduced")
    for own in grads[:2]:
        step(whole, own)
    if dist.get_rank() == 0:
        st.checkpoint.save(whole[1], f"{place}/{kind}", "torch")
    dist.barrier()
    st.checkpoint.load(shared[1], f"{place}/{kind}", parameters=True)
    for key in cut:
        counts = torch.tensor([shared[1].state[p][key].numel() for p in shared[0].values()])
        dist.all_reduce(counts)
        assert counts.tolist() == [value.numel() for value in made.values()], (kind, key)
    for own in grads[2:]:
        step(whole, own)
        step(shared, own)
    for name, param in whole[0].items():
        same_bits(shared[0][name], param, f"{kind}, {name}")
    full, alone = shared[1].full_state_dict()["state"], whole[1].state_dict()["state"]
    for number, own in alone.items():
        for key, value in own.items():
            same_bits(full[number][key], value, f"{kind}, {key} of {number}")


@case
def each_rank_reads_its_part():
    """Of states and masters that zero shares out; then it steps as one process does."""
    place, (made, grads) = folder(), values(4)
    moments = ("exp_avg", "exp_avg_sq")
    matrices = {n: v for n, v in made.items() if v.dim() == 2}
    for kind, make, own, dtype, cut in [
        ("f32", lambda ps, **m: st.AdamW(ps, lr=0.02, **m), made, torch.float32, moments),
        ("bf16", lambda ps, **m: st.AdamW(ps, lr=0.02, master="f32", **m), made, torch.bfloat16,
         (*moments, "master")),
        ("halves", lambda ps, **m: st.AdamW(ps, lr=0.02, master="remainder", **m), made,
         torch.bfloat16, (*moments, "remainder")),
        ("muon", lambda ps, **m: st.Muon(ps, lr=0.02, **m), matrices, torch.float32, ()),
        ("came", lambda ps, **m: st.came.CAME(ps, lr=0.02, **m), matrices, torch.float32,
         ("exp_avg",)),
        ("view", lambda ps, **m: st.AdamW([{"params": list(ps), "view": "n m -> (n m)"}], lr=0.02,
                                          **m), matrices, torch.float32, ()),
    ]:  # fmt: skip
        there_and_on(kind, place, make, own, grads, dtype, cut)


@case
def what_each_rank_has_saved_is_put_together():
    """By torch.distributed.checkpoint: boxes of zero's ranges, rows of DTensors, unevenly."""
    _, grads = values(2)
    place = folder()
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("dp",))

    def sharded(param):
        placements = [Shard(param.dim() - 1) if param.dim() else Replicate()]
        return torch.nn.Parameter(distribute_tensor(param.detach(), mesh, placements))

    more = {"zero": 1, "gradients": "reduced"}
    kinds = {
        "ranges": here(**more), "columns": here(sharded),
        "codes": here(**more, state_dtype="q8"),
    }  # fmt: skip
    for kind, (named, optimizer) in kinds.items():
        for own in grads:
            step_here(named, optimizer, own)
        dcp.save({"optim": optimizer.state_dict()}, checkpoint_id=f"{place}/{kind}")
        found = st.checkpoint.read(f"{place}/{kind}")
        assert found.named and found.names == list(SHAPES)
        whole = st.checkpoint.checkpoint_of(optimizer).states
        for name, own in found.states.items():
            assert own.keys() == whole[name].keys(), (kind, name)
            for key, stored in own.items():
                same_bits(stored.read(), whole[name][key].read(), f"{kind}, {key} of {name}")


@case
def a_file_that_lacks_a_rank_changes_nothing():
    made, grads = values(2)
    place, run = folder(), under_deepspeed(made)
    run.step(grads[0])
    named, optimizer = here(zero=1, gradients="reduced")
    step_here(named, optimizer, grads[0])
    before = [(p.detach().clone(), optimizer.full_state_dict()["state"][i]["exp_avg"].clone())
              for i, p in enumerate(named.values())]  # fmt: skip
    if dist.get_rank() == 0:
        (run.save(f"{place}/there") / "zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
    dist.barrier()
    try:
        st.checkpoint.load(optimizer, f"{place}/there", parameters=True)
    except st.checkpoint.CheckpointError as error:
        assert "zero_pp_rank_2_mp_rank_00_optim_states.pt' is missing" in str(error), error
    else:
        raise AssertionError("it was not refused")
    full = optimizer.full_state_dict()["state"]
    for i, (param, (value, moment)) in enumerate(zip(named.values(), before, strict=True)):
        same_bits(param, value, str(i))
        same_bits(full[i]["exp_avg"], moment, str(i))


@case
def what_one_rank_cannot_read_no_rank_loads():
    """Nor does one go on where rank 0 cannot write."""
    made, grads = values(2)
    place, run = folder(), under_deepspeed(made)
    run.step(grads[0])
    if dist.get_rank() == 0:
        run.save(f"{place}/there")
    dist.barrier()
    mesh = init_device_mesh("cpu", (3,))

    def sharded(param):
        return torch.nn.Parameter(distribute_tensor(param.detach(), mesh, [Replicate()]))

    for kind, (named, optimizer) in {"zero": here(zero=1, gradients="reduced"),
                                     "dtensors": here(sharded)}.items():  # fmt: skip
        own = f"{place}/there" if dist.get_rank() != 1 else f"{place}/{kind}-not-here"
        try:
            st.checkpoint.load(optimizer, own, parameters=True)
        except st.checkpoint.CheckpointError as error:
            words = "" if dist.get_rank() == 1 else "failed on rank 1: "
            assert words in str(error) and f"{kind}-not-here'" in str(error), error
        else:
            raise AssertionError(f"{kind}: it was not refused")
        assert not optimizer.state and optimizer.param_groups[0]["lr"] == 1.0
        assert all(bool((whole(param) == 1).all()) for param in named.values())
        st.checkpoint.load(optimizer, f"{place}/there", parameters=True)
        try:
            st.checkpoint.save(optimizer, f"{place}/there", "torch")
        except st.checkpoint.CheckpointError as error:
            assert "is there already" in str(error), error
        else:
            raise AssertionError(f"{kind}: it was not refused on rank {dist.get_rank()}")


if __name__ == "__main__":
    main()
