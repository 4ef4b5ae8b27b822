//===- Describe.cpp - calls of communicators, in words ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/Describe.h"

const char *stepc::getReductionName(int32_t reduction) {
  return reduction == STEPC_SUM_F64 ? "sum of f64" : "max of i64";
}

const char *stepc::getTransferName(int32_t kind) {
  return kind == STEPC_ALL_TO_ALL ? "all_to_all" : "all_gather";
}

std::string stepc::describeAxes(uint64_t axes) {
  std::string text;
  for (int i = 0; i < 64; ++i)
    if (axes >> i & 1)
      text += (text.empty() ? "" : ", ") + std::to_string(i);
  return "axes [" + text + "]";
}

std::string stepc::describeCall(const StepcReduceCall &call) {
  return std::string(getReductionName(call.reduction)) + " of " +
         std::to_string(call.count) + " elements over " +
         describeAxes(call.axes);
}
