# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints with some bytes changed: each is read to its end and loaded, or refused by a
CheckpointError with nothing changed. Nothing is run, opened for writing, or imported."""

import codecs
import io
import json
import os
import pickle
import random
import shutil
import sys
import zipfile
from collections import Counter
from pathlib import Path

import safetensors.torch
import stepc.torch as st
import torch
from deepspeed_files import Zero2, save_stage3
from stepc.torch import checkpoint as ck

CODES = Path(__file__).parent / "codes" / "saved_by_others"
SHAPES = {"up": (9, 6), "norm": (6,), "gain": ()}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_FORBIDDEN = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename",
              "os.mkdir", "os.putenv", "subprocess.Popen", "socket.", "exec", "compile",
              "ctypes.dlopen", "import", "marshal.", "shutil.")  # fmt: skip


class Watch:
    """What the interpreter says that it does, while ``on``."""

    def __init__(self):
        self.on, self.seen = False, []
        sys.addaudithook(self._hook)

    def _hook(self, event, arguments):
        if not self.on:
            return
        opens = event == "open" and arguments[2] & _WRITES
        if opens or event.startswith(_FORBIDDEN):
            self.seen.append((event, str(arguments)[:200]))


def values(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(s, generator=generator) for n, s in SHAPES.items()}


def optimizer_of(made):
    return st.AdamW([(n, torch.nn.Parameter(v.clone())) for n, v in made.items()], lr=0.01)


def trained():
    optimizer = optimizer_of(values())
    for seed in (1, 2):
        grads = values(seed).values()
        for param, grad in zip(optimizer.param_groups[0]["params"], grads, strict=True):
            param.grad = grad
        optimizer.step()
    return optimizer


def make_sources(folder: Path) -> list[Path]:
    """A checkpoint of each layout."""
    optimizer = trained()
    for layout, own in ck.LAYOUTS.items():
        if hasattr(own, "write"):
            ck.save(optimizer, folder / f"{layout}-ours", layout)
    torch.save(optimizer.state_dict(), folder / "torch-theirs")
    run = Zero2([{"params": values(), "lr": 0.01}], 2, torch.optim.AdamW)
    run.step(values(1))
    run.save(folder / "deepspeed-2")
    groups = [{"params": values(), "lr": 0.01}]
    states = {key: values(seed) for seed, key in enumerate(("exp_avg", "exp_avg_sq"))}
    save_stage3(folder / "deepspeed-3", groups, 2, states, 1)
    _save_colossal(optimizer.state_dict(), folder)
    for own in ("torchao-AdamW4bit", "torchao-AdamWFp8", "flashoptim-FlashAdamW-bf16-24"):
        shutil.copy(CODES / f"{own}.pt", folder)
    return sorted(folder.iterdir())


def _save_colossal(saved, folder: Path):
    own = folder / "colossal-bin"
    own.mkdir()
    torch.save(saved["param_groups"], own / "pytorch_optim_group.bin")
    torch.save(saved["state"], own / "pytorch_optim-00001.bin")
    weights = dict.fromkeys(map(str, saved["state"]), "pytorch_optim-00001.bin")
    index = {"metadata": {"param_groups": "pytorch_optim_group.bin"}, "weight_map": weights}
    (own / "pytorch_optim.bin.index.json").write_text(json.dumps(index))
    flat = {f"state.{n}.{k}": v for n, s in saved["state"].items() for k, v in s.items()}
    pickled = pickle.dumps(saved["param_groups"])
    flat["param_groups"] = torch.tensor(list(pickled), dtype=torch.uint8)
    metadata = {"non_tensor_keys": json.dumps(["param_groups"])}
    safetensors.torch.save_file(flat, folder / "colossal-one.safetensors", metadata)


# --- Mutations ----------------------------------------------------------------


def _bytes(data: bytearray, rng: random.Random) -> bytearray:
    """Some bytes are others, are gone, come twice, or are of elsewhere in the file."""
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 4, 8, 64))
        kind = rng.randrange(6)
        if kind == 0 and data:
            at %= len(data)
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at : at + size] = rng.randbytes(size)
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            data[at:at] = rng.randbytes(size)
        elif kind == 4:
            other = rng.randrange(len(data) + 1)
            data[at : at + size] = data[other : other + size]
        else:
            data[at : at + size] = rng.choice((b"\x00", b"\xff", b"\x7f")) * size
    return data


def _cut(data: bytearray, rng: random.Random) -> bytearray:
    return data[: rng.randrange(len(data) + 1)]


def _record(data: bytearray, rng: random.Random) -> bytearray:
    """A record of a zip is another, and its checksum is that of the other."""
    try:
        with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
            records = [(info, archive.read(info)) for info in archive.infolist()]
    except (zipfile.BadZipFile, OSError):
        return _bytes(data, rng)
    chosen = rng.randrange(len(records)) if rng.random() < 0.2 else 0
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for number, (info, own) in enumerate(records):
            own = bytes(_bytes(bytearray(own), rng)) if number == chosen else own
            if number != chosen or rng.random() < 0.97:
                archive.writestr(zipfile.ZipInfo(info.filename), own)
    return bytearray(made.getvalue())


def mutate(source: Path, target: Path, rng: random.Random) -> str:
    """Copies a checkpoint with a change; returns it in words."""
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    files = sorted(p for p in target.rglob("*") if p.is_file()) if target.is_dir() else [target]
    path = rng.choice(files)
    if target.is_dir() and rng.random() < 0.05:
        other = rng.choice(files)
        if other == path:
            path.unlink()
            return f"without {path.name}"
        path.write_bytes(other.read_bytes())
        return f"{path.name} is {other.name}"
    change = rng.choice((_bytes, _cut, _record, _record, _record))
    path.write_bytes(change(bytearray(path.read_bytes()), rng))
    return f"{change.__name__} of {path.name}"


def run(seeds, folder: Path, watch: Watch) -> Counter:
    """Each seed; AssertionError, with the seed, for what may not be."""
    sources = make_sources(folder / "sources")
    tally = Counter()
    for source in sources:  # whole: whatever is imported late is
        _try(source, watch=None)
    for name in ("raw-unicode-escape", "unicode-escape", "latin1", "ascii"):  # so are codecs
        codecs.lookup(name)
    for seed in seeds:
        rng = random.Random(seed)
        source, target = rng.choice(sources), folder / "changed"
        words = mutate(source, target, rng)
        try:
            tally[_try(target, watch)] += 1
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {words} of {source.name}: {error!r}") from error
        finally:
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        assert not watch.seen, f"seed {seed}: {words} of {source.name}: {watch.seen}"
    return tally


def _try(path: Path, watch: Watch | None) -> str:
    optimizer = optimizer_of(values(3))
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    params = optimizer.param_groups[0]["params"]
    before = [param.detach().clone() for param in params]
    if watch:
        watch.on = True
    try:
        found = ck.read(path)
        for *_, stored in found.tensors():
            stored.read()
        said = "read"
        ck.load(optimizer, found)
        said = "loaded"
    except ck.CheckpointError as error:
        assert str(path) in str(error) and len(str(error)) < 2000, error
        said = "read, and not loaded" if "found" in locals() else "refused"
    finally:
        if watch:
            watch.on = False
    if said != "loaded":
        assert not optimizer.state, "a state was made"
        now = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
        assert now == groups, "groups have changed"
    assert all(map(torch.equal, before, params)), "parameters have changed"
    return said
