/*===- HeaderC11.c - the headers are C11 ------------------------------------===
 *
 * Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 *===----------------------------------------------------------------------===*/

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

/* Called from ApiTest.cpp: a C program links with the library, too. */
uint32_t stepcTestVersionFromC(void);
uint32_t stepcTestVersionFromC(void) {
  StepcCall call = {0, 0, 0, 0, 0};
  StepcPlanInfo info = {0};
  return stepcVersion() + (uint32_t)call.rowWords + (uint32_t)info.steps;
}
