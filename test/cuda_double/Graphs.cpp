//===- Graphs.cpp - streams and graphs, which tests make ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of the driver what tests call besides what the engine does.
//
//===----------------------------------------------------------------------===//

#include "Calls.h"

using namespace cuda_double;

struct CUgraphExec_st {
  std::vector<Operation> operations;
};
using CUgraph = CUgraph_st *;
using CUgraphExec = CUgraphExec_st *;

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  ENTER_CONTEXT("cuStreamBeginCapture");
  // The default stream cannot capture.
  if (!stream || !isAlive(stream) || stream->capture)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream->capture = std::make_unique<CUgraph_st>();
  stream->captureInvalid = false;
  stream->captureMode = mode;
  stream->captureThread = std::this_thread::get_id();
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *out) {
  ENTER_CONTEXT("cuStreamEndCapture");
  if (!isAlive(stream) || !stream->capture)
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *out = stream->capture.release();
  for (auto &event : getState().events)
    if (isAlive(event->stream) &&
        (event->stream == stream || event->stream->joined == stream))
      event->stream = nullptr;
  bool open = false;
  for (auto &other : getState().streams)
    if (other->joined == stream) {
      open |= other->isOpen;
      other->joined = nullptr;
      other->isOpen = false;
    }
  if (!stream->captureInvalid && !open)
    return CUDA_SUCCESS;
  delete *out;
  *out = nullptr;
  return open ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
              : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph,
                                     unsigned long long) {
  ENTER_CONTEXT("cuGraphInstantiate");
  *out = new CUgraphExec_st{graph->operations};
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  ENTER_CONTEXT("cuGraphLaunch");
  for (const Operation &operation : graph->operations)
    if (CUresult result = enqueue(context, stream, operation))
      return result;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  ENTER("cuGraphDestroy");
  delete graph;
  getState().changed.notify_all();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec graph) {
  ENTER("cuGraphExecDestroy");
  delete graph;
  getState().changed.notify_all();
  return CUDA_SUCCESS;
}

} // extern "C"
