//===- PlanPass.cpp - gradients that are brought ahead of a step ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A backward pass brings gradients to where they are stepped, before a step
// takes them. Of several passes they add up there: in f32, of each the sum over
// ranks, divided where the entry says so.
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"
#include "core/Status.h"

using namespace stepc;

void Plan::passBegin() {
  requireNoStep("stepcPassBegin");
  if (transfers.sharesSums())
    fail(STEPC_WRONG_STATE,
         "stepcPassBegin of a plan whose sums share their memory: they are "
         "stepped as they land");
  renewTransfers();
  checkOverlap();
  engine->requireParts();
  engine->beginTransfers();
  transfers.begin(/*isPass=*/true, /*allTogether=*/false);
  written = false;
  inPass = true;
}

void Plan::passEnd() {
  if (!inPass)
    fail(STEPC_WRONG_STATE, "stepcPassEnd without stepcPassBegin");
  transfers.reserveRest(getTransferMemory());
  transfers.closeAll();
  bring();
  transfers.endPass();
  inPass = false;
  wakeEntries();
}

/// Also of a pass that is under way, which ends so.
void Plan::forgetGrads() {
  if (inPass) {
    transfers.abandon(*engine);
    return dropPass();
  }
  requireNoStep("stepcPlanForgetGrads");
  transfers.forget();
  wakeEntries();
}

/// What has been brought to another plan of the same tensors.
void Plan::takeGrads(Plan &from) {
  requireNoStep("stepcPlanTakeGrads");
  from.requireNoStep("stepcPlanTakeGrads");
  transfers.takeLanded(from.transfers, *engine);
  wakeEntries();
}

/// Ends a pass that has failed: of what had landed some may be the sums of
/// before, and some not.
void Plan::dropPass() noexcept {
  inPass = false;
  transfers.forget();
  wakeEntries();
}

void Plan::wakeEntries() noexcept {
  for (BoundTensor &tensor : model.tensors)
    if (tensor.entry >= 0)
      setEntryActive(tensor);
}
