//===- BoundTensor.cpp - what the caller bound --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/BoundTensor.h"

using namespace stepc;

View stepc::makeView(const BoundTensor &tensor, const Variant &variant,
                     size_t operand, uintptr_t address) {
  static const int64_t single[] = {1};
  static const int64_t none[] = {0};
  const Operand &description = variant.operands[operand];
  int64_t itemSize = getByteSize(description.storage);
  if (description.role == Role::Position)
    return {address, 1, none, single, itemSize};
  if (description.reach == Reach::Single)
    return {address, int64_t(description.dims.size()), single, single,
            itemSize};
  size_t operands = variant.operands.size();
  if (description.reach == Reach::Reduced)
    return {address, tensor.reducedRank,
            tensor.getReducedExtents(operands, operand),
            tensor.getReducedStrides(operands, operand), itemSize};
  return {address, tensor.rank, tensor.getExtents(), tensor.getStrides(operand),
          itemSize};
}
