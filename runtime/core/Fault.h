//===- Fault.h - faults that tests switch on ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// STEPC_FAULT("name") marks where a second build of the library, for
// test/faults/, does something wrong when the environment says
// STEPC_FAULT=name. In the library itself it is the constant false.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_FAULT_H
#define STEPC_CORE_FAULT_H

#ifdef STEPC_TEST_FAULTS
namespace stepc {
/// In test/faults/RuntimeFault.cpp.
bool isFault(const char *name) noexcept;
} // namespace stepc
#define STEPC_FAULT(name) (::stepc::isFault(name))
#else
#define STEPC_FAULT(name) false
#endif

#endif // STEPC_CORE_FAULT_H
