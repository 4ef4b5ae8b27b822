# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch's own step, for what cannot be compiled."""

from __future__ import annotations

import contextlib
import warnings

import torch

from ... import errors
from ..._log import log, parameters
from ..tensors.callers import level_of_caller
from ..tensors.dlpack import NARROW
from ..tensors.patterns import KEY as VIEW


class NeedsEagerError(errors.StepcError):
    """A GradScaler is to unscale the gradients itself; nothing has changed."""


def why_eager(optimizer) -> str | None:
    """Why torch's own step must run, if the groups' flags say so."""
    if optimizer._eager_class is None:
        return None
    for number, group in enumerate(optimizer.param_groups):
        if group.get("differentiable"):
            return f"differentiable is set in group {number}"
        if group.get("capturable") and not _is_on_cuda(group):
            return f"capturable is set in group {number}"
        for key, value in optimizer._compiled_where.items():
            if len(group["params"]) and group.get(key, value) != value:
                return f"{key} is {group[key]} in group {number}"
    for name in ("grad_scale", "found_inf"):
        if getattr(optimizer, name, None) is not None:
            return f"{name} is set"
    return None


def _is_on_cuda(group: dict) -> bool:
    """Whether the group's step is one that a CUDA graph can capture in any case."""
    return all(param.device.type == "cuda" for param in group["params"])


def step_eagerly(optimizer, why: str, only: list[torch.Tensor] | None = None) -> None:
    """torch's own step, without its hooks: ours ran them. ``only``: the parameters that it is
    of, where others are stepped by compiled code.

    Warns once for each reason. StepcError where the step would have to clip or
    unscale gradients, or to keep masters, which torch's does not.
    """
    if optimizer._grad_scale is not None:
        raise NeedsEagerError(why)
    asked = [*map(repr, optimizer._features), *optimizer._precision_words()]
    if optimizer._copies_in is not None:
        asked.append(f"place={optimizer._placed!r}")
    # Where it is of some parameters alone others are out of their groups.
    views = (group.get(VIEW) for group in optimizer.param_groups if group["params"])
    asked += [f"view={view!r}" for view in dict.fromkeys(views) if view is not None]
    if asked:
        raise errors.StepcError(
            f"{type(optimizer).__name__} must run torch's own step ({why}), which does not do "
            f"what was asked for: {', '.join(asked)}"
        )
    optimizer._eager_reason = why
    if why not in optimizer._warned:
        optimizer._warned |= {why}
        whose = "all its parameters" if only is None else parameters(len(only))
        log.info("%s runs torch's own step for %s: %s", type(optimizer).__name__, whose, why)
        warnings.warn(
            f"stepc: {type(optimizer).__name__} runs torch's own step, not a compiled one, "
            f"for {whose}: {why}",
            RuntimeWarning,
            stacklevel=level_of_caller(),
        )
    step = optimizer._eager_class.step
    while getattr(step, "hooked", False):
        step = step.__wrapped__
    with _as_torch_wants(optimizer, only):
        step(optimizer)


@contextlib.contextmanager
def _as_torch_wants(optimizer, only: list[torch.Tensor] | None):
    """For a step of torch's, whose states have their parameter's dtype.

    A bfloat16 or float16 parameter with float32 states is stepped as float32 and rounded
    after, as compiled code does: its states keep all their bits. States that are
    wider than others than these came from a checkpoint and are cast. States of one
    element are float32 beside any parameter.
    """
    widened = []
    scalars = {"step", *optimizer._scalar_states}
    _place_counts(optimizer)
    try:
        items = optimizer.state.items()
        if only is not None:
            items = [(param, optimizer.state[param]) for param in only if param in optimizer.state]
        for param, state in items:
            if not isinstance(param, torch.Tensor) or not isinstance(state, dict):
                continue
            wide = {
                name: value
                for name, value in state.items()
                if name not in scalars
                and isinstance(value, torch.Tensor)
                and value.is_floating_point()
                and value.dtype != param.dtype
            }
            if not wide:
                continue
            if param.dtype in NARROW and param.is_leaf and not _differentiates(optimizer):
                data, grad = param.data, param.grad
                widened.append((param, data, grad))
                param.data = data.float()
                param.grad = None if grad is None else grad.float()
                wide = {k: v for k, v in state.items() if k in wide and v.dtype != param.dtype}
            for name, value in wide.items():
                state[name] = value.to(param.dtype)
        yield
    finally:
        for param, data, grad in widened:
            param.grad = None
            param.data = data.copy_(param.data)
            param.grad = grad


def _place_counts(optimizer) -> None:
    """Puts counts on the device where torch's kernels read them there."""
    for group in optimizer.param_groups:
        if not (group.get("capturable") or group.get("fused")):
            continue
        for param in group["params"]:
            state = optimizer.state.get(param)
            step = state.get("step") if isinstance(state, dict) else None
            if isinstance(step, torch.Tensor) and step.device != param.device:
                state["step"] = step.to(param.device)


def _differentiates(optimizer) -> bool:
    return any(group.get("differentiable") for group in optimizer.param_groups)
