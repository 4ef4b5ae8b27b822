//===- Describe.h - calls of communicators, in words --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_COMM_DESCRIBE_H
#define STEPC_COMM_DESCRIBE_H

#include "stepc/stepc.h"

#include <string>

namespace stepc {

/// "sum of f64"
const char *getReductionName(int32_t reduction);
/// "all_to_all"
const char *getTransferName(int32_t kind);
/// "axes [0, 2]"
std::string describeAxes(uint64_t axes);
/// "sum of f64 of 12 elements over axes [0, 2]"
std::string describeCall(const StepcReduceCall &call);

} // namespace stepc

#endif // STEPC_COMM_DESCRIBE_H
