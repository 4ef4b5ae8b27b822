//===- Explain.cpp - what a compiled step does, in words ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Explain.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;

using Kind = ExplainedMemory::Kind;

/// "param f32, grad bf16": what the entry reads or writes of a kind; vectors
/// with their dims.
static std::string list(const ExplainedProgram &program,
                        const ExplainedEntry &entry, Kind kind, bool writes) {
  SmallVector<std::string> parts;
  for (const ExplainedAccess &access : entry.accesses) {
    const ExplainedMemory &memory = program.memory[access.memory];
    if (memory.kind != kind || !(writes ? access.writes : access.reads))
      continue;
    parts.push_back(memory.name + " " + memory.storage +
                    (kind == Kind::Full ? "" : memory.extent) +
                    (access.isCached ? " (in the cache)" : ""));
  }
  return llvm::join(parts, ", ");
}

static void explainVectors(raw_ostream &out, const ExplainedProgram &program,
                           const ExplainedEntry &entry) {
  for (bool writes : {false, true}) {
    std::string text = list(program, entry, Kind::Vector, writes);
    if (!text.empty())
      out << "    " << (writes ? "writes" : "reads") << " vectors: " << text
          << "\n";
  }
}

/// Those of equal leaves together.
static void explainPartials(raw_ostream &out, const ExplainedProgram &program,
                            const ExplainedEntry &entry) {
  if (entry.partialShare == 0)
    return;
  out << "    leaves partial sums, " << formatBytes(entry.partialShare)
      << " bytes per parameter where dims are long:";
  StringRef separator = " ", extent;
  for (const ExplainedAccess &access : entry.accesses) {
    const ExplainedMemory &memory = program.memory[access.memory];
    if (memory.kind != Kind::Partial)
      continue;
    if (!extent.empty() && extent != memory.extent)
      out << " f64 " << extent;
    out << separator << memory.name;
    separator = ", ";
    extent = memory.extent;
  }
  out << " f64 " << extent << "\n";
}

static void explainKernel(raw_ostream &out, const ExplainedProgram &program,
                          const ExplainedEntry &entry) {
  out << "  kernel " << entry.name << ": " << entry.numOperations
      << " operations fused (" << entry.operations << ")\n";
  if (entry.unless >= 0)
    out << "    left out where scalar " << entry.unless
        << " of the tensor is not 0\n";
  if (entry.isTrailing)
    out << "    trails the kernel before it, by 16 rows or more, on a "
           "processor\n";
  for (bool writes : {false, true}) {
    std::string text = list(program, entry, Kind::Full, writes);
    out << (writes ? "    writes " : "    reads  ")
        << (writes ? entry.traffic.writes : entry.traffic.reads)
        << " bytes per parameter: " << (text.empty() ? "nothing" : text)
        << "\n";
  }
  explainVectors(out, program, entry);
  explainPartials(out, program, entry);
}

static void explainFinish(raw_ostream &out, const ExplainedProgram &program,
                          const ExplainedEntry &entry) {
  out << "  finish " << entry.name << ", once for a tensor";
  if (entry.numOperations > 0)
    out << ": " << formatCount(entry.numOperations, "operation")
        << " on vectors and "
        << "scalars (" << entry.operations << ")";
  out << "\n";
  auto explain = [&](StringRef what, ArrayRef<std::string> items) {
    if (!items.empty())
      out << "    " << what << " " << llvm::join(items, ", ") << "\n";
  };
  explain("receives from ranks", entry.receives);
  explain("combines", entry.combines);
  explain("sends to ranks", entry.sends);
  explainVectors(out, program, entry);
  std::vector<std::string> contributes;
  for (const ExplainedContribution &contribution : entry.contributes)
    contributes.push_back(contribution.statistic +
                          (contribution.part.empty()
                               ? ""
                               : " a rank's part of " + contribution.part));
  explain("contributes to", contributes);
}

/// "1 word", "B*N words".
static std::string nameWords(StringRef words) {
  return (words + (words == "1" ? " word" : " words")).str();
}

/// What crosses together on one line, and each below it.
static void explainExchanges(raw_ostream &out, const ExplainedEntry &round) {
  std::vector<ExplainedExchange> left = round.exchanges;
  while (!left.empty()) {
    std::vector<ExplainedExchange> together;
    std::string axes = left.front().axes, op = left.front().op;
    llvm::erase_if(left, [&](const ExplainedExchange &exchange) {
      bool same = exchange.axes == axes && exchange.op == op;
      if (same)
        together.push_back(exchange);
      return same;
    });
    out << "    reduces over " << axes << " by " << op << " "
        << nameWords(formatWords(together)) << " of a tensor\n";
    for (const ExplainedExchange &exchange : together)
      out << "      " << exchange.name << ", " << nameWords(exchange.words)
          << ": " << exchange.value << "\n";
  }
}

static void explainRound(raw_ostream &out, const ExplainedEntry &entry) {
  out << "  " << entry.name << ", once for all tensors"
      << (entry.calls.empty() && entry.exchanges.empty() ? ": nothing\n"
                                                         : "\n");
  explainExchanges(out, entry);
  for (const ExplainedCall &call : entry.calls) {
    std::vector<std::string> reads = call.statistics, updates;
    llvm::append_range(reads, call.scalars);
    for (auto &[name, always] : call.updates)
      updates.push_back(name + (always ? " always" : ""));
    out << "    " << call.function << " over " << call.scope << ": reads "
        << (reads.empty() ? "nothing" : llvm::join(reads, ", ")) << ", yields "
        << formatCount(call.results, "value");
    if (!updates.empty())
      out << ", updates " << llvm::join(updates, ", ");
    if (!call.reports.empty())
      out << ", reports " << llvm::join(call.reports, ", ");
    out << (call.maySkip ? ", may skip the step\n" : "\n");
  }
}

/// "grad in a, b; param in b".
static void explainAgain(raw_ostream &out, StringRef what,
                         ArrayRef<ExplainedAgain> values) {
  out << "  " << what << ": " << (values.empty() ? "nothing" : "");
  llvm::interleave(
      values, out,
      [&](const ExplainedAgain &value) {
        out << value.value << " in " << llvm::join(value.kernels, ", ");
      },
      "; ");
  out << "\n";
}

static void explainEntries(raw_ostream &out, const ExplainedProgram &program) {
  int64_t segment = -1;
  for (const ExplainedEntry &entry : program.entries) {
    // Segments are worth a line where there is more than one.
    for (; segment < entry.segment && program.slots.size() > 1;) {
      ++segment;
      out << "  segment " << segment << ": "
          << formatCount(program.slots[segment], "value")
          << " of the scalar row\n";
    }
    if (entry.kind == ExplainedEntry::Kind::Kernel)
      explainKernel(out, program, entry);
    else if (entry.kind == ExplainedEntry::Kind::Finish)
      explainFinish(out, program, entry);
    else
      explainRound(out, entry);
  }
}

static void explainProgram(raw_ostream &out, const ExplainedProgram &program) {
  out << program.name << ": " << program.variant << "\n";
  out << "  scalar row: " << program.countSlots()
      << " values, computed once for each group and step count\n";
  explainEntries(out, program);
  int64_t kernels = program.countKernels();
  out << "  in all: " << formatCount(kernels, "kernel") << ", "
      << program.moved.total() << " bytes per parameter";
  if (program.avoidable > 0)
    out << ", " << program.moved.total() - program.avoidable
        << " where what may be left out is";
  out << "; least possible " << program.least.total() << "\n";
  for (const ExplainedOwner &owner : program.owners)
    out << "  " << describeOwner(owner) << "\n";
  if (!program.layout.empty())
    out << "  across ranks: " << describeExchanged(program) << "\n";
  if (!program.tiled)
    return;
  out << "  partial sums beside them: " << formatBytes(program.partialShare)
      << " bytes per parameter written, and as many read\n";
  explainAgain(out, "read again", program.readAgain);
  explainAgain(out, "read back", program.readBack);
  explainAgain(out, "recomputed", program.recomputed);
}

/// What the ranks of a mesh do together, for all programs.
static void explainRanks(raw_ostream &out, const ExplainModel &model) {
  if (!model.isOfRanks())
    return;
  out << "across ranks: " << model.summarizeRanks() << "\n";
  for (const ExplainedReduction &reduction : model.reductions)
    out << "  " << describeReduction(reduction) << "\n";
}

std::string mlir::step::explainAsText(const ExplainModel &model) {
  std::string text;
  llvm::raw_string_ostream out(text);
  auto explainAll = [&](StringRef what, ArrayRef<std::string> lines) {
    for (const std::string &line : lines)
      out << what << " " << line << "\n";
  };
  explainAll("statistic", model.statistics);
  explainAll("scalar", model.scalars);
  explainAll("report", model.reports);
  for (const ExplainedProgram &program : model.programs)
    explainProgram(out, program);
  explainRanks(out, model);
  return text;
}
