//===- OwnStream.cpp - a stream beside the callers' ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "nccl/OwnStream.h"

#include "core/Fault.h"

using namespace stepc;
using namespace stepc::cuda;
using namespace stepc::nccl;

OwnStream::~OwnStream() {
  try {
    ContextScope scope(*device);
    for (CUevent event : events)
      device->getDriver().cuEventDestroy(event);
    if (stream)
      device->getDriver().cuStreamDestroy(stream);
  } catch (...) {
    // They went with the context.
  }
}

CUevent OwnStream::takeEvent() {
  if (free.empty()) {
    events.reserve(events.size() + 1);
    free.reserve(events.size() + 1);
    CUevent made = nullptr;
    device->require(
        device->getDriver().cuEventCreate(&made, CU_EVENT_DISABLE_TIMING),
        "cuEventCreate");
    events.push_back(made);
    return made;
  }
  CUevent event = free.back();
  free.pop_back();
  return event;
}

void OwnStream::record(CUevent event, CUstream on) {
  CUresult result = device->getDriver().cuEventRecord(event, on);
  if (result == CUDA_SUCCESS)
    return;
  takeBack(event);
  device->require(result, "cuEventRecord");
}

CUstream OwnStream::follow(CUstream other) {
  if (!stream)
    device->require(
        device->getDriver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
        "cuStreamCreate");
  CUevent before = takeEvent();
  record(before, other);
  if (STEPC_FAULT("nccl-transfer-too-early")) {
    takeBack(before);
    return stream;
  }
  join(stream, before);
  return stream;
}

CUevent OwnStream::record() {
  CUevent event = takeEvent();
  record(event, stream);
  return event;
}

void OwnStream::join(CUstream other, CUevent event) {
  takeBack(event);
  device->require(device->getDriver().cuStreamWaitEvent(other, event, 0),
                  "cuStreamWaitEvent");
}
