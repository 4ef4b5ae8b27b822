//===- CallCheck.cpp - calls that no communicator makes -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "comm/CallCheck.h"

#include "comm/Describe.h"

#include <utility>

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
  // What an all_gather sends its own entry says, which is among these.
  for (const auto &[list, address] :
       {std::pair<const int64_t *, const void *>(transfer.receiveBytes,
                                                 transfer.receive),
        std::pair<const int64_t *, const void *>(transfer.sendBytes,
                                                 transfer.send)})
    for (std::size_t i = 0; list && i < groupSize; ++i)
      if (list[i] < 0 || (list[i] > 0 && !address))
        return "a transfer has " + std::to_string(list[i]) + " bytes and " +
               (address ? "an" : "no") + " address";
  return "";
}
