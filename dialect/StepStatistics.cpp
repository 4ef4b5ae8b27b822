//===- StepStatistics.cpp - what goes from tensor to tensor ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::step;

StatisticOp ContributeOp::getStatisticOp() {
  return getStatistic().getDefiningOp<StatisticOp>();
}

ScalarOp UpdateOp::getScalarOp() {
  return getScalar().getDefiningOp<ScalarOp>();
}

/// Without updates, reports and skips it is pure, until the schedule stage
/// gives it a round: programs read its results by their number, not as
/// operands.
void ScalarsOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  bool acts = llvm::any_of(getBody().front(), [](Operation &op) {
    return !isMemoryEffectFree(&op);
  });
  if (getRound() || acts)
    effects.emplace_back(MemoryEffects::Write::get());
}

//===----------------------------------------------------------------------===//
// One operation alone
//===----------------------------------------------------------------------===//

LogicalResult StatisticOp::verify() {
  if (failed(verifyName(*this, "statistic", getName())))
    return failure();
  if (getKind() == ReductionKind::Mean)
    return emitOpError() << "'" << getName()
                         << "' is a mean; a statistic is a sum or an amax";
  return success();
}

LogicalResult ScalarOp::verify() {
  if (failed(verifyName(*this, "scalar", getName())))
    return failure();
  if (!getInit().isFinite())
    return emitOpError() << "'" << getName()
                         << "' has an initial value that is not finite";
  return success();
}

LogicalResult ContributeOp::verify() {
  if (!getStatisticOp())
    return emitOpError("contributes to something that is not a statistic");
  if (getPartial() && !isa<ProgramOp>((*this)->getParentOp()))
    return emitOpError("contributes a part, which only programs do");
  return success();
}

LogicalResult UpdateOp::verify() {
  ScalarOp scalar = getScalarOp();
  if (!scalar)
    return emitOpError("updates something that is not a scalar");
  Scope scope = cast<ScalarsOp>((*this)->getParentOp()).getScope();
  if (scalar.getScope() != scope)
    return emitOpError() << "updates scalar '" << scalar.getName()
                         << "', which is over "
                         << stringifyScope(scalar.getScope()) << ", over "
                         << stringifyScope(scope);
  return success();
}

LogicalResult ReportOp::verify() {
  return verifyName(*this, "report", getName());
}

LogicalResult SkipIfOp::verify() {
  if (cast<ScalarsOp>((*this)->getParentOp()).getScope() != Scope::Model)
    return emitOpError("skips over group; only the whole step is skipped");
  return success();
}

//===----------------------------------------------------------------------===//
// ScalarsOp
//===----------------------------------------------------------------------===//

/// What a value that is declared outside is one of; constants, hyper-parameters
/// and options go with any scope.
static Scope getScope(Value value) {
  if (auto statistic = value.getDefiningOp<StatisticOp>())
    return statistic.getScope();
  if (auto scalar = value.getDefiningOp<ScalarOp>())
    return scalar.getScope();
  if (auto scalars = value.getDefiningOp<ScalarsOp>())
    return scalars.getScope();
  return Scope::Model;
}

/// An operation of the region works on scalars of the model, or of any scope
/// over a group.
static LogicalResult verifyInScalars(ScalarsOp scalars, Operation *op) {
  auto isScalar = [](Type type) { return type.isF64() || type.isInteger(1); };
  bool computes = isValueOp(op) && isScalar(op->getResult(0).getType());
  if (!computes && !isa<CallOp, UpdateOp, ReportOp, SkipIfOp, YieldOp>(op))
    return op->emitOpError("is not allowed in 'step.scalars', only operations "
                           "on scalars, calls, updates, reports and skips");
  for (Value operand : op->getOperands()) {
    if (!isScalar(operand.getType()))
      return op->emitOpError() << "works on " << operand.getType()
                               << " in 'step.scalars'; only f64 and i1 can "
                                  "stand there";
    if (scalars.getScope() == Scope::Model && getScope(operand) == Scope::Group)
      return op->emitOpError("reads over model what is over group");
  }
  return success();
}

LogicalResult ScalarsOp::verifyRegions() {
  Block &block = getBody().front();
  for (Operation &op : block)
    if (failed(verifyInScalars(*this, &op)))
      return failure();
  if (getResultTypes() != getYield().getValues().getTypes())
    return emitOpError() << "has results " << getResultTypes() << " and yields "
                         << getYield().getValues().getTypes();
  return success();
}

//===----------------------------------------------------------------------===//
// Definitions
//===----------------------------------------------------------------------===//

namespace {
/// Names of one sort, each declared once.
class Names {
public:
  LogicalResult declare(Operation *op, StringRef name) {
    auto [entry, inserted] = places.try_emplace(name, op->getLoc());
    if (inserted)
      return success();
    InFlightDiagnostic diagnostic = op->emitOpError() << "declares '" << name
                                                      << "' a second time";
    diagnostic.attachNote(entry->second) << "first declared here";
    return diagnostic;
  }

private:
  llvm::StringMap<Location> places;
};
} // namespace

static StringRef getDeclaredName(Operation &op) {
  return llvm::TypeSwitch<Operation *, StringRef>(&op)
      .Case<HyperOp, OptionOp, ScalarOp, StatisticOp>(
          [](auto declared) { return declared.getName(); })
      .Default([](Operation *) { return StringRef(); });
}

static LogicalResult verifyBody(Operation *definition, Block &body) {
  Names names, reports;
  for (Operation &op : body) {
    StringRef name = getDeclaredName(op);
    if (!name.empty() && failed(names.declare(&op, name)))
      return failure();
    if (name.empty() &&
        !isa<RuleOp, ConstantOp, DefineOp, ProgramOp, ScalarsOp>(op))
      return op.emitOpError()
             << "is not allowed in the body of "
             << (isa<FragmentOp>(definition) ? "a fragment" : "an optimizer")
             << ", only hyper-parameters, options, constants, scalars, "
                "statistics, definitions of scalars and rules";
  }
  for (auto scalars : body.getOps<ScalarsOp>())
    for (auto report : scalars.getBody().getOps<ReportOp>())
      if (failed(reports.declare(report, report.getName())))
        return failure();
  return success();
}

static LogicalResult verifyUpdates(Block &body) {
  DenseMap<Value, Location> updated;
  for (auto scalars : body.getOps<ScalarsOp>())
    for (auto update : scalars.getBody().getOps<UpdateOp>()) {
      auto [entry, inserted] =
          updated.try_emplace(update.getScalar(), update.getLoc());
      if (inserted)
        continue;
      InFlightDiagnostic diagnostic = update.emitOpError()
                                      << "updates scalar '"
                                      << update.getScalarOp().getName()
                                      << "' a second time";
      diagnostic.attachNote(entry->second) << "first updated here";
      return diagnostic;
    }
  return success();
}

static LogicalResult verifyContributions(RuleOp rule) {
  DenseSet<Value> statistics;
  for (auto contribute : rule.getBody().getOps<ContributeOp>())
    if (!statistics.insert(contribute.getStatistic()).second)
      return contribute.emitOpError() << "contributes to statistic '"
                                      << contribute.getStatisticOp().getName()
                                      << "' a second time in this rule";
  return success();
}

namespace {
/// Which statistics must be complete before a value can be computed.
class Dependences {
public:
  explicit Dependences(Block &body);

  /// Refuses a statistic that would have to be complete before it is.
  LogicalResult verify();

private:
  using Statistics = llvm::SmallSetVector<Value, 4>;

  /// Statistics that the operation's operands, and what its region captures,
  /// depend on.
  Statistics collect(Operation *op);
  bool reaches(const Statistics &from, Value statistic);

  DenseMap<Value, Statistics> ofValue;
  llvm::MapVector<ContributeOp, Statistics> ofContribution;
};
} // namespace

Dependences::Dependences(Block &body) {
  body.walk<WalkOrder::PreOrder>([&](Operation *op) {
    Statistics statistics = collect(op);
    if (isa<StatisticOp>(op))
      statistics.insert(op->getResult(0));
    if (auto contribute = dyn_cast<ContributeOp>(op))
      ofContribution[contribute] = ofValue.lookup(contribute.getValue());
    for (Value result : op->getResults())
      ofValue[result] = statistics;
  });
}

Dependences::Statistics Dependences::collect(Operation *op) {
  Statistics statistics;
  op->walk([&](Operation *inner) {
    if (isa<RuleOp>(op) && inner != op)
      return;
    for (Value operand : inner->getOperands())
      statistics.insert_range(ofValue.lookup(operand));
  });
  return statistics;
}

bool Dependences::reaches(const Statistics &from, Value statistic) {
  Statistics reached = from;
  for (size_t index = 0; index < reached.size(); ++index)
    for (auto &[contribute, needed] : ofContribution)
      if (contribute.getStatistic() == reached[index])
        reached.insert_range(needed);
  return reached.contains(statistic);
}

LogicalResult Dependences::verify() {
  for (auto &[contribute, needed] : ofContribution)
    if (reaches(needed, contribute.getStatistic()))
      return ContributeOp(contribute).emitOpError()
             << "contributes to statistic '"
             << ContributeOp(contribute).getStatisticOp().getName()
             << "' what depends on it";
  return success();
}

LogicalResult mlir::step::verifyDefinition(Operation *definition) {
  Block &body = definition->getRegion(0).front();
  if (failed(verifyBody(definition, body)) || failed(verifyUpdates(body)))
    return failure();
  for (auto rule : body.getOps<RuleOp>())
    if (failed(verifyContributions(rule)))
      return failure();
  if (failed(verifyCalls(definition)))
    return failure();
  return Dependences(body).verify();
}
