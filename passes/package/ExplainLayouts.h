//===- ExplainLayouts.h - what crosses ranks around a step ------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PACKAGE_EXPLAINLAYOUTS_H
#define STEPC_PASSES_PACKAGE_EXPLAINLAYOUTS_H

#include "passes/bind/LayoutFile.h"

namespace mlir::step {

/// For the tensors of a file how they lie, and which calls of the caller bring
/// gradients to where the step needs them and parameters back, with the bytes
/// that a rank sends; storage of both is as `base` says.
std::string explainLayouts(const LayoutFile &file, const VariantRequest &base);

} // namespace mlir::step

#endif // STEPC_PASSES_PACKAGE_EXPLAINLAYOUTS_H
