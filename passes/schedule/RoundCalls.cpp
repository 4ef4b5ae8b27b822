//===- RoundCalls.cpp - the rounds of a step as the runtime sees them -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/RoundCalls.h"

#include "passes/Mangle.h"

using namespace mlir;
using namespace mlir::step;

int64_t mlir::step::countResults(OptimizerOp optimizer) {
  int64_t results = 0;
  for (auto op : optimizer.getBody().getOps<ScalarsOp>())
    results += op->getNumResults();
  return results;
}

static int64_t countReports(ScalarsOp op) {
  return llvm::range_size(op.getBody().getOps<ReportOp>());
}

int64_t mlir::step::countReports(OptimizerOp optimizer) {
  int64_t reports = 0;
  for (auto op : optimizer.getBody().getOps<ScalarsOp>())
    reports += ::countReports(op);
  return reports;
}

int64_t mlir::step::getScalarIndex(OptimizerOp optimizer, ScalarOp scalar) {
  auto scalars = optimizer.getBody().getOps<ScalarOp>();
  return std::distance(scalars.begin(), llvm::find(scalars, scalar));
}

std::vector<RoundCall> mlir::step::getRoundCalls(OptimizerOp optimizer) {
  std::vector<RoundCall> calls;
  int64_t nextResult = 0, nextReport = countResults(optimizer);
  for (auto op : optimizer.getBody().getOps<ScalarsOp>()) {
    RoundCall call;
    call.op = op;
    call.round = op.getRound().value_or(0);
    call.function =
        mangle((optimizer.getSymName() + "_round" + Twine(calls.size())).str());
    call.firstResult = nextResult;
    call.firstReport = nextReport;
    nextResult += op->getNumResults();
    nextReport += ::countReports(op);
    calls.push_back(std::move(call));
  }
  llvm::stable_sort(calls, [](const RoundCall &a, const RoundCall &b) {
    return a.round < b.round;
  });
  return calls;
}

int64_t mlir::step::countRounds(OptimizerOp optimizer) {
  int64_t rounds = 0;
  for (const RoundCall &call : getRoundCalls(optimizer))
    rounds = std::max(rounds, call.round + 1);
  for (auto program : optimizer.getBody().getOps<ProgramOp>())
    for (auto exchange : program.getBody().getOps<ExchangeOp>())
      if (!exchange.getShares().empty())
        rounds = std::max(rounds, int64_t(exchange.getRound()) + 1);
  return rounds;
}
