//===- Engine.cpp - runs steps on a CUDA device
//-----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/Engine.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <algorithm>

using namespace stepc;
using namespace stepc::cuda;

static constexpr size_t kChunkWords = sizeof(StepcChunk) / sizeof(int64_t);

static std::shared_ptr<const Device> openDevice(const StepcCudaConfig &config) {
  return std::make_shared<const Device>(config.device,
                                        static_cast<CUcontext>(config.context));
}

Engine::Engine(std::shared_ptr<const Package> ownPackage,
               const StepcCudaConfig &config)
    : package(std::move(ownPackage)), device(openDevice(config)),
      launcher(device, (requireKernels(), getModule(package, device)),
               static_cast<CUstream>(config.stream)) {
  const Manifest &manifest = package->getManifest();
  size_t most = 1;
  for (const Variant &variant : manifest.variants) {
    most += variant.scalarFunctions.size() + 2 * variant.schedule.size();
    for (int kind = 0; kind < 2; ++kind) {
      tables.emplace_back("a table of tensors");
      chunks.emplace_back("a list of chunks");
      finishes.emplace_back("a list of rows");
    }
  }
  launches.reserve(most);
}

/// What the launches of a step are made of here; a package has code for a
/// device only where it needs nothing else, as long as its compiler knows so.
void Engine::requireKernels() const {
  const Manifest &manifest = package->getManifest();
  for (const Variant &variant : manifest.variants)
    if (variant.space == Space::Tiles)
      fail(STEPC_UNSUPPORTED_TARGET,
           "variant '%s' of package '%s' is in the tiles space, which has no "
           "launches on CUDA devices",
           variant.name.c_str(), package->getName().c_str());
  if (!manifest.rounds.empty())
    fail(STEPC_UNSUPPORTED_TARGET,
         "package '%s' has %zu rounds, which have no launches on CUDA devices",
         package->getName().c_str(), manifest.rounds.size());
}

void Engine::setStream(void *stream) {
  launcher.setStream(static_cast<CUstream>(stream));
}

/// Runs what enqueues. An error that ends the context leaves tensors in an
/// unknown state: earlier steps may not have come to their ends.
template <typename Work>
void Engine::guard(Work &&work) {
  try {
    ContextScope scope(*device);
    work();
  } catch (const DriverError &error) {
    broken |= isFatal(error.getResult()) && !STEPC_FAULT("device-lives-on");
    throw;
  }
}

bool Engine::isCapturing() {
  bool capturing = false;
  guard([&] { capturing = launcher.isCapturing(); });
  return capturing;
}

void Engine::reserveRows(size_t rowClass, int64_t tableWords, int64_t numChunks,
                         int64_t numFinishes) {
  ContextScope scope(*device);
  tables[rowClass].reserve(device, size_t(tableWords));
  chunks[rowClass].reserve(device, size_t(numChunks) * kChunkWords);
  finishes[rowClass].reserve(device, size_t(numFinishes) * kChunkWords);
}

void Engine::reserveWorkspace(size_t bytes) {
  ContextScope scope(*device);
  if (bytes > (workspace ? workspace->getSize() : 0))
    workspace = std::make_unique<DeviceBlock>(device, bytes, "the workspace");
}

void Engine::reserveCohorts(size_t cohorts, size_t slots) {
  ContextScope scope(*device);
  scalars.reserve(device, cohorts * STEPC_SCALAR_ENTRY_WORDS);
  size_t bytes = cohorts * slots * sizeof(double);
  if (bytes > (scalarRows ? scalarRows->getSize() : 0))
    scalarRows =
        std::make_unique<DeviceBlock>(device, bytes + bytes / 2, "scalars");
  scalarSlots = slots;
}

void Engine::reserveGroups(size_t words) {
  ContextScope scope(*device);
  groups.reserve(device, words);
}

DeviceBlock Engine::allocate(size_t size, const std::string &what) {
  ContextScope scope(*device);
  DeviceBlock block(device, size, what);
  launcher.clear(block.getAddress(), size);
  launcher.synchronize();
  return block;
}

void Engine::write(CUdeviceptr to, const void *from, size_t size) {
  ContextScope scope(*device);
  launcher.copyIn(to, from, size);
}

void Engine::requireMemory(uintptr_t address, const OperandName &name) const {
  ContextScope scope(*device);
  int ordinal = -1;
  CUresult result = device->getDriver().cuPointerGetAttribute(
      &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  if (result == CUDA_ERROR_INVALID_VALUE)
    fail(STEPC_DEVICE_MISMATCH,
         "%s is at address 0x%llx, which the driver does not know",
         name.str().c_str(), static_cast<unsigned long long>(address));
  device->require(result, "cuPointerGetAttribute", " for " + name.str());
  if (ordinal != device->getOrdinal())
    fail(STEPC_DEVICE_MISMATCH,
         "%s is in memory of CUDA device %d, the plan runs on %d",
         name.str().c_str(), ordinal, int(device->getOrdinal()));
}

CUdeviceptr Engine::getScalars(int32_t cohort) const {
  return scalarRows->getAddress() +
         size_t(cohort) * scalarSlots * sizeof(double);
}

bool Engine::hasScalars(const DeviceStep &step) const {
  return groups.has(step.groups.data(), step.groups.size()) &&
         scalars.has(step.scalars.data(), step.scalars.size());
}

void Engine::storeChunks(Mirror &list, const StepcChunk *own, int64_t size) {
  list.update(launcher, reinterpret_cast<const int64_t *>(own),
              size_t(size) * kChunkWords);
}

void Engine::upload(const DeviceStep &step) {
  guard([&] {
    groups.update(launcher, step.groups.data(), step.groups.size());
    scalars.update(launcher, step.scalars.data(), step.scalars.size());
    for (const ListedRows &rows : step.rows) {
      tables[rows.rowClass].update(launcher, rows.table,
                                   size_t(rows.tableWords));
      if (!step.chunksChanged)
        continue;
      storeChunks(chunks[rows.rowClass], rows.chunks, rows.numChunks);
      storeChunks(finishes[rows.rowClass], rows.finishes, rows.numFinishes);
    }
  });
}

/// A thread for each cohort of a variant.
void Engine::addScalars(const DeviceStep &step, int64_t segment) {
  for (const ScalarRange &range : step.ranges) {
    const Kernel &kernel =
        launcher.getModule().getKernels(range.variant).scalars[size_t(segment)];
    if (!kernel.function || range.begin == range.end)
      continue;
    launches.push_back(
        {&kernel,
         (range.end - range.begin + kBlockThreads - 1) / kBlockThreads,
         -1,
         3,
         {int64_t(scalars.getAddress()), range.begin, range.end}});
  }
}

/// The schedule of a class: a block for each chunk, or for each row where it is
/// a finish.
void Engine::addRows(const ListedRows &rows, int64_t segment) {
  size_t variant = rows.rowClass / 2;
  size_t kind = STEPC_FAULT("device-strided-as-dense") ? 0 : rows.rowClass % 2;
  const std::vector<ScheduleEntry> &schedule =
      package->getManifest().variants[variant].schedule;
  const std::vector<Kernel> &kernels =
      launcher.getModule().getKernels(variant).entries[kind];
  for (size_t e = 0; e < schedule.size(); ++e) {
    bool finish = schedule[e].finish;
    int64_t size = finish ? rows.numFinishes : rows.numChunks;
    if (schedule[e].segment != segment || size == 0)
      continue;
    const Mirror &list = (finish ? finishes : chunks)[rows.rowClass];
    int64_t end = size - STEPC_FAULT("device-last-entry-missing");
    launches.push_back(
        {&kernels[e],
         size,
         int64_t(rows.rowClass),
         6,
         {int64_t(tables[rows.rowClass].getAddress()), rows.rowWords,
          int64_t(list.getAddress()),
          workspace ? int64_t(workspace->getAddress()) : 0, 0, end}});
  }
}

void Engine::addKernels(const DeviceStep &step, int64_t segment) {
  for (const ListedRows &rows : step.rows)
    addRows(rows, segment);
}

void Engine::addAdvance(const DeviceStep &step) {
  auto entries = int64_t(step.scalars.size() / STEPC_SCALAR_ENTRY_WORDS);
  launches.push_back({&launcher.getModule().getAdvance(),
                      (entries + kBlockThreads - 1) / kBlockThreads,
                      -1,
                      3,
                      {int64_t(scalars.getAddress()), 0, entries}});
}

/// Enqueues the list. Once a kernel that writes tensors is on the stream, an
/// error leaves them updated in part.
void Engine::enqueue(const DescribeRows &describe) {
  bool written = false;
  try {
    guard([&] {
      for (Launch &launch : launches) {
        launcher.launch(*launch.kernel, launch.blocks, launch.arguments,
                        launch.numArguments, [&] {
                          return launch.rowClass < 0
                                     ? std::string()
                                     : describe(size_t(launch.rowClass));
                        });
        written |= launch.rowClass >= 0;
      }
    });
  } catch (...) {
    broken |= written && !STEPC_FAULT("device-half-a-step-goes-on");
    throw;
  }
}

void Engine::run(const DeviceStep &step, const DescribeRows &describe) {
  upload(step);
  launches.clear();
  for (int64_t s = 0; s < package->getManifest().getNumSegments(); ++s) {
    addScalars(step, s);
    addKernels(step, s);
  }
  if (!STEPC_FAULT("device-count-stays"))
    addAdvance(step);
  if (STEPC_FAULT("device-step-waits"))
    guard([&] { launcher.synchronize(); });
  enqueue(describe);
}

void Engine::runScalars(const DeviceStep &step) {
  upload(step);
  launches.clear();
  addScalars(step, 0);
  enqueue(DescribeRows());
}

void Engine::runKernels(const DeviceStep &step, const DescribeRows &describe) {
  upload(step);
  launches.clear();
  addKernels(step, 0);
  enqueue(describe);
}

void Engine::countKnown(size_t words) {
  std::vector<int64_t> &known = scalars.getKnown();
  for (size_t k = 0; k < words; k += STEPC_SCALAR_ENTRY_WORDS) {
    ++known[k + STEPC_SCALAR_ENTRY_COUNT];
    known[k + STEPC_SCALAR_ENTRY_FRESH] = 0;
  }
}

void Engine::readScalars(int64_t *words, size_t count) {
  guard([&] {
    launcher.copyOut(words, scalars.getAddress(), count * sizeof(int64_t));
  });
}

int64_t Engine::getBytes() const {
  size_t bytes = groups.getBytes() + scalars.getBytes() +
                 (scalarRows ? scalarRows->getSize() : 0) +
                 (workspace ? workspace->getSize() : 0);
  for (const std::vector<Mirror> *list : {&tables, &chunks, &finishes})
    for (const Mirror &mirror : *list)
      bytes += mirror.getBytes();
  return int64_t(bytes);
}
