//===- StateCodes.h - states that are kept as codes ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A state of f32 may be kept as codes of a few bits with a scale for each block
// of 64, in one of several formats (numerics/Codes.h, docs/states.md).
// Definitions and kernels know nothing of it: an engine decodes what a kernel
// works on into scratch memory, has the kernel work there, and encodes what it
// has written.
//
// Blocks lie along rows of the whole tensor: its last dim, or as many of its
// last dims, but never the first, as have 64 elements. So codes do not depend
// on how ranks share the tensor: of [512, 512, 3, 3] a row has 512 * 3 * 3
// elements, and 72 blocks. Where parts begin or end inside of a block, those
// who share it have its scale each, and encode it together
// (core/SharedBlocks.h).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_STATECODES_H
#define STEPC_CORE_STATECODES_H

#include "core/BoundTensor.h"
#include "core/SharedBlocks.h"

#include "numerics/Codes.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stepc {

/// Of how many elements a tensor whose states are encoded has at least, where
/// nobody says another number.
inline constexpr int64_t kLeastCoded = 4096;
/// And its rows: a scale for fewer would take more than it saves.
inline constexpr int64_t kLeastCodedRow = 32;

/// The first of the last dims that are a row.
size_t getRowDim(const std::vector<int64_t> &shape);

/// Whether states of this shape, of the whole tensor, are worth it, where those
/// of `least` elements are.
bool canEncode(const std::vector<int64_t> &shape, int64_t least);

/// The shape of the scales beside a state of this shape: as many dims as come
/// before a row, and the row's blocks.
std::vector<int64_t> getScaleShape(const std::vector<int64_t> &shape,
                                   size_t rowDim);
/// And of the codes: the state's, or where one word has several the dims before
/// a row and the row's words.
std::vector<int64_t> getCodeShape(const CodeWords &words,
                                  const std::vector<int64_t> &shape,
                                  size_t rowDim);

/// A state that is kept so.
struct StateCodes {
  /// Of the variant.
  int32_t operand = 0;
  /// Whether it is f32 from the first segment of a step that has to do with it
  /// to the last, in memory of its own: where one writes it, and a later one
  /// reads what was written.
  bool kept = false;
  const CodeFormat *format = nullptr;
  CodeRows rows;
  int64_t elements = 0;
  /// Of the tensor of codes, an element of which may be several.
  int64_t numWords = 0;
  int64_t numScales = 0;
  std::vector<int64_t> codeShape, codeStrides;
  std::vector<int64_t> scaleShape;
  uintptr_t codes = 0;
  uintptr_t scales = 0;
  /// Where it is f32: an address where it is kept, else the offset in the
  /// workspace of who works on the tensor.
  uintptr_t scratch = 0;
  /// What is encoded at the end of a step.
  SharedBlocks shared;

  View getCodesView() const;
  View getScalesView() const;
  int64_t getCodeBytes() const { return numWords * format->words.getBytes(); }
  int64_t getScaleBytes() const { return numScales * int64_t(sizeof(float)); }
  /// The bytes of so many elements.
  static int64_t getScratchBytes(int64_t elements);
  /// Makes all of them, which are zeros, what encodes a number.
  void fill(double value) const;
  /// Makes f32 of elements [begin, end), and codes. Of blocks that other ranks
  /// have parts of it notes what is to be encoded.
  void decode(int64_t begin, int64_t end, float *values) const;
  void encode(int64_t begin, int64_t end, const float *values) const;
  /// Encodes what was noted in rows [first, last), and forgets it. False where
  /// this rank has noted a part of a block and no other has, or the other way
  /// round.
  bool encodeShared(int64_t first, int64_t last) const noexcept;
  /// Where the share of one of `count` workers begins, at a block.
  int64_t getShareBegin(int index, int count) const;
  /// How many elements a chunk of at most `most` has, or of a row where no
  /// smaller ones begin with blocks.
  int64_t getChunk(int64_t most) const;
  /// What a kernel takes at a time at most, with so many states of codes.
  static int64_t getMostOfWindow(int64_t numStates);
  /// And of elements [first, last): a window ends where a block does.
  static int64_t getWindow(const StateCodes *begin, const StateCodes *end,
                           int64_t first, int64_t last);

private:
  void encodeInRow(int64_t row, int64_t first, int64_t last,
                   const float *values) const;
};

/// Those of one tensor.
struct StateCodesRange {
  const StateCodes *first;
  const StateCodes *last;

  const StateCodes *begin() const { return first; }
  const StateCodes *end() const { return last; }
};

/// Where the blocks of a state lie in a rank's part of it, and how many codes
/// there are in `codes.format`, which is set.
class BlockCut {
public:
  /// Of a whole state of this shape; messages call it `name`.
  BlockCut(std::vector<int64_t> shape, std::string name);

  /// Of elements [begin, end) of the whole in row-major order. Refuses a range
  /// that cuts a block.
  void setRange(int64_t begin, int64_t end, StateCodes &codes) const;
  /// Of a part of these extents, which begins at `start` in each dim; that is
  /// empty where nobody said so. `dimAxes`: over which axes dims are shared.
  /// Refuses one whose rows are no ranges of the whole's, and one that cuts a
  /// block where equal shares do not, as others may not know of it.
  void setBox(const std::vector<int64_t> &part,
              const std::vector<int64_t> &start,
              const std::vector<uint64_t> &dimAxes, const Mesh &mesh,
              StateCodes &codes) const;
  /// The scales of a part of these extents, whose first element has this index
  /// in the whole.
  std::vector<int64_t> getScalesOf(const std::vector<int64_t> &part,
                                   int64_t index) const;

private:
  [[noreturn]] void refuse(const std::string &words) const;
  void require(int64_t begin, int64_t end) const;
  void requireRanges(const std::vector<int64_t> &part,
                     const std::vector<int64_t> &start) const;
  void setShared(int64_t begin, int64_t end, StateCodes &codes) const;

  std::vector<int64_t> whole;
  std::string name;
  size_t dim;
  int64_t columns = 1;
};

/// What a binding says of how its states are kept, or null.
const int32_t *getFormats(const StepcBinding &binding);

/// The elements of a row, along which blocks lie, of a whole tensor with states
/// that are codes; 0: it has none.
int64_t countCodedColumns(const StepcBinding &binding,
                          const std::vector<int64_t> &shape);

/// The format of the number, or a failure that calls what has it `words`.
const CodeFormat &requireFormat(int32_t number, const std::string &words);

/// The type of a tensor of codes.
DLDataType getCodesType(const CodeFormat &format);

/// Refuses a tensor that is none of codes of the format.
void requireCodes(const DLTensor &tensor, int32_t format, DLDevice place,
                  const OperandName &name);

} // namespace stepc

#endif // STEPC_CORE_STATECODES_H
