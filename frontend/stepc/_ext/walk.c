//===- walk.c - re-reads parameters and gradients in one call -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A Walk holds the parameter lists of an optimizer and, for each parameter,
// its id in a plan. `refresh()` tells the plan where each parameter and its
// gradient are now. Python would need a microsecond a tensor for that; this
// loop needs a tenth of one.
//
// It uses the limited API and no torch headers. Tensors are read through
// `torch.Tensor.__dlpack_c_exchange_api__`, `grad` through the descriptor that
// `torch.Tensor` has, without the attribute lookup; or, where
// torch/tensors/walk.py could verify them, by torch's own functions (direct.h).
//
//===----------------------------------------------------------------------===//

#include "walk.h"

// Changes with what Python and this module expect of each other.
enum { INTERFACE = 4 };

//===--- Methods ----------------------------------------------------------===//

// Whether the groups' lists still hold the parameters they held.
static int listsAreSame(Walk *self) {
  Py_ssize_t at = 0;
  Py_ssize_t lists = PyTuple_Size(self->lists);
  for (Py_ssize_t l = 0; l < lists; ++l) {
    PyObject *list = PyTuple_GetItem(self->lists, l);
    Py_ssize_t n = PyList_Size(list);
    if (n < 0 || at + n > self->size)
      return 0;
    for (Py_ssize_t i = 0; i < n; ++i, ++at)
      if (PyList_GetItem(list, i) != self->entries[at].param)
        return 0;
  }
  return at == self->size;
}

PyDoc_STRVAR(
    refreshDoc,
    "refresh(hold) -> None, a list of indices, or False\n\n"
    "Tells the plan where each parameter and gradient is now. The list\n"
    "names parameters that must be bound; False: the parameter lists\n"
    "changed and nothing was done. hold: gradients live on until bump() or\n"
    "forget(), as others may drop them while a step reads them.");

static PyObject *walkRefresh(PyObject *object, PyObject *hold) {
  Walk *self = (Walk *)object;
  self->holds = PyObject_IsTrue(hold);
  if (self->holds < 0)
    return NULL;
  if (!listsAreSame(self)) {
    PyErr_Clear();
    return Py_NewRef(Py_False);
  }
  if (stepcWalkForget(self))
    return NULL;
  PyObject *attention;
  if (stepcWalkRefresh(self, &attention))
    return NULL;
  if (attention)
    return attention;
  return Py_NewRef(Py_None);
}

PyDoc_STRVAR(
    bumpDoc,
    "bump() -> bool\n\nAfter a step: bumps the version counters of the "
    "parameters that\nhad a gradient at the last refresh. False: it does "
    "not know how.");

static PyObject *walkBump(PyObject *object, PyObject *unused) {
  (void)unused;
  Walk *self = (Walk *)object;
  int able = self->direct.bump != NULL;
  if (stepcWalkForget(self))
    return NULL;
  if (able && stepcWalkBump(self))
    return NULL;
  return PyBool_FromLong(able);
}

PyDoc_STRVAR(forgetDoc, "forget()\n\nAfter a step that failed: holds no\n"
                        "gradients any longer.");

static PyObject *walkForget(PyObject *object, PyObject *unused) {
  (void)unused;
  if (stepcWalkForget((Walk *)object))
    return NULL;
  return Py_NewRef(Py_None);
}

PyDoc_STRVAR(liveDoc,
             "live() -> list\n\nThe parameters that had a gradient at\n"
             "the last refresh.");

static PyObject *walkLive(PyObject *object, PyObject *unused) {
  (void)unused;
  Walk *self = (Walk *)object;
  PyObject *list = PyList_New(0);
  for (Py_ssize_t i = 0; list && i < self->size; ++i)
    if (self->entries[i].live && PyList_Append(list, self->entries[i].param))
      Py_CLEAR(list);
  return list;
}

PyDoc_STRVAR(setIdDoc,
             "set_id(index, id, live)\n\nSays which tensor of the plan\n"
             "the parameter is.");

static PyObject *walkSetId(PyObject *object, PyObject *args) {
  Walk *self = (Walk *)object;
  Py_ssize_t index;
  long long id;
  int live;
  if (!PyArg_ParseTuple(args, "nLp", &index, &id, &live))
    return NULL;
  if (index < 0 || index >= self->size) {
    PyErr_SetString(PyExc_IndexError, "no such parameter");
    return NULL;
  }
  self->unbound += (id < 0) - (self->entries[index].id < 0);
  self->entries[index].id = id;
  self->entries[index].live = live;
  return Py_NewRef(Py_None);
}

PyDoc_STRVAR(watchDoc,
             "watch(list)\n\nAdds tensors whose memory the plan writes.");

static PyObject *walkWatch(PyObject *object, PyObject *list) {
  if (stepcWatchAdd(&((Walk *)object)->watch, list))
    return NULL;
  return Py_NewRef(Py_None);
}

PyDoc_STRVAR(movedDoc, "moved() -> bool\n\nWhether the memory of a watched\n"
                       "tensor is not where it was when it was added.");

static PyObject *walkMoved(PyObject *object, PyObject *unused) {
  (void)unused;
  return PyBool_FromLong(stepcWatchMoved(&((Walk *)object)->watch));
}

PyDoc_STRVAR(wakingDoc, "waking() -> list\n\nIndices of parameters that\n"
                        "are not bound and have a gradient.");

static PyObject *walkWaking(PyObject *object, PyObject *unused) {
  (void)unused;
  Walk *self = (Walk *)object;
  PyObject *list = PyList_New(0);
  for (Py_ssize_t i = 0; list && self->unbound && i < self->size; ++i) {
    if (self->entries[i].id >= 0)
      continue;
    PyObject *grad = stepcWalkGradient(self, &self->entries[i]);
    int awake = grad ? grad != Py_None : -1;
    Py_XDECREF(grad);
    PyObject *index = awake > 0 ? PyLong_FromSsize_t(i) : NULL;
    if (awake < 0 || (awake && (!index || PyList_Append(list, index))))
      Py_CLEAR(list);
    Py_XDECREF(index);
  }
  return list;
}

//===--- Life -------------------------------------------------------------===//

// Fills the entries from the lists; `plain` has one flag byte a parameter.
static int fillEntries(Walk *self, const char *plain, Py_ssize_t numPlain) {
  self->size = PyTuple_Size(self->params);
  if (self->size != numPlain) {
    PyErr_SetString(PyExc_ValueError, "one flag a parameter is needed");
    return -1;
  }
  size_t padded = (size_t)self->size + OBJECT_AHEAD;
  self->entries = PyMem_Calloc(padded, sizeof(Entry));
  if (!self->entries) {
    PyErr_NoMemory();
    return -1;
  }
  int direct = self->direct.view && self->direct.keysOffset && self->size;
  self->unbound = self->size;
  for (Py_ssize_t i = 0; i < self->size; ++i) {
    self->entries[i].param = PyTuple_GetItem(self->params, i);
    self->entries[i].id = -1;
    self->entries[i].plain = plain[i] != 0;
    direct &= plain[i] != 0;
  }
  for (size_t i = (size_t)self->size; self->size && i < padded; ++i)
    self->entries[i] = self->entries[self->size - 1];
  if (direct &&
      !(self->readings = PyMem_Calloc((size_t)self->size, sizeof(Reading)))) {
    PyErr_NoMemory();
    return -1;
  }
  if (self->direct.own && self->size &&
      !(self->handles = PyMem_Calloc((size_t)self->size, sizeof(void *)))) {
    PyErr_NoMemory();
    return -1;
  }
  return 0;
}

static int takeTable(Walk *self) {
  const DLPackExchangeAPI *api =
      PyCapsule_GetPointer(self->api, "dlpack_exchange_api");
  if (!api)
    return -1;
  if (api->header.version.major != DLPACK_MAJOR_VERSION ||
      !api->dltensor_from_py_object_no_sync) {
    PyErr_SetString(PyExc_RuntimeError,
                    "the tensor exchange table has another version");
    return -1;
  }
  self->view = api->dltensor_from_py_object_no_sync;
  self->getGrad =
      (descrgetfunc)PyType_GetSlot(Py_TYPE(self->grad), Py_tp_descr_get);
  if (!self->getGrad) {
    PyErr_SetString(PyExc_TypeError, "grad is not a descriptor");
    return -1;
  }
  return 0;
}

PyDoc_STRVAR(
    walkDoc,
    "Walk(lists, params, plain, api, grad, plan, set_param, set_grad, "
    "move_grad, limit_team, direct)\n\n"
    "lists: tuple of the groups' lists; params: tuple of all parameters;\n"
    "plain: a flag byte each, whether `grad`, the descriptor, may be used;\n"
    "api: the exchange table; plan, set_param, set_grad, move_grad,\n"
    "limit_team: addresses;\n"
    "direct: the twelve members of StepcDirect, as integers.");

static PyObject *walkNew(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  static char *names[] = {"lists",     "params",     "plain",     "api",
                          "grad",      "plan",       "set_param", "set_grad",
                          "move_grad", "limit_team", "direct",    NULL};
  PyObject *lists, *params, *api, *grad;
  const char *plain;
  Py_ssize_t numPlain;
  StepcDirect *direct;
  Py_ssize_t slot, storage, element, memory, keysAt;
  unsigned long long plan, setParam, setGrad, moveGrad, limitTeam, view, gradOf,
      bump, own, disown, undefined, keys;
  if (!PyArg_ParseTupleAndKeywords(
          args, kwargs, "O!O!y#OOKKKKK(KKKKKKnnnnnK)", names, &PyTuple_Type,
          &lists, &PyTuple_Type, &params, &plain, &numPlain, &api, &grad, &plan,
          &setParam, &setGrad, &moveGrad, &limitTeam, &view, &gradOf, &bump,
          &own, &disown, &undefined, &slot, &storage, &element, &memory,
          &keysAt, &keys))
    return NULL;
  allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  Walk *self = (Walk *)alloc(type, 0);
  if (!self)
    return NULL;
  self->lists = Py_NewRef(lists);
  self->params = Py_NewRef(params);
  self->api = Py_NewRef(api);
  self->grad = Py_NewRef(grad);
  self->held = PyList_New(0);
  self->plan = (StepcPlan *)(uintptr_t)plan;
  self->setParam = (SetTensor)(uintptr_t)setParam;
  self->setGrad = (SetTensor)(uintptr_t)setGrad;
  self->moveGrad = (MoveGrad)(uintptr_t)moveGrad;
  direct = &self->direct;
  direct->view = (void (*)(const void *, DLTensor *, bool))(uintptr_t)view;
  direct->grad = (const void *(*)(const void *))(uintptr_t)gradOf;
  direct->bump = (void (*)(const void *))(uintptr_t)bump;
  direct->own = (int32_t (*)(const void *, void **))(uintptr_t)own;
  direct->disown = (int32_t (*)(void *))(uintptr_t)disown;
  direct->undefined = (const void *)(uintptr_t)undefined;
  direct->slotOffset = slot;
  direct->storageOffset = storage;
  direct->elementOffset = element;
  direct->memoryOffset = memory;
  direct->keysOffset = keysAt;
  direct->plainKeys = keys;
  if (!self->held || takeTable(self) || fillEntries(self, plain, numPlain)) {
    Py_DECREF(self);
    return NULL;
  }
  self->watch.direct = self->direct;
  self->watch.view = self->view;
  self->watch.limitTeam = (LimitTeam)(uintptr_t)limitTeam;
  return (PyObject *)self;
}

static int walkTraverse(PyObject *object, visitproc visit, void *arg) {
  Walk *self = (Walk *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->lists);
  Py_VISIT(self->params);
  Py_VISIT(self->held);
  return stepcWatchTraverse(&self->watch, visit, arg);
}

static int walkClear(PyObject *object) {
  Walk *self = (Walk *)object;
  self->size = 0;
  if (self->held && stepcWalkForget(self))
    PyErr_Clear();
  Py_CLEAR(self->lists);
  Py_CLEAR(self->params);
  Py_CLEAR(self->api);
  Py_CLEAR(self->grad);
  Py_CLEAR(self->held);
  stepcWatchClear(&self->watch);
  return 0;
}

static void walkDealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  walkClear(object);
  PyMem_Free(((Walk *)object)->entries);
  PyMem_Free(((Walk *)object)->readings);
  PyMem_Free(((Walk *)object)->handles);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF(type);
}

//===--- Module -----------------------------------------------------------===//

static PyMethodDef walkMethods[] = {
    {"refresh", walkRefresh, METH_O, refreshDoc},
    {"bump", walkBump, METH_NOARGS, bumpDoc},
    {"forget", walkForget, METH_NOARGS, forgetDoc},
    {"live", walkLive, METH_NOARGS, liveDoc},
    {"watch", walkWatch, METH_O, watchDoc},
    {"moved", walkMoved, METH_NOARGS, movedDoc},
    {"waking", walkWaking, METH_NOARGS, wakingDoc},
    {"set_id", walkSetId, METH_VARARGS, setIdDoc},
    {NULL, NULL, 0, NULL}};

static PyType_Slot walkSlots[] = {{Py_tp_new, walkNew},
                                  {Py_tp_dealloc, walkDealloc},
                                  {Py_tp_traverse, walkTraverse},
                                  {Py_tp_clear, walkClear},
                                  {Py_tp_methods, walkMethods},
                                  {Py_tp_doc, (void *)walkDoc},
                                  {0, NULL}};

static PyType_Spec walkSpec = {"_stepc_walk.Walk", sizeof(Walk), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                               walkSlots};

static int moduleExec(PyObject *module) {
  PyObject *type = PyType_FromSpec(&walkSpec);
  if (!type)
    return -1;
  int failed = PyModule_AddObjectRef(module, "Walk", type);
  Py_DECREF(type);
  // Of stepc.h; and of this module's own functions, see torch/tensors/walk.py.
  return failed ||
         PyModule_AddIntConstant(module, "LIBRARY_VERSION",
                                 STEPC_VERSION_MAJOR * 1000 +
                                     STEPC_VERSION_MINOR) ||
         PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot moduleSlots[] = {{Py_mod_exec, moduleExec}, {0, NULL}};

static struct PyModuleDef moduleDef = {
    PyModuleDef_HEAD_INIT,
    "_stepc_walk",
    "Re-reads parameters and gradients in one call.",
    0,
    NULL,
    moduleSlots,
    NULL,
    NULL,
    NULL};

PyMODINIT_FUNC PyInit__stepc_walk(void) { return PyModuleDef_Init(&moduleDef); }
