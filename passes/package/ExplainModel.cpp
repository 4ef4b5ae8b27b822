//===- ExplainModel.cpp - what a compiled step does, as data --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainModel.h"
#include "passes/package/ExplainRounds.h"
#include "passes/package/ExplainValues.h"
#include "passes/schedule/Schedule.h"
#include "passes/shard/Sharding.h"
#include "stepc/kernel_abi.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;

static std::string toString(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

static std::string toString(const APFloat &number) {
  std::string text;
  llvm::raw_string_ostream(text)
      << llvm::format("%g", number.convertToDouble());
  return text;
}

static int64_t getBytes(Type type) { return type.getIntOrFloatBitWidth() / 8; }

namespace {
/// Builds the description of one program. State: `memory` in the order of the
/// program's operands, vectors behind those of all dims, then temps and partial
/// sums as the workspace lists them.
class ProgramExplainer {
public:
  ProgramExplainer(OptimizerOp optimizer, ProgramOp program)
      : optimizer(optimizer), program(program) {}

  ExplainedProgram run(const std::vector<ExplainedEntry> &rounds);

private:
  void describeVariant();
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
  void findRepeatedReads();

  OptimizerOp optimizer;
  ProgramOp program;
  /// The parameter's.
  Type full;
  /// How much of `memory` is of operands. What is behind it has names of
  /// passes, by which users may call their states too.
  size_t numOperands = 0;
  std::vector<ScheduleEntry> schedule;
  ExplainedProgram out;
};
} // namespace

void ProgramExplainer::describeVariant() {
  VariantAttr variant = program.getVariant();
  llvm::raw_string_ostream stream(out.variant);
  stream << "rule " << variant.getRule().getValue();
  for (NamedAttribute option : variant.getOptions())
    stream << ", " << option.getName().getValue() << "="
           << (cast<BoolAttr>(option.getValue()).getValue() ? "true" : "false");
  stream << ", computed in " << variant.getCompute();
  if (!out.layout.empty())
    stream << ", " << out.layout;
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
        out.memory.push_back(
            {kind, operand.getName().str(), toString(operand.getStorage()),
             describeDims(operand.getShape()), getBytes(operand.getStorage())});
  };
  addAll(Kind::Full);
  addAll(Kind::Vector);
  numOperands = out.memory.size();
  for (auto buffer : program.getWorkspace().getAsRange<BufferAttr>()) {
    StringRef name = buffer.getName().getValue();
    for (auto phase : program.getBody().getOps<PhaseOp>())
      for (auto operand : phase.getOperands().getAsRange<OperandAttr>())
        if (operand.getKind() == RoleKind::Temp &&
            operand.getName() == buffer.getName() && !find(name))
          out.memory.push_back({Kind::Vector, name.str(),
                                toString(buffer.getElement()),
                                describeDims(operand.getShape()),
                                getBytes(buffer.getElement())});
  }
  for (auto buffer : program.getWorkspace().getAsRange<BufferAttr>())
    addPartial(buffer.getName().getValue());
  for (const ExplainedExchange &exchange : out.exchanges)
    out.memory.push_back(
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
      out.memory.push_back({ExplainedMemory::Kind::Partial, name.str(), "f64",
                            ("for " + Twine(leaf) + " elements of a " +
                             (columns ? "column" : "row"))
                                .str(),
                            8, 8.0 / double(leaf)});
    }
}

std::optional<size_t> ProgramExplainer::find(StringRef name,
                                             bool isOperand) const {
  for (size_t k = 0; k < out.memory.size(); ++k)
    if (out.memory[k].name == name && (k < numOperands) == isOperand)
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

/// Adds "6 mulf, 4 subf": what is computed, without constants and conversions.
static void countOps(ArrayRef<Operation *> bodies, ExplainedEntry &entry) {
  llvm::MapVector<StringRef, int64_t> counts;
  for (Operation *body : bodies)
    for (Operation &op : body->getRegion(0).front().without_terminator()) {
      StringRef name = op.getName().stripDialect();
      if (name == "constant" || name == "truncf" || name == "extf")
        continue;
      ++counts[name];
      ++entry.numOperations;
    }
  SmallVector<std::string> parts;
  for (auto &[name, count] : counts)
    parts.push_back((Twine(count) + " " + name).str());
  entry.operations = llvm::join(parts, ", ");
}

/// What a trailing kernel finds in the cache: all that those of its train, the
/// entries back to one that trails nothing, have read or written.
void ProgramExplainer::findCached(ExplainedEntry &entry) const {
  for (const ExplainedEntry &before : llvm::reverse(out.entries)) {
    for (const ExplainedAccess &own : before.accesses)
      for (ExplainedAccess &access : entry.accesses)
        access.isCached |=
            access.memory == own.memory &&
            out.memory[own.memory].kind == ExplainedMemory::Kind::Full;
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
    const ExplainedMemory &memory = out.memory[access.memory];
    entry.partialShare += memory.share;
    if (memory.kind != ExplainedMemory::Kind::Full)
      continue;
    entry.traffic.reads += access.reads && !access.isCached ? memory.bytes : 0;
    entry.traffic.writes += access.writes ? memory.bytes : 0;
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

template <typename OpT>
static StringRef describeKind(OpT op) {
  return op.getMean() ? "mean" : stringifyCombiner(op.getCombiner());
}

void ProgramExplainer::describeCombine(ExplainedEntry &entry,
                                       CombineOp combine) {
  touch(entry, combine.getPartial(), true, false);
  std::string source =
      (combine.getPartial() + " (" + describeKind(combine) + ")").str();
  if (std::optional<StringRef> whole = combine.getExchange()) {
    touch(entry, *whole, false, true);
    if (!find(*whole)) { // of one of several tensors, not of a rank
      entry.combines.push_back((source + " into " + *whole).str());
      return;
    }
    entry.sends.push_back((source + " as " + *combine.getExchange()).str());
    return;
  }
  if (combine.getTemp())
    touch(entry, *combine.getTemp(), false, true);
  entry.combines.push_back(source + " into " + describeTarget(combine));
}

void ProgramExplainer::describeReceive(ExplainedEntry &entry,
                                       ReceiveOp receive) {
  for (StringRef source : receive.getSources())
    touch(entry, source, true, false);
  if (receive.getTemp())
    touch(entry, *receive.getTemp(), false, true);
  std::string text =
      (llvm::join(receive.getSources(), " + ") + " (" + describeKind(receive) +
       ") into " + describeTarget(receive))
          .str();
  bool crossed = find(receive.getSources()[0]).has_value();
  (crossed ? entry.receives : entry.combines).push_back(text);
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

/// "n, m".
static std::string joinDims(ArrayRef<StringAttr> dims) {
  auto toText = [](StringAttr dim) { return dim.str(); };
  return llvm::join(llvm::map_range(dims, toText), ", ");
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
    if (writer)
      out.entries[*writer].contributes.push_back(
          {statistics[triples[k]].getName().str(),
           joinDims(getPartialDims(program, triples[k]))});
  }
}

void ProgramExplainer::findRepeatedReads() {
  for (auto [index, memory] : llvm::enumerate(out.memory)) {
    if (memory.kind != ExplainedMemory::Kind::Full)
      continue;
    ExplainedAgain again{memory.name, {}}, back{memory.name, {}};
    bool read = false, written = false;
    for (const ExplainedEntry &entry : out.entries)
      for (const ExplainedAccess &access : entry.accesses) {
        if (access.memory != index)
          continue;
        if (access.reads && !access.isCached && (read || written))
          (written ? back : again).kernels.push_back(entry.name);
        read |= access.reads;
        written |= access.writes;
      }
    if (!again.kernels.empty())
      out.readAgain.push_back(std::move(again));
    if (!back.kernels.empty())
      out.readBack.push_back(std::move(back));
  }
}

/// A round comes behind the segment of its number. One that only other programs
/// exchange in is not shown behind all that this one does.
void ProgramExplainer::addRound(ExplainedEntry round) {
  for (const ExplainedExchange &exchange : out.exchanges)
    if (exchange.round == round.segment) {
      touch(round, exchange.name, true, true);
      round.exchanges.push_back(exchange);
    }
  auto next = llvm::find_if(out.entries, [&](const ExplainedEntry &entry) {
    return entry.segment > round.segment;
  });
  if (next != out.entries.end() || !round.calls.empty() ||
      !round.exchanges.empty())
    out.entries.insert(next, std::move(round));
}

ExplainedProgram
ProgramExplainer::run(const std::vector<ExplainedEntry> &rounds) {
  out.name = program.getSymName().str();
  out.tiled = program.isTiled();
  out.tensorSlots = program.getTensorSlots();
  out.layout = describeLayout(program.getVariant().getLayout());
  describeVariant();
  ExplainedValues values = explainValues(optimizer, program);
  out.recomputed = std::move(values.recomputed);
  out.exchanges = describeExchanges(program, values);
  out.owners = describeOwners(program);
  collectMemory();
  out.slots.resize(rounds.size() + 1);
  for (auto phase : program.getBody().getOps<ScalarPhaseOp>())
    out.slots[phase.getSegment()] = phase.getNumSlots();
  schedule = getSchedule(program);
  for (const ScheduleEntry &scheduled : schedule) {
    out.entries.push_back(scheduled.kernel ? describeKernel(scheduled)
                                           : describeFinish(scheduled));
    const ExplainedEntry &entry = out.entries.back();
    out.moved.reads += entry.traffic.reads;
    out.moved.writes += entry.traffic.writes;
    out.avoidable += entry.unless >= 0 ? entry.traffic.total() : 0;
    out.partialShare += entry.partialShare;
  }
  for (auto operand : program.getOperands().getAsRange<OperandAttr>()) {
    if (operand.getShape() != full || !operand.isInMemory())
      continue;
    int64_t bytes = getBytes(operand.getStorage());
    out.least.reads += operand.getReads() ? bytes : 0;
    out.least.writes += operand.getWrites() ? bytes : 0;
  }
  addContributions();
  findRepeatedReads();
  for (const ExplainedEntry &round : rounds)
    addRound(round);
  return std::move(out);
}

//===----------------------------------------------------------------------===//
// The model
//===----------------------------------------------------------------------===//

ExplainModel mlir::step::buildExplainModel(OptimizerOp scheduled) {
  ExplainModel model;
  model.name = scheduled.getSymName().str();
  for (auto op : scheduled.getBody().getOps<StatisticOp>())
    model.statistics.push_back((op.getName() + ": " +
                                stringifyReductionKind(op.getKind()) +
                                " over " + stringifyScope(op.getScope()))
                                   .str());
  for (auto op : scheduled.getBody().getOps<ScalarOp>())
    model.scalars.push_back((op.getName() + ": kept over " +
                             stringifyScope(op.getScope()) + ", " +
                             toString(op.getInit()) + " at first")
                                .str());
  for (auto op : scheduled.getBody().getOps<ScalarsOp>())
    for (auto report : op.getBody().getOps<ReportOp>())
      model.reports.push_back(
          (report.getName() + ": over " + stringifyScope(op.getScope())).str());
  std::vector<ExplainedEntry> rounds = describeRounds(scheduled);
  model.segments = int64_t(rounds.size()) + 1;
  for (auto program : scheduled.getBody().getOps<ProgramOp>())
    model.programs.push_back(ProgramExplainer(scheduled, program).run(rounds));
  model.reductions = collectReductions(scheduled, model.programs);
  return model;
}
