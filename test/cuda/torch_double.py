# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch with CUDA devices that are those of the double of the driver.

Tensors of such a device are torch's, over memory of the double. While a :class:`CudaTorch`
is entered they say that they are on 'cuda:0', new ones that follow from them, or are asked
for there, lie there too, and stepc gets to see them so. Each operation of torch on them
stands for a kernel on the stream: what was enqueued before runs first. All else that
touches their memory ends the process, as device memory does not belong to the host.
"""

import bisect
import contextlib
import ctypes
import json

import torch
from double import CUDA_HOST, MEMBER, STEPC, get_manifest, make_zip, read_zip, run_checked
from stepc import _compiler
from stepc._structures import DLTensor
from stepc.torch.tensors import device_memory as _device_memory
from stepc.torch.tensors import dlpack as _tensors
from stepc.torch.tensors import host_memory as _host_memory
from stepc.torch.tensors import walk as _walk
from stepc.torch.tensors.stored import StoredState
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

CPU, CUDA = 1, 2  # of DLPack
_DEVICE = torch.Tensor.device.__get__
_WITHOUT_MEMORY = {  # what asks a tensor for what is no element of it
    "__get__", "__set__", "data_ptr", "numel", "dim", "size", "stride", "is_contiguous",
    "untyped_storage", "is_floating_point", "is_complex", "is_neg", "element_size",
}  # fmt: skip
_TO_HOST = {"cpu", "tolist", "item", "numpy"}


class Stream:
    """torch's current stream."""

    def __init__(self, cuda):
        self._cuda, self.cuda_stream = cuda, cuda.stream

    def wait_stream(self, other):
        """As an event of the other one, that has come."""
        self._cuda.double.synchronize(other.cuda_stream)
        self._cuda.waited += 1


class CudaTorch(TorchFunctionMode):
    """To be entered; ``stream`` is torch's current one, a handle of the double's."""

    def __init__(self, double, devices=1):
        super().__init__()
        self.double, self.devices = double, devices
        self.stream = 0
        self.waited = 0  # how often a stream has waited for another
        self.capturing = False
        self._begins, self._blocks = [], {}

    # --- Where tensors lie ----------------------------------------------------

    def device_of_address(self, address):
        at = bisect.bisect_right(self._begins, address) - 1
        if at >= 0:
            begin = self._begins[at]
            size, device = self._blocks[begin]
            if address < begin + size:
                return torch.device("cuda", device)
        return None

    def is_on_device(self, value):
        return isinstance(value, torch.Tensor) and self.device_of(value).type == "cuda"

    def device_of(self, tensor):
        if isinstance(tensor, StoredState):  # which has no memory
            return torch.device("meta")
        address = tensor.data_ptr() or tensor.untyped_storage().data_ptr()  # of an empty one
        return self.device_of_address(address) or torch.device("cpu")

    def place(self, tensor, device):
        """The tensor's elements in memory of a device, with its strides."""
        device = torch.device(device)
        if self.device_of(tensor) == torch.device("cuda", device.index or 0):
            return tensor
        source = tensor.detach()
        length = 1 + sum((n - 1) * s for n, s in zip(source.shape, source.stride(), strict=True))
        size = max(length, 1) * source.element_size()
        address = self.take(size, device.index or 0)
        self.adopt(address, size, device.index or 0)
        memory = (ctypes.c_uint8 * size).from_address(address)
        flat = torch.frombuffer(memory, dtype=source.dtype)
        placed = flat.as_strided(source.shape, source.stride())
        with self.opened():
            placed.copy_(source)
        return placed

    def adopt(self, address, size, device=0):
        """Knows memory of a device from now on."""
        if address not in self._blocks:
            bisect.insort(self._begins, address)
        self._blocks[address] = size, device

    def adopt_host(self, managed):
        """Memory of the host that the runtime took, which torch here has as its own."""
        tensor = DLTensor.from_address(managed)
        size = tensor.shape[0]
        self.adopt(tensor.data, size, tensor.device.device_id)
        tensor.device.device_type, tensor.device.device_id = CPU, 0
        return _device_memory.adopted(managed)

    def take(self, size, device):
        """The address of new memory of a device."""
        return self.double.take(size, device)

    def parameter(self, tensor, device="cuda:0"):
        """A parameter with the tensor's elements on a device."""
        return torch.nn.Parameter(self.place(tensor.detach().clone(), device))

    def set_grads(self, params, grads):
        for param, grad in zip(params, grads, strict=True):
            param.grad = None if grad is None else self.place(grad, self.device_of(param))

    @contextlib.contextmanager
    def opened(self):
        """As an operation of torch's on the current stream, behind all that is enqueued."""
        for device in range(self.devices):
            with self.double.context(device):
                self.double.call("cuCtxSynchronize")
        self.double.lib.cudaDoubleOpen(1)
        try:
            yield
        finally:
            self.double.lib.cudaDoubleOpen(0)

    @contextlib.contextmanager
    def capture(self):
        """A list that gets the graph; on a stream of its own, as ``torch.cuda.graph``."""
        before, self.stream = self.stream, self.double.make_stream()
        self.capturing = True
        try:
            with self.double.capture(self.stream) as graphs:
                yield graphs
        finally:
            self.capturing, self.stream = False, before

    def launch(self, graph):
        self.double.launch(graph, self.stream)

    def host(self, tensor):
        """A copy in memory of the host."""
        with self.opened():
            return tensor.detach().clone()

    # --- Operations -----------------------------------------------------------

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(function, "__name__", "")
        if function is torch.device:
            return function(*args, **kwargs)
        if function == _DEVICE:
            return self.device_of(args[0])
        leaves = tree_leaves((args, kwargs))
        sources = [self.device_of(v) for v in leaves if self.is_on_device(v)]
        if name in _WITHOUT_MEMORY and "device" not in kwargs:
            return function(*args, **kwargs)
        target, args, kwargs = _take_device(args, kwargs)
        if not sources and (target is None or target.type == "cpu"):
            return function(*args, **kwargs)
        with self.opened():
            result = function(*args, **kwargs)
        if name in _TO_HOST or (target is not None and target.type == "cpu"):
            return tree_map(self._to_host, result)
        at = target or sources[0]
        return tree_map(lambda v: self._follow(v, at), result)

    def _to_host(self, value):
        if not self.is_on_device(value):
            return value
        with self.opened():
            return value.clone()

    def _follow(self, value, device):
        if not isinstance(value, torch.Tensor) or self.is_on_device(value):
            return value
        return self.place(value, device)


def _take_device(args, kwargs):
    """The device that is asked for, or None; and the arguments as the processor's."""
    target, places = None, []
    for arg in args:
        if isinstance(arg, torch.device) or (isinstance(arg, str) and arg[:4] in ("cpu", "cuda")):
            target, arg = torch.device(arg), torch.device("cpu")
        places.append(arg)
    if kwargs.get("device") is not None:
        target = torch.device(kwargs["device"])
        kwargs = {**kwargs, "device": "cpu"}
    return target, tuple(places), kwargs


# --- What stepc sees of it ----------------------------------------------------


def patched_table(cuda, monkeypatch):
    """torch's exchange table, which gives tensors of the device their device."""
    real = _tensors.view

    @ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    def view(tensor, out):
        real(tensor, out)
        seen = DLTensor.from_address(out)
        device = cuda.device_of(tensor)
        if device.type == "cuda":
            seen.device.device_type, seen.device.device_id = CUDA, device.index
        return 0

    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = _tensors._Exchange.from_buffer_copy(
        ctypes.string_at(
            pointer(_tensors.TABLE, b"dlpack_exchange_api"), ctypes.sizeof(_tensors._Exchange)
        )
    )
    table.view = ctypes.cast(view, ctypes.c_void_p).value
    capsule = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    )(("PyCapsule_New", ctypes.pythonapi))
    cuda.kept = view, table
    name = ctypes.c_char_p(b"dlpack_exchange_api")
    cuda.kept += (name,)
    monkeypatch.setattr(_tensors, "view", view)
    monkeypatch.setattr(_tensors, "TABLE", capsule(ctypes.addressof(table), name, None))
    monkeypatch.setattr(_walk, "direct_functions", lambda: _walk._NO_DIRECT)


def compile_for_double(folder):
    """As the compiler's, for the devices of the double."""
    real = _compiler.compile_package

    def compile_package(text, name, arguments, fragments=()):
        if "--target=sm_90" not in arguments:
            return real(text, name, arguments, fragments)
        definition, stages, image = (folder / n for n in ("x.mlir", "stages", "x.so"))
        definition.write_text(text)
        sources = []
        for number, (_, source) in enumerate(fragments):
            (folder / f"{number}.mlir").write_text(source)
            sources.append(f"--fragment={folder / f'{number}.mlir'}")
        others = [a for a in arguments if not a.startswith("--target=")]
        package = folder / "x.stepc"
        run_checked(
            [STEPC, definition, *sources, *others, "--target=compute_80", "-o", package,
             f"--dump-dir={stages}"]
        )  # fmt: skip
        run_checked([CUDA_HOST, stages / "5-lower-to-cuda.mlir", image])
        members = read_zip(package)
        assert MEMBER in members, json.dumps(get_manifest(members)["code"])
        members[MEMBER] = image.read_bytes()
        return make_zip(members)

    return compile_package


def make_cuda(double, folder, cache, monkeypatch, kind=CudaTorch):
    """torch with a CUDA device, to be entered."""
    monkeypatch.setenv("STEPC_CACHE_DIR", str(cache))
    monkeypatch.setattr(_compiler, "compile_package", compile_for_double(folder))
    found = kind(double)
    found.cache = cache
    patched_table(found, monkeypatch)
    monkeypatch.setattr(_host_memory, "adopted", found.adopt_host)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream(found))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: found.capturing)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    return found
