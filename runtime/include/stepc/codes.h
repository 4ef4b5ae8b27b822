//===- codes.h - states as codes ------------------------------------------===//
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
  /* One that is f32 there: codes, row-major, and an f32 for each block of 64.
   * docs/states.md */
  STEPC_STATE_Q8 = 1,      /* uint8, of the state's shape */
  STEPC_STATE_F8_E4M3 = 2, /* int8, the bits of float8 numbers, likewise */
  STEPC_STATE_Q4 = 3       /* int32, eight codes of 4 bits in each */
} StepcStateFormat;

/* What codes of a format are. Of one with several codes in an element, the
 * first in its lowest bits, they have the dims before a row, and elements of a
 * row: as many as it takes, the rest of the last one is 0. */
typedef struct StepcStateFormatInfo {
  size_t structSize; /* that the caller knows */
  const char *name;  /* "q8" */
  DLDataType dtype;  /* of the codes */
  int32_t codesPerElement;
  int64_t block; /* floats with a scale in common */
} StepcStateFormatInfo;

/* STEPC_INVALID_ARGUMENT for a number that is no format of codes; they are 1
 * and those that follow. */
STEPC_API StepcStatus stepcGetStateFormat(int32_t format,
                                          StepcStateFormatInfo *out);

/* Makes codes and scales of floats, and floats of these, as steps do. `shape`:
 * of the whole state, whose elements lie in row-major order. For who loads and
 * saves states: kept as codes, whole arrays are what was encoded last
 * (docs/states.md). No memory is shared. */
STEPC_API StepcStatus stepcEncodeState(StepcStateFormat format,
                                       const int64_t *shape, int32_t ndim,
                                       const float *values, void *outCodes,
                                       float *outScales);
STEPC_API StepcStatus stepcDecodeState(StepcStateFormat format,
                                       const int64_t *shape, int32_t ndim,
                                       const void *codes, const float *scales,
                                       float *outValues);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_CODES_H */
