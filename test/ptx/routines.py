# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a runtime gives the processor's finishes (StepcRoutines in kernel_abi.h), as far as what
runs on devices too has use for it: the mode without denormals, and no dot products."""

import ctypes
import mmap

import numpy as np

# void flush(int64_t on): bits 0x8040 of MXCSR.
FLUSH = bytes.fromhex(
    "4883ec08 0fae1c24 8b0424 25bf7fffff 4885ff 7405 0d40800000 890424 0fae1424 4883c408 c3"
)
_code = mmap.mmap(-1, len(FLUSH), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
_code.write(FLUSH)
_flush = ctypes.addressof(ctypes.c_char.from_buffer(_code))
# Of no decomposition: devices have none.
ROUTINES = np.array([0, 0, 0, _flush, 0], np.int64)
