# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which parameter of a checkpoint is which of an optimizer, and what a group gets of it."""

from __future__ import annotations

import re
import warnings

from ...errors import CheckpointError
from ..step.saving import SCALARS
from ..tensors.callers import level_of_caller
from ..tensors.patterns import KEY as VIEW
from .form import Checkpoint, nearest

# What wrappers put into names, and how a step is made: nothing of the mathematics.
_WRAPPERS = re.compile(
    r"^module\.|(?<![^.])_(orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)\."
)
_OF_THE_RUN = {"params", "param_names", VIEW, "foreach", "fused", "capturable", "differentiable"}


def names_of(optimizer, model=None) -> list[str] | None:
    """The names of an optimizer's parameters, in its order: its groups', or the model's; None where
    neither has them. ValueError where the model has not all of them."""
    groups = optimizer.param_groups
    if all(group.get("param_names") for group in groups):
        return [name for group in groups for name in group["param_names"]]
    if model is None:
        return None
    known = {id(param): name for name, param in model.named_parameters()}
    found = [known.get(id(param)) for group in groups for param in group["params"]]
    if None in found:
        raise ValueError(f"the model has no parameter {found.index(None)} of the optimizer")
    return found


def matched(found: Checkpoint, own: list[str] | None, frozen: list[bool], strict: bool) -> list:
    """The checkpoint's name of each of the optimizer's parameters; None of one that it has not
    and need not have. CheckpointError for another model."""
    theirs = found.names
    if not found.named:
        if len(theirs) != len(frozen):
            raise CheckpointError(
                found.path, f"has {len(theirs)} parameters without names, the optimizer has "
                f"{len(frozen)}"
            )  # fmt: skip
        return list(theirs)
    if own is None:
        raise CheckpointError(
            found.path, "has parameters by name, and the optimizer has no names: make it of "
            "model.named_parameters(), or give model="
        )  # fmt: skip
    there = dict(zip(theirs, theirs, strict=True))
    wanted = own
    if set(own) != set(theirs):
        bare = {_WRAPPERS.sub("", name): name for name in theirs}
        plain = [_WRAPPERS.sub("", name) for name in own]
        if len(bare) == len(theirs) and len(set(plain) & set(bare)) > len(set(own) & set(theirs)):
            there, wanted = bare, plain
            warnings.warn(
                f"stepc: names are compared without what wrappers put before them, as in "
                f"'{theirs[0]}' of '{found.path}' and '{own[0]}' of the optimizer",
                RuntimeWarning, stacklevel=level_of_caller(),
            )  # fmt: skip
    _check_names(found, there, wanted, frozen, strict)
    return [there.get(name) for name in wanted]


def _check_names(found, there: dict, wanted: list[str], frozen: list[bool], strict: bool) -> None:
    missing = [n for n, still in zip(wanted, frozen, strict=True) if n not in there and not still]
    known = set(wanted)
    extra = [name for name in there if name not in known]
    if strict and missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(
            found.path, f"has no parameter '{missing[0]}'{more}{nearest(missing[0], there)}"
        )
    if strict and extra:
        more = f" and {len(extra) - 1} more" if len(extra) > 1 else ""
        raise CheckpointError(
            found.path, f"has parameter '{extra[0]}'{more}, which the optimizer has not"
            f"{nearest(extra[0], known)}"
        )  # fmt: skip
    if not known & set(there):
        raise CheckpointError(found.path, "has none of the optimizer's parameters")


def merged_groups(optimizer, found: Checkpoint, theirs: list, own: list[str]) -> list[dict]:
    """The optimizer's groups with the checkpoint's hyper-parameters, of those that they have.

    CheckpointError where parameters of one group had others than each other there.
    """
    of = {name: group for group in found.groups for name in group["params"]}
    made, names, labels = [], iter(theirs), iter(own)
    for group in optimizer.param_groups:
        pairs = [(next(names), next(labels)) for _ in group["params"]]
        groups = [(of[name], label) for name, label in pairs if name is not None]
        wanted = [key for key in group if key not in _OF_THE_RUN]
        wanted += [SCALARS, "step"] if getattr(optimizer, "_group_step", False) else [SCALARS]
        first, label = groups[0] if groups else ({}, "")
        for other, name in groups[1:]:
            for key in wanted:
                if other is not first and _value(other, key) != _value(first, key):
                    raise CheckpointError(
                        found.path, f"has {key}={first.get(key)!r} for '{label}' and "
                        f"{other.get(key)!r} for '{name}', which are in one group here"
                    )  # fmt: skip
        made.append({**group, **{key: first[key] for key in wanted if key in first}})
    return made


def _value(group: dict, key: str):
    value = group.get(key)
    return tuple(value) if isinstance(value, list) else value
