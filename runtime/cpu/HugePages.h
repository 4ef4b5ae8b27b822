//===- HugePages.h - huge pages for large memory --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_HUGEPAGES_H
#define STEPC_CPU_HUGEPAGES_H

#include <cstddef>

namespace stepc::cpu {

/// Memory below this size is left alone: its few pages fit into the TLB.
constexpr size_t kHugePageThreshold = size_t(4) << 20;
constexpr size_t kHugePageSize = size_t(2) << 20;

/// Asks the system to back the huge pages inside [address, address + size) as
/// such, also those in use already. A hint: what fails is ignored.
void adviseHugePages(void *address, size_t size) noexcept;

} // namespace stepc::cpu

#endif // STEPC_CPU_HUGEPAGES_H
