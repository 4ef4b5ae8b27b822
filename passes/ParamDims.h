//===- ParamDims.h - sets of a param's dims ---------------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PARAMDIMS_H
#define STEPC_PASSES_PARAMDIMS_H

#include "dialect/Step.h"

namespace mlir::step {

/// A set of dims, each by its position in a type: the param's, or where a
/// tensor has other dims than the param, its own. Of a param [...b, n, m],
/// [...b, 1, m] has the set {0, 2}.
class DimSet {
public:
  DimSet() = default;

  static DimSet of(unsigned position) { return DimSet(1u << position); }
  void insert(unsigned position) { bits |= 1u << position; }
  bool contains(unsigned position) const { return bits >> position & 1; }
  bool contains(DimSet other) const { return (other - *this).empty(); }
  bool empty() const { return bits == 0; }
  /// From the outermost to the innermost.
  SmallVector<unsigned> getPositions() const;
  /// Null of an empty set.
  std::optional<unsigned> getInnermost() const;

  DimSet operator-(DimSet other) const { return DimSet(bits & ~other.bits); }
  DimSet operator&(DimSet other) const { return DimSet(bits & other.bits); }
  bool operator==(DimSet other) const { return bits == other.bits; }
  bool operator!=(DimSet other) const { return bits != other.bits; }
  bool operator<(DimSet other) const { return bits < other.bits; }

private:
  explicit DimSet(uint32_t bits) : bits(bits) {}
  uint32_t bits = 0;
};

/// The dims of a rule's param as kernels see them. The innermost named dim is
/// the lane, whose elements are neighbours; the named dim before it is the row,
/// of which tiles have some; all others are outer dims, one item of which is a
/// matrix of rows:
///
///   [...b, n, m]     lane m, row n, outer {b}
///   [o, i, h, w]     lane w, row h, outer {o, i}
///   [...b, m]        lane m, no row, outer {b}
class ParamDims {
public:
  explicit ParamDims(Type param);

  unsigned size() const { return names.size(); }
  StringAttr getName(unsigned position) const { return names[position]; }
  /// How many dims are neither leading ones (`...b`) nor 1.
  unsigned getNumNamed() const { return named.size(); }

  unsigned getLane() const { return named.back(); }
  std::optional<unsigned> getRow() const;
  DimSet getOuter() const;

  DimSet getAll() const;
  /// All but the lane: of one of each row.
  DimSet getRows() const;
  /// Whether each dim of the type is the param's in that place, or 1. Of a
  /// param [n, m] that is so of [n, 1], and not of [n, n] or [m, n].
  bool covers(Type type) const;
  /// Of a tensor whose dims are the param's or 1, in the param's places; of
  /// another in its own. None of null, for a number.
  DimSet getSet(Type type) const { return getSet(type, type); }
  /// The same of a tensor whose dims are those of `over` or 1, in the places of
  /// `over`. A dim of the param that is 1 belongs to all sets in its places.
  DimSet getSet(Type type, Type over) const;
  /// Whether a tensor has all dims of the param, in their order.
  bool isFull(Type type) const;

private:
  ArrayRef<StringAttr> names;
  SmallVector<unsigned> named;
};

/// The dims of the program's param.
ParamDims getParamDims(ProgramOp program);
/// Those of the program that the operation is in.
ParamDims getParamDims(Operation *op);

/// Which partial results a traversal leaves of a reduction: the leaves of its
/// tree (docs/statistics.md).
enum class Leaves {
  Lanes,    // one for each 1024 elements along the innermost dim
  Columns,  // one for each 64 rows, in each column
  Elements, // each element
};

/// A reduction of a traversal of the dims `over` to the dims `kept`. The
/// traversal leaves
///
///   of [...b, n, m] to [...b, n, 1]    Lanes
///   of [...b, n, m] to [...b, 1, m]    Columns
///   of [o, i, h, w] to [1, i, 1, 1]    Lanes, of which h and o are reduced
///   of [o, i, h, w] to [1, i, h, w]    Elements, of which o is reduced
///
/// and only a traversal of all dims of the param leaves columns: others have a
/// lane and items.
struct ReductionDims {
  ReductionDims(const ParamDims &dims, Type over, Type kept);

  /// The dims of `over`, in whose places the sets are.
  ArrayRef<StringAttr> names;
  DimSet over, kept, reduced;
  /// Whether the traversal is one of all dims of the param.
  bool isKernel;
  /// The innermost dim of `over`, if it has one.
  std::optional<unsigned> lane;
  Leaves leaves;
  /// Whether outer dims are reduced, and others kept.
  bool reducesOuter;
};

} // namespace mlir::step

#endif // STEPC_PASSES_PARAMDIMS_H
