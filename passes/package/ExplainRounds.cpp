//===- ExplainRounds.cpp - what is done between the segments of a step ----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainModel.h"
#include "passes/schedule/RoundCalls.h"
#include "passes/shard/Sharding.h"

#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

static std::vector<std::string> getNames(ArrayRef<Attribute> axes) {
  std::vector<std::string> names;
  for (Attribute axis : axes)
    names.push_back(cast<StringAttr>(axis).str());
  return names;
}

json::Array mlir::step::describeLayout(LayoutAttr layout) {
  json::Array dims;
  if (layout)
    for (NamedAttribute dim : layout.getDims())
      dims.push_back(json::Object{
          {"dim", dim.getName().str()},
          {"axes", getNames(cast<ArrayAttr>(dim.getValue()).getValue())}});
  return dims;
}

/// The product of the factors: "b*n".
static std::string describeWords(const WorkspaceBuffer &buffer) {
  SmallVector<StringRef> factors;
  for (StringRef factor : buffer.size)
    factors.push_back(factor.ltrim('.'));
  return factors.empty() ? "1" : llvm::join(factors, "*");
}

std::vector<ExplainedExchange>
mlir::step::describeExchanges(const ProgramStorage &storage,
                              const llvm::StringMap<std::string> &values) {
  std::vector<ExplainedExchange> exchanges;
  ProgramOp program = storage.getProgram();
  for (const WorkspaceBuffer &buffer : storage.getWorkspace()) {
    ExchangeOp exchange = buffer.exchange;
    if (!exchange)
      continue;
    SmallVector<StringAttr> dims(
        cast<ArrayAttr>(exchange.getOver()[buffer.share])
            .getAsRange<StringAttr>());
    auto share = cast<ShareType>(exchange.getShares()[buffer.share].getType());
    exchanges.push_back(
        {program.getSymName().str(), buffer.name, int64_t(exchange.getRound()),
         getNames(getAxes(program.getVariant().getLayout(), dims)),
         stringifyCombiner(share.getCombiner()).str(), describeWords(buffer),
         values.lookup(buffer.name)});
  }
  return exchanges;
}

std::vector<ExplainedEntry> mlir::step::describeTransfers(ProgramOp program,
                                                          bool ofGradient,
                                                          bool subsets) {
  std::vector<ExplainedEntry> entries;
  for (auto op : program.getBody().getOps<TransferOpInterface>()) {
    if (op.isOfGradient() != ofGradient)
      continue;
    ExplainedEntry &entry = entries.emplace_back();
    entry.kind = ExplainedEntry::Kind::Exchange;
    entry.name = op->getName().stripDialect().str();
    entry.segment = 0;
    entry.members["axes"] = getNames(op.getOver().getValue());
    entry.members["of"] = ofGradient ? "gradient" : "parameter";
    // What each rank has already is taken where it is.
    int64_t crossing = op.getWireType() ? getBytes(op.getWireType()) : 0;
    // Addends, and then their sums; or parts of the param.
    if (!ofGradient || isa<AllReduceOp>(op))
      crossing +=
          getBytes(cast<BufferType>(op->getOperand(0).getType()).getElement());
    if (crossing) {
      entry.members["wire"] = crossing;
      entry.members["overlaps"] = subsets;
    }
  }
  return entries;
}

/// Gradients cross in the type that is computed in, which holds any of them.
json::Array mlir::step::describeOwners(ProgramOp program) {
  json::Array owners;
  auto layouts = program->getAttrOfType<ArrayAttr>(kOwnedLayouts);
  if (!layouts)
    return owners;
  std::vector<std::string> vectors;
  int64_t there = 0, back = 0;
  ArrayRef<StringAttr> full = getDims(program.getParam().getType());
  for (BlockArgument argument : program.getOperandArguments()) {
    RoleAttr role = program.getRole(argument.getArgNumber());
    auto buffer = cast<BufferType>(argument.getType());
    if (role.getKind() == RoleKind::State && buffer.getDims() != full)
      vectors.push_back(role.getName().str());
    if (buffer.getDims() != full || !buffer.isInMemory())
      continue;
    bool isGrad = role.getKind() == RoleKind::Grad;
    Type type =
        isGrad ? program.getVariant().getCompute() : buffer.getElement();
    int64_t bytes = getBytes(type);
    there += bytes;
    back += isGrad ? 0 : bytes;
  }
  std::string place;
  if (auto found = program.getLoc()->findInstanceOf<FileLineColLoc>())
    place = (found.getFilename().getValue() + ":" + Twine(found.getLine()) +
             ":" + Twine(found.getColumn()))
                .str();
  for (auto layout : layouts.getAsRange<LayoutAttr>())
    owners.push_back(json::Object{{"layout", describeLayout(layout)},
                                  {"place", json::fixUTF8(place)},
                                  {"there", there},
                                  {"back", back},
                                  {"vectors", vectors}});
  return owners;
}

//===----------------------------------------------------------------------===//
// Of the whole step
//===----------------------------------------------------------------------===//

static json::Object describeCall(OptimizerOp optimizer,
                                 const RoundCall &round) {
  ScalarsOp op = round.op;
  auto getUsed = [&](auto candidates) {
    json::Array used;
    for (auto candidate : candidates)
      if (llvm::any_of(candidate.getResult().getUsers(), [&](Operation *user) {
            return op->isProperAncestor(user);
          }))
        used.push_back(candidate.getName().str());
    return used;
  };
  json::Array updates, reports;
  for (auto update : op.getBody().getOps<UpdateOp>())
    updates.push_back(
        json::Object{{"scalar", update.getScalarOp().getName().str()},
                     {"always", update.getAlways()}});
  for (auto report : op.getBody().getOps<ReportOp>())
    reports.push_back(report.getName().str());
  return json::Object{
      {"function", round.function},
      {"scope", stringifyScope(op.getScope()).str()},
      {"statistics", getUsed(optimizer.getBody().getOps<StatisticOp>())},
      {"scalars", getUsed(optimizer.getBody().getOps<ScalarOp>())},
      {"results", int64_t(op->getNumResults())},
      {"updates", std::move(updates)},
      {"reports", std::move(reports)},
      {"may_skip", !op.getBody().getOps<SkipIfOp>().empty()}};
}

std::vector<ExplainedEntry> mlir::step::describeRounds(OptimizerOp optimizer) {
  std::vector<ExplainedEntry> rounds;
  for (int64_t round = 0; round < countRounds(optimizer); ++round)
    rounds.push_back(
        {ExplainedEntry::Kind::Round, ("round " + Twine(round)).str(), round});
  for (const RoundCall &call : getRoundCalls(optimizer))
    rounds[call.round].add("calls", describeCall(optimizer, call));
  return rounds;
}

/// The round before which all programs have contributed; none where none does.
static std::optional<int64_t> getRound(OptimizerOp optimizer,
                                       StatisticOp statistic) {
  std::optional<int64_t> round;
  for (auto program : optimizer.getBody().getOps<ProgramOp>())
    for (auto contribute : program.getBody().getOps<ContributeOp>())
      if (contribute.getStatisticOp() == statistic)
        round = std::max(round.value_or(0), getSegment(contribute));
  return round;
}

namespace {
/// What one call of the communicator reduces, for all tensors.
struct Reduction {
  int64_t round;
  /// Sorted, as their order makes no other group of ranks. Empty: all.
  std::vector<std::string> axes;
  std::string op;
  /// Programs that exchange, statistics.
  std::vector<std::string> of;
};

json::Value toJSON(const Reduction &reduction) {
  return json::Object{{"round", reduction.round},
                      {"axes", reduction.axes},
                      {"op", reduction.op},
                      {"of", reduction.of}};
}
} // namespace

/// By rounds: no rank makes more calls in a step.
static std::vector<Reduction>
collectReductions(OptimizerOp optimizer,
                  ArrayRef<ExplainedExchange> exchanges) {
  std::vector<Reduction> reductions;
  auto add = [&](int64_t round, std::vector<std::string> axes, StringRef op,
                 const std::string &what) {
    llvm::sort(axes);
    auto found = llvm::find_if(reductions, [&](const Reduction &known) {
      return known.round == round && known.axes == axes && known.op == op;
    });
    if (found == reductions.end())
      found = reductions.insert(found, {round, axes, op.str(), {}});
    if (!llvm::is_contained(found->of, what))
      found->of.push_back(what);
  };
  for (const ExplainedExchange &exchange : exchanges)
    add(exchange.round, exchange.axes, exchange.op, exchange.program);
  for (auto statistic : optimizer.getBody().getOps<StatisticOp>())
    if (std::optional<int64_t> round = getRound(optimizer, statistic))
      add(*round, {},
          statistic.getKind() == ReductionKind::Amax ? "amax" : "sum",
          ("statistic " + statistic.getName()).str());
  // With the first calls ranks agree on the groups in which a tensor takes
  // part, wherever the tensors of a group lie.
  std::vector<RoundCall> calls = getRoundCalls(optimizer);
  bool joinsStatistics =
      !calls.empty() && llvm::any_of(reductions, [&](const Reduction &one) {
        return one.axes.empty() && one.round == calls[0].round;
      });
  if (!calls.empty() && !joinsStatistics)
    add(calls[0].round, {}, "sum", "groups that take part");
  llvm::stable_sort(reductions, [](const Reduction &a, const Reduction &b) {
    return a.round < b.round;
  });
  return reductions;
}

json::Value mlir::step::describeRanks(OptimizerOp optimizer,
                                      const json::Array &programs,
                                      ArrayRef<ExplainedExchange> exchanges) {
  bool isElementwise = true, hasLayouts = false;
  for (const json::Value &item : programs) {
    const json::Object &program = *item.getAsObject();
    isElementwise &= program.getBoolean("tiled") == false;
    hasLayouts |= !program.getArray("layout")->empty() ||
                  !program.getArray("owners")->empty();
  }
  if (!isElementwise && !hasLayouts)
    return nullptr;
  std::vector<Reduction> reductions;
  if (hasLayouts)
    reductions = collectReductions(optimizer, exchanges);
  std::set<int64_t> rounds;
  for (const Reduction &reduction : reductions)
    rounds.insert(reduction.round);
  return json::Object{{"elementwise", isElementwise},
                      {"rounds", int64_t(rounds.size())},
                      {"reductions", reductions}};
}
