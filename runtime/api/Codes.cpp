//===- Codes.cpp - codes of states, for who loads and saves them --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stepc/codes.h"

#include "api/Structures.h"
#include "core/StateCodes.h"
#include "core/Status.h"

#include <algorithm>
#include <vector>

using namespace stepc;

/// The rows of a whole state of this shape, and how many elements it has.
static CodeRows requireRows(StepcStateFormat format, const int64_t *shape,
                            int32_t ndim, int64_t &elements) {
  if (!findCodeFormat(format))
    fail(STEPC_INVALID_ARGUMENT,
         "format %d is no format of codes, those are 1 to %d", int(format),
         int(kCodeFormats));
  if (ndim < 1 || ndim > kMaxRank)
    fail(STEPC_SHAPE_MISMATCH, "a state of codes has rank %d, not one to %d",
         int(ndim), kMaxRank);
  requireNotNull(shape, "shape");
  elements = countElements(shape, ndim);
  if (elements < 0)
    fail(STEPC_SHAPE_MISMATCH, "shape %s is impossible",
         describeShape(shape, ndim).c_str());
  CodeRows rows;
  std::vector<int64_t> extents(shape, shape + ndim);
  for (size_t i = getRowDim(extents); i < extents.size(); ++i)
    rows.columns *= std::max<int64_t>(extents[i], 1);
  return rows;
}

StepcStatus stepcGetStateFormat(int32_t format, StepcStateFormatInfo *out) {
  return guarded([&] {
    requireNotNull(out, "out");
    const CodeFormat &own = requireFormat(format, "a state");
    StepcStateFormatInfo info = {};
    info.name = own.name;
    info.dtype = getCodesType(own);
    info.codesPerElement = own.words.perWord;
    info.block = kCodeBlock;
    copyOut(info, sizeof(info), "StepcStateFormatInfo", out);
  });
}

StepcStatus stepcEncodeState(StepcStateFormat format, const int64_t *shape,
                             int32_t ndim, const float *values, void *outCodes,
                             float *outScales) {
  return guarded([&] {
    int64_t elements;
    CodeRows rows = requireRows(format, shape, ndim, elements);
    if (!elements)
      return;
    requireNotNull(values, "values");
    requireNotNull(outCodes, "outCodes");
    requireNotNull(outScales, "outScales");
    findCodeFormat(format)->encode(rows, 0, elements, values,
                                   static_cast<uint8_t *>(outCodes), outScales);
  });
}

StepcStatus stepcDecodeState(StepcStateFormat format, const int64_t *shape,
                             int32_t ndim, const void *codes,
                             const float *scales, float *outValues) {
  return guarded([&] {
    int64_t elements;
    CodeRows rows = requireRows(format, shape, ndim, elements);
    if (!elements)
      return;
    requireNotNull(codes, "codes");
    requireNotNull(scales, "scales");
    requireNotNull(outValues, "outValues");
    findCodeFormat(format)->decode(rows, 0, elements,
                                   static_cast<const uint8_t *>(codes), scales,
                                   outValues);
  });
}
