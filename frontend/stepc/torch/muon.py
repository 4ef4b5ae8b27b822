# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of Keller Jordan's package ``muon`` (KellerJordan/Muon), with a compiled step.

K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024. torch's, whose
mathematics differs a little, is :class:`stepc.torch.Muon`.
"""

from __future__ import annotations

import math

import torch

from .optimizers.checks import (
    CheckedGroups,
    check_betas,
    check_lr,
    check_not_negative,
    list_params,
    params_of,
    shapes_of,
    unchanged_where_refused,
)
from .optimizers.factors import Factors
from .step.compiled import CompiledStep
from .tensors.patterns import KEY as VIEW

__all__ = ["Muon", "MuonWithAuxAdam", "SingleDeviceMuon", "SingleDeviceMuonWithAuxAdam"]

_ADAM = {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-10, "weight_decay": 0}
_MUON = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0}
# What torch, its schedulers and users put into a group beside what the classes read.
_OTHERS = {"params", "param_names", "initial_lr", "name", VIEW}
_KERNELS = "o i h w -> o (i h w)"  # how convolutions are flattened


def _use_muon(group: dict) -> bool:
    return bool(group.get("use_muon", True))


def _of_adam(read):
    """A number of a group without ``use_muon``, which nothing reads of the others."""
    return lambda group: 0.0 if _use_muon(group) else read(group)


def _check_matrices(group: dict) -> None:
    """ValueError for what is no matrix and no batch of matrices."""
    for words, shape in shapes_of(group):
        if len(shape) == 4 and group.get(VIEW) is None:
            raise ValueError(
                f"{words} has shape {shape}, expected a matrix, or matrices of three dims: give "
                f"the kernels of convolutions a group of their own, with view={_KERNELS!r}"
            )
        if len(shape) < 2:
            raise ValueError(
                f"{words} has shape {shape}, expected a matrix: give others to a group with "
                "use_muon=False, or to another optimizer"
            )


def _view_kernels(group: dict) -> None:
    """Gives a group of kernels of convolutions alone the author's view; ValueError where his scale,
    of height and width, is not that of what is seen."""
    kernels = list(params_of(group))
    if not kernels or any(param.dim() != 4 for _, param in kernels):
        return
    for words, param in kernels:
        out, *others = param.shape
        columns, height, width = math.prod(others), *others[1:]
        if max(1, out / max(columns, 1)) != max(1, height / max(width, 1)):
            raise ValueError(
                f"{words} has shape {tuple(param.shape)}, whose update the author scales by its "
                f"height and width, {height} / {width}, and not by its rows and columns, {out} / "
                f"{columns}; view={_KERNELS!r} of its group asks for the latter"
            )
    group[VIEW] = _KERNELS


def _largest_first(group: dict) -> None:
    """In the order of the distributed classes, by which their checkpoints are numbered."""
    items, tensors = group["params"], [param for _, param in params_of(group)]
    if isinstance(items, list) and len(items) == len(tensors):  # the rest is torch's to refuse
        order = sorted(range(len(items)), key=lambda i: tensors[i].size(), reverse=True)
        group["params"] = [items[i] for i in order]


class _Step(CheckedGroups, Factors, CompiledStep):
    """Mix-in before ``torch.optim.Optimizer``; definition ``jordan_muon.mlir``."""

    _zoo_name = "jordan_muon"
    _sorts = False  # whether matrices are in the order of their sizes
    _hypers = {
        "lr": "lr",
        "weight_decay": "weight_decay",
        "momentum": lambda group: group["momentum"] if _use_muon(group) else 0.0,
        "beta1": _of_adam(lambda group: group["betas"][0]),
        "beta2": _of_adam(lambda group: group["betas"][1]),
        "eps": _of_adam(lambda group: group["eps"]),
    }
    _options = {"use_muon": _use_muon}

    @staticmethod
    def _check_values(group: dict) -> None:
        check_lr(group["lr"])
        check_not_negative(group["weight_decay"], "weight_decay value")
        if not _use_muon(group):
            check_betas(group["betas"])
            check_not_negative(group["eps"], "epsilon value")
        elif not 0.0 <= group["momentum"] < 1.0:
            raise ValueError(f"Invalid momentum value: {group['momentum']}")

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's; raises ValueError for values out of range, and for
        parameters that are no matrices where they are to be."""
        with unchanged_where_refused(param_group):
            if isinstance(param_group, dict) and _use_muon(param_group):
                list_params(param_group)
                # Of parts nobody knows the scale yet.
                if param_group.get(VIEW) is None and not self._layouts:
                    _view_kernels(param_group)
                self._check_shapes(param_group)
                if self._sorts:
                    _largest_first(param_group)
            super().add_param_group(param_group)

    def _check_shapes(self, group: dict) -> None:
        if _use_muon(group):
            _check_matrices(group)

    @torch._disable_dynamo
    def _step_all(self) -> None:
        # Where gradients are taken within the backward pass there are none to add to.
        if self._backward is None and self._reducer is None:
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is None:
                        param.grad = torch.zeros_like(param)
        super()._step_all()


class _OfMatrices(_Step):
    def __init__(
        self,
        params,
        lr: float = 0.02,
        weight_decay: float = 0,
        momentum: float = 0.95,
        **features,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        self._check_values(defaults)
        super().__init__(params, defaults, **features)


class SingleDeviceMuon(_OfMatrices, torch.optim.Optimizer):
    """Muon as in ``muon.SingleDeviceMuon``; definition ``jordan_muon.mlir``.

    Parameters are matrices ``[rows, columns]``, or batches of them ``[..., rows, columns]`` with
    a norm for each. A group of kernels of convolutions, of four dims, gets the ``view`` ``"o i h w
    -> o (i h w)"``, as the author flattens them. He takes the scale from height and width then:
    where that of rows and columns is another, kernels are refused unless their group has that
    view. ``state`` has ``momentum_buffer`` of the parameter's
    shape, and ``step``: float32, or float64 beside float64 parameters, as all that is computed;
    the author's buffer has the parameter's dtype and the orthogonalization is in bfloat16:
    ``factors=torch.bfloat16`` is nearer to that.

    A parameter without a gradient gets one of zeros, as the author's does: it decays, and moves
    on by its momentum. Not with ``fused_backward`` and ``zero=Zero(2)``, which take gradients
    within the backward pass: there it is left out. The author's step leaves the Nesterov
    gradient in ``.grad``; ours does not write it. A matrix that ranks have parts of is stepped
    whole by one of them (docs/distributed.md).

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate, in units of spectral norm.
        weight_decay: decoupled, times ``lr``.
        momentum: decay of the gradient's average.
        features: ``static_grads``, ``clip`` and ``loss_scale``, as for
            :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range, and for parameters that are no matrices.
    """


class Muon(_OfMatrices, torch.optim.Optimizer):
    """Muon as in ``muon.Muon``: :class:`SingleDeviceMuon` with parameters in the order of their
    sizes, the largest first, by which saved states are numbered.

    The author's gathers parameters over ``torch.distributed``'s ranks, which have equal
    gradients. Here ``layouts=``, ``zero=`` or DTensors say how ranks share them, and one process
    needs none. Arguments, ``state`` and errors are as there.
    """

    _sorts = True


class _WithAdam(_Step):
    """With groups of which each says whether its parameters are Muon's."""

    def __init__(self, param_groups, **features) -> None:
        super().__init__(param_groups, {}, **features)

    def add_param_group(self, param_group: dict) -> None:
        """Adds a parameter group, as torch's, with the defaults of its kind; ValueError where it
        does not say ``use_muon``, for a key of the other kind, and as the constructor."""
        if isinstance(param_group, dict):
            if "use_muon" not in param_group:
                raise ValueError("a group has no 'use_muon', expected True or False")
            own = _MUON if param_group["use_muon"] else _ADAM
            unknown = set(param_group) - set(own) - _OTHERS - {"use_muon"}
            if unknown:
                raise ValueError(
                    f"a group with use_muon={param_group['use_muon']} has "
                    f"{', '.join(map(repr, sorted(unknown)))}, expected {', '.join(own)}"
                )
        else:
            own = {}
        with unchanged_where_refused(param_group):
            for name, value in own.items():
                param_group.setdefault(name, value)
            super().add_param_group(param_group)


class SingleDeviceMuonWithAuxAdam(_WithAdam, torch.optim.Optimizer):
    """Muon and Adam in one optimizer, as in ``muon.SingleDeviceMuonWithAuxAdam``; definition
    ``jordan_muon.mlir``::

        SingleDeviceMuonWithAuxAdam([
            {"params": matrices, "use_muon": True, "lr": 0.05},
            {"params": others, "use_muon": False, "lr": 3e-4, "betas": (0.9, 0.95)},
        ])

    A group with ``use_muon`` may have ``lr`` (0.02), ``momentum`` (0.95) and ``weight_decay``
    (0), and is as :class:`SingleDeviceMuon`. One without may have ``lr`` (3e-4), ``betas`` ((0.9,
    0.95)), ``eps`` (1e-10) and ``weight_decay`` (0), and is AdamW, whose ``state`` has ``step``,
    ``exp_avg`` and ``exp_avg_sq``. A parameter without a gradient gets one of zeros in both.

    Args:
        param_groups: dicts of parameter groups.
        features: ``static_grads``, ``clip`` and ``loss_scale``, as for
            :class:`stepc.torch.Optimizer`.

    Raises ValueError where a group does not say ``use_muon``, for other keys, for values out of
    range, and for parameters that are no matrices in a group with it.
    """


class MuonWithAuxAdam(_WithAdam, torch.optim.Optimizer):
    """As in ``muon.MuonWithAuxAdam``: :class:`SingleDeviceMuonWithAuxAdam` with the matrices of
    a group in the order of their sizes, the largest first; over ranks as :class:`Muon`."""

    _sorts = True
