# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A folder of DeepSpeed's ZeRO, stages 1 to 3, read from the files of all its ranks.

In stages 1 and 2 a group is one vector, its parameters one behind the other in the order of
``param_shapes``, of which each rank has an equal part; the last ones are filled up. In stage 3 each
parameter is cut by itself: rank r has elements r*k to (r+1)*k, k = ceil(numel / ranks), and what a
rank has of all parameters is one vector (deepspeed/utils/zero_to_fp32.py,
checkpoint/ds_to_universal.py of 0.19).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator

from ...errors import CheckpointError
from ..step.saving import SCALARS
from .archives import read_archive, reading
from .form import Checkpoint, Stored, is_shape, joined
from .pickles import Inert
from .state_dicts import plain

SUFFIX = ""
_STATES = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_EXPERTS = re.compile(r"(layer_\d+_)?expert_\d+.*|expp_rank_.*")
_CUT = "ds_to_universal.py of DeepSpeed puts such parts together: read its folder"


def named_by(path: str, name: str) -> str:
    """The folder that the file ``name`` in a folder names, or itself where there is none."""
    latest = os.path.join(path, name)
    if not os.path.isfile(latest) or os.path.getsize(latest) >= 4096:
        return path
    with open(latest, encoding="utf-8", errors="replace") as file:
        tag = file.read().strip()
    is_beside = tag not in ("", ".", "..") and os.path.basename(tag) == tag and "\0" not in tag
    if not is_beside or not os.path.isdir(os.path.join(path, tag)):
        raise CheckpointError(latest, f"names '{tag}', which is no folder beside it")
    return os.path.join(path, tag)


def _folder(path: str) -> str | None:
    """The folder of the files: itself, or that which ``latest`` names; None where there is none."""
    path = named_by(path, "latest")
    if os.path.isdir(path) and any(map(_STATES.fullmatch, os.listdir(path))):
        return path
    return None


def recognizes(path: str) -> bool:
    return os.path.isdir(path) and _folder(path) is not None


def read(path: str) -> Checkpoint:
    folder = _folder(path)
    if folder is None:
        raise CheckpointError(path, "has no file zero_pp_rank_*_mp_rank_*_optim_states.pt")
    ranks = [_Rank(file) for file in _files(folder)]
    with reading(folder):
        _check_ranks(folder, ranks)
    stage = 3 if "fp32_flat_groups" in ranks[0].saved else 2
    name = "zero_pp_rank_0_mp_rank_00" if stage == 3 else "mp_rank_00"
    shapes = _shapes(os.path.join(folder, f"{name}_model_states.pt"))
    with reading(folder):
        made = Checkpoint(path, "deepspeed", {}, [])
        (_read_cut if stage == 3 else _read_flat)(made, folder, ranks, shapes)
        add_scaler(made.groups, ranks[0].saved)
        return made.check()


def add_scaler(groups: list[dict], saved: dict) -> None:
    """Gives groups what ``deepspeed_scaler.mlir`` keeps of DeepSpeed's dynamic loss scaler."""
    fields = getattr(saved.get("loss_scaler"), "fields", {})
    names = ("cur_scale", "cur_iter", "last_overflow_iter", "scale_window", "delayed_shift",
             "cur_hysteresis")  # fmt: skip
    own = [fields.get(name) for name in names]
    if not fields.get("dynamic") or not all(isinstance(value, (int, float)) for value in own):
        return
    scale, now, last, window, shift, left = own
    steps = now - last - 1  # without an overflow
    for group in groups:
        group[SCALARS] = {
            "scale": float(scale),
            "steps_without_overflow": float((steps - 1) % max(window, 1) + 1 if steps > 0 else 0),
            "hysteresis_used": float(shift - left),
        }


def _files(folder: str) -> list[str]:
    """Those of the ranks, in their order."""
    found: dict[int, str] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if _EXPERTS.fullmatch(name):
            raise CheckpointError(path, f"is of experts, which ranks share in other ways; {_CUT}")
        if match := _STATES.fullmatch(name):
            rank, of_model = map(int, match.groups())
            if of_model:
                raise CheckpointError(path, f"is of a tensor- or pipeline-parallel rank; {_CUT}")
            if rank in found:
                raise CheckpointError(path, f"is of rank {rank}, as '{found[rank]}' is")
            found[rank] = path
    missing = [rank for rank in range(max(found) + 1) if rank not in found]
    if missing:
        like = os.path.basename(found[max(found)])
        name = like.replace(f"pp_rank_{max(found)}_", f"pp_rank_{missing[0]}_")
        raise CheckpointError(os.path.join(folder, name), f"is missing: rank {missing[0]}'s states")
    return [found[rank] for rank in sorted(found)]


class _Rank:
    """What one rank has saved."""

    def __init__(self, path: str):
        self.path = path
        tree = read_archive(path)
        self.saved = tree.get("optimizer_state_dict") if isinstance(tree, dict) else None
        if not isinstance(self.saved, dict):
            raise CheckpointError(path, "has no 'optimizer_state_dict': nothing that ZeRO saved")
        base = "optimizer_state_dict" if "fp32_flat_groups" in self.saved else (
            "base_optimizer_state")  # fmt: skip
        self.base = self.saved.get(base, {})
        of_stage_2 = self.saved.get("single_partition_of_fp32_groups")
        self.vectors = self.saved.get("fp32_flat_groups", of_stage_2)
        if not isinstance(self.vectors, list) or not all(
            isinstance(own, Stored) and len(own.shape) == 1 for own in self.vectors
        ):
            raise CheckpointError(path, "has no vectors of float32 parameters")

    @property
    def counts(self) -> set[int]:
        """On how many ranks its groups are shared."""
        own = self.saved.get("partition_count")
        own = own if isinstance(own, list) else [own]
        own = [count.args[0] if isinstance(count, Inert) else count for count in own]
        if not own or not all(type(count) is int for count in own):
            raise CheckpointError(self.path, f"has 'partition_count' {own}, expected the number of "
                                  "ranks")  # fmt: skip
        return set(own)

    def state(self, number: int) -> dict:
        """Of a group, or in stage 3 of a part of one."""
        if isinstance(self.base, list):  # DeepSpeed's elastic checkpoints
            return self.base[number] if number < len(self.base) else {}
        return self.base.get("state", {}).get(number, {})

    @property
    def groups(self) -> list[dict]:
        own = self.base.get("param_groups", []) if isinstance(self.base, dict) else []
        return own if all(isinstance(group, dict) for group in own) else []


def _check_ranks(folder: str, ranks: list[_Rank]) -> None:
    for number, rank in enumerate(ranks):
        if len(rank.counts) > 1:
            raise CheckpointError(rank.path, f"has groups on different numbers of ranks; {_CUT}")
        (count,) = rank.counts
        if count != len(ranks):
            raise CheckpointError(
                folder, f"has the files of {len(ranks)} ranks, and rank {number}'s says that "
                f"there are {count}"
            )  # fmt: skip
        if len(rank.vectors) != len(ranks[0].vectors):
            raise CheckpointError(rank.path, f"has {len(rank.vectors)} groups, rank 0's file has "
                                  f"{len(ranks[0].vectors)}")  # fmt: skip
    if "ds_zero_partition_groups" in ranks[0].saved:
        raise CheckpointError(ranks[0].path, f"has groups on different numbers of ranks; {_CUT}")


def _shapes(path: str) -> list[dict[str, tuple]]:
    """Of a file with the states of the model: shapes by parameter, of each group."""
    if not os.path.isfile(path):
        raise CheckpointError(path, "is missing: it has the names and shapes of the parameters")
    tree = read_archive(path)
    shapes = tree.get("param_shapes") if isinstance(tree, dict) else None
    if isinstance(shapes, dict):
        shapes = [shapes]
    if not isinstance(shapes, list) or not all(
        isinstance(own, dict) and all(is_shape(shape) for shape in own.values()) for own in shapes
    ):
        raise CheckpointError(path, "has no 'param_shapes': names and shapes of the parameters")
    return shapes


def _pieces(vectors: list[Stored], begin: int, end: int) -> list[tuple[Stored, int, int]]:
    """Elements of vectors that lie one behind the other."""
    found, at = [], 0
    for vector in vectors:
        low, high = max(begin, at), min(end, at + vector.numel)
        if low < high or (begin == end and not found):
            found.append((vector, max(low - at, 0), max(high - at, 0)))
        at += vector.numel
    return found


def _numbers(state: dict) -> Iterator[tuple[str, Stored]]:
    """What is one number for all parameters."""
    for key, value in state.items():
        if isinstance(value, (int, float)):
            yield key, Stored.number(value)
        elif isinstance(value, Stored) and not value.shape:
            yield key, value


def _check_counts(ranks: list[_Rank], number: int) -> None:
    """Files of two runs, or of two steps of one, are no state."""
    counts = [dict(_numbers(rank.state(number))).get("step") for rank in ranks]
    read = [None if own is None else own.read().item() for own in counts]
    groups = [rank.groups[number] if number < len(rank.groups) else {} for rank in ranks]
    of_groups = [plain(group.get("step")) for group in groups]
    for rank, *own in zip(ranks, read, of_groups, strict=True):
        for count, first in zip(own, (read[0], of_groups[0]), strict=True):
            if count is not None and first is not None and count != first:
                raise CheckpointError(
                    rank.path, f"has step {count} in group {number}, rank 0's file has {first}: "
                    "they are of two saves"
                )  # fmt: skip


def _is_vector(value) -> bool:
    return isinstance(value, Stored) and len(value.shape) == 1


# --- Stages 1 and 2 -----------------------------------------------------------


def _read_flat(made: Checkpoint, folder: str, ranks: list[_Rank], shapes: list[dict]) -> None:
    if len(shapes) != len(ranks[0].vectors):
        raise CheckpointError(folder, f"has {len(ranks[0].vectors)} groups of states and "
                              f"{len(shapes)} of parameters")  # fmt: skip
    for number, own in enumerate(shapes):
        _check_counts(ranks, number)
        fill = ranks[0].saved.get("param_alignment_paddings")
        fill = fill[number] if fill else [0] * len(own)
        if len(fill) != len(own):
            raise CheckpointError(folder, f"has {len(fill)} paddings of {len(own)} parameters")
        places, at = {}, 0
        for (name, shape), behind in zip(own.items(), fill, strict=True):
            places[name] = (at, at + math.prod(shape))
            at += math.prod(shape) + behind
        states = {"": [rank.vectors[number] for rank in ranks]}
        for key, value in ranks[0].state(number).items():
            if _is_vector(value):
                states[key] = [_vector(rank, number, key) for rank in ranks]
        for key, vectors in states.items():
            _check_length(folder, number, key, vectors, at, len(ranks), any(fill))
            for name, (begin, end) in places.items():
                whole = joined(_pieces(vectors, begin, end), own[name])
                if key:
                    made.states.setdefault(name, {})[key] = whole
                else:
                    made.parameters[name] = whole
        for key, value in _numbers(ranks[0].state(number)):
            for name in own:
                made.states.setdefault(name, {})[key] = value
        _check_slices(ranks, number, places, states)
        groups = ranks[0].groups
        hypers = groups[number] if number < len(groups) else {}
        made.groups.append(_group(hypers, list(own)))


def _group(hypers: dict, names: list[str]) -> dict:
    return {**{k: plain(v) for k, v in hypers.items() if k != "params"}, "params": names}


def _vector(rank: _Rank, number: int, key: str) -> Stored:
    value = rank.state(number).get(key)
    if not _is_vector(value):
        raise CheckpointError(rank.path, f"lacks state '{key}' of group {number}, which rank 0 has")
    return value


def _check_length(folder, number, key, vectors, needed, world, is_aligned) -> None:
    """They are filled up to a multiple of twice the ranks, or of more where parameters are."""
    has, unit = sum(own.numel for own in vectors), 2 * world
    if has < needed or (not is_aligned and -(-has // unit) != -(-needed // unit)):
        what = f"'{key}'" if key else "its parameters"
        raise CheckpointError(
            folder, f"has {has} elements of {what} in group {number}, whose parameters have "
            f"{needed} by their shapes: these are of another model, or a file is of another run"
        )  # fmt: skip


def _check_slices(ranks, number, places, states) -> None:
    """What a rank says that it has of a parameter is where it was read from."""
    lengths = [own.numel for own in next((v for k, v in states.items() if k), states[""])]
    begin = 0
    for rank, length in zip(ranks, lengths, strict=True):
        said = rank.saved.get("param_slice_mappings")
        own = said[number] if isinstance(said, list) and number < len(said) else {}
        for name, place in own.items() if isinstance(own, dict) else ():
            fields = getattr(place, "fields", {})
            if name not in places:
                raise CheckpointError(rank.path, f"has a part of '{name}', which is in no group")
            first, last = places[name]
            low, high = max(first, begin) - begin, min(last, begin + length) - begin
            if (fields.get("start"), fields.get("numel")) != (low, high - low):
                raise CheckpointError(
                    rank.path, f"says that elements {fields.get('start')} and on are "
                    f"{fields.get('numel')} of '{name}', expected {high - low} from {low} on"
                )  # fmt: skip
        begin += length


# --- Stage 3 ------------------------------------------------------------------


def _read_cut(made: Checkpoint, folder: str, ranks: list[_Rank], shapes: list[dict]) -> None:
    parts = range(len(ranks[0].vectors))
    whole = {name: shape for own in shapes for name, shape in own.items()}
    share = {name: -(-math.prod(shape) // len(ranks)) for name, shape in whole.items()}
    needed = sum(share.values())
    states = {"": [rank.vectors for rank in ranks]}
    for key, value in ranks[0].state(0).items():
        if _is_vector(value):
            states[key] = [[_vector(rank, part, key) for part in parts] for rank in ranks]
    for key, of_ranks in states.items():
        for rank, vectors in zip(ranks, of_ranks, strict=True):
            has = sum(own.numel for own in vectors)
            if has != needed:
                what = f"'{key}'" if key else "its parameters"
                raise CheckpointError(
                    rank.path, f"has {has} elements of {what}, by the shapes of the parameters it "
                    f"is {needed}: these are of another model, or the file is of another run"
                )  # fmt: skip
        at = 0
        for name, shape in whole.items():
            pieces = [p for own in of_ranks for p in _pieces(own, at, at + share[name])]
            stored = joined(pieces, shape)
            if key:
                made.states.setdefault(name, {})[key] = stored
            else:
                made.parameters[name] = stored
            at += share[name]
    by_part = shapes if len(shapes) == len(parts) else [whole]
    for part in parts:
        _check_counts(ranks, part)
    for part, own in enumerate(by_part):
        for key, value in _numbers(ranks[0].state(part)):
            for name in own:
                made.states.setdefault(name, {})[key] = value
    groups = ranks[0].groups or [{"params": list(parts)}]
    if len(by_part) != len(parts) and len(groups) > 1:
        raise CheckpointError(folder, f"does not say which of {len(groups)} groups has which of "
                              "its parameters")  # fmt: skip
    for group in groups:
        own = by_part if len(groups) == 1 else [by_part[part] for part in group["params"]]
        made.groups.append(_group(group, [name for shapes in own for name in shapes]))
