//===- CpuFeatures.h - what this processor can run ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_CPUFEATURES_H
#define STEPC_CPU_CPUFEATURES_H

#include <string>
#include <vector>

namespace stepc::cpu {

/// Those of `features` (LLVM's names) that the processor or the system does
/// not have, separated by ", ". A name that is not known counts as missing.
std::string getMissingCpuFeatures(const std::vector<std::string> &features);

/// The best of the compiler's targets that the processor can run; "" for none.
const char *getCpuTarget();

} // namespace stepc::cpu

#endif // STEPC_CPU_CPUFEATURES_H
