//===- RuleChoice.h - which rule updates a tensor -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_RULECHOICE_H
#define STEPC_CORE_RULECHOICE_H

#include "core/Manifest.h"

#include <string>
#include <vector>

namespace stepc {

/// The first rule whose dims the whole tensor's shape fits and whose guard
/// holds under the values of its group's options. Refuses tensors for which
/// there is none. `name` is the tensor's in messages.
size_t chooseRule(const Manifest &manifest, const std::vector<int64_t> &options,
                  const std::vector<int64_t> &shape, const std::string &name);

} // namespace stepc

#endif // STEPC_CORE_RULECHOICE_H
