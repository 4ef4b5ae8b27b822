//===- Addends.cpp - gradients as they cross ranks, and their sums ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Addends.h"

#include <algorithm>
#include <cstring>

using namespace stepc;

// All loops are without branches, for the compiler to vectorize. The float mode
// is the caller's to set.

namespace {

template <typename To, typename From>
inline To bitCast(From from) {
  To to;
  static_assert(sizeof(to) == sizeof(from));
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

/// How an element is read and written; S is the type of sums.
struct AsF32 {
  using Memory = float;
  static float load(float x) { return x; }
  static float store(float x) { return x; }
};

struct AsF64 {
  using Memory = double;
  static double load(double x) { return x; }
  static double store(double x) { return x; }
};

struct AsBF16 {
  using Memory = uint16_t;
  static float load(uint16_t x) { return bitCast<float>(uint32_t(x) << 16); }
  /// To nearest, ties to even; any NaN to the quiet one.
  static uint16_t store(float x) {
    auto bits = bitCast<uint32_t>(x);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return uint16_t(x != x ? 0x7fc0u : rounded);
  }
};

struct AsF16 {
  using Memory = uint16_t;
  static float load(uint16_t x) {
    uint32_t magnitude = uint32_t(x & 0x7fff) << 13;
    // 2^112: from the bias of one type to that of the other, which makes
    // denormals numbers.
    float scaled = bitCast<float>(magnitude) * bitCast<float>(0x77800000u);
    uint32_t bits = bitCast<uint32_t>(scaled);
    bits = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : bits;
    return bitCast<float>(bits | uint32_t(x & 0x8000) << 16);
  }
  /// To nearest, ties to even, denormals kept; any NaN to the quiet one.
  static uint16_t store(float x) {
    auto bits = bitCast<uint32_t>(x);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    // Below 2^-14: the sum with 0.5 has the units of f16's denormals.
    constexpr uint32_t half = 126u << 23;
    uint32_t small =
        bitCast<uint32_t>(bitCast<float>(magnitude) + bitCast<float>(half)) -
        half;
    uint32_t normal =
        (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    uint32_t found = magnitude < 0x38800000u ? small : normal;
    found = magnitude >= 0x47800000u ? 0x7c00u : found;
    found = magnitude > 0x7f800000u ? 0x7e00u : found;
    return uint16_t(sign | found);
  }
};

/// A float that rounds to any narrower type as the double does: the nearest
/// with an odd last bit, where the double is none.
inline float roundToOdd(double x) {
  auto near = float(x);
  auto bits = bitCast<uint32_t>(near);
  double back = near;
  if (back == x || x != x)
    return near;
  bits -= (back < 0 ? back < x : back > x) ? 1 : 0;
  return bitCast<float>(bits | 1);
}

template <typename As>
inline typename As::Memory storeSum(float x) {
  return As::store(x);
}
template <typename As>
inline typename As::Memory storeSum(double x) {
  if constexpr (sizeof(typename As::Memory) == 8)
    return x;
  else if constexpr (sizeof(typename As::Memory) == 4)
    return float(x);
  else
    return As::store(roundToOdd(x));
}

template <typename Sum, typename From, typename To>
void convert(const void *source, void *target, int64_t count,
             double divisor) noexcept {
  auto *in = static_cast<const typename From::Memory *>(source);
  auto *__restrict out = static_cast<typename To::Memory *>(target);
  auto by = Sum(divisor);
  if (by == Sum(1)) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = storeSum<To>(Sum(From::load(in[i])));
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    out[i] = storeSum<To>(Sum(From::load(in[i])) / by);
}

/// Calls visit with how the storage is read and written.
template <typename Visit>
void withStorage(Storage storage, Visit &&visit) noexcept {
  switch (storage) {
  case Storage::F32:
    return visit(AsF32());
  case Storage::F64:
    return visit(AsF64());
  case Storage::BF16:
    return visit(AsBF16());
  case Storage::F16:
    return visit(AsF16());
  case Storage::I16:
  case Storage::Position:
    return;
  }
}

/// So many elements stay in the nearest cache while all rows are added.
constexpr int64_t kBlock = 2048;

template <typename Sum, typename Wire>
void add(const void *first, int64_t stride, int64_t numPieces, void *target,
         int64_t count, double divisor, bool adds) noexcept {
  auto *pieces = static_cast<const typename Wire::Memory *>(first);
  auto by = Sum(divisor);
  Sum block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    int64_t size = std::min(kBlock, count - begin);
    auto *own = static_cast<Sum *>(target) + begin;
    Sum *__restrict out = adds ? block : own;
    const typename Wire::Memory *in = pieces + begin;
    for (int64_t i = 0; i < size; ++i)
      out[i] = Sum(Wire::load(in[i]));
    for (int64_t piece = 1; piece < numPieces; ++piece) {
      in += stride;
      for (int64_t i = 0; i < size; ++i)
        out[i] += Sum(Wire::load(in[i]));
    }
    for (int64_t i = 0; by != Sum(1) && i < size; ++i)
      out[i] /= by;
    for (int64_t i = 0; adds && i < size; ++i)
      own[i] += block[i];
  }
}

} // namespace

void stepc::convertElements(const void *source, Storage from, void *target,
                            Storage to, int64_t count,
                            double divisor) noexcept {
  if (from == to && divisor == 1.0) {
    if (count > 0)
      std::memcpy(target, source, size_t(count * getByteSize(from)));
    return;
  }
  bool wide = getSumStorage(from) == Storage::F64;
  withStorage(from, [&](auto own) {
    withStorage(to, [&](auto other) {
      using From = decltype(own);
      using To = decltype(other);
      if (wide)
        convert<double, From, To>(source, target, count, divisor);
      else
        convert<float, From, To>(source, target, count, divisor);
    });
  });
}

void stepc::addElements(const void *first, int64_t stride, int64_t numPieces,
                        Storage wire, void *target, Storage sum, int64_t count,
                        double divisor, bool adds) noexcept {
  withStorage(wire, [&](auto own) {
    using Wire = decltype(own);
    if (sum == Storage::F64)
      add<double, Wire>(first, stride, numPieces, target, count, divisor, adds);
    else
      add<float, Wire>(first, stride, numPieces, target, count, divisor, adds);
  });
}
