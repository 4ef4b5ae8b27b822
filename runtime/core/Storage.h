//===- Storage.h - how elements are kept in memory ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_STORAGE_H
#define STEPC_CORE_STORAGE_H

#include "dlpack/dlpack.h"

#include <cstdint>
#include <string>

namespace stepc {

/// How the elements of a tensor are kept in memory.
/// A position is not in memory.
enum class Storage : uint8_t { F32, F64, BF16, F16, I16, Position };

/// Those in memory.
constexpr Storage kStorages[] = {Storage::F32, Storage::F64, Storage::BF16,
                                 Storage::F16, Storage::I16};

int64_t getByteSize(Storage storage);
const char *getName(Storage storage);
DLDataType getDLDataType(Storage storage);

/// Whether `type` is one of the storage types; if so sets `storage`.
bool getStorage(DLDataType type, Storage &storage);

/// The type in which values of this one are added up: f64 of f64, else f32.
constexpr Storage getSumStorage(Storage storage) {
  return storage == Storage::F64 ? Storage::F64 : Storage::F32;
}

/// "f32", "i64", "complex64", ...: for messages.
std::string describe(DLDataType type);

} // namespace stepc

#endif // STEPC_CORE_STORAGE_H
