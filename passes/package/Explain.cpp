//===- Explain.cpp - what a compiled step does, in words ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Explain.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;

namespace {
struct Traffic {
  int64_t reads = 0, writes = 0;

  void add(OperandAttr operand) {
    int64_t bytes = operand.getStorage().getIntOrFloatBitWidth() / 8;
    reads += operand.getReads() ? bytes : 0;
    writes += operand.getWrites() ? bytes : 0;
  }
  int64_t total() const { return reads + writes; }
};
} // namespace

static Traffic getTraffic(ArrayAttr operands) {
  Traffic traffic;
  for (auto operand : operands.getAsRange<OperandAttr>())
    traffic.add(operand);
  return traffic;
}

/// "6 mulf, 4 subf": what is computed, without constants and conversions.
static std::string countOps(PhaseOp phase, int64_t &total) {
  llvm::MapVector<StringRef, int64_t> counts;
  total = 0;
  for (Operation &op : phase.getBody().front().without_terminator()) {
    StringRef name = op.getName().stripDialect();
    if (name == "constant" || name == "truncf" || name == "extf")
      continue;
    ++counts[name];
    ++total;
  }
  SmallVector<std::string> parts;
  for (auto &[name, count] : counts)
    parts.push_back((Twine(count) + " " + name).str());
  return llvm::join(parts, ", ");
}

/// "param f32, exp_avg bf16": the operands that `choose` picks.
static std::string list(ArrayAttr operands,
                        function_ref<bool(OperandAttr)> choose) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::ListSeparator separator;
  for (auto operand : operands.getAsRange<OperandAttr>())
    if (choose(operand))
      stream << separator << operand.getName().getValue() << " "
             << operand.getStorage();
  return text.empty() ? "nothing" : text;
}

static void explainPhase(raw_ostream &out, PhaseOp phase) {
  int64_t total;
  std::string ops = countOps(phase, total);
  Traffic traffic = getTraffic(phase.getOperands());
  out << "  kernel " << phase.getSymName() << ": " << total
      << " operations fused (" << ops << ")\n"
      << "    reads  " << traffic.reads << " bytes per parameter: "
      << list(phase.getOperands(), [](OperandAttr o) { return o.getReads(); })
      << "\n    writes " << traffic.writes << " bytes per parameter: "
      << list(phase.getOperands(), [](OperandAttr o) { return o.getWrites(); })
      << "\n";
}

static void explainProgram(raw_ostream &out, ProgramOp program) {
  VariantAttr variant = program.getVariant();
  out << program.getSymName() << ": rule " << variant.getRule().getValue();
  for (NamedAttribute option : variant.getOptions())
    out << ", " << option.getName().getValue() << "="
        << (cast<BoolAttr>(option.getValue()).getValue() ? "true" : "false");
  out << ", computed in " << variant.getCompute() << "\n";
  out << "  scalar row: " << program.getScalarPhase().getNumSlots()
      << " values, computed once for each group and step count\n";
  Traffic moved;
  int64_t kernels = 0;
  for (auto phase : program.getBody().getOps<PhaseOp>()) {
    explainPhase(out, phase);
    Traffic traffic = getTraffic(phase.getOperands());
    moved.reads += traffic.reads;
    moved.writes += traffic.writes;
    ++kernels;
  }
  // Nothing can do with less than reading once what the rule reads and writing
  // once what it writes.
  Traffic least = getTraffic(program.getOperands());
  out << "  in all: " << kernels << (kernels == 1 ? " kernel, " : " kernels, ")
      << moved.total() << " bytes per parameter; least possible "
      << least.total() << "\n";
}

std::string mlir::step::explain(OptimizerOp scheduled) {
  std::string text;
  llvm::raw_string_ostream out(text);
  for (auto program : scheduled.getBody().getOps<ProgramOp>())
    explainProgram(out, program);
  return text;
}
