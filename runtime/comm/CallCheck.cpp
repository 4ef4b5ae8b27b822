//===- CallCheck.cpp - calls that no communicator makes -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/CallCheck.h"

#include "comm/Describe.h"

std::string stepc::findCallFault(const StepcReduceCall &call, int64_t index,
                                 std::size_t numAxes) {
  auto tell = [&](const std::string &reason) {
    return "call " + std::to_string(index) + " " + reason;
  };
  if (numAxes < 64 && call.axes >> numAxes)
    return tell("is over " + describeAxes(call.axes) + ", the grid has " +
                std::to_string(numAxes) + " axes");
  if (call.reduction != STEPC_SUM_F64 && call.reduction != STEPC_MAX_I64)
    return tell("has reduction " + std::to_string(call.reduction) +
                ", which is not known");
  if (call.count < 0 || (call.count > 0 && !call.data))
    return tell("has " + std::to_string(call.count) + " elements and " +
                (call.data ? "an" : "no") + " address");
  return "";
}
