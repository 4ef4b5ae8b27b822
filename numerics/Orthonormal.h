//===- Orthonormal.h - orthonormal bases of columns -------------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What step.qr means. The interpreter and the runtime have this one algorithm:
// where columns depend on each other no other gives its bits, and what it gives
// is judged by residuals (test/numerics/).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NUMERICS_ORTHONORMAL_H
#define STEPC_NUMERICS_ORTHONORMAL_H

#include <cstdint>

namespace stepc {

/// Reflections that are applied together.
inline constexpr int64_t kReflections = 32;
/// How many doubles it works in for each row: the reflections of one panel, and
/// for each column a row of a triangle and three numbers.
inline constexpr int64_t kOrthonormalWork = 2 * kReflections + 3;

/// Q of matrix = Q R, where R has no negative number on its diagonal: of
/// `rows` rows, row-major, and no more columns, in `basis`. Where a column
/// depends on those before it, that of Q is orthogonal to them. NaN everywhere
/// where an element is infinite or NaN, or where there are more columns.
///
/// It works in `matrix` and `work`, rows * kOrthonormalWork. The bits depend on
/// the matrix alone.
void makeOrthonormal(double *matrix, int64_t rows, int64_t columns,
                     double *basis, double *work);

} // namespace stepc

#endif // STEPC_NUMERICS_ORTHONORMAL_H
