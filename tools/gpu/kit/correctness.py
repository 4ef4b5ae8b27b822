# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each optimizer on the device: the bits of the processor's steps, and torch's in float64;
our own in float64 on the processor where torch has no such optimizer.
"""

from __future__ import annotations

import torch
from kit_cases import ALL_STORAGES, CASES
from stepc.torch import Place

SHAPES = [(33, 20), (17,), (5, 7, 9), (), (130, 64), (3,), (1,), (257, 1031), (2, 3, 5, 7)]
STEPS = 5
TOLERANCE = 2e-5  # of float32 steps beside float64, relative to the largest element


def make_values(dtype: torch.dtype, seed: int, matrices: bool = False) -> list[torch.Tensor]:
    """Of all shapes, or of matrices alone."""
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]
    return [value for value in values if value.ndim == 2 or not matrices]


def place(value: torch.Tensor, device: str, shifted: bool) -> torch.Tensor:
    """A copy on the device, of an address that is not a multiple of 16 where ``shifted``."""
    if not shifted:
        return value.to(device, copy=True)
    room = torch.empty(value.numel() + 1, dtype=value.dtype, device=device)
    return room[1:].view(value.shape).copy_(value)


def set_grads(params, step: int, dtype: torch.dtype, device: str) -> None:
    matrices = len(params) < len(SHAPES)
    for number, (param, grad) in enumerate(
        zip(params, make_values(dtype, 100 + step, matrices), strict=True)
    ):
        absent = step == 2 and number in (1, 4)
        param.grad = None if absent else grad.to(device=device, dtype=param.dtype)


def bits_differ(ours: torch.Tensor, expected: torch.Tensor) -> int:
    """How many elements have other bits; any NaN is like any other."""
    ours, expected = ours.detach().cpu(), expected.detach().cpu()
    equal = (ours == expected) & (ours.signbit() == expected.signbit())
    return int((~(equal | (ours.isnan() & expected.isnan()))).sum())


def run(optimizer, params, dtype, device: str, steps: int = STEPS) -> None:
    for step in range(steps):
        for group in optimizer.param_groups:
            if group.get("lr") is not None:
                group["lr"] = 1e-2 / (step + 1)
        set_grads(params, step, dtype, device)
        optimizer.step()


def compare(name: str, storage: str, device: str, shifted: bool, on_host: bool = False) -> dict:
    """One optimizer in one storage; ``on_host``: with large states in the host's memory.
    ``wrong`` is "" where all is right."""
    case, (dtype, _) = CASES[name], ALL_STORAGES[storage]
    made = make_values(dtype, 0, case.matrices)
    here = [torch.nn.Parameter(value.clone()) for value in made]
    there = [torch.nn.Parameter(place(value, device, shifted)) for value in made]
    keywords = case.keywords(storage)
    host = case.make(here, **keywords)
    placed = case.make(there, place=Place("host") if on_host else None, **keywords)
    run(host, here, dtype, "cpu")
    run(placed, there, dtype, device)
    placed.state_dict()  # notes on the host how many steps were not skipped
    differing = {}
    for number, (one, other) in enumerate(zip(there, here, strict=True)):
        pairs = {"param": (one, other)}
        for key, state in host.state[other].items():
            pairs[key] = (placed.state[one].get(key), state)
        for key, (ours, expected) in pairs.items():
            if isinstance(expected, torch.Tensor) and (n := bits_differ(ours, expected)):
                differing[f"{key} of {number}"] = n
    found = {"optimizer": name, "storage": storage, "shifted": shifted, "on_host": on_host,
             "wrong": ""}  # fmt: skip
    if differing:
        found["wrong"] = f"other bits than the processor's: {differing}"
    elif dtype is torch.float32 and not case.coded:
        found["off"] = distance_to_float64(case, made, there)
        if not found["off"] <= TOLERANCE:
            whose = "torch's" if case.reference else "our own"
            found["wrong"] = f"off {whose} float64 by {found['off']:.2e}"
    return found


def distance_to_float64(case, made, ours) -> float:
    params = [torch.nn.Parameter(value.double()) for value in made]
    run((case.reference or case.make)(params), params, torch.float32, "cpu")
    return max(
        float(
            (one.detach().cpu().double() - other.detach()).abs().max() / other.detach().abs().max()
        )
        for one, other in zip(ours, params, strict=True)
    )


def run_all(device: str, names: list[str], quick: bool) -> list[dict]:
    """What each comparison found; an error is one too."""
    found = []
    for name in names:
        for storage in ("f32",) if quick else ALL_STORAGES:
            ways = [(False, False)] if quick else [(False, False), (True, False), (False, True)]
            for shifted, on_host in ways:
                try:
                    found.append(compare(name, storage, device, shifted, on_host))
                except Exception as error:  # of a driver, say: the others are to be run
                    words = f"{type(error).__name__}: {error}"
                    found.append({"optimizer": name, "storage": storage, "wrong": words})
                if found[-1]["wrong"]:
                    print(f"  {name}, {storage}: {found[-1]['wrong']}", flush=True)
    return found
