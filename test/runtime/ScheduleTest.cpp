//===- ScheduleTest.cpp - where exchanges stand, what entries wait for --===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Schedule.h"

#include "gtest/gtest.h"

using namespace stepc;

namespace {

ScheduleEntry make(EntryKind kind, int64_t segment) {
  ScheduleEntry entry;
  entry.kind = kind;
  entry.segment = segment;
  return entry;
}

ScheduleEntry makeStatistic(int64_t round) {
  ScheduleEntry entry = make(EntryKind::Exchange, round);
  entry.contribution.emplace();
  return entry;
}

ScheduleEntry makeBuffer(int64_t round) {
  ScheduleEntry entry = make(EntryKind::Exchange, round);
  entry.buffer.emplace();
  return entry;
}

/// "kernel 0; finish 0 <- 0 tensor"
std::string describe(const std::vector<ScheduleEntry> &schedule) {
  static const char *const scopes[] = {"chunk",  "tensor", "class",
                                       "bucket", "round",  "model"};
  std::string text;
  for (const ScheduleEntry &entry : schedule) {
    text += (text.empty() ? "" : "; ") + std::string(getName(entry.kind)) +
            " " + std::to_string(entry.segment);
    for (const Edge &edge : entry.edges)
      text += " <- " + std::to_string(edge.entry) + " " +
              scopes[size_t(edge.scope)];
  }
  return text;
}

TEST(Schedule, exchangesFollowTheirSegment) {
  std::vector<ScheduleEntry> schedule = {make(EntryKind::Kernel, 0),
                                         make(EntryKind::Finish, 0),
                                         make(EntryKind::Kernel, 2)};
  placeExchanges(schedule, {makeBuffer(1), makeStatistic(0), makeBuffer(0)});
  EXPECT_EQ("kernel 0; finish 0; exchange 0; exchange 0; exchange 1; kernel 2",
            describe(schedule));
  // In the order in which they were given.
  EXPECT_TRUE(schedule[2].contribution);
  EXPECT_TRUE(schedule[3].buffer);
}

TEST(Schedule, edges) {
  std::vector<ScheduleEntry> schedule = {
      make(EntryKind::Kernel, 0), make(EntryKind::Finish, 0), makeBuffer(0),
      makeStatistic(0),           make(EntryKind::Finish, 1), makeStatistic(1),
      make(EntryKind::Kernel, 2)};
  setEdges(schedule);
  EXPECT_EQ("kernel 0; finish 0 <- 0 tensor; exchange 0 <- 1 bucket; "
            "exchange 0 <- 1 model; finish 1 <- 2 bucket <- 3 round; "
            "exchange 1 <- 4 model; kernel 2 <- 5 round",
            describe(schedule));
  EXPECT_TRUE(schedule[1].waitsFor(EdgeScope::Tensor));
  EXPECT_FALSE(schedule[4].waitsFor(EdgeScope::Tensor));
}

TEST(Schedule, edgesWithoutExchanges) {
  std::vector<ScheduleEntry> schedule = {make(EntryKind::Kernel, 0),
                                         make(EntryKind::Kernel, 2)};
  setEdges(schedule);
  EXPECT_EQ("kernel 0; kernel 2 <- 0 round", describe(schedule));
  // What only follows rounds of others waits for none of its own.
  schedule.erase(schedule.begin());
  setEdges(schedule);
  EXPECT_EQ("kernel 2", describe(schedule));
}

TEST(Schedule, kindsHaveNames) {
  std::string names;
  for (EntryKind kind : kEntryKinds)
    names += std::string(names.empty() ? "" : ", ") + getName(kind);
  EXPECT_EQ("kernel, finish, exchange, call, copy", names);
}

} // namespace
