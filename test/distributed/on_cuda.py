# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training on the processor and on CUDA devices of the double, over the same ranks."""

import contextlib
import gc
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from on_ranks import same_bits
from torch.distributed.device_mesh import init_device_mesh

sys.path.append(str(Path(__file__).resolve().parents[1] / "cuda"))
from double import get_double
from torch_double import make_cuda
from torch_ranks import RankTorch


class Processor:
    """What tests ask of a place, of the processor."""

    def place(self, tensor):
        return tensor.detach().clone()

    def host(self, tensor):
        return getattr(tensor, "_local_tensor", tensor).detach().clone()

    def mesh(self, *arguments, **more):
        return init_device_mesh("cpu", *arguments, **more)

    def captured(self, optimizer):
        return optimizer.step

    def differentiating(self):
        return contextlib.nullcontext()


def backward(place, params, grads, absent=()):
    """A pass in which the gradient of each parameter is what it is in ``grads``."""
    used = [(p, g) for i, (p, g) in enumerate(zip(params, grads, strict=True)) if i not in absent]
    with place.differentiating():
        sum((param * grad).sum() for param, grad in used if param.numel()).backward()


class Device:
    """The same of the device of a rank."""

    def __init__(self, cuda):
        self.cuda = cuda

    def place(self, tensor):
        return self.cuda.place(tensor.detach().clone(), "cuda:0")

    def host(self, tensor):
        with self.cuda.opened(), torch._C.DisableTorchFunction():
            return getattr(tensor, "_local_tensor", tensor).detach().clone()

    def mesh(self, *arguments, **more):
        """One whose groups are Gloo's, as are those of the double's ranks."""
        mesh = init_device_mesh("cpu", *arguments, **more)
        mesh._device_type = "cuda"
        return mesh

    def captured(self, optimizer):
        """Captures a step; what launches it."""
        with self.cuda.capture() as graphs:
            optimizer.step()

        def launch():
            optimizer.upload()
            self.cuda.launch(graphs[0])

        return launch

    @contextlib.contextmanager
    def differentiating(self):
        """torch's own operations and gradients, on memory that lies open."""
        with self.cuda.opened(), torch._C.DisableTorchFunction():
            yield


@contextlib.contextmanager
def on_device():
    """A :class:`Device`; what its collectives have raised is raised at its end."""
    gc.collect()
    double = get_double()
    double.reset()
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        cache = Path(sys.argv[1]).parent / "cuda-cache"  # of all files of cases
        cuda = make_cuda(double, Path(folder), cache, patch, RankTorch)
        cuda.patch(patch)
        cuda.stream = double.make_stream()
        with cuda:
            yield Device(cuda)
            with cuda.opened():
                pass
    assert not cuda.failed, cuda.failed
    assert double.fault() == ""


def contents(place, optimizer):
    """Copies in the host's memory of what this rank has: parameters, and states by name."""
    found = {}
    saved = optimizer.state_dict()["state"]
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for number, param in enumerate(params):
        found[f"parameter {number}"] = place.host(param)
        for name, state in saved.get(number, {}).items():
            state = state.plain() if hasattr(state, "plain") else state
            found[f"{name} of parameter {number}"] = place.host(state)
    return found


def compare(train, what):
    """``train(place)`` yields, step by step, the contents of an optimizer: both places give
    the same bits."""
    expected = list(train(Processor()))
    with on_device() as place:
        for step, found in enumerate(train(place)):
            assert list(found) == list(expected[step]), (what, step)
            for name, value in expected[step].items():
                same_bits(found[name], value, f"{what}, step {step}, {name}")
    assert len(expected) == step + 1, what
