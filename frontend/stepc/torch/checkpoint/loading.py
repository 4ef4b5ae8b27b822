# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A checkpoint into an optimizer, and an optimizer into a checkpoint."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from ...errors import CheckpointError
from ..binding.features import STATES
from ..binding.groups import rules_of
from ..binding.precision import MASTERS
from ..binding.rules import WholeState, whole_states
from ..bitsandbytes.percentile import COUNT, VECTOR, PercentileClipping
from ..ranks.describe import shared_over
from ..ranks.dtensor import is_dtensor
from ..ranks.exchanges import gathered
from ..ranks.parts import is_distributed
from ..ranks.zero.part import ZeroPart
from ..tensors.patterns import KEY as VIEW
from .archives import reading
from .form import Checkpoint, Stored
from .layouts import read, write
from .matching import matched, merged_groups, names_of
from .state_dicts import from_state_dict, joined_halves

_NOT_OF_THEM = ("state1", "state2")  # states of bitsandbytes that only the optimizer can name


def load(
    optimizer,
    path: str | Checkpoint,
    layout: str | None = None,
    *,
    model: torch.nn.Module | None = None,
    parameters: bool = False,
    strict: bool = True,
) -> Checkpoint:
    """Loads a checkpoint of any layout into an optimizer of Stepc, on one process or on ranks, each
    of which calls it.

    Parameters are found by name, where the checkpoint and the optimizer have names, or else by
    place. A group gets the hyper-parameters of the checkpoint that it has. Masters are the
    checkpoint's float32 parameters.

    Args:
        optimizer: made of ``model.named_parameters()``, or see ``model``.
        path: a file or folder, or what :func:`read` has returned.
        layout: of the path; None: whichever it is.
        model: whose names are meant, where the optimizer has none.
        parameters: also sets the parameters, to the checkpoint's values, rounded to their dtype.
            ``master="remainder"`` needs it, as the two are halves of one number.
        strict: False: parameters that only one side has are left as they are.

    Returns:
        What was read.

    Raises :class:`stepc.errors.CheckpointError` for what cannot be read, for another model, and
    for a state that is missing; nothing has changed then. What one rank cannot read none of
    those loads that share the optimizer.
    """
    with _together(optimizer, path):
        found = path if isinstance(path, Checkpoint) else read(path, layout)
        groups, states, values = _read(optimizer, found, model, parameters, strict)
    optimizer._copies_loaded = False
    try:
        optimizer.load_state_dict({"state": {k: v for k, v in states.items() if v},
                                   "param_groups": groups})  # fmt: skip
    finally:
        del optimizer._copies_loaded
    for param, value in values:
        _set(param, _rounded(optimizer, param, value))
    return found


@contextlib.contextmanager
def _together(optimizer, path):
    """What fails on one of the ranks that share the optimizer fails on all: they would wait for
    each other in vain, or go on from two states. At the end they tell each other."""
    failed = None
    try:
        yield
    except Exception as error:
        failed = error
    word = "" if failed is None else f"rank {dist.get_rank() if _has_ranks() else 0}: {failed}"
    for group in _groups(optimizer):
        params = itertools.chain.from_iterable(own["params"] for own in optimizer.param_groups)
        device = next((param.device for param in params), torch.device("cpu"))
        told = gathered(
            word, "whether a checkpoint was read or written on all ranks", group, device
        )
        word = next(filter(None, told), "")
    if failed is not None:
        raise failed
    if word:
        of = path.path if isinstance(path, Checkpoint) else path
        raise CheckpointError(
            of, f"is read and written on all ranks or on none, and failed on {word}"
        )


def _has_ranks() -> bool:
    return dist.is_available() and dist.is_initialized()


def _groups(optimizer) -> list:
    """Over which ranks have other parts, one axis behind the other in one order on all: so what
    one rank of a grid says comes to all."""
    if not _has_ranks() or not is_distributed(optimizer):
        return []
    params = [param for group in optimizer.param_groups for param in group["params"]]
    meshes = [layout.mesh for _, layout in optimizer._layouts if layout is not None]
    meshes += [param.device_mesh for param in params if is_dtensor(param)]
    groups = [mesh.get_group(dim) for mesh in meshes for dim in range(mesh.ndim)]
    shared = shared_over(optimizer)
    groups = groups if shared is None else [shared, *groups]
    once = {tuple(dist.get_process_group_ranks(group)): group for group in groups}
    return [group for ranks, group in once.items() if len(ranks) > 1]


def _read(optimizer, found: Checkpoint, model, parameters: bool, strict: bool):
    """Groups and states as ``load_state_dict`` takes them, and values of parameters."""
    groups, pairs = _planned(optimizer, found, model, parameters, strict)
    states, values = {}, []
    parts = optimizer._parts() if optimizer._is_shared else {}
    for number, (param, given, master) in pairs.items():
        given = {**given, **_masters(optimizer, param, master)}
        part = parts.get(id(param))
        states[number] = {key: _own(key, stored, part) for key, stored in given.items()}
        if parameters:
            values.append((param, master.read()))
    for number, own in optimizer.state_dict()["state"].items() if not strict else ():
        states.setdefault(number, own)
    return groups, states, values


def _planned(optimizer, found: Checkpoint, model, parameters: bool, strict: bool):
    """The groups as they are to be, and by number of a parameter that is loaded: it, its states and
    the float32 of it, or None. All is checked; nothing is read."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    own = names_of(optimizer, model)
    theirs = matched(found, own, [not param.requires_grad for param in params], strict)
    labels = own or [name or "" for name in theirs]
    groups = merged_groups(optimizer, found, theirs, labels)
    with reading(found.path):
        expected = _expected(optimizer, groups)
    pairs = {}
    for number, (param, name, label) in enumerate(zip(params, theirs, labels, strict=True)):
        if name is not None:
            given = _renamed(found.states.get(name, {}), expected[number])
            if not isinstance(optimizer, PercentileClipping):  # others have no norms
                given = {key: own for key, own in given.items() if key not in (VECTOR, COUNT)}
            given = _shaped(given, expected[number], param)
            master = found.parameters.get(name)
            _check(found, optimizer, param, label, given, master, expected[number], parameters)
            pairs[number] = param, given, master
    return _packed(groups), pairs


def _own(name: str, stored: Stored, part) -> torch.Tensor:
    """A state, for this optimizer alone: all of it, or of one that ``zero`` cuts by elements those
    of this rank, which are all that is read."""
    cut = isinstance(part, ZeroPart) and not part.is_owned and part.seen is None
    if cut and part.is_cut(name):
        value = stored.elements(part.begin, part.end)
        return part.saved(name, value.clone() if stored.of_others else value)
    return stored.read().clone() if stored.of_others else stored.read()


def _packed(groups: list[dict]) -> list[dict]:
    made, first = [], 0
    for group in groups:
        count = len(group["params"])
        made.append({**group, "params": list(range(first, first + count))})
        first += count
    return made


def _expected(optimizer, groups: list[dict]) -> list[Mapping[str, WholeState] | None]:
    """The states that each parameter has by the definition, with those groups; None where the
    shape that a rule sees is not the parameter's own."""
    rules = rules_of(optimizer, groups)
    made = []
    for number, group in enumerate(groups):
        for param in group["params"]:
            if group.get(VIEW) is not None or optimizer._layouts:
                made.append(None)
                continue
            gets = rules.find(number, tuple(param.shape))
            there = {state.name for state in gets.states if state.exists}
            whole = whole_states(gets, optimizer._dropped_dims)
            made.append({name: own for name, own in whole.items() if name in there})
    return made


def _renamed(states: dict[str, Stored], expected) -> dict[str, Stored]:
    """bitsandbytes calls its states by number."""
    own = [name for name in expected or () if name not in STATES]
    return {
        own[0] if name in _NOT_OF_THEM and len(own) == 1 else name: stored
        for name, stored in states.items()
    }


def _shaped(given: dict[str, Stored], expected, param: torch.Tensor) -> dict[str, Stored]:
    """States of codes that do not say their floats' shape, in that which they are to have."""
    wanted = {name: own.shape for name, own in (expected or {}).items()}
    return {
        name: stored.shaped(wanted.get(name, tuple(param.shape))) for name, stored in given.items()
    }


def _check(found, optimizer, param, label, given, master, expected, parameters: bool) -> None:
    """Of one parameter, before anything is read."""
    path = found.path
    for name, own in (expected or {}).items():
        if name in STATES or name in optimizer._transient_states:
            continue
        if given and name not in given:
            has = ", ".join(f"'{key}'" for key in given)
            raise CheckpointError(path, f"lacks state '{name}' of '{label}', and has {has}")
        if given and given[name].shape != (here := tuple(own.shape)):
            raise CheckpointError(path, f"has state '{name}' of '{label}' with shape "
                                  f"{given[name].shape}, here it is {here}")  # fmt: skip
    if given and optimizer._keeps_step and "step" not in given:
        raise CheckpointError(path, f"lacks the count of steps of '{label}'")
    if master is not None and not optimizer._layouts and master.shape != tuple(param.shape):
        raise CheckpointError(path, f"has parameter '{label}' of shape {master.shape}, here it is "
                              f"{tuple(param.shape)}")  # fmt: skip
    kept = optimizer._kept.keeps_master(param.dtype)
    if master is None and (parameters or (kept and given and not MASTERS.values() & given.keys())):
        raise CheckpointError(path, f"has no values of '{label}'; its states alone are there")
    if parameters and optimizer._layouts:
        raise CheckpointError(path, "has whole parameters, and layouts= has parts of them, which "
                              "cannot be set")  # fmt: skip
    if kept and master is not None and optimizer._master == "remainder" and not parameters:
        raise CheckpointError(path, f"has the float32 of '{label}', of which master='remainder' "
                              "keeps what the parameter lacks: give parameters=True")  # fmt: skip


def _halves(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest bfloat16, ties away from zero as the compiled step stores it, and the rest."""
    bits = value.float().contiguous().view(torch.int32)
    upper = ((bits.long() + 0x8000) >> 16).to(torch.int32)
    rest = (bits - (upper << 16)).to(torch.int16)
    number = ~value.isnan()
    plain = value.to(torch.bfloat16).view(torch.int16)
    upper = torch.where(number, upper.to(torch.int16), plain)
    return upper.view(torch.bfloat16), torch.where(number, rest, torch.zeros_like(rest))


def _masters(optimizer, param, master: Stored | None) -> dict[str, Stored]:
    if master is None or not optimizer._kept.keeps_master(param.dtype):
        return {}
    name, dtype, make = "master", torch.float32, lambda value: value.to(torch.float32, copy=True)
    if optimizer._master == "remainder":
        name, dtype, make = "remainder", torch.int16, lambda value: _halves(value)[1]
    return {name: Stored(master.shape, dtype, lambda b, e: make(master.elements(b, e)))}


def _rounded(optimizer, param, value: torch.Tensor) -> torch.Tensor:
    if optimizer._master == "remainder" and param.dtype is torch.bfloat16:
        return _halves(value)[0]
    return value


@torch.no_grad()
def _set(param: torch.Tensor, value: torch.Tensor) -> None:
    """Sets a parameter, or what this rank has of a DTensor: each has read the whole."""
    if is_dtensor(param):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(param.device), param.device_mesh, param.placements,
                                  src_data_rank=None)  # fmt: skip
    param.copy_(value)


# --- Saving -------------------------------------------------------------------


def checkpoint_of(optimizer, model: torch.nn.Module | None = None) -> Checkpoint:
    """What an optimizer has, as whole tensors, with the values of its parameters: their masters
    where it keeps some. All ranks call it together. States in memory are not copied.

    Args:
        optimizer: of Stepc; names are those of its groups.
        model: whose names are meant, where the groups have none.
    """
    packed = optimizer.full_state_dict()
    names = names_of(optimizer, model)
    numbers = [number for group in packed["param_groups"] for number in group["params"]]
    called = dict(zip(numbers, names or map(str, numbers), strict=True))
    tree = {
        "state": {number: _stored(own) for number, own in packed["state"].items()},
        "param_groups": [
            {**group, "param_names": [called[number] for number in group["params"]]}
            for group in packed["param_groups"]
        ],
    }
    made = from_state_dict(tree, type(optimizer).__name__, "torch")
    made.named = names is not None
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for number, param in zip(numbers, params, strict=True):
        name, own = called[number], packed["state"].get(number) or {}
        if not optimizer._layouts:
            made.parameters[name] = Stored.of(_whole(param, own))
        states = made.states.get(name, {})
        shaped = any(stored.in_shape for stored in states.values())
        shapes = optimizer._shapes_of(param) if shaped else {}
        made.states[name] = {
            k: _with_rows(v, *shapes.get(k, (param.shape, param.shape)))
            for k, v in states.items()
            if k not in MASTERS.values()
        }
    return made


def _with_rows(stored: Stored, rows: Sequence[int], own: Sequence[int]) -> Stored:
    """Codes that do not say their shape: their rows lie in ``rows``, and the user has ``own``."""
    made = stored.shaped(rows)
    return made if made is stored or tuple(rows) == tuple(own) else made.viewed(own)


def _stored(own) -> dict:
    if not isinstance(own, dict):
        return own
    return {k: Stored.of(v) if isinstance(v, torch.Tensor) else v for k, v in own.items()}


def _whole(param: torch.Tensor, state: dict) -> torch.Tensor:
    whole = param.detach()
    whole = whole.full_tensor() if is_dtensor(whole) else whole
    if "master" in state:
        return state["master"]
    return joined_halves(whole, state["remainder"]) if "remainder" in state else whole


def save(
    optimizer,
    path: str,
    layout: str,
    *,
    model: torch.nn.Module | None = None,
    each=lambda _: None,
) -> None:
    """Writes an optimizer's state and the values of its parameters, which :func:`load` and what
    has that layout read.

    All ranks call it together; the one with rank 0 writes. Those that share the optimizer come
    back when it has, with an error where it could not.

    Args:
        optimizer: of Stepc, made of ``model.named_parameters()``, or see ``model``.
        path: where nothing is yet.
        layout: ``"dcp"``, ``"universal"``, ``"torch"`` or ``"safetensors"``.
        model: whose names are meant, where the optimizer has none.
        each: called with the number of bytes behind each tensor.
    """
    made = checkpoint_of(optimizer, model)
    with _together(optimizer, path):
        if not _has_ranks() or dist.get_rank() == 0:
            write(made, os.fspath(path), layout, each)
