//===- Interpose.h - counts what the process asks the system for ----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_INTERPOSE_H
#define STEPC_TEST_SUPPORT_INTERPOSE_H

#include <cstdint>

namespace stepc_test {

/// Calls of malloc and its kin, mmap included, by any thread, the C++ library
/// and OpenMP's, since the process began.
int64_t countAllocations();

/// Parallel regions that OpenMP was asked for.
int64_t countRegions();

/// Lets the n-th allocation from now on fail, once; -1: none.
void failAllocation(int64_t n);

/// Lets each call of pread and pwrite from the n-th from now on fail so; -1:
/// none.
void failFileCalls(int64_t n, int error);
/// Those since the process began.
int64_t countFileCalls();

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_INTERPOSE_H
