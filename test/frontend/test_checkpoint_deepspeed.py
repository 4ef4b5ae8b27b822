# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints of DeepSpeed: stages 1 to 3, universal ones, its loss scale. They are written as its
sources write them (deepspeed_files.py)."""

import shutil

import pytest
import stepc.torch as st
import torch
from deepspeed_files import DynamicLossScaler, Zero2, save_stage3
from stepc.torch import checkpoint as ck
from test_checkpoint_layouts import SHAPES, same, values


def deepspeed(world, aligned=1, shapes=None):
    made = values(shapes)
    names = list(made)
    groups = [
        {"params": {n: made[n] for n in names[:2]}, "lr": 0.01},
        {"params": {n: made[n] for n in names[2:]}, "lr": 0.02},
    ]
    run = Zero2(groups, world, lambda g: torch.optim.AdamW(g, betas=(0.8, 0.9)), aligned)
    for seed in (1, 2):
        run.step(values(shapes, seed))
    return run


def compared(found, run):
    for key in ("exp_avg", "exp_avg_sq"):
        for name, value in run.states(key).items():
            same(found.states[name][key], value)
    for name, value in run.params().items():
        same(found.parameters[name], value)
    assert [group["lr"] for group in found.groups] == [0.01, 0.02]
    assert all(float(own["step"].read()) == 2 for own in found.states.values())


@pytest.mark.parametrize("world, aligned", [(1, 1), (3, 1), (4, 16), (7, 1)])
@pytest.mark.parametrize("elastic", [False, True])
def test_stage_2(tmp_path, world, aligned, elastic):
    if elastic and aligned > 1:
        aligned = 1  # such files are older than alignment
    run = deepspeed(world, aligned)
    folder = run.save(tmp_path, elastic)
    for path in (tmp_path, folder):
        found = ck.read(path)
        assert found.layout == "deepspeed" and found.names == list(SHAPES)
        if elastic:  # which has no groups
            found.groups[0]["lr"], found.groups[1]["lr"] = 0.01, 0.02
        compared(found, run)


@pytest.mark.parametrize("world, subgroup", [(1, 10**9), (2, 300), (4, 1), (5, 10**9)])
def test_stage_3(tmp_path, world, subgroup):
    run = deepspeed(2)
    whole = run.params()
    groups = [{**h, "params": {n: whole[n] for n in own}}
              for h, own in zip(run.hypers, run.shapes, strict=True)]  # fmt: skip
    states = {key: run.states(key) for key in ("exp_avg", "exp_avg_sq")}
    save_stage3(tmp_path, groups, world, states, 2, subgroup)
    compared(ck.read(tmp_path), run)


@pytest.mark.parametrize("shift, consecutive", [(1, False), (2, False), (3, True)])
def test_the_loss_scale_of_deepspeed(tmp_path, shift, consecutive):
    """After any steps, what a scaler here has that took the same ones."""
    run = deepspeed(2)
    run.scaler = DynamicLossScaler(64.0, 3, shift, consecutive)
    scale = st.deepspeed.DynamicLossScaler(64.0, scale_window=3, delayed_shift=shift,
                                           consecutive_hysteresis=consecutive)  # fmt: skip
    param = torch.nn.Parameter(torch.ones(3))
    optimizer = st.AdamW([param], loss_scale=scale)
    overflows = [0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0]
    for number, overflow in enumerate(overflows):
        param.grad = torch.full((3,), torch.inf if overflow else 1.0)
        optimizer.step()
        run.scaler.update_scale(bool(overflow))
        if number % 3 and number < 14:
            continue
        run.save(tmp_path / str(number))
        found = ck.read(tmp_path / str(number))
        assert found.groups[1]["scalars"] == optimizer.state_dict()["param_groups"][0]["scalars"]
    again = st.AdamW([(n, torch.nn.Parameter(v)) for n, v in values().items()], loss_scale=scale)
    for group in found.groups:
        group["lr"] = 0.01
    ck.load(again, found)
    assert again.state_dict()["param_groups"][0]["scalars"]["scale"] == run.scaler.cur_scale


def test_universal_is_what_deepspeed_reads(tmp_path):
    run = deepspeed(4)
    run.save(tmp_path / "native")
    ck.convert(tmp_path / "native", tmp_path / "universal", "universal")
    other = Zero2(
        [{"params": {n: torch.zeros(SHAPES[n]) for n in own}, "lr": 9.0} for own in run.shapes],
        3, torch.optim.AdamW,
    )  # fmt: skip
    other.load_universal(tmp_path / "universal")
    for name, value in run.params().items():
        assert torch.equal(other.params()[name], value)
    run.step(values(seed=5))
    other.step(values(seed=5))
    for name, value in run.params().items():
        assert torch.equal(other.params()[name], value)
    assert other.optimizers[0].param_groups[1]["betas"] == (0.8, 0.9)


@pytest.mark.parametrize(("kind", "count"), [
    (st.AdamW, torch.Tensor), (st.deepspeed.FusedAdam, int),
])  # fmt: skip
def test_universal_is_what_stage_3_reads(tmp_path, kind, count):
    """load_hp_checkpoint_state_from_checkpoint_dir_stage3, load_hp_checkpoint_state of stage3.py,
    and what the engine calls a file for it."""
    params = {name: torch.nn.Parameter(value) for name, value in values().items()}
    optimizer = kind(params.items(), lr=0.01)
    for seed in range(2):
        for name, grad in values(seed=seed + 1).items():
            params[name].grad = grad
        optimizer.step()
    ck.save(optimizer, tmp_path / "universal", "universal")
    folder = tmp_path / "universal" / (tmp_path / "universal" / "latest_universal").read_text()
    files = [torch.load(folder / name, weights_only=True) for name in (
        "mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt",
    )]  # fmt: skip
    assert files[0] == files[1] and files[0]["dp_world_size"] == 1
    saved = torch.load(folder / "zero" / "optimizer_state.pt", weights_only=True)
    step = saved["optimizer_state_dict"]["state"][0]["step"]
    assert step == 2 and type(step) is count
    group = saved["optimizer_state_dict"]["param_groups"][0]
    assert group["lr"] == 0.01 and group == saved["param_groups"][0]
    world, rank = 3, 1
    for name, param in params.items():
        state = optimizer.state[param]
        for key, whole in (("fp32", param.detach()), ("exp_avg", state["exp_avg"]),
                           ("exp_avg_sq", state["exp_avg_sq"])):  # fmt: skip
            flat = torch.load(folder / "zero" / name / f"{key}.pt", weights_only=True)["param"]
            flat, share = flat.view(-1), -(-whole.numel() // world)
            flat = torch.cat([flat, torch.zeros(world * share - flat.numel())])
            part = whole.reshape(-1)[rank * share : (rank + 1) * share]
            assert torch.equal(flat[rank * share :][:share][: part.numel()], part)


def test_universal_of_stage_3(tmp_path):
    """Bare tensors, counts in Python, names of groups in the file of a rank."""
    made, zero = values(), tmp_path / "zero"
    for name, value in made.items():
        (zero / name).mkdir(parents=True)
        torch.save(value, zero / name / "fp32.pt")
        torch.save(value + 1, zero / name / "exp_avg.pt")
        torch.save(7, zero / name / "step.pt")
    names = list(made)
    groups = [{"lr": 0.1, "params": [0]}, {"lr": 0.2, "params": [1]}]
    torch.save({"param_groups": groups}, zero / "optimizer_state.pt")
    shapes = [{n: made[n].shape for n in names[:1]}, {n: made[n].shape for n in names[1:]}]
    torch.save({"param_shapes": shapes}, tmp_path / "zero_pp_rank_0_mp_rank_00_model_states.pt")
    found = ck.read(tmp_path)
    assert [(g["lr"], g["params"]) for g in found.groups] == [(0.1, names[:1]), (0.2, names[1:])]
    for name, value in made.items():
        same(found.states[name]["exp_avg"], value + 1)
        same(found.parameters[name], value)
        assert float(found.states[name]["step"].read()) == 7


@pytest.mark.parametrize("elastic", [False, True])
def test_files_of_two_steps_are_no_state(tmp_path, elastic):
    run = deepspeed(2)
    first = run.save(tmp_path / "first", elastic)
    run.step(values(SHAPES, 3))
    second = run.save(tmp_path / "second", elastic)
    name = "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    shutil.copy(first / name, second / name)
    with pytest.raises(ck.CheckpointError, match=f"{name}' has step 2.0 in group 0, .* has 3.0"):
        ck.read(second)


def test_files_of_two_steps_of_stage_3(tmp_path):
    groups = [{"params": values(), "lr": 0.01}]
    one, two = (
        save_stage3(tmp_path / str(step), groups, 2, {"exp_avg": values(), "exp_avg_sq": values()},
                    step=torch.tensor(float(step)), subgroup=300)
        for step in (1, 2)
    )  # fmt: skip
    name = "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    shutil.copy(one / name, two / name)
    with pytest.raises(ck.CheckpointError, match=f"{name}' has step 1.0 in group 0, .* has 2.0"):
        ck.read(two)
