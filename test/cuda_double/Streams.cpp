//===- Streams.cpp - queues of work, run when the host waits --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <cstring>

using namespace cuda_double;

CUstream cuda_double::findStream(CUcontext context, CUstream stream) {
  State &state = getState();
  if (stream)
    return isAlive(stream) && stream->context == context ? stream : nullptr;
  for (auto &own : state.streams)
    if (own->context == context && own->isDefault)
      return own.get();
  CUstream created = add(state.streams);
  created->context = context;
  created->isDefault = true;
  return created;
}

bool cuda_double::blocksDefault(CUcontext context, bool spoil) {
  bool blocks = false;
  for (auto &stream : getState().streams)
    if (stream->context == context && stream->capture && stream->isBlocking) {
      blocks = true;
      stream->captureInvalid |= spoil;
    }
  return blocks;
}

CUresult cuda_double::enqueue(CUcontext context, CUstream stream,
                              Operation operation) {
  CUstream own = findStream(context, stream);
  if (!own)
    return CUDA_ERROR_INVALID_HANDLE;
  if (own->isDefault && blocksDefault(context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  operation.number = ++getState().numbered;
  // What several streams have of a graph is in the order of the calls.
  CUstream origin = own->joined ? own->joined : own;
  if (origin->capture) {
    own->isOpen = origin != own;
    origin->capture->operations.push_back(std::move(operation));
    return CUDA_SUCCESS;
  }
  if (operation.work)
    operation.work = operation.work->begin();
  own->queue.push_back(std::move(operation));
  getState().changed.notify_all();
  return CUDA_SUCCESS;
}

namespace {

/// The default stream waits for what was enqueued before in other streams of
/// its context that block, and they for it.
bool mayRun(const CUstream_st &stream) {
  if (stream.queue.empty())
    return false;
  for (auto &other : getState().streams)
    if (other.get() != &stream && other->context == stream.context &&
        ((other->isDefault && stream.isBlocking) ||
         (stream.isDefault && other->isBlocking)) &&
        !other->queue.empty() &&
        other->queue.front().number < stream.queue.front().number)
      return false;
  const Operation &next = stream.queue.front();
  if (next.kind == Operation::Kind::Wait && !stream.context->broken)
    return !next.reached || *next.reached;
  return !next.work || stream.context->broken || next.work->mayRun();
}

CUresult runCopy(CUcontext context, const Operation &operation) {
  const Allocation *allocation =
      findAllocation(operation.device, operation.size);
  if (!allocation || allocation->context->device != context->device) {
    getState().fault = "a copy or memset leaves its allocation";
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  void *memory = reinterpret_cast<void *>(operation.device);
  auto from = reinterpret_cast<CUdeviceptr>(operation.source);
  if (operation.kind == Operation::Kind::CopyHere &&
      !findAllocation(from, operation.size)) {
    getState().fault = "a copy leaves its allocation";
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (operation.kind == Operation::Kind::CopyIn ||
      operation.kind == Operation::Kind::CopyHere)
    std::memcpy(memory, operation.source, operation.size);
  else if (operation.kind == Operation::Kind::CopyOut)
    std::memcpy(operation.target, memory, operation.size);
  else
    std::memset(memory, operation.value, operation.size);
  return CUDA_SUCCESS;
}

CUresult runOperation(CUcontext context, const Operation &operation) {
  switch (operation.kind) {
  case Operation::Kind::Launch:
    return runGrid(context, operation);
  case Operation::Kind::Event:
    *operation.reached = true;
    return CUDA_SUCCESS;
  case Operation::Kind::Wait:
    return CUDA_SUCCESS;
  case Operation::Kind::Other:
    return operation.work->run();
  default:
    return runCopy(context, operation);
  }
}

void runNext(CUstream_st &stream) {
  Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  getState().changed.notify_all();
  if (stream.context->broken)
    return;
  CUresult result = runOperation(stream.context, operation);
  if (result != CUDA_SUCCESS)
    stream.context->broken = result;
}

/// Runs one operation of any stream; false: there is none that may run.
bool runAny() {
  State &state = getState();
  std::vector<CUstream> ready;
  for (auto &stream : state.streams)
    if (mayRun(*stream))
      ready.push_back(stream.get());
  if (ready.empty())
    return false;
  runNext(*ready[state.random() % ready.size()]);
  return true;
}

/// Whether the stream, or null: any of the context, has work.
bool isLeft(CUcontext context, CUstream until) {
  for (auto &stream : getState().streams)
    if (!stream->queue.empty() &&
        (until ? stream.get() == until : stream->context == context))
      return true;
  return false;
}

} // namespace

CUresult cuda_double::pump(CUcontext context, CUstream until) {
  auto begin = std::chrono::steady_clock::now();
  while (isLeft(context, until)) {
    {
      Unprotected memory;
      while (isLeft(context, until) && runAny())
        begin = std::chrono::steady_clock::now();
    }
    // What is left waits for work of other threads.
    if (!isLeft(context, until))
      break;
    if (!maySleep(begin, "a stream"))
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    waitForOthers();
  }
  return context->broken;
}

void cuda_double::advance() {
  Unprotected memory;
  for (auto left = getState().random() % 3; left > 0 && runAny();)
    --left;
}
