//===- TensorView.cpp - tensors as the caller describes them --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/TensorView.h"

#include "core/Status.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

using namespace stepc;

std::string OperandName::str() const {
  std::string text = "tensor " + std::string(tensor) + ": ";
  switch (role) {
  case Role::Param:
    return text + "parameter";
  case Role::Grad:
    return text + "gradient";
  case Role::State:
    return text + (scales ? "scales of state '" : "state '") +
           std::string(state) + "'";
  case Role::Position:
    return text + "position";
  }
  return text;
}

std::string stepc::describeShape(const int64_t *extents, int64_t rank) {
  std::string text = "[";
  for (int64_t i = 0; i < rank; ++i)
    text += (i ? ", " : "") + std::to_string(extents[i]);
  return text + "]";
}

bool stepc::isEmpty(const View &view) {
  return std::find(view.extents, view.extents + view.rank, 0) !=
         view.extents + view.rank;
}

ByteSpan stepc::getByteSpan(const View &view) {
  if (isEmpty(view))
    return {};
  ByteSpan span{0, view.itemSize};
  for (int64_t i = 0; i < view.rank; ++i) {
    if (view.extents[i] == 1)
      continue;
    int64_t reach = (view.extents[i] - 1) * view.strides[i] * view.itemSize;
    (reach < 0 ? span.low : span.high) += reach;
  }
  return span;
}

bool stepc::isDense(const View &view) {
  int64_t wide = 0;
  for (int64_t i = 0; i < view.rank; ++i)
    wide += view.extents[i] > 1;
  // From the innermost dim on: each stride is the size of all inside it.
  int64_t expected = 1;
  for (; wide > 0; --wide) {
    int64_t i = 0;
    while (i < view.rank &&
           (view.extents[i] <= 1 || view.strides[i] != expected))
      ++i;
    if (i == view.rank)
      return false;
    expected *= view.extents[i];
  }
  return true;
}

/// "the cpu", "CUDA device 0"
static std::string describe(DLDevice device) {
  if (device.device_type == kDLCPU)
    return "the cpu";
  if (device.device_type == kDLCUDA)
    return "CUDA device " + std::to_string(device.device_id);
  return "device type " + std::to_string(int(device.device_type));
}

void stepc::requirePlace(const DLTensor &tensor, DLDevice place,
                         const OperandName &name) {
  if (!isAt(tensor, place))
    fail(STEPC_DEVICE_MISMATCH, "%s is on %s, the plan runs on %s",
         name.str().c_str(), describe(tensor.device).c_str(),
         describe(place).c_str());
}

Storage stepc::requireStorage(const DLTensor &tensor, DLDevice place,
                              const OperandName &name) {
  requirePlace(tensor, place, name);
  Storage storage;
  if (!getStorage(tensor.dtype, storage))
    fail(STEPC_DTYPE_MISMATCH,
         "%s has dtype %s, known are f32, f64, bf16 and f16",
         name.str().c_str(), describe(tensor.dtype).c_str());
  return storage;
}

int64_t stepc::countElements(const int64_t *extents, int64_t rank) {
  // The product of the extents that are not 0 must be in range as well: it is
  // what strides are made of.
  int64_t elements = 1;
  bool empty = false;
  for (int64_t i = 0; i < rank; ++i) {
    empty |= extents[i] == 0;
    if (extents[i] < 0 ||
        __builtin_mul_overflow(elements, std::max<int64_t>(extents[i], 1),
                               &elements) ||
        elements > (int64_t(1) << 59))
      return -1;
  }
  return empty ? 0 : elements;
}

static void requireRank(const DLTensor &tensor, const OperandName &name) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape))
    fail(STEPC_INVALID_ARGUMENT, "%s has rank %d and %s shape",
         name.str().c_str(), int(tensor.ndim), tensor.shape ? "a" : "no");
  if (tensor.ndim > kMaxRank)
    fail(STEPC_SHAPE_MISMATCH, "%s has rank %d, the most is %d",
         name.str().c_str(), int(tensor.ndim), kMaxRank);
}

int64_t stepc::requireElements(const DLTensor &tensor,
                               const OperandName &name) {
  requireRank(tensor, name);
  int64_t elements = countElements(tensor.shape, tensor.ndim);
  if (elements < 0)
    fail(STEPC_SHAPE_MISMATCH, "%s has the impossible shape %s",
         name.str().c_str(), describeShape(tensor.shape, tensor.ndim).c_str());
  return elements;
}

static bool hasShape(const DLTensor &tensor, const int64_t *extents,
                     int64_t rank, const OperandName &name) {
  requireRank(tensor, name);
  return tensor.ndim == rank &&
         std::equal(tensor.shape, tensor.shape + rank, extents);
}

void stepc::requireShape(const DLTensor &tensor, const int64_t *extents,
                         int64_t rank, const OperandName &name) {
  if (hasShape(tensor, extents, rank, name))
    return;
  fail(STEPC_SHAPE_MISMATCH, "%s has shape %s, the bound parameter has %s",
       name.str().c_str(), describeShape(tensor.shape, tensor.ndim).c_str(),
       describeShape(extents, rank).c_str());
}

void stepc::requireStateShape(const DLTensor &tensor, const int64_t *extents,
                              int64_t rank, const std::string &paramShape,
                              const OperandName &name) {
  if (hasShape(tensor, extents, rank, name))
    return;
  fail(STEPC_SHAPE_MISMATCH,
       "%s has shape %s, it must have %s, since the bound parameter has %s",
       name.str().c_str(), describeShape(tensor.shape, tensor.ndim).c_str(),
       describeShape(extents, rank).c_str(), paramShape.c_str());
}

/// Whether the offsets of all elements from the first fit, and the addresses
/// do not wrap.
static bool isInAddressSpace(const View &view) {
  __int128 low = 0, high = view.itemSize;
  for (int64_t i = 0; i < view.rank; ++i) {
    if (view.extents[i] == 1)
      continue;
    __int128 reach = static_cast<__int128>(view.extents[i] - 1) *
                     view.strides[i] * view.itemSize;
    // Each factor is below 2^63, so a sum of a few may not overflow 128 bits;
    // beyond 2^60 nothing is an address anyhow.
    (reach < 0 ? low : high) += reach;
    if (low < -(static_cast<__int128>(1) << 60) ||
        high > (static_cast<__int128>(1) << 60))
      return false;
  }
  __int128 address = view.address;
  return address + low >= 0 &&
         address + high <= static_cast<__int128>(UINTPTR_MAX);
}

uintptr_t stepc::requireMemory(const DLTensor &tensor, const int64_t *extents,
                               int64_t itemSize, const OperandName &name,
                               int64_t *strides) {
  int64_t rank = tensor.ndim;
  if (tensor.strides)
    std::copy_n(tensor.strides, rank, strides);
  else
    setRowMajor(extents, rank, strides);
  View view{reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset, rank,
            extents, strides, itemSize};
  if (isEmpty(view))
    return view.address;
  if (!tensor.data)
    fail(STEPC_INVALID_ARGUMENT, "%s has no memory", name.str().c_str());
  if (view.address % uintptr_t(view.itemSize) != 0)
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s is at address 0x%llx, which is no multiple of its element size %d",
         name.str().c_str(), static_cast<unsigned long long>(view.address),
         int(view.itemSize));
  if (!isInAddressSpace(view))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s has strides %s, which lead out of the address space",
         name.str().c_str(), describeShape(strides, rank).c_str());
  return view.address;
}

bool stepc::isRowMajor(const int64_t *extents, int64_t rank,
                       const int64_t *strides) {
  // What has no element has no gaps.
  if (std::find(extents, extents + rank, 0) != extents + rank)
    return true;
  int64_t stride = 1;
  for (int64_t i = rank; i-- > 0;) {
    if (extents[i] != 1 && strides[i] != stride)
      return false;
    stride *= std::max<int64_t>(extents[i], 1);
  }
  return true;
}

/// Elements of a flat range lie side by side, so that kernels know each by its
/// place.
void stepc::requireFlatDense(const View &view, const OperandName &name) {
  if (isRowMajor(view.extents, view.rank, view.strides))
    return;
  fail(STEPC_LAYOUT_UNSUPPORTED,
       "%s has strides %s, that of a flat range must be dense",
       name.str().c_str(), describeShape(view.strides, view.rank).c_str());
}

bool stepc::haveSameStrides(const int64_t *extents, int64_t rank,
                            const int64_t *a, const int64_t *b) {
  for (int64_t i = 0; i < rank; ++i)
    if (a[i] != b[i] && extents[i] != 1)
      return false;
  return true;
}

void stepc::setRowMajor(const int64_t *extents, int64_t rank,
                        int64_t *strides) {
  int64_t stride = 1;
  for (int64_t i = rank; i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(extents[i], 1);
  }
}

void stepc::setDenseLike(const int64_t *extents, int64_t rank,
                         const int64_t *like, int64_t *strides) {
  std::vector<int64_t> order(rank);
  for (int64_t i = 0; i < rank; ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::llabs(like[a]) > std::llabs(like[b]);
  });
  int64_t stride = 1;
  for (int64_t i = rank; i-- > 0;) {
    strides[order[i]] = stride;
    stride *= std::max<int64_t>(extents[order[i]], 1);
  }
}
