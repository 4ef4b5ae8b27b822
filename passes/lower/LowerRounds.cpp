//===- LowerRounds.cpp - step-lower-rounds --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/Words.h"
#include "passes/schedule/RoundCalls.h"
#include "passes/schedule/ScalarCode.h"

#include "mlir/Dialect/Math/IR/Math.h"

namespace mlir::step {
#define GEN_PASS_DEF_LOWERROUNDS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// Makes the StepcRoundFunction of one step.scalars.
class RoundEmitter {
public:
  RoundEmitter(OpBuilder &builder, OptimizerOp optimizer, const RoundCall &call)
      : w(builder, ScalarsOp(call.op).getLoc()), optimizer(optimizer),
        call(call) {}

  void emit();

private:
  void mapInputs(ValueRange arguments);
  void emitOp(Operation &op);
  Value getScalar(Value value) {
    return mapOrMaterialize(w.b, value, mapping, w.b.getF64Type());
  }
  /// As an f64 of the results: a condition is 0 or 1.
  Value asResult(Value value) {
    if (!value.getType().isInteger(1))
      return value;
    return arith::UIToFPOp::create(w.b, w.loc, w.b.getF64Type(), value);
  }

  Words w;
  OptimizerOp optimizer;
  const RoundCall &call;
  IRMapping mapping;
  Value results, updated, skip;
  int64_t nextReport = 0;
};
} // namespace

/// Loads what the region can see, by its place in the manifest.
void RoundEmitter::mapInputs(ValueRange arguments) {
  Type f64 = w.b.getF64Type();
  Value hypers = w.view(arguments[0], f64), options = w.words(arguments[1]);
  Value statistics = w.view(arguments[2], f64);
  Value scalars = w.view(arguments[3], f64);
  results = w.view(arguments[4], f64);
  updated = w.view(arguments[5], f64);
  int64_t nextHyper = 0, nextOption = 0, nextStatistic = 0, nextScalar = 0;
  for (Operation &op : optimizer.getBody().front()) {
    if (auto hyper = dyn_cast<HyperOp>(op))
      mapping.map(hyper.getResult(), w.load(hypers, nextHyper++));
    else if (auto statistic = dyn_cast<StatisticOp>(op))
      mapping.map(statistic.getResult(), w.load(statistics, nextStatistic++));
    else if (auto scalar = dyn_cast<ScalarOp>(op))
      mapping.map(scalar.getResult(), w.load(scalars, nextScalar++));
    else if (auto option = dyn_cast<OptionOp>(op)) {
      Value word = w.load(options, nextOption++);
      if (option.getResult().getType().isInteger(1))
        mapping.map(option.getResult(), w.isUnequal(word, w.constantWord(0)));
    }
  }
  int64_t nextResult = 0;
  for (auto other : optimizer.getBody().getOps<ScalarsOp>())
    for (Value result : other.getResults()) {
      Value value = w.load(results, nextResult++);
      mapping.map(result,
                  result.getType().isInteger(1) ? w.isTrue(value) : value);
    }
}

void RoundEmitter::emitOp(Operation &op) {
  if (auto update = dyn_cast<UpdateOp>(op)) {
    w.store(getScalar(update.getValue()), updated,
            w.constant(getScalarIndex(optimizer, update.getScalarOp())));
  } else if (auto report = dyn_cast<ReportOp>(op)) {
    w.store(getScalar(report.getValue()), results,
            w.constant(call.firstReport + nextReport++));
  } else if (auto skipIf = dyn_cast<SkipIfOp>(op)) {
    Value condition = getScalar(skipIf.getCondition());
    skip = skip ? w.either(skip, condition) : condition;
  } else {
    mapping.map(op.getResult(0),
                emitScalarCode(w.b, &op, mapping, w.b.getF64Type()));
  }
}

void RoundEmitter::emit() {
  Type i64 = w.b.getI64Type();
  auto function = func::FuncOp::create(
      w.b, w.loc, call.function,
      w.b.getFunctionType(SmallVector<Type>(6, i64), {i64}));
  OpBuilder::InsertionGuard guard(w.b);
  Block *entry = function.addEntryBlock();
  w.b.setInsertionPointToStart(entry);
  mapInputs(entry->getArguments());
  ScalarsOp op = call.op;
  for (Operation &inner : op.getBody().front().without_terminator())
    emitOp(inner);
  for (auto [k, value] : llvm::enumerate(op.getYield().getValues()))
    w.store(asResult(getScalar(value)), results,
            w.constant(call.firstResult + k));
  Value returned =
      skip ? arith::ExtUIOp::create(w.b, w.loc, i64, skip) : w.constantWord(0);
  func::ReturnOp::create(w.b, w.loc, returned);
}

namespace {
struct LowerRounds : step::impl::LowerRoundsBase<LowerRounds> {
  void runOnOperation() override {
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(getOperation().getBody());
    for (auto optimizer : getOperation().getOps<OptimizerOp>())
      for (const RoundCall &call : getRoundCalls(optimizer))
        RoundEmitter(builder, optimizer, call).emit();
  }
};
} // namespace
