# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which class, and which arguments, ``optimizer`` and ``scheduler`` of a configuration ask for."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Iterable

import torch

from .. import schedules
from ..muon import SingleDeviceMuonWithAuxAdam
from ..optimizers import of_torch
from ..optimizers.lion import Lion
from .checks import ANY, BETAS, BOOL, Check, number, one_of
from .optimizers import DeepSpeedCPUAdam, FusedAdam, FusedLamb
from .reading import AUTO, Said

# What arguments may be, by their names; torch's classes look at others themselves.
_PARAMS: dict[str, Check] = {
    "lr": number(0),
    "betas": BETAS,
    "eps": number(0),
    "weight_decay": number(0),
    "bias_correction": BOOL,
    "amsgrad": BOOL,
    "set_grad_none": BOOL,
    "adam_w_mode": BOOL,
    "torch_adam": BOOL,
    "fp32_optimizer_states": BOOL,
    "eps_inside_sqrt": BOOL,
    "max_coeff": number(0),
    "min_coeff": number(0),
    "momentum": number(0),
    "muon_lr": number(0),
    "adam_lr": number(0),
    "ns_method": one_of("gram", "standard"),
    "per_head_muon": BOOL,
}

_ADAM = ("lr", "bias_correction", "betas", "eps", "weight_decay", "amsgrad")
_POPPED = ("torch_adam", "adam_w_mode", "fp32_optimizer_states")
_MUON = ("lr", "muon_lr", "adam_lr", "momentum", "weight_decay", "ns_method", "betas", "eps")

# DeepSpeed's names in any case; others are torch's, as torch spells them.
_OWN = {
    "adam": (*_ADAM, "set_grad_none", *_POPPED),
    "adamw": (*_ADAM, "set_grad_none", *_POPPED),
    "lamb": (*_ADAM, "eps_inside_sqrt", "max_coeff", "min_coeff"),
    "lion": ("lr", "betas", "weight_decay", "set_grad_none", "fp32_optimizer_states"),
    "adagrad": ("lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value", "amsgrad",
                "foreach", "fp32_optimizer_states"),
    "muon": (*_MUON, *_POPPED, "per_head_muon"),
}  # fmt: skip

_ABSENT = {
    "onebitadam": "compressed gradients change the mathematics",
    "zerooneadam": "compressed gradients change the mathematics",
    "onebitlamb": "compressed gradients change the mathematics",
    "muadam": "it needs the package mup; give groups their learning rates",
    "muadamw": "it needs the package mup; give groups their learning rates",
    "musgd": "it needs the package mup; give groups their learning rates",
}


def _arguments_of(kind: type) -> dict[str, inspect.Parameter]:
    """Of a constructor, but for the parameters, or the optimizer, in front."""
    return dict(list(inspect.signature(kind.__init__).parameters.items())[2:])


def _like(default: object) -> Check:
    """What is expected of an argument of torch's by its default; its constructor says more."""
    if isinstance(default, bool):
        return BOOL
    if isinstance(default, int | float):
        return number(-math.inf)
    if isinstance(default, tuple):
        own = [ANY if one is None else _like(one) for one in default]
        words = f"{len(own)} of them, as {list(default)}"
        return Check(words, lambda v: _is_list(v, own), tuple)
    return ANY


def _is_list(value: object, own: list[Check]) -> bool:
    of_length = isinstance(value, list | tuple) and len(value) == len(own)
    return of_length and all(check.accepts(v) for check, v in zip(own, value, strict=True))


def _checks_of(kind: type) -> dict[str, Check]:
    return {name: _like(own.default) for name, own in _arguments_of(kind).items()}


def _torchs(name: str) -> type | None:
    own = getattr(of_torch, name, None)
    is_class = isinstance(own, type) and issubclass(own, torch.optim.Optimizer)
    return own if is_class and hasattr(torch.optim, name) else None


def _names() -> list[str]:
    return [*_OWN, *(name for name in vars(of_torch) if name[0].isupper() and _torchs(name))]


def _check_params(where: str, given: dict, known: Iterable[str], checks: dict[str, Check]) -> dict:
    """The arguments as they are used; ValueError with a line for each that is wrong."""
    problems, taken, known = [], {}, tuple(known)
    for name, value in given.items():
        check = checks.get(name, ANY)
        if name == "max_grad_norm":
            problems.append(f"'{where}.{name}' is not supported, give 'gradient_clipping'")
        elif name not in known:
            near = difflib.get_close_matches(name, known, 1)
            words = f", the nearest is '{near[0]}'" if near else f", expected {', '.join(known)}"
            problems.append(f"'{where}.{name}' is unknown{words}")
        elif value == AUTO or not check.accepts(value):
            of_auto = '; "auto" is resolved from training_arguments' if value == AUTO else ""
            words = check.words if check is not ANY else "a value"
            problems.append(f"'{where}.{name}' is {value!r}, expected {words}{of_auto}")
        else:
            taken[name] = check.take(value)
    if problems:
        lines = "".join(f"\n- {problem}" for problem in problems)
        raise ValueError(f"the DeepSpeed configuration cannot be followed:{lines}")
    return taken


# --- Optimizers -----------------------------------------------------------------------------------


def optimizer_of(said: Said, on_cpu: bool) -> tuple[Callable, dict, str]:
    """The class, its arguments, and the kind in lower case. ``on_cpu``: whether DeepSpeed's engine
    would take its optimizers for the CPU, as it does with ``offload_optimizer``. ValueError."""
    name = said["optimizer.type"]
    if name is None:
        raise ValueError("the DeepSpeed configuration has no 'optimizer.type', expected one")
    kind = name.lower()
    if kind in _ABSENT:
        raise ValueError(f"'optimizer.type' is {name!r}, which is not here: {_ABSENT[kind]}")
    own = None if kind in _OWN else _torchs(name)
    if kind not in _OWN and own is None:
        near = [n for n in _names() if n.lower() == kind]
        near = near or difflib.get_close_matches(name, _names(), 1)
        words = f"the nearest is '{near[0]}'" if near else f"expected {', '.join(_names())}"
        raise ValueError(f"'optimizer.type' is {name!r}, {words}")
    given, known, checks = said["optimizer.params"], _OWN.get(kind), _PARAMS
    if own is not None:
        checks = known = _checks_of(getattr(torch.optim, name))
    elif kind in ("adam", "adamw") and given.get("torch_adam") is True:
        known = (*_arguments_of(torch.optim.AdamW), *_POPPED)
        checks = _checks_of(torch.optim.AdamW) | _PARAMS
    params = _check_params("optimizer.params", given, known, checks)
    if own is not None:
        return own, params, kind
    return (*_BUILD[kind](kind, params, on_cpu), kind)


def _adam(kind: str, params: dict, on_cpu: bool) -> tuple[Callable, dict]:
    """``Adam`` decays as AdamW does, unless ``adam_w_mode`` is false."""
    mode = params.pop("adam_w_mode", True) or kind == "adamw"
    states = params.pop("fp32_optimizer_states", True)
    if params.pop("torch_adam", False):
        return (of_torch.AdamW if mode else of_torch.Adam), params
    _check_amsgrad(params, "Adam of DeepSpeed has none, 'torch_adam' true has")
    if on_cpu:
        params.pop("set_grad_none", None)
        return DeepSpeedCPUAdam, {**params, "adamw_mode": mode, "fp32_optimizer_states": states}
    return FusedAdam, {**params, "adam_w_mode": mode}


def _lion(kind: str, params: dict, on_cpu: bool) -> tuple[Callable, dict]:
    params.pop("set_grad_none", None)
    params.pop("fp32_optimizer_states", None)
    return Lion, {"lr": 1e-3, "betas": (0.9, 0.999), "weight_decay": 0.0, **params}


def _adagrad(kind: str, params: dict, on_cpu: bool) -> tuple[Callable, dict]:
    params.pop("fp32_optimizer_states", None)
    _check_amsgrad(params, "Adagrad has none")
    return of_torch.Adagrad, params


def _lamb(kind: str, params: dict, on_cpu: bool) -> tuple[Callable, dict]:
    _check_amsgrad(params, "Lamb has none")
    return FusedLamb, params


def _check_amsgrad(params: dict, words: str) -> None:
    if params.pop("amsgrad", False):
        raise ValueError(f"'optimizer.params.amsgrad' is True, expected false: {words}")


def _muon(kind: str, params: dict, on_cpu: bool) -> tuple[Callable, dict]:
    if params.pop("per_head_muon", False):
        raise ValueError(
            "'optimizer.params.per_head_muon' is True, expected false: give model_parameters "
            "groups with a view, as '(12 n) m -> 12 n m'"
        )
    for name in ("torch_adam", "fp32_optimizer_states", "ns_method"):
        params.pop(name, None)  # the same mathematics
    return SingleDeviceMuonWithAuxAdam, params


_BUILD = {
    "adam": _adam,
    "adamw": _adam,
    "lamb": _lamb,
    "lion": _lion,
    "adagrad": _adagrad,
    "muon": _muon,
}


def muon_groups(model: torch.nn.Module, groups: list[dict], params: dict) -> list[dict]:
    """The groups cut in two, as DeepSpeed tags parameters: matrices that are no embedding and no
    head are Muon's, where ``param.use_muon`` does not say it. Those that need no gradient are left
    out. ValueError for a group that asks for an L2 term."""
    names = {id(param): name.lower() for name, param in model.named_parameters()}

    def is_matrix(param: torch.Tensor) -> bool:
        name = names.get(id(param), "")
        of_shape = param.dim() >= 2 and "embed" not in name and "lm_head" not in name
        return bool(getattr(param, "use_muon", of_shape))

    made = []
    for group in groups:
        own = {key: value for key, value in group.items() if key != "params"}
        for use, rate, keys in (
            (True, "muon_lr", ("lr", "momentum", "weight_decay")),
            (False, "adam_lr", ("lr", "betas", "eps", "weight_decay")),
        ):
            trained = [p for p in group["params"] if tensor_of(p).requires_grad]
            both = [p for p in trained if is_matrix(tensor_of(p)) is use]
            settings = {key: params[key] for key in keys if key in params}
            if rate in params:
                settings["lr"] = params[rate]
            settings.update({key: value for key, value in own.items() if key in (*keys, "view")})
            # Kernels of convolutions have a group of their own, with the author's view.
            kernels = [use and tensor_of(p).dim() == 4 for p in both]
            for kind in (False, True):
                some = [p for p, own_kind in zip(both, kernels, strict=True) if own_kind is kind]
                if some:
                    made.append({"params": some, "use_muon": use, **settings})
    if not made:
        raise ValueError("no parameter needs a gradient, expected one")
    if not params.get("adam_w_mode", True) and any(group.get("weight_decay") for group in made):
        raise ValueError(
            "'optimizer.params.adam_w_mode' is False with a weight_decay, expected true: Adam "
            "beside Muon decays parameters"
        )
    return made


def tensor_of(item) -> torch.Tensor:
    return item[1] if isinstance(item, tuple) else item


# --- Schedules ------------------------------------------------------------------------------------

_RATE = number(0)
_STEPS = Check("a whole number from 1 on", lambda v: type(v) is int and 1 <= v < 2**63)
_RATES = Check(
    "a number, or a list of one for each group",
    lambda v: all(map(number(0).accepts, v if isinstance(v, list | tuple) and v else [v])),
)
_OF_SCHEDULES = {
    **dict.fromkeys(
        (
            "warmup_min_lr",
            "cycle_min_lr",
            "cycle_max_lr",
            "cycle_min_mom",
            "cycle_max_mom",
            "lr_range_test_min_lr",
        ),
        _RATES,
    ),
    "warmup_max_lr": Check(f"{_RATES.words}, or null", lambda v: v is None or _RATES.accepts(v)),
    "total_num_steps": _STEPS,
    "warmup_num_steps": _STEPS,
    "warmup_type": one_of("log", "linear"),
    "warmup_min_ratio": _RATE,
    "cos_min_ratio": _RATE,
}
_DEEPSPEEDS = ("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR")


def schedule_of(said: Said) -> Callable | None:
    """What makes the schedule of an optimizer; None where the file has none. ValueError."""
    name = said["scheduler.type"]
    if name is None and said.block("scheduler"):
        raise ValueError("the DeepSpeed configuration has no 'scheduler.type', expected one")
    if name is None:
        return None
    torchs = torch.optim.lr_scheduler
    base = torchs.LRScheduler
    kinds = {n: k for n, k in vars(torchs).items() if inspect.isclass(k) and issubclass(k, base)}
    # What steps by a measure has no place in a loop that asks for none.
    left_out = ("LRScheduler", "ReduceLROnPlateau")
    kinds = {n: k for n, k in kinds.items() if n[0] != "_" and n not in left_out}
    kinds |= {n: getattr(schedules, n) for n in _DEEPSPEEDS}
    if name not in kinds:
        near = [n for n in kinds if n.lower() == name.lower()]
        near = near or difflib.get_close_matches(name, kinds, 1)
        words = f"the nearest is '{near[0]}'" if near else f"expected {', '.join(_DEEPSPEEDS)}"
        raise ValueError(f"'scheduler.type' is {name!r}, {words}")
    known, own = _arguments_of(kinds[name]), _checks_of(kinds[name])
    checks = own | {n: check for n, check in _OF_SCHEDULES.items() if name in _DEEPSPEEDS}
    given = _check_params("scheduler.params", said["scheduler.params"], known, checks)
    needed = [n for n, p in known.items() if p.default is p.empty and n not in given]
    if needed:
        raise ValueError(f"'scheduler.params' has no {', '.join(map(repr, needed))}, expected them")
    return lambda optimizer: kinds[name](optimizer, **given)
