//===- Package.h - a loaded package ---------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_PACKAGE_H
#define STEPC_CORE_PACKAGE_H

#include "core/Manifest.h"
#include "cpu/CodeLoader.h"
#include "cpu/Work.h"

#include "stepc/kernel_abi.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc {

/// The entry points of one variant.
struct VariantCode {
  /// One for each segment; null where there is nothing to fill.
  std::vector<StepcScalarFunction> scalars;
  /// The schedule for contiguous rows, and for strided ones.
  std::vector<EntryCode> entries[2];
};

/// Code for a device, as it stands in the package.
struct DeviceCode {
  CodeEntry entry;
  std::string bytes;
};

/// Immutable once made; shared by its handle and the plans made from it.
class Package {
public:
  /// `name` is what messages call the package.
  Package(std::string name, std::string_view bytes);

  const std::string &getName() const { return name; }
  const Manifest &getManifest() const { return manifest; }
  const std::string &getManifestText() const { return manifestText; }
  const VariantCode &getCode(size_t variant) const { return variants[variant]; }
  /// The function of a call of a round.
  StepcRoundFunction getRoundFunction(size_t round, size_t call) const {
    return rounds[round][call];
  }

  /// Refuses a package that has code for devices alone.
  void requireCpuCode() const;
  /// All that is for CUDA devices.
  const std::vector<DeviceCode> &getDeviceCode() const { return deviceCode; }

  /// The largest number of scalar slots of any variant.
  size_t getMaxScalarSlots() const { return maxScalarSlots; }
  /// Whether some variant carries scalars from step to step.
  bool carries() const { return carriesScalars; }

private:
  const CodeEntry *chooseCode();
  void openCode(std::string_view bytes, const std::string &file);
  VariantCode resolve(const Variant &variant) const;

  std::string name;
  std::string manifestText;
  Manifest manifest;
  std::string codeName;
  LoadedCode code;
  /// Why there is no code for the processor; empty where there is some.
  std::string refusal;
  std::vector<DeviceCode> deviceCode;
  std::vector<VariantCode> variants;
  std::vector<std::vector<StepcRoundFunction>> rounds;
  size_t maxScalarSlots = 0;
  bool carriesScalars = false;
};

/// Reads the file and makes a package of it.
std::shared_ptr<const Package> loadPackageFile(const char *path);

} // namespace stepc

/// The handle of the C ABI.
struct StepcPackage {
  std::shared_ptr<const stepc::Package> package;
};

#endif // STEPC_CORE_PACKAGE_H
