//===- Executor.cpp - memory of steps on a CUDA device --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/Executor.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <algorithm>
#include <optional>

using namespace stepc;
using namespace stepc::cuda;

static constexpr size_t kChunkWords = sizeof(StepcChunk) / sizeof(int64_t);

/// Before anything is loaded or allocated, which would spoil a capture.
static std::shared_ptr<const Device> openDevice(const StepcCudaConfig &config) {
  auto device = std::make_shared<const Device>(
      config.device, static_cast<CUcontext>(config.context));
  ContextScope scope(*device);
  if (isCapturing(*device, static_cast<CUstream>(config.stream)))
    fail(STEPC_WRONG_STATE,
         "stepcPlanSetCuda while the stream captures a graph");
  return device;
}

Executor::Executor(std::shared_ptr<const Package> ownPackage,
                   const StepcCudaConfig &config, int numThreads, bool &broken)
    : package(std::move(ownPackage)), device(openDevice(config)),
      launcher(device, getModule(package, device),
               static_cast<CUstream>(config.stream)),
      calls(2 * package->getManifest().variants.size(), numThreads),
      records(2 * package->getManifest().variants.size()),
      roundList(package->getManifest()), broken(broken) {
  const Manifest &manifest = package->getManifest();
  // A step begins and ends with two, besides.
  size_t most = 4 + roundList.countParts();
  for (const Variant &variant : manifest.variants) {
    most += variant.scalarFunctions.size() + 2 * variant.countLaunches();
    for (int kind = 0; kind < 2; ++kind) {
      tables.emplace_back("a table of tensors");
      chunks.emplace_back("a list of chunks");
      finishes.emplace_back("a list of rows");
    }
  }
  scratchBytes = countScratch();
  launches.reserve(most);
  numOwnLaunches = most;
  listedClasses.reserve(tables.size());
  state = std::make_unique<DeviceBlock>(
      allocate(STEPC_STATE_WORDS * sizeof(int64_t), "the state of steps"));
}

void Executor::waitForOthers() noexcept {
  if (!exchange && !handed)
    return;
  try {
    ContextScope scope(*device);
    CaptureScope others(*device);
    if (!launcher.isCapturing())
      launcher.synchronize();
  } catch (...) {
    // There is nobody to be told.
  }
}

void Executor::setStream(void *stream) {
  launcher.setStream(static_cast<CUstream>(stream));
}

void Executor::setExchange(Exchange *own) {
  exchange = own;
  launcher.setExchange(own);
}

bool Executor::isCapturing() {
  bool capturing = false;
  guard([&] { capturing = launcher.isCapturing(); });
  return capturing;
}

/// Keeps a block that is to be replaced where graphs may name it, which do
/// nothing from now on.
template <typename Block>
void Executor::retire(std::unique_ptr<Block> &block,
                      std::vector<std::unique_ptr<Block>> &kept) {
  if (!captured || !block)
    return;
  kept.reserve(kept.size() + 1);
  raiseVersion();
  if (!STEPC_FAULT("device-graph-memory-freed"))
    kept.push_back(std::move(block));
}

void Executor::reserve(Mirror &mirror, size_t words) {
  mirror.reserve(device, words, [&](std::unique_ptr<DeviceBlock> &block) {
    retire(block, retired);
  });
}

/// Contents are lost where memory is taken anew.
void Executor::reserve(std::unique_ptr<DeviceBlock> &block, size_t bytes,
                       const char *what) {
  if (bytes <= (block ? block->getSize() : 0))
    return;
  auto newBlock = std::make_unique<DeviceBlock>(device, bytes, what);
  retire(block, retired);
  block = std::move(newBlock);
}

void Executor::raiseVersion() {
  if (STEPC_FAULT("device-graph-version-stays"))
    return;
  launcher.set(CUdeviceptr(getState(STEPC_STATE_VERSION)), version + 1);
  ++version;
}

void Executor::reserveRows(size_t rowClass, int64_t tableWords,
                           int64_t numChunks, int64_t numFinishes) {
  ContextScope scope(*device);
  reserve(tables[rowClass], size_t(tableWords));
  reserve(chunks[rowClass], size_t(numChunks) * kChunkWords);
  reserve(finishes[rowClass], size_t(numFinishes) * kChunkWords);
}

/// Where products are spread, below it lies memory of each block.
void Executor::reserveWorkspace(size_t bytes) {
  ContextScope scope(*device);
  reserve(workspace, scratchBytes + bytes, "the workspace");
}

int64_t Executor::getWorkspace() const {
  return workspace ? int64_t(workspace->getAddress() + scratchBytes) : 0;
}

/// For as many blocks as the largest of these launches has.
size_t Executor::countScratch() const {
  const Manifest &manifest = package->getManifest();
  int32_t most = 0;
  for (size_t v = 0; v < manifest.variants.size(); ++v)
    for (size_t e = 0; e < manifest.variants[v].schedule.size(); ++e) {
      const ScheduleEntry &entry = manifest.variants[v].schedule[e];
      for (size_t k = 0; entry.products > 0 && k < entry.stages.size(); ++k)
        if (entry.stages[k] == FinishStage::Spread)
          most = std::max(
              most,
              launcher.getModule().getKernels(v).entries[0][e][k].maxBlocks);
    }
  return size_t(most) * STEPC_BLOCK_SCRATCH;
}

/// Zeros.
std::unique_ptr<PinnedBlock> Executor::takePinned(size_t size,
                                                  const char *what) {
  std::unique_ptr<PinnedBlock> block;
  guard([&] {
    block = std::make_unique<PinnedBlock>(device, size, what);
    launcher.clear(block->getAddress(), size);
    launcher.synchronize();
  });
  return block;
}

/// What is enqueued was waited for.
void Executor::replace(std::unique_ptr<PinnedBlock> &block,
                       std::unique_ptr<PinnedBlock> newBlock) {
  ContextScope scope(*device);
  retire(block, retiredPinned);
  block = std::move(newBlock);
}

bool Executor::reserveRecords(size_t rowClass, int64_t numRows) {
  size_t size = size_t(numRows) * STEPC_CALL_WORDS * sizeof(int64_t);
  std::unique_ptr<PinnedBlock> &block = records[rowClass];
  if (size <= (block ? block->getSize() : 0))
    return false;
  auto newBlock = takePinned(size + size / 2, "records of calls");
  numRows = int64_t(newBlock->getSize() / STEPC_CALL_WORDS / sizeof(int64_t));
  HostCalls::Records *made = calls.addRecords(newBlock->getAddress(), numRows);
  replace(block, std::move(newBlock));
  calls.setRecords(rowClass, made);
  return true;
}

/// What is handed over moves last: where something cannot be had, rows name
/// what there was.
bool Executor::reserveHanded(size_t bytes, size_t routineBytes,
                             size_t matrices) {
  calls.reserve(routineBytes, matrices);
  bool moves = bytes > (handed ? handed->getSize() : 0);
  if (moves)
    replace(handed, takePinned(bytes, "matrices that the host decomposes"));
  return moves;
}

void Executor::reserveCodes(size_t bytes, size_t words) {
  ContextScope scope(*device);
  reserve(codesScratch, bytes, "what codes stand for");
  reserve(codes, words);
}

void Executor::reserveCohorts(size_t cohorts, size_t slots) {
  ContextScope scope(*device);
  reserve(scalars, cohorts * STEPC_SCALAR_ENTRY_WORDS);
  size_t bytes = cohorts * slots * sizeof(double);
  if (bytes > (scalarRows ? scalarRows->getSize() : 0))
    reserve(scalarRows, bytes + bytes / 2, "scalars");
  scalarSlots = slots;
}

void Executor::reserveGroups(size_t words) {
  ContextScope scope(*device);
  reserve(groups, words);
}

void Executor::reserveCarried(size_t words) {
  ContextScope scope(*device);
  reserve(carried, words);
}

void Executor::reserveRounds(size_t tensors, size_t numGroups) {
  if (!hasRounds())
    return;
  ContextScope scope(*device);
  roundList.reserve(tensors, numGroups, exchange);
  reserve(values, numGroups * size_t(getLayout().words));
  reserve(roundWords, roundList.countWords(tensors, numGroups, exchange));
  if (exchange)
    reserve(crossing, exchange->countWords(numGroups) * sizeof(int64_t),
            "what crosses ranks");
  size_t bytes = roundList.countContributions(tensors) * sizeof(double);
  if (bytes > (scratch ? scratch->getSize() : 0))
    reserve(scratch, bytes + bytes / 2, "contributions");
}

DeviceBlock Executor::allocate(size_t size, const std::string &what) {
  std::optional<DeviceBlock> block;
  guard([&] {
    block.emplace(device, size, what);
    launcher.clear(block->getAddress(), size);
    launcher.synchronize();
  });
  return std::move(*block);
}

void Executor::write(CUdeviceptr to, const void *from, size_t size) {
  guard([&] { launcher.copyIn(to, from, size); });
}

bool Executor::hasMemory(uintptr_t address) const noexcept {
  int ordinal = -1;
  return device->getDriver().cuPointerGetAttribute(
             &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
             CUDA_SUCCESS &&
         ordinal == device->getOrdinal();
}

void Executor::requireMemory(uintptr_t address, const OperandName &name) const {
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

CUdeviceptr Executor::getScalars(int32_t cohort) const {
  return scalarRows->getAddress() +
         size_t(cohort) * scalarSlots * sizeof(double);
}

CUdeviceptr Executor::getValues(size_t group) const {
  return values.getAddress() +
         group * size_t(getLayout().words) * sizeof(int64_t);
}

bool Executor::hasScalars(const DeviceStep &step) const {
  return groups.has(step.groups.data(), step.groups.size()) &&
         values.has(step.values.data(), step.values.size()) &&
         scalars.has(step.scalars.data(), step.scalars.size());
}

void Executor::storeChunks(Mirror &list, const StepcChunk *own, int64_t size) {
  list.update(launcher, reinterpret_cast<const int64_t *>(own),
              size_t(size) * kChunkWords);
}

void Executor::storeLists(const DeviceStep &step) {
  listedClasses.clear();
  for (const ListedRows &rows : step.rows) {
    listedClasses.push_back(rows.rowClass);
    storeChunks(chunks[rows.rowClass], rows.call.chunks, rows.numChunks);
    storeChunks(finishes[rows.rowClass], rows.finishes, rows.numFinishes);
  }
  const std::vector<int64_t> &words = roundList.getWords();
  roundWords.update(launcher, words.data(), words.size());
  carried.update(launcher, step.carried.data(), step.carried.size());
  codes.update(launcher, step.codes.data(), step.codes.size());
}

/// Makes what is carried unknown to the next step, and to graphs from now on.
/// Where a step begins in parts its lists are not stored yet.
void Executor::forgetCarried(DeviceStep &step) {
  if (!step.forgets || step.graph)
    return;
  carried.update(launcher, step.carried.data(), step.carried.size());
  auto entries = int64_t(step.carried.size() / STEPC_CARRIED_ENTRY_WORDS);
  int64_t arguments[] = {int64_t(carried.getAddress()), 0, entries,
                         getState(STEPC_STATE_NEVER)};
  if (entries && !STEPC_FAULT("device-carried-kept"))
    launcher.launch(launcher.getModule().getForget(), entries, arguments, 4);
  step.forgets = false;
}

/// Whether the list of scalars becomes another one, apart from counts.
bool Executor::movesScalars(const DeviceStep &step) {
  const std::vector<int64_t> &known = scalars.getKnown();
  if (step.scalars.size() != scalars.getTold())
    return true;
  for (size_t k = 0; k < step.scalars.size(); ++k) {
    size_t word = k % STEPC_SCALAR_ENTRY_WORDS;
    if (word != STEPC_SCALAR_ENTRY_COUNT && word != STEPC_SCALAR_ENTRY_FRESH &&
        step.scalars[k] != known[k])
      return true;
  }
  return false;
}

bool Executor::movesLists(const DeviceStep &step) const {
  auto isSame = [](const Mirror &list, const StepcChunk *own, int64_t size) {
    return list.hasJust(reinterpret_cast<const int64_t *>(own),
                        size_t(size) * kChunkWords);
  };
  if (step.rows.size() != listedClasses.size())
    return true;
  for (size_t k = 0; k < step.rows.size(); ++k) {
    const ListedRows &rows = step.rows[k];
    if (rows.rowClass != listedClasses[k] ||
        !isSame(chunks[rows.rowClass], rows.call.chunks, rows.numChunks) ||
        !isSame(finishes[rows.rowClass], rows.finishes, rows.numFinishes))
      return true;
  }
  const std::vector<int64_t> &words = roundList.getWords();
  return !roundWords.hasJust(words.data(), words.size()) ||
         !carried.hasJust(step.carried.data(), step.carried.size()) ||
         !codes.hasJust(step.codes.data(), step.codes.size());
}

/// The list of rounds, anew where other tensors take part.
void Executor::makeRounds(DeviceStep &step) {
  if (!step.chunksChanged || !hasRounds())
    return;
  step.rounds.groups = int64_t(groups.getAddress());
  step.rounds.values = int64_t(values.getAddress());
  step.rounds.scratch = scratch ? int64_t(scratch->getAddress()) : 0;
  step.rounds.list = int64_t(roundWords.getAddress());
  step.rounds.exchange = exchange;
  step.rounds.crossing = crossing ? int64_t(crossing->getAddress()) : 0;
  roundList.make(step.rounds);
}

/// What is stored in a capture, the graph stores whenever it is launched: no
/// counts, so, and no lists, but the tables, of which gradients have moved.
void Executor::upload(DeviceStep &step) {
  makeRounds(step);
  guard([&] {
    if (!step.graph && captured &&
        (movesScalars(step) || (step.chunksChanged && movesLists(step))))
      raiseVersion();
    groups.update(launcher, step.groups.data(), step.groups.size());
    values.update(launcher, step.values.data(), step.values.size());
    scalars.update(launcher, step.scalars.data(), step.scalars.size());
    for (const ListedRows &rows : step.rows) {
      Mirror &table = tables[rows.rowClass];
      auto size = size_t(rows.tableWords);
      if (step.graph)
        table.capture(launcher, rows.call.table, size);
      else
        table.update(launcher, rows.call.table, size);
    }
    if (step.chunksChanged && (!step.rows.empty() || step.waitedFor)) {
      storeLists(step);
      step.chunksChanged = false;
    }
    forgetCarried(step);
  });
}

void Executor::countKnown(size_t words) {
  std::vector<int64_t> &known = scalars.getKnown();
  for (size_t k = 0; k < words; k += STEPC_SCALAR_ENTRY_WORDS) {
    ++known[k + STEPC_SCALAR_ENTRY_COUNT];
    known[k + STEPC_SCALAR_ENTRY_FRESH] = 0;
  }
}

void Executor::takeScalars(int64_t *words, size_t count) {
  guard([&] {
    launcher.copyOut(words, scalars.getAddress(), count * sizeof(int64_t));
  });
  std::copy_n(words, count, scalars.getKnown().begin());
}

void Executor::takeValues(int64_t *words, size_t count) {
  guard([&] {
    launcher.copyOut(words, values.getAddress(), count * sizeof(int64_t));
  });
  std::copy_n(words, count, values.getKnown().begin());
}

int64_t Executor::readWord(CUdeviceptr from) {
  int64_t word = 0;
  guard([&] { launcher.copyOut(&word, from, sizeof(word)); });
  return word;
}

void Executor::readState(int64_t *words) {
  guard([&] {
    launcher.copyOut(words, state->getAddress(),
                     STEPC_STATE_WORDS * sizeof(int64_t));
  });
}

int64_t Executor::getBytes() const {
  size_t bytes = groups.getBytes() + scalars.getBytes() + values.getBytes() +
                 roundWords.getBytes() + carried.getBytes() +
                 pieces.getBytes() + codes.getBytes();
  for (const std::unique_ptr<DeviceBlock> *block :
       {&scalarRows, &workspace, &codesScratch, &scratch, &crossing, &state})
    bytes += *block ? (*block)->getSize() : 0;
  for (const std::unique_ptr<DeviceBlock> &block : retired)
    bytes += block->getSize();
  for (const std::vector<Mirror> *list : {&tables, &chunks, &finishes})
    for (const Mirror &mirror : *list)
      bytes += mirror.getBytes();
  return int64_t(bytes);
}

int64_t Executor::getHostBytes() const {
  size_t bytes = size_t(calls.getBytes()) + (handed ? handed->getSize() : 0);
  for (const auto *blocks : {&records, &retiredPinned})
    for (const std::unique_ptr<PinnedBlock> &block : *blocks)
      bytes += block ? block->getSize() : 0;
  return int64_t(bytes);
}
