# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sophia, of its authors' repository (Liuhong99/Sophia), with a compiled step."""

from __future__ import annotations

import torch
from torch import Tensor

from ..binding.hypers import BETAS, named
from .checks import check_betas, check_lr
from .peer import Peer, not_negative

__all__ = ["SophiaG"]


class SophiaG(Peer, torch.optim.Optimizer):
    """Sophia as in the authors' ``SophiaG``; definition ``sophia.mlir``.

    Liu et al., "Sophia: A Scalable Stochastic Second-order Optimizer for Language Model
    Pre-training", ICLR 2024, algorithm 3. Every tenth step or so, labels are drawn from
    the model, and the gradient of their loss updates the estimate of the Hessian's
    diagonal (algorithm 2)::

        loss(model(x), y).backward()
        optimizer.step(bs=tokens)
        optimizer.zero_grad()
        if number % 10 == 9:
            logits = model(x)
            labels = torch.distributions.Categorical(logits=logits).sample()
            loss(logits, labels).backward()
            optimizer.update_hessian()
            optimizer.zero_grad()

    The next step takes the estimate in; over ranks it is made of the gradients that
    the step itself would see. An estimate of your own, as Hutchinson's, is written as
    ``state[param]["estimate"]`` before ``group["refresh"] = 1.0``.

    ``state`` has ``exp_avg`` and ``hessian``: float32, or float64 beside float64
    parameters; and ``estimate`` between ``update_hessian()`` and the next step.

    Args:
        params: parameters, named parameters, or dicts of parameter groups.
        lr: learning rate, a float or a tensor of one element.
        betas: decays of the momentum and of the estimate of the Hessian.
        rho: the estimate's factor; a larger one clips fewer elements.
        weight_decay: decoupled, times ``lr``.
        maximize: ascend instead of descend.
        capturable: makes no difference.
        features: what every class takes, see :class:`stepc.torch.Optimizer`.

    Raises ValueError for values out of range.
    """

    _zoo_name = "sophia"
    _why_not_in_backward = "update_hessian() takes the gradients of a pass of its own"
    _hypers = named("lr", "rho", "weight_decay", "bs", "refresh", eps=lambda group: 1e-15, **BETAS)
    _options = {"maximize": "maximize"}
    _keeps_step = False
    _ranges = {
        "lr": check_lr,
        "betas": check_betas,
        "rho": not_negative("rho parameter at index 1"),
        "weight_decay": not_negative("weight_decay value"),
    }

    def __init__(
        self,
        params,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        rho: float = 0.04,
        weight_decay: float = 1e-1,
        *,
        maximize: bool = False,
        capturable: bool = False,
        **features,
    ) -> None:
        self._begin(SophiaG, locals(), bs=5120.0, refresh=0.0)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # the authors' has none
            group.setdefault("bs", self.defaults["bs"])
            group.setdefault("refresh", 0.0)

    @torch.no_grad()
    def update_hessian(self) -> None:
        """Has the next step take in the squares of the gradients that are there now.

        Parameters without one keep their estimate. ValueError with ``zero=``, where a
        rank has no gradient of what its states are of.
        """
        if self._zero is not None:
            raise ValueError(
                "update_hessian() is not for an optimizer with zero=: a rank's states are of a "
                "part of the parameters; use fully_shard or replicate the states"
            )
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if param.grad is not None:
                    wide = (
                        param.grad.double() if param.dtype == torch.float64 else param.grad.float()
                    )
                    state["estimate"] = wide.square()
                elif "hessian" in state:
                    state["estimate"] = state["hessian"].clone()
            group["refresh"] = 1.0

    def step(self, closure=None, bs: float = 5120) -> float | None:
        """Performs a single optimization step.

        Args:
            closure (Callable, optional): A closure that reevaluates the model
                and returns the loss.
            bs: how many samples, tokens of a language model, the gradient of
                ``update_hessian()`` was a mean of.

        As :meth:`stepc.torch.Optimizer.step` else. A step that is skipped, for a gradient
        that is not finite, takes no estimate in; the next one does.
        """
        for group in self.param_groups:
            group["bs"] = float(bs)
        loss = super().step(closure)
        if any(group["refresh"] for group in self.param_groups):
            self._forget_estimates()
        return loss

    def _commit_step(self) -> None:
        if self._binding is not None and any(group["refresh"] for group in self.param_groups):
            self._forget_estimates()  # for the file to have none, either
        super()._commit_step()

    def _forget_estimates(self) -> None:
        report = self.last_step
        if report is not None and report.skipped:
            return
        for group in self.param_groups:
            group["refresh"] = 0.0
            for param in group["params"]:
                self.state[param].pop("estimate", None)
