//===- Device.h - a context of a CUDA device
//--------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_DEVICE_H
#define STEPC_CUDA_DEVICE_H

#include "cuda/Driver.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stepc::cuda {

/// A context in which plans work: the primary one of the device, which is
/// retained as long as this lives, or one of the caller's.
class Device {
public:
  /// `given`: a context of the device, or null for the primary one. Throws
  /// where the driver, the device or the context cannot be used.
  Device(int32_t ordinal, CUcontext given);
  ~Device();
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  const DriverTable &getDriver() const { return driver; }
  CUcontext getContext() const { return context; }
  int32_t getOrdinal() const { return ordinal; }
  /// 90 for 9.0.
  int32_t getCapability() const { return capability; }
  int32_t getMultiprocessors() const { return multiprocessors; }

  /// Throws where `result` is an error; the message begins with "`call``what`
  /// on CUDA device 0: ".
  void require(CUresult result, const char *call,
               const std::string &what = "") const;

  const DriverTable &driver;
  int32_t ordinal;
  CUdevice handle = 0;
  CUcontext context = nullptr;
  bool retained = false;
  int32_t capability = 0;
  int32_t multiprocessors = 0;
};

/// Makes a device's context the current one of the calling thread, and in the
/// end the one that was before.
class ContextScope {
public:
  explicit ContextScope(const Device &device);
  ~ContextScope();
  ContextScope(const ContextScope &) = delete;
  ContextScope &operator=(const ContextScope &) = delete;

private:
  const DriverTable &driver;
};

/// A block of device memory. Its contents are not initialized.
class DeviceBlock {
public:
  /// `what` it is for, as messages say: "the states of 3 tensors". The
  /// device's context is current.
  DeviceBlock(std::shared_ptr<const Device> device, size_t size,
              const std::string &what);
  /// Waits for all work of the device that may use it.
  ~DeviceBlock();
  DeviceBlock(DeviceBlock &&other) noexcept;
  DeviceBlock &operator=(DeviceBlock &&other) noexcept;

  CUdeviceptr getAddress() const { return address; }
  size_t getSize() const { return size; }

private:
  std::shared_ptr<const Device> device;
  CUdeviceptr address = 0;
  size_t size = 0;
};

} // namespace stepc::cuda

#endif // STEPC_CUDA_DEVICE_H
