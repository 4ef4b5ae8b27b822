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

std::string stepc::findTransferFault(const StepcTransfer &transfer,
                                     std::size_t groupSize,
                                     std::size_t numAxes) {
  if (numAxes < 64 && transfer.axes >> numAxes)
    return "a transfer is over " + describeAxes(transfer.axes) +
           ", the grid has " + std::to_string(numAxes) + " axes";
  bool toAll = transfer.kind == STEPC_ALL_TO_ALL;
  if (!toAll && transfer.kind != STEPC_ALL_GATHER)
    return "a transfer has kind " + std::to_string(transfer.kind) +
           ", which is not known";
  if (!transfer.receiveBytes || (toAll && !transfer.sendBytes))
    return "a transfer does not say how many bytes cross";
  // What a rank sends to all it has in its place among what it receives, and of
  // that it may have nothing itself.
  auto check = [&](const int64_t *list, const void *address) -> std::string {
    int64_t bytes = 0;
    for (std::size_t i = 0; i < groupSize; ++i) {
      if (list[i] < 0)
        return "a transfer has " + std::to_string(list[i]) + " bytes";
      bytes += list[i];
    }
    if (bytes > 0 && !address)
      return "a transfer has " + std::to_string(bytes) +
             " bytes and no address";
    return "";
  };
  std::string fault = check(transfer.receiveBytes, transfer.receive);
  if (fault.empty() && toAll)
    fault = check(transfer.sendBytes, transfer.send);
  return fault;
}
