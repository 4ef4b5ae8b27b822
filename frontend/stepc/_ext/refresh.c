//===- refresh.c - reads parameters, tells the plan -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "walk.h"

// Words of an implementation that point to its storage and its autograd data.
// Hints for prefetching: what they point to is not read, wrong ones cost time.
enum { STORAGE_WORD = 2, AUTOGRAD_WORD = 3 };

static const void *slotOf(const Walk *self, const Entry *entry) {
  return (const char *)entry->param + self->direct.slotOffset;
}

static const void *const *implOf(const void *slot) {
  return *(const void *const *const *)slot;
}

PyObject *stepcWalkGradient(Walk *self, const Entry *entry) {
  if (entry->plain)
    return self->getGrad(self->grad, entry->param,
                         (PyObject *)Py_TYPE(entry->param));
  return PyObject_GetAttrString(entry->param, "grad");
}

// As stepcDirectRead, by Python objects and the exchange table.
static int readByObjects(Walk *self, Entry *entry, DLTensor *param,
                         DLTensor *grad) {
  PyObject *object = stepcWalkGradient(self, entry);
  int result = 0;
  if (!object)
    result = -1;
  else if (object != Py_None)
    result =
        self->view(entry->param, param) || self->view(object, grad) ? -1 : 1;
  // What a property makes, nobody else need hold.
  int holds = self->holds || !entry->plain;
  if (result > 0 && holds && PyList_Append(self->held, object))
    result = -1;
  if (result < 0)
    PyErr_Clear();
  Py_XDECREF(object);
  return result;
}

// The slot of the gradient of a parameter that can be read directly.
static const void *gradSlotOf(const Walk *self, const Entry *entry) {
  return self->direct.grad(implOf(slotOf(self, entry)));
}

// Of a parameter whose gradient is looked at in its turn.
static void readOne(Walk *self, Entry *entry, Reading *reading) {
  if (self->direct.view && entry->plain) {
    const void *grad = gradSlotOf(self, entry);
    reading->found = stepcDirectRead(&self->direct, slotOf(self, entry), grad,
                                     &reading->param, &reading->grad);
    if (reading->found > 0 && self->holds && stepcWalkHold(self, entry, grad)) {
      PyErr_Clear();
      reading->found = -1;
    }
  } else {
    reading->found =
        readByObjects(self, entry, &reading->param, &reading->grad);
  }
}

// Tells the plan about one parameter. Returns 0; 1 when Python must look at
// it: it is not bound and has a gradient, or cannot be described, or the plan
// wants it bound anew.
static int tellPlan(Walk *self, Entry *entry, const Reading *reading) {
  entry->live = reading->found != 0;
  if (reading->found < 0)
    return 1;
  if (entry->id < 0)
    return entry->live;
  if (!entry->live)
    return self->setGrad(self->plan, entry->id, NULL) != STEPC_OK;
  return self->setParam(self->plan, entry->id, &reading->param) != STEPC_OK ||
         self->setGrad(self->plan, entry->id, &reading->grad) != STEPC_OK;
}

static void prefetchImpl(const void *const *impl) {
  const char *at = (const char *)impl;
  __builtin_prefetch(at);
  __builtin_prefetch(at + 64);
  __builtin_prefetch(at + 128);
}

static void prefetchObjects(const Walk *self, const Entry *entry) {
  __builtin_prefetch(entry[OBJECT_AHEAD].param);
  prefetchImpl(implOf(slotOf(self, &entry[IMPL_AHEAD])));
}

static void prefetchParts(const void *const *impl) {
  __builtin_prefetch(impl[STORAGE_WORD]);
  __builtin_prefetch(impl[AUTOGRAD_WORD]);
}

// The slots of the gradients that are on their way: of entry i at i % AHEAD.
enum { AHEAD = 8 };
_Static_assert(GRAD_AHEAD < AHEAD, "the slots of those ahead are kept");
typedef const void *GradSlots[AHEAD];

static void findGrad(Walk *self, Py_ssize_t at, GradSlots slots) {
  const void *slot =
      self->direct.grad(implOf(slotOf(self, &self->entries[at])));
  slots[at % AHEAD] = slot;
  prefetchImpl(implOf(slot));
}

// One step of each stage of the chain, for the entries behind this one.
static void prefetchAll(Walk *self, Py_ssize_t at, GradSlots slots) {
  const Entry *entry = &self->entries[at];
  prefetchObjects(self, entry);
  prefetchParts(implOf(slotOf(self, &entry[PARTS_AHEAD])));
  findGrad(self, at + GRAD_AHEAD, slots);
  const void *const *grad = implOf(slots[(at + GRAD_STORAGE_AHEAD) % AHEAD]);
  __builtin_prefetch(grad[STORAGE_WORD]);
}

// What prefetchAll would have done for the entries from this one on.
static void beginAhead(Walk *self, Py_ssize_t at, GradSlots slots) {
  const Entry *entries = &self->entries[at];
  for (int i = 0; i < OBJECT_AHEAD; ++i)
    __builtin_prefetch(entries[i].param);
  for (int i = 0; i < IMPL_AHEAD; ++i)
    prefetchImpl(implOf(slotOf(self, &entries[i])));
  for (int i = 0; i < PARTS_AHEAD; ++i)
    prefetchParts(implOf(slotOf(self, &entries[i])));
  for (int i = 0; i < GRAD_AHEAD; ++i)
    findGrad(self, at + i, slots);
}

// Whether reading the tensor runs nothing of Python: it is dense, in the
// processor's memory, and of no subclass that answers for its shape or device.
static int isPlain(const Walk *self, const void *const *impl) {
  const char *keys = (const char *)impl + self->direct.keysOffset;
  return *(const uint64_t *)keys == self->direct.plainKeys;
}

// Reads one parameter, and tells the plan where its gradient is if that is all.
static void readPlain(Walk *self, Py_ssize_t at, const void *gradSlot) {
  Entry *entry = &self->entries[at];
  const void *slot = slotOf(self, entry);
  Reading now;
  if (implOf(gradSlot) == self->direct.undefined)
    now.found = 0;
  else if (isPlain(self, implOf(slot)) && isPlain(self, implOf(gradSlot)))
    now.found =
        stepcDirectRead(&self->direct, slot, gradSlot, &now.param, &now.grad);
  else
    now.found = NOT_READ;
  entry->told = now.found == 1 && entry->id >= 0 &&
                self->moveGrad(self->plan, entry->id, &now.param, &now.grad);
  if (!entry->told)
    self->readings[at] = now;
}

// Reads what torch holds of all parameters. That waits for memory and touches
// nothing of Python: shared with torch's threads. Each tells the plan of
// gradients that are merely somewhere else, as it has in its cache what is
// compared.
static void readAll(Walk *self) {
  int threads = stepcThreads(&self->watch, self->size);
  Py_ssize_t blocks = (self->size + READ_BLOCK - 1) / READ_BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads)
  for (Py_ssize_t block = 0; block < blocks; ++block) {
    Py_ssize_t at = block * READ_BLOCK, end = at + READ_BLOCK;
    GradSlots slots;
    beginAhead(self, at, slots);
    for (; at < end && at < self->size; ++at) {
      prefetchAll(self, at, slots);
      readPlain(self, at, slots[at % AHEAD]);
    }
  }
}

// Collects no garbage, so that nothing of Python runs.
static int note(PyObject *list, Py_ssize_t at) {
  PyObject *index = PyLong_FromSsize_t(at);
  int failed = !index || PyList_Append(list, index);
  Py_XDECREF(index);
  return failed ? -1 : 0;
}

// Tells the plan of what readAll has read, before anything else runs: shapes
// are in torch's memory. Counts in `unread` what it has not. -1: an exception.
static int tellRead(Walk *self, PyObject *attention, Py_ssize_t *unread) {
  for (Py_ssize_t i = 0; i < self->size; ++i) {
    Entry *entry = &self->entries[i];
    const Reading *reading = &self->readings[i];
    if (entry->told)
      entry->live = 1;
    else if (reading->found == NOT_READ)
      ++*unread;
    else if (tellPlan(self, entry, reading) && note(attention, i))
      return -1;
    // What was told was not noted as a reading.
    if (self->holds && (entry->told || reading->found == 1) &&
        stepcWalkHold(self, entry, gradSlotOf(self, entry)))
      return -1;
  }
  return 0;
}

// The others, each read right before the plan is told. -1: an exception.
static int tellUnread(Walk *self, PyObject *attention) {
  for (Py_ssize_t i = 0; i < self->size; ++i) {
    Entry *entry = &self->entries[i];
    if (self->readings && (entry->told || self->readings[i].found != NOT_READ))
      continue;
    Reading now;
    readOne(self, entry, &now);
    if (tellPlan(self, entry, &now) && note(attention, i))
      return -1;
  }
  return 0;
}

int stepcWalkRefresh(Walk *self, PyObject **attention) {
  *attention = NULL;
  // Made first, as making it may collect garbage, which may run anything.
  PyObject *list = PyList_New(0);
  if (!list)
    return -1;
  Py_ssize_t unread = self->size;
  int failed = 0;
  if (self->readings) {
    unread = 0;
    readAll(self);
    failed = tellRead(self, list, &unread);
  }
  if (!failed && unread)
    failed = tellUnread(self, list) || PyList_Sort(list);
  if (!failed && PyList_Size(list))
    *attention = Py_NewRef(list);
  Py_DECREF(list);
  return failed ? -1 : 0;
}

// Only a tensor of inference mode has no version counter to bump.
static int checkUnbumped(const Entry *entry) {
  PyObject *answer = PyObject_CallMethod(entry->param, "is_inference", NULL);
  int expected = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  if (expected == 0)
    PyErr_SetString(PyExc_RuntimeError,
                    "the version counter of a parameter cannot be bumped");
  return expected > 0 ? 0 : -1;
}

int stepcWalkBump(Walk *self) {
  // Counters are atomic, and nothing of Python is touched: shared with torch's
  // threads.
  Py_ssize_t unbumped = 0;
  int threads = stepcThreads(&self->watch, self->size);
#pragma omp parallel for schedule(static) reduction(+ : unbumped)              \
    num_threads(threads)
  for (Py_ssize_t i = 0; i < self->size; ++i) {
    Entry *entry = &self->entries[i];
    prefetchObjects(self, entry);
    entry->unbumped =
        entry->live && stepcDirectBump(&self->direct, slotOf(self, entry)) != 0;
    unbumped += entry->unbumped;
  }
  for (Py_ssize_t i = 0; unbumped > 0 && i < self->size; ++i)
    if (self->entries[i].unbumped && checkUnbumped(&self->entries[i]))
      return -1;
  return 0;
}
