//===- EntryTerms.cpp - how a tensor comes to a step, and leaves it ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/EntryTerms.h"

#include "core/Status.h"

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace stepc;

bool EntryTerms::operator==(const EntryTerms &other) const {
  auto all = [](const EntryTerms &t) {
    bool crosses = t.partialAxes != 0;
    return std::tuple(t.wholeAxes, t.partialAxes, t.divisor, t.divideBefore,
                      t.owned, t.rows, t.param, crosses ? t.wire : t.param,
                      crosses ? t.sum : t.param);
  };
  return all(*this) == all(other);
}

std::vector<TransferKind> EntryTerms::getKinds() const {
  std::vector<TransferKind> kinds;
  if (wholeAxes)
    kinds.push_back(owned              ? TransferKind::ToOwner
                    : getScatterAxes() ? TransferKind::ReduceScatter
                                       : TransferKind::AllSlice);
  if (getReduceAxes())
    kinds.push_back(TransferKind::AllReduce);
  if (wholeAxes)
    kinds.push_back(owned ? TransferKind::FromOwner : TransferKind::AllGather);
  return kinds;
}

bool EntryTerms::fits(const Variant &variant) const {
  const std::vector<const Transfer *> has = variant.getTransfers();
  const std::vector<TransferKind> wanted = getKinds();
  if (has.size() != wanted.size())
    return false;
  for (size_t i = 0; i < has.size(); ++i) {
    if (has[i]->kind != wanted[i])
      return false;
    if (!isOfGradient(wanted[i]))
      continue;
    // Of what is between two of them the caller knows nothing.
    if (i == 0 && has[i]->entry != grad)
      return false;
    if (has[i]->sums && has[i]->wire != wire)
      return false;
    if (wanted[i] == TransferKind::ToOwner &&
        has[i]->sums != (getScatterAxes() != 0))
      return false;
  }
  return true;
}

std::string
stepc::describeTransfers(const std::vector<const Transfer *> &transfers) {
  std::string text;
  for (const Transfer *transfer : transfers) {
    text += (text.empty() ? "" : ", ") + std::string(getName(transfer->kind));
    if (!isOfGradient(transfer->kind))
      continue;
    text += std::string(" of ") + getName(transfer->entry);
    if (transfer->sums)
      text += std::string(" by ") + getName(transfer->wire);
  }
  return text;
}

std::string stepc::describe(const EntryTerms &terms) {
  std::vector<Transfer> made;
  for (TransferKind kind : terms.getKinds())
    made.push_back({kind,
                    {},
                    terms.grad,
                    terms.wire,
                    kind == TransferKind::AllReduce ||
                        (isOfGradient(kind) && terms.getScatterAxes() != 0)});
  std::vector<const Transfer *> list;
  for (const Transfer &transfer : made)
    list.push_back(&transfer);
  return describeTransfers(list);
}

namespace {

class EntryChecker {
public:
  EntryChecker(const Mesh &mesh, const StepcEntry &entry,
               const std::string &tensor)
      : mesh(mesh), entry(entry), name(tensor.c_str()) {}

  void requireFields() const;
  void requireAxes() const;
  void requireDivisor() const;
  Storage getWire(Storage grad) const;

private:
  const Mesh &mesh;
  const StepcEntry &entry;
  const char *name;
};

} // namespace

void EntryChecker::requireFields() const {
  // The first version had no owner.
  requireStructSize(&entry, offsetof(StepcEntry, owner), sizeof(StepcEntry),
                    "StepcEntry");
  if (entry.divideBefore != 0 && entry.divideBefore != 1)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: divideBefore of the entry is %d, neither 0 nor 1", name,
         int(entry.divideBefore));
  if (entry.owned != 0 && entry.owned != 1)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: owned of the entry is %d, neither 0 nor 1", name,
         int(entry.owned));
}

void EntryChecker::requireAxes() const {
  uint64_t all = entry.wholeAxes | entry.partialAxes;
  if (!all)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: the entry names no axis", name);
  int64_t numAxes = mesh.getNumAxes();
  for (int64_t i = numAxes; i < 64; ++i)
    if (all >> i & 1)
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: the entry names axis %lld, the mesh has %lld", name,
           static_cast<long long>(i), static_cast<long long>(numAxes));
  uint64_t both = entry.wholeAxes & entry.partialAxes;
  if (both && both != entry.wholeAxes)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the entry's gradient is partial over %s, which are some "
         "of the axes over which it is whole, %s, and not all",
         name, mesh.describe(both).c_str(),
         mesh.describe(entry.wholeAxes).c_str());
  if (entry.owned && !entry.wholeAxes)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the entry has an owner and no axis over which the "
         "parameter is whole",
         name);
}

void EntryChecker::requireDivisor() const {
  if (!(entry.divisor > 0.0) || std::isinf(entry.divisor))
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the entry's divisor is %s, not a positive number", name,
         describeNumber(entry.divisor).c_str());
  if (!entry.partialAxes && entry.divisor != 1.0)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: the entry divides by %s a sum over no axis", name,
         describeNumber(entry.divisor).c_str());
}

Storage EntryChecker::getWire(Storage grad) const {
  if (entry.wireType.bits == 0)
    return grad;
  Storage wire;
  bool wide = getSumStorage(grad) == Storage::F64;
  if (!getStorage(entry.wireType, wire) || wire == Storage::I16 ||
      (wire == Storage::F64 && !wide))
    fail(STEPC_DTYPE_MISMATCH,
         "tensor %s: its gradients of %s cannot cross ranks as %s, known are "
         "%sf32, bf16 and f16",
         name, getName(grad), describe(entry.wireType).c_str(),
         wide ? "f64, " : "");
  return wire;
}

EntryTerms stepc::makeEntryTerms(const Mesh &mesh, const StepcEntry &entry,
                                 bool flat, Storage param, Storage grad,
                                 const std::string &tensor) {
  EntryChecker checker(mesh, entry, tensor);
  checker.requireFields();
  checker.requireAxes();
  checker.requireDivisor();
  EntryTerms terms;
  terms.wholeAxes = entry.wholeAxes;
  terms.partialAxes = entry.partialAxes;
  terms.divisor = entry.divisor;
  terms.divideBefore = entry.divideBefore != 0;
  terms.owned = entry.owned != 0;
  terms.rows = terms.wholeAxes && !terms.owned && !flat;
  terms.param = param;
  terms.grad = grad;
  terms.wire = checker.getWire(grad);
  // A slice is read in place, in whatever type it is.
  bool slice = terms.wholeAxes && !terms.partialAxes;
  terms.sum = slice ? grad : getSumStorage(grad);
  return terms;
}
