# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times of steps beside torch's, and the copy ceiling of the same run.

A round runs each contestant once: it is made, steps some times unmeasured and then some
times between events of the stream, of which the median counts. Rounds are interleaved:
what changes in between, clocks or temperature, meets all of them.
"""

from __future__ import annotations

import gc
import statistics
import time

import torch
from kit_cases import CASES, PEERS, STORAGES, TIMED
from shapes import SHAPES, elements
from stepc.torch import Place

MODELS = ("gpt2", "vit", "bert", "llama7b", "tiny")
ROUNDS, WARM, TIMED_STEPS = 3, 3, 10
CEILING_BYTES = 2 << 30  # copied, in each direction
ON_HOST = "stepc, states in the host's memory"


class Clock:
    """Seconds of work that is enqueued on a device, or done on the processor."""

    def __init__(self, device: str):
        self.cuda = device == "cuda"

    def time(self, function) -> tuple[float, float]:
        """Of the device, and until the call came back."""
        if not self.cuda:
            begin = time.perf_counter()
            function()
            spent = time.perf_counter() - begin
            return spent, spent
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        called = time.perf_counter()
        function()
        called = time.perf_counter() - called
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3, called


def measure_ceiling(device: str, size: int = CEILING_BYTES) -> float:
    """Bytes a second that a copy reads and writes, the best of some."""
    source = torch.empty(size // 4, device=device)
    target = torch.empty_like(source)
    clock = Clock(device)
    best = min(clock.time(lambda: target.copy_(source))[0] for _ in range(20))
    return 2 * size / best


def measure_bus(device: str, size: int = CEILING_BYTES) -> float:
    """Bytes a second that copies move between page-locked memory and the device, half of them each
    way at the same time; the best of some."""
    if device != "cuda":
        return 0.0
    host = [torch.empty(size // 8, pin_memory=True) for _ in range(2)]
    there = [torch.empty(size // 8, device=device) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def both_ways():
        current = torch.cuda.current_stream()
        pairs = (there[0], host[0]), (host[1], there[1])
        for stream, (target, source) in zip(streams, pairs, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
        for stream in streams:
            current.wait_stream(stream)

    clock = Clock(device)
    return size / min(clock.time(both_ways)[0] for _ in range(10))


class Contestant:
    """An optimizer over parameters of its own, whose gradients stay."""

    def __init__(self, make, model, dtype: torch.dtype, device: str):
        self.params = [
            torch.nn.Parameter(torch.randn(shape, device=device, dtype=torch.float32).to(dtype))
            for shape in model
        ]
        for param in self.params:
            param.grad = torch.randn_like(param) * 1e-2
        self.optimizer = make(self.params)

    def run(self, clock: Clock, compiled: bool) -> tuple[float, float]:
        step = torch.compile(self.optimizer.step) if compiled else self.optimizer.step
        for _ in range(WARM):
            step()
        taken = [clock.time(step) for _ in range(TIMED_STEPS)]
        return tuple(statistics.median(column) for column in zip(*taken, strict=True))


def contestants(name: str, storage: str, model: str) -> dict:
    """Who takes part, and whether it is compiled by torch, which takes minutes for the model
    of many tensors."""
    case, (_, master) = CASES[name], STORAGES[storage]
    found = {"stepc": (lambda p: case.make(p, **case.keywords(storage)), False)}
    if name == "AdamW":
        place = Place("host")
        found[ON_HOST] = (lambda p: case.make(p, place=place, **case.keywords(storage)), False)
    theirs = TIMED[name]
    if theirs is not None and master is None:
        for label, options in PEERS.items():
            found[f"torch {label}"] = (lambda p, o=options: theirs(p, lr=1e-3, **o), False)
        if model != "tiny":
            found["torch compiled"] = (lambda p: theirs(p, lr=1e-3, foreach=False), True)
    if theirs is not None and master is not None:
        found["torch fused, f32 master"] = (lambda p: WithMaster(theirs, p), False)
    return found


class WithMaster:
    """torch's fused step of float32 copies, as training scripts have it."""

    def __init__(self, make, params):
        self.params = params
        self.masters = [torch.nn.Parameter(p.detach().float()) for p in params]
        self.inner = make(self.masters, lr=1e-3, fused=True)

    def step(self) -> None:
        for master, param in zip(self.masters, self.params, strict=True):
            master.grad = param.grad.float()
        self.inner.step()
        torch._foreach_copy_([p.detach() for p in self.params], [m.detach() for m in self.masters])


def fits(model, storage: str, states: int, device: str) -> bool:
    """Whether a contestant's tensors, and a copy of parameters, are in memory."""
    if device != "cuda":
        return True
    size = elements(model) * (16 + 8 * states if storage == "f32" else 14 + 8 * states)
    return size < 0.85 * torch.cuda.get_device_properties(0).total_memory


def clean(device: str) -> None:
    torch._dynamo.reset()  # else it gives up compiling after some optimizers
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def run_case(name: str, model_name: str, storage: str, device: str, rounds: int) -> dict:
    """Medians of all contestants over the rounds, seconds."""
    model, clock = SHAPES[model_name](), Clock(device)
    taking_part = contestants(name, storage, model_name)
    taken: dict[str, list] = {label: [] for label in taking_part}
    errors = {}
    for _ in range(rounds):
        for label, (make, compiled) in taking_part.items():
            if label in errors:
                continue
            clean(device)
            try:
                contestant = Contestant(make, model, STORAGES[storage][0], device)
                taken[label].append(contestant.run(clock, compiled))
            except Exception as error:  # one that cannot take part is said, and left out
                errors[label] = f"{type(error).__name__}: {error}"[:300]
            contestant = None
    least = CASES[name].least_bytes(storage) * elements(model)
    medians = {
        label: {
            "seconds": statistics.median(t for t, _ in both),
            "host_seconds": statistics.median(h for _, h in both),
            "rounds": [t for t, _ in both],
        }
        for label, both in taken.items()
        if both
    }
    return {
        "optimizer": name, "model": model_name, "storage": storage, "elements": elements(model),
        "least_bytes": least, "contestants": medians, "errors": errors,
    }  # fmt: skip


def run_all(device: str, models, names, rounds: int = ROUNDS) -> list[dict]:
    """All cases that fit; ``ceiling`` is measured before each."""
    found = []
    for name in names:
        for model_name in models:
            for storage in STORAGES:
                if not fits(SHAPES[model_name](), storage, CASES[name].states, device):
                    found.append({"optimizer": name, "model": model_name, "storage": storage,
                                  "left_out": "does not fit in the device's memory"})  # fmt: skip
                    continue
                clean(device)
                try:
                    size = CEILING_BYTES if device == "cuda" else 1 << 24
                    ceiling, bus = measure_ceiling(device, size), measure_bus(device, size)
                except Exception as error:  # of the device: the next may do
                    words = f"the copy failed: {type(error).__name__}: {error}"
                    found.append({"optimizer": name, "model": model_name, "storage": storage,
                                  "left_out": words})  # fmt: skip
                    continue
                found.append(run_case(name, model_name, storage, device, rounds))
                found[-1] |= {"ceiling": ceiling, "bus": bus}
                print(f"  {describe(found[-1])}", flush=True)
    return found


def describe(case: dict) -> str:
    times = ", ".join(
        f"{label} {found['seconds'] * 1e3:.3f} ms" for label, found in case["contestants"].items()
    )
    ours = case["contestants"].get("stepc")
    share = case["least_bytes"] / ours["seconds"] / case["ceiling"] if ours else 0.0
    return (
        f"{case['optimizer']}, {case['model']}, {case['storage']}: {times}; {share:.1%} of a copy"
    )
