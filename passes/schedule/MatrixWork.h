//===- MatrixWork.h - what products and decompositions cost ----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_MATRIXWORK_H
#define STEPC_PASSES_SCHEDULE_MATRIXWORK_H

#include "dialect/Step.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mlir::step {

/// A number times the extents of dims, of which one may stand there twice:
/// -4/3 and r, r, r.
struct WorkTerm {
  int64_t number;
  int64_t divisor;
  SmallVector<StringAttr> dims;
};

/// What is computed or moved in one of `period` steps; with 0 in those alone
/// that create a state. Terms of equal dims are one.
class WorkSum {
public:
  explicit WorkSum(int64_t period = 1) : period(period) {}

  void add(int64_t number, int64_t divisor, ArrayRef<StringAttr> dims);
  void add(const WorkSum &other);

  int64_t getPeriod() const { return period; }
  ArrayRef<WorkTerm> getTerms() const { return terms; }
  /// "4 n r^2 - 4/3 r^3", with the dims in the order of `known`, then in that
  /// of their names.
  std::string format(ArrayRef<StringAttr> known) const;

private:
  int64_t period;
  std::vector<WorkTerm> terms;
};

/// The buffer or tensor that a product reads, and whether with rows for
/// columns: what is transposed is read where it came from.
std::pair<Value, bool> findMatrix(Value value);

/// Whether a rule's value has matrices that are symmetric to the bit. Products
/// add for (i, j) and (j, i) the same numbers in the same order, so X Xᵀ is,
/// and so is the square of what is; and what is computed element by element of
/// such matrices and of numbers of the whole tensor. So is what is declared so.
bool isSymmetric(Value value);

/// The FLOPs of an operation of a rule or of a program; none where it only
/// moves numbers. Dims are of any extents, those before the last two a batch.
///
///   product       2 n k m; half of it where the result is symmetric, and has
///                 its dims twice: n² k
///   eigenvectors  9 n³: tridiagonal form, then QL with vectors (G. Golub,
///                 C. Van Loan: Matrix Computations, 8.3)
///   columns' basis 4 n r² - 4/3 r³ of [n, r]: Householder's QR, 2 r² (n - r/3)
///                 (5.2.2 there), and as many for Q itself (E. Anderson et al.:
///                 LAPACK Users' Guide, xORGQR)
///
/// These are operations of the textbook, not of the routine at hand, so that
/// counts mean the same for whoever compares them.
WorkSum getFlops(Operation *op, int64_t period);

/// The same of a program's operation, which says its period.
WorkSum getFlops(Operation *op);

/// "product", "symmetric product", "eigenvectors" or "orthonormal basis"; ""
/// where it only moves numbers.
StringRef getWorkName(Operation *op);

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_MATRIXWORK_H
