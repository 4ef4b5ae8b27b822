//===- Control.cpp - what tests tell the double of NCCL, and ask it -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Control.h"

#include "State.h"

using namespace nccl_double;

#define LOCK                                                                   \
  std::lock_guard<std::mutex> lock(cuda_double::getState().mutex);             \
  State &state = getState();

extern "C" {

void ncclDoubleReset(void) {
  LOCK for (auto &[handle, comm] : state.comms) comm->job = nullptr;
  int64_t ids = state.ids;
  state = State();
  // Identifiers are new in the life of a process.
  state.ids = ids;
}

void ncclDoubleFail(const char *function, int64_t n, int32_t error) {
  LOCK state.failingName = function;
  state.failingIn = n;
  state.failingWith = error;
}

int64_t ncclDoubleCalls(const char *function) {
  LOCK auto found = state.calls.find(function);
  return found == state.calls.end() ? 0 : found->second;
}

int64_t ncclDoubleAllCalls(void) {
  LOCK int64_t sum = 0;
  for (auto &[name, count] : state.calls)
    sum += count;
  return sum;
}

int64_t ncclDoubleComms(void) { LOCK return int64_t(state.comms.size()); }

void ncclDoubleReport(int32_t rank, int32_t error) {
  LOCK for (auto &[handle, comm] : state.comms) if (comm->firstRank == rank)
      comm->error = error;
}

void ncclDoubleTellAborts(int32_t tell) { LOCK state.tellAborts = tell != 0; }

void ncclDoubleConnectLazily(int32_t lazily) {
  LOCK state.connectLazily = lazily != 0;
}

const char *ncclDoubleFault(void) { LOCK return state.fault.c_str(); }

} // extern "C"
