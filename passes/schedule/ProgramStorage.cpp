//===- ProgramStorage.cpp - where the values of a program lie -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramStorage.h"

#include "passes/schedule/Schedule.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::step;

ProgramStorage::ProgramStorage(ProgramOp program)
    : program(program), dims(step::getParamDims(program)) {
  numberCohort();
  numberTensor();
  if (program.getElementwise())
    return;
  addBuffers(/*vectors=*/true);
  addBuffers(/*vectors=*/false);
}

void ProgramStorage::numberCohort() {
  for (auto scalars : program.getBody().getOps<CohortScalarsOp>())
    for (Value result : scalars.getScalars())
      cohortSlots.insert({result, int64_t(cohortSlots.size())});
}

void ProgramStorage::numberTensor() {
  auto give = [&](Value value) {
    tensorSlots.insert({value, int64_t(tensorSlots.size())});
  };
  // In which run of scalar operations, one behind the other, each is.
  DenseMap<Operation *, int64_t> runs;
  int64_t run = 0;
  for (Operation &op : program.getBody().front()) {
    if (isa<arith::ConstantOp>(op))
      continue;
    if (isTensorScalar(&op))
      runs[&op] = run;
    else
      ++run;
  }
  for (Operation &op : program.getBody().front()) {
    if (isa<CohortScalarsOp>(op))
      continue;
    for (Value result : op.getResults()) {
      if (isShaped(result.getType()) ||
          isa<BufferType, PartialType, ShareType>(result.getType()) ||
          isa<arith::ConstantOp>(op))
        continue;
      bool isInRun =
          isTensorScalar(&op) &&
          llvm::all_of(op.getUsers(), [&](Operation *user) {
            auto found = runs.find(user);
            return found != runs.end() && found->second == runs.lookup(&op);
          });
      if (!isInRun)
        give(result);
    }
  }
}

SmallVector<std::string> ProgramStorage::getVectorSize(Type type) const {
  SmallVector<std::string> size;
  for (unsigned position : dims.getSet(type).getPositions())
    if (dims.getName(position).getValue() != "1")
      size.push_back(dims.getName(position).str());
  return size;
}

/// What a traversal leaves of a reduction: one for each leaf.
SmallVector<std::string>
ProgramStorage::getPartialSize(PartialType type) const {
  ReductionDims in(dims, type.getShape(), type.getKeptShape());
  auto ofLeaves = [&](unsigned position, int64_t leaf) {
    return (dims.getName(position).getValue() + "/" + Twine(leaf)).str();
  };
  ProgramOp op = program;
  bool ofRange = op.isFlatRange() && in.over == dims.getAll();
  if (ofRange && !in.reducesOuter) {
    std::string lane = dims.getName(*in.lane).str();
    if (in.leaves == Leaves::Columns)
      return {"range blocks", lane};
    return {"range rows", ofLeaves(*in.lane, STEPC_LEAF)};
  }
  SmallVector<std::string> size;
  for (unsigned position : in.over.getPositions()) {
    if (dims.getName(position).getValue() == "1")
      continue;
    if (in.leaves == Leaves::Lanes && position == *in.lane)
      size.push_back(ofLeaves(position, STEPC_LEAF));
    else if (in.leaves == Leaves::Columns && position == *dims.getRow())
      size.push_back(ofLeaves(position, STEPC_ROW_LEAF));
    else
      size.push_back(dims.getName(position).str());
  }
  return size;
}

void ProgramStorage::add(Value value, StringRef prefix, int64_t number,
                         SmallVector<std::string> size, Type element) {
  buffers[value] = workspace.size();
  workspace.push_back(
      {(prefix + Twine(number)).str(), std::move(size), element});
}

/// Vectors first, then partial results and what is made of them.
void ProgramStorage::addBuffers(bool vectors) {
  Type f64 = Float64Type::get(program.getContext());
  int64_t numVectors = 0, numPartials = 0;
  DenseMap<Value, int64_t> numbers;
  for (Operation &op : program.getBody().front()) {
    for (Value result : op.getResults()) {
      auto buffer = dyn_cast<BufferType>(result.getType());
      if (buffer && vectors && getMemory(result) == result)
        add(result, "temp", numVectors++, getVectorSize(buffer),
            buffer.getElement());
      auto partial = dyn_cast<PartialType>(result.getType());
      if (partial && !vectors) {
        numbers[result] = numPartials;
        add(result, "partial", numPartials++, getPartialSize(partial), f64);
      }
    }
    if (auto keep = dyn_cast<KeepOp>(op); keep && vectors)
      workspace[getBufferIndex(keep.getResult())].live = true;
    if (vectors)
      continue;
    if (auto combine = dyn_cast<CombineOp>(op)) {
      auto share = dyn_cast<ShareType>(combine.getResult().getType());
      if (!share)
        continue;
      bool crosses = isa<ExchangeOp>(*combine.getResult().user_begin());
      add(combine.getResult(), crosses ? "exchange" : "whole",
          numbers.lookup(combine.getPartial()),
          getVectorSize(share.getKeptShape()), f64);
    }
    if (auto exchange = dyn_cast<ExchangeOp>(op))
      for (auto [k, share] : llvm::enumerate(exchange.getShares())) {
        buffers[exchange.getResult(k)] = buffers.lookup(share);
        WorkspaceBuffer &own = workspace[buffers.lookup(share)];
        own.live = true;
        own.exchange = exchange;
        own.share = k;
      }
  }
}

int64_t ProgramStorage::getBufferIndex(Value value) const {
  auto found = buffers.find(getMemory(value));
  assert(found != buffers.end() && "the value has a buffer of the workspace");
  return found->second;
}
