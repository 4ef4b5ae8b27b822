//===- Driver.h - the CUDA driver, opened at run time ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_DRIVER_H
#define STEPC_CUDA_DRIVER_H

#include "core/Status.h"
#include "cuda/DriverTypes.h"

#include <string>

namespace stepc::cuda {

/// The functions of DriverSymbols.def, by their documented names.
struct DriverTable {
#define STEPC_CUDA_SYMBOL(name, symbol, parameters) CUresult(*name) parameters;
#include "cuda/DriverSymbols.def"
};

/// The driver's functions. The first call opens libcuda.so.1 and initializes
/// it; where that fails the next one tries again. Throws STEPC_DEVICE_ERROR.
const DriverTable &getDriver();

/// "CUDA_ERROR_INVALID_VALUE (1): invalid argument"
std::string describeResult(const DriverTable &driver, CUresult result);

/// Whether no call of the context succeeds any more after this result.
bool isFatal(CUresult result);

/// A call of the driver that failed.
class DriverError : public Error {
public:
  DriverError(StepcStatus status, std::string message, CUresult result)
      : Error(status, std::move(message)), result(result) {}

  CUresult getResult() const { return result; }

private:
  CUresult result;
};

/// Throws a DriverError where `result` is an error: STEPC_OUT_OF_MEMORY or
/// STEPC_DEVICE_ERROR. The message is that of describeResult() behind
/// "`call`: ", `what` telling what the call was about: " of 16 bytes".
void require(const DriverTable &driver, CUresult result, const char *call,
             const std::string &what);

} // namespace stepc::cuda

#endif // STEPC_CUDA_DRIVER_H
