# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Interrupts stay interrupts, wherever a step is when they come: KeyboardInterrupt, SystemExit,
and what a handler of a signal raises.

The library steps in its own code, and calls functions of Python from there: of communicators and
of traces. A signal that comes meanwhile is raised where Python runs next: as such a function
begins, or when the library returns. ``raise`` of C's library stands for Ctrl-C: as a trace it is
called from the library's code before each kernel.
"""

import ctypes
import signal
import sys
import threading
import time

import pytest
import stepc.torch
import torch
from common import bits_equal, make_params, set_grads, states
from stepc import _library, _mesh, _runtime, _structures, _trace, errors
from stepc.definition import Definition
from stepc.torch.tensors import dlpack as _tensors

RAISE = _trace._PROTOTYPE(("raise", ctypes.CDLL(None)))  # of the signal that its context is
SPEC = ("param=f32,grad=f32,layout.-1=dp",)


class Rank:
    """The first rank of two of a clipped SGD: eight elements of sixteen."""

    def __init__(self, reduce):
        definition = Definition.from_zoo("sgd").with_fragments(("clip_by_norm",))
        self.plan = _runtime.Plan(definition.package(SPEC))
        mesh = _mesh.Mesh(("dp",), (2,))
        self.plan.set_mesh(mesh.struct(0), _mesh.communicator_of(reduce))
        interface = definition.interface()
        hypers = tuple(default for _, default in interface.hypers)
        self.plan.add_group({}, hypers)
        self.param, self.grad = torch.ones(8), torch.ones(8)
        described = _tensors.describe([self.param, self.grad])
        layout = _mesh.Layout((16,), ((0, ("dp",)),), start=(0,)).struct(mesh)
        binding = _structures.Binding()
        binding.name = b"w"
        binding.param = ctypes.addressof(described)
        binding.grad = binding.param + ctypes.sizeof(_structures.DLTensor)
        binding.layout = ctypes.addressof(layout)
        self.plan.bind((_structures.Binding * 1)(binding))

    def step(self):
        """Of the plan, which does not keep the tensors' memory: we do."""
        self.plan.step()

    def interrupt(self):
        """Has Ctrl-C come from now on whenever a kernel begins or ends."""
        set_interrupt(self.plan)

    def refuses(self):
        with pytest.raises(errors.StatusError) as caught:
            self.step()
        return caught.value.status == "STEPC_POISONED"


def set_interrupt(plan):
    lib = plan._lib
    function = ctypes.cast(RAISE, ctypes.c_void_p)
    _library.check(lib, lib.stepcPlanSetTrace(plan._handle, function, signal.SIGINT))


def test_before_a_round():
    """The function of the round is not even entered: that is no round that was made."""
    rounds = []
    rank = Rank(rounds.append)
    rank.interrupt()
    with pytest.raises(KeyboardInterrupt):
        rank.step()
    assert rounds == [] and rank.plan.info().steps == 0
    assert rank.param.equal(torch.ones(8)) and rank.refuses()


def test_another_signal_before_a_round():
    """Whose handler raises an error, as that of an alarm."""

    def late(number, frame):
        raise TimeoutError("too late")

    before = signal.signal(signal.SIGINT, late)
    try:
        rank = Rank(lambda calls: None)
        rank.interrupt()
        with pytest.raises(TimeoutError, match="too late"):
            rank.step()
    finally:
        signal.signal(signal.SIGINT, before)
    assert rank.param.equal(torch.ones(8)) and rank.refuses()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_in_a_round(kind):
    error = kind(3)

    def reduce(calls):
        raise error

    rank = Rank(reduce)
    with pytest.raises(kind) as caught:
        rank.step()
    assert caught.value is error
    assert rank.param.equal(torch.ones(8)) and rank.refuses()


def test_in_a_round_on_another_thread():
    found = []

    def reduce(calls):
        raise SystemExit(3)

    def step():
        try:
            rank.step()
        except BaseException as error:
            found.append(type(error))

    rank = Rank(reduce)
    thread = threading.Thread(target=step)
    thread.start()
    thread.join()
    assert found == [SystemExit]


def test_an_error_in_a_round_is_its_message():
    def reduce(calls):
        raise OSError("a cable is loose")

    with pytest.raises(errors.CommunicationError, match="OSError: a cable is loose"):
        Rank(reduce).step()


def test_a_round_that_is_made():
    rank = Rank(lambda calls: None)
    rank.step()
    assert rank.plan.info().steps == 1 and not rank.param.equal(torch.ones(8))


def test_what_a_hook_was_told_before_it_is_told_still(monkeypatch):
    """Errors that nobody can raise are for the user's hook, as ever."""
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_value))

    class Bad:
        def __del__(self):
            raise ValueError("on its way out")

    def reduce(calls):
        Bad()

    Rank(reduce).step()
    assert [str(error) for error in told] == ["on its way out"]
    assert sys.unraisablehook is not None and sys.unraisablehook.__name__ == "<lambda>"


# --- Of stepc.torch -------------------------------------------------------------


def pair():
    """Two optimizers of equal parameters."""
    made = []
    for _ in range(2):
        params = make_params(seed=3)
        made.append((params, stepc.torch.AdamW(params, lr=0.1)))
    return made


@pytest.mark.parametrize("at", [0, 2], ids=["first", "third"])
def test_a_step_that_was_made_is_noted(monkeypatch, at):
    """The interrupt is raised when the library returns: parameters and states are those of a
    step, and so is all that follows."""
    (params, ours), (others, theirs) = pair()
    watch = _trace.watch
    for step in range(5):
        set_grads(params, others, seed=step)
        theirs.step()
        if step != at:
            ours.step()
            continue
        with monkeypatch.context() as patch:
            patch.setattr(_trace, "watch", lambda plan: (watch(plan), set_interrupt(plan)))
            if ours._binding is not None:
                set_interrupt(ours._binding.plan)
            with pytest.raises(KeyboardInterrupt):
                ours.step()
        versions = [param._version for param in params]
        assert versions == [param._version for param in others]
    assert bits_equal(params, others)
    for name in ("step", "exp_avg", "exp_avg_sq"):
        assert bits_equal(states(ours, name), states(theirs, name))


def test_in_a_profiler():
    """Who is told of kernels is interrupted: as if it had come while they ran."""
    (params, ours), (others, theirs) = pair()
    poisoned = Rank(lambda calls: 1 / 0)  # is asked nothing more by whoever traces later
    with pytest.raises(errors.CommunicationError):
        poisoned.step()

    def teller(name, begin):
        raise KeyboardInterrupt

    for step in range(3):
        set_grads(params, others, seed=step)
        theirs.step()
        if step == 1:
            with pytest.raises(KeyboardInterrupt), _trace.told(teller):
                ours.step()
        else:
            ours.step()
    assert bits_equal(params, others)


def test_while_it_compiles(own_cache, fake_compiler):
    """Nothing has changed, nothing is kept, and the compiler is stopped."""
    params = make_params(seed=3)
    optimizer = stepc.torch.AdamW(params, lr=0.1)
    set_grads(params)
    fake_compiler('kill -INT "$PPID"; exec sleep 600\n')
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert time.monotonic() - begin < 60 and not optimizer.state
    assert bits_equal(params, make_params(seed=3))
    assert not [path for path in own_cache.rglob("*") if path.is_file()]
