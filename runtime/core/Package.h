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

#include "stepc/kernel_abi.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc {

/// The entry points of one variant.
struct VariantCode {
  StepcScalarFunction scalars = nullptr;
  StepcKernel kernel = nullptr;
  StepcKernel stridedKernel = nullptr;
};

/// Immutable once made; shared by its handle and the plans made from it.
class Package {
public:
  /// `name` is what messages call the package.
  Package(std::string name, std::string_view bytes);

  const std::string &getName() const { return name; }
  const Manifest &getManifest() const { return manifest; }
  const std::string &getManifestText() const { return manifestText; }
  const VariantCode &getCode(size_t variant) const { return entries[variant]; }

  /// The largest number of scalar slots of any variant.
  size_t getMaxScalarSlots() const { return maxScalarSlots; }

private:
  const CodeEntry &chooseCode() const;

  std::string name;
  std::string manifestText;
  Manifest manifest;
  std::string codeName;
  LoadedCode code;
  std::vector<VariantCode> entries;
  size_t maxScalarSlots = 0;
};

/// Reads the file and makes a package of it.
std::shared_ptr<const Package> loadPackageFile(const char *path);

} // namespace stepc

/// The handle of the C ABI.
struct StepcPackage {
  std::shared_ptr<const stepc::Package> package;
};

#endif // STEPC_CORE_PACKAGE_H
