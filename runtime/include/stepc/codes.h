//===- codes.h - states as codes of 8 bits --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How a state is kept that is bound with a format (StepcBinding), and codes for
// who loads and saves states (docs/states.md).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CODES_H
#define STEPC_CODES_H

#include "stepc/stepc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a state is kept. */
typedef enum StepcStateFormat {
  STEPC_STATE_PLAIN = 0, /* as the manifest says */
  /* One that is f32 there: codes of 8 bits, of the state's shape, row-major,
   * and an f32 for each block of 64. docs/states.md */
  STEPC_STATE_Q8 = 1,     /* uint8 */
  STEPC_STATE_F8_E4M3 = 2 /* int8, the bits of float8 numbers */
} StepcStateFormat;

/* Makes codes and scales of floats, and floats of these, as steps do. `shape`:
 * of the whole state, whose elements lie in row-major order. For who loads and
 * saves states: kept as codes, whole arrays are what was encoded last
 * (docs/states.md). No memory is shared. */
STEPC_API StepcStatus stepcEncodeState(StepcStateFormat format,
                                       const int64_t *shape, int32_t ndim,
                                       const float *values, uint8_t *outCodes,
                                       float *outScales);
STEPC_API StepcStatus stepcDecodeState(StepcStateFormat format,
                                       const int64_t *shape, int32_t ndim,
                                       const uint8_t *codes,
                                       const float *scales, float *outValues);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_CODES_H */
