# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that torchao and FlashOptim keep as codes: files that these libraries wrote, against the
float32 that their own code makes of them (saved_by_others/make.py)."""

import hashlib
import json
import sys
import types
from pathlib import Path

import pytest
import stepc.torch
import torch
import torch.distributed.checkpoint as dcp
from stepc.errors import CheckpointError
from stepc.torch import checkpoint
from stepc.torch.checkpoint.archives import read_archive
from stepc.torch.checkpoint.form import Stored
from stepc.torch.step.codes_of_others import KINDS, decoded_groups, parts_of, refuse_groups
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

SAVED = Path(__file__).parent / "saved_by_others"
EXPECTED = json.loads((SAVED / "expected.json").read_text())
FILES = sorted(EXPECTED)
CLASSES = {"AdamW": stepc.torch.AdamW, "Lion": stepc.torch.Lion, "SGD": stepc.torch.SGD}


def digest(value):
    return hashlib.sha256(value.detach().float().contiguous().numpy().tobytes()).hexdigest()


def read(stored):
    """A tree of the checkpoint's reader as torch's tensors."""
    if isinstance(stored, dict):
        return {key: read(value) for key, value in stored.items()}
    if isinstance(stored, list):
        return [read(value) for value in stored]
    return stored.read() if hasattr(stored, "read") else stored


def fresh(file, **more):
    """An optimizer of the class that the file is of, with its parameters' shapes and dtypes."""
    name = next(name for name in CLASSES if name in file)
    shapes = [(32, 128), (10,)] if file.startswith("torchao") else [(40, 33), (7,)]
    dtype = torch.float32
    if "16" in file.rpartition("-Flash")[2]:
        dtype = torch.bfloat16 if "bf16" in file else torch.float16
    params = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
    more = {"momentum": 0.9, **more} if name == "SGD" else more
    named = list(zip(("a.weight", "a.bias"), params, strict=True))
    return params, CLASSES[name](params if shapes[1] == (10,) else named, lr=0.5, **more)


def step(params, optimizer):
    for seed, param in enumerate(params):
        generator = torch.Generator().manual_seed(seed)
        param.grad = torch.randn(param.shape, generator=generator).to(param.dtype)
    optimizer.step()


@pytest.mark.parametrize("file", FILES)
def test_files_of_others(file):
    """To the bit what their code makes of it; a group's rate and the count of steps come along,
    and a step goes on from there."""
    params, optimizer = fresh(file)
    checkpoint.load(optimizer, SAVED / file)
    seen = 0
    for number, param in enumerate(params):
        for key, value in optimizer.state[param].items():
            if key != "step":
                assert digest(value) == EXPECTED[file][f"{number}.{key}"], key
                seen += 1
        assert float(optimizer.state[param].get("step", 3)) == 3
    assert seen == sum(not key.endswith(".") for key in EXPECTED[file])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    step(params, optimizer)
    assert all(param.isfinite().all() for param in params)


@pytest.mark.parametrize("file", [f for f in FILES if any(k.endswith(".") for k in EXPECTED[f])])
def test_error_bits(file):
    """With the parameter of 16 bits they are its float32."""
    found = checkpoint.read(SAVED / file)
    for number, stored in enumerate(found.parameters.values()):
        assert digest(stored.read()) == EXPECTED[file][f"{number}."]
        assert "error_bits" not in found.states[found.names[number]]
    params, optimizer = fresh(file, master="f32")
    checkpoint.load(optimizer, SAVED / file, parameters=True)
    for number, param in enumerate(params):
        assert digest(optimizer.state[param]["master"]) == EXPECTED[file][f"{number}."]


@pytest.mark.parametrize("file", ["torchao-AdamW8bit.pt", "torchao-AdamW4bit.pt"])
def test_they_become_codes_of_ours(file):
    """Those of the float32 that they stand for."""
    runs = [fresh(file, state_dtype=kind) for kind in ("q8", "q8", None)]
    (_, ours), (_, again), (params, floats) = runs
    checkpoint.load(ours, SAVED / file)
    checkpoint.load(floats, SAVED / file)
    again.load_state_dict(floats.state_dict())
    for own in runs:
        step(*own)
    for first, second in zip(runs[0][0], runs[1][0], strict=True):
        assert torch.equal(first, second)
        assert all(torch.equal(ours.state[first][k], v) for k, v in again.state[second].items())
    assert ours.state[runs[0][0][0]]["exp_avg"].dtype is torch.uint8
    assert floats.state[params[0]]["exp_avg"].dtype is torch.float32


# --- Folders of torch.distributed.checkpoint ----------------------------------


class AsTorchao(DefaultSavePlanner):
    """Writes float32, or another dtype, where the metadata have that of the tensor: as torchao's
    tensors, which say that they are of their parameter's dtype, and stand for float32."""

    dtype = torch.float32

    def resolve_data(self, write_item):
        data = super().resolve_data(write_item)
        return data.to(self.dtype) if getattr(data, "ndim", 0) == 2 else data


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_folder_with_states_of_torchao_beside_16_bits(tmp_path, dtype):
    """Its states are read as float32, and others beside them as they are."""
    generator = torch.Generator().manual_seed(1)
    moments = [torch.randn(shape, generator=generator).to(dtype) for shape in ((32, 128), (10,))]
    saved = state_of(moments[0], moments[0].abs())
    saved["state"][1] = {**saved["state"][0], "exp_avg": moments[1], "exp_avg_sq": moments[1].abs()}
    saved["param_groups"][0]["params"] = [0, 1]
    dcp.save({"optim": saved}, checkpoint_id=tmp_path, planner=AsTorchao(), no_dist=True)
    found = checkpoint.read(tmp_path).states
    assert [own["exp_avg"].dtype for own in found.values()] == [torch.float32, dtype]
    params = [torch.nn.Parameter(torch.zeros_like(moment)) for moment in moments]
    optimizer = stepc.torch.AdamW(params)
    checkpoint.load(optimizer, tmp_path)
    for param, moment in zip(params, moments, strict=True):
        assert torch.equal(optimizer.state[param]["exp_avg"].float(), moment.float())


def test_a_folder_whose_chunks_have_another_dtype(tmp_path):
    """Nothing but float32 is read in place of what the metadata say."""
    moment = torch.ones(32, 128, dtype=torch.bfloat16)
    planner = AsTorchao()
    planner.dtype = torch.float64
    saved = {"optim": state_of(moment, moment)}
    dcp.save(saved, checkpoint_id=tmp_path, planner=planner, no_dist=True)
    optimizer = stepc.torch.AdamW([torch.nn.Parameter(torch.zeros_like(moment))])
    with pytest.raises(
        CheckpointError, match=r"no chunk of \(32, 128\) of 'optim.state.0.exp_avg'"
    ):
        checkpoint.load(optimizer, tmp_path)


# --- load_state_dict ----------------------------------------------------------


class Imitated(torch.Tensor):
    """As torchao's classes: a wrapper with tensors as attributes."""

    @staticmethod
    def __new__(cls, shape, **fields):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)

    def __init__(self, shape, **fields):
        vars(self).update(fields)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} of a tensor of codes")


def imitated(name, shape, **fields):
    """An object that is called as the class of torchao is."""
    module, _, own = name.rpartition(".")
    kind = type(own, (Imitated,), {"__module__": module})
    return kind(shape, **fields)


def state_of(exp_avg, exp_avg_sq, count=3.0):
    own = {"step": torch.tensor(count), "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}
    group = {"lr": torch.tensor(0.01), "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}
    return {"state": {0: own}, "param_groups": [{**group, "params": [0]}]}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_state_dict_with_tensors_of_torchao(name):
    """As it is in memory, where torchao is there; both places where it had its classes."""
    generator = torch.Generator().manual_seed(1)
    shape, blocks = (32, 128), 16
    scale = torch.rand(blocks, generator=generator)
    numbers = torch.randn(4096, generator=generator)
    if "fp8" in name:
        codes = numbers.to(torch.float8_e4m3fn)
        fields, values = {"codes": codes.view(shape)}, codes.float()
    elif "4bit" in name:
        table = torch.randn(16, generator=generator)
        codes = torch.randint(16, (4096,), generator=generator)
        packed = (codes[::2] * 16 + codes[1::2]).to(torch.uint8)
        fields, values = {"codes": packed, "qmap": table}, table[codes]
    else:
        table = torch.randn(256, generator=generator)
        codes = torch.randint(256, (4096,), generator=generator)
        fields, values = {"codes": codes.to(torch.uint8).view(shape), "qmap": table}, table[codes]
    meant = (values.view(blocks, -1) * scale[:, None]).view(shape)
    own = imitated(name, shape, scale=scale, **fields)
    params = [torch.nn.Parameter(torch.zeros(shape))]
    optimizer = stepc.torch.AdamW(params)
    saved = state_of(own, torch.ones(shape))
    optimizer.load_state_dict(saved)
    assert torch.equal(optimizer.state[params[0]]["exp_avg"], meant)
    assert saved["state"][0]["exp_avg"] is own
    step(params, optimizer)


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("flashoptim")])
def test_a_state_dict_of_flashoptim(file):
    """Error bits are of a parameter that the state has not: they are left out, in words."""
    tree = read(read_archive(str(SAVED / file)))["optimizer"]
    params, optimizer = fresh(file)
    has_errors = any("error_bits" in own for own in tree["state"].values())
    if has_errors:
        with pytest.warns(RuntimeWarning, match="'error_bits', which optimizer"):
            optimizer.load_state_dict(tree)
    else:
        optimizer.load_state_dict(tree)
    for number, param in enumerate(params):
        for key, value in optimizer.state[param].items():
            if key != "step":
                assert digest(value) == EXPECTED[file][f"{number}.{key}"], key


def test_all_codes_of_flashoptim():
    """Against its formulas in float64, at a scale whose products are exact."""
    for dtype, most in ((torch.int8, 127), (torch.uint8, 255)):
        codes = torch.arange(-most if dtype is torch.int8 else 0, most + 1).to(dtype)
        scales = torch.full((-(-codes.numel() // 32),), 0.5, dtype=torch.float16)
        share = codes.double() / most
        meant = share / (2 - share.abs()) * 0.5 if dtype is torch.int8 else (share * 0.5) ** 2
        torch.testing.assert_close(decoded_groups(codes, scales).double(), meant, rtol=3e-7, atol=0)


def chunked(shape, dtype, *chunks):
    return Stored(shape, dtype, None, chunks=chunks)


def test_parts_of_ranks():
    """Groups begin where a rank's part does; a part that is cut in a row is not known."""
    scales = chunked((4,), torch.float16, ((0,), (2,)), ((2,), (2,)))
    rows = chunked((42, 3), torch.int8, ((0, 0), (21, 3)), ((21, 0), (21, 3)))
    assert parts_of(rows, scales) == [63, 63]
    one = chunked((42, 3), torch.int8, ((0, 0), (42, 3)))
    assert parts_of(one, chunked((4,), torch.float16)) == [126]
    whole = chunked((4, 32), torch.int8, ((0, 0), (2, 32)), ((2, 0), (2, 32)))
    assert parts_of(whole, chunked((4,), torch.float16, ((0,), (4,)))) == [64, 64]
    words = "scales are of groups of what each rank had"
    with pytest.raises(ValueError, match=rf"in parts of \[63, 63\] and scales in .*\[4\]: {words}"):
        parts_of(rows, chunked((4,), torch.float16, ((0,), (4,))))
    columns = chunked((32, 4), torch.int8, ((0, 0), (32, 2)), ((0, 2), (32, 2)))
    with pytest.raises(ValueError, match=rf"in parts of shape \(32, 2\) of \(32, 4\): {words}"):
        parts_of(columns, scales)
    refuse_groups(rows, scales, [63, 63])
    with pytest.raises(ValueError, match="4 scales of 126 codes in 3 parts, expected one for each"):
        refuse_groups(rows, scales, [33, 33, 60])


# --- What does not belong together --------------------------------------------


BROKEN = {
    "of other blocks": ({"scale": torch.ones(15)}, "4096 codes and 15 scales"),
    "of no blocks": ({"scale": torch.ones(0)}, "4096 codes and 0 scales"),
    "of a short table": ({"qmap": torch.ones(255)}, "255 numbers for a code, expected 256"),
    "of another shape": ({"codes": torch.zeros(9, dtype=torch.uint8)}, "9 codes and 16 scales"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_states_of_torchao(tmp_path, monkeypatch, case):
    """In memory and in a file; nothing has changed."""
    changed, words = BROKEN[case]
    codes = torch.zeros((32, 128), dtype=torch.uint8)
    fields = {"codes": codes, "scale": torch.ones(16), "qmap": torch.ones(256), **changed}
    own = imitated("torchao.optim.subclass_8bit.OptimState8bit", (32, 128), **fields)
    params = [torch.nn.Parameter(torch.zeros(32, 128))]
    optimizer = stepc.torch.AdamW(params)
    with pytest.raises(ValueError, match=f"state 'exp_avg' of .* has {words}"):
        optimizer.load_state_dict(state_of(own, torch.ones(32, 128)))
    assert not optimizer.state
    with pytest.raises(CheckpointError, match=f"a state of torchao's of {words}"):
        checkpoint.read(broken(tmp_path, monkeypatch, fields))


class Pickled:
    """Becomes what a tensor of torchao is in a pickle."""

    def __init__(self, kind, fields):
        self.kind, self.fields = kind, fields

    def __reduce_ex__(self, _):
        made = (self.kind, torch.float32, (32, 128), (128, 1), 0, torch.strided, "cpu", False)
        arguments = (torch._utils._rebuild_wrapper_subclass, self.kind, made, self.fields)
        return torch._tensor._rebuild_from_type_v2, arguments


def broken(folder, monkeypatch, fields):
    """A file with other tensors in a state, of a class that is there while it is written."""
    module = types.ModuleType("torchao.optim.subclass_8bit")
    module.OptimState8bit = type("OptimState8bit", (), {"__module__": module.__name__})
    for name in ("torchao", "torchao.optim"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path = folder / "broken.pt"
    torch.save(state_of(Pickled(module.OptimState8bit, fields), torch.ones(32, 128)), path)
    monkeypatch.undo()
    return path


OTHERS = {
    "without 'scale'": {"scale": None},
    "codes of torch.int8": {"codes": torch.zeros((32, 128), dtype=torch.int8)},
}


@pytest.mark.parametrize("words", OTHERS)
def test_files_with_other_fields(tmp_path, monkeypatch, words):
    codes = torch.zeros((32, 128), dtype=torch.uint8)
    fields = {"codes": codes, "scale": torch.ones(16), "qmap": torch.ones(256), **OTHERS[words]}
    with pytest.raises(CheckpointError, match=f"a state of torchao's.* {words}"):
        checkpoint.read(broken(tmp_path, monkeypatch, fields))


def test_broken_states_of_flashoptim():
    """No scales, other scales, other dtypes."""
    codes, scales = torch.zeros((40, 33), dtype=torch.int8), torch.ones(42, dtype=torch.float16)
    cases = [
        ({"exp_avg::quantized": codes}, "codes without scales"),
        ({"exp_avg::scales": scales}, "scales without codes"),
        ({"exp_avg": torch.ones(40, 33), "exp_avg::scales": scales}, "scales without codes"),
        ({"exp_avg::quantized": codes, "exp_avg::scales": scales[:41]},
         "41 scales of 1320 codes, expected one for each 32"),
        ({"exp_avg::quantized": codes.short(), "exp_avg::scales": scales}, "codes of torch.int16"),
        ({"exp_avg::quantized": codes, "exp_avg::scales": scales.float()}, "scales of torch.float"),
    ]  # fmt: skip
    for given, words in cases:
        params = [torch.nn.Parameter(torch.zeros(40, 33))]
        optimizer = stepc.torch.AdamW(params)
        saved = state_of(None, torch.ones(40, 33))
        del saved["state"][0]["exp_avg"]
        saved["state"][0].update(given)
        with pytest.raises(ValueError, match=f"state 'exp_avg' of .* has .*{words}"):
            optimizer.load_state_dict(saved)
        assert not optimizer.state
