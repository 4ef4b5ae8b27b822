# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Structures of ``stepc/stepc.h`` that describe tensors, plans and what they report; those of
ranks are beside meshes, in :mod:`stepc._mesh`."""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
)


class DLDevice(Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


DATA_TYPES = {
    "f32": DLDataType(2, 32, 1),
    "f64": DLDataType(2, 64, 1),
    "bf16": DLDataType(4, 16, 1),
    "f16": DLDataType(2, 16, 1),
}


class DLTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class PlanConfig(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("numThreads", c_int32),
        ("hugePages", c_int32),
        ("chunkElements", c_int64),
        ("reserved", c_uint64 * 4),
    ]


class Option(Structure):
    _fields_ = [("name", c_char_p), ("value", c_int64)]


class Binding(Structure):
    """``StepcBinding``; ``Plan.bind`` fills ``structSize``."""

    _fields_ = [
        ("structSize", c_size_t),
        ("name", c_char_p),
        ("group", c_int64),
        ("param", c_void_p),  # DLTensor *
        ("grad", c_void_p),  # DLTensor *
        ("gradDtype", DLDataType),
        ("states", c_void_p),  # DLTensor **
        ("numStates", c_int64),
        ("count", c_int64),
        ("fresh", c_int32),
        ("reserved0", c_int32),
        ("countMirror", c_void_p),
        ("layout", c_void_p),  # StepcLayout *
        ("number", c_int64),
        ("freshStates", c_void_p),  # uint8_t *
        ("entry", c_void_p),  # StepcEntry *
    ]


class PlanInfo(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("numTensors", c_int64),
        ("numGroups", c_int64),
        ("numChunks", c_int64),
        ("steps", c_int64),
        ("parallelRegions", c_int64),
        ("bytesAllocated", c_int64),
        ("workspaceBytes", c_int64),
        ("rounds", c_int64),
        ("skippedSteps", c_int64),
        ("exchangeRounds", c_int64),
        ("exchangeCalls", c_int64),
        ("exchangeBytes", c_int64),
        ("leftOut", c_int64),
        ("deviceBytes", c_int64),
        ("deviceLaunches", c_int64),
        ("deviceStores", c_int64),
    ]


class CudaConfig(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("device", c_int32),
        ("reserved0", c_int32),
        ("context", c_void_p),
        ("stream", c_void_p),
    ]


class LastStep(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("skipped", c_int32),
        ("skippedRound", c_int32),
        ("numTensors", c_int64),
    ]
