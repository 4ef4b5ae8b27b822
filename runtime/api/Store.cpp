//===- Store.cpp - the C ABI of states on disk --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "api/StoreHandle.h"
#include "core/Status.h"

#include <algorithm>

using namespace stepc;

/// A field of the configuration, or what stands for 0.
static int64_t requireField(const char *name, int64_t given, int64_t least,
                            int64_t most, int64_t otherwise) {
  if (given == 0)
    return otherwise;
  if (given < least || given > most)
    fail(STEPC_INVALID_ARGUMENT, "%s of a store is %lld, outside %lld to %lld",
         name, static_cast<long long>(given), static_cast<long long>(least),
         static_cast<long long>(most));
  return given;
}

static store::StoreConfig readConfig(const StepcStoreConfig &given) {
  requireStructSize(&given, sizeof(given), "StepcStoreConfig");
  requireNotNull(given.directory, "directory");
  if (given.buffered != 0 && given.buffered != 1)
    fail(STEPC_INVALID_ARGUMENT, "buffered is %d, neither 0 nor 1",
         int(given.buffered));
  if (given.reserved0 != 0)
    fail(STEPC_INVALID_ARGUMENT, "a reserved field of the config is not 0");
  store::StoreConfig config = {};
  config.windowBytes =
      requireField("windowBytes", given.windowBytes, store::kPage,
                   int64_t(1) << 34, int64_t(8) << 20);
  config.numWindows =
      int32_t(requireField("numWindows", given.numWindows, 2, 64, 4));
  config.numThreads =
      int32_t(requireField("numThreads", given.numThreads, 1, 64, 4));
  return config;
}

StepcStatus stepcStoreCreate(const StepcStoreConfig *config, StepcStore **out) {
  return guarded([&] {
    requireNotNull(config, "config");
    requireNotNull(out, "out");
    store::StoreConfig own = readConfig(*config);
    auto made = std::make_unique<StepcStore>();
    made->store = std::make_shared<store::Store>(
        store::openFile(config->directory, !config->buffered), own);
    *out = made.release();
  });
}

StepcStatus stepcStoreOpen(const StepcStoreConfig *config, const char *name,
                           StepcStore **out) {
  return guarded([&] {
    requireNotNull(config, "config");
    requireNotNull(name, "name");
    requireNotNull(out, "out");
    store::StoreConfig own = readConfig(*config);
    auto made = std::make_unique<StepcStore>();
    made->store = std::make_shared<store::Store>(
        store::openNamed(config->directory, name, !config->buffered), own,
        /*durable=*/true);
    *out = made.release();
  });
}

StepcStatus stepcStoreCommit(StepcStore *store, const void *note,
                             int64_t bytes) {
  return guarded([&] {
    requireNotNull(store, "store");
    if (bytes < 0)
      fail(STEPC_INVALID_ARGUMENT, "a note has %lld bytes",
           static_cast<long long>(bytes));
    if (bytes != 0)
      requireNotNull(note, "note");
    store->store->commit(note, bytes);
  });
}

StepcStatus stepcStoreGetCommitted(const StepcStore *store,
                                   StepcStoreCommitted *out) {
  return guarded([&] {
    requireNotNull(store, "store");
    requireNotNull(out, "out");
    requireStructSize(out, sizeof(*out), "StepcStoreCommitted");
    const store::Store::Committed own = store->store->getCommitted();
    out->generation = own.generation;
    out->note = own.note->data();
    out->noteBytes = int64_t(own.note->size());
  });
}

StepcStatus stepcStoreGetOffset(const StepcStore *store, const void *address,
                                int64_t *out) {
  return guarded([&] {
    requireNotNull(store, "store");
    requireNotNull(out, "out");
    auto own = reinterpret_cast<uintptr_t>(address);
    store->store->requireTaken(own, 0);
    *out = store->store->getOffset(own);
  });
}

StepcStatus stepcStoreGetAddress(const StepcStore *store, int64_t offset,
                                 int64_t bytes, void **out) {
  return guarded([&] {
    requireNotNull(store, "store");
    requireNotNull(out, "out");
    uintptr_t address = store->store->getAddress(offset);
    store->store->requireTaken(address, bytes);
    *out = reinterpret_cast<void *>(address);
  });
}

StepcStatus stepcStoreRetreat(StepcStore *store) {
  return guarded([&] {
    requireNotNull(store, "store");
    store->store->retreat();
  });
}

StepcStatus stepcStoreClose(StepcStore *store) {
  return guarded([&] {
    requireNotNull(store, "store");
    store->store->getFile().close();
  });
}

StepcStatus stepcStoreUnlock(StepcStore *store) {
  return guarded([&] {
    requireNotNull(store, "store");
    store->store->getFile().unlock();
  });
}

StepcStatus stepcStoreLock(StepcStore *store) {
  return guarded([&] {
    requireNotNull(store, "store");
    store::File &file = store->store->getFile();
    if (!file.lock())
      fail(STEPC_STORE_ERROR, "%s is open in another optimizer or process",
           file.getName().c_str());
  });
}

void stepcStoreDestroy(StepcStore *store) { delete store; }

StepcStatus stepcStoreTake(StepcStore *store, int64_t bytes, void **out) {
  return guarded([&] {
    requireNotNull(store, "store");
    requireNotNull(out, "out");
    *out = reinterpret_cast<void *>(store->store->take(bytes));
  });
}

StepcStatus stepcStoreGive(StepcStore *store, void *address) {
  return guarded([&] {
    requireNotNull(store, "store");
    store->store->give(reinterpret_cast<uintptr_t>(address));
  });
}

StepcStatus stepcStoreRead(StepcStore *store, const void *address,
                           int64_t bytes, void *out) {
  return guarded([&] {
    requireNotNull(store, "store");
    if (bytes != 0)
      requireNotNull(out, "out");
    store->store->read(reinterpret_cast<uintptr_t>(address), bytes, out);
  });
}

StepcStatus stepcStoreWrite(StepcStore *store, void *address, int64_t bytes,
                            const void *from) {
  return guarded([&] {
    requireNotNull(store, "store");
    if (bytes != 0)
      requireNotNull(from, "from");
    store->store->write(reinterpret_cast<uintptr_t>(address), bytes, from);
  });
}

StepcStatus stepcStoreGetInfo(const StepcStore *store, StepcStoreInfo *out) {
  return guarded([&] {
    requireNotNull(store, "store");
    requireNotNull(out, "out");
    requireStructSize(out, sizeof(*out), "StepcStoreInfo");
    const store::Store &own = *store->store;
    out->fileBytes = own.getFileBytes();
    out->takenBytes = own.getTakenBytes();
    out->bytesRead = own.getBytesRead();
    out->bytesWritten = own.getBytesWritten();
    out->windowBytes = own.getConfig().windowBytes;
    out->numWindows = own.getConfig().numWindows;
    out->direct = own.getFile().isDirect();
  });
}
