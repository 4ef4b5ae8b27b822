//===- Fill.h - states that begin with a value --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_FILL_H
#define STEPC_CORE_FILL_H

#include "core/Manifest.h"

namespace stepc {

/// Sets `elements` values of the storage type to `value`, rounded to nearest.
void fillElements(char *data, int64_t elements, Storage storage, double value);

} // namespace stepc

#endif // STEPC_CORE_FILL_H
