# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the note of a commit can have, so that whoever reads it needs to trust nobody
(``torch.load`` with ``weights_only``)."""

from __future__ import annotations

from collections import OrderedDict

import torch

from ... import errors

_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter,
    torch.dtype, torch.device, torch.Size,
)  # fmt: skip
_LISTS, _DICTS = (list, tuple), (dict, OrderedDict)


def plain(value: object, place: str) -> object:
    """The value, with numbers of Python for those of NumPy, a float say, that a schedule has
    computed with its functions. StoreError, which says so of ``place``, for what a note cannot
    have."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in _LISTS:
        return kind(plain(own, place) for own in value)
    if kind in _DICTS:
        return kind((plain(key, place), plain(own, place)) for key, own in value.items())
    if any(base.__module__ == "numpy" and base.__name__ == "generic" for base in kind.__mro__):
        number = value.item()
        if type(number) in _PLAIN:
            return number
    raise errors.StoreError(
        f"{place} is a {kind.__name__}, which a durable file of states cannot have: numbers, "
        "strings and tensors, and lists and dicts of them",
        "STEPC_STORE_ERROR",
    )


def refuse_unkept(groups: list[dict]) -> None:
    """StoreError for what is in a group and cannot be in the file; ahead of a step."""
    try:
        for number, group in enumerate(groups):
            for key, value in group.items():
                if key != "params":
                    plain(value, f"'{key}' of group {number}")
    except errors.StoreError as error:
        error.unstepped = True
        raise
