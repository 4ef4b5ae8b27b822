# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What any optimizer can do to its gradients first, unscale and clip them, and with its
parameters after: average and copy them.

Each feature is a fragment of the zoo, compiled into the step; nothing is read or
written twice for it, and ``.grad`` stays as it is. Its numbers are attributes that
may be changed between steps, as the values of a parameter group may be.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch

from ...interface import Interface, Options
from ..tensors.dlpack import NARROW


class Feature:
    """A fragment with its numbers, the same for all parameter groups.

    ``_fragment``: its file in the zoo, and its name; ``_hypers``: its hyper-parameters,
    each an attribute of the object, or given by ``_values``.
    """

    _fragment = ""
    _hypers: dict[str, str] = {}  # of the fragment: the attribute it is
    _options: dict[str, str] = {}  # likewise
    _scalars: dict[str, str] = {}  # kept between steps: the attribute it begins as
    _state: str | None = None  # of each parameter, which begins as the parameter
    _storage: torch.dtype | None = None  # of that state, where it is not the usual one

    def __repr__(self) -> str:
        numbers = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if k[0] != "_")
        return f"{type(self).__name__}({numbers})"

    def values(self) -> tuple[float, ...]:
        """Of its hyper-parameters, in the order of ``_hypers``."""
        return tuple([float(getattr(self, name)) for name in self._hypers.values()])

    def settings(self) -> tuple[bool, ...]:
        """Of its options, in the order of ``_options``."""
        return tuple([bool(getattr(self, name)) for name in self._options.values()])

    def after_step(self, optimizer) -> None:
        """What it says of the step that the optimizer has made or skipped."""

    def _set_numbers(self, **numbers: float) -> None:
        """Sets attributes; ValueError for one that is not a positive number."""
        for name, value in numbers.items():
            if isinstance(value, torch.Tensor) or not 0.0 < value < math.inf:
                raise ValueError(f"{name} is {value!r}, expected a positive number")
            setattr(self, name, value)


# --- Clipping -----------------------------------------------------------------


class ClipByValue(Feature):
    """Clamps every element of a gradient to ``[-clip_value, clip_value]``, as
    :func:`torch.nn.utils.clip_grad_value_`.

    Raises ValueError where ``clip_value`` is not a positive number.
    """

    _fragment = "clip_by_value"
    _hypers = {"clip_value": "clip_value"}

    def __init__(self, clip_value: float):
        self._set_numbers(clip_value=clip_value)


class ClipByNorm(Feature):
    """Scales all gradients of the step so that their norm, as of one vector, is at
    most ``max_norm``, as :func:`torch.nn.utils.clip_grad_norm_`: by
    ``min(1, max_norm / (norm + 1e-6))``.

    ``norm_type`` is 2 or infinity. ``last_step.grad_norm`` of the optimizer is the
    norm before. Raises ValueError for another ``norm_type`` and where ``max_norm``
    is not a positive number.
    """

    _fragment = "clip_by_norm"
    _hypers = {"max_norm": "max_norm"}

    def __init__(self, max_norm: float, norm_type: float = 2.0):
        self._set_numbers(max_norm=max_norm)
        norm_type = float(norm_type)
        if norm_type not in (2.0, math.inf):
            raise ValueError(f"norm_type is {norm_type:g}, expected 2 or inf")
        self.norm_type = norm_type
        if norm_type == math.inf:
            self._fragment = "clip_by_inf_norm"


def clips(clip: Feature | Sequence[Feature] | None) -> tuple[Feature, ...]:
    """The argument ``clip`` of an optimizer as a tuple, in the order of application.

    Raises TypeError for what does not clip, ValueError for two of one kind.
    """
    given = () if clip is None else tuple(clip) if isinstance(clip, list | tuple) else (clip,)
    for feature in given:
        if not isinstance(feature, ClipByValue | ClipByNorm):
            raise TypeError(
                f"clip is {feature!r}, expected ClipByValue, ClipByNorm, or a list of them"
            )
    fragments = [feature._fragment for feature in given]
    for feature in given:
        if fragments.count(feature._fragment) > 1:
            raise ValueError(f"clip has {type(feature).__name__} twice: {list(given)}")
    return given


# --- Loss scaling -------------------------------------------------------------


class LossScale(Feature):
    """A loss scale that stays as it is: gradients are divided by ``scale``."""

    _fragment = "unscale"
    _hypers = {"loss_scale": "scale"}

    def __init__(self, scale: float):
        self._set_numbers(scale=scale)


class DynamicLossScale(Feature):
    """The loss scale of :class:`torch.amp.GradScaler`, inside the compiled step.

    Gradients are divided by the scale; where one is Inf or NaN, the step is left
    out, changes no parameter, state or count, and the scale is multiplied by
    ``backoff_factor``. After ``growth_interval`` steps in a row that were made it is
    multiplied by ``growth_factor``. Unlike with ``GradScaler`` nothing waits for
    the answer.

    Raises ValueError for numbers out of range.
    """

    _fragment = "torch_scaler"
    _hypers = {
        "growth_factor": "growth_factor",
        "backoff_factor": "backoff_factor",
        "growth_interval": "growth_interval",
    }
    _scalars = {"scale": "init_scale"}

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ):
        self._set_numbers(
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
        )
        if not growth_factor > 1.0:
            raise ValueError("The growth factor must be > 1.0.")
        if not backoff_factor < 1.0:
            raise ValueError("The backoff factor must be < 1.0.")

    @property
    def first_scale(self) -> float:
        """The scale of the first step."""
        return float(getattr(self, self._scalars["scale"]))


def loss_scales(loss_scale: float | Feature | None) -> tuple[Feature, ...]:
    """The argument ``loss_scale`` of an optimizer as a tuple of at most one."""
    if loss_scale is None:
        return ()
    if isinstance(loss_scale, LossScale | DynamicLossScale):
        return (loss_scale,)
    if isinstance(loss_scale, bool) or not isinstance(loss_scale, int | float):
        raise TypeError(
            f"loss_scale is {loss_scale!r}, expected a number, DynamicLossScale() or None"
        )
    return (LossScale(loss_scale),)


class GradScale(Feature):
    """The scale of a ``GradScaler``, for one step: gradients are divided by it, and an
    Inf or NaN among them skips the step."""

    _fragment = "grad_scaler"
    _hypers = {"grad_scale": "scale"}

    def __init__(self, scale: float):
        self.scale = scale


# --- Other things to do to gradients ------------------------------------------


class Accumulation(Feature):
    """Gradients are sums of ``steps`` backward passes, of which the step takes the mean."""

    _fragment = "accumulation"
    _hypers = {"accumulation_steps": "steps"}

    def __init__(self, steps: float):
        self._set_numbers(steps=steps)


class SkipNonfinite(Feature):
    """A step with a gradient that is Inf or NaN is left out."""

    _fragment = "skip_nonfinite"


# --- What becomes of the parameters -------------------------------------------


class _Average(Feature):
    """``active``: whether steps average; where it is False the average is neither read
    nor written. May be set between steps."""

    active = True

    def __init__(self, active: bool):
        self.active = bool(active)


class EMA(_Average):
    """An exponential moving average of the parameters, kept inside the step:
    ``a + (1 - decay) * (p - a)``, beginning as the parameters after the first step.

    As :class:`torch.optim.swa_utils.AveragedModel` with ``get_ema_multi_avg_fn(decay)``
    and ``update_parameters`` behind each step. Raises ValueError where ``decay`` is not
    from 0 to 1.
    """

    _fragment = "ema"
    _hypers = {"ema_decay": "decay", "ema_active": "active"}
    _state = "ema"

    def __init__(self, decay: float = 0.999, active: bool = True):
        super().__init__(active)
        if isinstance(decay, torch.Tensor) or not 0.0 <= decay <= 1.0:
            raise ValueError(f"decay is {decay!r}, expected a number from 0 to 1")
        self.decay = decay


class SWA(_Average):
    """The mean of the parameters over the steps in which it is active.

    As :class:`torch.optim.swa_utils.AveragedModel`, whose ``update_parameters`` is called
    behind each of these steps. To average once an epoch set ``opt.average.active`` for the
    epoch's last step.
    """

    _fragment = "swa"
    _hypers = {"swa_active": "active"}
    _state = "swa"

    def __init__(self, active: bool = True):
        super().__init__(active)


class ParamCopy(Feature):
    """A copy of each new parameter in ``dtype``, written and never read."""

    _fragment = "param_copy"
    _state = "param_copy"

    def __init__(self, dtype: torch.dtype):
        self._storage = dtype


# --- The arguments of an optimizer --------------------------------------------


def _average_of(average) -> tuple[Feature, ...]:
    if average is None:
        return ()
    if not isinstance(average, _Average):
        raise TypeError(f"average is {average!r}, expected EMA(), SWA() or None")
    return (average,)


def _accumulation_of(steps) -> tuple[Feature, ...]:
    if steps is None:
        return ()
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"accumulation_steps is {steps!r}, expected a positive integer or None")
    return (Accumulation(steps),)


def _copy_of(dtype) -> tuple[Feature, ...]:
    if dtype is None:
        return ()
    if dtype not in (*NARROW, torch.float32):
        raise ValueError(
            f"param_copy is {dtype!r}, expected torch.bfloat16, torch.float16, torch.float32 "
            "or None"
        )
    return (ParamCopy(dtype),)


# What every class takes beside ``clip`` and ``loss_scale``, with its default.
KEYWORDS = {
    "average": None,
    "accumulation_steps": None,
    "skip_nonfinite": False,
    "param_copy": None,
}


@dataclass(frozen=True)
class Features:
    """All of an optimizer, from its arguments. TypeError and ValueError."""

    clip: tuple[Feature, ...] = ()
    scaling: tuple[Feature, ...] = ()  # none or one
    accumulation: tuple[Feature, ...] = ()  # none or one, as those below
    skip: tuple[Feature, ...] = ()
    average: tuple[Feature, ...] = ()
    copy: tuple[Feature, ...] = ()

    @classmethod
    def of(
        cls,
        clip=None,
        loss_scale=None,
        average=None,
        accumulation_steps=None,
        skip_nonfinite=False,
        param_copy=None,
    ) -> Features:
        return cls(
            clips(clip),
            loss_scales(loss_scale),
            _accumulation_of(accumulation_steps),
            (SkipNonfinite(),) if skip_nonfinite else (),
            _average_of(average),
            _copy_of(param_copy),
        )

    def in_order(self) -> tuple[Feature, ...]:
        """In the order of application."""
        before = self.scaling + self.accumulation + self.skip + self.clip
        return before + self.average + self.copy


# --- In the names of a definition ---------------------------------------------


def merged_name(known: Container[str], feature: Feature, name: str) -> str:
    """What a name of the fragment is called behind an optimizer, among ``known``: it
    has the fragment's name in front where the optimizer, or a fragment before it,
    has the same."""
    prefixed = f"{feature._fragment}.{name}"
    return prefixed if prefixed in known else name


def hyper_names(interface: Interface, features: tuple[Feature, ...]) -> tuple[str, ...]:
    """The features' hyper-parameters in the interface, in the order of ``values``."""
    known = interface.hyper_names
    return tuple(merged_name(known, f, name) for f in features for name in f._hypers)


def values(features: tuple[Feature, ...]) -> tuple[float, ...]:
    """Their values now."""
    return tuple([value for feature in features for value in feature.values()])


def options(interface: Interface, features: tuple[Feature, ...]) -> Options:
    """The features' options, by name in the interface."""
    known = interface.option_names
    return {
        merged_name(known, feature, name): value
        for feature in features
        for name, value in zip(feature._options, feature.settings(), strict=True)
    }


# What any optimizer may have of them in its state.
STATES = frozenset(kind._state for kind in (EMA, SWA, ParamCopy))


def states_of(features: tuple[Feature, ...]) -> frozenset[str]:
    """The names of the states that they add."""
    return frozenset(feature._state for feature in features if feature._state)


def storages(features: tuple[Feature, ...]) -> dict[str, torch.dtype]:
    """By state, where it is not the usual one."""
    return {f._state: f._storage for f in features if f._storage is not None}


def initial_scalars(interface: Interface, features: tuple[Feature, ...]) -> dict[str, float]:
    """What the features' scalars begin as, by name in the interface."""
    known = {scalar.name for scalar in interface.scalars}
    return {
        merged_name(known, feature, name): float(getattr(feature, attribute))
        for feature in features
        for name, attribute in feature._scalars.items()
    }
