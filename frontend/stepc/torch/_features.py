# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What any optimizer can do to its gradients first: unscale them and clip them.

Each feature is a fragment of the zoo, compiled into the step; nothing is read or
written twice for it, and ``.grad`` stays as it is. Its numbers are attributes that
may be changed between steps, as the values of a parameter group may be.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

import torch

from ..interface import Interface, Options


class Feature:
    """A fragment with its numbers, the same for all parameter groups.

    ``_fragment``: its file in the zoo, and its name; ``_hypers``: its hyper-parameters,
    each an attribute of the object, or given by ``_values``.
    """

    _fragment = ""
    _hypers: dict[str, str] = {}  # of the fragment: the attribute it is
    _options: dict[str, str] = {}  # likewise
    _scalars: dict[str, str] = {}  # kept between steps: the attribute it begins as

    def __repr__(self) -> str:
        numbers = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if k[0] != "_")
        return f"{type(self).__name__}({numbers})"

    def values(self) -> tuple[float, ...]:
        """Of its hyper-parameters, in the order of ``_hypers``."""
        return tuple([float(getattr(self, name)) for name in self._hypers.values()])

    def settings(self) -> tuple[bool, ...]:
        """Of its options, in the order of ``_options``."""
        return tuple([bool(getattr(self, name)) for name in self._options.values()])

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


def initial_scalars(interface: Interface, features: tuple[Feature, ...]) -> dict[str, float]:
    """What the features' scalars begin as, by name in the interface."""
    known = {scalar.name for scalar in interface.scalars}
    return {
        merged_name(known, feature, name): float(getattr(feature, attribute))
        for feature in features
        for name, attribute in feature._scalars.items()
    }
