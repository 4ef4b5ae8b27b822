//===- Nccl.h - NCCL's library, opened at run time ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NCCL_NCCL_H
#define STEPC_NCCL_NCCL_H

#include "nccl/NcclTypes.h"

#include <string>
#include <type_traits>

namespace stepc::nccl {

/// The functions of NcclSymbols.def.
struct NcclTable {
#define STEPC_NCCL_SYMBOL(name, result, parameters) result(*name) parameters;
#include "nccl/NcclSymbols.def"
};

/// NCCL's functions. The first call opens libnccl.so.2; where that fails the
/// next one tries again. Throws STEPC_COMMUNICATION_ERROR.
const NcclTable &getNccl();

/// "ncclInvalidUsage (5): invalid usage (...): " and what NCCL said of its last
/// error, where it said anything.
std::string describeResult(const NcclTable &nccl, ncclResult_t result);

/// Throws STEPC_COMMUNICATION_ERROR. `what` was called: "ncclCommSplit of axes
/// [0]".
[[noreturn]] void failCall(const NcclTable &nccl, ncclResult_t result,
                           const std::string &what);

/// The same where `result` is an error, which ncclInProgress is not. `what` are
/// words, or a function that makes them when they are needed.
template <typename What>
void require(const NcclTable &nccl, ncclResult_t result, const What &what) {
  if (result == ncclSuccess || result == ncclInProgress)
    return;
  if constexpr (std::is_invocable_v<const What &>)
    failCall(nccl, result, what());
  else
    failCall(nccl, result, what);
}

} // namespace stepc::nccl

#endif // STEPC_NCCL_NCCL_H
