//===- StoreHandle.h - what a handle of a store has ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_API_STOREHANDLE_H
#define STEPC_API_STOREHANDLE_H

#include "store/Store.h"

#include "stepc/store.h"

#include <memory>

struct StepcStore {
  std::shared_ptr<stepc::store::Store> store;
};

#endif // STEPC_API_STOREHANDLE_H
