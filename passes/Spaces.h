//===- Spaces.h - which dims of the parameter a tensor has -------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SPACES_H
#define STEPC_PASSES_SPACES_H

#include "dialect/Step.h"

namespace mlir::step {

/// Positions of the dims that are neither leading ones (`...b`) nor 1.
SmallVector<unsigned> getNamedPositions(Type param);

/// What a traversal goes over: all dims of the param, or a vector's.
enum class Space { Tiles, Rows, Columns, Items };

/// How far a reduction goes.
enum class Level { Rows, Columns, Items, Tensor };

/// The space of the elements of a tensor whose dims are the param's or 1:
/// `Tiles` where it has all named dims of the param, `Items` where it has none,
/// else `Rows` or `Columns`, after the one of two that it has.
Space getSpaceOf(Type param, Type type);

/// What is left of a reduction whose result has the dims of `kept`; null for a
/// number.
Level getLevel(Type param, Type kept);

/// "rows", "columns", ...
StringRef stringifyLevel(Level level);

} // namespace mlir::step

#endif // STEPC_PASSES_SPACES_H
