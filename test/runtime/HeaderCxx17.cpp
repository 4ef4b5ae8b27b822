//===- HeaderCxx17.cpp - the headers are C++17 ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stepc/codes.h"
#include "stepc/communicator.h"
#include "stepc/cuda.h"
#include "stepc/describe.h"
#include "stepc/kernel_abi.h"
#include "stepc/layout.h"
#include "stepc/nccl.h"
#include "stepc/shared_memory.h"
#include "stepc/simulated.h"
#include "stepc/stepc.h"
#include "stepc/store.h"

#include <cstddef>

// What compiled kernels and older callers rely on.
static_assert(sizeof(StepcChunk) == 24, "layout of the kernel ABI");
static_assert(sizeof(StepcCall) == 40, "layout of the kernel ABI");
static_assert(sizeof(StepcRoutines) == 40, "layout of the kernel ABI");
static_assert(sizeof(StepcPlanConfig) == 56, "layout of the C ABI");
static_assert(sizeof(StepcBinding) == 136, "layout of the C ABI");
static_assert(sizeof(StepcCommunicator) == 80, "layout of the C ABI");
static_assert(offsetof(StepcCommunicator, enqueue) == 24,
              "the size of the first version");
static_assert(sizeof(StepcPlanInfo) == 136, "layout of the C ABI");
static_assert(sizeof(StepcCudaConfig) == 32, "layout of the C ABI");
static_assert(sizeof(StepcNcclUniqueId) == 128, "layout of NCCL's");
static_assert(sizeof(StepcLastStep) == 24, "layout of the C ABI");
static_assert(sizeof(StepcStateFormatInfo) == 32, "layout of the C ABI");
static_assert(sizeof(StepcStoreConfig) == 40, "layout of the C ABI");
static_assert(sizeof(StepcStoreInfo) == 56, "layout of the C ABI");
static_assert(sizeof(StepcStoreCommitted) == 32, "layout of the C ABI");
static_assert(STEPC_KERNEL_ABI_VERSION == 12, "raise with any change");
