//===- Device.cpp - a context of a CUDA device ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/Device.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <utility>

using namespace stepc;
using namespace stepc::cuda;

void stepc::cuda::requireConfig(const StepcCudaConfig &config) {
  requireStructSize(&config, sizeof(config), "StepcCudaConfig");
  if (config.reserved0 != 0)
    fail(STEPC_INVALID_ARGUMENT, "a reserved field of the config is %d, not 0",
         int(config.reserved0));
}

Device::Device(int32_t ordinal, CUcontext given)
    : driver(stepc::cuda::getDriver()), ordinal(ordinal) {
  int count = 0;
  require(driver.cuDeviceGetCount(&count), "cuDeviceGetCount");
  if (ordinal < 0 || ordinal >= count)
    fail(STEPC_INVALID_ARGUMENT,
         "CUDA device %d does not exist, the driver has %d", int(ordinal),
         count);
  require(driver.cuDeviceGet(&handle, ordinal), "cuDeviceGet");
  auto getAttribute = [&](CUdevice_attribute attribute) {
    int value = 0;
    require(driver.cuDeviceGetAttribute(&value, attribute, handle),
            "cuDeviceGetAttribute");
    return value;
  };
  capability = 10 * getAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
               getAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  multiprocessors = getAttribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);

  context = given;
  if (!given) {
    require(driver.cuDevicePrimaryCtxRetain(&context, handle),
            "cuDevicePrimaryCtxRetain");
    retained = true;
    return;
  }
  ContextScope scope(*this);
  CUdevice own = -1;
  require(driver.cuCtxGetDevice(&own), "cuCtxGetDevice");
  if (own == handle)
    return;
  // A handle need not be the number by which people know the device.
  int known = 0;
  for (CUdevice other = -1; known < count; ++known)
    if (driver.cuDeviceGet(&other, known) == CUDA_SUCCESS && other == own)
      break;
  fail(STEPC_DEVICE_MISMATCH,
       "the context is one of CUDA device %d, the plan is to run on %d", known,
       int(ordinal));
}

Device::~Device() {
  if (retained)
    driver.cuDevicePrimaryCtxRelease(handle);
}

void Device::require(CUresult result, const char *call,
                     const std::string &what) const {
  if (result != CUDA_SUCCESS)
    cuda::require(driver, result, call,
                  what + " on CUDA device " + std::to_string(ordinal));
}

ContextScope::ContextScope(const Device &device) : driver(device.getDriver()) {
  device.require(driver.cuCtxPushCurrent(device.getContext()),
                 "cuCtxPushCurrent");
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (!STEPC_FAULT("device-context-left"))
    driver.cuCtxPopCurrent(&popped);
}

CaptureScope::CaptureScope(const Device &device) : driver(device.getDriver()) {
  driver.cuThreadExchangeStreamCaptureMode(&mode);
}

CaptureScope::~CaptureScope() {
  driver.cuThreadExchangeStreamCaptureMode(&mode);
}

bool stepc::cuda::isCapturing(const Device &device, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = device.getDriver().cuStreamIsCapturing(stream, &status);
  if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
    fail(STEPC_WRONG_STATE,
         "the stream is the default one of CUDA device %d, which cannot be "
         "used while another stream captures a graph",
         int(device.getOrdinal()));
  device.require(result, "cuStreamIsCapturing");
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

DeviceBlock::DeviceBlock(std::shared_ptr<const Device> ownDevice, size_t size,
                         const std::string &what)
    : device(std::move(ownDevice)), size(size) {
  device->require(device->getDriver().cuMemAlloc(&address, size), "cuMemAlloc",
                  " of " + std::to_string(size) + " bytes for " + what);
}

DeviceBlock::~DeviceBlock() {
  if (address)
    freeIn(*device,
           [&](const DriverTable &driver) { driver.cuMemFree(address); });
}

DeviceBlock::DeviceBlock(DeviceBlock &&other) noexcept
    : device(other.device), address(std::exchange(other.address, 0)),
      size(other.size) {}

DeviceBlock &DeviceBlock::operator=(DeviceBlock &&other) noexcept {
  std::swap(device, other.device);
  std::swap(address, other.address);
  std::swap(size, other.size);
  return *this;
}
