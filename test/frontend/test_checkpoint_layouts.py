# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints of every layout are read, written, and loaded into optimizers. Files of ColossalAI
and bitsandbytes are written as their sources write them; torch writes its own. DeepSpeed's are in
test_checkpoint_deepspeed.py."""

import json
import os
import pickle

import pytest
import safetensors.torch
import stepc.torch as st
import torch
import torch.distributed.checkpoint as dcp
from common import bits_equal, clone_params, train
from stepc import errors
from stepc.torch import checkpoint as ck
from stepc.torch.checkpoint import archives
from stepc.torch.checkpoint.loading import _halves, joined_halves
from test_bitsandbytes_states import of_theirs
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

SHAPES = {"0.weight": (33, 20), "0.bias": (20,), "1.gain": (), "1.cube": (3, 5, 7)}
BOX = {**SHAPES, "wide": (64, 80), "none": (0, 4)}  # so many elements that it may have codes
WRITTEN = [name for name, own in ck.LAYOUTS.items() if hasattr(own, "write")]


def values(shapes=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(s, generator=generator) for n, s in (shapes or SHAPES).items()}


class Model(torch.nn.Module):
    """Modules by the names' first parts, parameters in them."""

    def __init__(self, made):
        super().__init__()
        for name, value in made.items():
            to = self
            *parents, last = name.split(".")
            for parent in parents:
                if parent not in to._modules:
                    to.add_module(parent, torch.nn.Module())
                to = to._modules[parent]
            to.register_parameter(last, torch.nn.Parameter(value.clone()))


def model(shapes=None):
    return Model(values(shapes))


def trained(make=st.AdamW, steps=3, shapes=None, **more):
    """A model and its optimizer, of two groups."""
    own = model(shapes)
    named = list(own.named_parameters())
    optimizer = make([{"params": named[:2]}, {"params": named[2:], "lr": 0.02}], lr=0.01, **more)
    params = [param for _, param in named]
    train((optimizer,), (params,), steps)
    return own, optimizer, params


def goes_on(source, path, make=st.AdamW, **more):
    """Loaded from the path, an optimizer steps as the one that was saved does."""
    own, optimizer, params = source
    others = clone_params(params)
    names = [name for name, _ in own.named_parameters()]
    named = list(zip(names, others, strict=True))
    again = make([{"params": named[:2]}, {"params": named[2:]}], lr=0.5, **more)
    found = ck.load(again, path)
    mirror = clone_params(params)
    for param, other in zip(mirror, params, strict=True):
        param.data.copy_(other)
    first = type(optimizer)([{"params": list(zip(names[:2], mirror[:2], strict=True))},
                             {"params": list(zip(names[2:], mirror[2:], strict=True))}],
                            lr=0.5, **more)  # fmt: skip
    first.load_state_dict(optimizer.state_dict())
    train((first, again), (mirror, others), 2, first=3)
    assert bits_equal(mirror, others)
    assert [group["lr"] for group in again.param_groups] == [0.01, 0.02]
    return found


def same(stored, tensor):
    value = stored.read()
    assert value.shape == tensor.shape and torch.equal(value, tensor.to(value.dtype))


# --- torch --------------------------------------------------------------------

FORMS = {
    "plain": lambda own, optimizer: optimizer.state_dict(),
    "among others": lambda own, optimizer: {
        "epoch": 3, "model": own.state_dict(), "optimizer": optimizer.state_dict()
    },
    "by names, as FSDP's": lambda own, optimizer: {
        "optim": get_optimizer_state_dict(own, optimizer)
    },
    "flattened": lambda own, optimizer: get_optimizer_state_dict(
        own, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True)
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_files_of_torch(tmp_path, form):
    source = trained()
    torch.save(FORMS[form](*source[:2]), tmp_path / "a.pt")
    found = goes_on(source, tmp_path / "a.pt")
    assert found.layout == "torch" and found.named and sorted(found.names) == sorted(SHAPES)
    assert bool(found.parameters) == (form == "among others")


def test_without_names_parameters_have_places(tmp_path):
    _, _, params = trained()
    theirs = torch.optim.AdamW([{"params": params[:2]}, {"params": params[2:], "lr": 0.5}], lr=0.1)
    train((theirs,), (params,), 2)
    torch.save(theirs.state_dict(), tmp_path / "a.pt")
    found = ck.read(tmp_path / "a.pt")
    assert not found.named and found.names == ["0", "1", "2", "3"]
    ours = st.AdamW([{"params": clone_params(params[:2])}, {"params": clone_params(params[2:])}])
    ck.load(ours, found)
    for number, own in theirs.state_dict()["state"].items():
        mine = ours.state_dict()["state"][number]
        assert all(torch.equal(mine[key], value) for key, value in own.items())
    assert [group["lr"] for group in ours.param_groups] == [0.1, 0.5]
    with pytest.raises(ck.CheckpointError, match="has no names of parameters"):
        ck.convert(tmp_path / "a.pt", tmp_path / "b", "dcp")


@pytest.mark.parametrize("flat", [False, True])
def test_dcp_of_torch(tmp_path, flat):
    source = trained()
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    states = {"optim": get_optimizer_state_dict(*source[:2], options=options)}
    dcp.save({**states, "model": source[0].state_dict()}, checkpoint_id=tmp_path, no_dist=True)
    found = goes_on(source, tmp_path)
    assert found.layout == "dcp" and found.groups[0]["params"] == ["0.weight", "0.bias"]
    for name, param in source[0].named_parameters():
        same(found.parameters[name], param)


def test_dcp_of_many_groups(tmp_path):
    """Numbers in texts are in the order of numbers."""
    params = [torch.nn.Parameter(torch.full((2,), float(k))) for k in range(12)]
    theirs = torch.optim.AdamW([{"params": [p], "lr": k + 1.0} for k, p in enumerate(params)])
    train((theirs,), (params,), 1)
    dcp.save({"optim": theirs.state_dict()}, checkpoint_id=tmp_path, no_dist=True)
    found = ck.read(tmp_path)
    assert [group["lr"] for group in found.groups] == [k + 1.0 for k in range(12)]
    for number, param in enumerate(params):
        same(found.states[str(number)]["exp_avg"], theirs.state[param]["exp_avg"])


# --- ColossalAI ---------------------------------------------------------------


def bytes_tensor(value):
    return torch.tensor(list(pickle.dumps(value)), dtype=torch.uint8)


def nested(states):
    """Flattened, with what is no tensor pickled (utils/safetensors.py)."""
    made, objects = {}, []
    for number, own in states.items():
        for key, value in own.items():
            name = f"state.{number}.{key}"
            if not isinstance(value, torch.Tensor):
                objects.append(name)
                value = bytes_tensor(value)
            made[name] = value.contiguous()
    return made, objects


@pytest.mark.parametrize("kind", ["bin", "safetensors", "one file"])
def test_colossal(tmp_path, kind):
    source = trained(st.colossal.FusedAdam)
    saved = source[1].state_dict()
    for group in saved["param_groups"]:
        group.pop("param_names")
    shards = [dict(list(saved["state"].items())[k::2]) for k in (0, 1)]
    if kind == "one file":
        made, objects = nested(saved["state"])
        made["param_groups"] = bytes_tensor(saved["param_groups"])
        metadata = {"format": "pt", "non_tensor_keys": json.dumps([*objects, "param_groups"])}
        safetensors.torch.save_file(made, tmp_path / "optimizer.safetensors", metadata)
        path = tmp_path / "optimizer.safetensors"
    else:
        base = "pytorch_optim{}.bin" if kind == "bin" else "optimizer{}.safetensors"
        weights, path = {}, tmp_path
        for k, shard in enumerate(shards):
            name = base.format(f"-{k + 1:05d}")
            weights |= dict.fromkeys(map(str, shard), name)
            if kind == "bin":
                torch.save(shard, tmp_path / name)
            else:
                made, objects = nested(shard)
                metadata = {"non_tensor_keys": json.dumps(objects)} if objects else None
                safetensors.torch.save_file(made, tmp_path / name, metadata)
        torch.save(saved["param_groups"], tmp_path / "pytorch_optim_group.bin")
        index = {"metadata": {"param_groups": "pytorch_optim_group.bin", "total_size": 1},
                 "weight_map": weights}  # fmt: skip
        (tmp_path / f"{base.format('')}.index.json").write_text(json.dumps(index))
    found = goes_on(source, path, st.colossal.FusedAdam)
    assert found.layout == "colossal" and not found.named


# --- bitsandbytes, and codes of ours -------------------------------------------


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("name, ours", [("AdamW", st.AdamW), ("Lion", st.Lion)])
def test_states_of_bitsandbytes(tmp_path, bits, name, ours):
    own = model(BOX)
    saved, meant = of_theirs(name, list(own.parameters()), bits)
    torch.save(saved, tmp_path / "a.pt")
    optimizer = ours(own.parameters())
    ck.load(optimizer, tmp_path / "a.pt")
    assert optimizer.param_groups[0]["lr"] == 0.01
    for param, whole in zip(own.parameters(), meant, strict=True):
        for key, value in whole.items():
            assert torch.equal(optimizer.state[param][key], value)


@pytest.mark.parametrize("kind", ["q8", "f8_e4m3", "q4"])
def test_codes_are_floats_between_and_codes_again(tmp_path, kind):
    source = trained(shapes=BOX, state_dtype=kind)
    torch.save(source[1].full_state_dict(), tmp_path / "codes.pt")
    found = ck.read(tmp_path / "codes.pt")
    wide = source[1].state[dict(source[0].named_parameters())["wide"]]
    floats = st.decode_state(wide["exp_avg"], wide["exp_avg.scale"])
    same(found.states["wide"]["exp_avg"], floats)
    assert "exp_avg.scale" not in found.states["wide"]
    ck.write(found, tmp_path / "floats.safetensors", "safetensors")
    for path in ("codes.pt", "floats.safetensors"):
        goes_on(source, tmp_path / path, state_dtype=kind)


def test_codes_that_do_not_say_their_shape(tmp_path):
    """Of 4 bits: it is that of who loads them."""
    shapes = {"rows": (64, 101), "conv": (40, 8, 3, 5), "wide": (64, 80)}
    source = trained(shapes=shapes, state_dtype="q4")
    torch.save(source[1].full_state_dict(), tmp_path / "codes.pt")
    found = ck.read(tmp_path / "codes.pt")
    assert {n: own["exp_avg"].shape for n, own in found.states.items()} == {
        "rows": (64, 104), "conv": (40, 120), "wide": (64, 80)}  # fmt: skip
    for kept in ("q4", None):
        goes_on(source, tmp_path / "codes.pt", state_dtype=kept)
    ck.save(source[1], tmp_path / "floats", "torch")
    for name, param in source[0].named_parameters():
        own = source[1].state[param]
        floats = st.decode_state(own["exp_avg"], own["exp_avg.scale"], param.shape)
        same(ck.read(tmp_path / "floats").states[name]["exp_avg"], floats)
    other = trained(shapes={**shapes, "rows": (64, 110)})
    with pytest.raises(errors.CheckpointError, match=r"'rows' with shape \(64, 104\), here it is"):
        ck.load(other[1], tmp_path / "codes.pt")


# --- What is written -----------------------------------------------------------


@pytest.mark.parametrize("layout", WRITTEN)
def test_written_and_read(tmp_path, layout):
    """Each tensor to the bit, each hyper-parameter, through every layout that is written."""
    source = trained(shapes=BOX)
    ck.save(source[1], tmp_path / "first", layout)
    found = ck.read(tmp_path / "first")
    assert found.layout == layout
    goes_on(source, tmp_path / "first")
    whole = source[1].full_state_dict()["state"]
    for number, (name, param) in enumerate(source[0].named_parameters()):
        same(found.parameters[name], param)
        assert set(found.states[name]) == set(whole[number])
        for key, value in whole[number].items():
            same(found.states[name][key], value)
    for other in WRITTEN:
        ck.convert(tmp_path / "first", tmp_path / other, other)
        again = ck.read(tmp_path / other)
        # Of a dict of folders the order is that of the names, in each group.
        assert again.groups == found.groups
        assert [(n, s) for n, s, _ in again.tensors() if s != "step"] == [
            (n, s) for n, s, _ in found.tensors() if s != "step"
        ]
        for (_, _, left), name, state in [(t, *t[:2]) for t in found.tensors()]:
            own = again.states[name][state] if state else again.parameters[name]
            same(own, left.read())


@pytest.mark.parametrize("form", ["f32", "remainder"])
@pytest.mark.parametrize("layout", WRITTEN)
def test_masters_are_the_parameters_of_a_checkpoint(tmp_path, layout, form):
    own = model().to(torch.bfloat16)
    params = list(own.parameters())
    optimizer = st.AdamW(own.named_parameters(), lr=0.01, master=form)
    train((optimizer,), (params,), 3)
    ck.save(optimizer, tmp_path / "a", layout)
    for other in ("f32", "remainder"):
        again = Model(values(seed=8)).to(torch.bfloat16)
        loaded = st.AdamW(again.named_parameters(), lr=1.0, master=other)
        ck.load(loaded, tmp_path / "a", parameters=True)
        others = list(again.parameters())
        if form == other:
            assert bits_equal(params, others)
        mirror = Model({n: p.detach() for n, p in own.named_parameters()})
        first = st.AdamW(mirror.named_parameters(), lr=1.0, master=form)
        first.load_state_dict(optimizer.state_dict())
        train((first, loaded), (list(mirror.parameters()), others), 2, first=3)
        # Nearest values of both forms differ where one lies half-way.
        wide = ck.checkpoint_of(first).parameters, ck.checkpoint_of(loaded).parameters
        for name in SHAPES:
            same(wide[1][name], wide[0][name].read())


def test_halves_of_every_kind():
    """The nearest bfloat16, of two that are as near the one further from 0, and what it lacks."""
    upper = torch.arange(-(2**15), 2**15, dtype=torch.int32)
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        value = ((upper << 16) | low).view(torch.float32)
        value = value[value.isfinite()]
        half, rest = _halves(value)
        assert torch.equal(joined_halves(half, rest), value)
        bits, chosen = value.view(torch.int32), half.view(torch.int16).int()
        expected = (bits >> 16) + (1 if low >= 0x8000 else 0)
        assert torch.equal(chosen & 0xFFFF, expected & 0xFFFF), hex(low)


def test_others_read_what_is_written(tmp_path):
    own, optimizer, _ = trained()
    for layout in ("torch", "safetensors", "dcp"):
        ck.save(optimizer, tmp_path / layout, layout)
    theirs = torch.optim.AdamW(own.named_parameters())
    saved = optimizer.state_dict()
    for mmap in (False, True):
        tree = torch.load(tmp_path / "torch", weights_only=True, mmap=mmap)
        assert tree["optimizer"]["param_groups"] == saved["param_groups"]
        for number, state in saved["state"].items():
            for key, value in state.items():
                read = tree["optimizer"]["state"][number][key]
                assert torch.equal(read, value) and read.data_ptr() % 64 == 0
        for name, param in own.named_parameters():
            assert torch.equal(tree["model"][name], param)
    flat = safetensors.torch.load_file(tmp_path / "safetensors")
    assert torch.equal(flat["0.weight.exp_avg"], saved["state"][0]["exp_avg"])
    assert torch.equal(flat["0.weight"], own.get_parameter("0.weight"))
    theirs = torch.optim.AdamW([{"params": list(g["params"])} for g in optimizer.param_groups])
    train((theirs,), (list(own.parameters()),), 1)
    state = {"optim": get_optimizer_state_dict(own, theirs)}
    dcp.load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    for number, name in enumerate(SHAPES):
        for key, value in saved["state"][number].items():
            assert torch.equal(state["optim"]["state"][name][key], value)
    assert [group["lr"] for group in state["optim"]["param_groups"]] == [0.01, 0.02]


def test_records_of_many_bytes(tmp_path, monkeypatch):
    """A zip has larger sizes in other places: as if 100 bytes were more than 2 GiB."""
    monkeypatch.setattr(archives, "_WIDE", 100)
    _, optimizer, _ = trained()
    ck.save(optimizer, tmp_path / "a", "torch")
    saved = optimizer.state_dict()["state"]
    for mmap in (False, True):
        tree = torch.load(tmp_path / "a", weights_only=True, mmap=mmap)["optimizer"]["state"]
        for number, own in saved.items():
            for key, value in own.items():
                assert torch.equal(tree[number][key], value)
                assert tree[number][key].data_ptr() % 64 == 0
    for number, own in enumerate(ck.read(tmp_path / "a").states.values()):
        same(own["exp_avg"], saved[number]["exp_avg"])


# --- Loading ------------------------------------------------------------------


def test_parameters_are_found_by_name(tmp_path):
    """In another order, in other groups, behind a wrapper."""
    own, optimizer, params = trained()
    ck.save(optimizer, tmp_path / "a", "torch")
    found = ck.read(tmp_path / "a")
    for group in found.groups:
        group["lr"] = 0.03
    named = list(own.named_parameters())
    others = list(zip([f"module.{n}" for n, _ in named], clone_params(params), strict=True))
    again = st.AdamW(others[::-1])
    with pytest.warns(RuntimeWarning, match="what wrappers put before them"):
        ck.load(again, found)
    for (_, param), (_, other) in zip(named, others, strict=True):
        mine, theirs = again.state[other], optimizer.state[param]
        assert all(torch.equal(mine[key], theirs[key]) for key in theirs)
    assert again.param_groups[0]["lr"] == 0.03
    plain = st.AdamW(p for _, p in others)
    with pytest.raises(ck.CheckpointError, match="the optimizer has no names"):
        ck.load(plain, found)
    wrapped = torch.nn.Module()
    wrapped.module = Model({n: torch.zeros(SHAPES[n]) for n in SHAPES})
    by_model = st.AdamW(wrapped.parameters())
    with pytest.warns(RuntimeWarning, match="what wrappers put before them"):
        ck.load(by_model, found, model=wrapped, parameters=True)
    assert bits_equal(params, list(wrapped.parameters()))


def test_a_part_of_a_model(tmp_path):
    """As a stage of a pipeline has it."""
    own, optimizer, params = trained()
    ck.save(optimizer, tmp_path / "a", "safetensors")
    names = [name for name, _ in own.named_parameters()]
    stage = st.AdamW(zip([*names[:2], "new"], clone_params([*params[:2], params[0]]), strict=True))
    with pytest.raises(ck.CheckpointError, match="has no parameter 'new'"):
        ck.load(stage, tmp_path / "a")
    assert not stage.state
    ck.load(stage, tmp_path / "a", strict=False)
    kept = [stage.state.get(param) for param in stage.param_groups[0]["params"]]
    assert torch.equal(kept[0]["exp_avg"], optimizer.state[params[0]]["exp_avg"]) and not kept[2]


@pytest.mark.parametrize("make", [st.SGD, st.Adagrad, st.hf.Adafactor, st.came.CAME, st.NAdam,
                                  st.deepspeed.FusedLamb, st.Muon])  # fmt: skip
def test_other_optimizers(tmp_path, make):
    """States of any shape, counts in Python, scalars of groups."""
    more = {"momentum": 0.9} if make is st.SGD else {}
    shapes = {"0.weight": (33, 20), "0.bias": (8, 9), "1.up": (64, 20)}
    if make is st.hf.Adafactor:
        more = {"relative_step": False, "scale_parameter": False}
    source = trained(make, shapes=shapes, **more)
    for layout in ("torch", "dcp"):
        ck.save(source[1], tmp_path / layout, layout)
        goes_on(source, tmp_path / layout, make, **more)


def test_relative_paths_and_files_of_other_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, optimizer, _ = trained()
    ck.save(optimizer, "state", "torch")
    assert ck.layout_of("state") == "torch" and os.listdir() == ["state"]


def test_what_is_loaded_is_nobody_elses(tmp_path):
    """Neither of the optimizer that a checkpoint was made of, nor of what is loaded again."""
    own, optimizer, params = trained(shapes=BOX)
    names = [name for name, _ in own.named_parameters()]
    made = ck.checkpoint_of(optimizer)
    made.groups[1]["lr"] = 0.01
    others = [st.AdamW(zip(names, clone_params(params), strict=True)) for _ in range(3)]
    ck.load(others[0], made)
    ck.save(optimizer, tmp_path / "a", "torch")
    found = ck.read(tmp_path / "a")
    found.groups[1]["lr"] = 0.01
    for other in others[1:]:
        ck.load(other, found)
    before = {key: value.clone() for key, value in optimizer.state[params[0]].items()}
    for other in others:
        train((other,), (other.param_groups[0]["params"],), 1)
    assert all(torch.equal(optimizer.state[params[0]][key], value)
               for key, value in before.items())  # fmt: skip
    ends = [other.state[other.param_groups[0]["params"][0]]["exp_avg"] for other in others]
    assert torch.equal(ends[0], ends[1]) and torch.equal(ends[0], ends[2])
    assert not torch.equal(ends[0], before["exp_avg"])


def test_states_that_lie_on_disk(tmp_path):
    """Are saved and loaded as others."""
    shapes = {"a.weight": (600, 700), "b.bias": (5,)}
    folders = [tmp_path / name for name in ("there", "here")]
    for folder in folders:
        folder.mkdir()

    def run(**more):
        own = model(shapes)
        return list(own.parameters()), st.AdamW(own.named_parameters(), lr=0.1, **more)

    first = run(place=st.Place("disk", str(folders[0])))
    train((first[1],), (first[0],), 2)
    assert type(first[1].state[first[0][0]]["exp_avg"]) is not torch.Tensor  # but of a file
    ck.save(first[1], tmp_path / "saved", "torch")
    runs = [first, run(), run(place=st.Place("disk", str(folders[1])))]
    for _, optimizer in runs[1:]:
        ck.load(optimizer, tmp_path / "saved", parameters=True)
    train([optimizer for _, optimizer in runs], [params for params, _ in runs], 2, first=2)
    assert bits_equal(*[params for params, _ in runs[:2]])
    assert bits_equal(*[params for params, _ in runs[1:]])
