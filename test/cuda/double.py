# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The double of the CUDA driver (test/cuda_double), its memory, and packages for it.

The runtime opens libcuda.so.1 by name; a library of that name which the process has
already is the one it gets.
"""

import ctypes
import functools
import hashlib
import json
import os
import struct
import subprocess
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("STEPC_BUILD", ROOT / "build"))
STEPC = BUILD / "bin" / "stepc"
CUDA_HOST = BUILD / "test" / "cuda_double" / "stepc-cuda-host"
FAULTY_RUNTIME = BUILD / "lib" / "libstepc_runtime_faulty.so"
LIBRARY = BUILD / "test" / "cuda_double" / "libcuda.so.1"
ZOO = ROOT / "frontend" / "optimizers"
MEMBER = "code/compute_80.ptx"

ERRORS = {  # names of the driver's, that tests make calls return
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
}


class Double:
    """The library, and what Control.h has."""

    def __init__(self):
        self.lib = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
        for name in ("Calls", "AllCalls", "Allocations", "Modules", "Retained", "Pending"):
            getattr(self.lib, f"cudaDouble{name}").restype = ctypes.c_int64
        self.lib.cudaDoubleContextDepth.restype = ctypes.c_int64
        self.lib.cudaDoubleFault.restype = ctypes.c_char_p
        self.lib.cudaDoubleReset.argtypes = [ctypes.c_int32, ctypes.c_uint64]
        self.lib.cudaDoubleOpen.argtypes = [ctypes.c_int32]
        self.lib.cudaDoubleFail.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int32]
        self.contexts = []

    def reset(self, devices=1, seed=0):
        self.lib.cudaDoubleReset(devices, seed)
        self.contexts = []
        self.call("cuInit", 0)
        for device in range(devices):
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self.contexts.append(context)

    def call(self, name, *arguments):
        result = getattr(self.lib, name)(*arguments)
        assert result == 0, f"{name}: {result}"

    @contextmanager
    def context(self, device):
        self.call("cuCtxPushCurrent_v2", self.contexts[device])
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def calls(self, name):
        return self.lib.cudaDoubleCalls(name.encode())

    def fail(self, name, nth, error):
        self.lib.cudaDoubleFail(name.encode(), nth, error)

    def fault(self):
        return self.lib.cudaDoubleFault().decode()

    def alive(self):
        """Allocations, modules, retained contexts, and the depth of the stack of contexts."""
        lib = self.lib
        return (
            lib.cudaDoubleAllocations(),
            lib.cudaDoubleModules(),
            lib.cudaDoubleRetained() - len(self.contexts),
            lib.cudaDoubleContextDepth(),
        )

    # --- Memory, streams and graphs -------------------------------------------

    def take(self, size, device=0):
        address = ctypes.c_uint64()
        with self.context(device):
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def put(self, address, values, device=0):
        with self.context(device):
            # The default stream does not wait for those that tests make.
            self.call("cuCtxSynchronize")
            self.call(
                "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), values.ctypes.data_as(_POINTER),
                ctypes.c_size_t(values.nbytes), None,
            )  # fmt: skip
            self.call("cuCtxSynchronize")

    def get(self, address, like, device=0):
        values = np.empty_like(like)
        with self.context(device):
            self.call("cuCtxSynchronize")
            self.call(
                "cuMemcpyDtoHAsync_v2", values.ctypes.data_as(_POINTER), ctypes.c_uint64(address),
                ctypes.c_size_t(values.nbytes), None,
            )  # fmt: skip
            self.call("cuCtxSynchronize")
        return values

    def make_stream(self, device=0, blocking=False):
        """``blocking``: the default stream waits for it, and it for that."""
        stream = ctypes.c_void_p()
        with self.context(device):
            self.call("cuStreamCreate", ctypes.byref(stream), int(not blocking))
        return stream.value

    def synchronize(self, stream=0, device=0):
        with self.context(device):
            return self.lib.cuStreamSynchronize(ctypes.c_void_p(stream))

    @contextmanager
    def capture(self, stream, device=0):
        """A list that gets the graph of what is enqueued."""
        graph, executable, out = ctypes.c_void_p(), ctypes.c_void_p(), []
        with self.context(device):
            self.call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), 0)
        yield out
        with self.context(device):
            result = self.lib.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
            assert result == 0, "the capture was spoiled"
            self.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, 0)
            self.call("cuGraphDestroy", graph)
        out.append(executable)

    def launch(self, graph, stream, device=0):
        with self.context(device):
            self.call("cuGraphLaunch", graph, ctypes.c_void_p(stream))


_POINTER = ctypes.c_void_p


@functools.cache
def get_double():
    return Double()


# --- Packages -------------------------------------------------------------------


def make_zip(members):
    """A package of stored members, as the runtime reads it (docs/abi.md)."""
    body, directory = b"", b""
    for name, data in members.items():
        crc, size = zlib.crc32(data), len(data)
        common = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, crc, size, size, len(name), 0)
        directory += struct.pack("<IH", 0x02014B50, 20) + common
        directory += struct.pack("<HHHII", 0, 0, 0, 0, len(body)) + name.encode()
        body += struct.pack("<I", 0x04034B50) + common + name.encode() + data
    count = len(members)
    end = struct.pack(
        "<IHHHHIIH", 0x06054B50, 0, 0, count, count, len(directory), len(body), 64
    )  # fmt: skip
    signed = body + directory + end
    return signed + hashlib.sha256(signed).hexdigest().encode()


def read_zip(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def run_checked(command):
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr


def find_definition(name):
    """The file of a definition of the zoo, or the one that is given."""
    return name if isinstance(name, Path) else ZOO / f"{name}.mlir"


def compile_package(definition, arguments, folder):
    """The members of a package with code for the processor and an image for the double."""
    definition = find_definition(definition)
    path, stages, image = (folder / name for name in ("x.stepc", "stages", "x.so"))
    run_checked(
        [STEPC, definition, "--target=cpu,compute_80", *arguments, "-o", path,
         f"--dump-dir={stages}"]
    )  # fmt: skip
    run_checked([CUDA_HOST, stages / "5-lower-to-cuda.mlir", image])
    members = read_zip(path)
    members[MEMBER] = image.read_bytes()
    return members


def read_interface(definition, *arguments):
    run = subprocess.run(
        [STEPC, find_definition(definition), *arguments, "--interface"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return json.loads(run.stdout)


def get_manifest(members):
    return json.loads(members["manifest.json"])


def with_manifest(members, manifest):
    return {**members, "manifest.json": json.dumps(manifest).encode()}
