# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.optim.Muon``, of torch 2.9 and later, with a compiled step."""

from __future__ import annotations

import functools

import torch

from ..binding.hypers import Part
from ..step.compiled import CompiledStep
from ..tensors.members import named_in
from ..tensors.patterns import seen_shapes, view_of
from .checks import list_params, params_of
from .factors import Factors
from .newton_schulz import STEPS, OfSteps


def _match_rms_adamw(group: dict) -> bool:
    """ValueError for a function that torch does not know, as where it is set later."""
    name = group["adjust_lr_fn"]
    if name not in (None, "original", "match_rms_adamw"):
        raise ValueError(f"Adjust learning rate function {name} is not supported")
    return name == "match_rms_adamw"


def _check_matrices(group: dict, *, vectors: bool = False) -> None:
    """ValueError, in torch's words, for a parameter of the group that is no matrix; by a view it
    may be several. ``vectors``: without one it may be less, which torch refuses elsewhere."""
    for words, param in params_of(group):
        for shape in seen_shapes(group, param, words):
            view = view_of(group)
            few = len(shape) < 2 and not (vectors and view is None)
            if few or (len(shape) > 2 and view is None):
                seen = f", as {view} has {words} of shape {tuple(param.shape)}"
                raise ValueError(
                    "Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{torch.Size(shape)}{'' if view is None else seen}"
                )


class _OfMatrices(torch.optim.Muon):
    """torch's, which looks at parameters in the shape that its rule sees."""

    @functools.wraps(torch.optim.Muon.__init__)
    def __init__(self, params, *args, **kwargs):
        # torch's constructor checks its arguments, and then shapes.
        defaults = torch.optim.Muon([{"params": []}], *args, **kwargs).defaults
        torch.optim.Optimizer.__init__(self, params, defaults)
        for group in self.param_groups:
            _check_matrices({**group, "params": named_in(group)})


class Muon(OfSteps, Factors, CompiledStep, _OfMatrices):
    """Muon; definition ``muon.mlir``.

    Everything is as in :class:`torch.optim.Muon`: arguments, which parameters it takes
    (matrices; by a group's ``view`` others too), param groups, ``state`` (``momentum_buffer``),
    checkpoints. Two things differ. The orthogonalization is computed in float32, or float64
    beside float64 parameters, where torch computes it in bfloat16; ``factors=torch.bfloat16``
    rounds what is multiplied as torch does, and is faster where the processor has dot products
    of bfloat16 (:class:`~stepc.torch.optimizers.factors.Factors`). And the momentum buffer of a
    16-bit parameter is float32.

    A step is compiled for each ``ns_steps``, from 0 to 99 as in torch. Groups of which one has
    another number than the first, and parameters that cannot be compiled for, run torch's own
    step, with one warning. A parameter that ranks have parts of is stepped whole by one of them,
    and with ``zero=`` each is stepped, and its momentum kept, by one rank (docs/distributed.md).

    ``static_grads``, ``clip`` and ``loss_scale`` are as for every optimizer of Stepc:
    see :class:`stepc.torch.Optimizer`.
    """

    _zoo_name = "muon"
    _hypers = {
        "lr": "lr",
        "weight_decay": "weight_decay",
        "momentum": "momentum",
        "eps": "eps",
        "ns_coefficient_a": Part("ns_coefficients", 0, 3),
        "ns_coefficient_b": Part("ns_coefficients", 1, 3),
        "ns_coefficient_c": Part("ns_coefficients", 2, 3),
    }
    _options = {
        "nesterov": "nesterov",
        "match_rms_adamw": _match_rms_adamw,
    }
    _eager_class = torch.optim.Muon
    _keeps_step = False

    @property
    def _compiled_where(self) -> dict[str, object]:
        return {"ns_steps": self._num_steps_of_all()}

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; ValueError for what has more than two dims and no
        ``view``, or less with one, which torch refuses in the step."""
        if isinstance(param_group, dict):
            list_params(param_group)
            self._check_shapes(param_group)
        super().add_param_group(param_group)

    def _check_shapes(self, group: dict) -> None:
        _check_matrices(group, vectors=True)


def _match_rms_of_five(group: dict) -> bool:
    """ValueError for another number of steps too, as there is no step of torch's own for them."""
    if group["ns_steps"] != STEPS:
        raise ValueError(f"ns_steps is {group['ns_steps']}, expected {STEPS}")
    return _match_rms_adamw(group)


class GramMuon(Muon):
    """Muon in Gram space: :class:`Muon` with fewer operations where one extent is larger than the
    other; definition ``gram_muon.mlir``.

    J. Zhang, N. Amsel, B. Chen and T. Dao, "Gram Newton-Schulz", 2026. Arguments, param groups,
    ``state`` and checkpoints are those of :class:`torch.optim.Muon`, and in exact numbers so are
    the steps: the polynomials are those of Newton and Schulz, of ``X X^T`` in place of ``X``. All
    is computed in float32, or float64 beside float64 parameters. In float32 an update is off by
    3e-5 to 1e-3 of its largest element, where :class:`Muon`'s is by 1e-6 to 5e-5 and torch's, of
    bfloat16, by some percent; it is as near to orthogonal. With ``factors=torch.bfloat16`` the
    last two of five steps are :class:`Muon`'s, of what three have made of ``X``; the update is off
    by some percent then, as torch's, and as near to orthogonal to a part in 20. The
    authors' float16 is not here. ``ns_steps`` other than 5 are refused by ValueError.
    """

    _zoo_name = "gram_muon"
    _options = {"nesterov": "nesterov", "match_rms_adamw": _match_rms_of_five}
    _eager_class = None
    _compiled_where = {}

    def _num_steps_of_all(self) -> int:
        return STEPS  # others are refused where options are read
