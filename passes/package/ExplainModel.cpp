//===- ExplainModel.cpp - what a compiled step does, as data --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainModel.h"
#include "passes/lower/Operand.h"
#include "passes/package/Explain.h"
#include "passes/package/ExplainValues.h"
#include "passes/package/ExplainWork.h"
#include "passes/schedule/Schedule.h"
#include "passes/shard/Sharding.h"
#include "stepc/kernel_abi.h"

#include "mlir/Support/DebugStringHelper.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <numeric>

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

namespace {
/// Explains one program. State: `memory` in the order of the
/// program's operands, vectors behind those of all dims, then temps and partial
/// sums as the workspace lists them.
class ProgramExplainer {
public:
  ProgramExplainer(OptimizerOp optimizer, ProgramOp program,
                   ArrayRef<ExplainedEntry> rounds)
      : optimizer(optimizer), program(program), storage(program),
        rounds(rounds) {}

  /// Appends to `crossing` what crosses of a tensor of the program.
  json::Object run(std::vector<ExplainedExchange> &crossing);

private:
  json::Object describeVariant();
  void collectMemory();
  std::optional<size_t> find(StringRef name, bool isOperand = false) const;
  void touch(ExplainedEntry &entry, StringRef name, bool reads, bool writes,
             bool isOperand = false);
  void touch(ExplainedEntry &entry, Value buffer, bool reads, bool writes);
  void touchOperands(ExplainedEntry &entry, TraverseOp traverse);
  std::string describeTarget(Value result) const;
  void findCached(ExplainedEntry &entry) const;
  ExplainedEntry describeKernel(const ScheduleEntry &scheduled);
  ExplainedEntry describeFinish(const ScheduleEntry &scheduled);
  void describeCombine(ExplainedEntry &entry, CombineOp combine);
  void describeReceive(ExplainedEntry &entry, ReceiveOp receive);
  void addRound(ExplainedEntry round);
  void addContributions();
  void addTransfers();
  json::Object countBytes();

  OptimizerOp optimizer;
  ProgramOp program;
  ProgramStorage storage;
  ArrayRef<ExplainedEntry> rounds;
  /// How much of `memory` is of operands. What is behind it has names of
  /// passes, by which users may call their states too.
  size_t numOperands = 0;
  std::vector<ScheduleEntry> schedule;
  std::vector<ExplainedMemory> memory;
  /// In the order in which they run for a tensor.
  std::vector<ExplainedEntry> entries;
  std::vector<ExplainedExchange> exchanges;
};
} // namespace

json::Object ProgramExplainer::describeVariant() {
  VariantAttr variant = program.getVariant();
  json::Object options;
  for (NamedAttribute option : variant.getOptions())
    options[option.getName().str()] =
        cast<BoolAttr>(option.getValue()).getValue();
  return json::Object{{"name", program.getSymName().str()},
                      {"rule", variant.getRule().getValue().str()},
                      {"options", std::move(options)},
                      {"compute", debugString(variant.getCompute())},
                      {"tiled", !program.getElementwise()},
                      {"layout", describeLayout(variant.getLayout())},
                      {"owners", describeOwners(program)}};
}

void ProgramExplainer::collectMemory() {
  using Kind = ExplainedMemory::Kind;
  ArrayRef<StringAttr> full = getDims(program.getParam().getType());
  auto add = [&](Kind kind, StringRef name, BufferType buffer) {
    memory.push_back({kind, name.str(), debugString(buffer.getElement()),
                      describeDims(buffer.getShape()),
                      getBytes(buffer.getElement())});
  };
  for (Kind kind : {Kind::Full, Kind::Vector})
    for (BlockArgument argument : program.getOperandArguments()) {
      auto buffer = cast<BufferType>(argument.getType());
      if (buffer.isInMemory() &&
          (buffer.getDims() == full) == (kind == Kind::Full))
        add(kind, program.getRole(argument.getArgNumber()).getDisplayName(),
            buffer);
    }
  numOperands = memory.size();
  for (Operation &op : program.getBody().front())
    for (Value result : op.getResults())
      if (auto buffer = dyn_cast<BufferType>(result.getType());
          buffer && getMemory(result) == result)
        add(Kind::Vector, storage.getBufferName(result), buffer);
  // Partial sums of a traversal of the whole tensor. Those of vectors are as
  // small as these, and mere details of a finish.
  for (auto traverse : program.getBody().getOps<TraverseOp>())
    for (const Accumulator &own : getAccumulators(traverse)) {
      if (!traverse.isKernel())
        continue;
      int64_t leaf = own.getLeafElements();
      std::string text = "for each element";
      if (leaf > 1)
        text = ("for " + Twine(leaf) + " elements of a " +
                (own.is(Leaves::Columns) ? "column" : "row"))
                   .str();
      memory.push_back({Kind::Partial, storage.getBufferName(own.partial).str(),
                        "f64", std::move(text), 8, 8.0 / double(leaf)});
    }
  for (const ExplainedExchange &exchange : exchanges)
    memory.push_back(
        {Kind::Exchange, exchange.name, "f64",
         exchange.words + (exchange.words == "1" ? " word" : " words"), 8});
}

std::optional<size_t> ProgramExplainer::find(StringRef name,
                                             bool isOperand) const {
  for (size_t k = 0; k < memory.size(); ++k)
    if (memory[k].name == name && (k < numOperands) == isOperand)
      return k;
  return {};
}

void ProgramExplainer::touch(ExplainedEntry &entry, StringRef name, bool reads,
                             bool writes, bool isOperand) {
  std::optional<size_t> index = find(name, isOperand);
  if (!index || (!reads && !writes))
    return;
  for (ExplainedAccess &access : entry.accesses)
    if (access.memory == *index) {
      access.reads |= reads;
      access.writes |= writes;
      return;
    }
  entry.accesses.push_back({*index, reads, writes});
}

/// A buffer, partial result or share.
void ProgramExplainer::touch(ExplainedEntry &entry, Value buffer, bool reads,
                             bool writes) {
  auto argument = dyn_cast<BlockArgument>(getMemory(buffer));
  if (argument)
    touch(entry, program.getRole(argument.getArgNumber()).getDisplayName(),
          reads, writes, /*isOperand=*/true);
  else
    touch(entry, storage.getBufferName(buffer), reads, writes);
}

void ProgramExplainer::touchOperands(ExplainedEntry &entry,
                                     TraverseOp traverse) {
  for (const Operand &operand : getOperands(traverse))
    touch(entry, operand.buffer, operand.reads(), operand.writes());
}

/// What is computed, without constants and conversions.
static void countOps(ArrayRef<Operation *> ops, ExplainedEntry &entry) {
  llvm::MapVector<StringRef, int64_t> counts;
  int64_t all = 0;
  auto count = [&](Operation &op) {
    StringRef name = op.getName().stripDialect();
    if (name == "constant" || name == "truncf" || name == "extf")
      return;
    ++counts[name];
    ++all;
  };
  for (Operation *op : ops) {
    if (auto traverse = dyn_cast<TraverseOp>(op))
      for (Operation &inner : traverse.getBody().front().without_terminator())
        count(inner);
    else
      count(*op);
  }
  for (auto &[name, number] : counts)
    entry.add("computes", json::Object{{"op", name.str()}, {"count", number}});
  entry.members["operations"] = all;
}

/// What a trailing kernel finds in the cache: all that those of its train, the
/// entries back to one that trails nothing, have read or written.
void ProgramExplainer::findCached(ExplainedEntry &entry) const {
  for (const ExplainedEntry &before : llvm::reverse(entries)) {
    for (const ExplainedAccess &own : before.accesses)
      for (ExplainedAccess &access : entry.accesses)
        access.isCached |=
            access.memory == own.memory &&
            memory[own.memory].kind == ExplainedMemory::Kind::Full;
    if (!before.isTrailing)
      return;
  }
}

ExplainedEntry
ProgramExplainer::describeKernel(const ScheduleEntry &scheduled) {
  ExplainedEntry entry{ExplainedEntry::Kind::Kernel, scheduled.name,
                       scheduled.segment};
  TraverseOp traverse = scheduled.kernel;
  if (Value unless = traverse.getUnless())
    entry.unless = *storage.getTensorSlot(unless);
  countOps({traverse.getOperation()}, entry);
  touchOperands(entry, traverse);
  for (Value partial : traverse.getPartials())
    touch(entry, partial, false, true);
  llvm::sort(entry.accesses,
             [](const ExplainedAccess &a, const ExplainedAccess &b) {
               return a.memory < b.memory;
             });
  entry.isTrailing = scheduled.isTrailing;
  if (entry.isTrailing)
    findCached(entry);
  for (const ExplainedAccess &access : entry.accesses) {
    const ExplainedMemory &own = memory[access.memory];
    entry.partialShare += own.share;
    if (own.kind != ExplainedMemory::Kind::Full)
      continue;
    entry.bytesRead += access.reads && !access.isCached ? own.bytes : 0;
    entry.bytesWritten += access.writes ? own.bytes : 0;
  }
  return entry;
}

/// Where a result of combining goes.
std::string ProgramExplainer::describeTarget(Value result) const {
  if (std::optional<int64_t> slot = storage.getTensorSlot(result))
    return ("scalar " + Twine(*slot) + " of the tensor").str();
  return storage.getBufferName(result).str();
}

/// What a combine or a receive takes from somewhere to somewhere.
static json::Object describeMove(bool isMean, Combiner combiner,
                                 json::Array from, std::string to) {
  StringRef kind = isMean ? "mean" : stringifyCombiner(combiner);
  return json::Object{
      {"from", std::move(from)}, {"kind", kind.str()}, {"to", to}};
}

void ProgramExplainer::describeCombine(ExplainedEntry &entry,
                                       CombineOp combine) {
  touch(entry, combine.getPartial(), true, false);
  Value result = combine.getResult();
  if (!result.getType().isF64())
    touch(entry, result, false, true);
  // A share of one of several tensors, not of a rank, has no lane.
  bool isSent = isa<ShareType>(result.getType()) &&
                find(storage.getBufferName(result)).has_value();
  json::Array source{storage.getBufferName(combine.getPartial()).str()};
  entry.add(isSent ? "sends" : "combines",
            describeMove(combine.getMean(),
                         combine.getPartial().getType().getCombiner(),
                         std::move(source), describeTarget(result)));
}

void ProgramExplainer::describeReceive(ExplainedEntry &entry,
                                       ReceiveOp receive) {
  json::Array sources;
  for (Value share : receive.getShares()) {
    touch(entry, share, true, false);
    sources.push_back(storage.getBufferName(share).str());
  }
  if (!receive.getResult().getType().isF64())
    touch(entry, receive.getResult(), false, true);
  Value first = receive.getShares().front();
  bool crossed = find(storage.getBufferName(first)).has_value();
  entry.add(crossed ? "receives" : "combines",
            describeMove(receive.getMean(),
                         cast<ShareType>(first.getType()).getCombiner(),
                         std::move(sources),
                         describeTarget(receive.getResult())));
}

ExplainedEntry
ProgramExplainer::describeFinish(const ScheduleEntry &scheduled) {
  ExplainedEntry entry{ExplainedEntry::Kind::Finish, scheduled.name,
                       scheduled.segment};
  entry.isTrailing = scheduled.isTrailing;
  SmallVector<Operation *> bodies;
  for (Operation *op : scheduled.finish) {
    if (auto combine = dyn_cast<CombineOp>(op)) {
      describeCombine(entry, combine);
      continue;
    }
    if (auto receive = dyn_cast<ReceiveOp>(op)) {
      describeReceive(entry, receive);
      continue;
    }
    if (!isa<CarryOp, OwnOp>(op))
      bodies.push_back(op);
    if (auto traverse = dyn_cast<TraverseOp>(op))
      touchOperands(entry, traverse);
  }
  countOps(bodies, entry);
  if (json::Array work = describeWork(program, bodies); !work.empty())
    entry.members["work"] = std::move(work);
  llvm::sort(entry.accesses,
             [](const ExplainedAccess &a, const ExplainedAccess &b) {
               return a.memory < b.memory;
             });
  return entry;
}

/// Says in which finish the scalar is computed that is contributed.
void ProgramExplainer::addContributions() {
  for (auto contribute : program.getBody().getOps<ContributeOp>()) {
    Operation *source = contribute.getValue().getDefiningOp();
    std::optional<size_t> writer;
    for (auto [index, scheduled] : llvm::enumerate(schedule))
      if (llvm::is_contained(scheduled.finish, source))
        writer = index;
    if (!writer)
      continue;
    json::Array part;
    if (ArrayAttr partial = contribute.getPartialAttr())
      for (auto dim : partial.getAsRange<StringAttr>())
        part.push_back(dim.str());
    entries[*writer].add(
        "contributes",
        json::Object{{"statistic", contribute.getStatisticOp().getName().str()},
                     {"part", std::move(part)}});
  }
}

/// Bytes for each element of the parameter, by all kernels, and the least
/// possible: what the rule needs is read once and what it changes is written
/// once.
json::Object ProgramExplainer::countBytes() {
  int64_t reads = 0, writes = 0, avoidable = 0, least = 0;
  double partial = 0;
  for (const ExplainedEntry &entry : entries) {
    reads += entry.bytesRead;
    writes += entry.bytesWritten;
    avoidable += entry.unless >= 0 ? entry.bytesRead + entry.bytesWritten : 0;
    partial += entry.partialShare;
  }
  for (const ExplainedMemory &own : memory) {
    if (own.kind != ExplainedMemory::Kind::Full)
      continue;
    size_t index = &own - memory.data();
    auto uses = [&](bool ExplainedAccess::*kind) {
      return llvm::any_of(entries, [&](const ExplainedEntry &entry) {
        return llvm::any_of(entry.accesses, [&](const ExplainedAccess &access) {
          return access.memory == index && access.*kind;
        });
      });
    };
    least += own.bytes * (int64_t(uses(&ExplainedAccess::reads)) +
                          int64_t(uses(&ExplainedAccess::writes)));
  }
  json::Object bytes{{"reads", reads},
                     {"writes", writes},
                     {"moved", reads + writes},
                     {"least", least},
                     {"partial", partial}};
  if (avoidable > 0)
    bytes["needed"] = reads + writes - avoidable;
  return bytes;
}

/// A round comes behind the segment of its number. One that only other programs
/// exchange in is not shown behind all that this one does.
void ProgramExplainer::addRound(ExplainedEntry round) {
  for (const ExplainedExchange &exchange : exchanges)
    if (exchange.round == round.segment) {
      touch(round, exchange.name, true, true);
      round.exchanges.push_back(exchange);
    }
  auto next = llvm::find_if(entries, [&](const ExplainedEntry &entry) {
    return entry.segment > round.segment;
  });
  if (next != entries.end() || round.members.get("calls") ||
      !round.exchanges.empty())
    entries.insert(next, std::move(round));
}

/// Before and behind all else.
void ProgramExplainer::addTransfers() {
  // What is carried from step to step is of whole steps, as rounds are.
  const bool carries =
      optimizer.walk([](CarryOp) { return WalkResult::interrupt(); })
          .wasInterrupted();
  const bool subsets = rounds.empty() && !carries;
  std::vector<ExplainedEntry> all = describeTransfers(program, true, subsets);
  llvm::append_range(all, entries);
  for (ExplainedEntry &entry : describeTransfers(program, false, subsets)) {
    entry.segment = int64_t(rounds.size());
    all.push_back(std::move(entry));
  }
  entries = std::move(all);
}

json::Object ProgramExplainer::run(std::vector<ExplainedExchange> &crossing) {
  ExplainedValues values = explainValues(storage);
  exchanges = describeExchanges(storage, values.exchanged);
  llvm::append_range(crossing, exchanges);
  collectMemory();
  schedule = getSchedule(program);
  for (const ScheduleEntry &scheduled : schedule)
    entries.push_back(scheduled.kernel ? describeKernel(scheduled)
                                       : describeFinish(scheduled));
  addContributions();
  std::vector<int64_t> rows(rounds.size() + 1);
  for (auto scalars : program.getBody().getOps<CohortScalarsOp>())
    rows[getSegment(scalars)] = scalars.getNumResults();
  json::Object object = describeVariant();
  object["row"] = std::accumulate(rows.begin(), rows.end(), int64_t(0));
  object["rows"] = rows;
  object["kernels"] =
      llvm::count_if(schedule, [](const ScheduleEntry &scheduled) {
        return bool(scheduled.kernel);
      });
  object["bytes"] = countBytes();
  object["work_of_all"] = describeWorkOfAll(program);
  object["recomputed"] = values.recomputed;
  object["read_again"] = findReadAgain(entries, memory, /*isBack=*/false);
  object["read_back"] = findReadAgain(entries, memory, /*isBack=*/true);
  for (const ExplainedEntry &round : rounds)
    addRound(round);
  addTransfers();
  object["memory"] = memory;
  object["entries"] = describeEntries(entries, memory);
  object["exchanged"] = describeExchanged(exchanges);
  return object;
}

//===----------------------------------------------------------------------===//
// The whole step
//===----------------------------------------------------------------------===//

json::Object mlir::step::explainSchedule(OptimizerOp scheduled) {
  json::Array statistics, scalars, reports;
  for (auto op : scheduled.getBody().getOps<StatisticOp>())
    statistics.push_back(
        json::Object{{"name", op.getName().str()},
                     {"kind", stringifyReductionKind(op.getKind()).str()},
                     {"scope", stringifyScope(op.getScope()).str()}});
  for (auto op : scheduled.getBody().getOps<ScalarOp>())
    scalars.push_back(
        json::Object{{"name", op.getName().str()},
                     {"scope", stringifyScope(op.getScope()).str()},
                     {"init", op.getInit().convertToDouble()}});
  for (auto op : scheduled.getBody().getOps<ScalarsOp>())
    for (auto report : op.getBody().getOps<ReportOp>())
      reports.push_back(
          json::Object{{"name", report.getName().str()},
                       {"scope", stringifyScope(op.getScope()).str()}});
  std::vector<ExplainedEntry> rounds = describeRounds(scheduled);
  std::vector<ExplainedExchange> exchanges;
  json::Array programs;
  for (auto program : scheduled.getBody().getOps<ProgramOp>())
    programs.push_back(
        ProgramExplainer(scheduled, program, rounds).run(exchanges));
  json::Value ranks = describeRanks(scheduled, programs, exchanges);
  return json::Object{{"explanation", kExplanationFormat},
                      {"optimizer", scheduled.getSymName().str()},
                      {"statistics", std::move(statistics)},
                      {"scalars", std::move(scalars)},
                      {"reports", std::move(reports)},
                      {"programs", std::move(programs)},
                      {"ranks", std::move(ranks)}};
}
