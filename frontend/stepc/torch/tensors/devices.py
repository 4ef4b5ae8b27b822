# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where parameters lie, and how the engine of that place is told of them.

A plan steps tensors of one device: of the processor, or one of CUDA. On CUDA a step is
enqueued on torch's current stream and returns before it is done, as torch's own
operations do; so what torch enqueues before and after it is in order with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch

from ... import _library, _runtime
from . import dlpack as _tensors
from .members import Member, ObstacleError

_CPU = torch.device("cpu")
# What the compiler has for compute capabilities, by their major number: cubins, of which
# one runs on the same major number and a minor one that is not lower; others take PTX.
_TARGETS = {8: "sm_80", 9: "sm_90", 10: "sm_100"}
_NEWER = "compute_100"
# Of the processor: what it makes unless it is asked for another, and all.
_ANY_CPU = "x86-64-v3"
CPU_TARGETS = (_ANY_CPU, "x86-64-v4", "x86-64-v4-512")
TARGETS = (*_TARGETS.values(), _NEWER)


def device_of(members: Iterable[Member]) -> torch.device:
    """The device of all members, the processor where there are none; ObstacleError where
    they lie on several."""
    first = None
    for member in members:
        for what, tensor in (("", member.param), ("has a gradient that ", member.grad)):
            if tensor is None:
                continue
            if first is None:
                first = member
            device = tensor.device
            if device != first.param.device:
                raise ObstacleError(
                    f"{member.name} {what}is on device '{device}', {first.name} on "
                    f"'{first.param.device}'; a step is of one device",
                    True,
                )
    return _CPU if first is None else first.param.device


def device_of_parts(parts: list, without: torch.device = _CPU) -> torch.device:
    """The device of what this rank has of parameters that are spread over ranks, ``without``
    where it has none; ObstacleError where they lie on several, or where no engine steps them."""
    first = None
    for part in parts:
        device = part.param.device
        first = part if first is None else first
        if device != first.param.device:
            raise ObstacleError(
                f"{part.name} is on device '{device}', {first.name} on "
                f"'{first.param.device}'; a step is of one device",
                True,
            )
        if words := _tensors.why_not_stepped_there(part.param):
            raise ObstacleError(f"{part.name} {words}", True)
    return without if first is None else first.param.device


def is_capturing(device: torch.device) -> bool:
    """Whether what is enqueued there now becomes part of a graph and is not done."""
    return device.type != "cpu" and torch.cuda.is_current_stream_capturing()


def captures_steps_of(groups: list[dict]) -> bool:
    """Whether a step of these groups would become part of a graph."""
    devices = {param.device for group in groups for param in group["params"]}
    return any(device.type == "cuda" and is_capturing(device) for device in devices)


def cpu_flags(target: str) -> tuple[str, ...]:
    """What the compiler is asked for to have code for processors of a target."""
    return () if target in ("", "cpu", _ANY_CPU) else (f"--target={target}",)


def target_flags(device: torch.device) -> tuple[str, ...]:
    """What the compiler is asked to make code for: this processor, unless STEPC_CPU_TARGET
    names another, or the device. ObstacleError for a device that is older than what it
    makes code for."""
    if device.type == "cpu":
        return cpu_flags(os.environ.get("STEPC_CPU_TARGET") or _library.cpu_target())
    major, minor = torch.cuda.get_device_capability(device)
    if major < min(_TARGETS):
        raise ObstacleError(
            f"device '{device}' has compute capability {major}.{minor}, the least is "
            f"{min(_TARGETS)}.0",
            True,
        )
    return (f"--target={_TARGETS.get(major, _NEWER)}",)


class Place:
    """Where a plan's tensors lie.

    ``is_device``: steps are enqueued, and what they leave, counts too, may be known there
    alone until somebody waits for it.
    """

    def __init__(self, plan: _runtime.Plan, device: torch.device):
        self._plan = plan
        self._device = device
        self.is_device = device.type != "cpu"
        if self.is_device:
            self._stream = torch.cuda.current_stream(device)
            # The engine takes memory from the driver, and torch keeps what nobody uses.
            plan.make_room = torch.cuda.empty_cache
            plan.set_cuda(device.index, self._stream.cuda_stream)

    def has(self, members: Iterable[Member]) -> bool:
        """Whether more members lie there too."""
        return all(member.param.device == self._device for member in members)

    def is_capturing(self) -> bool:
        """Whether what is enqueued now becomes part of a graph and is not done."""
        return is_capturing(self._device)

    def follow(self, *, ordered: bool = False) -> None:
        """Has the next step enqueued on torch's current stream, and what is read from
        the device wait for that: steps of graphs run where the graph is launched.

        ``ordered``: behind what is enqueued on the stream before, as the parts of one step, whose
        gradients come on several."""
        if not self.is_device:
            return
        stream = torch.cuda.current_stream(self._device)
        if stream.cuda_stream != self._stream.cuda_stream:
            if ordered:
                stream.wait_stream(self._stream)
            self._plan.set_stream(stream.cuda_stream)
            self._stream = stream

    def upload(self) -> None:
        """Enqueues what changed since the last step, for a graph that is to be launched."""
        if self.is_device:
            self.follow()
            self._plan.upload()
