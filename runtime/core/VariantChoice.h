//===- VariantChoice.h - which variant serves a tensor --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_VARIANTCHOICE_H
#define STEPC_CORE_VARIANTCHOICE_H

#include "core/EntryTerms.h"
#include "core/Groups.h"
#include "core/Layout.h"

#include <string>

namespace stepc {

/// The first variant of the rule that takes the whole tensor, with the group's
/// options, the dims that are sharded and the storage types of the tensors;
/// states that the runtime allocates fit any. It brings the gradient and gives
/// the parameter away as `entry` says, null: does neither. Refuses tensors for
/// which there is none, and those that are not at `place`. `name` is the
/// tensor's in messages.
size_t chooseVariant(const Manifest &manifest, const Group &group,
                     const StepcBinding &binding, DLDevice place,
                     const TensorLayout &layout, const EntryTerms *entry,
                     const std::string &name);

} // namespace stepc

#endif // STEPC_CORE_VARIANTCHOICE_H
