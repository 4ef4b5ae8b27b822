//===- CallCheck.h - calls that no communicator makes ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_COMM_CALLCHECK_H
#define STEPC_COMM_CALLCHECK_H

#include "stepc/stepc.h"

#include <cstddef>
#include <string>

namespace stepc {

/// Why the call, whose index in the round is given, cannot be made on a grid
/// of so many axes: "call 1 is over axes [5], the grid has 2 axes". "" where it
/// can be.
std::string findCallFault(const StepcReduceCall &call, int64_t index,
                          std::size_t numAxes);

/// The same of a transfer in a group of so many ranks: "a transfer is over axes
/// [5], the grid has 2 axes".
std::string findTransferFault(const StepcTransfer &transfer,
                              std::size_t groupSize, std::size_t numAxes);

} // namespace stepc

#endif // STEPC_COMM_CALLCHECK_H
