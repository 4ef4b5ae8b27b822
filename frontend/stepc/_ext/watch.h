//===- watch.h - state tensors whose memory a plan writes -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `state["exp_avg"].data = t`, `.set_(t)` and `.share_memory_()` give a tensor
// other memory and leave no trace in any dict or version counter. A plan holds
// addresses, so before each step every watched tensor is asked where it is.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_EXT_WATCH_H
#define STEPC_EXT_WATCH_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stdint.h>

#include "direct.h"

typedef struct StepcWatched {
  PyObject *tensor;   // owned
  const void *memory; // of its storage
  int64_t offset;     // into it, in elements; in bytes where read by the table
} StepcWatched;

typedef int32_t (*LimitTeam)(int32_t size);

typedef struct StepcWatch {
  StepcDirect direct; // all zero: read by the table
  LimitTeam limitTeam;
  DLPackDLTensorFromPyObjectNoSync view;
  StepcWatched *entries;
  Py_ssize_t size, capacity;
} StepcWatch;

// Begins to watch the tensors of a list, where they are now. -1: an exception
// is set, and none of them is watched.
int stepcWatchAdd(StepcWatch *watch, PyObject *list);

// Whether a tensor is somewhere else than when it was added.
int stepcWatchMoved(const StepcWatch *watch);

// By how many threads work on so many tensors is done, which waits for memory
// and calls nothing of Python: torch's, which are idle, where there are many.
int stepcThreads(const StepcWatch *watch, Py_ssize_t size);

int stepcWatchTraverse(const StepcWatch *watch, visitproc visit, void *arg);
void stepcWatchClear(StepcWatch *watch);

#endif // STEPC_EXT_WATCH_H
