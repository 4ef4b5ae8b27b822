//===- EntryTerms.h - how a tensor comes to a step, and leaves it ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ENTRYTERMS_H
#define STEPC_CORE_ENTRYTERMS_H

#include "core/Manifest.h"
#include "core/Mesh.h"

#include "stepc/stepc.h"

#include <string>
#include <vector>

namespace stepc {

/// What a binding's StepcEntry says, checked. Tensors of equal terms share
/// buckets, and they are cut alike: whichever types the gradients come in, of
/// which only what crosses matters.
struct EntryTerms {
  uint64_t wholeAxes = 0;
  uint64_t partialAxes = 0;
  double divisor = 1.0;
  bool divideBefore = false;
  bool owned = false;
  /// Cut by rows of dim 0, and not as a line of elements.
  bool rows = false;
  Storage param = Storage::F32;
  /// The gradient's, as the caller has it, as it crosses ranks, and as the
  /// kernel reads it.
  Storage grad = Storage::F32;
  Storage wire = Storage::F32;
  Storage sum = Storage::F32;

  bool operator==(const EntryTerms &other) const;

  /// The axes over which addends are brought to who steps a part, and those
  /// over which parts are summed on all ranks.
  uint64_t getScatterAxes() const { return partialAxes & wholeAxes; }
  uint64_t getReduceAxes() const { return partialAxes & ~wholeAxes; }
  /// What a variant has to have for it, in the order of its schedule.
  std::vector<TransferKind> getKinds() const;
  /// Whether kernels read the gradient where the caller has it.
  bool isGradInPlace() const { return partialAxes == 0; }
  /// Whether a variant brings the gradient and gives the parameter away so.
  bool fits(const Variant &variant) const;
};

/// "reduce_scatter of bf16 by f32, all_gather"; "" of a variant without.
std::string describeTransfers(const std::vector<const Transfer *> &transfers);
std::string describe(const EntryTerms &terms);

/// Checks the entry by itself; `flat` is the layout's. Refuses one that cannot
/// be. `tensor` is its name in messages.
EntryTerms makeEntryTerms(const Mesh &mesh, const StepcEntry &entry, bool flat,
                          Storage param, Storage grad,
                          const std::string &tensor);

} // namespace stepc

#endif // STEPC_CORE_ENTRYTERMS_H
