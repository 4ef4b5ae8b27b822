//===- Manifest.h - what a package says about itself ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The manifest as plain structures, checked: every index is in range, every
// variant has a value of each option, one parameter and one gradient.
// docs/architecture.md shows the JSON text.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_MANIFEST_H
#define STEPC_CORE_MANIFEST_H

#include "dlpack/dlpack.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stepc {

/// How the elements of a tensor are kept in memory.
enum class Storage : uint8_t { F32, F64, BF16 };

int64_t getByteSize(Storage storage);
const char *getName(Storage storage);
DLDataType getDLDataType(Storage storage);

/// Whether `type` is one of the storage types; if so sets `storage`.
bool getStorage(DLDataType type, Storage &storage);

/// "f32", "i64", "complex64", ...: for messages.
std::string describe(DLDataType type);

struct Hyper {
  std::string name;
  double defaultValue = 0.0;
};

enum class Predicate : uint8_t { EQ, NE, LT, LE, GT, GE };

/// A value known when a tensor is bound. A derived one compares a
/// hyper-parameter with a constant.
struct Option {
  std::string name;
  int64_t defaultValue = 0;
  bool derived = false;
  size_t hyper = 0;
  Predicate predicate = Predicate::NE;
  double value = 0.0;

  /// The value of a derived option.
  int64_t derive(const std::vector<double> &hypers) const;
};

enum class Role : uint8_t { Param, Grad, State };

struct Operand {
  Role role = Role::Param;
  std::string name;
  Storage storage = Storage::F32;
  double initialValue = 0.0;
  bool reads = false;
  bool writes = false;
};

/// A rule with a value of each option and a storage type of each role.
struct Variant {
  std::string name;
  std::string rule;
  /// One value for each of Manifest::options.
  std::vector<int64_t> options;
  /// In the order of the addresses in a row of the kernel's table.
  std::vector<Operand> operands;
  size_t param = 0;
  size_t grad = 0;
  /// The operands that are states, in order.
  std::vector<size_t> states;
  std::string scalarFunction;
  size_t scalarSlots = 0;
  std::string kernel;
  std::string stridedKernel;
  /// Whether some tensors may be stepped before others have their gradients.
  bool subsets = false;

  /// Bytes that a step moves for one element.
  int64_t getBytesPerElement() const;
};

/// Machine code for one kind of processor.
struct CodeEntry {
  std::string target;
  std::string file;
  std::vector<std::string> cpuFeatures;
};

struct Manifest {
  std::string optimizer;
  std::vector<Hyper> hypers;
  std::vector<Option> options;
  /// In the order in which a parameter tries them.
  std::vector<std::string> rules;
  std::vector<Variant> variants;
  std::vector<CodeEntry> code;
};

/// Reads and checks the JSON text of the package `file`. Throws
/// STEPC_CORRUPT_PACKAGE or STEPC_VERSION_MISMATCH.
Manifest readManifest(const char *file, std::string_view text);

} // namespace stepc

#endif // STEPC_CORE_MANIFEST_H
