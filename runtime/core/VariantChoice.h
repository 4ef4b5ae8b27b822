//===- VariantChoice.h - which variant serves a tensor --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_VARIANTCHOICE_H
#define STEPC_CORE_VARIANTCHOICE_H

#include "core/EntryTerms.h"
#include "core/Layout.h"

#include <optional>
#include <string>
#include <vector>

namespace stepc {

/// What is kept of a parameter in more bits than it has, and whether it is
/// rounded by random bits.
struct Kept {
  /// The state that its f32 is kept in; empty: none.
  std::string master;
  bool rounds = false;
};

/// What a tensor asks of a variant, beside its rule, options and layout.
struct VariantRequest {
  Storage param = Storage::F32;
  Storage grad = Storage::F32;
  /// Nothing: those that the runtime allocates fit any variant.
  std::optional<std::vector<Storage>> states;
  /// How it brings the gradient and gives the parameter away, null: does
  /// neither, or with `anyEntry` in any way.
  const EntryTerms *entry = nullptr;
  bool anyEntry = false;
  /// Nothing: the states say it.
  std::optional<Kept> kept;
};

/// What the tensors of a binding ask for. Refuses those that are not at
/// `place`. `name` is the tensor's in messages, here and below.
VariantRequest makeRequest(const StepcBinding &binding, DLDevice place,
                           const EntryTerms *entry, const std::string &name);

/// The first variant of the rule with the values of the group's options, the
/// dims that are sharded and what is asked for. Refuses tensors for which there
/// is none.
size_t chooseVariant(const Manifest &manifest,
                     const std::vector<int64_t> &options, size_t rule,
                     const TensorLayout &layout, const VariantRequest &request,
                     const std::string &name);

} // namespace stepc

#endif // STEPC_CORE_VARIANTCHOICE_H
