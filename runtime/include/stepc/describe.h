//===- describe.h - what tensors would get --------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which rule and variant a tensor gets, and which states it has, is asked here:
// of a definition before there is a package, to make states and to ask the
// compiler for variants; of a package before there is a plan. stepcPlanBind
// decides by the same code. Objects are immutable and may be shared by threads.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DESCRIBE_H
#define STEPC_DESCRIBE_H

#include "stepc/stepc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StepcInterface StepcInterface;

/* Reads what `stepc --interface` prints of a definition, or the text of a
 * manifest (stepcPackageManifest): JSON of `size` bytes.
 * STEPC_CORRUPT_PACKAGE, or of a manifest STEPC_VERSION_MISMATCH. */
STEPC_API StepcStatus stepcInterfaceLoad(const char *json, size_t size,
                                         StepcInterface **out);

/* Gives up the handle; what was described stays. Accepts NULL. */
STEPC_API void stepcInterfaceDestroy(StepcInterface *interface);

/* The values of all options of a group, in the order of the interface, those
 * that follow from hyper-parameters too. Arguments are those of
 * stepcPlanAddGroup; `outValues` has room for each option. */
STEPC_API StepcStatus stepcInterfaceResolve(const StepcInterface *interface,
                                            const StepcOption *options,
                                            int64_t numOptions,
                                            const double *hypers,
                                            int64_t numHypers,
                                            int64_t *outValues);

/* A tensor to ask about. Zero is what most have, but for the first fields. */
typedef struct StepcTensorQuery {
  size_t structSize;      /* sizeof(StepcTensorQuery) */
  const char *name;       /* in messages; NULL: its place in the list */
  const int64_t *options; /* of its group, as by stepcInterfaceResolve */
  const int64_t *shape;   /* of the whole tensor, ndim extents */
  int32_t ndim;
  int32_t flat;         /* 1: the rank has elements [begin, end) in row-major
                           order */
  const int64_t *part;  /* extents of what the rank has; NULL: all, and with
                           flat NULL */
  uint64_t shardedDims; /* bit k: ranks share dim k; with flat 0 */
  int64_t begin; /* of a part the index of its first element in the whole, on
                    which the scales depend of states that are codes */
  int64_t end;
  DLDataType param;   /* bits 0: no variant is asked for */
  DLDataType grad;    /* as the kernel reads it; bits 0: as param */
  const char *master; /* the state that the f32 of the parameter is kept in,
                         "master" or "remainder"; NULL: none */
  int32_t rounds;     /* 1: a variant that rounds by random bits, where the
                         package has one */
  int32_t reserved;   /* 0 */
  const char *const *coded; /* names of states that are kept as codes where
                               that saves memory; NULL: none. Callers of
                               an earlier version do not have the field */
  int64_t numCoded;         /* nor this */
  const int32_t *formats;   /* a StepcStateFormat for each of `coded`; NULL: all
                               are STEPC_STATE_Q8. Nor this */
  const int64_t *least;     /* for each of `coded` of how many elements, of
                               the whole state, one is that is worth it; 0:
                               4096, as NULL for all. Nor this */
} StepcTensorQuery;

typedef struct StepcRuleDescription {
  size_t structSize;
  const char *name;
  const char *const *dims; /* as the definition has them: "...b", "n", "1" */
  int64_t numDims;
  const char *const *unshardable; /* of these, those that ranks cannot share */
  int64_t numUnshardable;
  int32_t needsMatrices; /* 1: no rank can step a range of the elements, as
                            there are products of matrices */
  int32_t reserved;
  int64_t line; /* where the definition says so; 0: not known */
  int64_t column;
} StepcRuleDescription;

typedef struct StepcStateDescription {
  size_t structSize;
  const char *name;
  const char *const *dims;
  int64_t numDims;
  int32_t ndim;             /* of the state beside the whole tensor */
  int32_t partNdim;         /* and beside the rank's part */
  const int64_t *shape;     /* ndim extents */
  const int64_t *part;      /* partNdim extents */
  const int32_t *paramDims; /* for each of ndim the dim of the parameter that it
                               is; -1: none, it is cut where no dim is */
  double initialValue;
  int64_t bytes;    /* of the part; 0 without a variant */
  DLDataType dtype; /* bits 0 without a variant */
  int32_t exists;   /* 0: the options of the group are without it */
  int32_t isFull;   /* 1: it has the parameter's dims, and may lie as it does */
  int32_t format;   /* a StepcStateFormat; `dtype` is that of the codes */
  int32_t scaleNdim; /* of the scales beside the whole tensor; 0: none */
  int32_t scalePartNdim;
  const int64_t *scaleShape; /* and beside the rank's part */
  const int64_t *scalePart;
  int32_t codeNdim; /* of the codes beside the whole tensor; 0: none. Of formats
                       with one code in an element it is `shape` */
  int32_t codePartNdim;
  const int64_t *codeShape; /* and beside the rank's part */
  const int64_t *codePart;
} StepcStateDescription;

typedef struct StepcTensorDescription {
  size_t structSize;
  const StepcRuleDescription *rule; /* NULL: none takes the tensor */
  int64_t variant;                  /* its index in the manifest; -1: none */
  const StepcStateDescription *const *states; /* of the variant in the order of
                                                 a binding, else of the rule */
  int64_t numStates;
  const char *cutDim;  /* the first dim that ranks share and the rule cannot;
                          "flat range" is one; NULL: none */
  const char *refusal; /* why there is no rule, no variant or no such state, as
                          stepcPlanBind says it; NULL: nothing is missing */
  int32_t status;      /* StepcStatus of the refusal */
  int32_t isShared;  /* 1: all threads of a plan work on the tensor together */
  int64_t elements;  /* of the rank's part */
  int64_t keptBytes; /* that a plan keeps for the tensor between steps, beside
                        states; this and what follows 0 without a variant */
  int64_t workspaceBytes;       /* that a traversal of it takes */
  const int64_t *bufferEntries; /* of each buffer of the variant's workspace */
  int64_t numBuffers;
  double flops; /* of products and decompositions of a step of the rank's part,
                   with or without a variant. What is done in some steps counts
                   with their share, by the defaults of hyper-parameters */
  double cost; /* of a step of it, by which owners are chosen: these, and 10 for
                  each byte that is moved where numbers have four */
} StepcTensorDescription;

/* Owns all that it points to; structures are those of the library, of which a
 * caller of an earlier version knows the first fields. */
typedef struct StepcDescription {
  size_t structSize;
  int64_t numTensors;
  const StepcTensorDescription *const *tensors; /* in the order of queries */
} StepcDescription;

/* Describes tensors. That no rule or variant takes one is an answer; refused
 * are tensors that cannot be: STEPC_INVALID_ARGUMENT, STEPC_SHAPE_MISMATCH,
 * STEPC_DTYPE_MISMATCH. */
STEPC_API StepcStatus stepcInterfaceDescribe(const StepcInterface *interface,
                                             const StepcTensorQuery *queries,
                                             int64_t n,
                                             const StepcDescription **out);

/* Who of `numRanks` steps which of n tensors of these costs: the dearest first,
 * each to who has least, of several the first; of equal ones the first first.
 * stepcPlanBind chooses so among those that one call binds. `loads` has for
 * each rank the costs of what it owns before and behind the call; NULL: nothing
 * before. STEPC_INVALID_ARGUMENT for a cost that is no number from 0 on. */
STEPC_API StepcStatus stepcChooseOwners(const double *costs, int64_t n,
                                        int64_t numRanks, double *loads,
                                        int64_t *outOwners);

/* Accepts NULL. */
STEPC_API void stepcDescriptionDestroy(const StepcDescription *description);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_DESCRIBE_H */
