//===- Masters.h - the f32 behind a parameter stored as bf16 ----*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_MASTERS_H
#define STEPC_DIALECT_REFERENCE_MASTERS_H

#include "dialect/reference/Tensor.h"

#include "llvm/ADT/StringRef.h"

#include <optional>

namespace mlir::step::reference {

/// How the f32 of a parameter stored as bf16 or f16 is kept: as a state, or as
/// the bits that a bf16 lacks.
enum class Master { None, F32, Remainder };

/// "f32" or "remainder"; none for any other word.
std::optional<Master> parseMaster(llvm::StringRef name);
/// What parseMaster reads; empty for none.
llvm::StringRef getName(Master master);
/// The state that it is kept in.
llvm::StringRef getStateName(Master master);
Format getStateFormat(Master master);

/// What a parameter of this storage, BF16 or F16, has of an f32: the nearest. A
/// tie goes away from zero in BF16, for which remainders ask, to even in F16.
double roundToParam(Format param, double value);

/// The bf16 nearest to an f32; a tie goes away from zero.
double getUpperHalf(double value);
/// The bits of an f32 less those of its upper half; 0 for NaN.
double getLowerHalf(double value);
/// The f32 of these halves; `upper` where no f32 has them.
double joinHalves(double upper, double lower);

/// The f32 before a step of a param of this storage. `fresh`: the state is new.
Tensor getMaster(Master master, Format storage, const Tensor &param,
                 const Tensor &state, bool fresh);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_MASTERS_H
