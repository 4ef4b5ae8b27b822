# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where states lie by a configuration: ``offload_optimizer``, ``offload_param`` and ``aio``."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch

from ..binding.placement import Place
from .reading import Said, read

_OPTIMIZER = "zero_optimization.offload_optimizer"
_STATES = {"cpu": "host", "nvme": "disk"}  # of Place, by the device
_MOST = 64  # buffers and threads of a Place


def offloads(said: Said) -> bool:
    """Whether states are to lie elsewhere than parameters; DeepSpeed steps on the CPU then."""
    return said["zero_optimization.stage"] > 0 and said[f"{_OPTIMIZER}.device"] != "none"


def placement(config) -> dict:
    """The arguments of :class:`stepc.torch.Place` that a configuration, a dict or a file, asks for;
    none where states lie beside parameters; of a file only ``offload_optimizer`` and ``aio`` are
    looked at. ValueError for NVMe without a path, or one of a folder that is not there."""
    said = config if isinstance(config, Said) else Said(_of_states(read(config)))
    device, ratio = said[f"{_OPTIMIZER}.device"], said[f"{_OPTIMIZER}.ratio"]
    if device == "none":
        return {}
    if device == "cpu":
        return {"states": "host", "fraction": ratio}
    if said[f"{_OPTIMIZER}.nvme_path"] is None:
        raise ValueError(f"'{_OPTIMIZER}.device' is 'nvme', expected an 'nvme_path' beside it")
    if not os.path.isdir(said[f"{_OPTIMIZER}.nvme_path"]):
        raise ValueError(
            f"'{_OPTIMIZER}.nvme_path' is {said[f'{_OPTIMIZER}.nvme_path']!r}, expected a folder "
            "that is there"
        )
    given = {"states": "disk", "path": said[f"{_OPTIMIZER}.nvme_path"], "fraction": ratio}
    if f"{_OPTIMIZER}.buffer_count" in said:
        given["buffers"] = min(max(said[f"{_OPTIMIZER}.buffer_count"], 2), _MOST)
    if "aio.queue_depth" in said or "aio.intra_op_parallelism" in said:
        # As many operations are on their way, each of a thread.
        given["threads"] = min(said["aio.queue_depth"] * said["aio.intra_op_parallelism"], _MOST)
    return given


def _of_states(config: dict) -> dict:
    """What of a configuration is about where states lie; elsewhere may be "auto"."""
    zero = config.get("zero_optimization")
    if isinstance(zero, dict):
        zero = {key: zero[key] for key in ("offload_optimizer",) if key in zero}
    return {"zero_optimization": zero, "aio": config.get("aio")}


def place_of(said: Said, params: Iterable[torch.Tensor]) -> dict:
    """The argument ``place`` of an optimizer, as a dict of it or of nothing. ValueError for what
    cannot be followed with these parameters."""
    devices = {param.device.type for param in params}
    _check_params(said, devices)
    given = placement(said)
    if not given:
        return {}
    stay = given["states"] == "host" and devices <= {"cpu"}
    return {} if stay else {"place": Place(**given)}


def _check_params(said: Said, devices: set[str]) -> None:
    device = said["zero_optimization.offload_param.device"]
    if device == "nvme":
        raise ValueError(
            "'zero_optimization.offload_param.device' is 'nvme', expected 'none' or 'cpu': "
            "parameters stay in memory"
        )
    if device == "cpu" and not devices <= {"cpu"}:
        raise ValueError(
            "'zero_optimization.offload_param.device' is 'cpu', and parameters lie on "
            f"{' and '.join(sorted(devices))}: give them to "
            "torch.distributed.fsdp.fully_shard(..., offload_policy=CPUOffloadPolicy())"
        )
