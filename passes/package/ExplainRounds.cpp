//===- ExplainRounds.cpp - what is done between the segments of a step ----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainRounds.h"
#include "passes/schedule/RoundCalls.h"
#include "passes/shard/Sharding.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::step;

/// The axes' names, joined.
static std::string join(ArrayRef<Attribute> axes) {
  SmallVector<StringRef> names;
  for (Attribute axis : axes)
    names.push_back(cast<StringAttr>(axis).getValue());
  return llvm::join(names, "+");
}

std::string mlir::step::describeLayout(LayoutAttr layout) {
  SmallVector<std::string> parts;
  if (layout)
    for (NamedAttribute dim : layout.getDims()) {
      auto axes = cast<ArrayAttr>(dim.getValue()).getValue();
      parts.push_back(dim.getName().str() + " over " + join(axes));
    }
  return llvm::join(parts, ", ");
}

/// The product of the factors; B is 1 where a rule has no leading dims.
static std::string describeWords(ProgramOp program, BufferAttr buffer) {
  bool hasItems = isBatch(getDims(program.getParamShape()).front());
  SmallVector<StringRef> factors;
  for (StringAttr factor : buffer.getSize())
    if (factor.getValue() != "1" && (hasItems || factor.getValue() != "B"))
      factors.push_back(factor.getValue());
  return factors.empty() ? "1" : llvm::join(factors, "*");
}

std::vector<ExplainedExchange>
mlir::step::describeExchanges(ProgramOp program,
                              const ExplainedValues &values) {
  std::vector<ExplainedExchange> exchanges;
  for (auto buffer : program.getWorkspace().getAsRange<BufferAttr>()) {
    ExchangeAttr attr = buffer.getExchange();
    if (!attr)
      continue;
    SmallVector<Attribute> axes =
        getAxes(program.getVariant().getLayout(), attr.getDims());
    exchanges.push_back({buffer.getName().str(), attr.getRound(), join(axes),
                         stringifyCombiner(attr.getCombiner()).str(),
                         describeWords(program, buffer),
                         values.exchanged.lookup(buffer.getName())});
  }
  return exchanges;
}

/// Gradients cross in the type that is computed in, which holds any of them.
std::vector<ExplainedOwner> mlir::step::describeOwners(ProgramOp program) {
  std::vector<ExplainedOwner> owners;
  auto layouts = program->getAttrOfType<ArrayAttr>(kOwnedLayouts);
  if (!layouts)
    return owners;
  ExplainedOwner owner;
  Type full = program.getParamShape();
  for (auto operand : program.getOperands().getAsRange<OperandAttr>()) {
    RoleKind kind = operand.getKind();
    if (kind == RoleKind::State && operand.getShape() != full)
      owner.vectors.push_back(operand.getName().str());
    if (operand.getShape() != full || !operand.isInMemory())
      continue;
    bool isGrad = kind == RoleKind::Grad;
    Type type =
        isGrad ? program.getVariant().getCompute() : operand.getStorage();
    int64_t bytes = type.getIntOrFloatBitWidth() / 8;
    owner.there += bytes;
    owner.back += isGrad ? 0 : bytes;
  }
  if (auto place = program.getLoc()->findInstanceOf<FileLineColLoc>())
    owner.place = (place.getFilename().getValue() + ":" +
                   Twine(place.getLine()) + ":" + Twine(place.getColumn()))
                      .str();
  for (auto layout : layouts.getAsRange<LayoutAttr>()) {
    owner.layout = describeLayout(layout);
    owners.push_back(owner);
  }
  return owners;
}

//===----------------------------------------------------------------------===//
// Of the whole step
//===----------------------------------------------------------------------===//

static ExplainedCall describeCall(OptimizerOp optimizer,
                                  const RoundCall &round) {
  ScalarsOp op = round.op;
  ExplainedCall call{round.function, stringifyScope(op.getScope()).str()};
  auto addUsed = [&](auto candidates, std::vector<std::string> &used) {
    for (auto candidate : candidates)
      if (llvm::any_of(candidate.getResult().getUsers(), [&](Operation *user) {
            return op->isProperAncestor(user);
          }))
        used.push_back(candidate.getName().str());
  };
  addUsed(optimizer.getBody().getOps<StatisticOp>(), call.statistics);
  addUsed(optimizer.getBody().getOps<ScalarOp>(), call.scalars);
  call.results = op->getNumResults();
  for (auto update : op.getBody().getOps<UpdateOp>())
    call.updates.emplace_back(update.getScalarOp().getName().str(),
                              update.getAlways());
  for (auto report : op.getBody().getOps<ReportOp>())
    call.reports.push_back(report.getName().str());
  call.maySkip = !op.getBody().getOps<SkipIfOp>().empty();
  return call;
}

std::vector<ExplainedEntry> mlir::step::describeRounds(OptimizerOp optimizer) {
  std::vector<ExplainedEntry> rounds;
  for (int64_t round = 0; round < countRounds(optimizer); ++round)
    rounds.push_back(
        {ExplainedEntry::Kind::Round, ("round " + Twine(round)).str(), round});
  for (const RoundCall &call : getRoundCalls(optimizer))
    rounds[call.round].calls.push_back(describeCall(optimizer, call));
  return rounds;
}

/// In which order axes are named makes no other group of ranks.
static std::string sortAxes(StringRef axes) {
  SmallVector<StringRef> names;
  axes.split(names, '+');
  llvm::sort(names);
  return llvm::join(names, "+");
}

/// The round before which all programs have contributed; none where none does.
static std::optional<int64_t> getRound(OptimizerOp optimizer, int64_t index) {
  std::optional<int64_t> round;
  for (auto program : optimizer.getBody().getOps<ProgramOp>()) {
    ArrayRef<int64_t> triples = program.getContributions();
    for (size_t k = 0; k + 2 < triples.size(); k += 3)
      if (triples[k] == index)
        round = std::max(round.value_or(0), triples[k + 2]);
  }
  return round;
}

std::vector<ExplainedReduction>
mlir::step::collectReductions(OptimizerOp optimizer,
                              const std::vector<ExplainedProgram> &programs) {
  std::vector<ExplainedReduction> reductions;
  if (llvm::all_of(programs, [](const ExplainedProgram &program) {
        return program.layout.empty() && program.owners.empty();
      }))
    return reductions;
  auto add = [&](int64_t round, const std::string &axes, const std::string &op,
                 const std::string &what) {
    auto found =
        llvm::find_if(reductions, [&](const ExplainedReduction &known) {
          return known.round == round && known.axes == axes && known.op == op;
        });
    if (found == reductions.end())
      found = reductions.insert(found, {round, axes, op, {}});
    if (!llvm::is_contained(found->of, what))
      found->of.push_back(what);
  };
  for (const ExplainedProgram &program : programs)
    for (const ExplainedExchange &exchange : program.exchanges)
      add(exchange.round, sortAxes(exchange.axes), exchange.op, program.name);
  for (auto [index, statistic] :
       llvm::enumerate(optimizer.getBody().getOps<StatisticOp>()))
    if (std::optional<int64_t> round = getRound(optimizer, int64_t(index)))
      add(*round, "",
          statistic.getKind() == ReductionKind::Amax ? "amax" : "sum",
          ("statistic " + statistic.getName()).str());
  // With the first calls ranks agree on the groups in which a tensor takes
  // part, wherever the tensors of a group lie.
  std::vector<RoundCall> calls = getRoundCalls(optimizer);
  bool joinsStatistics =
      !calls.empty() &&
      llvm::any_of(reductions, [&](const ExplainedReduction &reduction) {
        return reduction.axes.empty() && reduction.round == calls[0].round;
      });
  if (!calls.empty() && !joinsStatistics)
    add(calls[0].round, "", "sum", "groups that take part");
  llvm::stable_sort(
      reductions, [](const ExplainedReduction &a, const ExplainedReduction &b) {
        return a.round < b.round;
      });
  return reductions;
}
