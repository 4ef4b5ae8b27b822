# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages and plans of ``stepc/stepc.h``.

:class:`Package` and :class:`Plan` own a handle each. Calls that are refused
raise an exception of :mod:`stepc.errors` with the runtime's own words.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterable, Sequence
from ctypes import (
    byref,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
)
from typing import NamedTuple

from . import _callbacks, _trace, errors
from ._codes import FORMATS
from ._library import check, load_library
from ._mesh import Entry, Layout, Mesh
from ._store import Store
from ._structures import (
    DATA_TYPES,
    Binding,
    CudaConfig,
    DLDevice,
    DLTensor,
    LastStep,
    Option,
    PlanConfig,
    PlanInfo,
)

# --- Packages -----------------------------------------------------------------


class Package:
    """A loaded package. ``manifest`` is its manifest as a dict, ``text`` as it stands there."""

    def __init__(self, handle: c_void_p, lib: ctypes.CDLL):
        self._lib = lib
        self._handle = handle
        text, size = c_void_p(), c_size_t()
        check(lib, lib.stepcPackageManifest(handle, byref(text), byref(size)))
        self.text = ctypes.string_at(text.value, size.value)
        self.manifest = json.loads(self.text)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "<memory>") -> Package:
        """Loads the bytes of a package; raises PackageError. ``name``: the file
        they came from, for messages."""
        lib, handle = load_library(), c_void_p()
        try:
            check(lib, lib.stepcPackageLoadBytes(data, len(data), byref(handle)))
        except errors.StatusError as error:
            raise type(error)(str(error).replace("<memory>", name), error.status) from None
        return cls(handle, lib)

    @property
    def handle(self) -> c_void_p:
        return self._handle

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.stepcPackageDestroy(self._handle)
            self._handle = None


# --- Plans --------------------------------------------------------------------


class Whole(NamedTuple):
    """A tensor that ranks have whole around a step. ``storage``: as in :data:`DATA_TYPES`;
    ``coded``: whether states of it are kept as codes, whose blocks are not cut."""

    name: str
    shape: tuple[int, ...]
    storage: str
    layout: Layout
    entry: Entry
    coded: bool = False


class Cut(NamedTuple):
    """What a rank steps of a tensor, elements [begin, end) in row-major order, and the number of
    the bucket with which it crosses ranks."""

    begin: int
    end: int
    bucket: int


# Blocks lie in one way in all formats.
_CODED = c_int32(FORMATS["q8"].number)
# Of memory that nobody reads.
_SOME_ADDRESS = 64


def cuts_of(
    mesh: Mesh,
    tensors: Sequence[Whole],
    ranks: Iterable[int],
    gradient_bytes: int = 0,
    parameter_bytes: int = 0,
) -> list[list[Cut]]:
    """For each of these ranks of the mesh what it steps, where the tensors are bound by one call
    of a plan with these buckets; 0: the runtime's own."""
    lib, size = load_library(), len(tensors)
    bindings, keep = (Binding * max(size, 1))(), []
    for own, binding in zip(tensors, bindings, strict=False):
        shape = (c_int64 * max(len(own.shape), 1))(*own.shape)
        param = DLTensor(
            _SOME_ADDRESS, DLDevice(1, 0), len(own.shape), DATA_TYPES[own.storage], shape
        )
        layout, entry = own.layout.struct(mesh), own.entry.struct(mesh)
        keep.append((param, layout, entry))
        binding.structSize = ctypes.sizeof(Binding)
        binding.name, binding.gradDtype = own.name.encode(), param.dtype
        binding.param, binding.layout, binding.entry = map(ctypes.addressof, (param, layout, entry))
        if own.coded:
            binding.numStates, binding.formats = 1, ctypes.addressof(_CODED)
    found, numbers = [], [(c_int64 * max(size, 1))() for _ in Cut._fields]
    for rank in ranks:
        axes = mesh.struct(rank)
        status = lib.stepcGetParts(
            axes, len(axes), bindings, size, gradient_bytes, parameter_bytes, *numbers
        )
        check(lib, status)
        found.append(list(map(Cut, *(own[:size] for own in numbers))))
    return found


class Plan:
    """Parameter groups and bound tensors of one package.

    Binds what it is told to bind; keeping the tensors' memory alive is up to
    the caller. ``threads`` 0 follows OpenMP, whose pool is torch's too.
    """

    # What the library calls must outlive the plan.
    _communicator: ctypes.Structure | None = None
    _trace: ctypes._CFuncPtr | None = None
    #: Gives memory of the device back that nobody uses; None: there is none such.
    make_room: Callable[[], None] | None = None

    def __init__(self, package: Package, threads: int = 0, huge_pages: bool = False):
        self._lib = package._lib
        self._handle = c_void_p()
        config = PlanConfig(ctypes.sizeof(PlanConfig), threads, int(huge_pages), 0)
        check(
            self._lib,
            self._lib.stepcPlanCreate(package.handle, byref(config), byref(self._handle)),
        )
        self._step = self._lib.stepcStep
        _trace.watch(self)

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.stepcPlanDestroy(self._handle)
            self._handle = None

    @property
    def address(self) -> int:
        return self._handle.value

    def _taking_memory(self, function, *arguments) -> None:
        """A call that changes nothing where memory is missing: it is made once more when there
        is room."""
        try:
            check(self._lib, function(self._handle, *arguments))
        except errors.OutOfMemoryError:
            if self.make_room is None:
                raise
            self.make_room()
            check(self._lib, function(self._handle, *arguments))

    def add_group(self, options: dict[str, int], hypers: tuple[float, ...]) -> int:
        """Adds a group with the hyper-parameters in the manifest's order."""
        named = (Option * max(len(options), 1))()
        for slot, (name, value) in zip(named, options.items(), strict=False):
            slot.name, slot.value = name.encode(), int(value)
        values = (c_double * max(len(hypers), 1))(*hypers)
        group = c_int64()
        self._taking_memory(
            self._lib.stepcPlanAddGroup, named, len(options), values, len(hypers), byref(group)
        )
        return group.value

    def set_hypers(self, group: int, hypers: tuple[float, ...]) -> None:
        """From the next step on; NeedsBindError where a derived option changes."""
        values = (c_double * max(len(hypers), 1))(*hypers)
        check(self._lib, self._lib.stepcPlanSetHypers(self._handle, group, values, len(hypers)))

    def set_mesh(self, axes: ctypes.Array, communicator: ctypes.Structure | None) -> None:
        """Says where among the ranks this one is, before anything is bound; an array of
        :class:`stepc._mesh.Axis`. What the communicator's context is must outlive the plan."""
        pointer = None if communicator is None else ctypes.addressof(communicator)
        self._taking_memory(self._lib.stepcPlanSetMesh, ctypes.addressof(axes), len(axes), pointer)
        self._communicator = communicator

    def set_cuda(self, device: int, stream: int = 0, context: int = 0) -> None:
        """Says, before anything is bound, that the tensors are in memory of a CUDA device.

        Steps are enqueued on the stream (a ``CUstream``; 0: the default one) of the
        context (0: the primary one). Raises DeviceError where there is no driver,
        PackageError where the package has no code for the device.
        """
        config = CudaConfig(ctypes.sizeof(CudaConfig), device, 0, context, stream)
        self._taking_memory(self._lib.stepcPlanSetCuda, byref(config))

    def set_stream(self, stream: int) -> None:
        """The stream of the steps from now on."""
        check(self._lib, self._lib.stepcPlanSetStream(self._handle, stream))

    def set_trace(self, function: ctypes._CFuncPtr | None) -> None:
        """Has steps call a ``StepcTrace`` around each kernel that the calling thread runs;
        None: no more. BusyError where a step is under way."""
        check(self._lib, self._lib.stepcPlanSetTrace(self._handle, function, None))
        self._trace = function

    def upload(self) -> None:
        """Enqueues what has changed since the last step, for graphs of steps."""
        check(self._lib, self._lib.stepcPlanUpload(self._handle))

    def set_store(self, store: Store) -> None:
        """Says in which store states may lie, before anything is bound."""
        check(self._lib, self._lib.stepcPlanSetStore(self._handle, store.handle))

    def set_buckets(
        self, gradient_bytes: int = 0, parameter_bytes: int = 0, under_way: int = 0
    ) -> None:
        """How much crosses ranks at a time, before anything is bound: bytes of gradients, as
        they cross, and of parameters; 0: 25 MiB. ``under_way``: how many buckets; 0: 4."""
        function = self._lib.stepcPlanSetBuckets
        self._taking_memory(function, gradient_bytes, parameter_bytes, under_way)

    def bind(self, bindings: ctypes.Array) -> list[int]:
        """Binds an array of :class:`Binding`; returns the tensors' ids."""
        for binding in bindings:
            binding.structSize = ctypes.sizeof(Binding)
        ids = (c_int64 * max(len(bindings), 1))()
        self._taking_memory(self._lib.stepcPlanBind, bindings, len(bindings), ids)
        return list(ids[: len(bindings)])

    def set_grad(self, tensor: int, grad: DLTensor | None) -> None:
        pointer = None if grad is None else byref(grad)
        check(self._lib, self._lib.stepcPlanSetGrad(self._handle, tensor, pointer))

    def set_param(self, tensor: int, param: DLTensor) -> None:
        check(self._lib, self._lib.stepcPlanSetParam(self._handle, tensor, byref(param)))

    def parameters_written(self) -> None:
        """Tells that others than steps have written parameters or states."""
        check(self._lib, self._lib.stepcPlanParametersWritten(self._handle))

    @property
    def calls_back(self) -> bool:
        """Whether a step calls functions of Python: of a communicator or a trace."""
        return self._communicator is not None or self._trace is not None

    def step(self) -> None:
        """One step of all tensors that have a gradient; releases the GIL."""
        if self.calls_back:
            self._calling_back(self._step)
            return
        status = self._step(self._handle)
        if status:
            check(self._lib, status)

    def _calling_back(self, function, *arguments) -> None:
        """A call from which the library may call functions of Python."""
        with _callbacks.held_back():
            check(self._lib, function(self._handle, *arguments))

    def step_begin(self) -> None:
        """Begins a step whose tensors come in parts."""
        self._calling_back(self._lib.stepcStepBegin)

    def step_tensors(self, tensors: Sequence[int]) -> None:
        """Steps tensors that have a gradient, each at most once until the end.

        StatusError where the definition needs all gradients at once.
        """
        ids = (c_int64 * max(len(tensors), 1))(*tensors)
        self._calling_back(self._lib.stepcStepTensors, ids, len(tensors))

    def grad_ready(self, tensors: Sequence[int]) -> None:
        """Tells, between begin and end, that gradients have come: they may be freed, and a
        bucket that is complete begins to cross."""
        ids = (c_int64 * max(len(tensors), 1))(*tensors)
        self._calling_back(self._lib.stepcGradReady, ids, len(tensors))

    def find_unused(self) -> None:
        """Has ranks tell each other, in steps between begin and end, which tensors have a
        gradient on any of them."""
        check(self._lib, self._lib.stepcPlanFindUnused(self._handle, 1))

    def share_sums(self) -> None:
        """Has the sums of all buckets lie in one memory, before anything is bound: each is
        stepped as it lands, where the definition permits it."""
        check(self._lib, self._lib.stepcPlanShareSums(self._handle))

    def grad_absent(self, tensors: Sequence[int]) -> None:
        """Tells that these will have no gradient on this rank, so that nothing waits for one."""
        ids = (c_int64 * max(len(tensors), 1))(*tensors)
        self._calling_back(self._lib.stepcGradAbsent, ids, len(tensors))

    def pass_begin(self) -> None:
        """Begins a backward pass: gradients cross ranks ahead of the step, and add up."""
        self._calling_back(self._lib.stepcPassBegin)

    def pass_end(self) -> None:
        self._calling_back(self._lib.stepcPassEnd)

    def grad(self, tensor: int) -> tuple[int, int, str]:
        """What passes have brought of a tensor: where this rank's part lies, of how many
        elements, and whether of "f64" or "f32"."""
        out = DLTensor()
        check(self._lib, self._lib.stepcPlanGetGrad(self._handle, tensor, byref(out)))
        return out.data or 0, out.shape[0], f"f{out.dtype.bits}"

    def forget_grads(self) -> None:
        """Forgets what passes have brought."""
        check(self._lib, self._lib.stepcPlanForgetGrads(self._handle))

    def take_grads(self, plan: Plan) -> None:
        """Takes over what passes have brought to another plan of the same tensors."""
        check(self._lib, self._lib.stepcPlanTakeGrads(self._handle, plan._handle))

    def part(self, tensor: int) -> tuple[int, int]:
        """Which elements of a tensor, in row-major order, this rank steps: [begin, end)."""
        begin, end = c_int64(), c_int64()
        status = self._lib.stepcPlanGetPart(self._handle, tensor, byref(begin), byref(end))
        check(self._lib, status)
        return begin.value, end.value

    def step_end(self) -> None:
        self._calling_back(self._lib.stepcStepEnd)

    def step_abandon(self) -> None:
        """Ends a step whose other gradients will not come: no rank steps them."""
        self._calling_back(self._lib.stepcStepAbandon)

    def scalar(self, name: str, group: int = 0) -> float:
        """What the definition keeps between steps, as the coming step reads it."""
        out = c_double()
        status = self._lib.stepcPlanGetScalar(self._handle, group, name.encode(), byref(out))
        check(self._lib, status)
        return out.value

    def set_scalar(self, name: str, value: float, group: int = 0) -> None:
        """One of the model is set in all groups."""
        status = self._lib.stepcPlanSetScalar(self._handle, group, name.encode(), value)
        check(self._lib, status)

    def report(self, name: str, group: int = 0) -> float:
        """Of the last step that came to it; NaN before there was one."""
        out = c_double()
        status = self._lib.stepcPlanGetReport(self._handle, group, name.encode(), byref(out))
        check(self._lib, status)
        return out.value

    def last_step(self) -> LastStep:
        """What the last step did."""
        out = LastStep(ctypes.sizeof(LastStep))
        check(self._lib, self._lib.stepcPlanGetLastStep(self._handle, byref(out)))
        return out

    def count(self, tensor: int) -> int:
        """Steps that the tensor has taken."""
        out = c_int64()
        check(self._lib, self._lib.stepcPlanGetCount(self._handle, tensor, byref(out)))
        return out.value

    def is_poisoned(self) -> bool:
        """Whether a step has failed midway, after something was written."""
        try:
            self.count(0)
        except errors.StatusError as error:
            return error.status == "STEPC_POISONED"
        return False

    def info(self) -> PlanInfo:
        out = PlanInfo(ctypes.sizeof(PlanInfo))
        check(self._lib, self._lib.stepcPlanGetInfo(self._handle, byref(out)))
        return out
