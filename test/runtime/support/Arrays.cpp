//===- Arrays.cpp - tensors of any layout ---------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Arrays.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace stepc_test;

int64_t stepc_test::getSize(Type type) {
  return type == Type::F32 ? 4 : type == Type::F64 ? 8 : 2;
}

DLDataType stepc_test::getDLType(Type type) {
  return {uint8_t(type == Type::BF16 ? kDLBfloat : kDLFloat),
          uint8_t(8 * getSize(type)), 1};
}

static uint16_t toBF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value))
    return 0x7fc0;
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double load(Type type, const char *from) {
  if (type == Type::F64) {
    double value;
    std::memcpy(&value, from, 8);
    return value;
  }
  uint32_t bits = 0;
  if (type == Type::F32)
    std::memcpy(&bits, from, 4);
  else
    std::memcpy(reinterpret_cast<char *>(&bits) + 2, from, 2);
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

static void store(Type type, char *to, double value) {
  float narrow = float(value);
  uint16_t half = toBF16(narrow);
  if (type == Type::F64)
    std::memcpy(to, &value, 8);
  else if (type == Type::F32)
    std::memcpy(to, &narrow, 4);
  else
    std::memcpy(to, &half, 2);
}

double stepc_test::roundTo(Type type, double value) {
  char bytes[8];
  store(type, bytes, value);
  return load(type, bytes);
}

Array::Array(Type type, std::vector<int64_t> theShape, Layout layout,
             int64_t misalignment)
    : type(type), shape(std::move(theShape)), strides(shape.size()) {
  int64_t rank = int64_t(shape.size());
  int64_t stride = layout == Layout::Sliced ? 2 : 1;
  for (int64_t k = 0; k < rank; ++k) {
    int64_t i = layout == Layout::ColumnMajor ? k : rank - 1 - k;
    strides[i] = layout == Layout::Expanded ? 0 : stride;
    stride *= std::max<int64_t>(shape[i], 1);
    if (layout == Layout::Padded && k == 0)
      stride += 3;
  }
  int64_t first = 0;
  if (layout == Layout::Backwards && rank > 0) {
    first = (shape[0] - 1) * strides[0];
    strides[0] = -strides[0];
  }
  int64_t bytes = (stride + 16) * getSize(type);
  memory.assign(size_t(bytes) + 128, char(0x7b));
  uintptr_t aligned =
      (reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t(63);
  tensor = {};
  tensor.data = reinterpret_cast<void *>(
      aligned +
      uintptr_t((misalignment + std::max<int64_t>(first, 0)) * getSize(type)));
  origin = static_cast<char *>(tensor.data);
  tensor.device = {kDLCPU, 0};
  tensor.ndim = int32_t(rank);
  tensor.dtype = getDLType(type);
  tensor.shape = shape.data();
  tensor.strides = layout == Layout::RowMajor ? nullptr : strides.data();
}

int64_t Array::size() const {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

char *Array::locate(int64_t i) const {
  int64_t offset = 0;
  for (size_t d = shape.size(); d-- > 0;) {
    offset += i % shape[d] * strides[d];
    i /= shape[d];
  }
  return origin + offset * getSize(type);
}

double Array::get(int64_t i) const { return load(type, locate(i)); }
void Array::set(int64_t i, double value) { store(type, locate(i), value); }

void Array::fill(uint32_t seed, bool special) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double specials[] = {inf,  -inf,   std::nan(""), 1e-40, -1e-42, 1e-45,
                             -0.0, 1e-310, 3e38,         1e-20, 0.0};
  for (int64_t i = 0; i < size(); ++i)
    set(i, special && random() % 4 == 0
               ? specials[random() % std::size(specials)]
               : normal(random));
}

std::string Array::bits() const {
  std::vector<double> values;
  for (int64_t i = 0; i < size(); ++i)
    values.push_back(get(i));
  return bitsOf(type, values);
}

std::string stepc_test::bitsOf(Type type, const std::vector<double> &values) {
  std::string bits;
  for (double value : values) {
    char bytes[8];
    store(type, bytes, std::isnan(value) ? std::nan("") : value);
    bits.append(bytes, size_t(getSize(type)));
  }
  return bits;
}

DLTensor stepc_test::makeView(void *data, Type type,
                              std::vector<int64_t> &shape,
                              std::vector<int64_t> *strides) {
  DLTensor view = {};
  view.data = data;
  view.device = {kDLCPU, 0};
  view.ndim = int32_t(shape.size());
  view.dtype = getDLType(type);
  view.shape = shape.data();
  view.strides = strides ? strides->data() : nullptr;
  return view;
}
