//===- layout.h - how tensors lie on ranks --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Types alone: of the parts that ranks step, and of what comes to a step from
// ranks and goes back (docs/sharding.md).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_LAYOUT_H
#define STEPC_LAYOUT_H

#include "dlpack/dlpack.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a tensor lies on the mesh; it is whole over axes that are not named. No
 * axis is named twice. Rules are chosen by `shape`. */
typedef struct StepcLayout {
  size_t structSize; /* sizeof(StepcLayout) */
  int32_t ndim;
  int32_t flat;            /* 1: the rank has a range of the elements in
                              row-major order; param, grad and states of its
                              dims are dense tensors of one dim */
  const int64_t *shape;    /* of the whole tensor, ndim extents */
  const uint64_t *dimAxes; /* for each dim the axes that shard it; NULL: none;
                              with flat NULL */
  uint64_t flatAxes;       /* with flat: the axes that share the elements */
  int64_t begin;           /* with flat: the first element */
  uint64_t distinctAxes;   /* other coordinates of these hold other tensors */
  const int64_t *start;    /* for each dim where this rank's part begins in the
                              whole tensor; NULL: unknown, which variants that
                              round stochastically refuse of a part; with flat
                              NULL. Callers of an earlier version do not have
                              the field */
} StepcLayout;

/* How a parameter and its gradient lie before and behind a step, where that is
 * not as the layout says: the layout is that of the step and of the states. A
 * step brings the gradient to where the states are, as a sum over ranks where
 * it is one, and puts the parameter together again (docs/sharding.md). With
 * `wholeAxes` over 4 ranks and a flat layout over them it is ZeRO: with
 * `partialAxes` 0 stage 1, with the same axes stage 2. With `partialAxes` alone
 * it is data parallelism.
 *
 * Then param and grad (or gradDtype) are whole over `wholeAxes`, dense and
 * row-major, and states are those of this rank's part (stepcPlanGetPart), NULL
 * where another rank owns the tensor. The layout over `wholeAxes` is one of
 * these: flat, with flatAxes the same and begin -1: the runtime cuts buckets of
 *     tensors evenly, at multiples of 16 elements
 *   dims, where those of dim 0 have `wholeAxes`, shape is of the whole tensor
 *     and start is where the caller's tensor begins: rank r of W has the rows
 *     from r * ceil(n / W) on, as by torch.chunk
 *   with `owned` whole, or NULL */
typedef struct StepcEntry {
  size_t structSize;  /* sizeof(StepcEntry) */
  uint64_t wholeAxes; /* along these all ranks have the same parameter, and the
                         step cuts it, or one of them owns it */
  uint64_t partialAxes; /* along these each rank has an addend of the gradient;
                           all of wholeAxes or none are among them */
  double divisor;       /* of the sum, positive; 1: none */
  int32_t divideBefore; /* 1: each addend is divided, before it is rounded to
                           wireType; 0: their sum */
  int32_t owned;        /* 1: one rank along wholeAxes steps all of it, `owner`
                           or one that is chosen by cost: the dearest tensors
                           first, each to who has least */
  DLDataType wireType;  /* in which gradients cross ranks; bits 0: in theirs.
                           Sums are made in f32, of f64 in f64, in the order of
                           the ranks of the group */
  int64_t owner; /* with `owned`: 1 + the place along wholeAxes of the rank that
                    steps it; 0: stepcPlanBind chooses. Callers of an earlier
                    version do not have the field */
} StepcEntry;

#ifdef __cplusplus
}
#endif

#endif /* STEPC_LAYOUT_H */
