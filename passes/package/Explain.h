//===- Explain.h - the schedule of an optimizer, as data and in words -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAIN_H
#define STEPC_PASSES_PACKAGE_EXPLAIN_H

#include "dialect/Step.h"
#include "passes/bind/LayoutFile.h"

#include "llvm/Support/JSON.h"

namespace mlir::step {

/// Of the document that docs/explain.md describes.
inline constexpr int64_t kExplanationFormat = 1;

/// The document, of an optimizer after the schedule stage: for each variant, in
/// the order in which they run, its kernels, finishes and rounds, what they
/// compute, read and write, and the bytes per parameter against the least
/// possible. Nothing else reads the schedule to explain it: words and pictures
/// are made of the document.
llvm::json::Object explainSchedule(OptimizerOp scheduled);

/// One item of the document's `layouts`: for the tensors of a file how they
/// lie, and which calls of the caller bring gradients to where the step needs
/// them and parameters back, with the bytes that a rank sends; storage of both
/// is as `base` says.
llvm::json::Object explainLayouts(const LayoutFile &file,
                                  const VariantRequest &base);

/// The document in words.
std::string explainAsText(llvm::json::Object explanation);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAIN_H
