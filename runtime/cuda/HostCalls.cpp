//===- HostCalls.cpp - what a device leaves to the host -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/HostCalls.h"

#include "core/Fault.h"
#include "core/FloatMode.h"

#include "numerics/Order.h"
#include "numerics/Orthonormal.h"
#include "numerics/SymmetricEigen.h"

#include "stepc/kernel_abi.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <omp.h>
#include <string>
#include <thread>

using namespace stepc;
using namespace stepc::cuda;

static_assert(kEigenWork == STEPC_EIGEN_WORK &&
                  kOrthonormalWork == STEPC_ORTHONORMAL_WORK,
              "what a row's memory is counted by");

PinnedBlock::PinnedBlock(std::shared_ptr<const Device> ownDevice,
                         size_t ownSize, const char *what)
    : device(std::move(ownDevice)), size(ownSize) {
  device->require(device->getDriver().cuMemHostAlloc(&address, size,
                                                     CU_MEMHOSTALLOC_PORTABLE),
                  "cuMemHostAlloc",
                  " of " + std::to_string(size) + " bytes for " + what);
}

/// What may use it has been waited for.
PinnedBlock::~PinnedBlock() {
  if (address)
    freeIn(*device,
           [&](const DriverTable &driver) { driver.cuMemFreeHost(address); });
}

HostCalls::HostCalls(size_t numClasses, int ownThreads)
    : numThreads(size_t(
          std::max(ownThreads > 0 ? ownThreads : omp_get_max_threads(), 1))),
      current(numClasses) {}

HostCalls::Records *HostCalls::addRecords(uintptr_t address, int64_t rows) {
  all.push_back(std::make_unique<Records>(
      Records{this, reinterpret_cast<int64_t *>(address), rows}));
  return all.back().get();
}

/// Memory that no thread comes to use is never touched.
void HostCalls::reserve(size_t bytes, size_t matrices) {
  size_t threads =
      std::max(std::min(numThreads, matrices), memory->ofThreads.size());
  bytes = std::max(bytes, memory->bytes);
  if (bytes == memory->bytes && threads == memory->ofThreads.size())
    return;
  auto taken = std::make_shared<Memory>();
  taken->bytes = bytes;
  for (size_t k = 0; k < threads; ++k)
    taken->ofThreads.emplace_back(new char[bytes]);
  std::lock_guard<std::mutex> lock(mutex);
  memory = std::move(taken);
}

int64_t HostCalls::getBytes() const {
  return int64_t(memory->bytes * memory->ofThreads.size());
}

namespace {
/// One matrix of a record.
struct Task {
  const int64_t *record = nullptr;
  int64_t matrix = 0;
};
} // namespace

/// The matrices of all records, one by one, for any thread.
class HostCalls::Queue {
public:
  explicit Queue(const Records &records) : records(records) {}

  int64_t count() const {
    int64_t sum = 0;
    for (int64_t row = 0; row < records.rows; ++row)
      sum += getCount(row);
    return sum;
  }
  bool take(Task &task) {
    std::lock_guard<std::mutex> lock(mutex);
    while (row < records.rows && matrix >= getCount(row)) {
      ++row;
      matrix = 0;
    }
    if (row == records.rows)
      return false;
    task = {getRecord(row), matrix++};
    return true;
  }

private:
  /// Of matrices without elements there is nothing to be made.
  int64_t getCount(int64_t number) const {
    const int64_t *record = getRecord(number);
    bool some = record[STEPC_CALL_ROWS] * record[STEPC_CALL_COLUMNS] > 0;
    return some ? record[STEPC_CALL_MATRICES] : 0;
  }
  const int64_t *getRecord(int64_t number) const {
    return records.words + number * STEPC_CALL_WORDS;
  }

  const Records &records;
  std::mutex mutex;
  int64_t row = 0;
  int64_t matrix = 0;
};

template <typename To, typename From>
static void convert(To *to, const From *from, int64_t count) {
  for (int64_t k = 0; k < count; ++k)
    to[k] = To(from[k]);
}

/// As elements of so many bytes.
static void writeBack(char *to, const double *from, int64_t count,
                      int64_t bytes) {
  if (bytes == 4)
    convert(reinterpret_cast<float *>(to), from, count);
  else
    std::memcpy(to, from, size_t(count) * sizeof(double));
}

/// What the record says, of one of its matrices and in its place; `memory` is
/// the calling thread's.
static void makeOne(const Task &task, char *memory) {
  const int64_t *record = task.record;
  int64_t rows = record[STEPC_CALL_ROWS], columns = record[STEPC_CALL_COLUMNS];
  int64_t count = rows * columns, bytes = record[STEPC_CALL_BYTES];
  char *own = reinterpret_cast<char *>(record[STEPC_CALL_ADDRESS]) +
              task.matrix * count * bytes;
  auto *matrix = reinterpret_cast<double *>(memory);
  double *other = matrix + count, *work = other + count;
  if (record[STEPC_CALL_ROUTINE] == STEPC_ROUTINE_ORDER) {
    auto *places = reinterpret_cast<int64_t *>(memory);
    findOrder(reinterpret_cast<double *>(own), columns, places);
    std::memcpy(own, places, size_t(columns) * sizeof(int64_t));
    return;
  }
  if (bytes == 4)
    convert(matrix, reinterpret_cast<float *>(own), count);
  else
    std::memcpy(matrix, own, size_t(count) * sizeof(double));
  const double *result = matrix;
  if (record[STEPC_CALL_ROUTINE] == STEPC_ROUTINE_EIGENVECTORS) {
    findEigenvectors(matrix, rows, other, work);
    if (record[STEPC_CALL_VALUES])
      writeBack(reinterpret_cast<char *>(record[STEPC_CALL_VALUES]) +
                    task.matrix * rows * bytes,
                work, rows, bytes);
  } else {
    makeOrthonormal(matrix, rows, columns, other, work);
    result = other;
  }
  writeBack(own, result, count, bytes);
}

/// By threads that are begun for it: a decomposition takes a thousand times as
/// long as that, and where none is due none is. Where one cannot be begun there
/// are fewer.
void HostCalls::run(const Records &records) const noexcept {
  Queue queue(records);
  auto count = size_t(queue.count());
  if (count == 0)
    return;
  std::shared_ptr<const Memory> own;
  {
    std::lock_guard<std::mutex> lock(mutex);
    own = memory;
  }
  auto work = [&](size_t index) {
    FloatMode mode;
    for (Task task; queue.take(task);)
      makeOne(task, own->ofThreads[index].get());
  };
  std::vector<std::thread> team;
  try {
    for (size_t k = 1; k < std::min(count, own->ofThreads.size()); ++k)
      team.emplace_back(work, k);
  } catch (...) {
    // Those that there are do it.
  }
  work(0);
  for (std::thread &thread : team)
    thread.join();
  for (int64_t row = 0; row < records.rows; ++row)
    records.words[row * STEPC_CALL_WORDS + STEPC_CALL_MATRICES] = 0;
}

void HostCalls::run(void *argument) noexcept {
  const auto &records = *static_cast<Records *>(argument);
  if (!STEPC_FAULT("device-call-not-made"))
    records.calls->run(records);
}
