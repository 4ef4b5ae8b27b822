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
// checkpoint. One of stepcStoreOpen has a name and stays: whatever moment its
// process or machine ends at, it has what was committed last.
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
/* A store in the file `name` of the directory, which is made where it is not
 * there. What was taken and committed of it before is there again, at addresses
 * that stepcStoreGetAddress gives. STEPC_STORE_ERROR for a file that another
 * store has open, that is none of states, of another format, or not whole; it
 * has not changed then. It takes twice the room: what steps and calls write
 * lies beside what was committed. */
STEPC_API StepcStatus stepcStoreOpen(const StepcStoreConfig *config,
                                     const char *name, StepcStore **out);
/* Has what is now in it, and what is taken, be what the file has, with `bytes`
 * of a note, on the disk itself. All of it or nothing. After an error the file
 * has what it had, or where that is not known, all that would be written is
 * refused from then on; opened anew it has one of the two. */
STEPC_API StepcStatus stepcStoreCommit(StepcStore *store, const void *note,
                                       int64_t bytes);
typedef struct StepcStoreCommitted {
  size_t structSize;  /* sizeof(StepcStoreCommitted), set by the caller */
  int64_t generation; /* how many commits the file has had */
  const void *note;   /* of the last, until the next */
  int64_t noteBytes;
} StepcStoreCommitted;
STEPC_API StepcStatus stepcStoreGetCommitted(const StepcStore *store,
                                             StepcStoreCommitted *out);
/* Undoes the last commit, since which nothing was written: opened anew the file
 * has the one before, as ranks want of which one has not come so far. Until
 * then nothing can be written. */
STEPC_API StepcStatus stepcStoreRetreat(StepcStore *store);
/* Where in a store an address is, which stays so in its file; and the address
 * of so many bytes that were taken at once. */
STEPC_API StepcStatus stepcStoreGetOffset(const StepcStore *store,
                                          const void *address, int64_t *out);
STEPC_API StepcStatus stepcStoreGetAddress(const StepcStore *store,
                                           int64_t offset, int64_t bytes,
                                           void **out);
/* Closes the file, whatever has the store: what lies in it is out of reach, and
 * others may open it. Not within a step. */
STEPC_API StepcStatus stepcStoreClose(StepcStore *store);
/* Gives up the handle; the plans that have the store keep it. Accepts NULL. */
/* Lets others open the file of a store that stays, which can be read and
 * written all the same; lock takes it back: STEPC_STORE_ERROR where somebody
 * has opened it meanwhile. */
STEPC_API StepcStatus stepcStoreUnlock(StepcStore *store);
STEPC_API StepcStatus stepcStoreLock(StepcStore *store);

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
 * it. A state that is kept as codes lies there with its scales or not at all,
 * and not in a plan on a CUDA device. Each begins where something was taken. A
 * step whose reads or writes fail is refused with STEPC_STORE_ERROR; it poisons
 * the plan where something was stepped before, or other ranks have gone on,
 * which the message says. Where other ranks wait for what this one does in the
 * rest of a step in parts, its end is refused, and not the part. */
STEPC_API StepcStatus stepcPlanSetStore(StepcPlan *plan, StepcStore *store);

#ifdef __cplusplus
}
#endif

#endif /* STEPC_STORE_H */
