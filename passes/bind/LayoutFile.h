//===- LayoutFile.h - how the tensors of a model lie, from a file ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_BIND_LAYOUTFILE_H
#define STEPC_PASSES_BIND_LAYOUTFILE_H

#include "passes/bind/VariantRequest.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mlir::step {

/// Mesh axes by the dim's number from the end, or VariantRequest::kFlat.
using AxesOfDims = std::map<int64_t, std::vector<std::string>>;

/// How the tensors whose names match an expression lie, before a step and
/// behind it.
struct TensorLayouts {
  std::string name;
  /// 0: any, and then there is no shape.
  int64_t rank = 0;
  /// Empty where the file does not say it.
  std::vector<int64_t> shape;
  int64_t count = 1;
  /// The states' is the one under which the step runs.
  AxesOfDims param, grad, states;
  /// Over which the gradient is still to be summed, and what it is divided by.
  std::vector<std::string> partial;
  double divisor = 1;
  bool dividesBefore = false;
  /// In which its addends cross; empty: as they are.
  std::string wire;

  /// The axes that cut the states and not the param.
  std::vector<std::string> getAxesOfStatesAlone() const;
  /// Those of them over which the step cuts the gradient and puts the param
  /// together: none where the gradient comes cut, from who has the parts.
  std::vector<std::string> getWhole() const;
};

/// What a file says (docs/sharding.md). Invariant: every axis is one of the
/// mesh, no layout has an axis twice, a gradient lies as the param or as the
/// states do, and these are cut where the param is, or further.
struct LayoutFile {
  std::string path;
  std::vector<std::pair<std::string, int64_t>> mesh;
  std::vector<TensorLayouts> tensors;

  /// The ranks along these axes.
  int64_t countRanks(ArrayRef<std::string> axes) const;
};

/// Whether the text of --layout names a file.
bool isLayoutFile(StringRef text);

/// Errors name the file, the line and the column.
llvm::Expected<LayoutFile> readLayoutFile(StringRef path);

/// Appends to `requests` what `base` is with each layout under which tensors of
/// the file are stepped, unless it is there.
void addLayouts(const LayoutFile &file, const VariantRequest &base,
                std::vector<VariantRequest> &requests);

} // namespace mlir::step

#endif // STEPC_PASSES_BIND_LAYOUTFILE_H
