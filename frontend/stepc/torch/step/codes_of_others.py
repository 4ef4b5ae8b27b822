# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States that others keep as codes, in float32, exactly: torchao's, which are tensors of classes of
its own, and FlashOptim's, which are two tensors each. Nothing of them is imported.

torchao (``torchao/optim/subclass_*.py``; of 0.4 to 0.8 in ``prototype/low_bit_optim``): an element
is ``table[code] * scale`` of its block, or the code times it, where codes are floats of 8 bits.
Blocks lie along the flattened tensor; codes of 4 bits are two in a byte, the upper half first.

FlashOptim (``flashoptim/optimizers.py``, ``_triton_dequantize_kernel``): groups of 32 along the
flattened tensor have scales of float16. With ``y`` for the code over its largest, 127 or 255, codes
with signs stand for ``y / (2 - |y|) * scale``, others for ``(y * scale)^2``. Its CUDA kernels
divide to the last bit but one; here quotients are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ..ranks.dtensor import is_dtensor
from ..tensors.members import named_parameters

CODES, SCALES = "::quantized", "::scales"  # behind the name of a state of FlashOptim's
_GROUP = 32  # elements of a scale there


@dataclass(frozen=True)
class Kind:
    """What a class of torchao keeps: ``fields`` are tensors, the first the codes. ``table``: how
    many numbers the last of them has."""

    fields: tuple[str, ...]
    table: int = 0
    in_a_byte: int = 1

    def refuse(self, shape: tuple[int, ...], tensors: list) -> None:
        """ValueError for tensors, or what has their shapes, that do not make one of this shape."""
        codes, scale, *table = [math.prod(own.shape) for own in tensors]
        count = math.prod(shape)
        blocks = scale if count else 1
        if codes * self.in_a_byte != count or not blocks or count % blocks:
            raise ValueError(
                f"{codes} codes and {scale} scales, which make no tensor of shape {tuple(shape)}"
            )
        if table and table[0] != self.table:
            raise ValueError(f"{table[0]} numbers for a code, expected {self.table}")

    def decode(self, shape: tuple[int, ...], codes, scale, table=None) -> torch.Tensor:
        """In float32. What they are not made of is refused before."""
        codes = codes.detach().reshape(-1)
        if self.in_a_byte == 2:
            codes = torch.stack([codes >> 4, codes & 15], dim=-1).view(-1)
        values = codes.float() if table is None else table.detach().float()[codes.long()]
        if not values.numel():
            return values.view(shape)
        return (values.view(scale.numel(), -1) * scale.detach().float().view(-1, 1)).view(shape)


_TABLED = ("codes", "scale", "qmap")
_KINDS = {
    "subclass_8bit.OptimState8bit": Kind(_TABLED, table=256),
    "subclass_4bit.OptimState4bit": Kind(_TABLED, table=16, in_a_byte=2),
    "subclass_fp8.OptimStateFp8": Kind(("codes", "scale")),
}
KINDS = {
    f"{package}.{name}": kind
    for package in ("torchao.optim", "torchao.prototype.low_bit_optim")
    for name, kind in _KINDS.items()
}


def _kind(value) -> Kind | None:
    if type(value) is torch.Tensor:
        return None
    return KINDS.get(f"{type(value).__module__}.{type(value).__qualname__}")


def _of_torchao(value: torch.Tensor) -> torch.Tensor:
    kind = _kind(value)
    tensors = [getattr(value, name) for name in kind.fields]
    kind.refuse(tuple(value.shape), tensors)
    return kind.decode(tuple(value.shape), *tensors)


# --- FlashOptim ---------------------------------------------------------------


def coded_names(own: dict) -> Iterator[str]:
    """The states of a parameter that FlashOptim keeps as codes."""
    for key in own:
        if isinstance(key, str) and key.endswith(CODES):
            yield key.removesuffix(CODES)


def refuse_groups(codes, scales, parts: Sequence[int] = ()) -> None:
    """ValueError for what are no codes of FlashOptim; of tensors, or of what has their shapes.
    ``parts``: see :func:`decoded_groups`."""
    count, groups = math.prod(codes.shape), math.prod(scales.shape)
    if codes.dtype not in (torch.int8, torch.uint8) or scales.dtype.itemsize != 2:
        raise ValueError(
            f"codes of {codes.dtype} and scales of {scales.dtype}, expected torch.int8 or "
            "torch.uint8, and torch.float16"
        )
    if groups != sum(_groups(parts or (count,))):
        of = f" in {len(parts)} parts" if len(parts) > 1 else ""
        raise ValueError(f"{groups} scales of {count} codes{of}, expected one for each {_GROUP}")


def _groups(parts: Sequence[int]) -> list[int]:
    """In parts of so many elements."""
    return [-(-size // _GROUP) for size in parts]


def parts_of(codes, scales) -> list[int]:
    """Elements of the parts of codes that ranks saved, each of which has groups of its own. Both
    have ``chunks``. ValueError for parts that do not lie one behind the other, or whose scales
    lie elsewhere."""
    if len(codes.chunks) < 2:
        return [math.prod(codes.shape)]
    rest, words = tuple(codes.shape[1:]), "scales are of groups of what each rank had"
    for offsets, sizes in codes.chunks:
        if any(offsets[1:]) or tuple(sizes[1:]) != rest:
            raise ValueError(f"codes in parts of shape {tuple(sizes)} of {codes.shape}: {words}")
    parts = [math.prod(sizes) for _, sizes in codes.chunks if math.prod(sizes)]
    theirs = [math.prod(sizes) for _, sizes in scales.chunks if math.prod(sizes)]
    if any(size % _GROUP for size in parts[:-1]) and theirs != _groups(parts):
        raise ValueError(f"codes in parts of {parts} and scales in parts of {theirs}: {words}")
    return parts


def decoded_groups(
    codes: torch.Tensor, scales: torch.Tensor, parts: Sequence[int] = ()
) -> torch.Tensor:
    """What codes of FlashOptim stand for, in float32. ``scales``: float16, or its bits as
    bfloat16, which it makes of them beside parameters of that dtype. ``parts``: how many elements
    follow each other that are in groups for themselves; none: all of them."""
    signed = codes.dtype is torch.int8
    parts = parts or (codes.numel(),)
    own = scales.detach().reshape(-1).view(torch.float16).float().split(_groups(parts))
    of = torch.cat([
        scale.repeat_interleave(_GROUP)[:size] for scale, size in zip(own, parts, strict=True)
    ])  # fmt: skip
    values = codes.detach().reshape(-1).float() / (127.0 if signed else 255.0)
    if signed:
        return (values / (2.0 - values.abs()) * of).view(codes.shape)
    return (values * of).square_().view(codes.shape)


_MANTISSA = {torch.bfloat16: 7, torch.float16: 10}  # bits of it


def corrected(param: torch.Tensor, errors: torch.Tensor, width: int) -> torch.Tensor:
    """The float32 of a parameter of 16 bits and its ``error_bits``: 127th parts, or
    32767th, of half the gap to the next number. ``width``: ``master_bytewidth`` of the
    group, as these may be saved in the parameter's dtype."""
    if errors.is_floating_point():
        errors = errors.view(torch.int16) if width == 4 else errors.to(torch.int8)
    most, mantissa = torch.iinfo(errors.dtype).max, _MANTISSA[param.dtype]
    bias = 127 if param.dtype is torch.bfloat16 else 15
    exponent = (param.view(torch.int16).int() & 0x7FFF) >> mantissa
    scale = exponent.clamp_min(1) - bias - mantissa - 1  # of half the gap, as a power of two
    first = scale >> 1
    powers = [((one + 127) << 23).view(torch.float32) for one in (first, scale - first)]
    return param.float() + errors.float() / float(most) * powers[0] * powers[1]


# --- A state_dict -------------------------------------------------------------


def in_floats(state_dict: dict, groups: list[dict]) -> dict:
    """A saved state with float32 in place of codes of others; itself where it has none.

    ValueError, by parameter and state, for codes that do not belong together.
    """
    states = state_dict["state"]
    if not any(isinstance(own, dict) and _has_codes(own) for own in states.values()):
        return state_dict
    saved = (key for group in state_dict["param_groups"] for key in group["params"])
    called = dict(zip(saved, (words for words, _ in named_parameters(groups)), strict=False))
    made = {
        key: _decoded(own, called.get(key, f"parameter {key}")) if isinstance(own, dict) else own
        for key, own in states.items()
    }
    return {**state_dict, "state": made}


def _has_codes(own: dict) -> bool:
    return any(_kind(_local(value)) for value in own.values()) or any(
        isinstance(key, str) and key.endswith((CODES, SCALES)) for key in own
    )


def _local(value):
    return value._local_tensor if is_dtensor(value) else value


@torch.no_grad()
def _decoded(own: dict, words: str) -> dict:
    scaled = [str(key).removesuffix(SCALES) for key in own if str(key).endswith(SCALES)]
    for name in scaled:
        if f"{name}{CODES}" not in own:
            raise ValueError(f"state '{name}' of {words} has scales without codes")
    made = {name: value for name, value in own.items() if not str(name).endswith((CODES, SCALES))}
    of_groups = [(name, own[f"{name}{CODES}"]) for name in coded_names(own)]
    of_torchao = [(name, value) for name, value in made.items() if _kind(_local(value))]
    for name, value in (*of_groups, *of_torchao):
        try:
            if name in made:
                values = _of_torchao(_local(value))
            else:
                codes, scales = _local(value), _local(own[f"{name}{SCALES}"])
                refuse_groups(codes, scales)
                values = decoded_groups(codes, scales)
        except KeyError:
            raise ValueError(f"state '{name}' of {words} has codes without scales") from None
        except ValueError as error:
            raise ValueError(f"state '{name}' of {words} has {error}") from None
        made[name] = _like(values, value)
    return made


def _like(values: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A DTensor where the codes are one."""
    if not is_dtensor(value):
        return values
    return type(value).from_local(
        values, value.device_mesh, value.placements, run_check=False, shape=value.shape,
        stride=value.stride(),
    )  # fmt: skip
