//===- ExplainWork.cpp - what products cost, as explained -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainWork.h"

#include "passes/schedule/MatrixWork.h"
#include "passes/schedule/ProgramStorage.h"

#include "llvm/ADT/SmallPtrSet.h"

#include <map>

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

/// The dims of the param, then those that follow from them.
static SmallVector<StringAttr> getKnownDims(ProgramOp program) {
  SmallVector<StringAttr> known(getDims(program.getParam().getType()));
  llvm::append_range(known, program.getBoundDimNames());
  return known;
}

/// Which steps make it; nothing where all do.
static std::string describeSteps(int64_t period) {
  if (period == 0)
    return "in steps that create a state";
  return period == 1 ? "" : "in one of " + std::to_string(period) + " steps";
}

static void addBytes(Value buffer, WorkSum &sum) {
  auto type = cast<BufferType>(buffer.getType());
  sum.add(getBytes(type.getElement()), 1, type.getDims());
}

namespace {
/// What one or several operations of one period cost.
struct Work {
  explicit Work(int64_t period) : flops(period) {}

  void add(Operation *op);
  json::Object describe(ArrayRef<StringAttr> known) const;

  WorkSum flops, reads, writes;
};
} // namespace

/// A product of a matrix with itself reads it once.
void Work::add(Operation *op) {
  flops.add(getFlops(op));
  llvm::SmallPtrSet<Value, 2> read;
  for (Value operand : op->getOperands())
    if (isa<BufferType>(operand.getType()) && read.insert(operand).second)
      addBytes(operand, reads);
  addBytes(op->getResult(0), writes);
}

json::Object Work::describe(ArrayRef<StringAttr> known) const {
  int64_t period = flops.getPeriod();
  json::Object object{{"flops", flops.format(known)},
                      {"reads", reads.format(known)},
                      {"writes", writes.format(known)},
                      {"period", period}};
  if (std::string steps = describeSteps(period); !steps.empty())
    object["steps"] = std::move(steps);
  return object;
}

json::Array mlir::step::describeWork(ProgramOp program,
                                     ArrayRef<Operation *> ops) {
  SmallVector<StringAttr> known = getKnownDims(program);
  std::vector<std::pair<json::Object, int64_t>> found;
  for (Operation *op : ops) {
    if (getWorkName(op).empty())
      continue;
    Work work(getFlops(op).getPeriod());
    work.add(op);
    json::Object own = work.describe(known);
    own["op"] = getWorkName(op);
    auto same = llvm::find_if(
        found, [&](const auto &other) { return other.first == own; });
    if (same == found.end())
      found.push_back({std::move(own), 1});
    else
      ++same->second;
  }
  json::Array all;
  for (auto &[object, count] : found) {
    object["count"] = count;
    all.push_back(std::move(object));
  }
  return all;
}

json::Array mlir::step::describeWorkOfAll(ProgramOp program) {
  // 0, of steps that create a state, is the largest of these.
  std::map<uint64_t, Work> sums;
  for (Operation &op : program.getBody().front()) {
    if (getWorkName(&op).empty())
      continue;
    int64_t period = getFlops(&op).getPeriod();
    sums.try_emplace(uint64_t(period) - 1, period).first->second.add(&op);
  }
  SmallVector<StringAttr> known = getKnownDims(program);
  json::Array all;
  for (const auto &[place, work] : sums)
    all.push_back(work.describe(known));
  return all;
}
