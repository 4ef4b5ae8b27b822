//===- TransferBind.cpp - buckets, and memory for what crosses ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Transfers.h"

#include "core/Fault.h"
#include "core/Reserve.h"
#include "core/Status.h"

#include <algorithm>
#include <utility>

using namespace stepc;

/// A definition with rounds needs all gradients first, and what is carried from
/// step to step is of whole steps.
static bool permitParts(const Manifest &manifest) {
  return manifest.rounds.empty() &&
         std::all_of(manifest.variants.begin(), manifest.variants.end(),
                     [](const Variant &variant) {
                       return variant.subsets && variant.carried.empty();
                     });
}

Transfers::Transfers(const Manifest &manifest, const Exchange &exchange)
    : exchange(exchange), parts(permitParts(manifest)) {}

View stepc::makeEntryView(const EntryTensor &tensor, const EntryTerms &terms,
                          bool isGrad) {
  return {isGrad ? tensor.grad : tensor.param, int64_t(tensor.shape.size()),
          tensor.shape.data(), tensor.strides.data(),
          getByteSize(isGrad ? tensor.gradType : terms.param)};
}

const Mesh &Transfers::getMesh() const { return exchange.getMesh(); }

/// What a rank sends and receives where each has its piece of the line.
static void setBytes(const EntryTerms &terms, TransferStage &stage) {
  int64_t item = getByteSize(terms.wire);
  for (size_t r = 0; r < size_t(stage.size); ++r) {
    stage.sent.push_back((stage.line[r + 1] - stage.line[r]) * item);
    stage.received.push_back(stage.getOwn() * item);
  }
}

/// The stages through which the gradients of a bucket go, and where in what is
/// packed the elements of its members are: for the first stage the pieces of
/// the ranks side by side, in each the members'.
void Transfers::place(TransferBucket &bucket,
                      std::vector<EntryTensor> &created) const {
  const EntryTerms &terms = bucket.terms;
  const Mesh &mesh = getMesh();
  auto makeStage = [&](uint64_t axes) {
    TransferStage stage;
    stage.axes = axes & mesh.getWideAxes();
    stage.size = mesh.getGroupSize(axes);
    stage.rank = mesh.getGroupRank(axes);
    return stage;
  };
  int64_t at = 0;
  if (uint64_t axes = terms.getScatterAxes()) {
    TransferStage &stage = bucket.scatter = makeStage(axes);
    for (size_t r = 0; r < size_t(stage.size); ++r) {
      stage.line.push_back(at);
      for (size_t member : bucket.members) {
        EntryTensor &tensor = created[member];
        int64_t first = tensor.cuts[r], last = tensor.cuts[r + 1];
        if (first < last)
          tensor.pieces.push_back({first, last, at});
        at += last - first;
      }
    }
    stage.line.push_back(at);
    setBytes(terms, stage);
  } else if (terms.getReduceAxes()) {
    for (size_t member : bucket.members) {
      EntryTensor &tensor = created[member];
      if (tensor.begin < tensor.end)
        tensor.pieces.push_back({tensor.begin, tensor.end, at});
      at += tensor.end - tensor.begin;
    }
  }
  if (uint64_t axes = terms.getReduceAxes()) {
    TransferStage &stage = bucket.reduce = makeStage(axes);
    stage.line = cutEvenly(bucket.ownElements, stage.size);
    setBytes(terms, stage);
    for (size_t r = 0; r < size_t(stage.size); ++r)
      bucket.summed.push_back((stage.line[r + 1] - stage.line[r]) *
                              getByteSize(terms.sum));
  }
}

size_t TransferBucket::getSendBytes() const {
  int64_t item = getByteSize(terms.wire);
  if (scatters())
    return roundUpToLine(scatter.line.back() * item);
  return reduces() ? roundUpToLine(ownElements * item) : 0;
}

/// Of sums.
static size_t getLandingBytes(const TransferBucket &bucket) {
  if (bucket.terms.isGradInPlace())
    return 0;
  return roundUpToLine(bucket.ownElements * getByteSize(bucket.terms.sum));
}

/// Bytes of the second stage of a bucket with two: the sums of the first, what
/// is sent, then what is received.
static size_t getScratchBytes(const TransferBucket &bucket) {
  if (!bucket.scatters() || !bucket.reduces())
    return 0;
  int64_t item = getByteSize(bucket.terms.wire);
  const TransferStage &stage = bucket.reduce;
  return roundUpToLine(bucket.ownElements * getByteSize(bucket.terms.sum)) +
         roundUpToLine(bucket.ownElements * item) +
         roundUpToLine(stage.getOwn() * stage.size * item);
}

void Transfers::takeMemory(NewTransfers &made, const TakeMemory &take) const {
  size_t bytes = 0, scratchBytes = scratch.size;
  for (const TransferBucket &bucket : made.buckets) {
    bytes = sumsShared ? std::max(bytes, getLandingBytes(bucket))
                       : bytes + getLandingBytes(bucket);
    scratchBytes = std::max(scratchBytes, getScratchBytes(bucket));
  }
  made.scratch = scratchBytes > scratch.size ? take(scratchBytes) : scratch;
  made.blocks.push_back(take(bytes + 64));
  uintptr_t next = made.blocks.back().address;
  for (TransferBucket &bucket : made.buckets) {
    bucket.landing = next;
    next += sumsShared ? 0 : getLandingBytes(bucket);
    uintptr_t at = bucket.landing;
    for (size_t member : bucket.members) {
      EntryTensor &tensor = made.tensors[member];
      tensor.landing = bucket.terms.isGradInPlace() ? 0 : at;
      at += uintptr_t((tensor.end - tensor.begin) *
                      getByteSize(bucket.terms.sum));
    }
  }
  auto grow = [&](const TransferRing &before, TransferRing &ring) {
    ring.memory = before.memory;
    ring.memory.resize(ring.sizes.size());
    for (size_t i = 0; i < ring.sizes.size(); ++i)
      if (ring.sizes[i] > ring.memory[i].size)
        ring.memory[i] = take(ring.sizes[i]);
  };
  grow(receiveRing, made.receive);
  grow(gatherRing, made.gather);
  made.sends = makeSends(made, take);
}

/// As many memories as buckets cross at a time, of the size of the largest.
SendPool Transfers::makeSends(const NewTransfers &made,
                              const TakeMemory &take) const {
  SendPool pool = sends;
  size_t size = sends.size;
  for (const TransferBucket &bucket : made.buckets)
    size = std::max(size, bucket.getSendBytes());
  if (size > sends.size) {
    pool.size = size;
    pool.memory.clear();
  }
  while (size > 0 && pool.memory.size() < made.receive.sizes.size())
    pool.memory.push_back(take(size));
  pool.free.reserve(pool.memory.size());
  return pool;
}

void Transfers::reserveSends(const std::vector<size_t> &list,
                             const TakeMemory &take) {
  size_t needed = 0, last = SIZE_MAX;
  for (size_t tensor : list) {
    size_t own = tensors[tensor].bucket;
    // Those of a bucket that come one after the other need one memory.
    bool brought = pass || !buckets[own].landed;
    if (own != last && brought && !buckets[own].send &&
        buckets[own].getSendBytes())
      ++needed;
    last = own;
  }
  growSends(needed, take);
}

/// At the end of a pass those cross, too, of which nothing has been packed, so
/// many at a time.
void Transfers::reserveRest(const TakeMemory &take) {
  auto unpacked = size_t(std::count_if(
      buckets.begin(), buckets.end(), [](const TransferBucket &bucket) {
        return !bucket.done && !bucket.send && bucket.getSendBytes();
      }));
  growSends(std::min(unpacked, receiveRing.sizes.size()), take);
}

void Transfers::growSends(size_t needed, const TakeMemory &take) {
  while (sends.free.size() < needed) {
    reserveAtLeast(sends.memory, sends.memory.size() + 1);
    reserveAtLeast(sends.free, sends.memory.size() + 1);
    sends.memory.push_back(take(sends.size));
    sends.free.push_back(sends.memory.back().address);
  }
}

void Transfers::addPlaces(NewTransfers &made) const {
  size_t next = numPlaces;
  auto take = [&](size_t count) {
    size_t first = next;
    next += count;
    return first;
  };
  for (TransferBucket &bucket : made.buckets) {
    for (size_t member : bucket.members)
      made.tensors[member].place = take(made.tensors[member].pieces.size());
    bucket.place = take(bucket.scatters() && bucket.reduces());
  }
  for (GatherUnit &unit : made.units)
    unit.place = take(unit.own.size() + unit.others.size());
  made.numPlaces = next;
}

/// Whether parts of more than one tensor are gathered.
static bool hasSeveral(const GatherUnit &unit) {
  size_t first = (unit.own.empty() ? unit.others : unit.own)[0].tensor;
  auto differs = [&](const GatherSegment &segment) {
    return segment.tensor != first;
  };
  return std::any_of(unit.own.begin(), unit.own.end(), differs) ||
         std::any_of(unit.others.begin(), unit.others.end(), differs);
}

NewTransfers Transfers::prepare(std::vector<EntryTensor> created,
                                const std::vector<EntryTerms> &terms,
                                const TakeMemory &take) {
  NewTransfers made = cutTensors(getMesh(), bucketSizes, owners, buckets.size(),
                                 std::move(created), terms);
  for (TransferBucket &bucket : made.buckets)
    place(bucket, made.tensors);
  made.units = makeGatherUnits(getMesh(), made, tensors.size(), buckets.size(),
                               bucketSizes.parameters);
  for (const GatherUnit &unit : made.units)
    if (unit.inPlace && hasSeveral(unit))
      for (const auto *list : {&unit.own, &unit.others})
        for (const GatherSegment &segment : *list)
          made.tensors[segment.tensor - tensors.size()].beside = true;
  addEvents(made);
  addPlaces(made);
  takeMemory(made, take);
  for (TransferBucket &bucket : made.buckets)
    for (size_t &member : bucket.members)
      member += tensors.size();
  return made;
}

/// All of it is taken before anything changes. What passes had brought is gone.
void Transfers::renew(const TakeMemory &take) {
  auto takeLike = [&](const std::vector<Memory> &before) {
    std::vector<Memory> fresh(before.size());
    for (size_t i = 0; i < before.size(); ++i)
      if (before[i].size)
        fresh[i] = take(before[i].size);
    return fresh;
  };
  std::vector<Memory> receive = takeLike(receiveRing.memory);
  std::vector<Memory> gather = takeLike(gatherRing.memory);
  std::vector<Memory> second = takeLike({scratch});
  std::vector<Memory> sent = takeLike(sends.memory);
  std::vector<Memory> fresh = takeLike(blocks);
  auto move = [&](uintptr_t &address) {
    for (size_t i = 0; i < blocks.size(); ++i)
      if (address - blocks[i].address < blocks[i].size) {
        address += fresh[i].address - blocks[i].address;
        return;
      }
  };
  for (TransferBucket &bucket : buckets)
    move(bucket.landing);
  for (EntryTensor &tensor : tensors)
    if (tensor.landing)
      move(tensor.landing);
  receiveRing.memory.swap(receive);
  gatherRing.memory.swap(gather);
  std::swap(scratch, second[0]);
  sends.memory.swap(sent);
  fresh.reserve(blocks.capacity());
  blocks.swap(fresh);
  stale = false;
  forget();
}

void Transfers::reserve(const NewTransfers &made) {
  reserveAtLeast(tensors, tensors.size() + made.tensors.size());
  reserveAtLeast(converting, made.numPlaces);
  for (const TransferBucket &bucket : made.buckets)
    reserveAtLeast(told, 1 + 2 * bucket.members.size());
  reserveAtLeast(buckets, buckets.size() + made.buckets.size());
  reserveAtLeast(units, units.size() + made.units.size());
  reserveAtLeast(blocks, blocks.size() + made.blocks.size());
}

void Transfers::commit(NewTransfers &&made) noexcept {
  auto append = [](auto &list, auto &more) {
    for (auto &element : more)
      list.push_back(std::move(element));
  };
  append(tensors, made.tensors);
  append(buckets, made.buckets);
  append(units, made.units);
  append(blocks, made.blocks);
  events = std::move(made.events);
  beginGive = made.beginGive;
  numPlaces = made.numPlaces;
  receiveRing = std::move(made.receive);
  gatherRing = std::move(made.gather);
  sends = std::move(made.sends);
  scratch = std::move(made.scratch);
  owners = std::move(made.owners);
}

size_t Transfers::getBytes() const {
  return tensors.capacity() * sizeof(EntryTensor) +
         buckets.capacity() * sizeof(TransferBucket) +
         units.capacity() * sizeof(GatherUnit) +
         events.capacity() * sizeof(TransferEvent) +
         converting.capacity() * sizeof(ConvertPiece);
}

size_t Transfers::getBufferBytes() const {
  size_t bytes = scratch.size;
  for (const auto *list :
       {&blocks, &receiveRing.memory, &gatherRing.memory, &sends.memory})
    for (const Memory &memory : *list)
      bytes += memory.size;
  return bytes;
}
