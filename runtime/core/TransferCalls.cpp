//===- TransferCalls.cpp - calls of the communicator ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Status.h"
#include "core/Transfers.h"

#include <cstdio>
#include <mutex>

using namespace stepc;

std::string Transfers::describe(const Subject &subject) const {
  const std::vector<size_t> &members = subject.bucket.members;
  std::string text =
      std::string(subject.what) + " of tensor " + tensors[members[0]].name;
  if (members.size() > 1)
    text += " and " + std::to_string(members.size() - 1) + " more";
  return text;
}

template <typename Call>
void Transfers::callCommunicator(Call &&call, const Subject &subject) {
  message[0] = '\0';
  int32_t code = 0;
  const char *words = message;
  try {
    code = call(getMesh().getCommunicator());
    if (code == getMesh().getCommunicator().success)
      return;
  } catch (...) {
    words = "the communicator threw";
  }
  failed = true;
  message[sizeof(message) - 1] = '\0';
  if (!words[0])
    std::snprintf(message, sizeof(message), "the communicator returned %d",
                  int(code));
  fail(STEPC_COMMUNICATION_ERROR, "%s: %s", describe(subject).c_str(), words);
}

/// `bytes` are what goes to other ranks.
void Transfers::start(const StepcTransfer &transfer, int64_t bytes, void *&work,
                      const Subject &subject, Engine &engine) {
  ++numCalls;
  numBytes += bytes;
  void *made = nullptr;
  callCommunicator(
      [&](const StepcCommunicator &communicator) {
        return engine.startTransfer(communicator, transfer, &made, message,
                                    sizeof(message));
      },
      subject);
  // What is nothing to the communicator has to be finished all the same.
  work = made ? made : &started;
}

void Transfers::finish(void *&work, const Subject &subject, Engine &engine) {
  void *own = work == &started ? nullptr : work;
  work = nullptr;
  callCommunicator(
      [&](const StepcCommunicator &communicator) {
        return engine.finishTransfer(communicator, own, message,
                                     sizeof(message));
      },
      subject);
}

/// Puts the largest of each word over the ranks in its place.
void Transfers::tell(uint64_t axes, const TransferBucket &bucket) {
  if (!axes)
    return;
  ++numCalls;
  numBytes += 8 * int64_t(told.size());
  StepcReduceCall call = {axes, STEPC_MAX_I64, 0, told.data(),
                          int64_t(told.size())};
  callCommunicator(
      [&](const StepcCommunicator &communicator) {
        return communicator.reduce(communicator.context, &call, 1, message,
                                   sizeof(message));
      },
      Subject{bucket, "gradients"});
}

/// Where a communicator has failed it may still write what it was to receive,
/// and who waits for it reads what was sent: that memory stays for good.
void Transfers::keepMemory() noexcept {
  failed = false;
  stale = true;
  static std::mutex mutex;
  static auto *const kept = new std::vector<Memory>();
  std::lock_guard<std::mutex> lock(mutex);
  try {
    kept->push_back(scratch);
    for (const auto *list :
         {&blocks, &receiveRing.memory, &gatherRing.memory, &sends.memory})
      kept->insert(kept->end(), list->begin(), list->end());
  } catch (...) {
    // There is none for the list: nothing that could be done about it.
  }
}

void Transfers::abandon(Engine &engine) noexcept {
  auto end = [&](void *&work) {
    if (!work)
      return;
    try {
      finish(work, {buckets[0], "what is under way"}, engine);
    } catch (...) {
      // Of what has failed the caller is told the first.
    }
  };
  for (TransferBucket &bucket : buckets)
    end(bucket.work);
  for (GatherUnit &unit : units)
    end(unit.work);
  // Also where it is nothing of these that has failed.
  if (failed)
    keepMemory();
}
