//===- RuleAnalysis.cpp - where and when each value of a rule is ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/RuleAnalysis.h"

#include "stepc/kernel_abi.h"

using namespace mlir;
using namespace mlir::step;

// Of the dims that follow from others the dialect's verifier has the limit.
static_assert(kMaxBoundDims == STEPC_BOUND_DIMS_MOST);

LogicalResult RuleAnalysis::checkDims() {
  Type param = rule.getArgumentOfKind(RoleKind::Param).getType();
  unsigned named = dims.getNumNamed();
  if (named > STEPC_NAMED_DIMS_MOST || named == 0)
    return rule.emitOpError()
           << "has a param of " << param << " with " << named
           << " named dims; rules of 1 to " << STEPC_NAMED_DIMS_MOST
           << " beside the leading ones can be compiled, others only "
              "interpreted";
  for (BlockArgument argument : rule.getBody().getArguments()) {
    if (!isShaped(argument.getType()) ||
        step::getDims(argument.getType()).size() == dims.size())
      continue;
    return rule.emitOpError()
           << "has state '"
           << rule.getRole(argument.getArgNumber()).getDisplayName() << "' of "
           << argument.getType() << ", which has not as many dims as the param "
           << param << "; such states cannot be compiled, only interpreted";
  }
  return success();
}

Domain RuleAnalysis::classifyDims(Type type) {
  Type shape = SymTensorType::get(type.getContext(), step::getDims(type));
  if (!dims.covers(shape)) {
    otherDims.insert(shape);
    return Domain(Domain::Other,
                  llvm::find(otherDims, shape) - otherDims.begin());
  }
  DimSet own = dims.getSet(shape);
  return own == dims.getAll() ? Domain(Domain::Full) : Domain(own);
}

Domain RuleAnalysis::getPlace(Operation *op) const {
  if (auto reduction = dyn_cast<ReductionOpInterface>(op))
    return getDomain(reduction.getInput());
  auto product = products.find(op);
  if (product != products.end())
    return Domain(Domain::Matrix, product->second);
  return getDomain(op->getResult(0));
}

Domain RuleAnalysis::getDomain(Value value) const {
  auto found = domains.find(value);
  if (found != domains.end())
    return found->second;
  // What stands outside of the rule.
  return value.getDefiningOp<ConstantOp>() ? Domain::Constant : Domain::Cohort;
}

Domain RuleAnalysis::classify(Operation *op) {
  if (isShaped(op->getResult(0).getType()))
    return classifyDims(op->getResult(0).getType());
  if (isa<ConstantOp>(op))
    return Domain::Constant;
  if (isa<ReductionOpInterface, CarriedOp, ExtentOp>(op))
    return Domain::Tensor;
  for (Value operand : op->getOperands())
    if (getDomain(operand) == Domain::Tensor)
      return Domain::Tensor;
  return Domain::Cohort;
}

void RuleAnalysis::findDomains() {
  for (BlockArgument argument : rule.getBody().getArguments())
    domains.insert({argument, isShaped(argument.getType())
                                  ? classifyDims(argument.getType())
                                  : Domain(Domain::Cohort)});
  for (Operation &op : rule.getBody().front().without_terminator())
    if (op.getNumResults() == 1)
      domains.insert({op.getResult(0), classify(&op)});
}

void RuleAnalysis::findKeptWhole() {
  for (Operation &op : rule.getBody().front().without_terminator()) {
    if (!isMatrixOp(&op))
      continue;
    products.insert({&op, unsigned(products.size())});
    // Of the position nothing is read but where it begins.
    if (isa<RandomNormalOp>(op))
      continue;
    for (Value operand : op.getOperands())
      if (getDomain(operand) == Domain::Full && !isMadeByProduct(operand))
        keptWhole.insert(operand);
  }
}

static bool crossesRanks(Operation *op) {
  auto reduction = dyn_cast<ReductionOpInterface>(op);
  return reduction && reduction.getAcrossAttr();
}

/// The last segment that a value may be computed in is the first that uses it.
void RuleAnalysis::findLatestSegments() {
  auto limit = [&](Value value, int64_t segment) {
    auto [entry, inserted] = latestSegments.try_emplace(value, segment);
    if (!inserted)
      entry->second = std::min(entry->second, segment);
  };
  ReturnOp ret = rule.getReturn();
  for (auto [index, value] :
       llvm::zip(rule.getReturnedArguments(), ret.getValues()))
    limit(value,
          std::max(rounds.getFirstSureSegment(), rounds.getSegment(value)));
  for (Operation &op :
       llvm::reverse(rule.getBody().front().without_terminator())) {
    if (auto contribute = dyn_cast<ContributeOp>(op)) {
      limit(contribute.getValue(),
            rounds.getSegment(contribute.getStatisticOp()));
      continue;
    }
    // Kept where new values are written.
    if (auto carry = dyn_cast<CarryOp>(op)) {
      limit(carry.getValue(), std::max(rounds.getFirstSureSegment(),
                                       rounds.getSegment(carry.getValue())));
      continue;
    }
    auto own = latestSegments.find(op.getResult(0));
    if (own == latestSegments.end())
      continue;
    int64_t segment = own->second;
    // What crosses ranks does so in the first round that can take it.
    if (crossesRanks(&op))
      segment = rounds.getSegment(op.getResult(0)) - 1;
    for (Value operand : op.getOperands())
      limit(operand, segment);
  }
}

void RuleAnalysis::findTimes() {
  // Of a round, also where the rule uses its result as it is.
  for (ScalarsOp scalars : rounds.getScalarsOps())
    for (Value result : scalars.getResults())
      times[result] = Time{rounds.getSegment(result), 0};
  for (Operation &op : rule.getBody().front().without_terminator()) {
    if (op.getNumResults() == 0)
      continue;
    Value result = op.getResult(0);
    const bool crosses = crossesRanks(&op);
    Time time{rounds.getSegment(result) - crosses, 0};
    auto latest = latestSegments.find(result);
    if (latest != latestSegments.end() && !crosses)
      time.segment = std::max(time.segment, latest->second);
    for (Value operand : op.getOperands()) {
      Time known = getTime(operand);
      // It is whole when the traversal that keeps it has ended.
      if (isMatrixOp(&op) && keptWhole.contains(operand))
        ++known.level;
      time = std::max(time, known);
    }
    // A reduction is whole when its traversal has ended, and the round where it
    // crosses ranks.
    auto reduction = dyn_cast<ReductionOpInterface>(op);
    if (reduction)
      reductionTimes[reduction] = time;
    if (crosses)
      time = {time.segment + 1, 0};
    else if (reduction && getDomain(reduction.getInput()) == Domain::Full)
      ++time.level;
    times[result] = getDomain(result) == Domain::Cohort
                        ? Time{rounds.getSegment(result), 0}
                        : time;
  }
}

LogicalResult RuleAnalysis::run() {
  if (failed(checkDims()))
    return failure();
  findDomains();
  findKeptWhole();
  findLatestSegments();
  findTimes();
  findStored();
  return success();
}

void RuleAnalysis::findStored() {
  for (auto [value, index] :
       llvm::zip(rule.getReturn().getValues(), rule.getReturnedArguments()))
    if (value != rule.getBody().getArgument(index)) {
      storedValues[index] = value;
      storing[value].push_back(index);
    }
}

ArrayRef<unsigned> RuleAnalysis::getArgumentsStoring(Value value) const {
  auto found = storing.find(value);
  return found == storing.end() ? ArrayRef<unsigned>() : found->second;
}

Time RuleAnalysis::getStoreTime(unsigned argument) const {
  return std::max(getTime(getStoredValue(argument)),
                  Time{rounds.getFirstSureSegment(), 0});
}

/// "full", "tensor", "[n, 1]".
static void printDomain(raw_ostream &os, Domain domain, Value value) {
  switch (domain.kind) {
  case Domain::Constant:
    os << "constant";
    return;
  case Domain::Cohort:
    os << "cohort";
    return;
  case Domain::Tensor:
    os << "tensor";
    return;
  case Domain::Full:
    os << "full";
    return;
  case Domain::Vector:
  case Domain::Other:
  case Domain::Matrix:
    os << "[";
    llvm::interleaveComma(step::getDims(value.getType()), os,
                          [&](StringAttr dim) { os << dim.getValue(); });
    os << "]";
    return;
  }
}

void RuleAnalysis::print(raw_ostream &os, AsmState &state) const {
  RuleOp op = rule;
  for (Operation &inner : op.getBody().front().without_terminator()) {
    if (inner.getNumResults() != 1)
      continue;
    Value value = inner.getResult(0);
    os << "  ";
    value.printAsOperand(os, state);
    os << " = " << inner.getName() << ": ";
    printDomain(os, getDomain(value), value);
    os << " at " << getTime(value);
    if (auto reduction = dyn_cast<ReductionOpInterface>(inner))
      os << ", reduced in " << getReductionTime(reduction);
    if (keptWhole.contains(value))
      os << ", kept whole";
    os << "\n";
  }
  for (BlockArgument argument : op.getBody().getArguments())
    if (getStoredValue(argument.getArgNumber()))
      os << "  " << op.getRole(argument.getArgNumber()).getDisplayName()
         << " is written from " << getStoreTime(argument.getArgNumber())
         << " on\n";
}
