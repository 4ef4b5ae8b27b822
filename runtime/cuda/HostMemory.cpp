//===- HostMemory.cpp - host memory that a device reaches -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/HostMemory.h"

#include "core/Status.h"
#include "cuda/Device.h"

#include <memory>
#include <string>

using namespace stepc;
using namespace stepc::cuda;

static std::shared_ptr<const Device> openDevice(const StepcCudaConfig &config) {
  requireConfig(config);
  return std::make_shared<const Device>(config.device,
                                        static_cast<CUcontext>(config.context));
}

namespace {

/// A vector of bytes, and the memory that it describes.
class HostBlock {
public:
  HostBlock(std::shared_ptr<const Device> device, int64_t bytes);
  ~HostBlock();
  HostBlock(const HostBlock &) = delete;
  HostBlock &operator=(const HostBlock &) = delete;

  DLManagedTensor managed = {};

private:
  std::shared_ptr<const Device> device;
  void *address = nullptr;
  int64_t size;
};

} // namespace

HostBlock::HostBlock(std::shared_ptr<const Device> ownDevice, int64_t bytes)
    : device(std::move(ownDevice)), size(bytes) {
  device->require(device->getDriver().cuMemHostAlloc(&address, size_t(bytes),
                                                     CU_MEMHOSTALLOC_PORTABLE),
                  "cuMemHostAlloc", " of " + std::to_string(bytes) + " bytes");
  DLTensor &tensor = managed.dl_tensor;
  tensor.data = address;
  tensor.device = {kDLCUDA, device->getOrdinal()};
  tensor.ndim = 1;
  tensor.dtype = {kDLUInt, 8, 1};
  tensor.shape = &size;
  managed.manager_ctx = this;
  managed.deleter = [](DLManagedTensor *self) {
    delete static_cast<HostBlock *>(self->manager_ctx);
  };
}

/// Drivers wait for all work that may use it, as for a block of the device's
/// memory; their reference does not say so of this call, and tools/gpu/kit
/// looks whether it is so.
HostBlock::~HostBlock() {
  if (address)
    freeIn(*device,
           [&](const DriverTable &driver) { driver.cuMemFreeHost(address); });
}

DLManagedTensor *cuda::takeHost(const StepcCudaConfig &config, int64_t bytes) {
  if (bytes <= 0)
    fail(STEPC_INVALID_ARGUMENT, "bytes is %lld, expected at least 1",
         static_cast<long long>(bytes));
  std::shared_ptr<const Device> device = openDevice(config);
  ContextScope scope(*device);
  if (isCapturing(*device, static_cast<CUstream>(config.stream)))
    fail(STEPC_WRONG_STATE,
         "stepcCudaTakeHost while the stream captures a graph");
  return &std::make_unique<HostBlock>(device, bytes).release()->managed;
}

bool cuda::isHost(const StepcCudaConfig &config, uintptr_t address) {
  std::shared_ptr<const Device> device = openDevice(config);
  ContextScope scope(*device);
  int type = 0;
  CUresult result = device->getDriver().cuPointerGetAttribute(
      &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  // It is none that the driver knows.
  if (result == CUDA_ERROR_INVALID_VALUE)
    return false;
  device->require(result, "cuPointerGetAttribute");
  return type == CU_MEMORYTYPE_HOST;
}
