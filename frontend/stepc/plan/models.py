# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models: the names, shapes and storage types of their parameters."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from .failure import PlanError

BYTES = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8}  # of an element


@dataclass(frozen=True)
class Tensor:
    """One parameter. ``unit``: the part of the model that torch's ``fully_shard`` gathers
    together, by default what the name has up to its first number: a block. ``of``: the parameter of
    which it is one of several tensors that are stepped by themselves, as a view has it."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "f32"
    of: str = ""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * BYTES[self.dtype]

    @property
    def unit(self) -> str:
        match = re.match(r"(.*?\.)?\d+(?=\.)", self.name)
        return match.group() if match else ""


@dataclass(frozen=True)
class Model:
    """``splits``: regular expressions of names and the dim that tensor parallelism cuts,
    None for whole tensors; the first that matches is taken."""

    name: str
    tensors: tuple[Tensor, ...]
    splits: tuple[tuple[str, int | None], ...] = ()

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    def with_dtype(self, dtype: str) -> Model:
        return replace(self, tensors=tuple(replace(t, dtype=dtype) for t in self.tensors))

    def units(self) -> dict[str, list[Tensor]]:
        found: dict[str, list[Tensor]] = {}
        for tensor in self.tensors:
            found.setdefault(tensor.unit, []).append(tensor)
        return found


# --- Built in -----------------------------------------------------------------


def _gpt2() -> Iterator[tuple[str, tuple[int, ...]]]:
    """GPT-2 124M, the output tied to the embedding: 148 tensors."""
    d = 768
    yield "wte.weight", (50257, d)
    yield "wpe.weight", (1024, d)
    for i in range(12):
        for name, shape in (
            ("ln_1", (d,)),
            ("attn.c_attn", (d, 3 * d)),
            ("attn.c_proj", (d, d)),
            ("ln_2", (d,)),
            ("mlp.c_fc", (d, 4 * d)),
            ("mlp.c_proj", (4 * d, d)),
        ):
            yield f"h.{i}.{name}.weight", shape
            yield f"h.{i}.{name}.bias", shape[-1:]
    yield "ln_f.weight", (d,)
    yield "ln_f.bias", (d,)


def _bert_large() -> Iterator[tuple[str, tuple[int, ...]]]:
    """BERT-large, uncased, with its pooler and heads of pretraining: 398 tensors."""
    d = 1024
    yield "embeddings.word.weight", (30522, d)
    yield "embeddings.position.weight", (512, d)
    yield "embeddings.type.weight", (2, d)
    yield from (("embeddings.norm.weight", (d,)), ("embeddings.norm.bias", (d,)))
    attention = [(f"attention.{name}", d, d) for name in ("query", "key", "value", "out")]
    linear = [*attention, ("intermediate", 4 * d, d), ("output", d, 4 * d)]
    for i in range(24):
        for name, rows, columns in linear:
            yield f"layer.{i}.{name}.weight", (rows, columns)
            yield f"layer.{i}.{name}.bias", (rows,)
        for norm in ("attention_norm", "output_norm"):
            yield f"layer.{i}.{norm}.weight", (d,)
            yield f"layer.{i}.{norm}.bias", (d,)
    yield from (("pooler.weight", (d, d)), ("pooler.bias", (d,)), ("head.bias", (30522,)))
    yield from (("head.dense.weight", (d, d)), ("head.dense.bias", (d,)))
    yield from (("head.norm.weight", (d,)), ("head.norm.bias", (d,)))
    yield from (("relationship.weight", (2, d)), ("relationship.bias", (2,)))


def _llama(d: int, layers: int, hidden: int, kv: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """``kv``: rows of the key and value projections."""
    yield "embed_tokens.weight", (32000, d)
    for i in range(layers):
        yield f"layers.{i}.self_attn.q_proj.weight", (d, d)
        yield f"layers.{i}.self_attn.k_proj.weight", (kv, d)
        yield f"layers.{i}.self_attn.v_proj.weight", (kv, d)
        yield f"layers.{i}.self_attn.o_proj.weight", (d, d)
        yield f"layers.{i}.mlp.gate_proj.weight", (hidden, d)
        yield f"layers.{i}.mlp.up_proj.weight", (hidden, d)
        yield f"layers.{i}.mlp.down_proj.weight", (d, hidden)
        yield f"layers.{i}.input_layernorm.weight", (d,)
        yield f"layers.{i}.post_attention_layernorm.weight", (d,)
    yield "norm.weight", (d,)
    yield "lm_head.weight", (32000, d)


_LLAMA_SPLITS = ((r"[qkv]_proj|gate_proj|up_proj|embed_tokens|lm_head", 0),
                 (r"o_proj|down_proj", 1))  # fmt: skip
_GPT2_SPLITS = ((r"c_(attn|fc)\.weight", 1), (r"c_(attn|fc)\.bias", 0),
                (r"c_proj\.weight|wte", 0))  # fmt: skip
_BERT_SPLITS = ((r"query|key|value|intermediate|word", 0),
                (r"(attention\.out|\.output)\.weight", 1))  # fmt: skip

_BUILT_IN = {
    "gpt2": (_gpt2, "f32", _GPT2_SPLITS),
    "bert-large": (_bert_large, "f32", _BERT_SPLITS),
    "llama-7b": (lambda: _llama(4096, 32, 11008, 4096), "bf16", _LLAMA_SPLITS),
    "llama-70b": (lambda: _llama(8192, 80, 28672, 1024), "bf16", _LLAMA_SPLITS),
}
NAMES = tuple(_BUILT_IN)


# --- From a file --------------------------------------------------------------


def _tensors(entry: dict, where: str) -> Iterator[Tensor]:
    """The tensors of one entry, ``count`` of them; ``{}`` in the name is the number."""
    try:
        name, shape = str(entry["name"]), tuple(int(n) for n in entry["shape"])
        dtype, count = str(entry.get("dtype", "f32")), int(entry.get("count", 1))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"{where}: not a name, shape, dtype and count: {error}") from None
    if dtype not in BYTES:
        raise PlanError(f"{where}: dtype is '{dtype}', known: {', '.join(BYTES)}")
    if count < 1 or any(n < 0 for n in shape):
        raise PlanError(f"{where}: shape is {shape}, count is {count}")
    for number in range(count):
        own = name.replace("{}", str(number))
        yield Tensor(own if own != name or count == 1 else f"{name}.{number}", shape, dtype)


def _line(text: str, where: str) -> dict:
    words = text.split()
    if not 2 <= len(words) <= 4:
        raise PlanError(f"{where}: '{text}', expected: name shape [dtype] [count]")
    shape = [] if words[1] in ("-", "[]") else words[1].strip("[]").replace("x", ",").split(",")
    return dict(zip(("name", "shape", "dtype", "count"), (words[0], shape, *words[2:]),
                    strict=False))  # fmt: skip


def _read(path: Path) -> Model:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"model '{path}' cannot be read: {error.strerror}; built in: {', '.join(NAMES)}"
        ) from None
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: is no text: {error}") from None
    if text.lstrip().startswith(("[", "{")):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"{path}: {error}") from None
        entries = data.get("tensors") if isinstance(data, dict) else data
        if not isinstance(entries, list):
            raise PlanError(f"{path}: has no list of 'tensors'")
        found = [(e, f"{path}: tensor {i}") for i, e in enumerate(entries)]
    else:
        lines = [(i, line.split("#")[0].strip()) for i, line in enumerate(text.splitlines(), 1)]
        found = [(_line(line, f"{path}:{i}"), f"{path}:{i}") for i, line in lines if line]
    tensors = tuple(t for entry, where in found for t in _tensors(entry, where))
    if not tensors:
        raise PlanError(f"{path}: has no tensors")
    return Model(path.stem, tensors)


def load(name: str, dtype: str | None = None) -> Model:
    """A model by its name, or a file of tensors (JSON, or lines of
    ``name shape [dtype] [count]``); ``dtype``: of all in place of their own."""
    if name in _BUILT_IN:
        make, own, splits = _BUILT_IN[name]
        tensors = tuple(Tensor(n, shape, own) for n, shape in make())
        model = Model(name, tensors, splits)
    else:
        model = _read(Path(name))
    return model.with_dtype(dtype) if dtype else model
