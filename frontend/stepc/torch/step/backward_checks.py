# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What does not go with steps inside the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ... import errors
from ..binding.features import ClipByNorm, DynamicLossScale, clips
from ..ranks.accumulators import refuse_reducers
from ..ranks.dtensor import is_dtensor
from ..tensors.devices import captures_steps_of
from ..tensors.members import named_parameters
from .eager import why_eager


def in_two_passes(
    clip, loss_scale, reproducible: bool, zero=None
) -> tuple[ClipByNorm | None, list, object]:
    """Of the arguments ``clip`` and ``loss_scale`` the clipping whose norm is measured in a pass
    of its own, and what is left of both: a scale by which the clipping is done. With ``zero``
    there is none: the sums are kept until the step has their norm."""
    given = clips(clip)
    norms = [feature for feature in given if isinstance(feature, ClipByNorm)]
    if not norms or isinstance(loss_scale, DynamicLossScale) or zero:
        return None, clip, loss_scale
    if len(given) > 1:
        raise ValueError(
            f"clip is {list(given)}: with fused_backward=True ClipByNorm stands alone, as its norm "
            "is of gradients before anything"
        )
    if reproducible:
        raise ValueError(
            "reproducible=True sums the norm of ClipByNorm within the step; with "
            "fused_backward=True it is torch's, whose bits are of the ranks and threads"
        )
    return norms[0], [], 1.0 if loss_scale is None else loss_scale


def check(optimizer, given: dict) -> None:
    """ValueError for what does not go with ``fused_backward=True``. ``given``: arguments."""
    if optimizer._why_not_in_backward:
        raise ValueError(
            f"{type(optimizer).__name__} cannot be stepped in the backward pass: "
            f"{optimizer._why_not_in_backward}"
        )
    if given["static_grads"]:
        raise ValueError("fused_backward=True frees gradients, static_grads=True keeps them")
    if given["exclusive_writes"]:
        raise ValueError(
            "fused_backward=True steps parameters one by one, where exclusive_writes=True cannot "
            "look at one a step"
        )
    if given.get("accumulation_steps") is not None:
        raise ValueError(
            "fused_backward=True steps in each backward pass, accumulation_steps sums several; "
            "zero=Zero(2) sums them where they are stepped, and frees gradients, too"
        )


def check_step(optimizer, doing: str, ours: Callable[[torch.Tensor], bool]) -> None:
    """StepcError where the optimizer cannot be stepped so now. ``doing``: what asks for it;
    ``ours``: whether a gradient that a parameter has is of this pass."""
    if why := why_eager(optimizer):
        raise errors.StepcError(
            f"{doing}: {type(optimizer).__name__} must run torch's own step ({why}), which "
            "needs all gradients"
        )
    check_pass(optimizer, doing, ours)
    if captures_steps_of(optimizer.param_groups):
        raise errors.StepcError(f"{doing} cannot be captured in a CUDA graph")


def check_pass(optimizer, doing: str, ours: Callable[[torch.Tensor], bool]) -> None:
    """StepcError where gradients are still to be reduced over ranks by somebody, or are there
    from before."""
    named = named_parameters(optimizer.param_groups)
    plain = [(n, p) for n, p in named if p.requires_grad and not is_dtensor(p)]
    refuse_reducers(plain, doing)
    for name, param in named:
        if param.grad is not None and not ours(param):
            raise errors.StepcError(
                f"{name} has a gradient before the fused backward pass, which would step it with "
                "the sum (zero_grad() drops it)"
            )


def trained(optimizer) -> list[torch.Tensor]:
    """The parameters that may get a gradient."""
    return [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]


def name_of(optimizer, wanted: torch.Tensor) -> str:
    """What messages call a parameter."""
    found = (name for name, param in named_parameters(optimizer.param_groups) if param is wanted)
    return next(found, "a parameter of no group")


def wants_norm(optimizer) -> errors.StepcError:
    """Of a pass that steps before the norm is known."""
    return errors.StepcError(
        f"{optimizer._norm_clip!r} needs the norm before the first parameter is stepped: with "
        "fused_backward=True call opt.backward(loss), which makes two passes, in place of "
        "loss.backward()"
    )
