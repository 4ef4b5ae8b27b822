//===- walk.h - what a Walk holds -----------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_EXT_WALK_H
#define STEPC_EXT_WALK_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stdint.h>

#include "direct.h"
#include "stepc/stepc.h"
#include "watch.h"

typedef StepcStatus (*SetTensor)(StepcPlan *, int64_t, const DLTensor *);
typedef int32_t (*MoveGrad)(StepcPlan *, int64_t, const DLTensor *,
                            const DLTensor *);

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

// How many parameters a thread reads at a time: some entries of each block are
// not prefetched early enough.
enum { READ_BLOCK = 1024 };

typedef struct Entry {
  PyObject *param; // borrowed: the Walk's `params` tuple owns it
  int64_t id;      // in the plan; -1 while the parameter is not bound
  int8_t plain;    // 1: the descriptor of torch.Tensor gives its gradient
  int8_t live;     // 1: had a gradient at the last refresh
  int8_t told; // 1: the plan knows where the gradient is, all else is as it was
  int8_t unbumped; // 1: the last bump did not find its version counter
} Entry;

enum { NOT_READ = 2 };

// What a parameter and its gradient are now.
typedef struct Reading {
  DLTensor param, grad; // shapes and strides are torch's own
  int found; // 1, or 0: it has no gradient; -1: they cannot be described;
             // NOT_READ: that may run Python code
} Reading;

typedef struct Walk {
  PyObject_HEAD PyObject *lists; // tuple of the groups' "params" lists
  PyObject *params;              // tuple of all parameters, in order
  PyObject *api;                 // the capsule of the exchange table
  PyObject *grad;                // the descriptor
  // Gradients for one step, those that nobody else may hold: a list of objects,
  // and what direct.own() has made. NULL: it is not there.
  PyObject *held;
  void **handles;
  Py_ssize_t numHandles; // at most `size`
  descrgetfunc getGrad;
  DLPackDLTensorFromPyObjectNoSync view;
  StepcPlan *plan;
  SetTensor setParam, setGrad;
  MoveGrad moveGrad;
  StepcDirect direct; // all zero: not to be used
  StepcWatch watch;   // state tensors
  Py_ssize_t size;
  Py_ssize_t unbound; // how many have no id
  Entry *entries;     // and OBJECT_AHEAD copies of the last
  // Of each parameter that is not `told`, where the gradients of all may be
  // looked for directly; else NULL.
  Reading *readings;
  int holds; // whether the refresh at hand holds all gradients
} Walk;

// The parameter's `grad`, a new reference.
PyObject *stepcWalkGradient(Walk *self, const Entry *entry);

// Holds the parameter's gradient, whose slot is `gradSlot` where that is known,
// until stepcWalkForget(). -1: an exception.
int stepcWalkHold(Walk *self, const Entry *entry, const void *gradSlot);
int stepcWalkForget(Walk *self);

// Tells the plan where each parameter and gradient is now. `attention` gets a
// list of the indices that Python must look at, or NULL. -1: an exception.
int stepcWalkRefresh(Walk *self, PyObject **attention);

// Bumps the version counters of what had a gradient. -1: an exception.
int stepcWalkBump(Walk *self);

#endif // STEPC_EXT_WALK_H
