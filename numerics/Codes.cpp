//===- Codes.cpp - floats as codes in blocks ------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "numerics/Codes.h"

#include "numerics/Float8.h"
#include "numerics/FourBits.h"
#include "numerics/Root4.h"

using namespace stepc;

static constexpr CodeFormat kFormats[kCodeFormats] = {
    {1, "q8", kRoot4Words, decodeRoot4, encodeRoot4},
    {2, "f8_e4m3", kFloat8Words, decodeFloat8, encodeFloat8},
    {3, "q4", kFourBitsWords, decodeFourBits, encodeFourBits},
};

const CodeFormat *stepc::findCodeFormat(int32_t number) {
  if (number < 1 || number > kCodeFormats)
    return nullptr;
  return &kFormats[number - 1];
}

int64_t CodeRows::count(int64_t index, int64_t size) const {
  int64_t inside = phase % size;
  int64_t ofRow = (inside + columns + size - 1) / size;
  int64_t place = first + index, column = place % columns;
  int64_t before = column ? (inside + column + size - 1) / size : 0;
  return place / columns * ofRow + before - first / size;
}
