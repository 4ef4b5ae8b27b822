//===- ManifestSchedule.cpp - a program's schedule as data ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ManifestSchedule.h"

#include "passes/lower/Operand.h"
#include "passes/schedule/RoundCalls.h"
#include "passes/schedule/Schedule.h"

#include "mlir/Support/DebugStringHelper.h"

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

namespace {
/// An entry, and what decides what waits for it.
struct Entry {
  json::Object object;
  int64_t segment;
  enum Kind { Called, Buffer, Contribution, Transfer } kind;
};

/// Lists the entries of one program.
class ScheduleWriter {
public:
  ScheduleWriter(OptimizerOp optimizer, const ProgramStorage &storage)
      : program(storage.getProgram()), storage(storage),
        statistics(optimizer.getBody().getOps<StatisticOp>()),
        numRounds(countRounds(optimizer)) {}

  json::Array write();

private:
  json::Object describe(const ScheduleEntry &entry);
  void addBuffers(int64_t round);
  void addContributions(int64_t round);
  void addTransfers(bool ofGradient, int64_t segment);
  void addEdges();

  ProgramOp program;
  const ProgramStorage &storage;
  SmallVector<StatisticOp> statistics;
  /// Of the step, of whichever program.
  int64_t numRounds;
  std::vector<Entry> entries;
};
} // namespace

json::Array mlir::step::toJson(ArrayAttr names) {
  json::Array array;
  if (names)
    for (auto name : names.getAsRange<StringAttr>())
      array.push_back(name.getValue());
  return array;
}

static StringRef stringifyStage(const FinishStage &stage) {
  if (stage.kind == FinishStage::Call)
    return "call";
  return stage.kind == FinishStage::Rows ? "rows" : "spread";
}

json::Object ScheduleWriter::describe(const ScheduleEntry &entry) {
  json::Object object{{"segment", entry.segment}};
  if (entry.isTrailing)
    object["trailing"] = true;
  if (!entry.kernel) {
    object["finish"] = entry.name;
    if (int64_t products = llvm::count_if(entry.finish, [](Operation *op) {
          auto matrix = dyn_cast<ProgramMatrixOpInterface>(op);
          return matrix && matrix.isMostWork();
        }))
      object["products"] = products;
    std::vector<FinishStage> stages = getStages(entry);
    if (stages.size() > 1 || stages.front().kind != FinishStage::Rows) {
      json::Array names;
      for (const FinishStage &stage : stages)
        names.push_back(stringifyStage(stage));
      object["stages"] = std::move(names);
    }
    return object;
  }
  object["kernel"] = entry.name;
  object["strided_kernel"] =
      entry.name + (program.isFlatRange() ? "" : "_strided");
  json::Array reads, writes;
  TraverseOp traverse = entry.kernel;
  for (const Operand &operand : getOperands(traverse)) {
    auto argument = dyn_cast<BlockArgument>(getMemory(operand.buffer));
    if (argument && operand.reads())
      reads.push_back(program.getOperandIndex(argument));
    if (argument && operand.writes())
      writes.push_back(program.getOperandIndex(argument));
  }
  if (Value unless = traverse.getUnless())
    object["unless_slot"] = *storage.getTensorSlot(unless);
  object["reads"] = std::move(reads);
  object["writes"] = std::move(writes);
  return object;
}

void ScheduleWriter::addBuffers(int64_t round) {
  for (auto [index, buffer] : llvm::enumerate(storage.getWorkspace())) {
    ExchangeOp exchange = buffer.exchange;
    if (!exchange || int64_t(exchange.getRound()) != round)
      continue;
    auto share = cast<ShareType>(exchange.getShares()[buffer.share].getType());
    json::Object object{
        {"exchange", buffer.name},
        {"segment", round},
        {"buffer", int64_t(index)},
        {"dims", toJson(cast<ArrayAttr>(exchange.getOver()[buffer.share]))},
        {"op", stringifyCombiner(share.getCombiner())}};
    entries.push_back({std::move(object), round, Entry::Buffer});
  }
}

void ScheduleWriter::addContributions(int64_t round) {
  for (auto contribute : program.getBody().getOps<ContributeOp>()) {
    if (getSegment(contribute) != round)
      continue;
    StatisticOp statistic = contribute.getStatisticOp();
    int64_t index = llvm::find(statistics, statistic) - statistics.begin();
    json::Object object{{"exchange", statistic.getName()},
                        {"segment", round},
                        {"statistic", index},
                        {"slot", *storage.getTensorSlot(contribute.getValue())},
                        {"partial", toJson(contribute.getPartialAttr())}};
    entries.push_back({std::move(object), round, Entry::Contribution});
  }
}

/// The dims of the layout that are sharded over these axes.
static json::Array getDims(LayoutAttr layout, ArrayAttr axes) {
  json::Array dims;
  if (layout)
    for (NamedAttribute dim : layout.getDims())
      if (llvm::any_of(cast<ArrayAttr>(dim.getValue()), [&](Attribute axis) {
            return llvm::is_contained(axes, axis);
          }))
        dims.push_back(dim.getName().getValue());
  return dims;
}

/// What brings the gradient, or takes the param.
void ScheduleWriter::addTransfers(bool ofGradient, int64_t segment) {
  LayoutAttr layout = program.getVariant().getLayout();
  for (auto op : program.getBody().getOps<TransferOpInterface>()) {
    if (op.isOfGradient() != ofGradient)
      continue;
    auto memory = cast<BlockArgument>(getMemory(op->getOperand(0)));
    json::Object object{{"exchange", op->getName().stripDialect()},
                        {"segment", segment},
                        {"operand", program.getOperandIndex(memory)},
                        {"dims", getDims(layout, op.getOver())}};
    if (Type entry = op.getEntryType())
      object["entry"] = debugString(entry);
    if (Type wire = op.getWireType())
      object["wire"] = debugString(wire);
    entries.push_back({std::move(object), segment, Entry::Transfer});
  }
}

/// A kernel or finish waits for the one before it in its segment, the first of
/// a later segment for the exchanges since then, or where there are none for
/// the round that its last entry led to. An exchange waits for what was called
/// last, of all tensors that it has to do with:
///
///   0 kernel    segment 0
///   1 finish    segment 0      after 0 (tensor)
///   2 exchange  of a buffer    after 1 (bucket)
///   3 exchange  of a statistic after 1 (model)
///   4 kernel    segment 1      after 2 (bucket), 3 (round)
///
/// What brings a gradient waits for nothing but the one before it, and what
/// takes a param back for all tensors that go with it:
///
///   0 exchange  reduce_scatter
///   1 kernel    segment 0      after 0 (bucket)
///   2 exchange  all_gather     after 1 (bucket)
void ScheduleWriter::addEdges() {
  std::optional<size_t> last; // that is called
  for (auto [index, entry] : llvm::enumerate(entries)) {
    json::Array after;
    auto add = [&](size_t before, StringRef scope) {
      after.push_back(
          json::Object{{"entry", int64_t(before)}, {"scope", scope}});
    };
    bool isCalled = entry.kind == Entry::Called;
    if (entry.kind == Entry::Transfer || (isCalled && !last)) {
      if (index > 0)
        add(last.value_or(index - 1), "bucket");
    } else if (last && !isCalled) {
      add(*last, entry.kind == Entry::Buffer ? "bucket" : "model");
    } else if (last && entries[*last].segment == entry.segment) {
      add(*last, "tensor");
    } else if (last) {
      for (size_t x = *last + 1; x < index; ++x)
        add(x, entries[x].kind == Entry::Buffer ? "bucket" : "round");
      if (after.empty())
        add(*last, "round");
    }
    entry.object["after"] = std::move(after);
    if (isCalled)
      last = index;
  }
}

json::Array ScheduleWriter::write() {
  std::vector<ScheduleEntry> called = getSchedule(program);
  int64_t rounds = 0;
  for (auto exchange : program.getBody().getOps<ExchangeOp>())
    rounds = std::max(rounds, int64_t(exchange.getRound()) + 1);
  // What is contributed last may have nothing behind it.
  for (auto contribute : program.getBody().getOps<ContributeOp>())
    rounds = std::max(rounds, getSegment(contribute) + 1);
  addTransfers(/*ofGradient=*/true, 0);
  ArrayRef<ScheduleEntry> left(called);
  for (int64_t segment = 0; segment < rounds || !left.empty(); ++segment) {
    for (; !left.empty() && left.front().segment == segment;
         left = left.drop_front())
      entries.push_back({describe(left.front()), segment, Entry::Called});
    addBuffers(segment);
    addContributions(segment);
  }
  addTransfers(/*ofGradient=*/false, numRounds);
  addEdges();
  json::Array schedule;
  for (Entry &entry : entries)
    schedule.push_back(std::move(entry.object));
  return schedule;
}

json::Array mlir::step::describeSchedule(OptimizerOp optimizer,
                                         const ProgramStorage &storage) {
  return ScheduleWriter(optimizer, storage).write();
}
