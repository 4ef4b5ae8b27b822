//===- ExplainModel.cpp - what a compiled step does, as data --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainModel.h"
#include "passes/package/Explain.h"
#include "passes/package/ExplainValues.h"
#include "passes/schedule/Schedule.h"
#include "passes/shard/Sharding.h"
#include "stepc/kernel_abi.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <numeric>

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

static std::string toString(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

static int64_t getBytes(Type type) { return type.getIntOrFloatBitWidth() / 8; }

namespace {
/// Explains one program. State: `memory` in the order of the
/// program's operands, vectors behind those of all dims, then temps and partial
/// sums as the workspace lists them.
class ProgramExplainer {
public:
  ProgramExplainer(OptimizerOp optimizer, ProgramOp program,
                   ArrayRef<ExplainedEntry> rounds)
      : optimizer(optimizer), program(program), rounds(rounds) {}

  /// Appends to `crossing` what crosses of a tensor of the program.
  json::Object run(std::vector<ExplainedExchange> &crossing);

private:
  json::Object describeVariant();
  void collectMemory();
  void addPartial(StringRef name);
  std::optional<size_t> find(StringRef name, bool isOperand = false) const;
  void touch(ExplainedEntry &entry, StringRef name, bool reads, bool writes,
             bool isOperand = false);
  void touchOperands(ExplainedEntry &entry, PhaseOp phase);
  void findCached(ExplainedEntry &entry) const;
  ExplainedEntry describeKernel(const ScheduleEntry &scheduled);
  ExplainedEntry describeFinish(const ScheduleEntry &scheduled);
  void describeCombine(ExplainedEntry &entry, CombineOp combine);
  void describeReceive(ExplainedEntry &entry, ReceiveOp receive);
  void addRound(ExplainedEntry round);
  void addContributions();
  json::Object countBytes();

  OptimizerOp optimizer;
  ProgramOp program;
  ArrayRef<ExplainedEntry> rounds;
  /// The parameter's.
  Type full;
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
                      {"compute", toString(variant.getCompute())},
                      {"tiled", program.isTiled()},
                      {"layout", describeLayout(variant.getLayout())},
                      {"owners", describeOwners(program)}};
}

void ProgramExplainer::collectMemory() {
  using Kind = ExplainedMemory::Kind;
  auto operands = llvm::filter_to_vector(
      program.getOperands().getAsRange<OperandAttr>(),
      [](OperandAttr operand) { return operand.isInMemory(); });
  full = program.getParamShape();
  auto addAll = [&](Kind kind) {
    for (OperandAttr operand : operands)
      if ((operand.getShape() == full) == (kind == Kind::Full))
        memory.push_back(
            {kind, operand.getName().str(), toString(operand.getStorage()),
             describeDims(operand.getShape()), getBytes(operand.getStorage())});
  };
  addAll(Kind::Full);
  addAll(Kind::Vector);
  numOperands = memory.size();
  for (auto buffer : program.getWorkspace().getAsRange<BufferAttr>()) {
    StringRef name = buffer.getName().getValue();
    for (auto phase : program.getBody().getOps<PhaseOp>())
      for (auto operand : phase.getOperands().getAsRange<OperandAttr>())
        if (operand.getKind() == RoleKind::Temp &&
            operand.getName() == buffer.getName() && !find(name))
          memory.push_back({Kind::Vector, name.str(),
                            toString(buffer.getElement()),
                            describeDims(operand.getShape()),
                            getBytes(buffer.getElement())});
  }
  for (auto buffer : program.getWorkspace().getAsRange<BufferAttr>())
    addPartial(buffer.getName().getValue());
  for (const ExplainedExchange &exchange : exchanges)
    memory.push_back(
        {Kind::Exchange, exchange.name, "f64",
         exchange.words + (exchange.words == "1" ? " word" : " words"), 8});
}

/// Partial sums of a traversal of the whole tensor. Those of vectors are as
/// small as these, and mere details of a finish.
void ProgramExplainer::addPartial(StringRef name) {
  for (auto phase : program.getBody().getOps<PhaseOp>())
    for (auto accumulator :
         phase.getAccumulators().getAsRange<AccumulatorAttr>()) {
      if (accumulator.getPartial() != name || phase.getSpace() != Space::Tiles)
        continue;
      bool columns = accumulator.getDirection() == Direction::Column;
      int64_t leaf = columns ? STEPC_ROW_LEAF : STEPC_LEAF;
      memory.push_back({ExplainedMemory::Kind::Partial, name.str(), "f64",
                        ("for " + Twine(leaf) + " elements of a " +
                         (columns ? "column" : "row"))
                            .str(),
                        8, 8.0 / double(leaf)});
    }
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

void ProgramExplainer::touchOperands(ExplainedEntry &entry, PhaseOp phase) {
  for (auto operand : phase.getOperands().getAsRange<OperandAttr>())
    touch(entry, operand.getName().getValue(), operand.getReads(),
          operand.getWrites(), operand.getKind() != RoleKind::Temp);
}

/// What is computed, without constants and conversions.
static void countOps(ArrayRef<Operation *> bodies, ExplainedEntry &entry) {
  llvm::MapVector<StringRef, int64_t> counts;
  int64_t all = 0;
  for (Operation *body : bodies)
    for (Operation &op : body->getRegion(0).front().without_terminator()) {
      StringRef name = op.getName().stripDialect();
      if (name == "constant" || name == "truncf" || name == "extf")
        continue;
      ++counts[name];
      ++all;
    }
  for (auto &[name, count] : counts)
    entry.add("computes", json::Object{{"op", name.str()}, {"count", count}});
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
  PhaseOp phase = scheduled.kernel;
  entry.unless = int64_t(phase.getUnless().value_or(-1));
  countOps({phase.getOperation()}, entry);
  touchOperands(entry, phase);
  for (auto accumulator : phase.getAccumulators().getAsRange<AccumulatorAttr>())
    touch(entry, accumulator.getPartial().getValue(), false, true);
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

/// The temp or the slot that a combine or a receive writes.
template <typename OpT>
static std::string describeTarget(OpT op) {
  if (op.getTemp())
    return op.getTemp()->str();
  return ("scalar " + Twine(*op.getSlot()) + " of the tensor").str();
}

/// What a combine or a receive takes from somewhere to somewhere.
template <typename OpT>
static json::Object describeMove(OpT op, json::Array from, std::string to) {
  StringRef kind = op.getMean() ? "mean" : stringifyCombiner(op.getCombiner());
  return json::Object{
      {"from", std::move(from)}, {"kind", kind.str()}, {"to", to}};
}

void ProgramExplainer::describeCombine(ExplainedEntry &entry,
                                       CombineOp combine) {
  touch(entry, combine.getPartial(), true, false);
  json::Array source{combine.getPartial().str()};
  if (std::optional<StringRef> whole = combine.getExchange()) {
    touch(entry, *whole, false, true);
    // An exchange of one of several tensors, not of a rank, has no lane.
    entry.add(find(*whole) ? "sends" : "combines",
              describeMove(combine, std::move(source), whole->str()));
    return;
  }
  if (combine.getTemp())
    touch(entry, *combine.getTemp(), false, true);
  entry.add("combines",
            describeMove(combine, std::move(source), describeTarget(combine)));
}

void ProgramExplainer::describeReceive(ExplainedEntry &entry,
                                       ReceiveOp receive) {
  for (StringRef source : receive.getSources())
    touch(entry, source, true, false);
  if (receive.getTemp())
    touch(entry, *receive.getTemp(), false, true);
  json::Array sources;
  for (StringRef source : receive.getSources())
    sources.push_back(source.str());
  bool crossed = find(receive.getSources()[0]).has_value();
  entry.add(crossed ? "receives" : "combines",
            describeMove(receive, std::move(sources), describeTarget(receive)));
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
    bodies.push_back(op);
    if (auto phase = dyn_cast<PhaseOp>(op))
      touchOperands(entry, phase);
  }
  countOps(bodies, entry);
  llvm::sort(entry.accesses,
             [](const ExplainedAccess &a, const ExplainedAccess &b) {
               return a.memory < b.memory;
             });
  return entry;
}

static bool writesSlot(Operation *op, int64_t slot) {
  if (auto combine = dyn_cast<CombineOp>(op))
    return combine.getSlot() && int64_t(*combine.getSlot()) == slot;
  if (auto receive = dyn_cast<ReceiveOp>(op))
    return receive.getSlot() && int64_t(*receive.getSlot()) == slot;
  auto scalars = dyn_cast<TensorScalarsOp>(op);
  return scalars && llvm::is_contained(scalars.getWrites(), slot);
}

/// Says in which finish the scalar is computed that is contributed.
void ProgramExplainer::addContributions() {
  SmallVector<StatisticOp> statistics(
      optimizer.getBody().getOps<StatisticOp>());
  ArrayRef<int64_t> triples = program.getContributions();
  for (size_t k = 0; k + 2 < triples.size(); k += 3) {
    std::optional<size_t> writer;
    for (auto [index, scheduled] : llvm::enumerate(schedule))
      if (scheduled.segment <= triples[k + 2] &&
          llvm::any_of(scheduled.finish, [&](Operation *op) {
            return writesSlot(op, triples[k + 1]);
          }))
        writer = index;
    if (!writer)
      continue;
    json::Array part;
    for (StringAttr dim : getPartialDims(program, triples[k]))
      part.push_back(dim.str());
    entries[*writer].add(
        "contributes",
        json::Object{{"statistic", statistics[triples[k]].getName().str()},
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
  for (auto operand : program.getOperands().getAsRange<OperandAttr>())
    if (operand.getShape() == full && operand.isInMemory())
      least += getBytes(operand.getStorage()) *
               (int64_t(operand.getReads()) + int64_t(operand.getWrites()));
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

json::Object ProgramExplainer::run(std::vector<ExplainedExchange> &crossing) {
  ExplainedValues values = explainValues(optimizer, program);
  exchanges = describeExchanges(program, values.exchanged);
  llvm::append_range(crossing, exchanges);
  collectMemory();
  schedule = getSchedule(program);
  for (const ScheduleEntry &scheduled : schedule)
    entries.push_back(scheduled.kernel ? describeKernel(scheduled)
                                       : describeFinish(scheduled));
  addContributions();
  std::vector<int64_t> rows(rounds.size() + 1);
  for (auto phase : program.getBody().getOps<ScalarPhaseOp>())
    rows[phase.getSegment()] = phase.getNumSlots();
  json::Object object = describeVariant();
  object["row"] = std::accumulate(rows.begin(), rows.end(), int64_t(0));
  object["rows"] = rows;
  object["kernels"] =
      llvm::count_if(schedule, [](const ScheduleEntry &scheduled) {
        return bool(scheduled.kernel);
      });
  object["bytes"] = countBytes();
  object["recomputed"] = values.recomputed;
  object["read_again"] = findReadAgain(entries, memory, /*isBack=*/false);
  object["read_back"] = findReadAgain(entries, memory, /*isBack=*/true);
  for (const ExplainedEntry &round : rounds)
    addRound(round);
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
