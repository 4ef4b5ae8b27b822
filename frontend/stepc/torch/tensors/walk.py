# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The extension that re-reads all parameters and gradients in one call, and the
same in Python for where it is not built.

The extension can call some of torch's functions by address, which costs a
third of the way through Python objects. They have no stable interface, so that
is done only where each of them is there, by its name with the types of its
arguments, and gives the right answer for a probe. Releases of torch without
DLPack's exchange table have neither way and are read in Python.
``STEPC_DIRECT=0`` forbids the functions by address; ``STEPC_EXTENSION=0`` the
extension.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import importlib.util
import os
import warnings
from pathlib import Path

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ... import _library, _runtime, _structures, errors
from . import dlpack as _tensors
from .probes import apart, word

_MODULE = "_stepc_walk"
_FILE = f"{_MODULE}.abi3.so"
_INTERFACE = 4  # of the extension
_NO_DIRECT = (0,) * 12
# at::toDLPackNonOwning: of releases before 2.15, and with their last argument, whether the memory
# is only read. Those without it find it in a register that they do not look at.
_VIEWS = (
    "_ZN2at17toDLPackNonOwningERKNS_6TensorEP8DLTensor",
    "_ZN2at17toDLPackNonOwningERKNS_6TensorEP8DLTensorb",
)


def walk(lists: tuple[list, ...], plan: _runtime.Plan):
    """A Walk over the groups' parameter lists (see ``_ext/walk.c``)."""
    extension = load_extension()
    if extension is None or _tensors.TABLE is None:
        return PyWalk(lists, plan)
    params = tuple(param for group in lists for param in group)
    library = _library.load_library()
    return extension.Walk(
        lists,
        params,
        bytes(map(_tensors.has_plain_grad, params)),
        _tensors.TABLE,
        _tensors.GRAD,
        plan.address,
        _library.address_of(library.stepcPlanSetParam),
        _library.address_of(library.stepcPlanSetGrad),
        _library.address_of(library.stepcPlanMoveGrad),
        _library.address_of(library.stepcLimitTeam),
        direct_functions(),
    )


# --- The extension ------------------------------------------------------------


@functools.cache
def load_extension():
    """The extension's module, or None: beside the package, or in the build tree.
    Where it is missing or does not fit, one warning."""
    if os.environ.get("STEPC_EXTENSION") == "0":
        return None
    why = "it is not built"
    for path in _candidates():
        if not path.is_file():
            continue
        try:
            return _load(path)
        except (ImportError, AttributeError) as error:
            why = f"'{path}' cannot be used: {error}"
    warnings.warn(
        f"stepc: steps do without the extension {_MODULE}, some microseconds slower for each "
        f"parameter: {why} (STEPC_EXTENSION=0 does without and says nothing)",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _candidates() -> tuple[Path, ...]:
    package = Path(__file__).resolve().parents[2]
    library = _library.candidate_libraries()[0].parent
    folders = (package, library, package.parents[1] / "build" / "lib")
    return tuple(folder / _FILE for folder in folders)


def _load(path: Path):
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, str(path))
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    if module.INTERFACE != _INTERFACE:
        raise ImportError(f"it has interface {module.INTERFACE}, expected {_INTERFACE}")
    version = _library.load_library().stepcVersion()
    if version != module.LIBRARY_VERSION:
        raise ImportError(f"it is for runtime {module.LIBRARY_VERSION}, the library is {version}")
    return module


def way() -> str:
    """How parameters and gradients are re-read: "direct", "objects" or "python"."""
    if load_extension() is None or _tensors.TABLE is None:
        return "python"
    return "direct" if direct_functions()[0] else "objects"


@functools.cache
def direct_functions() -> tuple[int, ...]:
    """The members of StepcDirect; all zero where they must not be used."""
    if os.environ.get("STEPC_DIRECT") == "0":
        return _NO_DIRECT
    folder = Path(torch.__file__).parent / "lib"
    try:
        cpu = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
        c10 = ctypes.CDLL(str(folder / "libc10.so"))
        view = _first(cpu, _VIEWS)
        bump = cpu._ZN5torch8autograd4impl12bump_versionERKN2at6TensorE
        grad = c10._ZNK3c1010TensorImpl4gradEv
        own = cpu.aoti_torch_new_tensor_handle
        disown = cpu.aoti_torch_delete_tensor_object
    except (OSError, AttributeError):
        return _NO_DIRECT
    own.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
    disown.argtypes = [ctypes.c_void_p]
    view.argtypes = [ctypes.c_void_p, ctypes.POINTER(_structures.DLTensor), ctypes.c_bool]
    bump.argtypes = [ctypes.c_void_p]
    view.restype = bump.restype = None
    grad.argtypes = [ctypes.c_void_p]
    grad.restype = ctypes.c_void_p
    return apart(functools.partial(_verified, view, grad, bump, own, disown))


def _first(library: ctypes.CDLL, names: tuple[str, ...]):
    """The first function of these that the library has; AttributeError where it has none."""
    for name in names[:-1]:
        with contextlib.suppress(AttributeError):
            return getattr(library, name)
    return getattr(library, names[-1])


def _slot_offset(tensor: torch.Tensor) -> int:
    """Where a tensor's Python object keeps its implementation's address."""
    start = object.__basicsize__
    for offset in range(start, type(tensor).__basicsize__ - 7, 8):
        if word(id(tensor) + offset) == tensor._cdata:
            return offset
    return 0


def _memory_offsets() -> tuple[int, int, int]:
    """Where an implementation keeps its storage and its offset into it, and a
    storage its memory's address; all zero where that is not certain."""
    probe = torch.frombuffer(bytearray(4096), dtype=torch.uint8)[1237:1240]
    whole = probe.untyped_storage()

    def places(base: int, size: int, value: int) -> list[int]:
        return [at for at in range(0, size, 8) if word(base + at) == value]

    found = (
        places(probe._cdata, 64, whole._cdata),
        places(probe._cdata, 192, 1237),
        places(whole._cdata, 64, whole.data_ptr()),
    )
    if any(len(at) != 1 for at in found):
        return (0, 0, 0)
    return tuple(at[0] for at in found)


def _plain_keys() -> tuple[int, int]:
    """Where an implementation keeps its set of dispatch keys, and that set of a dense tensor
    in the processor's memory; both zero where that is not certain."""
    plain, meta = (torch.empty(1, dtype=torch.float32, device=d) for d in ("cpu", "meta"))
    with torch.inference_mode():
        other = torch.empty_like(plain)
    kinds = plain, torch.nn.Parameter(plain), meta, other
    places = set(range(0, 192, 8))
    sets = []
    for kind in kinds:
        try:
            sets.append(torch._C._dispatch_keys(kind).raw_repr())
        except AttributeError:
            return (0, 0)
        places &= {at for at in places if word(kind._cdata + at) == sets[-1]}
    if len(places) != 1 or sets[0] != sets[1] or sets[0] in sets[2:]:
        return (0, 0)
    return places.pop(), sets[0]


def _owns(own, disown, offset: int) -> bool:
    """Whether ``own`` has a tensor live on, until ``disown``."""
    probe = torch.zeros(4, dtype=torch.float32, device="cpu")
    handle, storage = ctypes.c_void_p(), StorageWeakRef(probe.untyped_storage())
    if own(id(probe) + offset, ctypes.byref(handle)) or word(handle.value) != probe._cdata:
        return False
    del probe
    lives = not storage.expired()
    disown(handle)
    return lives and storage.expired()


def _verified(view, grad, bump, own, disown) -> tuple[int, ...]:
    """The functions' addresses, if each is right about a probe."""
    plain = {"dtype": torch.float32, "device": "cpu"}
    probe = torch.nn.Parameter(torch.arange(6, **plain).view(2, 3).t())
    offset = _slot_offset(probe)
    if not offset or offset != _slot_offset(torch.zeros(1, dtype=torch.bfloat16, device="cpu")):
        return _NO_DIRECT
    undefined = word(grad(probe._cdata))
    gradient = torch.zeros(2, 3, **plain).t()
    probe.grad = gradient
    seen, expected = _structures.DLTensor(), _tensors.describe([probe])[0]
    view(id(probe) + offset, ctypes.byref(seen), False)
    version = probe._version
    bump(id(probe) + offset)
    right = (
        word(grad(probe._cdata)) == gradient._cdata
        and undefined != gradient._cdata
        and undefined == word(grad(gradient._cdata))
        and bytes(seen) == bytes(expected)
        and probe._version == version + 1
        and _owns(own, disown, offset)
    )
    if not right:
        return _NO_DIRECT
    address = _library.address_of
    addresses = [address(function) for function in (view, grad, bump, own, disown)]
    return (*addresses, undefined, offset, *_memory_offsets(), *_plain_keys())


# --- The same in Python -------------------------------------------------------


class PyWalk:
    """As the extension's Walk, a microsecond or two a tensor."""

    def __init__(self, lists: tuple[list, ...], plan: _runtime.Plan):
        self._lists = lists
        self._params = tuple(param for group in lists for param in group)
        self._plan = plan
        self._ids = [-1] * len(self._params)
        self._live = [False] * len(self._params)
        self._watched = []  # tensors whose memory the plan writes, where they were
        self._held = []  # gradients, for one step

    def set_id(self, index: int, tensor: int, live: bool) -> None:
        self._ids[index] = tensor
        self._live[index] = live

    def watch(self, tensors: list[torch.Tensor]) -> None:
        self._watched += [(tensor, tensor.data_ptr()) for tensor in tensors]

    def moved(self) -> bool:
        return any(tensor.data_ptr() != place for tensor, place in self._watched)

    def waking(self) -> list[int]:
        unbound = (i for i, tensor in enumerate(self._ids) if tensor < 0)
        return [i for i in unbound if self._params[i].grad is not None]

    def _lists_are_same(self) -> bool:
        if sum(map(len, self._lists)) != len(self._params):
            return False
        now = (param for group in self._lists for param in group)
        return all(a is b for a, b in zip(now, self._params, strict=True))

    def refresh(self, hold: bool):
        if not self._lists_are_same():
            return False
        self.forget()
        attention = [i for i in range(len(self._params)) if not self._refresh_one(i)]
        return attention or None

    def _refresh_one(self, index: int) -> bool:
        param = self._params[index]
        grad = param.grad
        tensor = self._ids[index]
        self._live[index] = grad is not None
        if tensor < 0:
            return grad is None
        try:
            if grad is None:
                self._plan.set_grad(tensor, None)
            else:
                self._plan.set_param(tensor, _tensors.describe([param])[0])
                self._plan.set_grad(tensor, _tensors.describe([grad])[0])
                self._held.append(grad)
        except (errors.StatusError, BufferError, RuntimeError):
            return False
        return True

    def bump(self) -> bool:
        self.forget()
        return False

    def forget(self) -> None:
        self._held.clear()

    def live(self) -> list[torch.Tensor]:
        return [p for p, live in zip(self._params, self._live, strict=True) if live]
