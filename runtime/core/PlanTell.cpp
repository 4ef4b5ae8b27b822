//===- PlanTell.cpp - steps that find out which gradients there are -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step within a backward pass does not know of which tensors the ranks are
// going to have gradients, and the pass may end before they have come.
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"
#include "core/Status.h"

using namespace stepc;

void Plan::findUnused(bool enabled) {
  requireNoStep("stepcPlanFindUnused");
  if (enabled && !isOnProcessor())
    fail(
        STEPC_WRONG_STATE,
        "the plan runs on %s, where the host would have to wait for what ranks "
        "tell each other",
        engine->getName().c_str());
  findsUnused = enabled;
}

void Plan::shareSums() {
  requireNoStep("stepcPlanShareSums");
  if (!isOnProcessor())
    fail(STEPC_WRONG_STATE,
         "the plan runs on %s, where a captured step brings all sums before it",
         engine->getName().c_str());
  if (!model.tensors.empty())
    fail(STEPC_WRONG_STATE, "stepcPlanShareSums after %zu tensors were bound",
         model.tensors.size());
  transfers.shareSums();
}

/// Refuses one that takes part already, or never crosses.
void Plan::requireAbsent(int64_t id) const {
  requireId(id);
  const BoundTensor &tensor = model.tensors[id];
  const char *name = model.names[id].c_str();
  if (tensor.entry < 0)
    fail(STEPC_WRONG_STATE, "tensor %s was bound without an entry", name);
  if (getEntry(tensor).ready || getEntry(tensor).absent)
    fail(STEPC_WRONG_STATE,
         "the gradient of tensor %s has come since stepcStepBegin already, or "
         "was said not to",
         name);
}

void Plan::gradAbsent(const int64_t *ids, int64_t size) {
  if (!inStep || !transfers.tells())
    fail(STEPC_WRONG_STATE,
         "stepcGradAbsent outside of a step that finds unused tensors");
  if (size < 0 || (size > 0 && !ids))
    fail(STEPC_INVALID_ARGUMENT, "%lld tensors were given, without ids",
         static_cast<long long>(size));
  for (int64_t i = 0; i < size; ++i)
    requireAbsent(ids[i]);
  for (int64_t i = 0; i < size; ++i) {
    const BoundTensor &tensor = model.tensors[ids[i]];
    if (!getEntry(tensor).absent)
      transfers.setAbsent(size_t(tensor.entry));
  }
  readyEntries.clear();
  bring();
}

void Plan::stepAbandon() {
  if (!inStep)
    fail(STEPC_WRONG_STATE, "stepcStepAbandon without stepcStepBegin");
  if (!transfers.tells())
    fail(STEPC_WRONG_STATE,
         "stepcStepAbandon of a step that finds no unused tensors: other ranks "
         "are not told of it");
  transfers.giveUp();
  stepNamed();
}

/// What a rank has given up no rank has stepped. Who has not given up itself is
/// told.
void Plan::refuseGivenUp(int64_t numTensors) {
  if (!transfers.isGivenUp())
    return;
  bool torn = transfers.permitsParts() && transfers.mayHaveHalfStepped();
  if (torn)
    engine->poison();
  if (transfers.hasGivenUp())
    return;
  fail(STEPC_ABANDONED,
       "the backward pass of %s ended before all its gradients had come; %lld "
       "tensors were stepped with those of all ranks, %s",
       transfers.describeWhoGaveUp().c_str(),
       static_cast<long long>(numTensors),
       torn ? "and others on some ranks alone" : "the others are as before");
}

void Plan::getGrad(int64_t id, DLTensor &out) const {
  requireId(id);
  const BoundTensor &tensor = model.tensors[id];
  const char *name = model.names[id].c_str();
  if (tensor.entry < 0 || !getEntry(tensor).landing)
    fail(STEPC_WRONG_STATE, "the gradient of tensor %s is no sum over ranks",
         name);
  const EntryTensor &entry = getEntry(tensor);
  if (!transfers.getBucket(entry.bucket).landed)
    fail(STEPC_WRONG_STATE,
         "no backward pass has brought gradients of tensor %s", name);
  out = {};
  out.data = reinterpret_cast<void *>(entry.landing);
  out.device = model.place;
  out.ndim = 1;
  out.dtype = getDLDataType(transfers.getTerms(entry).sum);
  out.shape = const_cast<int64_t *>(&entry.ownElements);
}
