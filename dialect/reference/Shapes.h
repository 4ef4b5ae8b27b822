//===- Shapes.h - extents of symbolic dims -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_SHAPES_H
#define STEPC_DIALECT_REFERENCE_SHAPES_H

#include "dialect/reference/Reduction.h"
#include "dialect/reference/Tensor.h"

#include "llvm/Support/Error.h"

#include <map>

namespace mlir::step::reference {

/// What the dims of a rule stand for, where its param has a certain shape.
class Shapes {
public:
  /// Errors say how the shape does not fit the dims of `type`.
  llvm::Error bind(Type type, ArrayRef<int64_t> shape);

  /// Says what a dim stands for that follows from others.
  void bindDim(StringRef name, int64_t extent) {
    extents[name.str()] = {extent};
  }

  /// The extents of a shaped type; empty for a scalar.
  Shape getShape(Type type) const;

  /// The same as reductions see it: one axis for each symbolic dim.
  SmallVector<Axis> getAxes(Type type) const;

  /// The number of elements that a dim stands for.
  int64_t getExtent(StringAttr dim) const;

private:
  llvm::Error bindNamed(ArrayRef<StringAttr> dims, ArrayRef<int64_t> extents);

  /// What one dim stands for.
  ArrayRef<int64_t> getExtents(StringAttr dim) const;

  std::map<std::string, Shape> extents;
  Shape paramShape;
  SmallVector<StringAttr> paramDims;
};

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_SHAPES_H
