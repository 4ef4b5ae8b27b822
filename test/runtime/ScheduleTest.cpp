//===- ScheduleTest.cpp - what is called and waited for -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Schedule.h"

#include "gtest/gtest.h"

using namespace stepc;

namespace {

TEST(Schedule, edges) {
  ScheduleEntry entry;
  entry.edges = {{0, EdgeScope::Bucket}, {1, EdgeScope::Tensor}};
  EXPECT_TRUE(entry.waitsFor(EdgeScope::Tensor));
  EXPECT_FALSE(entry.waitsFor(EdgeScope::Round));
}

TEST(Schedule, scopesHaveNames) {
  std::string names;
  for (EdgeScope scope : kEdgeScopes)
    names += std::string(names.empty() ? "" : ", ") + getName(scope);
  EXPECT_EQ("chunk, tensor, class, bucket, round, model", names);
}

TEST(Schedule, kindsHaveNames) {
  std::string names;
  for (EntryKind kind : kEntryKinds)
    names += std::string(names.empty() ? "" : ", ") + getName(kind);
  EXPECT_EQ("kernel, finish, exchange, call, copy", names);
}

TEST(Schedule, transfersHaveNames) {
  std::string names;
  for (TransferKind kind : kTransferKinds) {
    names += std::string(names.empty() ? "" : ", ") + getName(kind);
    EXPECT_EQ(kind != TransferKind::AllGather &&
                  kind != TransferKind::FromOwner,
              isOfGradient(kind));
  }
  EXPECT_EQ("all_slice, reduce_scatter, all_reduce, to_owner, all_gather, "
            "from_owner",
            names);
}

} // namespace
