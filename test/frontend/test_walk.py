# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The three ways in which parameters and gradients are re-read: torch's functions
by address, Python objects in the extension, and Python."""

import functools
import gc
import os
import subprocess
import sys
import warnings
import weakref

import pytest
import stepc.torch
import torch
from common import bits_equal, clone_params, each_way, make_params, needs_table, set_grads, train
from stepc.torch.tensors import dlpack as _tensors
from stepc.torch.tensors import walk as _walk


@needs_table
def test_extension_is_built():
    assert _walk.load_extension() is not None
    assert all(_walk.direct_functions())


@each_way
def test_ways_agree(way):
    ours, twin = make_params(), make_params()
    a = stepc.torch.AdamW(ours)
    b = torch.optim.AdamW(twin)
    assert bits_equal(ours, twin)
    for step in range(6):
        set_grads(ours, twin, seed=step)
        ours[step].grad = twin[step].grad = None
        if step == 4:
            ours[5].data = ours[5].data.clone()
        a.step()
        b.step()
    assert (type(a._binding._walk) is _walk.PyWalk) == (way == "python")
    assert all(a.state[p]["step"] == b.state[q]["step"] for p, q in zip(ours, twin, strict=True))
    reference = make_params()
    c = stepc.torch.AdamW(reference)
    for step in range(6):
        set_grads(reference, seed=step)
        reference[step].grad = None
        c.step()
    assert bits_equal(ours, reference)


@each_way
def test_own_grad_property(way):
    """A subclass of Parameter that computes its gradient."""

    class Doubled(torch.nn.Parameter):
        @property
        def grad(self):
            plain = _tensors.GRAD.__get__(self)
            return None if plain is None else plain * 2

        @grad.setter
        def grad(self, value):
            _tensors.GRAD.__set__(self, value)

    p = Doubled(torch.zeros(3))
    assert not _tensors.has_plain_grad(p) and _tensors.is_ordinary(p)
    optimizer = stepc.torch.SGD([p], lr=1.0)
    for _ in range(2):
        p.grad = torch.ones(3)
        optimizer.step()
    assert p.detach().equal(torch.full((3,), -4.0))


@each_way
def test_references_are_given_back(way):
    params = make_params([(3,), (4,)])
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 3)
    param, grad = params[0], params[0].grad
    before = sys.getrefcount(param), sys.getrefcount(grad)
    for _ in range(50):
        optimizer.step()
    assert (sys.getrefcount(param), sys.getrefcount(grad)) == before
    assert sys.getrefcount(None) < 2**31  # immortal or not, not run down
    old = weakref.ref(grad)
    del grad
    set_grads(params)
    assert old() is None  # no gradient is kept alive


@each_way
def test_optimizer_is_freed(way):
    params = make_params([(3,), (4,)])
    optimizer = stepc.torch.AdamW(params)
    train((optimizer,), (params,), 2)
    seen = weakref.ref(optimizer), weakref.ref(params[0])
    del optimizer, params
    gc.collect()
    assert [ref() for ref in seen] == [None, None]


@each_way
def test_lists_that_change_length(way):
    params = make_params([(3,), (4,), (5,)])
    twin = clone_params(params)
    a, b = stepc.torch.AdamW(params), stepc.torch.AdamW(twin)
    train((a, b), (params, twin), 2)
    for optimizer in (a, b):
        optimizer.param_groups[0]["params"].pop()
    gone = params[2].detach().clone()
    train((a, b), (params, twin), 2)
    assert params[2].detach().equal(gone)
    assert bits_equal(params, twin)


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


PYTHON_GRADIENTS = """
import torch
from torch.utils._pytree import tree_map
import stepc.torch

class Wrapped(torch.Tensor):  # answers for its shape and device in Python
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy="sizes",
            dispatch_device=True)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.prim.device.default:
            return torch.device("cpu")
        bare = lambda value: value.inner if isinstance(value, Wrapped) else value
        args, kwargs = tree_map(bare, (args, kwargs or {}))
        return function(*args, **kwargs)

torch.set_num_threads(4)
params = [torch.nn.Parameter(torch.zeros(3)) for _ in range(6000)]
for param in params:
    param.grad = torch.ones(3)
optimizer = stepc.torch.AdamW(params)
optimizer.step()
walk = optimizer._binding._walk
for param in params[1::2]:
    param.grad = Wrapped(param.grad)
print(walk.refresh(True) == list(range(1, 6000, 2)))
"""


def test_gradients_that_run_python_code_are_read_by_one_thread():
    """Others would wait for the interpreter's lock, and its holder for them."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", PYTHON_GRADIENTS], env=env, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert run.stdout == "True\n", run.stderr[-2000:]


@each_way
@pytest.mark.usefixtures("four_threads")
def test_so_many_that_threads_share_them(way):
    """Parameters and gradients that move, come, go and turn, as where one thread looks at them."""
    shapes = [(3,), (2, 4), (5, 2)] * 2000
    ours = make_params(shapes)
    twin = clone_params(ours)
    whole = stepc.torch.AdamW(ours)
    halves = [stepc.torch.AdamW(twin[:3000]), stepc.torch.AdamW(twin[3000:])]
    binding = None
    for step in range(5):
        for params in (ours, twin):
            set_grads(params, seed=step)
            for at in range(step, len(params), 7 + step):
                params[at].grad = None
            if step == 2:
                for at in range(5, len(params), 900):
                    params[at].grad = params[at].grad.t().contiguous().t()
            if step == 3:
                for at in range(0, len(params), 800):
                    params[at].data = params[at].data.clone()
        whole.step()
        for half in halves:
            half.step()
        assert step < 2 or whole._binding is binding
        binding = whole._binding
    assert binding.plan.info().numTensors == 6000
    steps = [float(whole.state[p]["step"]) for p in ours]
    assert steps == [float(o.state[p]["step"]) for o in halves for p in o.param_groups[0]["params"]]
    assert {3.0, 4.0, 5.0} <= set(steps)
    assert bits_equal(ours, twin)


@needs_table
def test_extension_refuses_nonsense():
    walk = _walk.load_extension().Walk
    params = make_params([(3,)])
    good = [(params,), tuple(params), b"\1", _tensors.TABLE, _tensors.GRAD, 0, 0, 0, 0, 0]
    made = walk(*good, _walk._NO_DIRECT)
    with pytest.raises(IndexError, match="no such parameter"):
        made.set_id(1, 0, True)
    with pytest.raises(ValueError, match="one flag a parameter"):
        walk(*good[:2], b"", *good[3:], _walk._NO_DIRECT)
    with pytest.raises(ValueError, match="dlpack_exchange_api|PyCapsule"):
        walk(*good[:3], object(), *good[4:], _walk._NO_DIRECT)
    with pytest.raises(TypeError, match="descriptor"):
        walk(*good[:4], 3, *good[5:], _walk._NO_DIRECT)


@needs_table
def test_direct_functions_can_be_forbidden(monkeypatch):
    asked = _walk.direct_functions.__wrapped__
    assert all(asked())
    monkeypatch.setenv("STEPC_DIRECT", "0")
    assert asked() == _walk._NO_DIRECT


@needs_table
def test_direct_functions_are_tried_before_use():
    """Each of them, replaced by one that does something else."""
    import ctypes

    view, grad, bump, own, disown, *_ = _walk.direct_functions()
    right_own = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(own)
    right_disown = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(disown)
    owners = right_own, right_disown
    nothing = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda handle: 0)

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def borrow(slot, handle):
        handle[0] = slot
        return 0

    viewing = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_bool)
    wrong_view = viewing(lambda slot, out, read_only: None)
    wrong_bump = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda slot: None)
    right_view = viewing(view)
    right_grad = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(grad)
    right_bump = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(bump)
    elsewhere = right_grad(torch.zeros(1)._cdata)
    wrong_grad = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda impl: elsewhere)
    assert all(_walk._verified(right_view, right_grad, right_bump, *owners))
    assert _walk._verified(wrong_view, right_grad, right_bump, *owners) == _walk._NO_DIRECT
    assert _walk._verified(right_view, wrong_grad, right_bump, *owners) == _walk._NO_DIRECT
    assert _walk._verified(right_view, right_grad, wrong_bump, *owners) == _walk._NO_DIRECT
    rights = right_view, right_grad, right_bump
    assert _walk._verified(*rights, borrow, nothing) == _walk._NO_DIRECT
    assert _walk._verified(*rights, right_own, nothing) == _walk._NO_DIRECT


@each_way
def test_inference_tensors(way):
    """They have no version counter to bump."""
    with torch.inference_mode():
        p = torch.ones(3)
        p.grad = torch.ones(3)
    optimizer = stepc.torch.SGD([p], lr=1.0)
    optimizer.step()
    assert p.equal(torch.zeros(3))


def test_missing_extension_is_said_once(monkeypatch, tmp_path):
    monkeypatch.setattr(_walk, "_candidates", lambda: (tmp_path / "none.so",))
    monkeypatch.setattr(_walk, "load_extension", functools.cache(_walk.load_extension.__wrapped__))
    params = make_params()
    with pytest.warns(RuntimeWarning, match="do without the extension.*not built") as caught:
        for _ in range(2):
            train((stepc.torch.AdamW(params),), (params,), 1)
    assert len([w for w in caught if "extension" in str(w.message)]) == 1
    assert stepc.torch.info()["reading"] == "python"


@pytest.mark.parametrize("what", ["_INTERFACE", "library"])
def test_extension_that_does_not_fit(monkeypatch, what):
    if what == "library":
        other = type("Library", (), {"stepcVersion": lambda self: 7})()
        monkeypatch.setattr(_walk._library, "load_library", lambda: other)
    else:
        monkeypatch.setattr(_walk, what, 99)
    with pytest.warns(RuntimeWarning, match="cannot be used: it .*(interface|runtime)"):
        assert _walk.load_extension.__wrapped__() is None


def test_no_extension_wanted(monkeypatch):
    monkeypatch.setenv("STEPC_EXTENSION", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _walk.load_extension.__wrapped__() is None


def test_info(monkeypatch):
    found = stepc.torch.info()
    assert found["reading"] == _walk.way() and found["runtime_version"] == "0.1"
    assert found["compiler"] and found["runtime"] and found["cache"]
    monkeypatch.setenv("STEPC_COMPILER", "/nonexistent")
    monkeypatch.setenv("STEPC_RUNTIME_LIBRARY", "/nonexistent")
    found = stepc.torch.info()
    assert found["compiler"] is found["runtime"] is found["reading"] is None


@needs_table
@pytest.mark.parametrize("name", ["toDLPackNonOwning", "bump_version", "TensorImpl4grad", "aoti"])
def test_direct_functions_are_all_there(monkeypatch, name):
    """A release that lacks one of them, or has it for other arguments, is read by objects."""
    real = _walk.ctypes.CDLL

    class Library:
        def __init__(self, path):
            self._real = real(path)

        def __getattr__(self, wanted):
            if name in wanted:
                raise AttributeError(wanted)
            return getattr(self._real, wanted)

    monkeypatch.setattr(_walk.ctypes, "CDLL", Library)
    assert _walk.direct_functions.__wrapped__() == _walk._NO_DIRECT
