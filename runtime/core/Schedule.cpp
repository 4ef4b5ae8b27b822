//===- Schedule.cpp - what a step does with a tensor, in entries --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Schedule.h"

#include <algorithm>
#include <iterator>

using namespace stepc;

const char *stepc::getName(EntryKind kind) {
  static const char *const names[] = {"kernel", "finish", "exchange", "call",
                                      "copy"};
  return names[size_t(kind)];
}

bool ScheduleEntry::waitsFor(EdgeScope scope) const {
  return std::any_of(edges.begin(), edges.end(),
                     [&](const Edge &edge) { return edge.scope == scope; });
}

void stepc::placeExchanges(std::vector<ScheduleEntry> &schedule,
                           std::vector<ScheduleEntry> exchanges) {
  std::move(exchanges.begin(), exchanges.end(), std::back_inserter(schedule));
  std::stable_sort(schedule.begin(), schedule.end(),
                   [](const ScheduleEntry &left, const ScheduleEntry &right) {
                     return left.segment != right.segment
                                ? left.segment < right.segment
                                : left.isCalled() && !right.isCalled();
                   });
}

/// An exchange waits for what came last: of all tensors, or of those whose
/// buffers lie side by side.
static Edge getEdgeOfExchange(const ScheduleEntry &exchange, size_t last) {
  return {last, exchange.contribution ? EdgeScope::Model : EdgeScope::Bucket};
}

/// What the first entry of a segment waits for: the exchanges of the rounds
/// before it, or where the tensor has none there its last entry.
static void setEdgesOverRounds(std::vector<ScheduleEntry> &schedule,
                               size_t last, size_t entry) {
  std::vector<Edge> &edges = schedule[entry].edges;
  for (size_t x = last + 1; x < entry; ++x)
    edges.push_back(
        {x, schedule[x].contribution ? EdgeScope::Round : EdgeScope::Bucket});
  if (edges.empty())
    edges.push_back({last, EdgeScope::Round});
}

void stepc::setEdges(std::vector<ScheduleEntry> &schedule) {
  std::optional<size_t> last; // that is called
  for (size_t i = 0; i < schedule.size(); ++i) {
    ScheduleEntry &entry = schedule[i];
    entry.edges.clear();
    if (!entry.isCalled()) {
      if (last)
        entry.edges.push_back(getEdgeOfExchange(entry, *last));
      continue;
    }
    if (last && schedule[*last].segment == entry.segment)
      entry.edges.push_back({*last, EdgeScope::Tensor});
    else if (last)
      setEdgesOverRounds(schedule, *last, i);
    last = i;
  }
}
