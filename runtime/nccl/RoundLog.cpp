//===- RoundLog.cpp - which rounds a device has yet to come to ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "nccl/RoundLog.h"

#include <utility>

using namespace stepc;
using namespace stepc::cuda;
using namespace stepc::nccl;

RoundLog::RoundLog(std::shared_ptr<const Device> ownDevice)
    : device(std::move(ownDevice)) {
  ContextScope scope(*device);
  for (Entry &entry : entries) {
    CUresult result = device->getDriver().cuEventCreate(
        &entry.event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
      continue;
    destroyEvents();
    device->require(result, "cuEventCreate");
  }
}

RoundLog::~RoundLog() {
  try {
    ContextScope scope(*device);
    destroyEvents();
  } catch (...) {
    // They went with the context.
  }
}

void RoundLog::destroyEvents() noexcept {
  for (Entry &entry : entries)
    if (entry.event)
      device->getDriver().cuEventDestroy(entry.event);
}

void RoundLog::add(const Entry &given, CUstream stream) {
  getOldest();
  if (size == kEntries)
    return;
  Entry &entry = entries[(begin + size) % kEntries];
  device->require(device->getDriver().cuEventRecord(entry.event, stream),
                  "cuEventRecord");
  entry = {entry.event, given.call, given.numCalls, given.transferKind};
  ++size;
}

const RoundLog::Entry *RoundLog::getOldest() {
  CaptureScope scope(*device);
  for (; size > 0; --size, begin = (begin + 1) % kEntries) {
    const Entry &entry = entries[begin];
    CUresult result = device->getDriver().cuEventQuery(entry.event);
    if (result == CUDA_ERROR_NOT_READY)
      return &entry;
    device->require(result, "cuEventQuery");
  }
  return nullptr;
}
