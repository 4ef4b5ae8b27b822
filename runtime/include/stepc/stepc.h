//===- stepc.h - the C interface of the Stepc runtime ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loads a compiled package, binds tensors to it and runs optimizer steps.
//
//   load -> create plan -> add groups -> bind -> { set hypers, set gradients,
//   step } -> read states -> destroy
//
// Rules that hold for every function:
// - It returns a status, but for stepcPlanMoveGrad, which refuses nothing;
//   stepcLastErrorMessage() has the words, per thread.
//   Messages are lower-case, without a final period, and name the thing.
// - Out-parameters come last and are written only on success.
// - When a call is refused nothing has changed.
// - Arguments are borrowed for the call, except tensor *data*, which a plan
//   reads and writes until it is destroyed or the tensor is bound anew.
// - A plan may be used by one thread at a time, but for stepcPlanMoveGrad; a
//   second one is refused with STEPC_BUSY. Distinct plans are independent,
//   packages may be shared. To destroy a handle while another thread uses it is
//   an error of the caller.
// - Nothing throws, aborts, prints, or changes the state of the process.
//
// A step (stepcStep, or stepcStepBegin .. stepcStepEnd) allocates nothing, but
// for lists of states that lie in a store (stepc/store.h).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_STEPC_H
#define STEPC_STEPC_H

#include <stddef.h>
#include <stdint.h>

#include "dlpack/dlpack.h"
#include "stepc/communicator.h"
#include "stepc/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

#define STEPC_API __attribute__((visibility("default")))

#define STEPC_VERSION_MAJOR 0
#define STEPC_VERSION_MINOR 1

typedef enum StepcStatus {
  STEPC_OK = 0,
  STEPC_INVALID_ARGUMENT = 1,   /* a value that no caller should pass */
  STEPC_FILE_ERROR = 2,         /* a file cannot be opened or read */
  STEPC_CORRUPT_PACKAGE = 3,    /* truncated, or a bit differs */
  STEPC_VERSION_MISMATCH = 4,   /* format or kernel ABI of another version */
  STEPC_UNSUPPORTED_TARGET = 5, /* no code for this processor */
  STEPC_UNKNOWN_NAME = 6,       /* no such hyper-parameter, option, state */
  STEPC_SHAPE_MISMATCH = 7,
  STEPC_DTYPE_MISMATCH = 8, /* a dtype the package holds no variant for */
  STEPC_DEVICE_MISMATCH = 9,
  STEPC_LAYOUT_UNSUPPORTED = 10, /* misaligned, elements share memory, or
                                    sharded as no variant is */
  STEPC_OVERLAP = 11,            /* two tensors share memory, one is written */
  STEPC_OUT_OF_MEMORY = 12,
  STEPC_BUSY = 13,        /* another thread is inside this handle */
  STEPC_WRONG_STATE = 14, /* step_tensors without step_begin, ... */
  STEPC_NEEDS_BIND = 15,  /* the tensor must be bound anew for this */
  STEPC_POISONED = 16,    /* an earlier step failed midway */
  STEPC_INTERNAL_ERROR = 17,
  STEPC_COMMUNICATION_ERROR = 18, /* ranks could not combine their parts */
  STEPC_STALE_STATISTICS = 19,    /* parameters were written by others, although
                                     the package has --exclusive-writes */
  STEPC_DEVICE_ERROR = 20,        /* a call of a device's driver failed, or
                                     there is no driver */
  STEPC_ABANDONED = 21,           /* another rank has given up its part of a
                                     step, see stepcStepAbandon */
  STEPC_STORE_ERROR = 22          /* a store's file has no room, or cannot be
                                     read or written (stepc/store.h) */
} StepcStatus;

/* major * 1000 + minor of the loaded library. */
STEPC_API uint32_t stepcVersion(void);

/* The name of a status, "STEPC_OVERLAP"; never NULL. */
STEPC_API const char *stepcStatusString(StepcStatus status);

/* The best of the compiler's targets for a processor that this one can run,
 * "x86-64-v4" say; "" where there is none. Never NULL. */
STEPC_API const char *stepcCpuTarget(void);

/* What the last refused call of this thread said; "" when there was none.
 * Valid until the thread's next call. */
STEPC_API const char *stepcLastErrorMessage(void);

/*===--- Packages
 * ----------------------------------------------------------===*/

typedef struct StepcPackage StepcPackage;

/* Reads a package file. Every bit of it is checked before any is parsed. */
STEPC_API StepcStatus stepcPackageLoad(const char *path, StepcPackage **out);

/* The same from memory; the bytes are copied. */
STEPC_API StepcStatus stepcPackageLoadBytes(const void *bytes, size_t size,
                                            StepcPackage **out);

/* The manifest: JSON text of `*outSize` bytes, owned by the package. */
STEPC_API StepcStatus stepcPackageManifest(const StepcPackage *package,
                                           const char **outJson,
                                           size_t *outSize);

/* Gives up the handle; plans made from it stay usable. Accepts NULL. */
STEPC_API void stepcPackageDestroy(StepcPackage *package);

/*===--- Plans
 * -------------------------------------------------------------===*/

/* A plan: parameter groups, and the tensors bound to one package. */
typedef struct StepcPlan StepcPlan;

typedef struct StepcPlanConfig {
  size_t structSize;     /* sizeof(StepcPlanConfig) */
  int32_t numThreads;    /* 0: as OpenMP says at each step */
  int32_t hugePages;     /* 1: ask the system for huge pages for memory that
                            is bound to the plan; a hint, 0 leaves it alone */
  int64_t chunkElements; /* at most 2^40; 0: chosen by the runtime */
  uint64_t reserved[4];  /* must be 0 */
} StepcPlanConfig;

/* config may be NULL: all zero. The plan keeps the package alive. */
STEPC_API StepcStatus stepcPlanCreate(StepcPackage *package,
                                      const StepcPlanConfig *config,
                                      StepcPlan **out);
STEPC_API void stepcPlanDestroy(StepcPlan *plan);

/* A value of an option by name; options not named keep their default. An
 * option whose default is an integer takes any, others take 0 and 1. Derived
 * options follow from the hyper-parameters and cannot be named. */
typedef struct StepcOption {
  const char *name;
  int64_t value;
} StepcOption;

/* Adds a group; its id is the number of groups before it.
 *   hypers  `numHypers` values in the manifest's order, or NULL for defaults;
 *           NaN and infinities are values as others, but for the seed of
 *           stochastic rounding, an integer from 0 to 2^53 */
STEPC_API StepcStatus stepcPlanAddGroup(StepcPlan *plan,
                                        const StepcOption *options,
                                        int64_t numOptions,
                                        const double *hypers, int64_t numHypers,
                                        int64_t *outGroup);

/* Sets a group's hyper-parameters (all of them, in the manifest's order) from
 * the next step on. STEPC_NEEDS_BIND when a derived option would change. */
STEPC_API StepcStatus stepcPlanSetHypers(StepcPlan *plan, int64_t group,
                                         const double *hypers,
                                         int64_t numHypers);

/*===--- Ranks
 * -------------------------------------------------------------===*/

/* Ranks that share a model step their parts of it together: every rank of the
 * mesh calls stepcStep as often as the others, with the same hyper-parameters,
 * groups and scalars. docs/sharding.md says what crosses between them. */

/* Says where in the grid of ranks this one is, before anything is bound. At
 * most 64 axes, names are unique. `communicator` may be NULL where all axes
 * have size 1; its structure is copied. STEPC_INVALID_ARGUMENT for other axes,
 * for a communicator without `reduce`, and on a CUDA device for one without
 * `enqueue` where the package has rounds. An error of the communicator ends the
 * step with STEPC_COMMUNICATION_ERROR and poisons the plan, unless nothing was
 * written yet, which the message says. The plan's memory that `start` was given
 * is never freed then, nor used by later steps: it may still be written. */
STEPC_API StepcStatus stepcPlanSetMesh(StepcPlan *plan, const StepcAxis *axes,
                                       int64_t numAxes,
                                       const StepcCommunicator *communicator);

/* One parameter with what belongs to it. */
typedef struct StepcBinding {
  size_t structSize; /* sizeof(StepcBinding) */
  const char *name;  /* for messages; NULL: "tensor <id>" */
  int64_t group;
  const DLTensor *param;
  const DLTensor
      *grad;            /* NULL: none yet. Then the variant of `gradDtype` is
                           bound and the tensor sleeps until a gradient is set */
  DLDataType gradDtype; /* read only when grad is NULL */
  const DLTensor *const *states; /* in the order of the variant's states that
                            the manifest lists for the group's options; NULL:
                            the runtime allocates and fills them with their
                            initial values */
  int64_t numStates;
  int64_t count;      /* steps that the tensor has taken, below 2^63 - 1 */
  int32_t fresh;      /* 1: its states were created for the coming step */
  int32_t reserved0;  /* must be 0 */
  float *countMirror; /* NULL, or where each step writes the new count: memory
                         that nothing else of the plan is in */
  const StepcLayout *layout; /* NULL: the tensor is whole on every rank. Callers
                            of an earlier version do not have the field */
  int64_t number; /* the tensor's, from 1 to 2^23 - 1, the same on all ranks:
                     random bits of stochastic rounding are of the seed, the
                     count, this and the element's index in the whole tensor; 0:
                     its id + 1. Nor this */
  const uint8_t *freshStates; /* for each of `states` 1 where it was created for
                     the coming step, with `fresh` 0; NULL: none was. Nor
                     this */
  const StepcEntry *entry;    /* NULL: parameter and gradient lie as the layout
                        says. On the processor. Nor this */
  const int32_t *formats; /* a StepcStateFormat (stepc/codes.h) for each of the
                             variant's states, which `numStates` says even where
                             the runtime allocates them; NULL: all are as the
                             manifest says. Nor this */
  const DLTensor *const *scales; /* for each of `states` that is of codes its
                             scales, of f32 and row-major; NULL for others.
                             Nor this */
} StepcBinding;

/* How much crosses ranks at a time, before anything is bound; 0: 25 MiB. A
 * bucket has at most `gradientBytes` of gradients as they cross, or of
 * parameters where no gradient does, or one tensor, of those that one call
 * binds. At most `parameterBytes` are gathered at a time: buckets that fit
 * together, and a larger one in pieces; where what is gathered lies side by
 * side it is gathered there. `underWay`: how many cross at the same time, 0: 4.
 * All ranks say the same, and bind the tensors with an entry that they have
 * together in the same calls and order; others may lie between them. */
STEPC_API StepcStatus stepcPlanSetBuckets(StepcPlan *plan,
                                          int64_t gradientBytes,
                                          int64_t parameterBytes,
                                          int64_t underWay);

/* Which elements of each tensor, in row-major order, this rank steps: [begin,
 * end), as stepcPlanBind cuts the same bindings where they are the first of a
 * plan with this mesh and these buckets. For who makes states before there is a
 * plan, or looks at saved ones. Of what one rank owns the entry says which.
 * outBucket may be NULL: for each the bucket with which it crosses ranks, from
 * 0 on, or -1 where it has no entry. No memory is read or written. */
STEPC_API StepcStatus stepcGetParts(const StepcAxis *axes, int64_t numAxes,
                                    const StepcBinding *bindings, int64_t n,
                                    int64_t gradientBytes,
                                    int64_t parameterBytes, int64_t *outBegin,
                                    int64_t *outEnd, int64_t *outBucket);

/* Binds tensors and takes all memory that their steps need. A parameter is
 * updated by the first rule of the definition that its shape fits and whose
 * guard holds; states of fewer dims than it are row-major. Checks shapes,
 * dtypes, devices, alignment and that no written memory is shared, among the
 * new tensors and with those bound before. Ids are consecutive in call order,
 * outIds may be NULL. */
STEPC_API StepcStatus stepcPlanBind(StepcPlan *plan,
                                    const StepcBinding *bindings, int64_t n,
                                    int64_t *outIds);

/* Says which gradient the tensor has from now on. NULL: none, the tensor is
 * skipped by steps, its states and count untouched. Cheap when only the
 * address changed: then the gradient's memory is compared with that of its own
 * parameter and states, and that of other tensors is the caller's promise.
 * STEPC_NEEDS_BIND when the dtype is another one. */
STEPC_API StepcStatus stepcPlanSetGrad(StepcPlan *plan, int64_t id,
                                       const DLTensor *grad);

/* Says where the parameter lives now; strides may change, shape and dtype must
 * not. Cheap when nothing changed. Parameters move one by one, so that shared
 * memory is looked for when the next step begins, which is refused then. A
 * tensor with an entry does not move between stepcStepBegin and stepcStepEnd,
 * until which its parameter is written, nor in a pass: STEPC_WRONG_STATE; and
 * one that is gathered where it lies beside others not alone:
 * STEPC_NEEDS_BIND. */
STEPC_API StepcStatus stepcPlanSetParam(StepcPlan *plan, int64_t id,
                                        const DLTensor *param);

/* As both of the above where the parameter did not move and the gradient, if at
 * all, to another address, on the processor: 1. In any other case, of an error
 * as well, nothing has changed, and the answer is 0: ask the two functions.
 * Several threads may call it at once, for different tensors, as long as
 * no other call of the plan is under way: for a caller with thousands of small
 * tensors, where finding them takes longer than the step. */
STEPC_API int32_t stepcPlanMoveGrad(StepcPlan *plan, int64_t id,
                                    const DLTensor *param,
                                    const DLTensor *grad);

/* The threads, the calling one among them, that a region of OpenMP's (libgomp)
 * can have now: at most `size`, with 0 omp_get_max_threads(), and no more than
 * can be started. For callers that begin such regions, as libgomp ends the
 * process where one cannot. At least 1. */
STEPC_API int32_t stepcLimitTeam(int32_t size);

/* Tells that others than steps have written parameters or states where they
 * are. Needed between such a write and the next step where the package is made
 * with --exclusive-writes, which keeps statistics of parameters from step to
 * step (`carried` of a variant in the manifest); else it does nothing. */
STEPC_API StepcStatus stepcPlanParametersWritten(StepcPlan *plan);

/* Tells of a kernel or finish, by its name in the package: `begin` 1 before it
 * runs, 0 after. The name lives as long as the plan. */
typedef void (*StepcTrace)(void *user, const char *name, int32_t begin);

/* Has steps of the plan call `trace`, NULL: no more, on the thread that called
 * them, around what that thread runs itself; the others have the like of it at
 * the same time. It must not call the plan. On a CUDA device, whose own tools
 * see the kernels, it is not called. */
STEPC_API StepcStatus stepcPlanSetTrace(StepcPlan *plan, StepcTrace trace,
                                        void *user);

/*===--- Steps
 * -------------------------------------------------------------===*/

/* One step of all tensors that have a gradient. Where none has, nothing
 * happens. Hyper-parameters and options that the definition reads once for the
 * whole model must be equal in all groups, else STEPC_INVALID_ARGUMENT. A
 * definition may skip a step: then the call succeeds and has changed nothing
 * but scalars that are always updated; stepcPlanGetLastStep tells. */
STEPC_API StepcStatus stepcStep(StepcPlan *plan);

/* The same in parts: hyper-parameters are fixed by begin; each tensor may be
 * stepped at most once until end; those not named are skipped. Gradients may
 * be set in between, counts change at the end. STEPC_WRONG_STATE when the
 * definition does not permit parts (`subsets` in the manifest). */
STEPC_API StepcStatus stepcStepBegin(StepcPlan *plan);
STEPC_API StepcStatus stepcStepTensors(StepcPlan *plan, const int64_t *ids,
                                       int64_t n);
STEPC_API StepcStatus stepcStepEnd(StepcPlan *plan);

/* Tells, between begin and end, that the gradients of these tensors have come.
 * Of tensors with an entry they are copied, or used, and may be freed; a bucket
 * begins to cross when all of it is ready, buckets in their order, and the
 * tensors of those that have come are stepped. Others are stepped at once, as
 * by stepcStepTensors. stepcStepEnd does what is left, until which parameters
 * are written; tensors that were not named take no part, with an entry or
 * without. The ranks of a group name, or have a gradient of, the same tensors
 * of those that they share, each in its own order. One that has no gradient
 * here may be named where the gradient is a sum over ranks, which others add
 * to.
 *
 * Of a definition that does not permit parts nothing is stepped at once, and
 * stepcStepTensors is refused: stepcStepEnd steps all tensors that were named,
 * with the hyper-parameters of then. Gradients that cross no rank must stay
 * until then: those of tensors without an entry, and those that all ranks have
 * whole. */
STEPC_API StepcStatus stepcGradReady(StepcPlan *plan, const int64_t *ids,
                                     int64_t n);

/* Has the steps between stepcStepBegin and stepcStepEnd find out which tensors
 * are used, as those within a backward pass must: the ranks of a group may then
 * name different tensors of those that they share. They tell each other which
 * as a bucket lands, by a small call for each. All buckets whose gradients are
 * sums cross, zeros where a rank has none, and a tensor takes part on all ranks
 * where any has a gradient. Of gradients that all ranks have whole either all
 * have one or none, else STEPC_INVALID_ARGUMENT, and the plan is poisoned. Not
 * on CUDA devices: STEPC_WRONG_STATE. */
STEPC_API StepcStatus stepcPlanFindUnused(StepcPlan *plan, int32_t enabled);

/* Before anything is bound: the sums of all buckets have one memory, as large
 * as the largest, in place of one for each. For plans whose gradients are
 * stepped as they land: stepcPassBegin is refused. Where the definition does
 * not permit parts (`subsets`) it changes nothing, as then all land before the
 * step. Not on CUDA devices: STEPC_WRONG_STATE. */
STEPC_API StepcStatus stepcPlanShareSums(StepcPlan *plan);

/* Tells, in such a step, that these tensors will have no gradient on this rank,
 * so that nothing waits for them until the end. */
STEPC_API StepcStatus stepcGradAbsent(StepcPlan *plan, const int64_t *ids,
                                      int64_t n);

/* Ends such a step where the gradients that have not come will not, as an error
 * has ended the backward pass. Buckets that are complete on this rank are
 * stepped by all; the others cross all the same, and no rank steps them. On
 * other ranks stepcStepEnd returns STEPC_ABANDONED, with a message that names
 * this one. Where the definition does not permit parts nothing is stepped then.
 * All may go on with the next step, but where gradients were named that all
 * ranks have whole, which have been stepped on some alone: the plan is
 * poisoned. */
STEPC_API StepcStatus stepcStepAbandon(StepcPlan *plan);

/* Brings gradients ahead of the step, in a backward pass: between begin and end
 * stepcGradReady tells of gradients as in a step, which are copied, cross ranks
 * and are added up where they are stepped. Of several passes, as of several
 * micro-batches, each adds what the ranks' sum of it comes to, divided where
 * the entry says so. All buckets cross: gradients that were not named count as
 * zeros, and the ranks of a group may name different tensors of those that they
 * share. A gradient that is no sum over ranks does not cross, and is refused.
 * Steps behind it take the tensors that this rank has named, each of them,
 * until they are forgotten; what others alone have named is named once more
 * between stepcStepBegin and stepcStepEnd, without a gradient, in the first
 * call. A bucket of which passes have brought something has no other gradients
 * then. An error of the communicator ends the pass, and what passes have
 * brought is forgotten; parameters and states are as before. */
STEPC_API StepcStatus stepcPassBegin(StepcPlan *plan);
STEPC_API StepcStatus stepcPassEnd(StepcPlan *plan);

/* What passes have brought of a tensor: this rank's part, of as many elements
 * as stepcPlanGetPart says, in the type of the sum. It is there until the next
 * pass, step or bind. STEPC_WRONG_STATE where there is none. */
STEPC_API StepcStatus stepcPlanGetGrad(const StepcPlan *plan, int64_t id,
                                       DLTensor *out);

/* Forgets what passes have brought; one that is under way ends so. */
STEPC_API StepcStatus stepcPlanForgetGrads(StepcPlan *plan);

/* Takes over what passes have brought to another plan, with the same tensors
 * bound in the same order, and perhaps others behind them: for who has to bind
 * anew before the step.
 * STEPC_INVALID_ARGUMENT for other tensors, or where this rank has other parts
 * of them. */
STEPC_API StepcStatus stepcPlanTakeGrads(StepcPlan *plan, StepcPlan *from);

/*===--- What is inside a plan
 * ---------------------------------------------===*/

/* On a device counts, scalars, reports and stepcPlanGetLastStep may have to be
 * read from there: then the call waits for the stream, and is refused with
 * STEPC_WRONG_STATE while that captures a graph. What steps have found wrong is
 * told by the next of these calls that reads, once: STEPC_STALE_STATISTICS, or
 * STEPC_WRONG_STATE where graphs did nothing (docs/cuda.md). Asked again it
 * answers. */

STEPC_API StepcStatus stepcPlanGetCount(const StepcPlan *plan, int64_t id,
                                        int64_t *outCount);
STEPC_API StepcStatus stepcPlanSetCount(StepcPlan *plan, int64_t id,
                                        int64_t count);

/* A view of a state by its name in the definition; shape and strides belong to
 * the plan and live until it is destroyed. With an entry it is of this rank's
 * part; STEPC_WRONG_STATE where another rank owns the tensor. */
STEPC_API StepcStatus stepcPlanGetState(const StepcPlan *plan, int64_t id,
                                        const char *name, DLTensor *out);

/* The same of the scales of a state that is kept as codes, for which
 * stepcPlanGetState has the codes. STEPC_WRONG_STATE where it is not. */
STEPC_API StepcStatus stepcPlanGetStateScales(const StepcPlan *plan, int64_t id,
                                              const char *name, DLTensor *out);

/* Which of the elements of a tensor, in row-major order, this rank steps:
 * [begin, end) of the tensor that was bound with an entry, none where another
 * rank owns it; of another one all. */
STEPC_API StepcStatus stepcPlanGetPart(const StepcPlan *plan, int64_t id,
                                       int64_t *outBegin, int64_t *outEnd);

/* A scalar that the definition keeps from step to step, by its name. One of the
 * model is the same in each group, and set in all of them. */
STEPC_API StepcStatus stepcPlanGetScalar(const StepcPlan *plan, int64_t group,
                                         const char *name, double *outValue);
STEPC_API StepcStatus stepcPlanSetScalar(StepcPlan *plan, int64_t group,
                                         const char *name, double value);

/* What the definition reports under a name: the value of the last step that
 * came to it, NaN before there was one. */
STEPC_API StepcStatus stepcPlanGetReport(const StepcPlan *plan, int64_t group,
                                         const char *name, double *outValue);

/* What the last step did; all 0 and no round before there was one. */
typedef struct StepcLastStep {
  size_t structSize;    /* sizeof(StepcLastStep), set by the caller */
  int32_t skipped;      /* 1: the definition skipped it */
  int32_t skippedRound; /* the round that said so, else -1 */
  int64_t numTensors;   /* that took part */
} StepcLastStep;
STEPC_API StepcStatus stepcPlanGetLastStep(const StepcPlan *plan,
                                           StepcLastStep *out);

/* Counters since the plan was made, for tests and tools. A caller of an earlier
 * version gets the fields that it knows. On a device it waits for the stream
 * where steps may be skipped or traversals left out; while that captures a
 * graph, and of a plan that has failed, skippedSteps and leftOut are 0. */
typedef struct StepcPlanInfo {
  size_t structSize; /* sizeof(StepcPlanInfo), set by the caller */
  int64_t numTensors;
  int64_t numGroups;
  int64_t numChunks;
  int64_t steps;           /* that succeeded */
  int64_t parallelRegions; /* one a step or part of one; none when the work is
                              too little to wake threads for */
  int64_t bytesAllocated;  /* by the plan, states included */
  int64_t workspaceBytes;  /* of these, what tensors use one after the other */
  int64_t rounds;          /* between segments of steps */
  int64_t skippedSteps;    /* of `steps` */
  int64_t exchangeRounds;  /* in which ranks combined anything */
  int64_t exchangeCalls;   /* of the communicator's groups, in these; and
                              transfers of gradients and parameters */
  int64_t exchangeBytes;   /* of this rank's elements, in these; and what it
                              sends to others in transfers */
  int64_t leftOut;         /* traversals of tensors that their last step was
                              able to leave out */
  int64_t deviceBytes;     /* in device memory, states included */
  int64_t deviceLaunches;  /* of kernels */
  int64_t deviceStores;    /* of these, to tell the device of changes */
} StepcPlanInfo;
STEPC_API StepcStatus stepcPlanGetInfo(const StepcPlan *plan,
                                       StepcPlanInfo *out);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_STEPC_H */
