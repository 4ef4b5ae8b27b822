# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The norm of all gradients, from a backward pass of its own, which frees them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from ... import errors
from ..ranks.dtensor import is_dtensor
from ..ranks.exchanges import exchanging, gathered, within
from ..ranks.in_passes import ready_binding
from .backward_checks import check_pass, name_of, trained

_SUMMING = "the norm of the gradients could not be summed"


class Norms:
    """A pass that frees each gradient and keeps the graph. Gradients that ranks share by ``zero``
    cross in it as in a step, and the norm is that of their mean."""

    def __init__(self, optimizer, doing: str, scale: float, order: float):
        """Gradients are divided by ``scale`` first. StepcError for what cannot be measured."""
        check_pass(optimizer, doing, lambda param: False)
        self._optimizer, self._scale, self._order = optimizer, scale, order
        self._found: dict[int, torch.Tensor] = {}
        zero = optimizer._zero
        self._sums = None  # the binding by which gradients cross
        if zero is not None and zero.local_gradients:
            _refuse_cut(optimizer)
            self._sums = optimizer._binding = ready_binding(optimizer)
            self._sums.begin_pass()

    def take(self, param: torch.Tensor) -> None:
        """Measures a gradient, or has it cross, and frees it."""
        if id(param) in self._found:
            raise errors.StepcError(
                f"{name_of(self._optimizer, param)} has two gradients in one pass, whose sum is "
                "not known"
            )
        if self._sums is not None:
            self._sums.bring(param)
            self._found[id(param)] = None
            return
        self._found[id(param)] = self._norm_of(param.grad)
        param.grad = None

    def _norm_of(self, grad: torch.Tensor) -> torch.Tensor:
        wide = grad.to(torch.promote_types(grad.dtype, torch.float32))
        return torch.linalg.vector_norm(wide / self._scale, self._order).double()

    def measure(self, loss: torch.Tensor) -> torch.Tensor:
        """Runs the pass, of this optimizer's parameters alone where they are leaves of the graph,
        as others would get their gradients twice; those of ``fully_shard`` are none."""
        params = trained(self._optimizer)
        ended = False
        try:
            if any(map(is_dtensor, params)):
                loss.backward(retain_graph=True)
            else:
                loss.backward(retain_graph=True, inputs=params)
            ended = True
        finally:
            # Others wait for what this rank sends, whatever has become of its pass.
            if self._sums is not None:
                norm = self._norm_of_sums(params, ended)
        if self._sums is not None:
            return norm
        # In the order of the parameters, which all ranks have.
        own = [(p, self._found[id(p)]) for p in params if id(p) in self._found]
        groups = [
            group for p, _ in own if is_dtensor(p) for group in p.device_mesh.get_all_groups()
        ]
        with within(self._optimizer._timeout), exchanging(_SUMMING, *groups):
            norms = [norm.full_tensor() if is_dtensor(norm) else norm for _, norm in own]
        return self._together(norms)

    def _norm_of_sums(self, params: list[torch.Tensor], ended: bool) -> torch.Tensor:
        """Each rank's part, then over ranks in their order. ``ended``: whether the pass came to
        its end here; AbandonedError where it did not on another rank."""
        self._sums.end_pass()
        own = self._together([self._norm_of(self._sums.brought(param)) for param in params])
        self._sums.plan.forget_grads()
        group = self._optimizer._zero.group
        with within(self._optimizer._timeout):
            found = gathered(float(own) if ended else None, _SUMMING, group, own.device)
        ranks = dist.get_process_group_ranks(group)
        broken = [rank for rank, norm in zip(ranks, found, strict=True) if norm is None]
        if broken and ended:
            raise errors.AbandonedError(
                f"the backward pass of rank {', '.join(map(str, broken))} ended before all its "
                "gradients had come; there is no norm, and nothing has changed",
                "STEPC_ABANDONED",
            )
        return self._together([own.new_tensor(norm) for norm in found if norm is not None])

    def _together(self, norms: list[torch.Tensor]) -> torch.Tensor:
        norms = norms or [torch.zeros((), dtype=torch.float64, device="cpu")]
        return torch.linalg.vector_norm(torch.stack(norms), self._order)


def _refuse_cut(optimizer) -> None:
    """StepcError for parameters whose parts lie on ranks beside those of ``zero``."""
    if optimizer._layouts or any(map(is_dtensor, trained(optimizer))):
        raise errors.StepcError(
            "with zero the norm of a pass of its own is known for whole parameters alone, and not "
            "for those that layouts or a mesh have cut; ClipByNorm(...) of an optimizer with "
            "fused_backward=True knows it"
        )


def coefficient_of(max_norm: float, norm: torch.Tensor) -> float:
    """What clipping multiplies gradients by, as torch's; NaN of a norm that is none."""
    ratio = float(max_norm) / (float(norm) + 1e-6)
    return 1.0 if ratio >= 1.0 else ratio


@contextlib.contextmanager
def hooked(params: list[torch.Tensor], hook: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Has ``hook`` called for each parameter once its gradient is whole."""
    handles = [param.register_post_accumulate_grad_hook(hook) for param in params]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
