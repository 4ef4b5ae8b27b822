//===- PackageWriter.h - the package file ---------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_PACKAGEWRITER_H
#define STEPC_PASSES_PACKAGE_PACKAGEWRITER_H

#include "mlir/Support/LLVM.h"

#include <string>
#include <vector>

namespace mlir::step {

/// One file of a package.
struct PackageMember {
  std::string name, bytes;
};

/// The bytes of a zip archive with the members stored, and the SHA-256 of all
/// bytes before the comment as its comment, in hexadecimal. The same members
/// give the same bytes: times are fixed.
std::string writePackage(ArrayRef<PackageMember> members);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_PACKAGEWRITER_H
