//===- walk.h - what a Walk holds
//-------------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_EXT_WALK_H
#define STEPC_EXT_WALK_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <stdint.h>

#include "direct.h"
#include "stepc/stepc.h"
#include "watch.h"

typedef StepcStatus (*SetTensor)(StepcPlan *, int64_t, const DLTensor *);

// How many parameters ahead each step of a chain of pointers is prefetched: the
// Python object, the implementation, its storage and autograd data, the
// gradient's implementation, the gradient's storage.
enum {
  OBJECT_AHEAD = 24,
  IMPL_AHEAD = 16,
  PARTS_AHEAD = 10,
  GRAD_AHEAD = 5,
  GRAD_STORAGE_AHEAD = 2
};

typedef struct Entry {
  PyObject *param;      // borrowed: the Walk's `params` tuple owns it
  int64_t id;           // in the plan; -1 while the parameter is not bound
  int8_t plain;         // 1: the descriptor of torch.Tensor gives its gradient
  int8_t live;          // 1: had a gradient at the last refresh
  int8_t unbumped;      // 1: the last bump did not find its version counter
  const void *gradSlot; // found ahead of its turn
} Entry;

typedef struct Walk {
  PyObject_HEAD PyObject *lists; // tuple of the groups' "params" lists
  PyObject *params;              // tuple of all parameters, in order
  PyObject *api;                 // the capsule of the exchange table
  PyObject *grad;                // the descriptor
  PyObject *held; // list: gradients that nobody else may hold, for one step
  descrgetfunc getGrad;
  DLPackDLTensorFromPyObjectNoSync view;
  StepcPlan *plan;
  SetTensor setParam, setGrad;
  StepcDirect direct; // all zero: not to be used
  StepcWatch watch;   // state tensors
  int lookAhead; // all entries are read directly: no Python code runs between
  Py_ssize_t size;
  Py_ssize_t unbound; // how many have no id
  Entry *entries;     // and OBJECT_AHEAD copies of the last
} Walk;

// The parameter's `grad`, a new reference.
PyObject *stepcWalkGradient(Walk *self, const Entry *entry);

// Tells the plan where each parameter and gradient is now. `attention` gets a
// list of the indices that Python must look at, or NULL. -1: an exception.
int stepcWalkRefresh(Walk *self, PyObject **attention);

// Bumps the version counters of what had a gradient. -1: an exception.
int stepcWalkBump(Walk *self);

#endif // STEPC_EXT_WALK_H
