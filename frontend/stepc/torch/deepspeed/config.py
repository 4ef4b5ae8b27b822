# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An optimizer, its schedule and what goes with them from a ``ds_config.json``."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..binding.features import ClipByNorm, LossScale
from ..optimizers.of_torch import AdamW
from ..ranks.dtensor import is_dtensor
from ..ranks.zero.settings import Zero
from .auto import resolve
from .classes import muon_groups, optimizer_of, schedule_of, tensor_of
from .placing import offloads, place_of
from .reading import Said, read
from .report import notes_of, report, tell
from .scaler import DynamicLossScaler, loss_scaler
from .setup import Setup

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, None: None}
_SCALES = (
    "loss_scale",
    "initial_scale_power",
    "loss_scale_window",
    "hysteresis",
    "consecutive_hysteresis",
    "min_loss_scale",
)


# The Trainer's names of torch's AdamW.
_OF_TRAINER = ("adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused")


def from_config(
    config: dict | str | os.PathLike,
    model: torch.nn.Module,
    training_arguments=None,
    *,
    model_parameters=None,
    num_training_steps: int | None = None,
    for_trainer: bool = False,
) -> Setup:
    """What DeepSpeed's engine would make of a configuration: optimizer, schedule, clipping, loss
    scale, accumulation and ZeRO. docs/deepspeed.md has a table of all keys.

    As the engine does, it casts plain floating-point parameters of ``model`` where the file has
    ``fp16`` or ``bf16``; masters begin as these. What is the engine's, or without meaning here,
    is named by one warning, and in ``keys`` of the result.

    Args:
        config: a dict, which stays as it is, or the path of a JSON file.
        model: on stage 3 ``fully_shard`` has been called for it.
        training_arguments: of transformers' Trainer, or anything with these attributes. They
            resolve "auto", and what contradicts them is refused as the Trainer does.
        model_parameters: parameters, named parameters or groups, in place of all that need
            gradients.
        num_training_steps: for "auto" where ``max_steps`` of the arguments does not say it.
        for_trainer: the loop is the Trainer's, which divides losses by the passes to a step and
            clips: the optimizer does neither, and ``fp16`` is refused, as it scales losses too.

    Raises ValueError, before the model is changed and anything is allocated, for keys that are
    unknown (with the nearest), have another type or change the mathematics, all in one message;
    for contradictions; for values out of range. FileNotFoundError, TypeError.
    """
    given = read(config)
    world = dist.get_world_size() if dist.is_initialized() else 1
    if training_arguments is not None:
        resolve(given, training_arguments, model, num_training_steps, world)
    said = Said(given)
    batches = _batches(said, training_arguments, world)
    groups = _groups(model, model_parameters)
    params = [tensor_of(item) for group in groups for item in group["params"]]
    dtype = _dtype_of(said, params)
    make, own_groups = _maker(said, model, groups, training_arguments, model_parameters)
    schedule = schedule_of(said)
    features = _precision(said, dtype, for_trainer)
    features |= _zero(said, dtype, params, world) | place_of(said, params)
    _check_wrapped(said, model, dtype, for_trainer and "zero" in features)
    passes = batches["gradient_accumulation_steps"]
    _check_accumulation(said, passes, dtype or params[0].dtype, "zero" in features)
    if not for_trainer:
        features |= _clip(said) | ({"accumulation_steps": passes} if passes > 1 else {})
    _try(make, own_groups, features, schedule)
    keys = report(said, "zero" in features, None if dtype else _kind_of(said))
    notes = notes_of(said, model, params, world, features)
    with _cast(model, dtype):
        optimizer = make(own_groups, **features)
        optimizer._told_of_masters = True  # there are those that the file asks for
        lr_scheduler = None if schedule is None else schedule(optimizer)
        tell(keys, notes)
    return Setup.of(said, optimizer, lr_scheduler, **batches, dtype=params[0].dtype, keys=keys)


# --- Parameters -----------------------------------------------------------------------------------


def _groups(model: torch.nn.Module, given) -> list[dict]:
    """Groups of lists; ValueError for none at all."""
    if given is None:
        given = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    items = list(given)
    if items and not isinstance(items[0], dict):
        items = [{"params": items}]
    groups = []
    for group in items:
        own = group["params"]
        groups.append({**group, "params": [own] if isinstance(own, torch.Tensor) else list(own)})
    if not any(group["params"] for group in groups):
        raise ValueError("no parameter needs a gradient, expected one")
    return groups


def _kind_of(said: Said) -> str | None:
    """ "fp16" or "bf16", if either. ValueError for both."""
    kinds = [kind for kind in ("fp16", "bf16") if said[f"{kind}.enabled"]]
    if len(kinds) > 1:
        raise ValueError("bfloat16 and fp16 modes cannot be simultaneously enabled")
    return kinds[0] if kinds else None


def _dtype_of(said: Said, params: list[torch.Tensor]) -> torch.dtype | None:
    """What the file asks for where all parameters are that, or are cast to it, and have masters;
    None where they stay. ValueError, also for a mixture."""
    kind = _kind_of(said)
    wanted = _DTYPES[kind]
    named = _DTYPES[said["data_types.param_dtype"]]
    if named is not None and named != (wanted or params[0].dtype):
        raise ValueError(
            f"'data_types.param_dtype' is {said['data_types.param_dtype']!r}, expected that of "
            f"the parameters, {wanted or params[0].dtype}"
        )
    if wanted is None:
        return None
    become = {p.dtype if is_dtensor(p) else wanted for p in params}
    if become == {wanted}:
        return wanted
    if become == {torch.float32} and all(map(is_dtensor, params)):
        return None
    raise ValueError(
        f"'{kind}.enabled' is True, and parameters are or become "
        f"{' and '.join(sorted(map(str, become)))}, as DTensors are not cast: expected all to be "
        f"{wanted}, or all DTensors of torch.float32"
    )


def _check_wrapped(said: Said, model, dtype, clipped: bool) -> None:
    """ValueError for what would take gradients from DistributedDataParallel, or from the Trainer,
    which has ``clipped`` them."""
    wraps = any(isinstance(m, DistributedDataParallel) for m in model.modules())
    if wraps and dtype is not None and _to_cast(model, dtype):
        raise ValueError(
            f"'{_kind_of(said)}.enabled' is True, which casts parameters, whose gradients "
            "DistributedDataParallel would average no more: call from_config, then "
            "DistributedDataParallel"
        )
    if clipped and said["zero_optimization.stage"] == 2:
        raise ValueError(
            "'zero_optimization.stage' is 2, and the Trainer clips .grad, which Zero(2) takes in "
            "the backward pass: expected 0, 1, or a loop of your own"
        )


def _to_cast(model: torch.nn.Module, dtype: torch.dtype) -> list[torch.nn.Parameter]:
    of_others = (p for p in model.parameters() if p.dtype != dtype and not is_dtensor(p))
    return [param for param in of_others if param.is_floating_point()]


@contextlib.contextmanager
def _cast(model: torch.nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Casts to it, if any; back where an exception comes out of the block."""
    before = [] if dtype is None else [(p, p.data) for p in _to_cast(model, dtype)]
    try:
        for param, data in before:
            param.data = data.to(dtype)
        yield
    except BaseException:
        for param, data in before:
            param.data = data
        raise


# --- Batches --------------------------------------------------------------------------------------


def _batches(said: Said, arguments, world: int) -> dict[str, int]:
    """The three numbers, what is missing from the others, as DeepSpeed does. ValueError, in its
    words."""
    total, micro = said["train_batch_size"], said["train_micro_batch_size_per_gpu"]
    passes = said["gradient_accumulation_steps"]
    if arguments is not None:  # the Trainer's loop has its own, which the file's equal
        micro = arguments.per_device_train_batch_size if micro is None else micro
        passes = arguments.gradient_accumulation_steps if passes is None else passes
    if total is None and micro is None:
        raise ValueError(
            "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided"
        )
    if total is None:
        passes = passes or 1
        total = micro * passes * world
    elif micro is None:
        passes = passes or 1
        micro = total // world // passes
    elif passes is None:
        passes = total // micro // world
    if total != micro * passes * world or not micro or not passes:
        raise ValueError(
            "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu"
            f" * gradient_acc_step * world_size {total} != {micro} * {passes} * {world}"
        )
    return {
        "train_batch_size": total,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": passes,
    }


def _check_accumulation(said: Said, passes: int, dtype: torch.dtype, shares: bool) -> None:
    """ValueError where gradients of several passes would be added in another dtype."""
    name, stage = said["data_types.grad_accum_dtype"], said["zero_optimization.stage"]
    own = torch.float32 if stage == 2 and shares else dtype
    if passes > 1 and name is not None and _DTYPES[name] != own:
        raise ValueError(
            f"'data_types.grad_accum_dtype' is {name!r}, and .grad is added up in {own} on stage "
            f"{stage}: expected null, or for fp32 stage 2 of several ranks"
        )


# --- The arguments of the optimizer ---------------------------------------------------------------


def _maker(said: Said, model, groups: list[dict], arguments, given):
    """What makes the optimizer, and its groups. ValueError."""
    if said.block("optimizer") or arguments is None:
        make, params, kind = optimizer_of(said, offloads(said))
        if kind == "muon":
            return make, muon_groups(model, groups, params)
        return (lambda groups, **features: make(groups, **params, **features)), groups
    name = str(getattr(getattr(arguments, "optim", ""), "value", getattr(arguments, "optim", "")))
    if getattr(arguments, "optim_args", None):
        raise ValueError(
            "the DeepSpeed configuration has no 'optimizer', and the training arguments have "
            f"optim_args {arguments.optim_args!r}, expected none"
        )
    if name and name not in _OF_TRAINER:
        raise ValueError(
            "the DeepSpeed configuration has no 'optimizer', and the training arguments have optim "
            f"{name!r}, expected 'adamw_torch': give the Trainer that optimizer of stepc.torch"
        )
    params = {
        "lr": arguments.learning_rate,
        "betas": (arguments.adam_beta1, arguments.adam_beta2),
        "eps": arguments.adam_epsilon,
        "weight_decay": arguments.weight_decay,
    }
    own = groups if given is not None else _groups_of_trainer(model, groups)
    return (lambda groups, **features: AdamW(groups, **params, **features)), own


def _groups_of_trainer(model, groups: list[dict]) -> list[dict]:
    """Those that decay and those that do not, as transformers' Trainer makes them."""
    from transformers import Trainer

    decays = set(Trainer.get_decay_parameter_names(None, model))
    (group,) = groups
    halves = [
        {"params": [(n, p) for n, p in group["params"] if n in decays]},
        {"params": [(n, p) for n, p in group["params"] if n not in decays], "weight_decay": 0.0},
    ]
    return [half for half in halves if half["params"]]


def _clip(said: Said) -> dict:
    norm = said["gradient_clipping"]
    return {"clip": ClipByNorm(norm)} if norm > 0 else {}


def _precision(said: Said, dtype, for_trainer: bool) -> dict:
    """Masters, the loss scale, what is skipped, and states. ValueError."""
    features = {}
    if said["fp16.enabled"]:
        if for_trainer:
            raise ValueError(
                "'fp16.enabled' is True, and the Trainer scales losses by torch's GradScaler, not "
                "as DeepSpeed does: expected bf16, or a loop of your own"
            )
        features["loss_scale"] = _scale(said)
        if dtype is not None:
            features["master"] = "f32"
    if not said["bf16.enabled"]:
        return features
    narrow = said["bf16.bf16_master_weights_and_grads"]
    states = said["bf16.bf16_optimizer_states"]
    stage = said["zero_optimization.stage"]
    if (narrow or states) and stage == 0:
        name = "bf16_master_weights_and_grads" if narrow else "bf16_optimizer_states"
        raise ValueError(
            f"'bf16.{name}' is True, and 'zero_optimization.stage' is 0, expected 1 to 3"
        )
    if states and not narrow:
        raise ValueError(
            "bf16_optimizer_states requires bf16_master_weights_and_grads to be enabled."
        )
    if said["bf16.check_grad_overflow"]:
        features["skip_nonfinite"] = True
    if dtype is not None and not narrow:
        features["master"] = "remainder"
    if states:
        features["state_dtype"] = torch.bfloat16
    return features


def _scale(said: Said) -> LossScale | DynamicLossScaler:
    """On stage 0 that of DeepSpeed's FP16_Optimizer: every overflow lowers it, and none raises."""
    scale = loss_scaler(**{name: said[f"fp16.{name}"] for name in _SCALES})
    if said["zero_optimization.stage"] or not isinstance(scale, DynamicLossScaler):
        return scale
    return DynamicLossScaler(
        scale.init_scale,
        scale_window=scale.scale_window,
        min_scale=scale.min_scale,
        raise_error_at_min_scale=False,
    )


def _zero(said: Said, dtype, params: list[torch.Tensor], world: int) -> dict:
    """ZeRO of stages 1 and 2, or nothing. ValueError for a stage 3 of plain parameters."""
    stage = said["zero_optimization.stage"]
    plain = [param for param in params if not is_dtensor(param)]
    if stage == 3 and plain:
        raise ValueError(
            "'zero_optimization.stage' is 3, and the model's parameters are not DTensors: call "
            "torch.distributed.fsdp.fully_shard for its layers and for it, then from_config"
        )
    if stage in (1, 2) and len(plain) < len(params):
        raise ValueError(
            f"'zero_optimization.stage' is {stage}, and parameters are DTensors, which are sharded "
            "already: expected 3"
        )
    if stage in (0, 3) or world == 1:
        return {}
    own = dtype or params[0].dtype
    crosses = _DTYPES[said["communication_data_type"]]
    overlap = said["zero_optimization.overlap_comm"]
    sizes = {}
    for key, name, of in (
        ("zero_optimization.reduce_bucket_size", "reduce_bucket_bytes", crosses or own),
        ("zero_optimization.allgather_bucket_size", "gather_bucket_bytes", own),
    ):
        if key in said and said[key] > 0:  # else our own sizes, which are smaller
            sizes[name] = said[key] * of.itemsize
    return {
        "zero": Zero(
            stage,
            gradients="local",
            reduce_dtype=crosses,
            predivide=said["prescale_gradients"],
            overlap=True if overlap is None else overlap,
            **sizes,
        )
    }


# --- Before the model is changed ------------------------------------------------------------------


def _try(make, groups: list[dict], features: dict, schedule) -> None:
    """Makes the optimizer and its schedule of groups of a single small parameter each, which raises
    what values out of range do, and what does not go together."""
    few = []
    for group in groups:
        one = torch.nn.Parameter(torch.zeros(2, 2, dtype=torch.bfloat16, device="cpu"))
        own = {k: _own(v) for k, v in group.items() if k not in ("view", "params")}
        few.append({**own, "params": [one]})
    optimizer = make(few, **{k: v for k, v in features.items() if k not in ("zero", "place")})
    if schedule is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            schedule(optimizer).step()
        except (TypeError, ArithmeticError) as error:
            raise ValueError(f"'scheduler.params' do not give a schedule: {error}") from error


def _own(value):
    """A copy of a tensor, as schedules write into learning rates."""
    return value.clone() if isinstance(value, torch.Tensor) else value
