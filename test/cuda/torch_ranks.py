# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A rank of torch.distributed whose parameters lie on a device of the double.

Process groups are Gloo's, of processes, and stand for such as NCCL makes: a collective of
tensors in memory of the host is refused, and one of a device is work on the current stream, for
which no host waits. What is begun with ``async_op`` comes onto the stream when somebody waits
for it, the latest time at which it may be done. Groups that stepc makes for the host, with Gloo,
are what they are.
"""

import contextlib
import ctypes
import inspect

import torch
import torch.distributed as dist
from stepc.torch.ranks import exchanges as _exchanges
from stepc.torch.ranks import meshes as _meshes
from stepc.torch.ranks.zero import reducer as _reducer
from stepc.torch.tensors import device_memory as _device_memory
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves
from torch_double import _WITHOUT_MEMORY, CudaTorch, _take_device

_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_COLLECTIVES = ("all_reduce", "all_to_all_single", "all_gather_single", "broadcast")
_READS = {"item", "tolist", "cpu", "numpy", "equal", "nonzero", "is_nonzero", "__bool__",
          "__float__", "__int__", "__index__"}  # fmt: skip
_QUOTIENTS = {"__truediv__", "div", "true_divide"}
_POOL = 2**22  # bytes, for what operations make in a capture
_hosts = set()  # process groups that know the memory of the host, and are kept


class Later:
    """What a collective with ``async_op`` returns."""

    def __init__(self, begin):
        self.begin = begin

    def wait(self):
        begin, self.begin = self.begin, None
        if begin is not None:
            begin()


class RankTorch(CudaTorch):
    """To be entered, once :meth:`patch` has been called.

    ``reads``: how often the host has asked for what lies on the device. ``collectives``: the
    names of those on the stream. ``failed``: what they have raised. ``failing``: the name of one
    that is to fail.
    """

    def __init__(self, double):
        super().__init__(double)
        self.reads, self.collectives, self.failed, self.failing = 0, [], [], None
        self._kept, self._depth, self._pool = [], 0, None
        self._real = {name: getattr(dist, name) for name in (*_COLLECTIVES, "new_group")}

    def patch(self, monkeypatch):
        for name in _COLLECTIVES:
            monkeypatch.setattr(dist, name, self._collective(name))
        monkeypatch.setattr(dist, "new_group", self._new_group)
        monkeypatch.setattr(dist, "all_gather_object", self._objects(dist.all_gather_object))
        monkeypatch.setattr(_exchanges, "speaks_on_host", lambda group: group in _hosts)
        monkeypatch.setattr(_meshes, "tensor_at", self._tensor_at)
        monkeypatch.setattr(_meshes, "bytes_at", self._bytes_at)
        for name in ("_take", "_end_pass"):
            hook = getattr(_reducer.GradientReducer, name)
            monkeypatch.setattr(_reducer.GradientReducer, name, self._hook(hook))
        monkeypatch.setattr(DTensor, "redistribute", self._redistribute(DTensor.redistribute))

    # --- Where tensors lie ----------------------------------------------------

    def device_of(self, tensor):
        return super().device_of(getattr(tensor, "_local_tensor", tensor))

    def _follow(self, value, device):
        local = getattr(value, "_local_tensor", None)
        if local is None:
            return super()._follow(value, device)
        if not self.is_on_device(local):
            value._local_tensor = self.place(local, device)
        return value

    def _tensor_at(self, address, count, dtype, device):
        """Memory of the engine's."""
        assert device.type == "cuda"
        self.adopt(address, dtype.itemsize * count)
        return _device_memory.tensor_at(address, count, dtype, torch.device("cpu"))

    def _bytes_at(self, address, count, device):
        if not count:
            return self.place(torch.empty(0, dtype=torch.uint8, device="cpu"), device)
        return self._tensor_at(address, count, torch.uint8, device)

    # --- Work on the stream ---------------------------------------------------

    @contextlib.contextmanager
    def opened(self):
        """Operations may be within another: of hooks in a backward pass."""
        if not self.capturing:
            with self.double.context(0):
                self.double.call("cuCtxSynchronize")
        self._depth += 1
        self.double.lib.cudaDoubleOpen(1)
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.double.lib.cudaDoubleOpen(0)

    def enqueue(self, work):
        def run(_):
            try:
                with torch._C.DisableTorchFunction(), torch.no_grad():
                    work()
            except BaseException as error:
                self.failed.append(error)

        callback = _CALL(run)
        self._kept.append(callback)
        with self.double.context(0):
            self.double.call("cudaDoubleEnqueue", ctypes.c_void_p(self.stream), callback, None)

    def take(self, size, device):
        if not self.capturing:
            return super().take(size, device)
        address = self._pool
        self._pool += -(-size // 64) * 64
        return address

    @contextlib.contextmanager
    def capture(self):
        with self.opened():
            pass
        self._pool = super().take(_POOL, 0)
        with super().capture() as graphs:
            yield graphs

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        leaves = tree_leaves((args, kwargs))
        self.reads += name in _READS and any(map(self.is_on_device, leaves))
        if name in _QUOTIENTS and isinstance(args[1], int | float) and self.is_on_device(args[0]):
            # So does CUDA, which rounds otherwise than a quotient.
            reciprocal = torch.tensor(1.0, dtype=torch.float32) / args[1]
            function, args = torch.Tensor.mul, (args[0], float(reciprocal))
        if not self.capturing or name in _WITHOUT_MEMORY:
            return super().__torch_function__(function, types, args, kwargs)
        return self._captured(function, types, args, kwargs)

    def _captured(self, function, types, args, kwargs):
        """An operation in a graph: it is done when that is launched."""
        with self.opened():
            blocks = {a: ctypes.string_at(a, size) for a, (size, _) in self._blocks.items()}
        begin = self._pool
        result = super().__torch_function__(function, types, args, kwargs)
        if not any(map(self.is_on_device, tree_leaves((args, kwargs, result)))):
            return result
        with self.opened():
            for address, content in blocks.items():
                ctypes.memmove(address, content, len(content))
        _, args, kwargs = _take_device(args, dict(kwargs or {}))

        def work():
            again = function(*args, **kwargs)
            for made, value in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if isinstance(made, torch.Tensor) and begin <= made.data_ptr() < self._pool:
                    made.copy_(value)

        self.enqueue(work)
        return result

    def _hook(self, hook):
        """Of a backward pass, whose operations are none of this mode's."""

        def run(reducer, *params):
            with torch._C._EnableTorchFunction():
                for param in params:
                    param.grad = self.place(param.grad, "cuda:0")
                return hook(reducer, *params)

        return run

    def _redistribute(self, real):
        """Of a DTensor, one operation."""

        def redistribute(tensor, *args, **kwargs):
            on_device = self.is_on_device(tensor)
            with self.opened(), torch._C.DisableTorchFunction():
                result = real(tensor, *args, **kwargs)
                own = result._local_tensor
                result._local_tensor = own.wait() if hasattr(own, "wait") else own
            return self._follow(result, torch.device("cuda", 0)) if on_device else result

        return redistribute

    # --- Collectives ----------------------------------------------------------

    def _collective(self, name):
        signature = inspect.signature(self._real[name])

        def call(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            group = bound.arguments["group"] or dist.group.WORLD
            tensors = [v for v in bound.arguments.values() if isinstance(v, torch.Tensor)]
            on_host = group in _hosts
            for tensor in tensors:
                if self.is_on_device(tensor) == on_host:
                    kind = self.device_of(tensor).type
                    raise RuntimeError(f"No backend type associated with device type {kind}")
            if on_host:
                return self._real[name](*args, **kwargs)
            if self.failing == name:
                raise RuntimeError("a cable is loose")
            self.collectives.append(name)
            ranks = tuple(dist.get_process_group_ranks(group))
            bound.arguments["group"] = _exchanges._group_of("twin", ranks, group, backend="gloo")
            asynchronous, bound.arguments["async_op"] = bound.arguments["async_op"], False
            work = Later(
                lambda: self.enqueue(lambda: self._real[name](*bound.args, **bound.kwargs))
            )
            if asynchronous:
                return work
            return work.wait()

        return call

    def _new_group(self, *args, **kwargs):
        group = self._real["new_group"](*args, **kwargs)
        if kwargs.get("backend") == "gloo":
            _hosts.add(group)
        return group

    def _objects(self, real):
        def call(objects, value, group=None):
            assert group in _hosts, "objects through a group of devices"
            return real(objects, value, group=group)

        return call
