//===- ExplainJson.cpp - memory and entries, as explained in JSON ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainModel.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;

using Kind = ExplainedEntry::Kind;
using Exchanges = std::vector<ExplainedExchange>;

void ExplainedEntry::add(StringRef list, json::Value item) {
  json::Value &items = members.try_emplace(list, json::Array()).first->second;
  items.getAsArray()->push_back(std::move(item));
}

json::Value mlir::step::toJSON(const ExplainedAgain &again) {
  return json::Object{{"value", again.value}, {"entries", again.kernels}};
}

json::Value mlir::step::toJSON(const ExplainedMemory &memory) {
  static constexpr const char *kinds[] = {"full", "vector", "partial",
                                          "exchange"};
  json::Object object{{"name", memory.name},
                      {"kind", kinds[size_t(memory.kind)]},
                      {"storage", memory.storage},
                      {"extent", memory.extent},
                      {"bytes", memory.bytes}};
  if (memory.share > 0)
    object["share"] = memory.share;
  return object;
}

/// "b*n + 2": the words of all.
static std::string formatWords(ArrayRef<ExplainedExchange> exchanges) {
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

/// "8 * (b*n + 2)".
static std::string formatBytes(ArrayRef<ExplainedExchange> exchanges) {
  std::string words = formatWords(exchanges);
  int64_t number;
  if (!StringRef(words).getAsInteger(10, number))
    return std::to_string(8 * number);
  if (StringRef(words).contains(" "))
    words = "(" + words + ")";
  return "8 * " + words;
}

/// What crosses in a round, together where axes and operation are the same.
static json::Array groupExchanges(ArrayRef<ExplainedExchange> exchanges) {
  std::vector<Exchanges> groups;
  for (const ExplainedExchange &exchange : exchanges) {
    auto found = llvm::find_if(groups, [&](const Exchanges &group) {
      return group.front().axes == exchange.axes &&
             group.front().op == exchange.op;
    });
    if (found == groups.end())
      found = groups.insert(found, Exchanges());
    found->push_back(exchange);
  }
  json::Array all;
  for (const Exchanges &group : groups) {
    json::Array of;
    for (const ExplainedExchange &exchange : group)
      of.push_back(json::Object{{"name", exchange.name},
                                {"words", exchange.words},
                                {"value", exchange.value}});
    all.push_back(json::Object{{"axes", group.front().axes},
                               {"op", group.front().op},
                               {"words", formatWords(group)},
                               {"of", std::move(of)}});
  }
  return all;
}

static json::Object describe(const ExplainedEntry &entry,
                             ArrayRef<ExplainedMemory> memory) {
  static constexpr const char *kinds[] = {"kernel", "finish", "round",
                                          "exchange"};
  json::Array reads, cached, writes, accumulates;
  for (const ExplainedAccess &access : entry.accesses) {
    auto index = int64_t(access.memory);
    bool isPartial =
        memory[access.memory].kind == ExplainedMemory::Kind::Partial;
    if (access.reads)
      reads.push_back(index);
    if (access.isCached)
      cached.push_back(index);
    if (access.writes)
      (isPartial ? accumulates : writes).push_back(index);
  }
  json::Object object = entry.members;
  object["kind"] = kinds[size_t(entry.kind)];
  object["name"] = entry.name;
  object["segment"] = entry.segment;
  object["reads"] = std::move(reads);
  object["writes"] = std::move(writes);
  if (entry.isTrailing)
    object["trails"] = true;
  if (entry.kind == Kind::Kernel) {
    object["cached"] = std::move(cached);
    object["accumulates"] = std::move(accumulates);
    object["bytes"] = json::Object{{"reads", entry.bytesRead},
                                   {"writes", entry.bytesWritten},
                                   {"partial", entry.partialShare}};
    if (entry.unless >= 0)
      object["unless"] =
          ("scalar " + Twine(entry.unless) + " of the tensor").str();
  }
  if (entry.kind == Kind::Round && !entry.exchanges.empty()) {
    object["exchanges"] = groupExchanges(entry.exchanges);
    object["exchanged"] = formatBytes(entry.exchanges);
  }
  return object;
}

json::Array mlir::step::describeEntries(ArrayRef<ExplainedEntry> entries,
                                        ArrayRef<ExplainedMemory> memory) {
  json::Array all;
  for (const ExplainedEntry &entry : entries)
    all.push_back(describe(entry, memory));
  return all;
}

std::vector<ExplainedAgain>
mlir::step::findReadAgain(ArrayRef<ExplainedEntry> entries,
                          ArrayRef<ExplainedMemory> memory, bool isBack) {
  std::vector<ExplainedAgain> all;
  for (auto [index, one] : llvm::enumerate(memory)) {
    if (one.kind != ExplainedMemory::Kind::Full)
      continue;
    ExplainedAgain again{one.name, {}};
    bool read = false, written = false;
    for (const ExplainedEntry &entry : entries)
      for (const ExplainedAccess &access : entry.accesses) {
        if (access.memory != index)
          continue;
        if (access.reads && !access.isCached &&
            (isBack ? written : read && !written))
          again.kernels.push_back(entry.name);
        read |= access.reads;
        written |= access.writes;
      }
    if (!again.kernels.empty())
      all.push_back(std::move(again));
  }
  return all;
}

json::Object
mlir::step::describeExchanged(ArrayRef<ExplainedExchange> exchanges) {
  std::set<int64_t> rounds;
  for (const ExplainedExchange &exchange : exchanges)
    rounds.insert(exchange.round);
  json::Object object{{"rounds", int64_t(rounds.size())}};
  if (!rounds.empty())
    object["bytes"] = formatBytes(exchanges);
  return object;
}
