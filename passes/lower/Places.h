//===- Places.h - where numbered things lie ---------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_PLACES_H
#define STEPC_PASSES_LOWER_PLACES_H

#include "passes/lower/TileRow.h"

namespace mlir::step {

/// Things that are numbered in row-major order of some extents, and lie a
/// stride apart along each. All values are words. Of extents 2 and 3 with
/// strides 10 and 1, number 4 lies at offset 11.
class Places {
public:
  struct Dim {
    Value extent, stride;
  };

  /// A single one, at offset 0.
  Places() = default;
  Places(Value count, Value stride) : dims{{count, stride}} {}

  void addOuter(Dim dim) { dims.insert(dims.begin(), dim); }

  /// From the outermost to the innermost.
  ArrayRef<Dim> getDims() const { return dims; }
  Value getCount(const Words &w) const;
  Value getOffset(const Words &w, Value number) const;

private:
  SmallVector<Dim> dims;
};

/// The partial results of a reduction, side by side in the row-major order of
/// the dims that the traversal went over: where those of each leaf are.
class PartialLayout {
public:
  PartialLayout(const Words &w, const TileRow &row, const ReductionDims &in);

  /// How many leaves there are along a dim, and how far apart.
  const Places::Dim &getLeaves(unsigned position) const;
  /// Of the dims, the first of all others. Dims that lie side by side are one.
  Places getPlaces(DimSet of) const;
  /// Of all dims: how many partial results there are.
  Value getCount() const { return count; }

private:
  const Words &w;
  /// From the outermost to the innermost.
  SmallVector<std::pair<unsigned, Places::Dim>> dims;
  Value count;
};

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_PLACES_H
