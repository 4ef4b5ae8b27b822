//===- LowerScalarPhases.cpp - step-lower-scalar-phases -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

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

/// Makes `void name(hypers, count, fresh, row)`, StepcScalarFunction. Pointers
/// are i64: on every target they travel as integers of that size do.
static void lowerScalarPhase(ScalarPhaseOp phase, OpBuilder &builder) {
  Location loc = phase.getLoc();
  Type i64 = builder.getI64Type();
  auto function =
      func::FuncOp::create(builder, loc, phase.getSymName(),
                           builder.getFunctionType({i64, i64, i64, i64}, {}));
  OpBuilder::InsertionGuard guard(builder);
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  auto memory = MemRefType::get({ShapedType::kDynamic}, builder.getF64Type());
  Value hypers = ViewOp::create(builder, loc, memory, entry->getArgument(0));
  Value row = ViewOp::create(builder, loc, memory, entry->getArgument(3));
  auto index = [&](int64_t value) {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };

  IRMapping mapping;
  Block &body = phase.getBody().front();
  int64_t numHypers = phase.getNumInputs();
  for (int64_t position = 0; position < numHypers; ++position)
    if (!body.getArgument(position).use_empty())
      mapping.map(body.getArgument(position),
                  memref::LoadOp::create(builder, loc, hypers,
                                         ValueRange{index(position)}));
  mapping.map(body.getArgument(numHypers), entry->getArgument(1));
  Value zero = arith::ConstantIntOp::create(builder, loc, i64, 0);
  mapping.map(body.getArgument(numHypers + 1),
              arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ne,
                                    entry->getArgument(2), zero));
  for (Operation &op : body.without_terminator())
    builder.clone(op, mapping);
  for (auto [slot, value] :
       llvm::enumerate(body.getTerminator()->getOperands()))
    memref::StoreOp::create(builder, loc, mapping.lookup(value), row,
                            ValueRange{index(slot)});
  func::ReturnOp::create(builder, loc);
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
