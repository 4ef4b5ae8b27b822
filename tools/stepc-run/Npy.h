//===- Npy.h - arrays in .npy and .npz files --------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// numpy has no bf16: such arrays are files of uint16, the upper halves of the
// f32 of the same value.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TOOLS_STEPC_RUN_NPY_H
#define STEPC_TOOLS_STEPC_RUN_NPY_H

#include "dialect/reference/Interpreter.h"

#include "llvm/Support/Error.h"

#include <map>

namespace stepc::run {

using mlir::step::reference::Format;
using mlir::step::reference::Shape;
using mlir::step::reference::StoredTensor;

/// An array in memory: elements of `storage` in row-major order.
struct Array {
  Format storage = Format::F32;
  Shape shape;
  std::string bytes;
};
using ArrayMap = std::map<std::string, Array>;

/// The bytes of an element.
size_t getElementSize(Format storage);

StoredTensor toTensor(const Array &array);

/// The elements are rounded to `storage`.
Array toArray(const mlir::step::reference::Tensor &tensor, Format storage);

/// Reads `FILE.npz`, whose arrays have names, or `NAME=FILE.npy`, and adds what
/// it holds. Errors name the file and what is wrong with it: a dtype other than
/// float32, float64, uint16 and int16, Fortran order, a truncated array, a name
/// that is there already.
llvm::Error readArrays(llvm::StringRef argument, ArrayMap &arrays);

/// Writes `path`, an .npz file.
llvm::Error writeArrays(llvm::StringRef path, const ArrayMap &arrays);

} // namespace stepc::run

#endif // STEPC_TOOLS_STEPC_RUN_NPY_H
