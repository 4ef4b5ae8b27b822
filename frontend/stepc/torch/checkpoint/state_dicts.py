# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checkpoints from and to what ``state_dict()`` of an optimizer of torch has."""

from __future__ import annotations

import dataclasses
from itertools import count

import torch

from ..._describe import SCALE
from ...errors import CheckpointError
from ..binding.codes import code_shape, format_of, per_word, value_shape
from ..bitsandbytes.saved import CODED, WRAPPED, decoded_codes
from ..ranks.saved_codes import decode_state
from ..step.codes_of_others import (
    CODES,
    SCALES,
    coded_names,
    corrected,
    decoded_groups,
    parts_of,
    refuse_groups,
)
from .archives import reading
from .form import Checkpoint, Stored
from .pickles import RefusedError

_SHARED = ("state", "param_groups")


def has_states(tree) -> bool:
    """Whether it is a state_dict of an optimizer."""
    return isinstance(tree, dict) and all(key in tree for key in _SHARED)


def find_states(tree, path: str) -> dict:
    """The one state_dict of an optimizer in a tree, itself or two levels below; flattened ones,
    as ``flatten_optimizer_state_dict=True`` makes them, are put together. CheckpointError where
    there is none, or where there are several."""
    found, below = [], [("", tree)]
    for _ in range(3):
        found += [(at, own) for at, own in below if has_states(own) or _is_flat(own)]
        once = {id(own): (at, own) for at, own in reversed(below) if isinstance(own, dict)}
        below = [
            (f"{at}{key}.", value)
            for at, own in reversed(once.values())
            if not any(own is other for _, other in found)
            for key, value in own.items()
        ]
    if len(found) != 1:
        has = f"has {len(found)}: {', '.join(repr(at[:-1]) for at, _ in found)}" if found else (
            "has no state of an optimizer: no dict with 'state' and 'param_groups'"
        )  # fmt: skip
        raise CheckpointError(path, has if not found else f"{has}; one is expected")
    own = found[0][1]
    return own if has_states(own) else _unflattened(own)


def _is_flat(tree) -> bool:
    return isinstance(tree, dict) and any(
        isinstance(key, str) and key.startswith("param_groups.") for key in tree
    )


def _last(key: str) -> tuple[str, str]:
    """``exp_avg.scale`` is one name."""
    behind = SCALE if key.endswith(SCALE) else ""
    name, _, last = key.removesuffix(behind).rpartition(".")
    return name, last + behind


def _unflattened(tree: dict) -> dict:
    """Keys ``state.PARAMETER.STATE`` and ``param_groups.PARAMETER.HYPER``; a group of each
    parameter, of those that are alike one."""
    states, hypers = {}, {}
    for key, value in tree.items():
        kind, _, rest = key.partition(".")
        if kind in _SHARED and rest:
            name, last = _last(rest)
            (states if kind == "state" else hypers).setdefault(name, {})[last] = value
    return {"state": states, "param_groups": grouped(hypers)}


def grouped(hypers: dict[str, dict]) -> list[dict]:
    """Groups of the parameters that have the same hyper-parameters."""
    groups: list[dict] = []
    for name, own in hypers.items():
        hyper = {key: plain(value) for key, value in own.items()}
        for group in groups:
            if {k: v for k, v in group.items() if k != "params"} == hyper:
                group["params"].append(name)
                break
        else:
            groups.append({**hyper, "params": [name]})
    return groups


_MOST_TENSORS = 64  # in a hyper-parameter; betas are two


def plain(value):
    """Of a hyper-parameter: a tensor of one element is a number, also in a list or a tuple.
    RefusedError for containers in containers in containers."""
    if isinstance(value, Stored):
        return _number(value)
    if isinstance(value, (list, tuple)) and any(isinstance(own, Stored) for own in value):
        if len(value) > _MOST_TENSORS or any(isinstance(own, _CONTAINERS) for own in value):
            raise RefusedError(f"has a hyper-parameter of {len(value)} values with tensors")
        return type(value)(_number(own) if isinstance(own, Stored) else own for own in value)
    below = [value]
    for _ in range(2):
        below = [
            inner
            for own in {id(own): own for own in below if isinstance(own, _CONTAINERS)}.values()
            for inner in (own.values() if isinstance(own, dict) else own)
        ]
    if any(isinstance(own, _CONTAINERS) for own in below):
        raise RefusedError("has a hyper-parameter that is nested too deep")
    return value


_CONTAINERS = (list, tuple, dict)


def _number(value: Stored):
    if value.numel != 1:
        raise RefusedError(f"has a hyper-parameter that is a tensor of shape {value.shape}")
    return value.read().item()


def from_state_dict(tree: dict, path: str, layout: str) -> Checkpoint:
    """What a state_dict with :class:`Stored` for tensors is. Parameters have the names of
    ``param_names``, or those that ``params`` itself has, or else numbers.

    States that are kept as codes, by Stepc, bitsandbytes, torchao or FlashOptim, are decoded when
    they are read.
    """
    saved, states = tree["param_groups"], tree["state"]
    if not isinstance(saved, list) or not isinstance(states, dict):
        raise CheckpointError(path, "has 'state' and 'param_groups' that are not torch's")
    groups, called, named = [], {}, True
    for number, own in enumerate(saved):
        keys = own.get("params") if isinstance(own, dict) else None
        if not isinstance(keys, (list, tuple)):
            raise CheckpointError(path, f"has no 'params' in group {number}")
        names = own.get("param_names") or keys
        if len(names) != len(keys):
            raise CheckpointError(path, f"has {len(names)} names of {len(keys)} parameters")
        named = named and all(isinstance(name, str) for name in names)
        group = {k: plain(v) for k, v in own.items() if k not in ("params", "param_names")}
        groups.append({**group, "params": list(names)})
        called.update(zip(keys, names, strict=True))
    if not named:
        places = count()
        groups = [{**g, "params": [str(next(places)) for _ in g["params"]]} for g in groups]
        called = {key: str(place) for place, key in enumerate(called)}
    strange = [key for key in states if key not in called]
    if strange:
        raise CheckpointError(path, f"has a state of {strange[0]!r}, which is in no group")
    own = {called[key]: _states(value, called[key], path) for key, value in states.items()}
    made = Checkpoint(path, layout, own, groups, named=named)
    _spread_counts(made)
    return made.check()


def _states(own, name: str, path: str) -> dict[str, Stored]:
    """Of one parameter."""
    if not isinstance(own, dict):
        raise CheckpointError(path, f"has {type(own).__name__} for the state of '{name}'")
    if isinstance(own.get(WRAPPED), dict):
        own = {**{key: value for key, value in own.items() if key != WRAPPED}, **own[WRAPPED]}
    found = {}
    for key, value in own.items():
        if isinstance(value, (bool, int, float)):
            found[key] = Stored.number(value)
        elif isinstance(value, Stored):
            found[key] = value
        elif value is not None:
            raise CheckpointError(
                path, f"has state '{key}' of '{name}', a {type(value).__name__}: neither a tensor "
                "nor a number"
            )  # fmt: skip
    for key in [key for key in found if f"{key}{SCALE}" in found]:
        found[key] = _decoded(found[key], found.pop(f"{key}{SCALE}"), path)
    for key in list(coded_names(found)):
        found[key] = _of_flashoptim(found, key, name, path)
    return _of_bitsandbytes(found, name, path)


def _of_flashoptim(found: dict[str, Stored], key: str, name: str, path: str) -> Stored:
    codes, scales = found.pop(f"{key}{CODES}"), found.pop(f"{key}{SCALES}", None)
    if scales is None:
        raise CheckpointError(path, f"has state '{key}' of '{name}' as codes without scales")
    try:
        parts = parts_of(codes, scales)
        refuse_groups(codes, scales, parts)
    except ValueError as error:
        raise CheckpointError(path, f"has state '{key}' of '{name}' as {error}") from None

    def decode():
        with reading(path):
            return decoded_groups(codes.read(), scales.read(), parts)

    return Stored.made(codes.shape, torch.float32, decode)


def _decoded(codes: Stored, scales: Stored, path: str, shape=None) -> Stored:
    """``shape``: of the floats, where it is known and the codes do not have it."""
    format = format_of(codes)

    def decode():
        with reading(path):
            return decode_state(codes.read(), scales.read(), shape)

    def in_shape(shape: tuple[int, ...]) -> Stored | None:
        fits = code_shape(format, shape, len(scales.shape) - 1) == codes.shape
        return _decoded(codes, scales, path, shape) if fits else None

    if format is None or per_word(codes) == 1:
        return Stored.made(codes.shape, torch.float32, decode)
    made = Stored.made(shape or value_shape(codes, scales), torch.float32, decode)
    return dataclasses.replace(made, in_shape=in_shape)


def _of_bitsandbytes(found: dict[str, Stored], name: str, path: str) -> dict[str, Stored]:
    """Codes of bitsandbytes in float32. Two states are Adam's; which one alone is, the optimizer
    says that loads it."""
    theirs = [key for key in ("state1", "state2") if key in found]
    if not theirs:
        return found
    ours = dict(zip(theirs, ("exp_avg", "exp_avg_sq") if len(theirs) == 2 else theirs,
                    strict=True))  # fmt: skip
    made = {key: value for key, value in found.items() if key not in CODED and key not in theirs}
    for key in theirs:
        stored = found[key]
        if stored.dtype is torch.uint8:
            beside = {k: v for k, v in found.items() if k[-1] == key[-1]}

            def decode(key=key, beside=beside):
                with reading(path):
                    own = {k: v.read() for k, v in beside.items()}
                    return decoded_codes(own, key, f"'{name}'")

            stored = Stored.made(stored.shape, torch.float32, decode)
        made[ours[key]] = stored
    return made


# --- Parameters beside it -----------------------------------------------------

_MODELS = ("model", "module", "state_dict", "model_state_dict")


def add_parameters(made: Checkpoint, tree: dict) -> None:
    """Gives a checkpoint the values of its parameters: what stands beside the state, down to two
    levels below, if all do; of each the float32 that a state keeps, in its place.

    CheckpointError where several dicts have all names and none alone is called as a model is.
    """
    if made.names:
        made.parameters = _parameters(made, tree)
    has_values = made.parameters or all("master" in made.states.get(n, {}) for n in made.names)
    for name in made.names if has_values else ():
        own, value = made.states.get(name, {}), made.parameters.get(name)
        if "master" in own:
            made.parameters[name] = own.pop("master")
        elif "remainder" in own and value is not None and value.dtype is torch.bfloat16:
            made.parameters[name] = _joined(value, own.pop("remainder"), name, made.path)
        elif "error_bits" in own and value is not None and value.dtype in _NARROW:
            width = next(g.get("master_bytewidth") for g in made.groups if name in g["params"])
            made.parameters[name] = _corrected(value, own.pop("error_bits"), width, name, made.path)


_NARROW = (torch.bfloat16, torch.float16)


def _corrected(value: Stored, errors: Stored, width, name: str, path: str) -> Stored:
    """The float32 that FlashOptim keeps behind a parameter of 16 bits."""
    kinds = {3: (torch.int8, value.dtype), 4: (torch.int16, value.dtype)}.get(width, ())
    if errors.shape != value.shape or errors.dtype not in kinds:
        raise CheckpointError(
            path, f"has error bits of '{name}' of shape {errors.shape} and {errors.dtype}, for "
            f"parameters of {width} bytes"
        )  # fmt: skip

    def elements(begin: int, end: int) -> torch.Tensor:
        return corrected(value.elements(begin, end), errors.elements(begin, end), width)

    return Stored(value.shape, torch.float32, elements)


def _parameters(made: Checkpoint, tree: dict) -> dict[str, Stored]:
    found, below = {}, {"": tree}
    for _ in range(3):
        below = {at: own for at, own in below.items() if isinstance(own, dict)}
        for at, own in below.items():
            if all(isinstance(own.get(name), Stored) for name in made.names):
                found.setdefault(id(own), (at, own))
        once = {id(own): (at, own) for at, own in below.items()}.values()
        below = {f"{at}.{key}" if at else str(key): v for at, own in once for key, v in own.items()}
    called = [(at, own) for at, own in found.values() if at.rpartition(".")[2] in _MODELS]
    several = called if len(found) > 1 else list(found.values())
    if len(found) > 1 and len(called) != 1:
        keys = ", ".join(repr(at) for at, _ in found.values())
        raise CheckpointError(made.path, f"has values of all parameters under {keys}: which are "
                              "the model's is not known")  # fmt: skip
    return {name: own[name] for _, own in several for name in made.names}


def _joined(value: Stored, rest: Stored, name: str, path: str) -> Stored:
    if (rest.shape, rest.dtype) != (value.shape, torch.int16):
        raise CheckpointError(path, f"has the remainder of '{name}' of shape {rest.shape} and "
                              f"dtype {rest.dtype}, the parameter's is {value.shape}")  # fmt: skip
    return Stored(
        value.shape, torch.float32,
        lambda begin, end: joined_halves(value.elements(begin, end), rest.elements(begin, end)),
    )  # fmt: skip


def joined_halves(param: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
    """The float32 of a bfloat16 parameter and its remainder."""
    bits = (param.detach().contiguous().view(torch.int16).to(torch.int32) << 16) + rest.int()
    return bits.view(torch.float32)


def _spread_counts(made: Checkpoint) -> None:
    """Gives each parameter the count that its group alone has, as of apex's classes."""
    for group in made.groups:
        step = group.get("step")
        for name in group["params"] if isinstance(step, (int, float)) else ():
            if made.states.get(name) and "step" not in made.states[name]:
                made.states[name]["step"] = Stored.number(step)


def to_state_dict(checkpoint: Checkpoint) -> dict:
    """The same as torch's, with :class:`Stored` for tensors; names are ``param_names``."""
    numbers = {name: number for number, name in enumerate(checkpoint.names)}
    groups = []
    for group in checkpoint.groups:
        own = {**group, "params": [numbers[name] for name in group["params"]]}
        groups.append({**own, "param_names": group["params"]} if checkpoint.named else own)
    states = {numbers[n]: dict(own) for n, own in checkpoint.states.items()}
    return {"state": dict(sorted(states.items())), "param_groups": groups}
