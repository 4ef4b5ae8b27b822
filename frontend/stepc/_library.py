# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The runtime library through ctypes: where it is found, what its calls take, and the exceptions
of :mod:`stepc.errors` that stand for what it refuses."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

from . import _log, _platform, errors
from ._structures import (
    Binding,
    CudaConfig,
    DLTensor,
    LastStep,
    Option,
    PlanConfig,
    PlanInfo,
    StoreCommitted,
    StoreConfig,
    StoreInfo,
)
from ._words import in_python

VERSION_MAJOR = 0  # of stepc.h
LIBRARY_NAME = "libstepc_runtime.so"


def candidate_libraries() -> list[Path]:
    """Where the library is looked for: environment, package, build tree."""
    named = os.environ.get("STEPC_RUNTIME_LIBRARY")
    if named:
        return [Path(named)]
    package = Path(__file__).resolve().parent
    return [
        package / LIBRARY_NAME,
        package / "lib" / LIBRARY_NAME,
        package.parents[1] / "build" / "lib" / LIBRARY_NAME,
        package.parents[1] / "lib" / LIBRARY_NAME,
    ]


_SIGNATURES = {
    "stepcPackageLoad": [c_char_p, POINTER(c_void_p)],
    "stepcPackageLoadBytes": [c_char_p, c_size_t, POINTER(c_void_p)],
    "stepcPackageManifest": [c_void_p, POINTER(c_void_p), POINTER(c_size_t)],
    "stepcInterfaceLoad": [c_char_p, c_size_t, POINTER(c_void_p)],
    "stepcInterfaceResolve": [
        c_void_p,
        POINTER(Option),
        c_int64,
        POINTER(c_double),
        c_int64,
        POINTER(c_int64),
    ],
    "stepcGetStateFormat": [c_int32, c_void_p],
    "stepcEncodeState": [c_int32, c_void_p, c_int32, c_void_p, c_void_p, c_void_p],
    "stepcDecodeState": [c_int32, c_void_p, c_int32, c_void_p, c_void_p, c_void_p],
    "stepcInterfaceDescribe": [
        c_void_p,
        c_void_p,
        c_int64,
        POINTER(c_void_p),
    ],
    "stepcChooseOwners": [
        POINTER(c_double),
        c_int64,
        c_int64,
        POINTER(c_double),
        POINTER(c_int64),
    ],
    "stepcPlanCreate": [c_void_p, POINTER(PlanConfig), POINTER(c_void_p)],
    "stepcPlanAddGroup": [
        c_void_p,
        POINTER(Option),
        c_int64,
        POINTER(c_double),
        c_int64,
        POINTER(c_int64),
    ],
    "stepcPlanSetHypers": [c_void_p, c_int64, POINTER(c_double), c_int64],
    "stepcPlanSetMesh": [c_void_p, c_void_p, c_int64, c_void_p],
    "stepcPlanBind": [c_void_p, POINTER(Binding), c_int64, POINTER(c_int64)],
    "stepcGetParts": [
        c_void_p,
        c_int64,
        POINTER(Binding),
        c_int64,
        c_int64,
        c_int64,
        POINTER(c_int64),
        POINTER(c_int64),
        POINTER(c_int64),
    ],
    "stepcPlanSetGrad": [c_void_p, c_int64, POINTER(DLTensor)],
    "stepcPlanSetParam": [c_void_p, c_int64, POINTER(DLTensor)],
    "stepcPlanMoveGrad": [c_void_p, c_int64, POINTER(DLTensor), POINTER(DLTensor)],
    "stepcLimitTeam": [c_int32],
    "stepcPlanParametersWritten": [c_void_p],
    "stepcPlanSetTrace": [c_void_p, c_void_p, c_void_p],
    "stepcPlanSetCuda": [c_void_p, POINTER(CudaConfig)],
    "stepcPlanSetStream": [c_void_p, c_void_p],
    "stepcPlanUpload": [c_void_p],
    "stepcCudaTakeHost": [POINTER(CudaConfig), c_int64, POINTER(c_void_p)],
    "stepcCudaIsHost": [POINTER(CudaConfig), c_void_p, POINTER(c_int32)],
    "stepcStep": [c_void_p],
    "stepcStepBegin": [c_void_p],
    "stepcStepTensors": [c_void_p, POINTER(c_int64), c_int64],
    "stepcGradReady": [c_void_p, POINTER(c_int64), c_int64],
    "stepcStepEnd": [c_void_p],
    "stepcStepAbandon": [c_void_p],
    "stepcGradAbsent": [c_void_p, POINTER(c_int64), c_int64],
    "stepcPlanFindUnused": [c_void_p, c_int32],
    "stepcPlanShareSums": [c_void_p],
    "stepcPlanGetGrad": [c_void_p, c_int64, POINTER(DLTensor)],
    "stepcPassBegin": [c_void_p],
    "stepcPassEnd": [c_void_p],
    "stepcPlanForgetGrads": [c_void_p],
    "stepcPlanTakeGrads": [c_void_p, c_void_p],
    "stepcPlanSetBuckets": [c_void_p, c_int64, c_int64, c_int64],
    "stepcPlanGetPart": [c_void_p, c_int64, POINTER(c_int64), POINTER(c_int64)],
    "stepcPlanGetCount": [c_void_p, c_int64, POINTER(c_int64)],
    "stepcPlanGetScalar": [c_void_p, c_int64, c_char_p, POINTER(c_double)],
    "stepcPlanSetScalar": [c_void_p, c_int64, c_char_p, c_double],
    "stepcPlanGetReport": [c_void_p, c_int64, c_char_p, POINTER(c_double)],
    "stepcPlanGetLastStep": [c_void_p, POINTER(LastStep)],
    "stepcPlanGetInfo": [c_void_p, POINTER(PlanInfo)],
    "stepcPlanSetStore": [c_void_p, c_void_p],
    "stepcStoreCreate": [POINTER(StoreConfig), POINTER(c_void_p)],
    "stepcStoreOpen": [POINTER(StoreConfig), c_char_p, POINTER(c_void_p)],
    "stepcStoreCommit": [c_void_p, c_char_p, c_int64],
    "stepcStoreGetCommitted": [c_void_p, POINTER(StoreCommitted)],
    "stepcStoreGetOffset": [c_void_p, c_void_p, POINTER(c_int64)],
    "stepcStoreGetAddress": [c_void_p, c_int64, c_int64, POINTER(c_void_p)],
    "stepcStoreClose": [c_void_p],
    "stepcStoreUnlock": [c_void_p],
    "stepcStoreLock": [c_void_p],
    "stepcStoreRetreat": [c_void_p],
    "stepcStoreTake": [c_void_p, c_int64, POINTER(c_void_p)],
    "stepcStoreGive": [c_void_p, c_void_p],
    "stepcStoreRead": [c_void_p, c_void_p, c_int64, c_void_p],
    "stepcStoreWrite": [c_void_p, c_void_p, c_int64, c_void_p],
    "stepcStoreGetInfo": [c_void_p, POINTER(StoreInfo)],
    "stepcSimulatedWorldCreate": [POINTER(c_int64), c_int64, POINTER(c_void_p)],
    "stepcSimulatedWorldSetDeadline": [c_void_p, c_int64],
    "stepcSimulatedWorldGetCommunicator": [c_void_p, c_int64, c_void_p],
    "stepcSharedGroupCreate": [c_int64, POINTER(c_int64), POINTER(c_void_p)],
    "stepcSharedGroupOpen": [c_char_p, c_int64, POINTER(c_int64), POINTER(c_void_p)],
    "stepcSharedGroupGetPlace": [c_void_p, c_char_p, c_size_t],
    "stepcSharedGroupSetDeadline": [c_void_p, c_int64],
    "stepcSharedGroupGetCommunicator": [c_void_p, c_void_p],
}

_DESTROYED = (
    "Package",
    "Plan",
    "Interface",
    "Description",
    "SimulatedWorld",
    "SharedGroup",
    "Store",
)


@functools.lru_cache(maxsize=4)
def _open_threads(own: Path) -> None:
    """Opens libgomp: the one that is open, as torch's, or the system's, else the package's."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        if own.is_file():
            ctypes.CDLL(str(own))


def _open(path: str) -> ctypes.CDLL:
    try:
        _open_threads(Path(path).with_name("libgomp.so.1"))
        library = ctypes.CDLL(path)
        library.stepcVersion.restype = c_uint32
        version = library.stepcVersion()
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes = arguments
            function.restype = c_int32
        library.stepcCpuTarget.restype = c_char_p
        for name in _DESTROYED:
            function = getattr(library, f"stepc{name}Destroy")
            function.argtypes, function.restype = [c_void_p], None
        library.stepcLastErrorMessage.restype = c_char_p
        library.stepcStatusString.restype = c_char_p
        library.stepcStatusString.argtypes = [c_int32]
    except (OSError, AttributeError) as error:
        why = _platform.why_not() or error
        raise errors.RuntimeLibraryError(f"cannot use the runtime library: {why}") from None
    _log.watch_forks()
    if version // 1000 != VERSION_MAJOR:
        raise errors.RuntimeLibraryError(
            f"the runtime library '{path}' has version {version // 1000}.{version % 1000}, "
            f"this package needs {VERSION_MAJOR}"
        )
    return library


def load_library() -> ctypes.CDLL:
    """The runtime library, opened once.

    Raises RuntimeLibraryError where none is found or it has another version.
    """
    candidates = candidate_libraries()
    for path in candidates:
        if path.is_file():
            return _open(str(path))
    looked = ", ".join(f"'{path}'" for path in candidates)
    raise errors.RuntimeLibraryError(
        f"the runtime library was not found; looked for {looked} "
        "(STEPC_RUNTIME_LIBRARY names another place)"
    )


def cpu_target() -> str:
    """The best of the compiler's targets that this processor can run; "" for none."""
    return load_library().stepcCpuTarget().decode()


def address_of(function) -> int:
    """The address of a function of the library, for the extension."""
    return ctypes.cast(function, c_void_p).value


_EXCEPTIONS = {
    "STEPC_FILE_ERROR": errors.PackageError,
    "STEPC_CORRUPT_PACKAGE": errors.PackageError,
    "STEPC_VERSION_MISMATCH": errors.PackageError,
    "STEPC_UNSUPPORTED_TARGET": errors.PackageError,
    "STEPC_UNKNOWN_NAME": errors.NameNotFoundError,
    "STEPC_SHAPE_MISMATCH": errors.TensorError,
    "STEPC_DTYPE_MISMATCH": errors.TensorError,
    "STEPC_DEVICE_MISMATCH": errors.TensorError,
    "STEPC_LAYOUT_UNSUPPORTED": errors.TensorError,
    "STEPC_OVERLAP": errors.TensorError,
    "STEPC_OUT_OF_MEMORY": errors.OutOfMemoryError,
    "STEPC_BUSY": errors.BusyError,
    "STEPC_NEEDS_BIND": errors.NeedsBindError,
    "STEPC_COMMUNICATION_ERROR": errors.CommunicationError,
    "STEPC_STALE_STATISTICS": errors.StaleStatisticsError,
    "STEPC_DEVICE_ERROR": errors.DeviceError,
    "STEPC_ABANDONED": errors.AbandonedError,
    "STEPC_STORE_ERROR": errors.StoreError,
}


# "tensor 'parameter 0 of group 0': parameter": a tensor that has no name of its own
# is called by its place, which says what it is.
_PLACE = re.compile(r"tensor '(parameter \d+ of group \d+)'(?:: parameter\b)?")


def check(lib: ctypes.CDLL, status: int) -> None:
    """Raises the exception that belongs to a status other than STEPC_OK."""
    if status == 0:
        return
    name = lib.stepcStatusString(status).decode()
    message = (lib.stepcLastErrorMessage() or b"").decode(errors="replace") or name
    message = in_python(_PLACE.sub(r"\1", message))
    raise _EXCEPTIONS.get(name, errors.StatusError)(message, name)
