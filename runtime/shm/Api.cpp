//===- Api.cpp - the C ABI of ranks that share memory ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stepc/shared_memory.h"

#include "comm/Tell.h"
#include "core/GiveCommunicator.h"
#include "core/Status.h"
#include "shm/Group.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

using namespace stepc;

struct StepcSharedGroup {
  shm::Group group;
};

StepcStatus stepcSharedGroupCreate(int64_t numRanks, const int64_t *names,
                                   StepcSharedGroup **out) {
  return guarded([&] {
    requireNotNull(out, "out");
    if (numRanks < 1 || numRanks > shm::kMaxRanks)
      fail(STEPC_INVALID_ARGUMENT, "%lld ranks, expected 1 to %lld",
           static_cast<long long>(numRanks),
           static_cast<long long>(shm::kMaxRanks));
    *out = new StepcSharedGroup{{shm::Region::create(numRanks), names}};
  });
}

StepcStatus stepcSharedGroupGetPlace(const StepcSharedGroup *group, char *place,
                                     size_t size) {
  return guarded([&] {
    requireNotNull(group, "group");
    requireNotNull(place, "place");
    std::string words = group->group.getRegion().getPlace();
    if (words.size() >= size)
      fail(STEPC_INVALID_ARGUMENT,
           "a place has %zu bytes, there is room for %zu", words.size() + 1,
           size);
    std::memcpy(place, words.c_str(), words.size() + 1);
  });
}

StepcStatus stepcSharedGroupOpen(const char *place, int64_t rank,
                                 const int64_t *names, StepcSharedGroup **out) {
  return guarded([&] {
    requireNotNull(place, "place");
    requireNotNull(out, "out");
    // Closing a second file of the memory would take the first one's lock.
    if (shm::isMember(place))
      fail(STEPC_INVALID_ARGUMENT,
           "this process has a rank of the group already");
    *out = new StepcSharedGroup{{shm::Region::open(place, rank), names}};
  });
}

StepcStatus stepcSharedGroupSetDeadline(StepcSharedGroup *group,
                                        int64_t milliseconds) {
  return guarded([&] {
    requireNotNull(group, "group");
    if (milliseconds < 1)
      fail(STEPC_INVALID_ARGUMENT, "the deadline is %lld ms, the least is 1",
           static_cast<long long>(milliseconds));
    group->group.setDeadline(
        std::chrono::milliseconds(std::min(milliseconds, kMostMilliseconds)));
  });
}

StepcStatus stepcSharedGroupGetCommunicator(StepcSharedGroup *group,
                                            StepcCommunicator *out) {
  return guarded([&] {
    requireNotNull(group, "group");
    requireNotNull(out, "out");
    StepcCommunicator made = {};
    requireStructSize(out, kLeastCommunicator, sizeof(made),
                      "StepcCommunicator");
    made.context = &group->group;
    made.reduce = [](void *context, const StepcReduceCall *calls,
                     int64_t numCalls, char *message, size_t size) {
      return tell(message, size, [&] {
        static_cast<shm::Group *>(context)->reduce(calls, numCalls);
      });
    };
    made.start = [](void *context, const StepcTransfer *transfer,
                    void **outWork, char *message, size_t size) {
      return tell(message, size, [&] {
        auto *group = static_cast<shm::Group *>(context);
        *outWork = group->start(*transfer).release();
      });
    };
    made.finish = [](void *context, void *work, char *message, size_t size) {
      return tell(message, size, [&] {
        static_cast<shm::Group *>(context)->finish(
            std::unique_ptr<shm::Exchange>(static_cast<shm::Exchange *>(work)));
      });
    };
    giveCommunicator(made, out->structSize, out);
  });
}

void stepcSharedGroupDestroy(StepcSharedGroup *group) { delete group; }
