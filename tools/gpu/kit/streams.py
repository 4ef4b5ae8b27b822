# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of AdamW in order with what torch does on a device: in graphs, on two streams, and
beside its cache of memory. Each has the bits of ordinary steps on one stream.
"""

from __future__ import annotations

import torch
from correctness import bits_differ, make_values, set_grads
from kit_cases import CASES
from stepc.torch.tensors.host_memory import HostMemory

STEPS = 4
ROOM = 64 << 20  # bytes that are left to the driver beside what fills the device


class Pair:
    """AdamW twice, on copies of the same parameters: as it is, and as a case steps it."""

    def __init__(self, device: str):
        made = make_values(torch.float32, 0)
        self.device = device
        self.plain, self.other = (
            [torch.nn.Parameter(value.to(device)) for value in made] for _ in range(2)
        )
        make = CASES["AdamW"].make
        self.reference, self.optimizer = make(self.plain), make(self.other)

    def give(self, step: int, params=None) -> None:
        for own in (self.plain, self.other) if params is None else (params,):
            set_grads(own, step, torch.float32, self.device)

    def step(self, step: int) -> None:
        self.give(step)
        self.reference.step()
        self.optimizer.step()

    def set_rate(self, rate: float) -> None:
        for optimizer in (self.reference, self.optimizer):
            optimizer.param_groups[0]["lr"] = rate

    def wrong(self) -> str:
        torch.cuda.synchronize()
        differing = sum(bits_differ(a, b) for a, b in zip(self.other, self.plain, strict=True))
        return f"{differing} elements have other bits" if differing else ""


def graph_follows(device: str) -> str:
    """A captured step, with another rate at each launch."""
    pair = Pair(device)
    pair.step(0)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        pair.optimizer.step()
    for rate in (1e-2, 1e-3, 3e-4):
        pair.set_rate(rate)
        pair.reference.step()
        pair.optimizer.upload()
        graph.replay()
    return pair.wrong()


def two_streams(device: str) -> str:
    """Steps on one stream and the other in turn, each behind what makes its gradients."""
    pair = Pair(device)
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for step in range(STEPS):
        now, before = streams[step % 2], streams[(step + 1) % 2]
        pair.set_rate(1e-2 / (step + 1))
        pair.give(step, pair.plain)
        pair.reference.step()
        now.wait_stream(torch.cuda.current_stream())
        now.wait_stream(before)
        with torch.cuda.stream(now):
            pair.give(step, pair.other)
            pair.optimizer.step()
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    return pair.wrong()


def beside_the_cache(device: str) -> str:
    """A first step where torch's cache has what the driver has not."""
    pair = Pair(device)
    pair.give(0)
    pair.reference.step()
    kept = []
    while (size := (torch.cuda.mem_get_info()[0] - ROOM) // 2) > ROOM:
        kept.append(torch.empty(size, dtype=torch.uint8, device=device))
    small = [torch.empty(2 << 20, dtype=torch.uint8, device=device) for _ in range(ROOM >> 21)]
    del kept, small  # into the cache: the driver gets none of it back
    pair.optimizer.step()
    found = pair.wrong()
    torch.cuda.empty_cache()
    return found


def backward_in_a_graph(device: str) -> str:
    """Forward pass, backward pass and step in one graph, with another input at each launch."""
    pair = Pair(device)
    inputs = [value.to(device) for value in make_values(torch.float32, 1)]

    def train(params, optimizer) -> None:
        optimizer.zero_grad()
        sum(
            (param * own).square().sum() for param, own in zip(params, inputs, strict=True)
        ).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # as torch asks for before a capture of a backward pass
        for _ in range(3):
            train(pair.other, pair.optimizer)
    torch.cuda.current_stream().wait_stream(side)
    for _ in range(3):
        train(pair.plain, pair.reference)
    graph = torch.cuda.CUDAGraph()
    pair.optimizer.zero_grad()
    with torch.cuda.graph(graph):
        train(pair.other, pair.optimizer)
    for seed in range(STEPS):
        for own, value in zip(inputs, make_values(torch.float32, 2 + seed), strict=True):
            own.copy_(value)
        train(pair.plain, pair.reference)
        graph.replay()
    return pair.wrong()


def freed_memory_of_the_host(device: str) -> str:
    """Whether the driver waits for what is enqueued before it frees memory of the host, as states
    in it rely on: its reference promises that of device memory alone."""
    memory = HostMemory(torch.device(device, 0))
    state = memory.make(torch.empty(1 << 20, dtype=torch.float32, device="meta"))
    torch.cuda.synchronize()
    torch.cuda._sleep(1 << 28)  # cycles, a tenth of a second
    state.fill_(1.0)
    done = torch.cuda.Event()
    done.record()
    del state
    return "" if done.query() else "memory of the host was freed before what was enqueued is done"


CHECKS = {
    "a graph follows the rate": graph_follows,
    "two streams": two_streams,
    "beside torch's cache": beside_the_cache,
    "a backward pass in a graph": backward_in_a_graph,
    "memory of the host is freed behind what is enqueued": freed_memory_of_the_host,
}


def run_all(device: str) -> list[dict]:
    """What each has found; an error is one too."""
    found = []
    for name, check in CHECKS.items():
        try:
            wrong = check(device)
        except Exception as error:  # of a driver, say: the others are to be run
            wrong = f"{type(error).__name__}: {error}"
        found.append({"optimizer": "AdamW", "storage": "f32", "check": name, "wrong": wrong})
        if wrong:
            print(f"  {name}: {wrong}", flush=True)
    return found
