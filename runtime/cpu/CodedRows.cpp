//===- CodedRows.cpp - rows whose states are codes ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/CodedRows.h"

#include "core/Fault.h"
#include "core/Memory.h"

#include <algorithm>

using namespace stepc;
using namespace stepc::cpu;

CodedRow::CodedRow(const WorkPart &part, int64_t row) : part(part), row(row) {
  RowCodes own = part.rowCodes ? part.rowCodes[row] : RowCodes();
  begin = part.codes + own.first;
  end = begin + own.count;
}

/// The table belongs to the plan, whose step this is.
int64_t *CodedRow::getWords() const {
  return const_cast<int64_t *>(part.call.table) + row * part.call.rowWords;
}

static float *getFloats(const StateCodes &state, char *workspace) {
  return reinterpret_cast<float *>(
      state.kept ? state.scratch
                 : reinterpret_cast<uintptr_t>(workspace) + state.scratch);
}

void CodedRow::enter(char *workspace) const {
  for (const StateCodes *state = begin; state != end; ++state)
    getWords()[part.operandsWord + state->operand] =
        reinterpret_cast<int64_t>(getFloats(*state, workspace));
}

void CodedRow::leave() const {
  for (const StateCodes *state = begin; state != end; ++state)
    getWords()[part.operandsWord + state->operand] = int64_t(state->codes);
}

void CodedRow::decode(char *workspace, int index, int count) const {
  for (const StateCodes *state = begin; state != end; ++state) {
    if (!isIn(part.reads, *state) || STEPC_FAULT("codes-not-read"))
      continue;
    int64_t first = state->getShareBegin(index, count);
    int64_t last = state->getShareBegin(index + 1, count);
    state->decode(first, last, getFloats(*state, workspace) + first);
  }
}

void CodedRow::encode(char *workspace, int index, int count) const {
  for (const StateCodes *state = begin; state != end; ++state) {
    if (!isIn(part.writes, *state) || STEPC_FAULT("codes-not-written"))
      continue;
    int64_t first = state->getShareBegin(index, count);
    int64_t last = state->getShareBegin(index + 1, count);
    state->encode(first, last, getFloats(*state, workspace) + first);
  }
}

/// The workspace has the copy of the row, then what is decoded.
void CodedRow::runChunk(StepcKernel kernel, const StepcCall &call,
                        int64_t chunk) const {
  const int64_t *words = getWords();
  auto *copy = reinterpret_cast<int64_t *>(call.workspace);
  int64_t size =
      part.fixedWords + words[STEPC_ROW_RANK] * (1 + part.rowOperands);
  std::copy_n(words, size, copy);
  StepcChunk window = call.chunks[chunk];
  StepcCall changed = call;
  changed.table = copy - row * call.rowWords;
  changed.chunks = &window;
  changed.workspace += roundUpToLine(size_t(size) * sizeof(int64_t));
  const int64_t last = window.start + window.length;
  for (; window.start < last; window.start += window.length) {
    window.length = StateCodes::getWindow(begin, this->end, window.start, last);
    runWindow(kernel, changed, copy + part.operandsWord);
  }
}

/// Elements of a chunk that stay in the first-level cache. A kernel adds the
/// elements before them to the address of an operand.
void CodedRow::runWindow(StepcKernel kernel, const StepcCall &call,
                         int64_t *operands) const {
  const StepcChunk &window = *call.chunks;
  const int64_t first = window.start, last = first + window.length;
  char *next = call.workspace;
  auto getValues = [&](const StateCodes &state) {
    if (state.kept)
      return getFloats(state, nullptr) + first;
    auto *values = reinterpret_cast<float *>(next);
    next += StateCodes::getScratchBytes(window.length);
    return values;
  };
  for (const StateCodes *state = begin; state != end; ++state) {
    float *values = getValues(*state);
    if (isIn(part.reads, *state) && !STEPC_FAULT("codes-window-not-read"))
      state->decode(first, last, values);
    operands[state->operand] = int64_t(reinterpret_cast<uintptr_t>(values) -
                                       uintptr_t(first) * sizeof(float));
  }
  kernel(&call, 0, 1);
  next = call.workspace;
  for (const StateCodes *state = begin; state != end; ++state) {
    const float *values = getValues(*state);
    if (isIn(part.writes, *state) && !STEPC_FAULT("codes-window-not-written"))
      state->encode(first, last, values);
  }
}
