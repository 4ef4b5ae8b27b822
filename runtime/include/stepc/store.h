//===- store.h - states that lie on disk ----------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A store is memory in a file: states that a plan need not have in memory
// between steps (docs/placement.md). What is taken of it has an address that
// nobody can read or write, and is bound as a state like any other:
//
//   stepcStoreCreate -> stepcPlanSetStore -> stepcStoreTake -> stepcPlanBind
//   -> stepcStep -> stepcStoreRead
//
// Steps read what they work on into windows of memory, and write it back, with
// other windows on their way meanwhile. Their results are those of states in
// memory, to the bit. The file has no name and goes with the store: it is no
// checkpoint.
//
// Functions of a store may be called by any thread, but not for what a step
// works on. A process that is forked may read, and give up handles and plans;
// what would change the file is refused with STEPC_STORE_ERROR.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_STORE_H
#define STEPC_STORE_H

#include "stepc/stepc.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StepcStore StepcStore;

typedef struct StepcStoreConfig {
  size_t structSize;     /* sizeof(StepcStoreConfig) */
  const char *directory; /* where the file is made */
  int64_t windowBytes; /* of one window, 4096 to 2^34; 0: 8 MiB. A tensor whose
                          states cannot be cut has a larger one */
  int32_t numWindows;  /* 2 to 64; 0: 4 */
  int32_t numThreads;  /* that read and write, 1 to 64; 0: 4 */
  int32_t buffered;    /* 1: through the system's cache; 0: past it, where the
                          file system can */
  int32_t reserved0;   /* must be 0 */
} StepcStoreConfig;

STEPC_API StepcStatus stepcStoreCreate(const StepcStoreConfig *config,
                                       StepcStore **out);
/* Gives up the handle; the plans that have the store keep it. Accepts NULL. */
STEPC_API void stepcStoreDestroy(StepcStore *store);

/* So many bytes, zeros, and their address, a multiple of 4096. The file's room
 * is taken here: STEPC_STORE_ERROR where the disk has none. */
STEPC_API StepcStatus stepcStoreTake(StepcStore *store, int64_t bytes,
                                     void **out);
/* Gives back what was taken, and is bound to no plan any more. */
STEPC_API StepcStatus stepcStoreGive(StepcStore *store, void *address);

/* Copies bytes out of what was taken at once, or into it. Of 0 bytes the memory
 * may be NULL. */
STEPC_API StepcStatus stepcStoreRead(StepcStore *store, const void *address,
                                     int64_t bytes, void *out);
STEPC_API StepcStatus stepcStoreWrite(StepcStore *store, void *address,
                                      int64_t bytes, const void *from);

typedef struct StepcStoreInfo {
  size_t structSize;    /* sizeof(StepcStoreInfo), set by the caller */
  int64_t fileBytes;    /* of the file */
  int64_t takenBytes;   /* of them taken now */
  int64_t bytesRead;    /* by steps and calls, since the store was made */
  int64_t bytesWritten; /* likewise */
  int64_t windowBytes;
  int32_t numWindows;
  int32_t direct; /* 1: past the system's cache */
} StepcStoreInfo;

STEPC_API StepcStatus stepcStoreGetInfo(const StepcStore *store,
                                        StepcStoreInfo *out);

/* Says in which store states may lie, before anything is bound; the plan keeps
 * it. On the processor. A state that is kept as codes lies there with its
 * scales or not at all. Each begins where something was taken. A step whose
 * reads or writes fail is refused with STEPC_STORE_ERROR; it poisons the plan
 * where something was stepped before, which the message says. */
STEPC_API StepcStatus stepcPlanSetStore(StepcPlan *plan, StepcStore *store);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_STORE_H */
