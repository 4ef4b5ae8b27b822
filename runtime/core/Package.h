//===- Package.h - a loaded package ---------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_PACKAGE_H
#define STEPC_CORE_PACKAGE_H

#include "core/Manifest.h"
#include "core/ZipReader.h"

#include <string>
#include <vector>

namespace stepc {

/// Code for a device, as it stands in the package.
struct DeviceCode {
  CodeEntry entry;
  std::string bytes;
};

/// What a package says, and its code for devices. That for the processor is
/// opened by its engine (cpu/Code.h). Immutable once made; shared by its handle
/// and the plans made from it.
class Package {
public:
  /// `name` is what messages call the package.
  Package(std::string name, const ZipReader &zip);

  const std::string &getName() const { return name; }
  const Manifest &getManifest() const { return manifest; }
  const std::string &getManifestText() const { return manifestText; }
  const std::vector<DeviceCode> &getDeviceCode() const { return deviceCode; }

  /// The largest number of scalar slots of any variant.
  size_t getMaxScalarSlots() const { return maxScalarSlots; }
  /// Whether some variant carries scalars from step to step.
  bool carries() const { return carriesScalars; }
  /// Whether some variant brings gradients or gives parameters away.
  bool hasTransfers() const { return transfers; }

private:
  std::string name;
  std::string manifestText;
  Manifest manifest;
  std::vector<DeviceCode> deviceCode;
  size_t maxScalarSlots = 0;
  bool carriesScalars = false;
  bool transfers = false;
};

/// The bytes of a file.
std::string readFile(const char *path);

} // namespace stepc

#endif // STEPC_CORE_PACKAGE_H
