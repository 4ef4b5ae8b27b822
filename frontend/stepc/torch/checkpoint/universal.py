# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""DeepSpeed's universal checkpoint: a folder for each parameter, a file for each of its states.

``zero/PARAMETER/{fp32,exp_avg,...}.pt``, each ``{"param": tensor}`` or, of stage 3, the tensor;
``step.pt``; ``zero/optimizer_state.pt`` with the groups; the names in each group are in
``mp_rank_00_model_states.pt`` (deepspeed/checkpoint/ds_to_universal.py,
universal_checkpoint.py of 0.19; its version 0.4).
"""

from __future__ import annotations

import os

import torch

from ...errors import CheckpointError
from ..bitsandbytes.percentile import COUNT, VECTOR
from .archives import read_archive, reading, write_archive, writing
from .deepspeed_zero import add_scaler, named_by
from .form import Checkpoint, Stored
from .state_dicts import plain

SUFFIX = ""
_LATEST, _GROUPS, _MASTER = "latest_universal", "optimizer_state.pt", "fp32"
_VERSION = 0.4
_MODEL = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt")
# What _load_checkpoint of DeepSpeed's engine asks for.
_OF_ENGINE = {
    "module": {}, "buffer_names": [], "optimizer": None, "shared_params": {},
    "frozen_param_shapes": None, "frozen_param_fragments": None, "lr_scheduler": None,
    "data_sampler": None, "random_ltd": None, "skipped_steps": 0, "global_samples": 0,
    "dp_world_size": 1, "mp_world_size": 1, "ds_config": {},
}  # fmt: skip
_DS_VERSION = "0.16.0"  # whose files these are like


def _folder(path: str) -> str | None:
    path = named_by(path, _LATEST)
    return path if os.path.isdir(os.path.join(path, "zero")) else None


def recognizes(path: str) -> bool:
    return os.path.isdir(path) and _folder(path) is not None


def read(path: str) -> Checkpoint:
    folder = _folder(path)
    if folder is None:
        raise CheckpointError(path, "has no folder 'zero'")
    zero = os.path.join(folder, "zero")
    names = sorted(n for n in os.listdir(zero) if os.path.isdir(os.path.join(zero, n)))
    made = Checkpoint(path, "universal", {}, [])
    for name in names:
        states = _states(os.path.join(zero, name))
        if _MASTER not in states:
            path = os.path.join(zero, name, f"{_MASTER}.pt")
            raise CheckpointError(path, "is missing: the values of the parameter")
        made.parameters[name] = states.pop(_MASTER)
        made.states[name] = states
    with reading(folder):
        made.groups = _groups(folder, os.path.join(zero, _GROUPS), names)
        known = set(made.names)
        for name in names:
            if name not in known:
                raise CheckpointError(os.path.join(zero, name), "is of a parameter in no group")
        for name in made.names:
            if name not in made.states:
                raise CheckpointError(os.path.join(zero, name), "is missing: a parameter's states")
    return made.check()


def _states(folder: str) -> dict[str, Stored]:
    """Of one parameter."""
    found = {}
    for name in sorted(os.listdir(folder)):
        state, suffix = os.path.splitext(name)
        path = os.path.join(folder, name)
        if suffix != ".pt":
            continue
        value = read_archive(path)
        if isinstance(value, dict):
            value = value.get("param")
        if isinstance(value, (int, float)):
            value = Stored.number(value)
        if not isinstance(value, Stored):
            raise CheckpointError(path, "has no tensor")
        found[state] = value
    if not found:
        raise CheckpointError(folder, "has no states")
    return found


def _groups(folder: str, path: str, names: list[str]) -> list[dict]:
    """With the names that ``param_shapes`` has for each; one group has all."""
    if not os.path.isfile(path):
        raise CheckpointError(path, "is missing: it has the groups and their hyper-parameters")
    tree = read_archive(path)
    saved = tree.get("param_groups") if isinstance(tree, dict) else None
    if not isinstance(saved, list) or not all(isinstance(group, dict) for group in saved):
        raise CheckpointError(path, "has no 'param_groups'")
    models = [os.path.join(folder, name) for name in _MODEL]
    model = next((own for own in models if os.path.isfile(own)), None)
    members = [names]
    if model is not None:
        shapes = read_archive(model).get("param_shapes")
        if isinstance(shapes, list) and len(shapes) == len(saved):
            members = [list(own) for own in shapes]
    if len(members) != len(saved):
        raise CheckpointError(model or models[0], f"does not say which of {len(saved)} groups has "
                              "which parameters")  # fmt: skip
    hypers = [{k: plain(v) for k, v in own.items() if k != "params"} for own in saved]
    groups = [{**own, "params": names} for own, names in zip(hypers, members, strict=True)]
    add_scaler(groups, tree)
    return groups


# --- Writing ------------------------------------------------------------------


def write(checkpoint: Checkpoint, path: str, each=lambda _: None) -> None:
    """What DeepSpeed's ZeRO 1, 2 and 3 load with ``load_universal_checkpoint``: the float32 of
    every parameter has to be there. The model's buffers and the schedule are not in it, nor the
    norms of ``percentile_clipping``."""
    lacks = [name for name in checkpoint.names if name not in checkpoint.parameters]
    if not checkpoint.named or lacks:
        of = f"'{lacks[0]}'" if lacks and checkpoint.named else "any parameter"
        raise CheckpointError(
            checkpoint.path, f"does not have the values of {of}, which DeepSpeed's universal "
            "checkpoint has; save it with those of the model"
        )  # fmt: skip
    for name in checkpoint.names:
        if not _is_component(name):
            raise CheckpointError(path, f"would have a folder '{name}', which is no name of one")
        for state in checkpoint.states.get(name, ()):
            if not _is_component(state) or state == _MASTER:
                raise CheckpointError(path, f"would have a file '{state}.pt' of state '{state}' of "
                                      f"'{name}', which is no name of one")  # fmt: skip
    step = max((_step(checkpoint, name) for name in checkpoint.names), default=0)
    tag = f"global_step{step}_universal"
    with writing(path, folder=True) as beside:
        folder = os.path.join(beside, tag)
        os.makedirs(os.path.join(folder, "zero"))
        for name in checkpoint.names:
            own = os.path.join(folder, "zero", name)
            os.makedirs(own)
            states = {_MASTER: checkpoint.parameters[name], **checkpoint.states.get(name, {})}
            for state, stored in states.items():
                if state in (VECTOR, COUNT):  # DeepSpeed takes every file for a state
                    continue
                whole = stored if state == "step" else {"param": stored}
                if state == "step" and _counts_in_python(checkpoint, name):
                    whole = int(stored.read())
                write_archive(os.path.join(own, f"{state}.pt"), whole, each)
        packed = _packed(checkpoint)
        write_archive(os.path.join(folder, "zero", _GROUPS), {
            "param_groups": packed, "ds_version": _DS_VERSION, "overflow": False,
            "zero_stage": 2, "partition_count": 1,
            # Where stage 3 looks for both; a count is of all its parameters there.
            "optimizer_state_dict": {
                "state": {0: {"step": _count_of_all(checkpoint, step)}}, "param_groups": packed,
            },
        })  # fmt: skip
        shapes = [
            {name: torch.Size(checkpoint.parameters[name].shape) for name in group["params"]}
            for group in checkpoint.groups
        ]
        info = {"universal_checkpoint_version": _VERSION}
        for name in _MODEL:  # as stages 1 and 2 call it, and stage 3
            write_archive(os.path.join(folder, name), {
                **_OF_ENGINE, "param_shapes": shapes, "global_steps": step,
                "ds_version": _DS_VERSION, "universal_checkpoint_info": info,
            })  # fmt: skip
        with open(os.path.join(beside, _LATEST), "w", encoding="utf-8") as file:
            file.write(tag)


def _is_component(name: object) -> bool:
    """Whether it names something in a folder, and nothing outside of it."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and os.path.basename(name) == name
        and "\0" not in name
    )


def _step(checkpoint: Checkpoint, name: str) -> int:
    stored = checkpoint.states.get(name, {}).get("step")
    return int(stored.read()) if stored is not None else 0


def _count_of_all(checkpoint: Checkpoint, step: int) -> int | Stored:
    """The largest, as the optimizer counts."""
    if any(_counts_in_python(checkpoint, name) for name in checkpoint.names):
        return step
    own = (name for name in checkpoint.names if _step(checkpoint, name) == step)
    return checkpoint.states.get(next(own, ""), {}).get("step", step)


def _counts_in_python(checkpoint: Checkpoint, name: str) -> bool:
    """DeepSpeed's own Adams, whose groups have this key, count in Python."""
    return any("bias_correction" in g for g in checkpoint.groups if name in g["params"])


def _packed(checkpoint: Checkpoint) -> list[dict]:
    """As DeepSpeed has groups: of one vector each."""
    made = []
    for number, group in enumerate(checkpoint.groups):
        own = {**group, "params": [number]}
        if "bias_correction" in group:
            own["step"] = max((_step(checkpoint, name) for name in group["params"]), default=0)
        made.append(own)
    return made
