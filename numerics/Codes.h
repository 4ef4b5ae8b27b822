//===- Codes.h - floats as codes in blocks ----------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Formats in which states are kept (docs/states.md): a code of a few bits for
// each float, and an f32 scale for each block of kCodeBlock. A block may be
// shorter where a row ends. In all formats
//
//   - where no number is below 0, one that is not 0 never has the code of 0,
//   - where a block has an infinity or a NaN, codes are 0, the scale says
//     which, and all of the block is NaN,
//   - what was decoded is encoded to the same codes and scale,
//   - each operation is rounded to f32 as IEEE 754 says, in the order of the
//     code, so that the bits are the same on every processor.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_CODES_H
#define STEPC_NUMERICS_CODES_H

#include <cstdint>

namespace stepc {

inline constexpr int64_t kCodeBlock = 64;
/// How many formats there are: their numbers are 1 to it.
inline constexpr int32_t kCodeFormats = 3;

/// How codes lie in memory: `perWord` of them in an integer of so many bits,
/// the first in its lowest bits. Each row begins with a word of its own; what
/// the last one of a row has no element for is 0.
struct CodeWords {
  int32_t perWord;
  int32_t bits;
  /// Whether the integer's type has a sign. With the bits it tells formats
  /// apart where only the codes are there.
  bool isSigned;

  constexpr int64_t getBytes() const { return bits / 8; }
  /// The words of so many elements of a row, from the begin of a block on.
  constexpr int64_t count(int64_t elements) const {
    return (elements + perWord - 1) / perWord;
  }
};

/// Rows of `columns` elements, one behind the other, of which a part is
/// encoded; blocks begin anew with each row. The part begins at the begin of a
/// block, in column `first` of its first row. Or rows are parts themselves, of
/// which each begins behind `phase` elements of a block, and `first` is 0.
struct CodeRows {
  int64_t columns = 1;
  int64_t first = 0;
  int64_t phase = 0;

  /// Whether every kCodeBlock elements from the begin of a row are a block.
  bool isRegular() const { return columns % kCodeBlock == 0 && phase == 0; }

  /// How many blocks lie before element `index` of the part, where a block
  /// begins or the part ends.
  int64_t countBlocks(int64_t index) const { return count(index, kCodeBlock); }
  /// And words, or bytes of them.
  int64_t countWords(const CodeWords &words, int64_t index) const {
    return count(index, words.perWord);
  }
  int64_t countBytes(const CodeWords &words, int64_t index) const {
    return countWords(words, index) * words.getBytes();
  }

private:
  int64_t count(int64_t index, int64_t size) const;
};

/// How floats are encoded. Elements [begin, end) of a part begin and end where
/// blocks do: `codes` and `scales` are the part's, `values` those of the
/// elements alone.
struct CodeFormat {
  /// A StepcStateFormat (stepc/codes.h).
  int32_t number;
  /// As users call it.
  const char *name;
  CodeWords words;
  void (*decode)(const CodeRows &rows, int64_t begin, int64_t end,
                 const uint8_t *codes, const float *scales, float *values);
  void (*encode)(const CodeRows &rows, int64_t begin, int64_t end,
                 const float *values, uint8_t *codes, float *scales);
};

/// The format of the number, or null.
const CodeFormat *findCodeFormat(int32_t number);

} // namespace stepc

#endif // STEPC_NUMERICS_CODES_H
