//===- TransferReader.cpp - how gradients come and parameters leave -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"

#include <algorithm>

using namespace stepc;

static TransferKind readTransferKind(const FieldReader &fields,
                                     const Json &value,
                                     const std::string &where) {
  std::string name = fields.getString(value, "exchange", where);
  for (TransferKind kind : kTransferKinds)
    if (name == getName(kind))
      return kind;
  fields.bad(at(where, "exchange"), "is not a kind of exchange");
}

static Storage readFloat(const FieldReader &fields, const Json &value,
                         const char *key, const std::string &where) {
  std::string name = fields.getString(value, key, where);
  for (Storage storage : kStorages)
    if (storage != Storage::I16 && name == getName(storage))
      return storage;
  fields.bad(at(where, key), "is not a type of gradients");
}

/// Which dims it cuts or puts together. A program on elements serves every
/// layout, so that they need not be those of its own.
static void readTransferDims(const FieldReader &fields, const Json &value,
                             const std::string &where, const Rule &rule,
                             Transfer &transfer) {
  bool cuts = transfer.kind == TransferKind::AllSlice ||
              transfer.kind == TransferKind::ReduceScatter ||
              transfer.kind == TransferKind::AllGather;
  for (const Json &dim : fields.getArray(value, "dims", where).elements) {
    bool known = dim.is(Json::Kind::String) && dim.string != "1" &&
                 (dim.string == kFlatRange ||
                  std::find(rule.dims.begin(), rule.dims.end(), dim.string) !=
                      rule.dims.end());
    if (!known)
      fields.bad(at(where, "dims"), "has an element that is neither a dim of "
                                    "the rule nor the flat range");
    transfer.dims.push_back(dim.string);
  }
  if (transfer.dims.empty() == cuts)
    fields.bad(at(where, "dims"),
               cuts ? "is empty" : "has a dim, and nothing is cut");
}

/// The types, and whether they fit the operand: sums are made in its type.
static void readTransferTypes(const FieldReader &fields, const Json &value,
                              const std::string &where, const Operand &grad,
                              Transfer &transfer) {
  transfer.entry = readFloat(fields, value, "entry", where);
  transfer.wire = transfer.entry;
  if (transfer.kind == TransferKind::AllSlice ||
      (transfer.kind == TransferKind::ToOwner && !value.find("wire")))
    return;
  transfer.sums = true;
  transfer.wire = readFloat(fields, value, "wire", where);
  Storage sum = getSumStorage(transfer.entry);
  if (grad.storage != sum)
    fields.bad(at(where, "entry"),
               ("is " + std::string(getName(transfer.entry)) +
                ", whose sums are " + getName(sum) + ", and the gradient is " +
                getName(grad.storage))
                   .c_str());
  if (transfer.wire == Storage::F64 && sum != Storage::F64)
    fields.bad(at(where, "wire"), "is f64, and sums are f32");
}

Transfer stepc::readTransfer(const FieldReader &fields, const Json &value,
                             const std::string &where, const Manifest &manifest,
                             const Variant &variant) {
  Transfer transfer;
  transfer.kind = readTransferKind(fields, value, where);
  bool ofGradient = isOfGradient(transfer.kind);
  size_t operand = fields.getIndex(value, "operand", variant.operands.size(),
                                   "is not an operand", where);
  if (operand != (ofGradient ? variant.grad : variant.param))
    fields.bad(at(where, "operand"),
               ofGradient ? "is not the gradient" : "is not the parameter");
  readTransferDims(fields, value, where, manifest.rules[variant.rule],
                   transfer);
  if (ofGradient)
    readTransferTypes(fields, value, where, variant.operands[variant.grad],
                      transfer);
  return transfer;
}

void stepc::requireTransfers(const FieldReader &fields,
                             const std::string &where, const Variant &variant) {
  std::vector<const Transfer *> transfers = variant.getTransfers();
  if (transfers.empty())
    return;
  const Transfer *first = transfers.front();
  size_t next = 1;
  if (!isOfGradient(first->kind))
    fields.bad(where, "gives a parameter away whose gradient is not cut");
  bool reduces = first->kind == TransferKind::AllReduce;
  if (!reduces && next < transfers.size() &&
      transfers[next]->kind == TransferKind::AllReduce)
    ++next;
  if (next < transfers.size() && isOfGradient(transfers[next]->kind))
    fields.bad(where, "brings the gradient twice");
  // What all have, alone, stays in the gradient's own type.
  if (!first->sums && next == 1 &&
      first->entry != variant.operands[variant.grad].storage)
    fields.bad(where, "takes a slice of a gradient of another type");
  if (reduces && next < transfers.size())
    fields.bad(where, "gives a parameter away whose gradient is not cut");
  if (reduces)
    return;
  TransferKind back = first->kind == TransferKind::ToOwner
                          ? TransferKind::FromOwner
                          : TransferKind::AllGather;
  if (next + 1 != transfers.size() || transfers[next]->kind != back)
    fields.bad(where, (std::string("has ") + getName(first->kind) +
                       " without one " + getName(back))
                          .c_str());
}
