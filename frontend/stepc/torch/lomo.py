# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""LOMO and AdaLomo, of the package ``lomo_optim``, with compiled steps.

Both step inside the backward pass: ``optimizer.fused_backward(loss, lr)`` in place
of ``loss.backward()`` and ``optimizer.step()``. With ``clip_grad_norm`` the norm of all
gradients must be known before the first parameter is stepped, which takes a
backward pass of its own::

    optimizer.grad_norm(loss)  # keeps the graph
    optimizer.fused_backward(loss, lr)

With parameters or a loss in float16 both need a ``loss_scale``, which stays as it is: nothing is
skipped, so that it has to be one without overflows (AdaLomo's is 2**10 by default, as there). Where
``grad_norm`` found one, ``fused_backward`` is refused.
lomo_optim's Lomo has a dynamic one for a loss in float16, and clips to a norm of 1 then.
"""

from __future__ import annotations

import datetime
import math

import torch

from .. import errors
from .binding.features import ClipByValue, LossScale
from .binding.hypers import Part, named
from .optimizers.peer import keys_of
from .ranks.zero.settings import Zero
from .step.backward_norms import coefficient_of
from .step.compiled import CompiledStep
from .step.fused_backward import InBackward

__all__ = ["AdaLomo", "Lomo"]

_MOST = torch.finfo(torch.float16).max


class _InManner(InBackward, CompiledStep, torch.optim.Optimizer):
    """What both have in common, as ``lomo_optim`` has it."""

    _attributes = ("clip_coef", "_norm")
    _norm: float | None = None  # that clip_coef is of

    def __init__(self, model: torch.nn.Module, defaults: dict, loss_scale: float | None, **ranks):
        norm, value = defaults["clip_grad_norm"], defaults["clip_grad_value"]
        if norm is not None and norm <= 0:
            raise ValueError(f"clip_grad_norm should be positive, got {norm}.")
        # The norm's coefficient divides the scale, and multiplies the bound of
        # values: the same as multiplying what has been scaled and bounded.
        scale = (loss_scale or 1.0) if loss_scale or norm is not None else None
        clip = ClipByValue(value) if value is not None and value > 0 else None
        super().__init__(model.named_parameters(), defaults, clip=clip, loss_scale=scale, **ranks)
        self.model = model
        self.clip_coef: float | None = None

    @property
    def clip_grad_norm(self) -> float | None:
        """The largest norm of all gradients together, or None."""
        return self.defaults["clip_grad_norm"]

    @property
    def _measures_norm(self) -> bool:
        return self.clip_grad_norm is not None

    @property
    def clip_grad_value(self) -> float | None:
        """The largest magnitude of an element of a gradient, or None."""
        return self.defaults["clip_grad_value"]

    @property
    def lr(self) -> float:
        """The learning rate of the last step, or the first's."""
        return self.param_groups[0]["lr"]

    def grad_norm(self, loss: torch.Tensor) -> torch.Tensor:
        """Runs a backward pass for the norm of all gradients, and frees them.

        The next ``fused_backward`` scales by ``clip_grad_norm / (norm + 1e-6)`` where that
        is below 1. Keeps the graph; returns the norm, of unscaled gradients before
        any clipping. ValueError where ``clip_grad_norm`` is not set.
        """
        if self.clip_grad_norm is None:
            raise ValueError("clip_grad_norm is None, the norm of the gradients is not needed")
        self._check_loss(loss)
        norm = self._norm_in_backward(self.scale(loss), self.loss_scale)
        self._norm = float(norm)
        self.clip_coef = coefficient_of(self.clip_grad_norm, norm)
        return norm

    def fused_backward(self, loss: torch.Tensor, lr: float) -> None:
        """Runs the backward pass and steps every parameter in it, with learning rate
        ``lr``; no gradient is left.

        ValueError where ``clip_grad_norm`` is set and ``grad_norm`` was not called for
        this step (lomo_optim would take the coefficient of an earlier one). StepcError where
        the norm is inf or NaN, as every parameter would be NaN; nothing has changed then.
        """
        self._check_loss(loss)
        if self.clip_grad_norm is not None and self.clip_coef is None:
            raise ValueError(
                "clip_grad_norm is not None, but clip_coef is None. "
                "Please call optimizer.grad_norm() before optimizer.fused_backward()."
            )
        self._refuse_norm()
        for group in self.param_groups:
            group["lr"] = lr
        scaled = self.scale(loss)
        coefficient = 1.0 if self.clip_coef is None else self.clip_coef
        features = [(f, dict(vars(f))) for f in self._features]
        try:
            for feature in self._features:
                if isinstance(feature, LossScale):
                    feature.scale = feature.scale / coefficient if coefficient else float("inf")
                else:
                    feature.clip_value = feature.clip_value * coefficient
            self._step_in_backward(scaled)
        finally:
            for feature, numbers in features:
                vars(feature).update(numbers)
        self.clip_coef = None

    def _refuse_norm(self) -> None:
        if self.clip_coef is None or self._norm is None or math.isfinite(self._norm):
            return
        why = "the loss or a parameter is not finite, or too large"
        if self.loss_scale != 1.0:
            why = (
                f"loss_scale {self.loss_scale} is too large, or the loss or a parameter not finite"
            )
        raise errors.StepcError(f"the norm of the gradients is {self._norm}: {why}")

    def _check_loss(self, loss: torch.Tensor) -> None:
        """TensorError for a loss in float16 without a scale, ValueError with one that it lacks."""
        if loss.dtype is not torch.float16:
            return
        if self.loss_scale == 1.0:
            raise errors.TensorError(
                "the loss has dtype torch.float16, in which small gradients are 0: give loss_scale "
                "to the constructor, 2**10 for example",
                "STEPC_DTYPE_MISMATCH",
            )
        if self.loss_scale > _MOST:
            raise ValueError(
                f"loss_scale is {self.loss_scale}, expected at most {_MOST} with a loss of dtype "
                "torch.float16"
            )


class Lomo(_InManner):
    """LOMO as in ``lomo_optim.Lomo``; definition ``lomo.mlir``.

    Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited
    Resources", ACL 2024: gradient descent inside the backward pass. No states.

    Args:
        model: the module whose parameters are stepped.
        lr: learning rate until ``fused_backward`` gives another.
        clip_grad_norm: see the module; above 0.
        clip_grad_value: bound of the elements of gradients, before the norm's.
        weight_decay: decoupled, times ``lr``.
        loss_scale_args: of lomo_optim's dynamic scaler for losses in float16; taken and not used.
        loss_scale: what the loss is multiplied by, and gradients divided by; for float16.
        zero, timeout: over ranks that have the same parameters, as of the other optimizers:
            gradients are averaged, and each rank steps its part. Both passes cross.

    Raises ValueError for ``clip_grad_norm`` not above 0.
    """

    _zoo_name = "lomo"
    _hypers = named("lr", "weight_decay")
    _keeps_step = False

    def __init__(
        self,
        model: torch.nn.Module,
        lr: float = 1e-3,
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
        weight_decay: float = 0.0,
        loss_scale_args: dict | None = None,
        *,
        loss_scale: float | None = None,
        zero: Zero | None = None,
        timeout: datetime.timedelta | None = None,
    ) -> None:
        others = ("model", "loss_scale_args", "loss_scale", "zero", "timeout")
        defaults = keys_of(Lomo, locals(), others)
        super().__init__(model, defaults, loss_scale, zero=zero or 0, timeout=timeout)


class AdaLomo(_InManner):
    """AdaLomo as in ``lomo_optim.AdaLomo``; definition ``adalomo.mlir``.

    Lv et al., "AdaLomo: Low-memory Optimization with Adaptive Learning Rate", ACL
    2024: Adafactor's update without momentum, inside the backward pass. ``state``
    has ``step``, and of a matrix ``exp_avg_sq_row`` and ``exp_avg_sq_col``, else
    ``exp_avg_sq``: float32. Tensors of more dims than two are batches of matrices
    (lomo_optim fails on them).

    Args:
        model: the module whose parameters are stepped.
        lr: learning rate until ``fused_backward`` gives another.
        loss_scale: what the loss is multiplied by, and gradients divided by.
        eps: added to the squared gradient; least scale of a parameter.
        clip_threshold: of the root mean square of an update.
        decay_rate: exponent of the decay of the squared gradient's average.
        clip_grad_norm: see the module; above 0.
        clip_grad_value: bound of the elements of gradients, before the norm's.
        weight_decay: decoupled, times the learning rate of the parameter.
        zero, timeout: as of ``Lomo``.

    Raises ValueError for ``clip_grad_norm`` not above 0.
    """

    _zoo_name = "adalomo"
    _hypers = named(
        "lr",
        "clip_threshold",
        "decay_rate",
        "weight_decay",
        eps1=Part("eps", 0),
        eps2=Part("eps", 1),
    )
    _dropped_dims = {"exp_avg_sq_row": -1, "exp_avg_sq_col": -2}

    def __init__(
        self,
        model: torch.nn.Module,
        lr: float = 1e-3,
        loss_scale: float = 2**10,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
        weight_decay: float = 0.0,
        *,
        zero: Zero | None = None,
        timeout: datetime.timedelta | None = None,
    ) -> None:
        defaults = keys_of(AdaLomo, locals(), ("model", "loss_scale", "zero", "timeout"))
        super().__init__(model, defaults, loss_scale, zero=zero or 0, timeout=timeout)
