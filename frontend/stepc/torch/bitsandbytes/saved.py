# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States as bitsandbytes saves them.

Of 32 bits they are float32 tensors, ``state1`` and ``state2``. Of 8 bits these are codes: each
stands for ``qmap[code] * absmax[block]``, with a table of 256 numbers that is saved beside, and
blocks along the flattened parameter. That is one product of float32: what is read is exact.
"""

from __future__ import annotations

from itertools import chain

import torch

from ..tensors.members import named_parameters

WRAPPED = "__bnb_optimizer_quant_state__"  # what FSDP is not to see, since 0.49.2
_BLOCKS = (256, 2048)  # elements of a block, of releases since 0.44 and before
_BESIDE = ("qmap", "absmax", "max", "new_max")
_NOT_READ = ("unorm_vec",)  # norms of updates
# What stands beside the states of a parameter, and is none itself.
CODED = {f"{part}{k}" for part in _BESIDE for k in (1, 2)} | {*_NOT_READ}


def read_states(state_dict: dict, groups: list[dict], names: dict[str, str]) -> dict:
    """A saved state with what bitsandbytes saved under the names of the definition, in float32;
    what is not of bitsandbytes is as it was. ``names``: the definition's by bitsandbytes'.

    ValueError, by parameter, for what cannot be decoded.
    """
    saved = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
    called = {
        number: (words, param)
        for number, (words, param) in zip(saved, named_parameters(groups), strict=False)
    }
    states = {
        key: _read(own, names, *called[key]) if key in called and isinstance(own, dict) else own
        for key, own in state_dict["state"].items()
    }
    return {**state_dict, "state": states}


def _read(own: dict, names: dict[str, str], words: str, param: torch.Tensor) -> dict:
    own = {**{name: value for name, value in own.items() if name != WRAPPED},
           **own.get(WRAPPED, {})}  # fmt: skip
    if not own.keys() & names.keys():
        return own
    beside = {f"{part}{name[-1]}" for part in _BESIDE for name in names}
    found = {n: v for n, v in own.items() if n not in {*names, *beside, *_NOT_READ}}
    for name, ours in names.items():
        if name in own:
            if own[name].dtype is torch.uint8 and own[name].shape != param.shape:
                raise ValueError(
                    f"state '{name}' of {words} has shape {tuple(own[name].shape)}, expected that "
                    f"of the parameter, {tuple(param.shape)}"
                )
            found[ours] = decoded_codes(own, name, words)
    return found


def decoded_codes(own: dict, name: str, words: str) -> torch.Tensor:
    """One state of a parameter, in float32. ``words``: what a ValueError calls the parameter."""
    codes, number = own[name], name[-1]
    if codes.dtype is not torch.uint8:
        return codes
    table, largest = (own.get(f"{part}{number}") for part in ("qmap", "absmax"))
    if table is None or largest is None:
        raise ValueError(
            f"state '{name}' of {words} is of codes, without 'qmap{number}' and "
            f"'absmax{number}': codes of block_wise=False are not read"
        )
    if not codes.is_contiguous():
        raise ValueError(
            f"state '{name}' of {words} has strides {codes.stride()}, expected codes in row-major "
            "order: blocks are of elements in the order of memory"
        )
    count = codes.numel()
    size = next((s for s in _BLOCKS if largest.numel() == -(-count // s)), None)
    if size is None or table.numel() != 256:
        raise ValueError(
            f"state '{name}' of {words} has {table.numel()} numbers for a code and "
            f"{largest.numel()} for its blocks, expected 256 and {-(-count // _BLOCKS[0])}"
        )
    with torch.no_grad():
        values = table.float()[codes.reshape(-1).long()]
        scales = largest.float().reshape(-1).repeat_interleave(size)[:count]
        return (values * scales).reshape(codes.shape)
