//===- Schedule.cpp - what a step does with a tensor, in entries --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Schedule.h"

#include <algorithm>

using namespace stepc;

const char *stepc::getName(EntryKind kind) {
  static const char *const names[] = {"kernel", "finish", "exchange", "call",
                                      "copy"};
  return names[size_t(kind)];
}

const char *stepc::getName(FinishStage stage) {
  static const char *const names[] = {"rows", "spread", "call"};
  return names[size_t(stage)];
}

const char *stepc::getName(EdgeScope scope) {
  static const char *const names[] = {"chunk",  "tensor", "class",
                                      "bucket", "round",  "model"};
  return names[size_t(scope)];
}

const char *stepc::getName(TransferKind kind) {
  static const char *const names[] = {"all_slice",  "reduce_scatter",
                                      "all_reduce", "to_owner",
                                      "all_gather", "from_owner"};
  return names[size_t(kind)];
}

bool ScheduleEntry::waitsFor(EdgeScope scope) const {
  return std::any_of(edges.begin(), edges.end(),
                     [&](const Edge &edge) { return edge.scope == scope; });
}
