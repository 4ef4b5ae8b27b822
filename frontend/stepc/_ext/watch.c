//===- watch.c - state tensors whose memory a plan writes -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "watch.h"

#include <unistd.h>

// How many tensors ahead each pointer on the way to the memory is prefetched.
enum { OBJECT_AHEAD = 24, IMPL_AHEAD = 16, STORAGE_AHEAD = 6 };

static const char *wordAt(const void *base, ptrdiff_t offset) {
  return *(const char *const *)((const char *)base + offset);
}

static const char *implOf(const StepcWatch *watch, const StepcWatched *entry) {
  return wordAt(entry->tensor, watch->direct.slotOffset);
}

static int isDirect(const StepcWatch *watch) {
  return watch->direct.memoryOffset != 0;
}

static void readDirect(const StepcWatch *watch, StepcWatched *entry) {
  const char *impl = implOf(watch, entry);
  const char *storage = wordAt(impl, watch->direct.storageOffset);
  entry->memory = storage ? wordAt(storage, watch->direct.memoryOffset) : NULL;
  entry->offset = *(const int64_t *)(impl + watch->direct.elementOffset);
}

// -1: the tensor cannot be described, an exception is set.
static int readOne(const StepcWatch *watch, StepcWatched *entry) {
  DLTensor tensor;
  if (isDirect(watch)) {
    readDirect(watch, entry);
    return 0;
  }
  if (watch->view(entry->tensor, &tensor))
    return -1;
  entry->memory = tensor.data;
  entry->offset = (int64_t)tensor.byte_offset;
  return 0;
}

static void prefetch(const StepcWatch *watch, Py_ssize_t at) {
  const StepcWatched *entry = &watch->entries[at];
  if (at + OBJECT_AHEAD < watch->size)
    __builtin_prefetch(entry[OBJECT_AHEAD].tensor);
  if (at + IMPL_AHEAD < watch->size) {
    const char *impl = implOf(watch, &entry[IMPL_AHEAD]);
    __builtin_prefetch(impl + watch->direct.storageOffset);
    __builtin_prefetch(impl + watch->direct.elementOffset);
  }
  if (at + STORAGE_AHEAD < watch->size)
    __builtin_prefetch(wordAt(implOf(watch, &entry[STORAGE_AHEAD]),
                              watch->direct.storageOffset));
}

static int reserve(StepcWatch *watch, Py_ssize_t size) {
  if (size <= watch->capacity)
    return 0;
  Py_ssize_t capacity = size > 2 * watch->capacity ? size : 2 * watch->capacity;
  StepcWatched *entries =
      PyMem_Realloc(watch->entries, (size_t)capacity * sizeof *entries);
  if (!entries) {
    PyErr_NoMemory();
    return -1;
  }
  watch->entries = entries;
  watch->capacity = capacity;
  return 0;
}

int stepcWatchAdd(StepcWatch *watch, PyObject *list) {
  Py_ssize_t n = PyList_Size(list);
  if (n < 0 || reserve(watch, watch->size + n))
    return -1;
  StepcWatched *entries = watch->entries + watch->size;
  for (Py_ssize_t i = 0; i < n; ++i) {
    entries[i].tensor = PyList_GetItem(list, i);
    if (readOne(watch, &entries[i]))
      return -1;
  }
  for (Py_ssize_t i = 0; i < n; ++i)
    Py_INCREF(entries[i].tensor);
  watch->size += n;
  return 0;
}

// The process that loaded the extension. In a forked one the threads of OpenMP
// are gone, and waiting for them would not end.
static pid_t homeProcess;

__attribute__((constructor)) static void rememberProcess(void) {
  homeProcess = getpid();
}

int stepcThreads(const StepcWatch *watch, Py_ssize_t size) {
  return size > 4096 && getpid() == homeProcess ? watch->limitTeam(0) : 1;
}

static int isAnyMoved(const StepcWatch *watch) {
  int moved = 0, threads = stepcThreads(watch, watch->size);
#pragma omp parallel for schedule(static) reduction(| : moved)                 \
    num_threads(threads)
  for (Py_ssize_t i = 0; i < watch->size; ++i) {
    StepcWatched now = watch->entries[i];
    prefetch(watch, i);
    readDirect(watch, &now);
    moved |= now.memory != watch->entries[i].memory ||
             now.offset != watch->entries[i].offset;
  }
  return moved;
}

int stepcWatchMoved(const StepcWatch *watch) {
  if (isDirect(watch))
    return isAnyMoved(watch);
  for (Py_ssize_t i = 0; i < watch->size; ++i) {
    const StepcWatched *entry = &watch->entries[i];
    StepcWatched now = *entry;
    if (readOne(watch, &now)) {
      PyErr_Clear();
      return 1;
    }
    if (now.memory != entry->memory || now.offset != entry->offset)
      return 1;
  }
  return 0;
}

int stepcWatchTraverse(const StepcWatch *watch, visitproc visit, void *arg) {
  for (Py_ssize_t i = 0; i < watch->size; ++i)
    Py_VISIT(watch->entries[i].tensor);
  return 0;
}

void stepcWatchClear(StepcWatch *watch) {
  StepcWatched *entries = watch->entries;
  Py_ssize_t size = watch->size;
  watch->entries = NULL;
  watch->size = watch->capacity = 0;
  for (Py_ssize_t i = 0; i < size; ++i)
    Py_DECREF(entries[i].tensor);
  PyMem_Free(entries);
}
