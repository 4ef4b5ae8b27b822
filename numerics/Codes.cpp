//===- Codes.cpp - floats as codes in blocks ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "numerics/Codes.h"

#include "numerics/Float8.h"
#include "numerics/Root4.h"

using namespace stepc;

static constexpr CodeFormat kFormats[] = {
    {1, false, decodeRoot4, encodeRoot4},
    {2, true, decodeFloat8, encodeFloat8},
};

const CodeFormat *stepc::findCodeFormat(int32_t number) {
  for (const CodeFormat &format : kFormats)
    if (format.number == number)
      return &format;
  return nullptr;
}

int64_t CodeRows::countBlocks(int64_t index) const {
  int64_t blocksOfRow = (columns + kCodeBlock - 1) / kCodeBlock;
  int64_t place = first + index;
  return place / columns * blocksOfRow +
         (place % columns + kCodeBlock - 1) / kCodeBlock - first / kCodeBlock;
}
