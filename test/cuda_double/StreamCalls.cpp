//===- StreamCalls.cpp - streams and events of the driver, doubled --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Errors are what the driver's documentation says of each function.
//
//===----------------------------------------------------------------------===//

#include "Calls.h"

using namespace cuda_double;

bool cuda_double::isProhibited(CUcontext context) {
  CUstreamCaptureMode mode = getCaptureMode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED)
    return false;
  for (auto &stream : getState().streams) {
    if (stream->context != context || !stream->capture)
      continue;
    bool own = stream->captureMode != CU_STREAM_CAPTURE_MODE_RELAXED &&
               stream->captureThread == std::this_thread::get_id();
    if (own || (mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                stream->captureMode == CU_STREAM_CAPTURE_MODE_GLOBAL))
      return true;
  }
  return false;
}

CUresult cuda_double::refuseCapture(CUcontext context) {
  for (auto &stream : getState().streams)
    if (stream->context == context && stream->capture)
      stream->captureInvalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

extern "C" {

CUresult cuStreamSynchronize(CUstream stream) {
  ENTER_CONTEXT("cuStreamSynchronize");
  if (isProhibited(context))
    return refuseCapture(context);
  CUstream own = findStream(context, stream);
  if (!own)
    return CUDA_ERROR_INVALID_HANDLE;
  if (own->capture)
    return refuseCapture(context);
  if (own->isDefault && blocksDefault(context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  return pump(context, own);
}

CUresult cuStreamQuery(CUstream stream) {
  ENTER_CONTEXT("cuStreamQuery");
  CUstream own = findStream(context, stream);
  if (!own)
    return CUDA_ERROR_INVALID_HANDLE;
  if (own->capture || isProhibited(context))
    return refuseCapture(context);
  if (own->isDefault && blocksDefault(context))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  advance();
  return own->queue.empty() ? context->broken : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags) {
  ENTER_CONTEXT("cuStreamCreate");
  *out = add(getState().streams);
  (*out)->isBlocking = !(flags & CU_STREAM_NON_BLOCKING);
  (*out)->context = context;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER_CONTEXT("cuStreamDestroy");
  if (!isAlive(stream) || stream->context != context)
    return CUDA_ERROR_INVALID_HANDLE;
  pump(context, stream);
  erase(getState().streams, stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *out) {
  ENTER_CONTEXT("cuStreamIsCapturing");
  CUstream own = findStream(context, stream);
  if (!own)
    return CUDA_ERROR_INVALID_HANDLE;
  // It is told, and nothing is spoiled by the question.
  if (own->isDefault && blocksDefault(context, /*spoil=*/false))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *out = own->capture || own->joined ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                     : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ENTER("cuThreadExchangeStreamCaptureMode");
  std::swap(*mode, getCaptureMode());
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *out, unsigned int) {
  ENTER_CONTEXT("cuEventCreate");
  *out = add(getState().events);
  (*out)->context = context;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
  ENTER_CONTEXT("cuEventDestroy");
  if (!isAlive(event) || event->context != context)
    return CUDA_ERROR_INVALID_HANDLE;
  erase(getState().events, event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  ENTER_CONTEXT("cuEventRecord");
  if (!isAlive(event) || event->context != context)
    return CUDA_ERROR_INVALID_HANDLE;
  Operation operation;
  operation.kind = Operation::Kind::Event;
  operation.reached = event->reached = std::make_shared<bool>(false);
  CUstream own = findStream(context, stream);
  event->stream = own && (own->joined || own->capture) ? own : nullptr;
  return enqueue(context, stream, std::move(operation));
}

/// A stream that waits for an event of a capture comes to be part of it.
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  ENTER_CONTEXT("cuStreamWaitEvent");
  CUstream own = findStream(context, stream);
  if (!own || !isAlive(event) || event->context != context || flags)
    return CUDA_ERROR_INVALID_HANDLE;
  Operation operation;
  operation.kind = Operation::Kind::Wait;
  operation.reached = event->reached;
  if (CUstream from = isAlive(event->stream) ? event->stream : nullptr) {
    CUstream origin = from->joined ? from->joined : from;
    if (origin != own)
      own->joined = origin;
    else
      from->isOpen = false;
  }
  return enqueue(context, stream, std::move(operation));
}

CUresult cuEventQuery(CUevent event) {
  ENTER_CONTEXT("cuEventQuery");
  if (!isAlive(event) || event->context != context)
    return CUDA_ERROR_INVALID_HANDLE;
  if (isProhibited(context))
    return refuseCapture(context);
  return event->reached && !*event->reached ? CUDA_ERROR_NOT_READY
                                            : CUDA_SUCCESS;
}

} // extern "C"
