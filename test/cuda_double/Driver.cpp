//===- Driver.cpp - the driver's functions, doubled -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Those that the engine calls, of devices, modules, memory and launches;
// Errors.cpp, StreamCalls.cpp and Graphs.cpp have others.
// Errors are what the driver's documentation says of each function.
//
//===----------------------------------------------------------------------===//

#include "Calls.h"
#include "Image.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace cuda_double;

namespace {

/// Whether some stream of the context captures: what waits for the context is
/// not permitted then.
bool isCapturing(CUcontext context) {
  for (auto &stream : getState().streams)
    if (stream->context == context && stream->capture)
      return true;
  return false;
}

/// Whether a kernel of the module is still to run.
bool isUsed(CUmodule module) {
  for (auto &stream : getState().streams)
    for (const Operation &operation : stream->queue)
      if (operation.function && operation.function->module == module)
        return true;
  return false;
}

/// The object file of an image, opened under a name of its own.
void *openImage(const void *image) {
  // As an ELF file says: its section headers are at its end.
  auto *bytes = static_cast<const char *>(image);
  if (std::memcmp(bytes,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return nullptr;
  uint64_t sections;
  uint16_t entrySize, entries;
  std::memcpy(&sections, bytes + 0x28, sizeof(sections));
  std::memcpy(&entrySize, bytes + 0x3a, sizeof(entrySize));
  std::memcpy(&entries, bytes + 0x3c, sizeof(entries));
  size_t size = size_t(sections) + size_t(entrySize) * entries;
  int descriptor = memfd_create("stepc-cuda-image", MFD_CLOEXEC);
  if (descriptor < 0 ||
      write(descriptor, bytes, size) != static_cast<ssize_t>(size))
    return nullptr;
  // The loader knows objects by name, so that each needs one of its own; the
  // descriptor stays open for it.
  std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    close(descriptor);
  return library;
}

/// A function of the host on a stream: a thread of the driver's runs it, while
/// other streams go on.
class HostFunction : public Work {
public:
  HostFunction(CUhostFn function, void *argument)
      : function(function), argument(argument) {}
  ~HostFunction() override {
    if (thread.joinable())
      thread.join();
  }

  std::shared_ptr<Work> begin() override {
    return std::make_shared<HostFunction>(function, argument);
  }
  /// It is begun when it comes to be the next one of its stream.
  bool mayRun() override {
    if (!memory) {
      memory = std::make_unique<Unprotected>();
      thread = std::thread([this] {
        isInHostFunction() = true;
        function(argument);
        over = true;
        getState().changed.notify_all();
      });
    }
    return over;
  }
  CUresult run() override {
    thread.join();
    memory.reset();
    return CUDA_SUCCESS;
  }

private:
  CUhostFn function;
  void *argument;
  std::unique_ptr<Unprotected> memory;
  std::atomic<bool> over{false};
  std::thread thread;
};

} // namespace

extern "C" {

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument) {
  ENTER_CONTEXT("cuLaunchHostFunc");
  if (!function)
    return CUDA_ERROR_INVALID_VALUE;
  Operation operation;
  operation.kind = Operation::Kind::Other;
  operation.work = std::make_shared<HostFunction>(function, argument);
  return enqueue(context, stream, std::move(operation));
}

CUresult cuInit(unsigned int) {
  ENTER("cuInit");
  if (getState().devices == 0)
    return CUDA_ERROR_NO_DEVICE;
  getState().initialized = true;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *out) {
  ENTER("cuDeviceGetCount");
  *out = getState().devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal) {
  ENTER("cuDeviceGet");
  if (ordinal < 0 || ordinal >= getState().devices)
    return CUDA_ERROR_INVALID_DEVICE;
  *out = getHandle(ordinal);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *out, CUdevice_attribute attribute,
                              CUdevice) {
  ENTER("cuDeviceGetAttribute");
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *out = 3;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *out = getState().capability / 10;
    return CUDA_SUCCESS;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    *out = getState().capability % 10;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain");
  State &state = getState();
  int32_t ordinal = getOrdinal(device);
  for (auto &context : state.contexts)
    if (context->device == ordinal) {
      ++context->retained;
      *out = context.get();
      return CUDA_SUCCESS;
    }
  *out = add(state.contexts);
  (*out)->device = ordinal;
  (*out)->retained = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER("cuDevicePrimaryCtxRelease");
  for (auto &context : getState().contexts) {
    if (context->device != getOrdinal(device))
      continue;
    if (--context->retained > 0)
      return CUDA_SUCCESS;
    destroyContents(context.get());
    erase(getState().contexts, context.get());
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER("cuCtxPushCurrent");
  if (!isAlive(context))
    return CUDA_ERROR_INVALID_CONTEXT;
  getContextStack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *out) {
  ENTER("cuCtxPopCurrent");
  if (getContextStack().empty())
    return CUDA_ERROR_INVALID_CONTEXT;
  *out = getContextStack().back();
  getContextStack().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out) {
  ENTER_CONTEXT("cuCtxGetDevice");
  *out = getHandle(context->device);
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  ENTER_CONTEXT("cuCtxSynchronize");
  if (isCapturing(context))
    return refuseCapture(context);
  return pump(context, nullptr);
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image,
                            unsigned int numOptions, CUjit_option *options,
                            void **values) {
  ENTER_CONTEXT("cuModuleLoadDataEx");
  if (isProhibited(context))
    return refuseCapture(context);
  void *library = openImage(image);
  if (!library) {
    char *log = nullptr;
    size_t size = 0;
    for (unsigned int i = 0; i < numOptions; ++i) {
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
        log = static_cast<char *>(values[i]);
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        size = reinterpret_cast<size_t>(values[i]);
    }
    if (log && size)
      std::strncpy(log, "ptxas: not an image of the double", size - 1);
    return CUDA_ERROR_INVALID_PTX;
  }
  auto *services = static_cast<void **>(dlsym(library, STEPC_SERVICES));
  std::copy_n(getServices(), int(SERVICES), services);
  *out = add(getState().modules);
  (*out)->context = context;
  (*out)->library = library;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  ENTER_CONTEXT("cuModuleUnload");
  if (!isAlive(module) || module->context != context)
    return CUDA_ERROR_INVALID_HANDLE;
  if (isProhibited(context))
    return refuseCapture(context);
  // It waits for nothing.
  if (isUsed(module)) {
    getState().fault = "a module is unloaded before its kernels have run";
    return CUDA_ERROR_INVALID_HANDLE;
  }
  dlclose(module->library);
  erase(getState().modules, module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module,
                             const char *name) {
  ENTER_CONTEXT("cuModuleGetFunction");
  if (!isAlive(module) || module->context != context)
    return CUDA_ERROR_INVALID_HANDLE;
  std::unique_ptr<CUfunc_st> &function = module->functions[name];
  if (!function) {
    void *code = dlsym(module->library, name);
    auto *words = static_cast<const int64_t *>(
        dlsym(module->library, (std::string(name) + "_words").c_str()));
    if (!code || !words)
      return CUDA_ERROR_NOT_FOUND;
    function = std::make_unique<CUfunc_st>();
    function->module = module;
    function->name = name;
    function->code = reinterpret_cast<void (*)(const int64_t *)>(code);
    function->words = *words;
  }
  *out = function.get();
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction, int,
                                                     size_t) {
  ENTER_CONTEXT("cuOccupancyMaxActiveBlocksPerMultiprocessor");
  *out = 2;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
  ENTER_CONTEXT("cuMemAlloc");
  if (isProhibited(context))
    return refuseCapture(context);
  return allocate(context, size, *out);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  ENTER_CONTEXT("cuMemFree");
  auto found = getState().allocations.find(address);
  if (found == getState().allocations.end() ||
      found->second.context != context || found->second.host)
    return CUDA_ERROR_INVALID_VALUE;
  if (isProhibited(context))
    return refuseCapture(context);
  // As the driver does: it waits for all that was enqueued.
  CUresult result = pump(context, nullptr);
  release(address);
  return result;
}

CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags) {
  ENTER_CONTEXT("cuMemHostAlloc");
  if (flags & ~CU_MEMHOSTALLOC_PORTABLE)
    return CUDA_ERROR_INVALID_VALUE;
  if (isProhibited(context))
    return refuseCapture(context);
  CUdeviceptr address = 0;
  CUresult result = allocate(context, size, address);
  if (result == CUDA_SUCCESS) {
    getState().allocations[address].host = true;
    *out = reinterpret_cast<void *>(address);
  }
  return result;
}

CUresult cuMemHostRegister_v2(void *memory, size_t size, unsigned int flags) {
  ENTER_CONTEXT("cuMemHostRegister");
  if (size == 0 ||
      (flags & ~(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)))
    return CUDA_ERROR_INVALID_VALUE;
  if (isProhibited(context))
    return refuseCapture(context);
  auto address = reinterpret_cast<CUdeviceptr>(memory);
  getState().allocations[address] = {size, context, true, true};
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void *memory) {
  ENTER_CONTEXT("cuMemHostUnregister");
  auto found =
      getState().allocations.find(reinterpret_cast<CUdeviceptr>(memory));
  if (found == getState().allocations.end() || !found->second.registered)
    return CUDA_ERROR_INVALID_VALUE;
  CUresult result = pump(context, nullptr);
  getState().allocations.erase(found);
  return result;
}

/// Addresses are the same for both.
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *memory,
                                      unsigned int flags) {
  ENTER_CONTEXT("cuMemHostGetDevicePointer");
  const Allocation *allocation =
      findAllocation(reinterpret_cast<CUdeviceptr>(memory), 1);
  if (flags != 0 || !allocation || !allocation->host)
    return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUdeviceptr>(memory);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *memory) {
  ENTER_CONTEXT("cuMemFreeHost");
  auto address = reinterpret_cast<CUdeviceptr>(memory);
  auto found = getState().allocations.find(address);
  if (found == getState().allocations.end() || !found->second.host ||
      found->second.registered)
    return CUDA_ERROR_INVALID_VALUE;
  if (isProhibited(context))
    return refuseCapture(context);
  CUresult result = pump(context, nullptr);
  release(address);
  return result;
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t size,
                         CUstream stream) {
  ENTER_CONTEXT("cuMemsetD8Async");
  Operation operation;
  operation.kind = Operation::Kind::Set;
  operation.device = address;
  operation.value = value;
  operation.size = size;
  return enqueue(context, stream, std::move(operation));
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source,
                              size_t size, CUstream stream) {
  ENTER_CONTEXT("cuMemcpyHtoDAsync");
  Operation operation;
  operation.kind = Operation::Kind::CopyIn;
  operation.device = target;
  operation.source = source;
  operation.size = size;
  return enqueue(context, stream, std::move(operation));
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size,
                              CUstream stream) {
  ENTER_CONTEXT("cuMemcpyDtoHAsync");
  Operation operation;
  operation.kind = Operation::Kind::CopyOut;
  operation.device = source;
  operation.target = target;
  operation.size = size;
  return enqueue(context, stream, std::move(operation));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source,
                              size_t size, CUstream stream) {
  ENTER_CONTEXT("cuMemcpyDtoDAsync");
  Operation operation;
  operation.kind = Operation::Kind::CopyHere;
  operation.device = target;
  operation.source = reinterpret_cast<const void *>(source);
  operation.size = size;
  return enqueue(context, stream, std::move(operation));
}

CUresult cuPointerGetAttribute(void *out, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  ENTER("cuPointerGetAttribute");
  const Allocation *allocation = findAllocation(address, 1);
  if (!allocation)
    return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *static_cast<int *>(out) = allocation->context->device;
    return CUDA_SUCCESS;
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *static_cast<int *>(out) =
        allocation->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gridX,
                        unsigned int gridY, unsigned int gridZ,
                        unsigned int blockX, unsigned int blockY,
                        unsigned int blockZ, unsigned int sharedBytes,
                        CUstream stream, void **parameters, void **extra) {
  ENTER_CONTEXT("cuLaunchKernel");
  if (CUresult result = enter(("cuLaunchKernel:" + function->name).c_str()))
    return result;
  // All kernels require blocks of 256 threads.
  if (gridX == 0 || gridY != 1 || gridZ != 1 || blockX != 256 || blockY != 1 ||
      blockZ != 1 || sharedBytes != 0 || extra)
    return CUDA_ERROR_INVALID_VALUE;
  if (function->module->context != context)
    return CUDA_ERROR_INVALID_HANDLE;
  Operation operation;
  operation.kind = Operation::Kind::Launch;
  operation.function = function;
  operation.blocks = int32_t(gridX);
  operation.threads = int32_t(blockX);
  for (int64_t k = 0; k < function->words; ++k)
    operation.arguments.push_back(*static_cast<int64_t *>(parameters[k]));
  return enqueue(context, stream, std::move(operation));
}

} // extern "C"
