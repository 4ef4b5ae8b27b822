# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shampoo, of facebookresearch/optimizers' ``distributed_shampoo``, with a compiled step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from ..binding.hypers import BETAS, named
from ..tensors.cutting import text_of
from ..tensors.patterns import with_views
from .checks import (
    check_one,
    check_whole,
    tell_of_fallbacks,
)
from .limited import OfLimitedDims

__all__ = ["Shampoo"]

_NO_LIMIT = 2**62  # of a dim


class _Grafting(NamedTuple):
    """Whether a method divides by a root of squares, whether their average is corrected for
    bias, and its decay unless a group says it."""

    squares: bool
    corrected: bool = False
    beta2: float = 1.0


_GRAFTINGS = {
    "sgd": _Grafting(False),
    "adagrad": _Grafting(True),
    "rmsprop": _Grafting(True, False, 0.99),
    "adam": _Grafting(True, True, 0.999),
}
_DECAYS = ("l2", "decoupled", "corrected", "independent")


def _choice(value, name: str, known: tuple[str, ...]) -> str:
    """A name, or a member of an enumeration by its name; ValueError for others."""
    choice = str(getattr(value, "name", value)).lower()
    if choice not in known:
        raise ValueError(f"{name} is {value!r}, expected one of {', '.join(known)}")
    return choice


def _grafting(group: dict) -> _Grafting | None:
    kind = group["grafting_type"]
    choice = _choice(kind, "grafting_type", ("none", *_GRAFTINGS))
    return _GRAFTINGS.get(choice)


def _grafting_beta2(group: dict) -> float:
    method = _grafting(group)
    beta2 = group["grafting_beta2"]
    if method is None or beta2 is None or method is _GRAFTINGS["adagrad"]:
        return 1.0 if method is None else method.beta2
    return beta2


def _weight_decay(group: dict) -> float:
    """Which the step multiplies by the learning rate, unless it is an L2 penalty."""
    decay = group["weight_decay"]
    kind = _choice(group["weight_decay_type"], "weight_decay_type", _DECAYS)
    if kind == "corrected":
        return decay * float(group["lr"]) / group["peak_lr"]
    return decay / group["peak_lr"] if kind == "independent" else decay


def _start(group: dict) -> int:
    start = group["start_preconditioning_step"]
    return group["precondition_frequency"] if start == -1 else start


def _exponent(order: int, dim: int):
    """The function of a group that gives the inverse exponent of a dim, of tensors of so many
    dims that are more than 1."""

    def read(group: dict) -> float:
        given = (group["inverse_exponent_override"] or {}).get(order, {})
        default = 1 / (2 * order)
        return given.get(dim, default) if isinstance(given, dict) else given

    return read


def _most(group: dict) -> int:
    """The largest dim that has a factor."""
    most = group["max_preconditioner_dim"]
    return _NO_LIMIT if most == math.inf else int(most)


def _check_range(group: dict) -> None:
    """ValueError for numbers that the original refuses."""
    check_one(group["lr"])
    beta1, beta2 = group["betas"]
    beta3 = group["beta3"]
    beta_a = group["grafting_beta2"]
    checks = {
        "lr": (group["lr"], group["lr"] >= 0.0, ">= 0.0"),
        "betas[0]": (beta1, 0.0 <= beta1 < 1.0, "in [0.0, 1.0)"),
        "betas[1]": (beta2, 0.0 <= beta2 <= 1.0, "in [0.0, 1.0]"),
        "beta3": (beta3, beta3 == -1.0 or 0.0 <= beta3 < 1.0, "in [0.0, 1.0)"),
        "epsilon": (group["epsilon"], group["epsilon"] > 0.0, "> 0.0"),
        "weight_decay": (group["weight_decay"], group["weight_decay"] >= 0.0, ">= 0.0"),
        "grafting_epsilon": (group["grafting_epsilon"], group["grafting_epsilon"] > 0.0, "> 0.0"),
        "grafting_beta2": (beta_a, beta_a is None or 0.0 < beta_a <= 1.0, "in (0.0, 1.0]"),
        "momentum": (group["momentum"], 0.0 <= group["momentum"] < 1.0, "in [0.0, 1.0)"),
        "dampening": (group["dampening"], 0.0 <= group["dampening"] < 1.0, "in [0.0, 1.0)"),
    }
    for name, (value, holds, words) in checks.items():
        if not holds:
            raise ValueError(f"Invalid {name}={value}. Must be {words}.")
    kind = _choice(group["weight_decay_type"], "weight_decay_type", _DECAYS)
    if kind in ("corrected", "independent") and not group["peak_lr"] > 0.0:
        raise ValueError(
            f"Invalid peak_lr={group['peak_lr']}. Must be > 0.0 where weight_decay_type is "
            f"{kind!r}."
        )


def _check_schedule(group: dict) -> None:
    """ValueError unless roots are made in some steps, not before a first turn of them."""
    frequency, start = group["precondition_frequency"], group["start_preconditioning_step"]
    check_whole(frequency, "precondition_frequency")
    if start != -1:
        check_whole(start, "start_preconditioning_step")
    if _start(group) < frequency:
        raise ValueError(
            f"Invalid start_preconditioning_step={start}. Must be >= "
            f"precondition_frequency={frequency}."
        )


def _check_exponents(group: dict) -> None:
    for order, given in (group["inverse_exponent_override"] or {}).items():
        values = given if isinstance(given, dict) else dict.fromkeys(range(order), given)
        if order not in (1, 2) or not set(values) <= set(range(order)):
            raise ValueError(
                f"inverse_exponent_override has {order!r}: {given!r}, expected dims 0 of order "
                "1, or 0 and 1 of order 2"
            )
        for value in values.values():
            if not value >= 0.0:
                raise ValueError(
                    f"Invalid inverse_exponent_override[{order}]={given}. Must be >= 0."
                )


def _view(group: dict) -> str | None:
    """The view by which parameters are merged and cut as in the original, if they are."""
    dims = group.get("target_parameter_dimensionality")  # a saved group may not have it
    if dims is None:
        return None
    last = None if dims == math.inf else (_most(group), int(dims))
    return text_of(last=last, rows=True, side=group["max_preconditioner_dim"])


def _check_settings(group: dict) -> None:
    """ValueError for what a group can be told, also later, that is not here."""
    _grafting(group)
    dims = group.get("target_parameter_dimensionality")
    if dims not in (None, math.inf):
        check_whole(dims, "target_parameter_dimensionality")
    if group["max_preconditioner_dim"] != math.inf:
        check_whole(group["max_preconditioner_dim"], "max_preconditioner_dim")
    _check_schedule(group)
    _check_exponents(group)


def _factors(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The dims that have a factor."""
    return tuple(d for d, size in enumerate(shape) if len(shape) == 2 and 1 < size <= most)


class Shampoo(OfLimitedDims, torch.optim.Optimizer):
    """Shampoo with grafting; definition ``shampoo.mlir``.

    Gupta et al., "Shampoo: Preconditioned Stochastic Tensor Optimization", ICML 2018; Shi et
    al., arXiv 2309.06497, 2023, algorithm 2. The arguments are those of
    ``distributed_shampoo.DistributedShampoo``, with plain ones in place of objects::

        Shampoo(params, lr=1e-3, betas=(0.9, 0.999), precondition_frequency=50,
                grafting_type="adam", grafting_epsilon=1e-8)

    ``state`` has ``step``; ``filtered_grad`` where ``betas[0]`` is not 0; ``adagrad``, the
    squares, with the grafting types "adagrad", "rmsprop" and "adam"; ``momentum_buffer`` with a
    momentum; and of each dim of a matrix that has a factor ``factor_matrix_0``,
    ``inv_factor_matrix_0`` (rows, ``[n, n]``) and ``factor_matrix_1``, ``inv_factor_matrix_1``
    (columns, ``[m, m]``): float32, or float64 beside float64 parameters.

    With ``target_parameter_dimensionality`` parameters are merged and cut as in the original: small
    dims become one, what is longer than ``max_preconditioner_dim`` is cut into blocks, and each
    block has factors, a grafting norm, and roots of its own; so has a vector. 1 is the original's
    default, ``math.inf`` merges nothing. Without it a dim above ``max_preconditioner_dim`` has no
    factor, and the exponent of the other is 1/2; vectors, scalars and matrices without a factor
    are stepped by the grafting method alone, and one warning for each group that is added names
    them. A dim of 1, also of what remains of a cut, has no factor in either case.

    By a group's ``view`` a parameter may be several matrices, each with factors of its own:
    experts, or blocks of rows, ``"(4 n) m -> 4 n m"``. Blocks that are merged and cut are the view
    ``"merge_last(1024, 1), vectors, blocks(1024)"``, which the group then has. The states of
    blocks are one tensor, ``[blocks, n, n]``, or where they differ in size one line. A matrix
    that ranks have parts of is stepped whole by one of them (docs/distributed.md). On CUDA
    devices the host makes the decompositions.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate.
        betas: decays of the averages of the gradient and of the factors; with 1.0, factors are
            sums.
        beta3: decay of the average in this step alone; -1.0: ``betas[0]``.
        epsilon: added to the factors' eigenvalues.
        weight_decay: of the kind ``weight_decay_type``: "decoupled" (times ``lr``), "l2" (added
            to the gradient), "corrected" (times ``lr`` twice, divided by the constructor's) or
            "independent" (times ``lr``, divided by the constructor's). A group's ``peak_lr``
            stands for the latter.
        max_preconditioner_dim: a dim with more elements has no factor, or is cut; ``math.inf``:
            all have one. It cannot be lowered below a dim that has one, nor set anew with blocks.
        precondition_frequency: in how many steps the roots are made once.
        start_preconditioning_step: the first step in which they are made; before it the grafting
            method steps. -1: ``precondition_frequency``.
        use_bias_correction: divide the averages by their weights' sums.
        grafting_type: "sgd", "adagrad", "rmsprop", "adam", or None.
        grafting_beta2: decay of the average of squares; None: 0.99 of "rmsprop", 0.999 of "adam".
        grafting_epsilon: added to its root.
        momentum, dampening, use_nesterov: of the update, as in SGD (``ClassicMomentumConfig``).
        inverse_exponent_override: exponents by the number of dims that are more than 1, as
            ``{2: 0.2}`` or ``{2: {0: 0.5, 1: 0.0}, 1: 0.25}``.
        target_parameter_dimensionality: None, or as the original's ``distributed_config`` has it:
            dims are merged, from the last on, while their product is at most
            ``max_preconditioner_dim`` and more than so many are left.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, and for parameters that have more than two dims, or
    more than two left when they are merged.
    """

    _zoo_name = "shampoo"
    _limit_key, _of_dim = "max_preconditioner_dim", "factor_matrix_"
    _why_kept = ": a dim keeps the factor that it began with"
    _dims_words = "at most two dims: factors are of a matrix's rows and columns"
    _asks = {"target_parameter_dimensionality": None}
    _view_of = staticmethod(_view)
    _hypers = named(
        "lr",
        "epsilon",
        "precondition_frequency",
        "grafting_epsilon",
        "momentum",
        "dampening",
        beta3=lambda group: group["betas"][0] if group["beta3"] == -1.0 else group["beta3"],
        weight_decay=_weight_decay,
        start_preconditioning_step=_start,
        inverse_exponent_0=_exponent(2, 0),
        inverse_exponent_1=_exponent(2, 1),
        inverse_exponent_alone=_exponent(1, 0),
        grafting_beta2=_grafting_beta2,
        **BETAS,
    )

    def __init__(
        self,
        params,
        lr: float = 1e-2,
        betas: tuple[float, float] = (0.9, 1.0),
        beta3: float = -1.0,
        epsilon: float = 1e-12,
        weight_decay: float = 0.0,
        weight_decay_type: str = "decoupled",
        max_preconditioner_dim: int | float = 1024,
        precondition_frequency: int = 1,
        start_preconditioning_step: int = -1,
        use_bias_correction: bool = True,
        grafting_type: str | None = None,
        grafting_beta2: float | None = None,
        grafting_epsilon: float = 1e-10,
        momentum: float = 0.0,
        dampening: float = 0.0,
        use_nesterov: bool = False,
        inverse_exponent_override: dict | None = None,
        target_parameter_dimensionality: int | float | None = None,
        **features,
    ) -> None:
        weight_decay_type = _choice(weight_decay_type, "weight_decay_type", _DECAYS)
        grafting_type = _choice(grafting_type, "grafting_type", ("none", *_GRAFTINGS))
        check_one(lr)
        # A schedule of a tensor does not move the peak.
        self._begin(Shampoo, locals(), peak_lr=float(lr))

    def _check_values(self, group: dict) -> None:
        _check_range(group)
        _check_settings(group)

    @staticmethod
    def _limit(group: dict) -> Callable[[int], bool]:
        most = _most(group)
        return lambda size: 1 < size <= most

    def _tell_of_fallbacks(self, group: dict) -> None:
        """Of what the original would have factors of."""
        most = _most(group)
        tell_of_fallbacks(
            group,
            lambda shape: len(shape) > len(_factors(shape, most)) + shape.count(1),
            f"Shampoo has no factors of vectors, and of dims of more than {most} elements",
            "are stepped with those of their other dim, or by the grafting method alone",
        )

    def _read_settings(self, group: dict) -> tuple:
        """What is compared before each step: options look at the parameters too."""
        _check_schedule(group)
        _check_exponents(group)
        return *self._plain_options(group).values(), _view(group)

    @staticmethod
    def _plain_options(group: dict) -> dict[str, bool | int]:
        method = _grafting(group)
        kind = _choice(group["weight_decay_type"], "weight_decay_type", _DECAYS)
        return {
            "precondition": True,
            "max_preconditioner_dim": _most(group),
            "use_bias_correction": bool(group["use_bias_correction"]),
            "decoupled_weight_decay": kind != "l2",
            "grafting": method is not None,
            "grafting_squares": method is not None and method.squares,
            "grafting_bias_correction": method is not None and method.corrected,
            "use_nesterov": bool(group["use_nesterov"]),
            "has_filtered_grad": bool(group["betas"][0] != 0.0),
            "has_momentum": bool(group["momentum"] != 0.0),
        }

    def _read_options(self, group: dict) -> dict[str, bool | int]:
        _check_settings(group)
        self._check_view(group)
        self._check_limit(group)
        return self._plain_options(group)

    def _check_saved(self, state_dict: dict) -> None:
        super()._check_saved(state_dict)
        for key, own in state_dict["state"].items():
            if isinstance(own, dict) and any(isinstance(item, dict) for item in own.values()):
                raise ValueError(
                    f"the saved state of parameter {key} has blocks, as that of Distributed "
                    "Shampoo: states are of whole parameters"
                )
        for group in with_views(state_dict["param_groups"], self.param_groups):
            self._check_values({**self.defaults, **group})
            self._check_view(group)
