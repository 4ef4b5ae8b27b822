//===- Processes.cpp - ranks that are forked, for tests -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Processes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

using namespace stepc_test;

namespace {

constexpr unsigned kMostSeconds = 60;
constexpr int64_t kFirstName = 10;

using Place = std::array<char, 128>;

struct Pipe {
  int ends[2];
  Pipe() {
    if (pipe(ends) != 0)
      abort();
  }
};

} // namespace

SharedRank::SharedRank(StepcSharedGroup *group, int64_t rank, int64_t numRanks)
    : rank(rank), numRanks(numRanks), group(group) {
  calls.structSize = sizeof(calls);
  if (stepcSharedGroupGetCommunicator(group, &calls) != STEPC_OK)
    abort();
}

std::string SharedRank::start(const StepcTransfer &transfer, void *&work) {
  char message[512] = "";
  calls.start(calls.context, &transfer, &work, message, sizeof(message));
  return message;
}

std::string SharedRank::finish(void *work) {
  char message[512] = "";
  calls.finish(calls.context, work, message, sizeof(message));
  return message;
}

std::string SharedRank::run(const StepcTransfer &transfer) {
  void *work = nullptr;
  std::string said = start(transfer, work);
  return said.empty() ? finish(work) : said;
}

std::string SharedRank::reduce(std::vector<StepcReduceCall> round) {
  char message[512] = "";
  calls.reduce(calls.context, round.data(), int64_t(round.size()), message,
               sizeof(message));
  return message;
}

std::string SharedRank::gather(int64_t value, std::vector<int64_t> &all) {
  all.assign(size_t(numRanks), -1);
  std::vector<int64_t> bytes(size_t(numRanks), 8);
  return run(
      {1, STEPC_ALL_GATHER, 0, &value, all.data(), nullptr, bytes.data()});
}

void SharedRank::setDeadline(int64_t milliseconds) {
  if (stepcSharedGroupSetDeadline(group, milliseconds) != STEPC_OK)
    abort();
}

void SharedRank::leave() {
  stepcSharedGroupDestroy(group);
  group = nullptr;
}

/// Makes the group's memory or finds it, by a pipe through which its first rank
/// tells the others where it is.
static std::unique_ptr<SharedRank>
join(int64_t rank, const std::vector<int64_t> &members, const Pipe &pipe) {
  auto place = std::find(members.begin(), members.end(), rank);
  if (place == members.end())
    return nullptr;
  int64_t own = place - members.begin();
  std::vector<int64_t> names;
  for (int64_t member : members)
    names.push_back(kFirstName + member);
  StepcSharedGroup *group = nullptr;
  Place words = {};
  if (own == 0) {
    if (stepcSharedGroupCreate(int64_t(members.size()), names.data(), &group) ||
        stepcSharedGroupGetPlace(group, words.data(), words.size()))
      abort();
    for (size_t other = 1; other < members.size(); ++other)
      if (write(pipe.ends[1], words.data(), words.size()) !=
          ssize_t(words.size()))
        abort();
  } else if (read(pipe.ends[0], words.data(), words.size()) !=
                 ssize_t(words.size()) ||
             stepcSharedGroupOpen(words.data(), own, names.data(), &group)) {
    abort();
  }
  return std::make_unique<SharedRank>(group, own, int64_t(members.size()));
}

/// What was written until the other end was closed.
static std::string readAll(int end) {
  std::string all;
  char buffer[512];
  for (ssize_t n; (n = read(end, buffer, sizeof(buffer))) > 0;)
    all.append(buffer, size_t(n));
  return all;
}

std::vector<std::string>
stepc_test::runInGroups(int64_t numRanks,
                        const std::vector<std::vector<int64_t>> &groups,
                        const GroupsBody &body) {
  std::vector<Pipe> places(groups.size());
  std::vector<Pipe> results(static_cast<size_t>(numRanks));
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    pid_t child = fork();
    if (child == 0) {
      alarm(kMostSeconds);
      std::vector<std::unique_ptr<SharedRank>> own;
      for (size_t i = 0; i < groups.size(); ++i)
        if (auto group = join(rank, groups[i], places[i]))
          own.push_back(std::move(group));
      std::string said = body(rank, own);
      ssize_t n =
          write(results[size_t(rank)].ends[1], said.data(), said.size());
      own.clear();
      _exit(n == ssize_t(said.size()) ? 0 : 1);
    }
    children.push_back(child);
  }
  std::vector<std::string> said;
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    int status = 0;
    EXPECT_EQ(children[size_t(rank)],
              waitpid(children[size_t(rank)], &status, 0));
    close(results[size_t(rank)].ends[1]);
    said.push_back(readAll(results[size_t(rank)].ends[0]));
    close(results[size_t(rank)].ends[0]);
    if (WIFSIGNALED(status))
      said.back() = "signal " + std::to_string(WTERMSIG(status));
  }
  for (const Pipe &pipe : places) {
    close(pipe.ends[0]);
    close(pipe.ends[1]);
  }
  return said;
}

std::vector<std::string> stepc_test::runRanks(int64_t numRanks,
                                              const Body &body) {
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < numRanks; ++rank)
    all.push_back(rank);
  return runInGroups(
      numRanks, {all},
      [&](int64_t, std::vector<std::unique_ptr<SharedRank>> &own) {
        return body(*own.front());
      });
}
