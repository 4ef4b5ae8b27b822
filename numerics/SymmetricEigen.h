//===- SymmetricEigen.h - eigenvectors of symmetric matrices --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What step.eigh and step.eigenvalues mean. The interpreter and the runtime
// have this one algorithm: eigenvectors of a cluster are free in a rotation, so
// no other gives its bits, and what it gives is judged by residuals
// (test/numerics/).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_SYMMETRICEIGEN_H
#define STEPC_NUMERICS_SYMMETRICEIGEN_H

#include <cstdint>

namespace stepc {

/// Sweeps of QL whose rotations wait to be applied together.
inline constexpr int64_t kEigenSweeps = 16;
/// How many doubles it works in for each row, besides the vectors: those
/// rotations, and the tridiagonal matrix.
inline constexpr int64_t kEigenWork = 2 * kEigenSweeps + 3;

/// Makes of a symmetric matrix, row-major, of which it reads what is on and
/// below the diagonal, its eigenvectors, in columns, that of the largest
/// eigenvalue first. They are orthonormal; of each the component of the largest
/// magnitude, of several the first, is positive. NaN everywhere where an
/// element is infinite or NaN, or where the iteration does not end.
///
/// It works in `vectors`, n * n doubles, and `work`, n * kEigenWork, whose
/// first n are the eigenvalues then, in the order of the vectors; NaN where
/// these are. The bits depend on the matrix alone.
void findEigenvectors(double *matrix, int64_t n, double *vectors, double *work);

} // namespace stepc

#endif // STEPC_NUMERICS_SYMMETRICEIGEN_H
