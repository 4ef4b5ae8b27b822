//===- State.h - what the double of the driver keeps ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_TEST_CUDA_DOUBLE_STATE_H
#define STEPC_TEST_CUDA_DOUBLE_STATE_H

#include "cuda/DriverTypes.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

// More of the driver's constants than the engine knows.
inline constexpr int CUDA_ERROR_INVALID_DEVICE = 101;
inline constexpr int CUDA_ERROR_INVALID_IMAGE = 200;
inline constexpr int CUDA_ERROR_INVALID_PTX = 218;
inline constexpr int CUDA_ERROR_INVALID_HANDLE = 400;
inline constexpr int CUDA_ERROR_NOT_PERMITTED = 800;
inline constexpr int CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;
inline constexpr int CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901;
inline constexpr int CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904;
inline constexpr int CU_MEMORYTYPE_DEVICE = 2;

namespace cuda_double {

using namespace stepc::cuda;

/// What another library has on streams: NCCL's double. All is called with
/// State::mutex held.
class Work {
public:
  virtual ~Work() = default;
  /// It comes onto a stream: when it is enqueued, or a graph with it launched.
  /// What is to run then.
  virtual std::shared_ptr<Work> begin() = 0;
  /// All before it on the stream is done. Whether it could come to its end.
  virtual bool mayRun() = 0;
  virtual CUresult run() = 0;
};

/// A launch, copy or memset that was enqueued, an event, or other work.
struct Operation {
  enum class Kind {
    Launch,
    CopyIn,
    CopyOut,
    CopyHere,
    Set,
    Event,
    Wait,
    Other
  };

  Kind kind = Kind::Launch;
  /// Position among all that were enqueued.
  int64_t number = 0;
  CUfunction function = nullptr;
  int32_t blocks = 0;
  int32_t threads = 0;
  std::vector<int64_t> arguments;
  CUdeviceptr device = 0;
  const void *source = nullptr;
  void *target = nullptr;
  size_t size = 0;
  unsigned char value = 0;
  /// Set when the event is reached; of what waits for one, null: there is none.
  std::shared_ptr<bool> reached;
  std::shared_ptr<Work> work;
};

struct Allocation {
  size_t size = 0;
  CUctx_st *context = nullptr;
  /// Page-locked memory of the host: for kernels as that of the device. The
  /// host may not touch it either while work may use it, so it is protected.
  bool host = false;
  /// The caller's, which kernels reach as well; the host may always touch it.
  bool registered = false;
};

struct State {
  std::mutex mutex;
  /// Something was enqueued or has run.
  std::condition_variable changed;
  std::chrono::milliseconds patience{20000};
  std::mt19937_64 random;
  bool initialized = false;
  int32_t devices = 1;
  int32_t capability = 90;
  std::map<std::string, int64_t> calls;
  std::string failingName;
  int64_t failingIn = 0;
  int32_t failingWith = 0;
  std::vector<std::unique_ptr<CUctx_st>> contexts;
  /// Those from before a reset, whose addresses are not used again.
  std::vector<std::unique_ptr<CUctx_st>> graves;
  /// How often there was a reset.
  int32_t resets = 0;
  /// By their first address.
  std::map<CUdeviceptr, Allocation> allocations;
  std::vector<std::unique_ptr<CUmod_st>> modules;
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::vector<std::unique_ptr<CUevent_st>> events;
  int64_t numbered = 0;
  std::string fault;
};

/// Adds what a handle stands for to a list of the state; the handle.
template <typename T>
T *add(std::vector<std::unique_ptr<T>> &list) {
  list.push_back(std::make_unique<T>());
  return list.back().get();
}

template <typename T>
void erase(std::vector<std::unique_ptr<T>> &list, const T *handle) {
  list.erase(std::find_if(list.begin(), list.end(), [&](const auto &own) {
    return own.get() == handle;
  }));
}

State &getState();
std::vector<CUcontext> &getContextStack();
/// The mode of captures of the calling thread: which it must not disturb.
CUstreamCaptureMode &getCaptureMode();
/// Whether the calling thread runs a function of the host on a stream, which
/// may call nothing of the driver.
bool &isInHostFunction();

// State.cpp
/// The handle of a device, which is of the time between two resets: 2003 of
/// device 3 after the second. Tests may use the number itself.
CUdevice getHandle(int32_t ordinal);
/// The device of a handle, or -1 for one from before a reset.
int32_t getOrdinal(CUdevice handle);
/// Whether no call of the context succeeds any more after this result.
bool isFatal(CUresult result);
/// Counts a call; what it returns before it does anything, or 0.
CUresult enter(const char *function);
/// The same of a call that needs a context, which `context` is set to.
CUresult enter(const char *function, CUcontext &context);
bool isAlive(CUmodule module);
bool isAlive(CUcontext context);
bool isAlive(CUstream stream);
bool isAlive(CUevent event);
/// Waits, with the mutex free, until another thread has changed something; for
/// a short time, as what is waited for may need nobody to change it.
void waitForOthers();
/// Whether a host that waits may go on doing so: false when State::patience is
/// over after the begin, which is noted as a fault of `who`.
bool maySleep(std::chrono::steady_clock::time_point begin, const char *who);
/// Ends all work of the context and frees what belongs to it.
void destroyContents(CUcontext context);

// Memory.cpp
CUresult allocate(CUcontext context, size_t size, CUdeviceptr &out);
void release(CUdeviceptr address);
void releaseAll();
/// The allocation that has all of these bytes, or null.
const Allocation *findAllocation(CUdeviceptr address, size_t size);
/// Device memory can be touched as long as one of these is alive.
class Unprotected {
public:
  Unprotected();
  ~Unprotected();
};

// Streams.cpp
/// The stream of a handle in the context; NULL is its default stream.
CUstream findStream(CUcontext context, CUstream stream);
CUresult enqueue(CUcontext context, CUstream stream, Operation operation);
/// Whether the default stream cannot be used, as one that waits for it
/// captures; who uses it spoils those captures.
bool blocksDefault(CUcontext context, bool spoil = true);
/// Runs work until the stream has none left; null: any of the context.
CUresult pump(CUcontext context, CUstream until);
/// Time goes by: runs a few operations of any stream, or none.
void advance();

// Grid.cpp
/// Runs a launch; its error, with State::fault set.
CUresult runGrid(CUcontext context, const Operation &launch);
void *const *getServices();

} // namespace cuda_double

struct CUctx_st {
  int32_t device = 0;
  /// How often it is retained as the primary context of the device.
  int64_t retained = 0;
  /// What every call returns once a kernel has faulted.
  int32_t broken = 0;
};

struct CUevent_st {
  CUctx_st *context = nullptr;
  /// Of its last record; null: it was not recorded.
  std::shared_ptr<bool> reached;
  /// Where a capture has it.
  CUstream_st *stream = nullptr;
};

struct CUmod_st {
  CUctx_st *context = nullptr;
  void *library = nullptr;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};

struct CUfunc_st {
  CUmod_st *module = nullptr;
  std::string name;
  void (*code)(const int64_t *) = nullptr;
  int64_t words = 0;
};

struct CUgraph_st {
  std::vector<cuda_double::Operation> operations;
};

struct CUstream_st {
  CUctx_st *context = nullptr;
  bool isDefault = false;
  std::deque<cuda_double::Operation> queue;
  /// Whether it waits for the default stream, and that for it.
  bool isBlocking = false;
  std::unique_ptr<CUgraph_st> capture;
  stepc::cuda::CUstreamCaptureMode captureMode = 0;
  std::thread::id captureThread;
  bool captureInvalid = false;
  /// The stream whose capture this one has come to be part of, and whether that
  /// stream has yet to wait for what this one has there.
  CUstream_st *joined = nullptr;
  bool isOpen = false;
};

#endif // STEPC_TEST_CUDA_DOUBLE_STATE_H
