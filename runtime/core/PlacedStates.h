//===- PlacedStates.h - states that lie in a store ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A state that was bound with an address in the plan's store is brought into
// memory for those who work on it, and back behind them. Definitions, kernels
// and codes know nothing of it: an engine has them find the memory.
//
// Where kernels take elements in any order a tensor may be cut: into pieces
// that begin with a page in each of its states. With exp_avg of f32 and
// exp_avg_sq of bf16 these are the multiples of 2048 elements.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_PLACEDSTATES_H
#define STEPC_CORE_PLACEDSTATES_H

#include "core/StateCodes.h"

#include <cstdint>
#include <vector>

namespace stepc {

/// One array of a state.
struct PlacedState {
  /// Floats: the f32 of codes that stay so over rounds of a step.
  enum class Kind : uint8_t { Plain, Codes, Scales, Floats };

  Kind kind = Kind::Plain;
  /// Of the variant.
  int32_t operand = 0;
  /// Of one that is codes, or their scales, among those of the plan; of a
  /// tensor that is being bound, among its own.
  int32_t codes = -1;
  /// Bytes of one element of the array.
  int64_t itemSize = 1;
  /// Of all of it.
  int64_t bytes = 0;
  uintptr_t address = 0;

  /// How many bytes lie before element `index` of the state, where a piece
  /// begins.
  int64_t getOffset(int64_t index, const StateCodes *allCodes) const {
    if (kind == Kind::Codes)
      return allCodes[codes].rows.countBytes(allCodes[codes].format->words,
                                             index);
    if (kind == Kind::Scales)
      return allCodes[codes].rows.countBlocks(index) * int64_t(sizeof(float));
    return index * itemSize;
  }
};

/// What a segment has an array for: nothing, to be in a window, to be read into
/// it, and written from it.
struct StateMoves {
  bool any;
  bool in;
  bool out;
};

/// Of a segment with the operands that it reads and writes, has to do with and
/// changes (core/Model.h). What is f32 over rounds is decoded in the first
/// segment that has to do with it, and encoded in the last.
template <typename Segment>
StateMoves getMoves(const Segment &segment, const PlacedState &state) {
  auto has = [&](uint64_t operands) {
    return (operands >> state.operand & 1) != 0;
  };
  const bool decodes = has(segment.reads), encodes = has(segment.writes);
  switch (state.kind) {
  case PlacedState::Kind::Plain:
    break;
  case PlacedState::Kind::Codes:
  case PlacedState::Kind::Scales:
    return {decodes || encodes, decodes, encodes};
  case PlacedState::Kind::Floats:
    return {has(segment.uses), !decodes, !encodes};
  }
  return {has(segment.uses), true, has(segment.changes)};
}

/// Which elements pieces may begin at: multiples of the result and of
/// `unitsPerChunk`; 0: at none but the first.
int64_t getPieceCut(const std::vector<PlacedState> &states,
                    const std::vector<StateCodes> &codes,
                    int64_t unitsPerChunk);

} // namespace stepc

#endif // STEPC_CORE_PLACEDSTATES_H
