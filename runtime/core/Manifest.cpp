//===- Manifest.cpp - what a package says about itself --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Manifest.h"

#include "stepc/kernel_abi.h"

#include <algorithm>
#include <cmath>

using namespace stepc;

bool stepc::isSeed(double value) {
  return value >= 0 && value <= STEPC_SEED_MOST && value == std::floor(value);
}

int64_t stepc::getByteSize(Storage storage) {
  switch (storage) {
  case Storage::F32:
    return 4;
  case Storage::F64:
    return 8;
  case Storage::BF16:
  case Storage::F16:
  case Storage::I16:
    return 2;
  case Storage::Position:
    return 0;
  }
  return 0;
}

const char *stepc::getName(Storage storage) {
  switch (storage) {
  case Storage::F32:
    return "f32";
  case Storage::F64:
    return "f64";
  case Storage::BF16:
    return "bf16";
  case Storage::F16:
    return "f16";
  case Storage::I16:
    return "i16";
  case Storage::Position:
    return "i64";
  }
  return "";
}

DLDataType stepc::getDLDataType(Storage storage) {
  uint8_t code = storage == Storage::BF16  ? kDLBfloat
                 : storage == Storage::I16 ? kDLInt
                                           : kDLFloat;
  return {code, uint8_t(8 * getByteSize(storage)), 1};
}

bool stepc::getStorage(DLDataType type, Storage &storage) {
  for (Storage s : kStorages) {
    DLDataType known = getDLDataType(s);
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) {
      storage = s;
      return true;
    }
  }
  return false;
}

std::string stepc::describe(DLDataType type) {
  std::string name;
  switch (type.code) {
  case kDLInt:
    name = "i";
    break;
  case kDLUInt:
    name = "u";
    break;
  case kDLFloat:
    name = "f";
    break;
  case kDLBfloat:
    name = "bf";
    break;
  case kDLComplex:
    name = "complex";
    break;
  case kDLBool:
    name = "bool";
    break;
  default:
    name = "code " + std::to_string(type.code) + ", bits ";
    break;
  }
  name += std::to_string(type.bits);
  if (type.lanes != 1)
    name += "x" + std::to_string(type.lanes);
  return name;
}

bool stepc::compare(double left, Predicate predicate, double right) {
  switch (predicate) {
  case Predicate::EQ:
    return left == right;
  case Predicate::NE:
    return left != right;
  case Predicate::LT:
    return left < right;
  case Predicate::LE:
    return left <= right;
  case Predicate::GT:
    return left > right;
  case Predicate::GE:
    return left >= right;
  }
  return false;
}

const char *stepc::getName(BufferUse use) {
  static const char *const names[] = {"all", "packed", "routine", "record",
                                      "handed"};
  return names[size_t(use)];
}

const char *stepc::getName(Predicate predicate) {
  static const char *const names[] = {"eq", "ne", "lt", "le", "gt", "ge"};
  return names[size_t(predicate)];
}

std::string stepc::describe(const Dims &dims) {
  std::string text = "[";
  for (const std::string &dim : dims)
    text += (text.size() > 1 ? ", " : "") + dim;
  return text + "]";
}

int64_t Option::derive(const std::vector<double> &hypers) const {
  return compare(hypers[hyper], predicate, value);
}

bool Variant::hasReducedOperands() const {
  return std::any_of(
      operands.begin(), operands.end(),
      [](const Operand &operand) { return operand.reach == Reach::Reduced; });
}

bool Variant::hasProducts() const {
  return std::any_of(
      schedule.begin(), schedule.end(),
      [](const ScheduleEntry &entry) { return entry.products > 0; });
}

size_t Variant::countLaunches() const {
  size_t count = 0;
  for (const ScheduleEntry &entry : schedule)
    count += std::max<size_t>(entry.stages.size(), 1);
  return count;
}

bool Variant::handsOver() const {
  return std::any_of(workspace.begin(), workspace.end(),
                     [](const WorkspaceBuffer &buffer) {
                       return buffer.use == BufferUse::Record;
                     });
}

bool Variant::waitsForRow(const ScheduleEntry &entry) const {
  return std::any_of(entry.edges.begin(), entry.edges.end(),
                     [&](const Edge &edge) {
                       return edge.scope == EdgeScope::Tensor &&
                              schedule[edge.entry].isCalled();
                     });
}

bool Variant::takesRows(const ScheduleEntry &entry) const {
  return entry.kind == EntryKind::Finish || waitsForRow(entry);
}

bool Variant::takesRows() const {
  return std::any_of(schedule.begin(), schedule.end(),
                     [&](const ScheduleEntry &entry) {
                       return entry.isCalled() && takesRows(entry);
                     });
}

std::vector<const Transfer *> Variant::getTransfers() const {
  std::vector<const Transfer *> transfers;
  for (const ScheduleEntry &entry : schedule)
    if (entry.transfer)
      transfers.push_back(&*entry.transfer);
  return transfers;
}

Dims Variant::getShardedDims() const {
  Dims dims;
  for (const ShardedDim &sharded : layout)
    dims.push_back(sharded.dim);
  return dims;
}

bool Variant::serves(const Dims &shardedDims) const {
  if (layout.empty() && space == Space::Elements)
    return true;
  Dims own = getShardedDims();
  return std::is_permutation(own.begin(), own.end(), shardedDims.begin(),
                             shardedDims.end());
}

int64_t Variant::getBytesPerElement(const ScheduleEntry &entry) const {
  int64_t bytes = 0;
  for (const std::vector<size_t> *list : {&entry.reads, &entry.writes})
    for (size_t k : *list)
      if (operands[k].reach == Reach::Full)
        bytes += getByteSize(operands[k].storage);
  return bytes;
}

int64_t Variant::getFootprint() const {
  int64_t bytes = 0;
  for (const Operand &operand : operands)
    if (operand.reach == Reach::Full)
      bytes += getByteSize(operand.storage);
  return bytes;
}

size_t Manifest::getMostLaunches() const {
  size_t most = 0;
  for (const Variant &variant : variants)
    most = std::max(most, variant.countLaunches());
  return most;
}

bool Manifest::selectSame(const std::vector<int64_t> &left,
                          const std::vector<int64_t> &right) const {
  for (size_t i = 0; i < options.size(); ++i)
    if (!options[i].integer && left[i] != right[i])
      return false;
  return true;
}
