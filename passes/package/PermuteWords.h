//===- PermuteWords.h - bf16 widened by one instruction ---------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_PERMUTEWORDS_H
#define STEPC_PASSES_PACKAGE_PERMUTEWORDS_H

namespace llvm {
class Module;
} // namespace llvm

namespace mlir::step {

/// Where 16 words are extended and shifted by 16, which makes f32 of bf16, they
/// are interleaved with zeros: of vectors of 512 bits that is one permutation
/// in place of two instructions, which both want the units that convert to f64.
/// To be run behind LLVM's own passes, which would make the shift of it again.
void permuteWords(llvm::Module &module);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_PERMUTEWORDS_H
