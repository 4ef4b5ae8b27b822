//===- held.c - gradients that a step owns until it has ended -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "walk.h"

int stepcWalkHold(Walk *self, const Entry *entry, const void *gradSlot) {
  void *handle;
  if (gradSlot && self->handles) {
    if (self->direct.own(gradSlot, &handle)) {
      PyErr_NoMemory();
      return -1;
    }
    self->handles[self->numHandles++] = handle;
    return 0;
  }
  PyObject *object = stepcWalkGradient(self, entry);
  int failed = !object || PyList_Append(self->held, object);
  Py_XDECREF(object);
  return failed ? -1 : 0;
}

int stepcWalkForget(Walk *self) {
  // One by one: the last owner's end may run anything, this function as well.
  while (self->numHandles)
    self->direct.disown(self->handles[--self->numHandles]);
  Py_ssize_t held = PyList_Size(self->held);
  return held ? PyList_SetSlice(self->held, 0, held, NULL) : 0;
}
