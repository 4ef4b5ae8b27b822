//===- Device.h - a context of a CUDA device ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_DEVICE_H
#define STEPC_CUDA_DEVICE_H

#include "core/Fault.h"
#include "cuda/Driver.h"

#include "stepc/cuda.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stepc::cuda {

/// Refuses a configuration that is none of this version's.
void requireConfig(const StepcCudaConfig &config);

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

/// Lets the calling thread free memory and unload code while a stream of any
/// thread captures a graph. Otherwise such a call fails and spoils the capture,
/// whose owner knows nothing of what is freed here: a collector of garbage may
/// come to it at any time.
class CaptureScope {
public:
  explicit CaptureScope(const Device &device);
  ~CaptureScope();
  CaptureScope(const CaptureScope &) = delete;
  CaptureScope &operator=(const CaptureScope &) = delete;

private:
  const DriverTable &driver;
  CUstreamCaptureMode mode = STEPC_FAULT("device-frees-spoil-captures")
                                 ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                 : CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// Whether the stream captures a graph. Throws where it is the default stream,
/// and unusable because another one does. The device's context is current.
bool isCapturing(const Device &device, CUstream stream);

/// Runs what frees something of a device, in its context, which may be gone:
/// nothing can be done about an error.
template <typename Free>
void freeIn(const Device &device, Free &&free) noexcept {
  const DriverTable &driver = device.getDriver();
  if (driver.cuCtxPushCurrent(device.getContext()) != CUDA_SUCCESS)
    return;
  {
    CaptureScope scope(device);
    free(driver);
  }
  CUcontext popped = nullptr;
  driver.cuCtxPopCurrent(&popped);
}

/// A block of device memory. Its contents are not initialized.
class DeviceBlock {
public:
  /// `what` it is for, as messages say: "the states of 3 tensors". The
  /// device's context is current.
  DeviceBlock(std::shared_ptr<const Device> device, size_t size,
              const std::string &what);
  /// Frees it, for which the driver waits for all work that may use it: but not
  /// for what is being captured, which it leaves as it is.
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
