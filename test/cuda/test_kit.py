# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The comparisons of tools/gpu/kit, on a device of the double."""

import contextlib
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "gpu" / "kit"))

import correctness
import streams


@pytest.mark.sample(one_of=3)
@pytest.mark.parametrize("way", ["shifted", "on_host", None])
@pytest.mark.parametrize("storage", ["f32", "bf16+i16"])
@pytest.mark.parametrize("name", ["AdamW", "hf.Adafactor", "AdamW, norm clipped"])
def test_comparisons(cuda, name, storage, way):
    found = correctness.compare(name, storage, "cuda", way == "shifted", way == "on_host")
    assert found["wrong"] == ""


@pytest.mark.parametrize("name", ["AdamW, f8_e4m3", "LAMB, q8"])
def test_codes(cuda, name):
    assert correctness.compare(name, "bf16+f32", "cuda", True)["wrong"] == ""


def test_a_difference_is_seen(cuda, monkeypatch):
    real = correctness.place

    def place(value, device, shifted):
        found = real(value, device, shifted)
        return found.add_(1e-7) if value.shape == (17,) else found

    monkeypatch.setattr(correctness, "place", place)
    wrong = correctness.compare("AdamW", "f32", "cuda", False)["wrong"]
    assert wrong.startswith("other bits than the processor's: {'param of 1'")


class Stream:
    """Of torch, on the double: all that torch does there waits for all streams, so to wait for
    one is nothing more."""

    def __init__(self, handle):
        self.cuda_stream = handle

    def wait_stream(self, other):
        assert isinstance(other, Stream)


@pytest.fixture
def streamed(cuda, monkeypatch):
    """What the cases of streams call of ``torch.cuda``."""

    class Graph:
        def replay(self):
            cuda.launch(self.graph)

    @contextlib.contextmanager
    def capture(graph):
        with cuda.capture() as graphs:
            yield
        graph.graph = graphs[0]

    @contextlib.contextmanager
    def on(stream):
        before, cuda.stream = cuda.stream, stream.cuda_stream
        yield
        cuda.stream = before

    class Event:
        def record(self):
            """What is enqueued is what is pending."""

        def query(self):
            return not cuda.double.lib.cudaDoublePending()

    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: Stream(cuda.double.make_stream()))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream(cuda.stream))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: cuda.double.synchronize(cuda.stream))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (streams.ROOM, 2 * streams.ROOM))
    return cuda


OF_A_DEVICE = "a backward pass in a graph"  # gradients of a captured pass: the double has none


@pytest.mark.parametrize("name", sorted(set(streams.CHECKS) - {OF_A_DEVICE}))
def test_streams(streamed, name):
    assert streams.CHECKS[name]("cuda") == ""


def test_a_step_that_is_left_out_is_seen(streamed, monkeypatch):
    monkeypatch.setattr(streamed, "launch", lambda graph: None)
    assert "elements have other bits" in streams.CHECKS["a graph follows the rate"]("cuda")
    assert OF_A_DEVICE in streams.CHECKS
