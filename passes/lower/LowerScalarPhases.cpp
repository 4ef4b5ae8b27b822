//===- LowerScalarPhases.cpp - step-lower-scalar-phases -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/BodyEmitter.h"
#include "passes/schedule/RoundCalls.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/RegionUtils.h"

namespace mlir::step {
#define GEN_PASS_DEF_LOWERSCALARPHASES
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Whether the flag of that number is set in the word of fresh flags.
static Value readFlag(Words &w, Value flags, int64_t number) {
  Value mask = w.constantWord(int64_t(uint64_t(1) << number));
  return w.isUnequal(w.both(flags, mask), w.constantWord(0));
}

/// Makes `void name(hypers, results, count, fresh, row)`, StepcScalarFunction.
/// Pointers are i64: on every target they travel as integers of that size do.
/// `firstSlot` is the row's for the first result.
static void lowerCohortScalars(CohortScalarsOp scalars, OpBuilder &builder,
                               int64_t firstSlot) {
  Words w(builder, scalars.getLoc());
  Type i64 = builder.getI64Type(), f64 = builder.getF64Type();
  auto function = func::FuncOp::create(
      builder, w.loc, scalars.getSymName(),
      builder.getFunctionType(SmallVector<Type>(5, i64), {}));
  OpBuilder::InsertionGuard guard(builder);
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  Value hypers = w.view(entry->getArgument(0), f64);
  Value results = w.view(entry->getArgument(1), f64);
  Value row = w.view(entry->getArgument(4), f64);

  // In memory results of rounds come first, then reports, then kept scalars.
  auto optimizer = scalars->getParentOfType<OptimizerOp>();
  auto program = cast<ProgramOp>(scalars->getParentOp());
  IRMapping mapping;
  Block &body = scalars.getBody().front();
  llvm::SetVector<Value> used;
  getUsedValuesDefinedAbove(scalars.getBody(), used);
  auto load = [&](Value value, Value memory, int64_t place) {
    Value number = w.load(memory, place);
    mapping.map(value,
                value.getType().isInteger(1) ? w.isTrue(number) : number);
  };
  int64_t nextHyper = 0, nextResult = 0;
  int64_t nextScalar = countResults(optimizer) + countReports(optimizer);
  for (Operation &op : optimizer.getBody().front()) {
    if (!isa<HyperOp, ScalarsOp, ScalarOp>(op))
      continue;
    for (Value value : op.getResults()) {
      int64_t &next = isa<HyperOp>(op)     ? nextHyper
                      : isa<ScalarsOp>(op) ? nextResult
                                           : nextScalar;
      int64_t place = next++;
      if (used.contains(value))
        load(value, isa<HyperOp>(op) ? hypers : results, place);
    }
  }
  if (program.getCount())
    mapping.map(program.getCount(), entry->getArgument(2));
  for (auto [k, fresh] : llvm::enumerate(program.getFreshes()))
    mapping.map(fresh, readFlag(w, entry->getArgument(3), k));
  for (Value value : used)
    if (auto constant = value.getDefiningOp<arith::ConstantOp>())
      builder.clone(*constant, mapping);
  for (Operation &op : body.without_terminator())
    builder.clone(op, mapping);
  for (auto [slot, value] :
       llvm::enumerate(body.getTerminator()->getOperands())) {
    Value number = emitSlot(w, mapping.lookup(value));
    w.store(number, row, w.constant(firstSlot + int64_t(slot)));
  }
  func::ReturnOp::create(builder, w.loc);
}

namespace {
struct LowerScalarPhases
    : step::impl::LowerScalarPhasesBase<LowerScalarPhases> {
  void runOnOperation() override {
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(getOperation().getBody());
    getOperation().walk([&](ProgramOp program) {
      if (program.getKernelsOf())
        return;
      int64_t firstSlot = 0;
      for (auto scalars : program.getBody().getOps<CohortScalarsOp>()) {
        lowerCohortScalars(scalars, builder, firstSlot);
        firstSlot += scalars.getNumResults();
      }
    });
  }
};
} // namespace
