//===- TensorQuery.h - what a tensor is that is asked about -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_TENSORQUERY_H
#define STEPC_CORE_TENSORQUERY_H

#include "core/Layout.h"
#include "core/VariantChoice.h"
#include "stepc/describe.h"

#include "numerics/Codes.h"

#include <optional>
#include <string>
#include <vector>

namespace stepc {

/// A state that is to be kept as codes, and how.
struct CodedState {
  std::string name;
  const CodeFormat *format;
  int64_t least; // elements of the whole state, as canEncode takes them
};

/// A StepcTensorQuery, checked.
struct TensorQuery {
  /// In messages.
  std::string name;
  /// Of the tensor's group.
  std::vector<int64_t> options;
  /// Axes are not known: bit 0 stands for those that share a dim, or elements.
  TensorLayout layout;
  /// What the rank has of it, of one dim with a flat range.
  std::vector<int64_t> extents;
  /// Nothing: no variant is asked for.
  std::optional<VariantRequest> request;
  /// States that are to be kept as codes where that saves memory.
  std::vector<CodedState> coded;
};

/// Refuses a tensor that cannot be. `index` is its place in the list.
TensorQuery makeQuery(const Manifest &manifest, const StepcTensorQuery &given,
                      int64_t index);

} // namespace stepc

#endif // STEPC_CORE_TENSORQUERY_H
