//===- Code.h - the code of a package for the processor -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_CODE_H
#define STEPC_CPU_CODE_H

#include "core/Package.h"
#include "core/ZipReader.h"
#include "cpu/CodeLoader.h"
#include "cpu/Work.h"

#include "stepc/kernel_abi.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc::cpu {

/// The entry points of one variant.
struct VariantCode {
  /// One for each segment; null where there is nothing to fill.
  std::vector<StepcScalarFunction> scalars;
  /// The schedule for contiguous rows, and for strided ones.
  std::vector<EntryCode> entries[2];
};

/// What this processor runs of a package, opened. Immutable once made; plans of
/// the package share it.
class Code {
public:
  /// `zip` is the package's. Refuses a package that has no code for this
  /// processor nor for a device.
  Code(std::shared_ptr<const Package> package, const ZipReader &zip);

  const VariantCode &getVariant(size_t variant) const {
    return variants[variant];
  }
  /// The function of a call of a round.
  StepcRoundFunction getRoundFunction(size_t round, size_t call) const {
    return rounds[round][call];
  }

  /// Refuses a package that has code for devices alone.
  void requireThere() const;

private:
  const CodeEntry *choose();
  void open(std::string_view bytes, const std::string &file);
  VariantCode resolve(const Variant &variant) const;
  EntryCode resolve(const Variant &variant, const ScheduleEntry &entry,
                    const std::string &function) const;

  std::shared_ptr<const Package> package;
  std::string name;
  LoadedCode loaded;
  /// Why there is no code for the processor; empty where there is some.
  std::string refusal;
  std::vector<VariantCode> variants;
  std::vector<std::vector<StepcRoundFunction>> rounds;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_CODE_H
