# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages made with --exclusive-writes: the same bits, and a parameter that somebody else
writes is seen, or found."""

import copy

import numpy as np
import pytest
import stepc.torch
import torch
from definitions import Definition
from oracle import ZOO, store
from papers import HYPERS
from stepc import errors
from steps import Case, Group, Packages, Tensor, check

CARRYING = ["adafactor", "torch_adafactor", "adalomo", "lars"]
SHAPES = [(65, 33), (130, 1025), (2, 70, 40), (1, 5), (3, 1), (7,)]


@pytest.mark.parametrize("storages", [("f32", "f32", "f32"), ("bf16", "bf16", "f32")], ids="-".join)
@pytest.mark.parametrize("name", CARRYING)
def test_bits(name, storages, tmp_path):
    """Beside the interpreter, which knows of nothing that is carried."""
    definition = Definition(ZOO / f"{name}.mlir", flags=["--exclusive-writes"])
    rng, tensors = np.random.default_rng(5), []
    for shape in [(65, 33), (2, 70, 40), (130, 1025), (0, 3), (9,)]:
        arrays = {
            name: store(rng.standard_normal(shape).astype("f4"), storage)
            for name, storage in zip(("param", "grad"), storages, strict=False)
        }
        tensors.append(Tensor(shape, storages, arrays, count=3, fresh=True))
    cases = [Case(definition, [Group(hypers=HYPERS[name])], tensors, steps=4, threads=2)]
    failures = check(cases, Packages(tmp_path))
    assert not failures, "\n".join(failures)


# What a step leaves of the param and of two states, each as it is stored.
SEVERAL = """
step.optimizer @several {
  %lr = step.hyper "lr" = 0.1
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %v: state "v"[*], %first: fresh) {
    %pm = step.mul %p, %p : [*]
    %s = step.select %first, %p, %v : [*]
    %all = step.REDUCE %pm, %m, %s : [*]
    %rate = step.mul %all, %lr : f64
    %m1 = step.add %m, %g : [*]
    %v1 = step.sub %s, %g : [*]
    %u = step.mul %m1, %rate : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %m1, %v1
  }
}
"""


@pytest.mark.parametrize("storages", [("f32", "f32", "f32"), ("bf16", "f32", "bf16")], ids="-".join)
@pytest.mark.parametrize("kind", ["sum", "mean", "amax"])
def test_several_inputs(kind, storages, tmp_path):
    """A reduction of the param and states is carried as one of what the step left of each."""
    path = tmp_path / "several.mlir"
    path.write_text(SEVERAL.replace("REDUCE", kind))
    rng, tensors = np.random.default_rng(6), []
    for shape in [(65, 33), (1025,), (0, 3), (9,)]:
        arrays = {
            name: store((0.1 * rng.standard_normal(shape)).astype("f4"), storage)
            for name, storage in zip(("param", "grad"), storages, strict=False)
        }
        tensors.append(Tensor(shape, storages, arrays, count=3, fresh=True))
    definition = Definition(path, flags=["--exclusive-writes"])
    group = Group(hypers={"lr": 1e-3})
    failures = check([Case(definition, [group], tensors, steps=4)], Packages(tmp_path))
    assert not failures, "\n".join(failures)


def draw(generator):
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


class Pair:
    """The same parameters, with the promise and without."""

    def __init__(self, make, dtype=torch.float32, **options):
        self.generator = torch.Generator().manual_seed(3)
        begin = [0.02 * tensor.to(dtype) for tensor in draw(self.generator)]
        self.params, self.optimizers = [], []
        for exclusive in (False, True):
            params = [torch.nn.Parameter(tensor.clone()) for tensor in begin]
            self.params.append(params)
            self.optimizers.append(make(params, exclusive_writes=exclusive, **options))

    def step(self, change=None, only=slice(None)):
        gradients = draw(self.generator)
        if change:
            change(gradients)
        for params, optimizer in zip(self.params, self.optimizers, strict=True):
            for param, gradient in list(zip(params, gradients, strict=True))[only]:
                param.grad = gradient.to(param.dtype)
            optimizer.step()
            optimizer.zero_grad()
        self.compare()

    def compare(self):
        for plain, carrying in zip(*self.params, strict=True):
            assert torch.equal(plain.nan_to_num(7.0), carrying.nan_to_num(7.0))

    def left_out(self):
        """Traversals beside those that torch's Adafactor leaves out without the promise too."""
        plain, carrying = (one._binding.plan.info().leftOut for one in self.optimizers)
        return carrying - plain


MAKERS = {
    "hf": lambda p, **o: stepc.torch.hf.Adafactor(p, lr=1e-2, relative_step=False, **o),
    "torch": lambda p, **o: stepc.torch.Adafactor(p, lr=1e-2, **o),
    "lars": lambda p, **o: stepc.torch.LARS(p, vectors_as_sgd=False, **o),
}


@pytest.mark.parametrize("name", MAKERS)
def test_left_out(name):
    """All but the one that is looked at, from the second step on."""
    pair = Pair(MAKERS[name])
    pair.step()
    assert pair.left_out() == 0
    for _ in range(len(SHAPES) + 1):
        pair.step()
        assert pair.left_out() == len(SHAPES) - 1


@pytest.mark.parametrize("master", [None, "f32", "remainder"])
def test_masters(master):
    pair = Pair(MAKERS["hf"], torch.bfloat16, master=master)
    for _ in range(4):
        pair.step()
    assert pair.left_out() == len(SHAPES) - 1


def test_masters_that_are_written():
    pair = Pair(MAKERS["hf"], torch.bfloat16, master="f32")
    pair.step()
    pair.step()
    for params, optimizer in zip(pair.params, pair.optimizers, strict=True):
        with torch.no_grad():
            for param in params:
                optimizer.state[param]["master"].mul_(1.001)
    pair.step()
    assert pair.left_out() == 0


def test_missing_gradients_and_skipped_steps():
    pair = Pair(MAKERS["hf"], loss_scale=stepc.torch.DynamicLossScale(init_scale=4.0))

    def overflow(gradients):
        gradients[1][3, 4] = torch.inf

    for change, only in [
        (None, slice(None)), (None, slice(3)), (overflow, slice(None)), (None, slice(None)),
        (overflow, slice(2, 5)), (None, slice(1, 6)), (None, slice(None)),
    ]:  # fmt: skip
        pair.step(change, only)
    assert pair.left_out() == len(SHAPES) - 1


def test_nan_stays():
    pair = Pair(MAKERS["hf"])

    def breaks(gradients):
        gradients[0][0, 0] = torch.nan

    pair.step()
    pair.step(breaks)
    for _ in range(len(SHAPES) + 1):
        pair.step()
    assert pair.left_out() == len(SHAPES) - 1


@torch.no_grad()
def halve(params):
    for param in params:
        param.mul_(0.5)


def assign(params):
    for param in params:
        param.data = 3.0 * param.data


def load(params):
    model = torch.nn.ParameterList(params)
    model.load_state_dict({name: 2.0 * p for name, p in model.state_dict().items()})


@pytest.mark.parametrize("write", [halve, assign, load])
def test_writes_that_are_seen(write):
    pair = Pair(MAKERS["hf"])
    pair.step()
    pair.step()
    for params in pair.params:
        write(params)
    pair.step()
    assert pair.left_out() == 0
    pair.step()
    assert pair.left_out() == len(SHAPES) - 1


def test_loaded_states_and_copies():
    pair = Pair(MAKERS["hf"])
    pair.step()
    pair.step()
    for optimizer in pair.optimizers:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    pair.step()
    pair.step()
    assert copy.deepcopy(pair.optimizers[1])._exclusive_writes


def test_writes_that_are_not_seen_are_found():
    """Where there is one before each step, within as many steps as there are parameters;
    then nothing is known any more."""
    pair = Pair(MAKERS["hf"])
    pair.step()
    pair.step()
    params, optimizer = pair.params[1], pair.optimizers[1]
    steps = [float(optimizer.state[p]["step"]) for p in params]
    with pytest.raises(errors.StaleStatisticsError, match="parameter 4 of group 0.*was written"):
        for _ in range(len(SHAPES)):
            params[4].data.mul_(2.0)
            for param in params:
                param.grad = torch.ones_like(param)
            optimizer.step()
    # The step was made, of all tensors.
    after = [float(optimizer.state[p]["step"]) for p in params]
    assert len({a - b for a, b in zip(after, steps, strict=True)} - {0.0}) == 1
    optimizer.step()
    assert optimizer._binding.plan.info().leftOut == 0
    optimizer.step()
    assert optimizer._binding.plan.info().leftOut == len(SHAPES) - 1
