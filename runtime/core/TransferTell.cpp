//===- TransferTell.cpp - which gradients there are on any rank -----------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In a backward pass a rank does not know which gradients others are going to
// have. So the ranks of a bucket tell each other as it lands, and not behind
// the pass: whoever has all gradients waits for the bucket in the middle of its
// pass, where nobody could answer another call.
//
// A rank whose pass has ended with an error gives up the buckets that it has
// not completed: they cross, as others wait for them, and no rank steps them.
//
//===----------------------------------------------------------------------===//

#include "core/Fault.h"
#include "core/Status.h"
#include "core/Transfers.h"

#include <algorithm>

using namespace stepc;

/// Of a bucket all of whose members this rank lacks it still sends zeros, to
/// those who have them.
void Transfers::setAbsent(size_t index) noexcept {
  TransferBucket &bucket = buckets[tensors[index].bucket];
  tensors[index].absent = true;
  bucket.takesPart |= bucket.crosses();
  ++bucket.numReady;
}

void Transfers::giveUp() noexcept {
  gaveUp = true;
  for (TransferBucket &bucket : buckets)
    bucket.givenUp = bucket.numReady < bucket.members.size();
}

bool Transfers::mayHaveHalfStepped() const {
  return std::any_of(buckets.begin(), buckets.end(), [](const auto &bucket) {
    return bucket.givenUp && bucket.terms.isGradInPlace();
  });
}

std::string Transfers::describeWhoGaveUp() const {
  return "rank " + std::to_string(givenUpBy) + " along " +
         getMesh().describe(givenUpOver);
}

/// First who gives the bucket up, then of each member whether its gradient has
/// come; and the negative, where all ranks have the same gradient or none.
void Transfers::tellGradients(TransferBucket &bucket) {
  const EntryTerms &terms = bucket.terms;
  uint64_t axes =
      (terms.wholeAxes | terms.partialAxes) & getMesh().getWideAxes();
  size_t count = bucket.members.size();
  told.assign(1, bucket.givenUp ? 1 + getMesh().getGroupRank(axes) : 0);
  for (size_t member : bucket.members)
    told.push_back(tensors[member].ready);
  for (size_t i = 0; terms.isGradInPlace() && i < count; ++i)
    told.push_back(-told[1 + i]);
  tell(axes, bucket);
  if (told[0] != 0) {
    givenUpBy = told[0] - 1;
    givenUpOver = axes;
  }
  bucket.givenUp = told[0] != 0;
  bucket.takesPart = false;
  for (size_t i = 0; i < count; ++i) {
    EntryTensor &tensor = tensors[bucket.members[i]];
    if (!bucket.givenUp && terms.isGradInPlace() &&
        told[1 + i] != -told[1 + count + i])
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s has a gradient on some ranks and none on others, all of "
           "which are to have the same",
           tensor.name.c_str());
    tensor.ready = told[1 + i] != 0 && !bucket.givenUp &&
                   (tensor.ready || !STEPC_FAULT("transfer-others-not-told"));
    bucket.takesPart |= tensor.ready;
  }
}
