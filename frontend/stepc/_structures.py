# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Structures of ``stepc/stepc.h`` that describe tensors, plans and what they report; those of
ranks are beside meshes, in :mod:`stepc._mesh`."""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
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
    "i16": DLDataType(0, 16, 1),
    "u8": DLDataType(1, 8, 1),  # codes
    "i8": DLDataType(0, 8, 1),  # of another format
    "i32": DLDataType(0, 32, 1),  # and of several codes each
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
        ("formats", c_void_p),  # int32_t *
        ("scales", c_void_p),  # DLTensor **
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


class StoreConfig(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("directory", c_char_p),
        ("windowBytes", c_int64),
        ("numWindows", c_int32),
        ("numThreads", c_int32),
        ("buffered", c_int32),
        ("reserved0", c_int32),
    ]


class StoreInfo(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("fileBytes", c_int64),
        ("takenBytes", c_int64),
        ("bytesRead", c_int64),
        ("bytesWritten", c_int64),
        ("windowBytes", c_int64),
        ("numWindows", c_int32),
        ("direct", c_int32),
    ]


class StoreCommitted(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("generation", c_int64),
        ("note", c_void_p),
        ("noteBytes", c_int64),
    ]


class LastStep(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("skipped", c_int32),
        ("skippedRound", c_int32),
        ("numTensors", c_int64),
    ]


class TensorQuery(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("name", c_char_p),
        ("options", c_void_p),
        ("shape", c_void_p),
        ("ndim", c_int32),
        ("flat", c_int32),
        ("part", c_void_p),
        ("shardedDims", c_uint64),
        ("begin", c_int64),
        ("end", c_int64),
        ("param", DLDataType),
        ("grad", DLDataType),
        ("master", c_char_p),
        ("rounds", c_int32),
        ("reserved", c_int32),
        ("coded", c_void_p),  # char **
        ("numCoded", c_int64),
        ("formats", c_void_p),  # int32_t *
        ("least", c_void_p),  # int64_t *
    ]


class RuleDescription(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("name", c_char_p),
        ("dims", c_void_p),
        ("numDims", c_int64),
        ("unshardable", c_void_p),
        ("numUnshardable", c_int64),
        ("needsMatrices", c_int32),
        ("reserved", c_int32),
        ("line", c_int64),
        ("column", c_int64),
    ]


class StateDescription(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("name", c_char_p),
        ("dims", c_void_p),
        ("numDims", c_int64),
        ("ndim", c_int32),
        ("partNdim", c_int32),
        ("shape", c_void_p),
        ("part", c_void_p),
        ("paramDims", c_void_p),
        ("initialValue", c_double),
        ("bytes", c_int64),
        ("dtype", DLDataType),
        ("exists", c_int32),
        ("isFull", c_int32),
        ("format", c_int32),
        ("scaleNdim", c_int32),
        ("scalePartNdim", c_int32),
        ("scaleShape", c_void_p),
        ("scalePart", c_void_p),
        ("codeNdim", c_int32),
        ("codePartNdim", c_int32),
        ("codeShape", c_void_p),
        ("codePart", c_void_p),
    ]


class StateFormatInfo(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("name", c_char_p),
        ("dtype", DLDataType),
        ("codesPerElement", c_int32),
        ("block", c_int64),
    ]


class TensorDescription(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("rule", c_void_p),
        ("variant", c_int64),
        ("states", c_void_p),
        ("numStates", c_int64),
        ("cutDim", c_char_p),
        ("refusal", c_char_p),
        ("status", c_int32),
        ("isShared", c_int32),
        ("elements", c_int64),
        ("keptBytes", c_int64),
        ("workspaceBytes", c_int64),
        ("bufferEntries", c_void_p),
        ("numBuffers", c_int64),
        ("flops", c_double),
        ("cost", c_double),
    ]


class Description(Structure):
    _fields_ = [
        ("structSize", c_size_t),
        ("numTensors", c_int64),
        ("tensors", c_void_p),
    ]
