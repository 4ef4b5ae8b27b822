# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What cannot be read or loaded is refused by name, before anything has changed."""

import json
import os
import pickle
import zipfile

import pytest
import safetensors.torch
import stepc.torch as st
import torch
from deepspeed_files import Zero2, classes_of_deepspeed
from stepc.torch import checkpoint as ck
from stepc.torch.step import saving
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata

SHAPES = {"encoder.weight": (9, 6), "encoder.bias": (6,), "gain": ()}


def values(seed=0, shapes=None):
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(s, generator=generator) for n, s in (shapes or SHAPES).items()}


def optimizer_of(made, make=st.AdamW, steps=0, **more):
    named = [(name, torch.nn.Parameter(value.clone())) for name, value in made.items()]
    optimizer = make(named, lr=0.01, **more)
    for step in range(steps):
        for seed, (_, param) in enumerate(named):
            param.grad = torch.full_like(param, 0.1 * (seed + step + 1))
        optimizer.step()
    return optimizer


@pytest.fixture
def saved(tmp_path):
    """A file of ``torch.save``, and what loads it."""
    optimizer = optimizer_of(values(), steps=2)
    ck.save(optimizer, tmp_path / "saved", "torch")
    return tmp_path / "saved"


def refused(words, optimizer, path, *, of=None, **arguments):
    """By one message that names the path; the optimizer is as it was."""
    before = [p.detach().clone() for g in optimizer.param_groups for p in g["params"]]
    hypers = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    states = {k: dict(v) for k, v in optimizer.state.items()}
    with pytest.raises(ck.CheckpointError) as caught:
        ck.load(optimizer, path, **arguments)
    assert words in str(caught.value), caught.value
    assert str(of or path) in str(caught.value) and "\n" not in str(caught.value)
    after = [p for g in optimizer.param_groups for p in g["params"]]
    assert all(map(torch.equal, before, after))
    assert hypers == [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    assert states.keys() == optimizer.state.keys()
    assert all(own[k] is optimizer.state[p][k] for p, own in states.items() for k in own)


def fresh(**more):
    return optimizer_of(values(5), steps=1, **more)


# --- Files --------------------------------------------------------------------


def test_what_is_no_checkpoint(tmp_path, saved):
    optimizer = fresh()
    refused("does not exist", optimizer, tmp_path / "none")
    (tmp_path / "folder").mkdir()
    refused("is a folder of no layout that is known", optimizer, tmp_path / "folder")
    (tmp_path / "text").write_text("hello")
    refused("is a file of no layout that is known", optimizer, tmp_path / "text")
    refused("is no zip, as torch.save writes it", optimizer, tmp_path / "text", layout="torch")
    refused("cannot be of layout 'deepsped'; layouts are", optimizer, saved, layout="deepsped")
    refused("did you mean 'deepspeed'?", optimizer, saved, layout="deepsped")
    torch.save({"weight": torch.ones(3)}, tmp_path / "model.pt")
    refused("has no state of an optimizer", optimizer, tmp_path / "model.pt")
    torch.save({"a": optimizer.state_dict(), "b": optimizer.state_dict()}, tmp_path / "two.pt")
    refused("has 2: 'a', 'b'; one is expected", optimizer, tmp_path / "two.pt")
    torch.save(torch.ones(3), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    refused("was saved by torch.save of before 1.6", optimizer, tmp_path / "old.pt")
    with zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 100_000_000)
    refused("that is not plain", optimizer, tmp_path / "packed.pt")
    safetensors.torch.save_file({"weight": torch.ones(3)}, tmp_path / "a.safetensors")
    refused("has no groups in its metadata", optimizer, tmp_path / "a.safetensors")


@pytest.mark.parametrize("layout", ["torch", "safetensors", "dcp", "universal"])
def test_files_that_are_cut_off(tmp_path, layout):
    """At any place, and each file of a folder by itself; and one that is away."""
    ck.save(optimizer_of(values(), steps=2), tmp_path / "whole", layout)
    whole, optimizer = tmp_path / "whole", fresh()
    files = sorted(p for p in whole.rglob("*") if p.is_file()) if whole.is_dir() else [whole]
    # What DeepSpeed's stage 3 alone looks for is not read here.
    files = [path for path in files if not path.name.startswith("zero_pp_rank")]
    for path in files[:: max(len(files) // 8, 1)]:
        data = path.read_bytes()
        for size in (0, 1, 10, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:size])
            with pytest.raises(ck.CheckpointError, match=path.parent.name):
                ck.load(optimizer, whole)
        # A group alone has all parameters: nothing has to say which.
        if whole.is_dir() and path.name != "mp_rank_00_model_states.pt":
            path.unlink()
            with pytest.raises(ck.CheckpointError, match="is missing|no layout|lacks|no states"):
                ck.load(optimizer, whole)
        path.write_bytes(data)
    ck.load(optimizer, whole)


# --- Other worlds, other models -------------------------------------------------


def under_deepspeed(folder, world=4):
    run = Zero2([{"params": values(), "lr": 0.01}], world, torch.optim.AdamW)
    run.step(values(1))
    return run.save(folder)


def test_ranks_of_deepspeed(tmp_path):
    folder, optimizer = under_deepspeed(tmp_path / "a"), fresh()
    name = "zero_pp_rank_{}_mp_rank_{:02d}_optim_states.pt".format
    last = folder / name(3, 0)
    data = last.read_bytes()
    last.unlink()
    refused("has the files of 3 ranks, and rank 0's says that there are 4", optimizer, folder)
    last.write_bytes(data)
    (folder / name(1, 0)).rename(folder / "aside")
    refused("is missing: rank 1's states", optimizer, folder, of=folder / name(1, 0))
    (folder / name(1, 0)).write_bytes((folder / "aside").read_bytes()[:3000])
    refused("is cut off", optimizer, folder, of=folder / name(1, 0))
    (folder / name(1, 0)).write_bytes(data)  # which is rank 3's
    refused("these are of another model, or a file is of another run", optimizer, folder)
    (folder / "aside").rename(folder / name(1, 0))
    ck.load(optimizer_of(values()), folder)
    (folder / name(0, 1)).write_bytes(data)
    refused("tensor- or pipeline-parallel rank; ds_to_universal.py", optimizer, folder,
            of=folder / name(0, 1))  # fmt: skip
    (folder / name(0, 1)).unlink()
    model = folder / "mp_rank_00_model_states.pt"
    shapes = {n: torch.Size(SHAPES[n]) for n in ("gain", "encoder.bias", "encoder.weight")}
    torch.save({"param_shapes": [shapes]}, model)
    refused("says that elements 0 and on are 16 of 'encoder.weight', expected 9 from 7 on",
            optimizer, folder, of=folder / name(0, 0))  # fmt: skip
    shapes = {n: torch.Size((90, *SHAPES[n])) for n in SHAPES}
    torch.save({"param_shapes": [shapes]}, model)
    refused("these are of another model", optimizer, folder)
    model.unlink()
    refused("is missing: it has the names and shapes", optimizer, folder, of=model)
    (tmp_path / "a" / "latest").write_text("../elsewhere")
    refused("which is no folder beside it", optimizer, tmp_path / "a", of=tmp_path / "a" / "latest")


def test_chunks_that_are_no_whole(tmp_path):
    """Of torch.distributed.checkpoint: some elements are in none, in two, or outside."""
    ck.save(optimizer_of(values(), steps=1), tmp_path / "a", "dcp")
    holder = tmp_path / "a" / ".metadata"
    key = "optim.state.encoder.weight.exp_avg"
    for chunks, words in {
        (((0, 0), (8, 6)),): f"has 48 elements of '{key}', whose shape is (9, 6)",
        (((0, 0), (10, 6)),): f"has a chunk of '{key}' outside of (9, 6)",
        (((0, 3), (9, 3)), ((0, 0), (9, 3))): f"does not say where '{key}' at (0, 3) lies",
    }.items():
        metadata = pickle.loads(holder.read_bytes())
        metadata.state_dict_metadata[key].chunks = [
            ChunkStorageMetadata(torch.Size(first), torch.Size(size)) for first, size in chunks
        ]
        whole = holder.read_bytes()
        holder.write_bytes(pickle.dumps(metadata))
        refused(words, fresh(), tmp_path / "a", of=holder)
        holder.write_bytes(whole)
    ck.load(fresh(), tmp_path / "a")
    metadata.state_dict_metadata[key].size = torch.Size((18, 6))
    metadata.state_dict_metadata[key].chunks = 2 * [
        ChunkStorageMetadata(torch.Size((0, 0)), torch.Size((9, 6)))
    ]
    holder.write_bytes(pickle.dumps(metadata))
    stored = ck.read(tmp_path / "a").states["encoder.weight"]["exp_avg"]
    with pytest.raises(ck.CheckpointError, match=f"has elements of '{key}' in two chunks"):
        stored.read()


def test_other_models(saved):
    other = values(5)
    other["encoder.wieght"] = other.pop("encoder.weight")
    refused("has no parameter 'encoder.wieght'; did you mean 'encoder.weight'?",
            optimizer_of(other, steps=1), saved)  # fmt: skip
    fewer = {name: value for name, value in values(5).items() if name != "gain"}
    refused("has parameter 'gain', which the optimizer has not", optimizer_of(fewer), saved)
    wide = values(5, {**SHAPES, "encoder.weight": (9, 7)})
    refused("has state 'exp_avg' of 'encoder.weight' with shape (9, 6), here it is (9, 7)",
            optimizer_of(wide), saved)  # fmt: skip
    none = optimizer_of({"x": torch.ones(3)})
    refused("has none of the optimizer's parameters", none, saved, strict=False)


def test_other_optimizers(saved, tmp_path):
    refused("lacks state 'momentum_buffer' of 'encoder.weight', and has 'step', 'exp_avg'",
            fresh(make=st.SGD, momentum=0.9), saved)  # fmt: skip
    found = ck.read(saved)
    for own in found.states.values():
        del own["step"]
    refused("lacks the count of steps of 'encoder.weight'", fresh(), found, of=saved)
    found = ck.read(saved)
    found.groups[0]["lr"] = "fast"
    refused("hyper-parameter", fresh(), found, of=saved)
    found = ck.read(saved)
    names = found.groups[0]["params"]
    found.groups = [{**found.groups[0], "params": names[:1]},
                    {**found.groups[0], "params": names[1:], "lr": 0.5}]  # fmt: skip
    refused("has lr=0.01 for 'encoder.weight' and 0.5 for 'encoder.bias', which are in one group",
            fresh(), found, of=saved)  # fmt: skip


def test_masters_and_parameters(saved, tmp_path):
    torch.save(optimizer_of(values(), steps=1).state_dict(), tmp_path / "a.pt")
    refused("has no values of 'encoder.weight'", fresh(), tmp_path / "a.pt", parameters=True)
    narrow = {name: value.bfloat16() for name, value in values(5).items()}
    masters = optimizer_of(narrow, master="f32", steps=1)
    refused("has no values of 'encoder.weight'", masters, tmp_path / "a.pt")
    halves = optimizer_of(narrow, master="remainder", steps=1)
    refused("give parameters=True", halves, saved)


def test_parts_of_a_rank(tmp_path):
    from stepc.torch.ranks.state_parts import StatePart

    saved = optimizer_of(values(), steps=1).state_dict()
    whole = saved["state"][0]["exp_avg"]
    part = StatePart.of(whole[:3], whole.shape, "rows 0 to 2", (((0, 0), (3, 6)),))
    saved["state"][0]["exp_avg"] = part
    torch.save(saved, tmp_path / "a.pt")
    refused("has a part that one rank has; full_state_dict() makes", fresh(), tmp_path / "a.pt")


# --- Writing ------------------------------------------------------------------


def test_what_cannot_be_written(saved, tmp_path):
    def refused_to(words, path, layout, of=saved):
        with pytest.raises(ck.CheckpointError, match=words):
            ck.convert(of, path, layout)
        assert sorted(os.listdir(tmp_path)) == before

    bare = tmp_path / "bare.pt"
    torch.save(optimizer_of(values(), steps=1).state_dict(), bare)
    slash = tmp_path / "slash.pt"
    ck.save(optimizer_of({"../up": torch.ones(3)}, steps=1), slash, "torch")
    before = sorted(os.listdir(tmp_path))
    refused_to("is there already", bare, "torch")
    refused_to("cannot be written as 'deepspeed', which is only read", tmp_path / "x", "deepspeed")
    refused_to("does not have the values of 'encoder.weight'", tmp_path / "x", "universal", bare)
    refused_to("would have a folder '../up'", tmp_path / "x", "universal", slash)
    refused_to("cannot be written: No such file", tmp_path / "no" / "x", "torch")
    found = ck.read(saved)
    found.groups[0]["call"] = refused_to
    with pytest.raises(ck.CheckpointError, match="has a hyper-parameter: Object of type function"):
        ck.write(found, tmp_path / "x", "safetensors")
    assert sorted(os.listdir(tmp_path)) == before


# --- Paths in files -----------------------------------------------------------


def test_messages_are_short_and_printable(tmp_path):
    """Whatever bytes of a file are in them."""
    under_deepspeed(tmp_path)
    (tmp_path / "latest").write_bytes(bytes(range(256)) * 15)
    with pytest.raises(ck.CheckpointError, match=r"latest' names '\?\?.*\.\.\.$") as caught:
        ck.read(tmp_path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000


def test_paths_stay_in_the_folder(tmp_path):
    (tmp_path / "secret.bin").write_bytes(b"x")
    folder = tmp_path / "colossal"
    folder.mkdir()
    for name in ("../secret.bin", str(tmp_path / "secret.bin"), "gone.bin"):
        index = {"metadata": {"param_groups": name}, "weight_map": {}}
        (folder / "pytorch_optim.bin.index.json").write_text(json.dumps(index))
        words = "is missing" if name == "gone.bin" else "which does not lie in its folder"
        refused(words, fresh(), folder, of=folder)


def test_names_of_states_are_no_paths(tmp_path):
    """A file's own names become files in one layout: nothing is written outside of it."""
    value, outside = torch.ones(3), tmp_path / "outside"
    made = optimizer_of({"w": value}, steps=1)
    for state in ("../../../../outside", str(outside), "", ".", "..", "fp32", "a\0b", 7):
        found = ck.checkpoint_of(made)
        found.states["w"][state] = ck.Stored.of(value)
        with pytest.raises(
            ck.CheckpointError, match=r"would have a file '.*' of state '.*' of 'w'"
        ):
            ck.write(found, tmp_path / "x", "universal")
        assert not os.listdir(tmp_path)
    for name in ("a\0b", "", ".", ".."):
        found = ck.checkpoint_of(made)
        found.groups[0]["params"] = [name]
        found.parameters[name] = ck.Stored.of(value)
        with pytest.raises(ck.CheckpointError, match="would have a folder"):
            ck.write(found, tmp_path / "x", "universal")
        assert not os.listdir(tmp_path)


def test_paths_that_end_in_a_slash_and_links_to_nothing(saved, tmp_path):
    ck.convert(saved, f"{tmp_path}/out/", "dcp")
    assert ck.layout_of(tmp_path / "out") == "dcp"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ck.CheckpointError, match="link' is there already"):
        ck.convert(saved, tmp_path / "link", "torch")
    assert sorted(os.listdir(tmp_path)) == before and (tmp_path / "link").is_symlink()


def test_a_copy_that_cannot_be_made(saved, monkeypatch):
    """A disk that is full, in the middle of a load: the optimizer is as it was."""
    optimizer = optimizer_of(values(1), steps=1)
    optimizer.param_groups[0]["lr"] = 0.5
    state = {param: dict(own) for param, own in optimizer.state.items()}
    groups = optimizer.param_groups
    calls = []

    def full(*arguments, **more):
        calls.append(arguments)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        return adopted(*arguments, **more)

    adopted = saving.adopted
    monkeypatch.setattr(saving, "adopted", full)
    with pytest.raises(OSError, match="No space left"):
        ck.load(optimizer, saved, parameters=True)
    assert optimizer.param_groups is groups and groups[0]["lr"] == 0.5
    assert {param: dict(own) for param, own in optimizer.state.items()}.keys() == state.keys()
    assert all(optimizer.state[p][k] is own[k] for p, own in state.items() for k in own)
    monkeypatch.undo()
    ck.load(optimizer, saved)
    assert groups is not optimizer.param_groups and optimizer.param_groups[0]["lr"] == 0.01


@pytest.mark.parametrize("count", [[], [[1]], [1.0], None, ["1"]])
def test_numbers_of_ranks_that_are_none(tmp_path, count):
    folder = under_deepspeed(tmp_path / "there", 1)
    path = folder / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    with classes_of_deepspeed():
        tree = torch.load(path, weights_only=False)
        tree["optimizer_state_dict"]["partition_count"] = count
        torch.save(tree, path)
    refused("has 'partition_count' [", fresh(), folder, of=path)


@pytest.mark.parametrize("tag", ["", ".", "..", "../x", "gone"])
def test_what_latest_may_name(tmp_path, tag):
    under_deepspeed(tmp_path / "there", 1)
    for name in ("latest", "latest_universal"):
        (tmp_path / "there" / name).write_text(tag)
        with pytest.raises(ck.CheckpointError, match=f"{name}' names '{tag}', which is no folder"):
            ck.read(tmp_path / "there", "deepspeed" if name == "latest" else "universal")


def test_what_json_has_no_words_for(saved, tmp_path):
    found = ck.read(saved)
    found.groups[0]["own"] = own = {}
    own["own"] = own
    with pytest.raises(ck.CheckpointError, match="has a hyper-parameter: Circular"):
        ck.write(found, tmp_path / "x", "safetensors")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("shape, begin, end", [([6.0], 0, 24), ([6], 0.0, 24.0), ([True] * 6, 0, 4),
                                               ([2**63], 0, 24), ([1] * 65, 0, 4)])  # fmt: skip
def test_numbers_of_a_header(tmp_path, shape, begin, end):
    own = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    head = json.dumps({"a": own}).encode()
    (tmp_path / "a.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"\0" * 24)
    with pytest.raises(ck.CheckpointError, match="has 'a' of shape"):
        ck.read(tmp_path / "a.safetensors", "safetensors")


def test_tensors_with_a_bit(tmp_path):
    value = torch.complex(torch.ones(3), torch.full((3,), 2.0)).conj().imag
    assert value.is_neg()
    tree = {"state": {0: {"exp_avg": value}}, "param_groups": [{"params": [0]}]}
    torch.save(tree, tmp_path / "a.pt")
    with pytest.raises(ck.CheckpointError, match="a bit that says that it is negative"):
        ck.read(tmp_path / "a.pt")
