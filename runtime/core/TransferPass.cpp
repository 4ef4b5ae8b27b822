//===- TransferPass.cpp - what backward passes have brought ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Status.h"
#include "core/Transfers.h"

using namespace stepc;

void Transfers::endPass() noexcept {
  for (EntryTensor &tensor : tensors)
    tensor.landed |= tensor.ready;
  for (TransferBucket &bucket : buckets)
    bucket.landed |= bucket.takesPart;
}

void Transfers::forget() noexcept {
  for (EntryTensor &tensor : tensors)
    tensor.landed = false;
  for (TransferBucket &bucket : buckets)
    bucket.landed = false;
}

/// Refuses tensors of which this rank has other parts; there may be more.
void Transfers::requireLike(const Transfers &from) const {
  if (tensors.size() < from.tensors.size())
    fail(STEPC_INVALID_ARGUMENT,
         "%zu tensors with an entry are bound, in the other plan %zu",
         tensors.size(), from.tensors.size());
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    const EntryTensor &own = tensors[i], &other = from.tensors[i];
    if (own.shape != other.shape || own.begin != other.begin ||
        own.end != other.end || getTerms(own).sum != from.getTerms(other).sum ||
        !own.landing != !other.landing)
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s is in the other plan tensor %s, of which this rank has "
           "another part",
           own.name.c_str(), other.name.c_str());
  }
}

void Transfers::takeLanded(const Transfers &from, Engine &engine) {
  requireLike(from);
  converting.clear();
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    const EntryTensor &own = tensors[i];
    Storage sum = getTerms(own).sum;
    if (from.tensors[i].landed && own.begin < own.end)
      converting.push_back({from.tensors[i].landing, own.landing,
                            own.end - own.begin, sum, sum, 1.0, own.place});
  }
  engine.convert(converting.data(), converting.size());
  for (size_t i = 0; i < from.tensors.size(); ++i) {
    tensors[i].landed = from.tensors[i].landed;
    buckets[tensors[i].bucket].landed |= tensors[i].landed;
  }
}
