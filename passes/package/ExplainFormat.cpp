//===- ExplainFormat.cpp - words that texts and pictures share ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainModel.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <set>

using namespace mlir;
using namespace mlir::step;

std::string mlir::step::formatCount(int64_t number, StringRef what) {
  StringRef plural = number == 1 ? "" : what.ends_with("sh") ? "es" : "s";
  return (Twine(number) + " " + what + plural).str();
}

std::string mlir::step::formatBytes(double bytes) {
  std::string text = llvm::formatv("{0:f3}", bytes).str();
  StringRef kept = text;
  kept = kept.rtrim('0');
  kept.consume_back(".");
  return kept.str();
}

int64_t ExplainedProgram::countKernels() const {
  return llvm::count_if(entries, [](const ExplainedEntry &entry) {
    return entry.kind == ExplainedEntry::Kind::Kernel;
  });
}

int64_t ExplainedProgram::countSlots() const {
  int64_t all = 0;
  for (int64_t own : slots)
    all += own;
  return all;
}

int64_t ExplainedProgram::countExchangeRounds() const {
  std::set<int64_t> rounds;
  for (const ExplainedExchange &exchange : exchanges)
    rounds.insert(exchange.round);
  return int64_t(rounds.size());
}

bool ExplainModel::hasLayouts() const {
  return llvm::any_of(programs, [](const ExplainedProgram &program) {
    return !program.layout.empty() || !program.owners.empty();
  });
}

/// Elements are stepped where they are.
bool ExplainModel::isElementwise() const {
  return llvm::none_of(
      programs, [](const ExplainedProgram &program) { return program.tiled; });
}

bool ExplainModel::isOfRanks() const {
  return !reductions.empty() || hasLayouts() || isElementwise();
}

std::string ExplainModel::summarizeRanks() const {
  if (reductions.empty())
    return isElementwise() ? "0 rounds, whatever the layout"
                           : "0 rounds in these layouts";
  std::set<int64_t> rounds;
  for (const ExplainedReduction &reduction : reductions)
    rounds.insert(reduction.round);
  return formatCount(int64_t(rounds.size()), "round") + ", at most " +
         formatCount(int64_t(reductions.size()), "call") +
         " in a step, whatever the number of tensors";
}

std::string mlir::step::describeOwner(const ExplainedOwner &owner) {
  std::string text = ("with " + Twine(owner.layout) +
                      " one rank steps the whole tensor: of an element that "
                      "another has " +
                      Twine(owner.there) + " bytes go to it, and " +
                      Twine(owner.back) + " back")
                         .str();
  if (!owner.vectors.empty())
    text += "; " + llvm::join(owner.vectors, ", ") + " both ways";
  if (!owner.place.empty())
    text += " (" + owner.place + ")";
  return text;
}

std::string mlir::step::describeReduction(const ExplainedReduction &reduction) {
  return ("round " + Twine(reduction.round) + ": " + reduction.op + " over " +
          (reduction.axes.empty() ? "all axes" : reduction.axes) + " of " +
          llvm::join(reduction.of, ", "))
      .str();
}

std::string mlir::step::formatWords(ArrayRef<ExplainedExchange> exchanges) {
  llvm::MapVector<StringRef, int64_t> terms;
  int64_t single = 0;
  for (const ExplainedExchange &exchange : exchanges)
    ++(exchange.words == "1" ? single : terms[exchange.words]);
  SmallVector<std::string> parts;
  for (auto &[words, count] : terms)
    parts.push_back(count == 1 ? words.str()
                               : (Twine(count) + " * " + words).str());
  if (single || parts.empty())
    parts.push_back(std::to_string(single));
  return llvm::join(parts, " + ");
}

std::string
mlir::step::formatExchangedBytes(ArrayRef<ExplainedExchange> exchanges) {
  std::string words = formatWords(exchanges);
  int64_t number;
  if (!StringRef(words).getAsInteger(10, number))
    return std::to_string(8 * number);
  if (StringRef(words).contains(" "))
    words = "(" + words + ")";
  return "8 * " + words;
}

std::string mlir::step::describeExchanged(const ExplainedProgram &program) {
  if (program.exchanges.empty())
    return "nothing of a tensor, in 0 rounds";
  return formatExchangedBytes(program.exchanges) + " bytes of a tensor, in " +
         formatCount(program.countExchangeRounds(), "round");
}
