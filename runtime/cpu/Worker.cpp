//===- Worker.cpp - what one worker does in a step ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/Worker.h"

#include "core/Fault.h"
#include "cpu/CodedRows.h"

#include <algorithm>
#include <unistd.h>

using namespace stepc;
using namespace stepc::cpu;

namespace {

/// Tells of an entry from here to the end of the scope, if anybody asked.
class Traced {
public:
  Traced(const StepTrace &trace, const EntryCode &entry)
      : trace(trace), name(entry.name) {
    tell(1);
  }
  Traced(const Traced &) = delete;
  Traced &operator=(const Traced &) = delete;
  ~Traced() { tell(0); }

private:
  void tell(int32_t begin) const {
    if (trace.function)
      trace.function(trace.user, name, begin);
  }

  const StepTrace &trace;
  const char *name;
};

const int64_t *getWords(const StepcCall &call, int64_t row) {
  return call.table + row * call.rowWords;
}

/// Whether the kernel before the entry has done it for the row, block of rows
/// by block of rows: each of its tiles is one.
bool wasDone(const EntryCode &entry, const StepcCall &call, int64_t row) {
  if (!entry.trailing)
    return false;
  const int64_t columns = getWords(call, row)[entry.columnsWord];
  if (STEPC_FAULT("engine-trailing-always-done"))
    return true;
  return columns > 0 && columns <= STEPC_TILE_COLUMNS;
}

/// Whether the kernel is left out for the row, or done already.
bool isLeftOut(const EntryCode &entry, const StepcCall &call, int64_t row) {
  if (entry.unlessSlot < 0)
    return wasDone(entry, call, row);
  auto *slots =
      reinterpret_cast<const double *>(getWords(call, row)[STEPC_TILE_SLOTS]);
  return slots[entry.unlessSlot] != 0.0;
}

/// The first item whose middle lies at `limit` or behind it.
int64_t findItem(const WorkPart &part, int64_t limit) {
  int64_t low = 0, high = part.getNumItems();
  while (low < high) {
    int64_t item = low + (high - low) / 2;
    int64_t before = part.getWeightBefore(item);
    int64_t middle = before + (part.getWeightBefore(item + 1) - before) / 2;
    if (middle < limit)
      low = item + 1;
    else
      high = item;
  }
  return low;
}

/// Where the share of worker `index` of `count` begins.
int64_t getShareBegin(int64_t size, int index, int count) {
  return int64_t(static_cast<__int128>(size) * index / count);
}

} // namespace

Worker::Worker(const StepWork &work, RoundRunner &rounds, Team &team, int index,
               int count)
    : work(work), rounds(rounds), team(team), index(index), count(count),
      workspace(work.workspace.workers +
                size_t(index) * work.workspace.workerStride),
      trace(index == 0 ? work.trace : StepTrace()) {}

void Worker::runKernel(const EntryCode &entry, const StepcCall &call,
                       int64_t begin, int64_t end) const {
  Traced traced(trace, entry);
  entry.kernel(&call, begin, end);
}

/// The kernel over the chunks of listed rows, which lie side by side.
void Worker::runRows(const EntryCode &entry, const StepcCall &call,
                     const ListedRow *begin, const ListedRow *end) const {
  while (begin != end) {
    const ListedRow *stop = end;
    if (entry.unlessSlot >= 0 || entry.trailing) {
      while (begin != end && isLeftOut(entry, call, begin->row))
        ++begin;
      stop = begin;
      while (stop != end && !isLeftOut(entry, call, stop->row))
        ++stop;
    }
    if (begin->firstChunk < stop->firstChunk && begin != stop)
      runKernel(entry, call, begin->firstChunk, stop->firstChunk);
    begin = stop;
  }
}

void Worker::run() {
  for (int64_t s = 0; s < work.numSegments; ++s) {
    const WorkSegment &segment = work.segments[s];
    for (int64_t i = segment.beginPart; i < segment.endPart; ++i) {
      const WorkPart &part = work.parts[i];
      for (int64_t k = 0; k < part.numLarge; ++k)
        if (!runLarge(part, part.rows + part.large[k]))
          return;
    }
    runLine(segment);
    if (s + 1 == work.numSegments)
      return;
    if (!endSegment(s))
      return;
  }
}

/// Runs the round after a segment, when all workers have come to its end.
/// False: the step ends here.
bool Worker::endSegment(int64_t segment) {
  auto runRound = [&] {
    if (!rounds.runRound(segment))
      team.stop();
  };
  if (!work.roundsWait)
    return team.meet(runRound) && !team.hasStopped();
  if (!team.meet([] {}))
    return false;
  if (index == 0)
    runRound();
  return team.meet([] {}, Team::Wait::Sleeping) && !team.hasStopped();
}

/// All workers on one row, each on its own share. What uses the same shared
/// memory has a meeting of the row in between, so each row has one.
bool Worker::runLarge(const WorkPart &part, const ListedRow *row) {
  StepcCall call = part.call;
  call.workspace = work.workspace.shared[nextShared];
  nextShared = 1 - nextShared;
  bool met = false;
  const CodedRow coded(part, row->row);
  if (!coded.any())
    return runEntries(part, row, call, met) && (met || team.meet([] {}));
  coded.decode(call.workspace, index, count);
  if (!team.meet([&] { coded.enter(call.workspace); }) ||
      !runEntries(part, row, call, met) || !team.meet([&] { coded.leave(); }))
    return false;
  coded.encode(call.workspace, index, count);
  return true;
}

/// They meet wherever an entry needs all that came before; `met`: whether they
/// have.
bool Worker::runEntries(const WorkPart &part, const ListedRow *row,
                        const StepcCall &call, bool &met) {
  bool backwards = false, afterKernel = false;
  const bool early = STEPC_FAULT("engine-finish-before-all-chunks");
  for (int64_t e = 0; e < part.numEntries; ++e) {
    const EntryCode &entry = part.entries[e];
    if (wasDone(entry, call, row->row))
      continue;
    if (entry.finish) {
      if (early && index == 0)
        entry.finish(&call, row->row);
      if (!team.meet([&] {
            if (!early)
              entry.finish(&call, row->row);
          }))
        return false;
      afterKernel = false;
      met = true;
      continue;
    }
    const bool meets = afterKernel && entry.waits;
    if (meets && !team.meet([] {}))
      return false;
    met |= meets;
    if (early && index > 0)
      usleep(20000);
    runOwnChunks(entry, call, row, backwards);
    // What was touched last is still in the cache.
    backwards = !backwards && !STEPC_FAULT("control-no-zigzag");
    afterKernel = true;
  }
  return true;
}

void Worker::runOwnChunks(const EntryCode &entry, const StepcCall &call,
                          const ListedRow *row, bool backwards) {
  if (isLeftOut(entry, call, row->row))
    return;
  int64_t size = row[1].firstChunk - row->firstChunk;
  int64_t begin = row->firstChunk + getShareBegin(size, index, count);
  int64_t end = row->firstChunk + getShareBegin(size, index + 1, count);
  if (STEPC_FAULT("engine-worker-share-short") && index + 1 < count)
    --end;
  if (!backwards) {
    if (begin < end)
      runKernel(entry, call, begin, end);
    return;
  }
  if (STEPC_FAULT("engine-zigzag-skips-a-chunk"))
    ++begin;
  while (end-- > begin)
    runKernel(entry, call, end, end + 1);
}

void Worker::runLine(const WorkSegment &segment) {
  int64_t begin = getShareBegin(segment.weight, index, count);
  int64_t end = getShareBegin(segment.weight, index + 1, count);
  for (int64_t i = segment.beginPart; i < segment.endPart; ++i) {
    const WorkPart &part = work.parts[i];
    int64_t first = index == 0 ? 0 : findItem(part, begin);
    int64_t last =
        index + 1 == count ? part.getNumItems() : findItem(part, end);
    if (STEPC_FAULT("engine-line-gap") && index + 1 < count && last > first)
      --last;
    if (!part.whole)
      runFree(part, first, last);
    else
      for (int64_t k = first; k < last; ++k)
        runBatch(part, part.batches[k]);
  }
}

void Worker::runFree(const WorkPart &part, int64_t begin, int64_t end) {
  if (begin >= end)
    return;
  StepcCall call = part.call;
  call.workspace = workspace;
  const EntryCode &entry = part.entries[0];
  if (part.rowCodes) {
    runCodedChunks(part, call, begin, end);
    return;
  }
  if (entry.unlessSlot < 0) {
    runKernel(entry, call, begin, end);
    return;
  }
  for (int64_t i = begin; i < end; ++i)
    if (!isLeftOut(entry, call, call.chunks[i].row))
      runKernel(entry, call, i, i + 1);
}

/// Chunks of rows without codes that lie side by side go together.
void Worker::runCodedChunks(const WorkPart &part, const StepcCall &call,
                            int64_t begin, int64_t end) {
  const EntryCode &entry = part.entries[0];
  auto isPlain = [&](int64_t chunk) {
    return part.rowCodes[call.chunks[chunk].row].count == 0;
  };
  while (begin < end) {
    int64_t next = begin;
    while (next < end && isPlain(next))
      ++next;
    if (begin < next)
      runKernel(entry, call, begin, next);
    for (; next < end && !isPlain(next); ++next) {
      Traced traced(trace, entry);
      CodedRow(part, call.chunks[next].row).runChunk(entry.kernel, call, next);
    }
    begin = next;
  }
}

void Worker::runBatch(const WorkPart &part, const Batch &batch) {
  StepcCall call = part.call;
  call.workspace = workspace;
  const ListedRow *begin = part.rows + batch.beginRow;
  const ListedRow *end = part.rows + batch.endRow;
  for (const ListedRow *row = begin; row != end; ++row) {
    const CodedRow coded(part, row->row);
    coded.decode(workspace, 0, 1);
    coded.enter(workspace);
  }
  for (int64_t e = 0; e < part.numEntries; ++e) {
    const EntryCode &entry = part.entries[e];
    const ListedRow *stop =
        STEPC_FAULT("engine-batch-finishes-one-less") && end - begin > 1
            ? end - 1
            : end;
    if (entry.kernel) {
      runRows(entry, call, begin, end);
      continue;
    }
    Traced traced(trace, entry);
    for (const ListedRow *row = begin; row != stop; ++row)
      if (!wasDone(entry, call, row->row))
        entry.finish(&call, row->row);
  }
  for (const ListedRow *row = begin; row != end; ++row) {
    const CodedRow coded(part, row->row);
    coded.leave();
    coded.encode(workspace, 0, 1);
  }
}
