//===- ExecutorLaunches.cpp - the launches of a step ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda/Executor.h"

#include "core/Fault.h"
#include "core/Status.h"

using namespace stepc;
using namespace stepc::cuda;

int64_t Executor::getState(int64_t word) const {
  return int64_t(state->getAddress()) + word * int64_t(sizeof(int64_t));
}

/// The address of the word that a launch looks at; `always`: it is done in a
/// step that is skipped, too, but not for a graph that relies on what is gone.
int64_t Executor::getSkip(bool always) const {
  if (!gated || STEPC_FAULT("device-skip-ignored"))
    return getState(STEPC_STATE_NEVER);
  return getState(always ? STEPC_STATE_STALE_NOW : STEPC_STATE_SKIPPED);
}

void Executor::clearLaunches() {
  launches.clear();
  if (placed)
    placed->begin();
}

void Executor::beginLaunches(bool graph) {
  clearLaunches();
  gated = graph || maySkip();
  if (!gated || begun)
    return;
  launches.push_back({&launcher.getModule().getBegin(),
                      1,
                      -1,
                      3,
                      {getState(0), version, int64_t(graph)}});
}

void Executor::addList(const Kernel &kernel, int64_t blocks, int64_t list,
                       int64_t begin, int64_t end, int64_t skip) {
  launches.push_back({&kernel, blocks, -1, 4, {list, begin, end, skip}});
}

static int64_t countThreadBlocks(int64_t entries) {
  return (entries + kBlockThreads - 1) / kBlockThreads;
}

/// A thread for each cohort of a variant.
void Executor::addScalars(const DeviceStep &step, int64_t segment) {
  for (const ScalarRange &range : step.ranges) {
    const Kernel &kernel =
        launcher.getModule().getKernels(range.variant).scalars[size_t(segment)];
    if (!kernel.function || range.begin == range.end)
      continue;
    addList(kernel, countThreadBlocks(range.end - range.begin),
            int64_t(scalars.getAddress()), range.begin, range.end, getSkip());
  }
}

/// A segment of a class: all of the lists at once, or where states are codes
/// window by window, with what is decoded before and encoded behind.
void Executor::addRows(const ListedRows &rows, int64_t segment) {
  if (rows.placed && placed->isUsed(rows.rowClass, segment))
    return addPlaced(rows, segment);
  if (!rows.coded || !rows.coded->any(segment)) {
    addWindow(rows, {0, 0, 0, rows.numChunks, 0, rows.numFinishes}, segment);
    return;
  }
  const std::vector<RowWindow> &windows = rows.coded->getWindows();
  for (size_t k = 0; k < windows.size(); ++k)
    addCodedWindow(rows, windows[k], segment, k);
}

/// What is decoded, the kernels, and what is encoded.
void Executor::addCodedWindow(const ListedRows &rows, const RowWindow &window,
                              int64_t segment, size_t number) {
  addCodes(rows, segment, number, /*encodes=*/false);
  addWindow(rows, window, segment);
  addCodes(rows, segment, number, /*encodes=*/true);
}

/// Window by window, each of which is brought before and taken back behind.
void Executor::addPlaced(const ListedRows &rows, int64_t segment) {
  const std::vector<RowWindow> &windows = placed->getWindows(rows.rowClass);
  for (size_t k = 0; k < windows.size(); ++k) {
    placed->add(rows.rowClass, k, segment);
    launches.push_back({nullptr, 0, -1, 0, {}, Between::Await});
    if (rows.coded)
      addCodedWindow(rows, windows[k], segment, k);
    else
      addWindow(rows, windows[k], segment);
    launches.push_back({nullptr, 0, -1, 0, {}, Between::Release});
  }
}

/// The entries of a segment over a part of the lists.
void Executor::addWindow(const ListedRows &rows, const RowWindow &window,
                         int64_t segment) {
  const std::vector<ScheduleEntry> &schedule =
      package->getManifest().variants[rows.rowClass / 2].schedule;
  bool writes = (rows.writes >> segment & 1) != 0;
  for (size_t e = 0; e < schedule.size(); ++e)
    if (schedule[e].segment == segment && schedule[e].isCalled())
      addEntry(rows, window, e, writes);
}

/// A block for each chunk, several in the tiles space; or one for each row
/// where it is a finish, as many as there are where it is spread.
void Executor::addEntry(const ListedRows &rows, const RowWindow &window,
                        size_t entry, bool writes) {
  size_t variant = rows.rowClass / 2;
  size_t kind = STEPC_FAULT("device-strided-as-dense") ? 0 : rows.rowClass % 2;
  const Variant &own = package->getManifest().variants[variant];
  const std::vector<FinishStage> &stages = own.schedule[entry].stages;
  bool finish = own.schedule[entry].kind == EntryKind::Finish;
  int64_t begin = finish ? window.beginFinish : window.beginChunk;
  int64_t end = finish ? window.endFinish : window.endChunk;
  if (begin == end)
    return;
  int64_t size = end - begin;
  end -= STEPC_FAULT("device-last-entry-missing");
  const Mirror &list = (finish ? finishes : chunks)[rows.rowClass];
  const std::vector<Kernel> &kernels =
      launcher.getModule().getKernels(variant).entries[kind][entry];
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (finish && stages[k] == FinishStage::Call) {
      launches.push_back(
          {nullptr, 0, int64_t(rows.rowClass), 0, {}, Between::Call});
      continue;
    }
    int64_t blocks = size;
    if (!finish && own.space == Space::Tiles)
      blocks *= STEPC_TILE_PARTS;
    if (finish && stages[k] == FinishStage::Spread)
      blocks = kernels[k].maxBlocks;
    launches.push_back(
        {&kernels[k],
         blocks,
         int64_t(rows.rowClass),
         7,
         {int64_t(tables[rows.rowClass].getAddress()), rows.call.rowWords,
          int64_t(list.getAddress()), getWorkspace(), begin, end, getSkip()},
         Between::Round,
         writes});
  }
}

/// A launch for each format. What is decoded changes nothing that a caller has.
void Executor::addCodes(const ListedRows &rows, int64_t segment, size_t window,
                        bool encodes) {
  const Module &module = launcher.getModule();
  for (int32_t format = 1; format <= kCodeFormats; ++format) {
    const CodesPass &pass =
        rows.coded->getPass(segment, window, encodes, format);
    if (pass.entries == 0)
      continue;
    int64_t list =
        int64_t(codes.getAddress()) + pass.first * int64_t(sizeof(int64_t));
    launches.push_back(
        {encodes ? &module.getEncode(format) : &module.getDecode(format),
         pass.tiles,
         encodes ? int64_t(rows.rowClass) : -1,
         4,
         {list, pass.entries, pass.tiles, getSkip()}});
  }
}

void Executor::addKernels(const DeviceStep &step, int64_t segment) {
  for (const ListedRows &rows : step.rows)
    addRows(rows, segment);
}

void Executor::addRound(int64_t round) {
  for (const RoundPart &part : roundList.getParts())
    if (part.round == round)
      addPart(part);
}

void Executor::addPart(const RoundPart &part) {
  const Module &module = launcher.getModule();
  int64_t list =
      int64_t(roundWords.getAddress()) + part.offset * int64_t(sizeof(int64_t));
  int64_t entries = part.entries, skip = getSkip(part.always);
  auto numRounds = int64_t(package->getManifest().rounds.size());
  switch (part.kind) {
  case RoundPart::Kind::Copy:
    return addList(module.getCopy(), countThreadBlocks(entries), list, 0,
                   entries, skip);
  case RoundPart::Kind::Order:
    return addList(module.getOrder(), countThreadBlocks(entries), list, 0,
                   entries, skip);
  case RoundPart::Kind::Unorder:
    return addList(module.getUnorder(), countThreadBlocks(entries), list, 0,
                   entries, skip);
  case RoundPart::Kind::Fill:
    return addList(module.getFill(), entries, list, 0, entries, skip);
  case RoundPart::Kind::Exchange:
    launches.push_back({nullptr, 0, -1, 1, {part.round}, Between::Round});
    return;
  case RoundPart::Kind::Sum:
  case RoundPart::Kind::Amax:
    return addList(module.getStatistic(part.kind == RoundPart::Kind::Amax),
                   entries, list, 0, entries, skip);
  case RoundPart::Kind::Call:
    return addList(module.getCall(size_t(part.round), part.call),
                   countThreadBlocks(entries), list, 0, entries, skip);
  case RoundPart::Kind::Decide:
    launches.push_back({&module.getDecide(),
                        1,
                        -1,
                        6,
                        {list, 0, entries, getState(0), part.round,
                         numRounds - 1 - part.round}});
    return;
  }
}

/// What begins and ends the check of a carried scalar.
void Executor::addCarried(const DeviceStep &step, const Kernel &kernel) {
  auto entries = int64_t(step.carried.size() / STEPC_CARRIED_ENTRY_WORDS);
  if (entries == 0)
    return;
  launches.push_back(
      {&kernel,
       1,
       -1,
       4,
       {int64_t(carried.getAddress()), entries, getState(0), getSkip()}});
}

void Executor::addAdvance(const DeviceStep &step) {
  auto entries = int64_t(step.scalars.size() / STEPC_SCALAR_ENTRY_WORDS);
  addList(launcher.getModule().getAdvance(), countThreadBlocks(entries),
          int64_t(scalars.getAddress()), 0, entries,
          STEPC_FAULT("device-count-on-skip") ? getState(STEPC_STATE_NEVER)
                                              : getSkip());
}

void Executor::enqueueBetween(const Launch &launch,
                              const DescribeRows &describe) {
  switch (launch.between) {
  case Between::Round:
    return enqueueRound(launch.arguments[0]);
  case Between::Await:
    return placed->await([this] { return isSkipped(); });
  case Between::Release:
    return placed->release(launcher);
  case Between::Call:
    device->require(device->getDriver().cuLaunchHostFunc(
                        launcher.getStream(), HostCalls::run,
                        calls.getArgument(size_t(launch.rowClass))),
                    "cuLaunchHostFunc", describe(size_t(launch.rowClass)));
    return;
  }
}

/// Whether a round has decided so: waits for it.
bool Executor::isSkipped() {
  int64_t word = 0;
  if (gated)
    launcher.copyOut(&word, CUdeviceptr(getState(STEPC_STATE_SKIPPED)),
                     sizeof(word));
  return word != 0;
}

void Executor::enqueueAll(const DescribeRows &describe, bool &written) {
  bool changed = false;
  for (size_t k = 0; k < launches.size(); ++k) {
    Launch &launch = launches[k];
    if (!launch.kernel) {
      try {
        enqueueBetween(launch, describe);
      } catch (const Error &error) {
        if (error.getStatus() != STEPC_STORE_ERROR)
          throw;
        written = changed;
        failPlaced(error, k + 1, changed);
      }
      continue;
    }
    launcher.launch(*launch.kernel, launch.blocks, launch.arguments,
                    launch.numArguments, [&] {
                      return launch.rowClass < 0
                                 ? std::string()
                                 : describe(size_t(launch.rowClass));
                    });
    written |= launch.rowClass >= 0;
    changed |= launch.writes;
  }
}

/// A store has failed before launch `next`. On several ranks this one goes
/// through the rounds that the others wait in, of whose results it makes
/// nothing.
void Executor::failPlaced(const Error &error, size_t next, bool changed) {
  bool crossed = false;
  for (size_t k = next; k < launches.size(); ++k) {
    if (launches[k].kernel || launches[k].between != Between::Round)
      continue;
    enqueueRound(launches[k].arguments[0]);
    crossed = true;
  }
  broken |= crossed;
  if (!changed && !crossed)
    throw error;
  fail(STEPC_STORE_ERROR, "%s; %s", error.what(),
       changed ? "some tensors were stepped before, and others were not"
               : "other ranks have gone on");
}

/// Enqueues the list. Once a kernel over rows is on the stream, an error leaves
/// tensors updated in part.
void Executor::enqueue(const DescribeRows &describe) {
  bool written = false;
  guard([&] {
    try {
      enqueueAll(describe, written);
    } catch (...) {
      broken |= written && !STEPC_FAULT("device-half-a-step-goes-on");
      if (placed)
        placed->abandon(launcher);
      throw;
    }
  });
}

/// The calls of a round, behind what writes what crosses.
void Executor::enqueueRound(int64_t round) {
  if (STEPC_FAULT("device-round-does-not-cross") ||
      exchange->enqueue(round, roundList.getCrossing(round),
                        launcher.getStream(), !capturing))
    return;
  fail(STEPC_COMMUNICATION_ERROR, "round %lld of '%s': %s",
       static_cast<long long>(round), package->getManifest().optimizer.c_str(),
       exchange->getMessage());
}

void Executor::run(DeviceStep &step, const DescribeRows &describe) {
  captured |= step.graph;
  capturing = step.graph;
  upload(step);
  beginLaunches(step.graph);
  int64_t segments = package->getManifest().getNumSegments();
  const Module &module = launcher.getModule();
  if (!STEPC_FAULT("device-carried-unchecked"))
    addCarried(step, module.getCheck());
  addRound(-1);
  for (int64_t s = 0; s < segments; ++s) {
    addScalars(step, s);
    addKernels(step, s);
    // After the last segment, what ends the step.
    if (hasRounds())
      addRound(s);
  }
  addCarried(step, module.getCompare());
  if (!STEPC_FAULT("device-count-stays"))
    addAdvance(step);
  if (STEPC_FAULT("device-step-waits"))
    guard([&] { launcher.synchronize(); });
  begun = false;
  enqueue(describe);
}

void Executor::runScalars(DeviceStep &step) {
  upload(step);
  clearLaunches();
  gated = false;
  addScalars(step, 0);
  enqueue(DescribeRows());
}

void Executor::runKernels(DeviceStep &step, const DescribeRows &describe) {
  upload(step);
  clearLaunches();
  gated = false;
  addKernels(step, 0);
  enqueue(describe);
}
