//===- LowerScalarPhases.cpp - step-lower-scalar-phases -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/Words.h"
#include "passes/schedule/RoundCalls.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::step {
#define GEN_PASS_DEF_LOWERSCALARPHASES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Whether the flag of that number is set in the word of fresh flags.
static Value readFlag(Words &w, Value flags, int64_t number) {
  Value bit = arith::AndIOp::create(
      w.b, w.loc, flags, w.constantWord(int64_t(uint64_t(1) << number)));
  return arith::CmpIOp::create(w.b, w.loc, arith::CmpIPredicate::ne, bit,
                               w.constantWord(0));
}

/// Makes `void name(hypers, results, count, fresh, row)`, StepcScalarFunction.
/// Pointers are i64: on every target they travel as integers of that size do.
static void lowerScalarPhase(ScalarPhaseOp phase, OpBuilder &builder) {
  Words w(builder, phase.getLoc());
  Type i64 = builder.getI64Type(), f64 = builder.getF64Type();
  auto function = func::FuncOp::create(
      builder, w.loc, phase.getSymName(),
      builder.getFunctionType(SmallVector<Type>(5, i64), {}));
  OpBuilder::InsertionGuard guard(builder);
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  Value hypers = w.view(entry->getArgument(0), f64);
  Value results = w.view(entry->getArgument(1), f64);
  Value row = w.view(entry->getArgument(4), f64);

  // Inputs are hyper-parameters, results and kept scalars; in memory reports
  // stand between the latter two.
  auto optimizer = phase->getParentOfType<OptimizerOp>();
  int64_t numHypers = llvm::range_size(optimizer.getBody().getOps<HyperOp>());
  int64_t numResults = countResults(optimizer);
  int64_t numReports = countReports(optimizer);
  IRMapping mapping;
  Block &body = phase.getBody().front();
  int64_t numInputs = phase.getNumInputs();
  for (int64_t input = 0; input < numInputs; ++input) {
    if (body.getArgument(input).use_empty())
      continue;
    int64_t place = input - numHypers;
    if (place >= numResults)
      place += numReports;
    mapping.map(body.getArgument(input), input < numHypers
                                             ? w.load(hypers, input)
                                             : w.load(results, place));
  }
  mapping.map(body.getArgument(numInputs), entry->getArgument(2));
  for (int64_t k = 0; k < phase.getNumFreshes(); ++k)
    mapping.map(body.getArgument(numInputs + 1 + k),
                readFlag(w, entry->getArgument(3), k));
  for (Operation &op : body.without_terminator())
    builder.clone(op, mapping);
  for (auto [slot, value] :
       llvm::enumerate(body.getTerminator()->getOperands()))
    w.store(mapping.lookup(value), row,
            w.constant(int64_t(phase.getFirstSlot()) + slot));
  func::ReturnOp::create(builder, w.loc);
}

namespace {
struct LowerScalarPhases
    : step::impl::LowerScalarPhasesBase<LowerScalarPhases> {
  void runOnOperation() override {
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(getOperation().getBody());
    getOperation().walk(
        [&](ScalarPhaseOp phase) { lowerScalarPhase(phase, builder); });
  }
};
} // namespace
