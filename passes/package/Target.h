//===- Target.h - what code is made for -------------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_TARGET_H
#define STEPC_PASSES_PACKAGE_TARGET_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <vector>

namespace mlir::step {

/// What a member of a package is.
enum class CodeKind { SharedObject, PTX, Cubin };

/// A processor, or a kind of CUDA device, that code is made for.
struct Target {
  llvm::StringRef name; // in manifests and on the command line
  CodeKind kind;
  llvm::StringRef cpu, features; // for LLVM
  /// What a processor needs to run the code.
  llvm::ArrayRef<llvm::StringRef> cpuFeatures;
  /// Of devices: 90 for 9.0. PTX runs on this one and later ones, a cubin on
  /// this one and those of the same major number after it.
  int64_t computeCapability;
  /// Of processors: the bits of the vectors that code is made of. Of AVX-512 it
  /// may use the registers and masks, but not the width.
  int64_t vectorWidth = 256;
  /// Whether products are made for AVX-512 of 512 bits; they compute where
  /// others wait for memory.
  bool avx512 = false;

  bool isDevice() const { return kind != CodeKind::SharedObject; }
  /// The name of the member of the package.
  std::string getFile() const;
};

/// x86-64-v3, the target where none is named.
const Target *getDefaultTarget();

/// The targets of a list of names, separated by commas: `cpu` is x86-64-v3;
/// `sm_80`, `sm_90` and `sm_100` are cubins where there is an assembler, else
/// the PTX of `compute_80` and so on; `cuda` is all three cubins where there is
/// an assembler, and the PTX of compute_80. None is named twice in the result.
llvm::Expected<std::vector<const Target *>> readTargets(llvm::StringRef list,
                                                        bool hasAssembler);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_TARGET_H
