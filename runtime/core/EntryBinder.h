//===- EntryBinder.h - bindings of tensors with an entry ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//
// Makes of bindings with an entry those of this rank's parts, which are bound
// as any other: of a parameter of 40 elements that 2 ranks share, rank 1 binds
// [32, 40) with a gradient that the plan has, and a layout that says so.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ENTRYBINDER_H
#define STEPC_CORE_ENTRYBINDER_H

#include "core/Layout.h"
#include "core/StructList.h"
#include "core/Transfers.h"

#include "stepc/stepc.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace stepc {

using BindingList = StructList<StepcBinding>;

/// Checks the first.
BindingList makeBindingList(const StepcBinding *bindings, int64_t size);

class EntryBinder {
public:
  using GetCost = std::function<double(const StepcBinding &binding,
                                       const std::string &name)>;

  /// `firstId`: of the first binding.
  /// `getCost`: of one that is owned; null: its entry has to say by whom.
  EntryBinder(const Mesh &mesh, DLDevice place, int64_t firstId,
              const BindingList &bindings, GetCost getCost)
      : mesh(mesh), place(place), firstId(firstId), given(bindings),
        size(bindings.getSize()), getCost(std::move(getCost)) {}

  /// Whether a binding has an entry.
  bool any() const;
  /// Checks entries, has the transfers cut the tensors, and makes the bindings.
  void run(Transfers &transfers, const TakeMemory &take);
  /// The first half of it: which elements of binding `i` this rank would step,
  /// and, unless that is null, the bucket that it crosses with.
  void cut(BucketSizes bytes, int64_t *begin, int64_t *end, int64_t *bucket);

  BindingList getBindings() const {
    return makeBindingList(bindings.data(), size);
  }
  /// Of binding `i`; null where it has no entry.
  const EntryTensor *getTensor(int64_t i) const;
  const EntryTerms *getTerms(int64_t i) const;
  NewTransfers &getMade() { return made; }

private:
  /// What a binding of a part points to.
  struct Part {
    DLTensor param = {};
    DLTensor grad = {};
    std::vector<int64_t> shape;
    StepcLayout layout = {};
    std::vector<int64_t> start;
  };

  void add(int64_t i);
  void requireFields(const StepcBinding &binding) const;
  void describe(const StepcBinding &binding, EntryTensor &tensor,
                EntryTerms &terms) const;
  void requireCommunicator(const EntryTerms &terms,
                           const std::string &tensor) const;
  uintptr_t requireDense(const DLTensor &tensor, Storage storage, Role role,
                         std::vector<int64_t> &strides) const;
  void requireLayout(const StepcBinding &binding,
                     const EntryTerms &terms) const;
  void requireFlat(const StepcLayout &layout, const EntryTerms &terms) const;
  void requireRows(const StepcLayout &layout, const EntryTerms &terms) const;
  void requireAddends(const StepcLayout &layout, const EntryTerms &terms) const;
  void requireOwned(const StepcLayout &layout, const EntryTerms &terms) const;
  void setOwner(const StepcBinding &binding, const EntryTerms &terms,
                EntryTensor &tensor) const;
  void translate(int64_t i);
  void setLayout(const StepcLayout *layout, const EntryTerms &terms,
                 const EntryTensor &tensor, Part &part) const;

  const Mesh &mesh;
  DLDevice place;
  int64_t firstId;
  BindingList given;
  int64_t size;
  GetCost getCost;
  /// Of the binding that is looked at.
  std::string name;

  std::vector<StepcBinding> bindings;
  /// For each binding its entry; -1: none.
  std::vector<int64_t> entryOf;
  std::vector<EntryTensor> tensors;
  std::vector<EntryTerms> terms;
  std::vector<Part> parts;
  NewTransfers made;
};

/// What stepcGetParts does.
void cutParts(const Mesh &mesh, const StepcBinding *bindings, int64_t size,
              BucketSizes bytes, int64_t *begin, int64_t *end, int64_t *bucket);

} // namespace stepc

#endif // STEPC_CORE_ENTRYBINDER_H
