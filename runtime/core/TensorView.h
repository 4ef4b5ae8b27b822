//===- TensorView.h - tensors as the caller describes them ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_TENSORVIEW_H
#define STEPC_CORE_TENSORVIEW_H

#include "core/Manifest.h"

#include "dlpack/dlpack.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace stepc {

/// Which tensor a message is about. Cheap: the words are put together only when
/// a call is refused.
struct OperandName {
  std::string_view tensor;
  Role role = Role::Param;
  std::string_view state;
  /// Of a state that is kept as codes.
  bool scales = false;

  /// "tensor 'w': gradient"
  std::string str() const;
};

/// "[2, 3]"
std::string describeShape(const int64_t *extents, int64_t rank);

/// Memory seen as an array of any rank. Strides are in elements; strides of
/// extents 1 mean nothing.
struct View {
  uintptr_t address = 0;
  int64_t rank = 0;
  const int64_t *extents = nullptr;
  const int64_t *strides = nullptr;
  int64_t itemSize = 1;
};

/// The bytes from the first to the one after the last that a view touches,
/// relative to its address.
struct ByteSpan {
  int64_t low = 0;
  int64_t high = 0;
};

bool isEmpty(const View &view);
ByteSpan getByteSpan(const View &view);

/// Whether the view's elements fill its byte span, each byte once.
bool isDense(const View &view);

/// Whether the tensor is on the device; there is one processor.
inline bool isAt(const DLTensor &tensor, DLDevice place) {
  return tensor.device.device_type == place.device_type &&
         (place.device_type == kDLCPU ||
          tensor.device.device_id == place.device_id);
}

/// Refuses a tensor on another device than a plan's.
void requirePlace(const DLTensor &tensor, DLDevice place,
                  const OperandName &name);

/// The storage type of a tensor on the device that a plan runs on. Refuses
/// other devices and types.
Storage requireStorage(const DLTensor &tensor, DLDevice place,
                       const OperandName &name);

/// Of a tensor; torch's is the same.
constexpr int kMaxRank = 64;

/// The number of elements of a shape, or -1 where it cannot be.
int64_t countElements(const int64_t *extents, int64_t rank);

/// The number of elements of a parameter. Refuses shapes that cannot be.
int64_t requireElements(const DLTensor &tensor, const OperandName &name);

/// Refuses another shape than the parameter's.
void requireShape(const DLTensor &tensor, const int64_t *extents, int64_t rank,
                  const OperandName &name);

/// Refuses a state that has not these extents, which follow from the
/// parameter's.
void requireStateShape(const DLTensor &tensor, const int64_t *extents,
                       int64_t rank, const std::string &paramShape,
                       const OperandName &name);

/// Sets `strides` to the tensor's (row-major when it names none) and returns
/// the address of its first element. Refuses memory that does not exist or is
/// not aligned to its elements, of `itemSize` bytes. `extents` are the
/// tensor's.
uintptr_t requireMemory(const DLTensor &tensor, const int64_t *extents,
                        int64_t itemSize, const OperandName &name,
                        int64_t *strides);

/// Refuses an operand of a flat range whose elements do not lie side by side.
void requireFlatDense(const View &view, const OperandName &name);

/// Whether the strides are those of an array without gaps, last dim innermost.
bool isRowMajor(const int64_t *extents, int64_t rank, const int64_t *strides);

/// Whether two lists of strides mean the same.
bool haveSameStrides(const int64_t *extents, int64_t rank, const int64_t *a,
                     const int64_t *b);

/// Sets the strides of an array without gaps, last dim innermost.
void setRowMajor(const int64_t *extents, int64_t rank, int64_t *strides);

/// The same with the dims in the order in which `like` has them in memory.
void setDenseLike(const int64_t *extents, int64_t rank, const int64_t *like,
                  int64_t *strides);

} // namespace stepc

#endif // STEPC_CORE_TENSORVIEW_H
