# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where states lie by a configuration: ``offload_optimizer``, ``offload_param`` and ``aio``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch

from .reading import Said, read

_OPTIMIZER = "zero_optimization.offload_optimizer"
_STATES = {"cpu": "host", "nvme": "disk"}  # of Place, by the device
# The arguments of Place that follow from a key which the file has.
_PLACE = {
    f"{_OPTIMIZER}.nvme_path": "path",
    f"{_OPTIMIZER}.buffer_count": "buffers",
    "aio.block_size": "block_bytes",
    "aio.intra_op_parallelism": "threads",
}


def offloads(said: Said) -> bool:
    """Whether states are to lie elsewhere than parameters; DeepSpeed steps on the CPU then."""
    return said["zero_optimization.stage"] > 0 and said[f"{_OPTIMIZER}.device"] != "none"


def placement(config) -> dict:
    """The arguments of ``stepc.torch.Place`` that a configuration, a dict or a file, asks for; none
    where states lie beside parameters. ValueError for NVMe without a path."""
    said = config if isinstance(config, Said) else Said(read(config))
    device = said[f"{_OPTIMIZER}.device"]
    if device == "none":
        return {}
    if device == "nvme" and said[f"{_OPTIMIZER}.nvme_path"] is None:
        raise ValueError(f"'{_OPTIMIZER}.device' is 'nvme', expected an 'nvme_path' beside it")
    given = {"states": _STATES[device]}
    if device == "nvme":
        given |= {name: said[path] for path, name in _PLACE.items() if path in said}
    return given


def place_of(said: Said, params: Iterable[torch.Tensor]) -> dict:
    """The argument ``place`` of an optimizer, as a dict of it or of nothing. ValueError for what
    cannot be followed with these parameters."""
    import stepc.torch

    devices = {param.device.type for param in params}
    _check_params(said, devices)
    given = placement(said)
    if not given or (given["states"] == "host" and devices <= {"cpu"}):
        return {}
    kind = getattr(stepc.torch, "Place", None)
    if kind is None:
        raise ValueError(
            f"'{_OPTIMIZER}.device' is {said[f'{_OPTIMIZER}.device']!r}, and states lie beside "
            f"parameters, on {' and '.join(sorted(devices))}: there is no stepc.torch.Place"
        )
    known = inspect.signature(kind).parameters
    return {"place": kind(**{name: value for name, value in given.items() if name in known})}


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
