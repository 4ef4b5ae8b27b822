//===- TransferStep.cpp - what crosses in a step --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Transfers.h"

#include "core/Fault.h"
#include "core/Status.h"

#include <algorithm>

using namespace stepc;

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

void Transfers::begin(bool isPass, bool allTogether, bool ranksTell) noexcept {
  pass = isPass;
  telling = ranksTell;
  gaveUp = false;
  givenUpBy = -1;
  together = parts && allTogether;
  giving = false;
  callsBefore = numCalls;
  bytesBefore = numBytes;
  next = 0;
  sends.free.clear();
  for (const Memory &memory : sends.memory)
    sends.free.push_back(memory.address);
  for (TransferBucket &bucket : buckets) {
    // What passes have brought is complete.
    bool complete = bucket.landed && !pass;
    bucket.numReady = complete ? bucket.members.size() : 0;
    bucket.takesPart = complete;
    bucket.done = bucket.givenUp = false;
    bucket.send = 0;
  }
  for (EntryTensor &tensor : tensors) {
    tensor.packed = tensor.stepped = tensor.absent = false;
    tensor.ready = tensor.landed && !pass;
  }
}

void Transfers::uncount() noexcept {
  numCalls = callsBefore;
  numBytes = bytesBefore;
}

void Transfers::setReady(size_t index) noexcept {
  EntryTensor &tensor = tensors[index];
  tensor.ready = true;
  TransferBucket &bucket = buckets[tensor.bucket];
  bucket.takesPart = true;
  ++bucket.numReady;
}

/// In a pass all buckets cross, as the ranks may have gradients of different
/// tensors; and in a step that finds out of which.
void Transfers::closeAll() noexcept {
  for (TransferBucket &bucket : buckets) {
    bucket.numReady = bucket.members.size();
    bucket.takesPart |= (pass || telling) && bucket.crosses();
  }
}

/// There is one: reserveSends() has taken it, or the bucket's turn has come.
void Transfers::takeSend(TransferBucket &bucket) noexcept {
  if (bucket.send || !bucket.getSendBytes())
    return;
  bucket.send = sends.free.back();
  sends.free.pop_back();
}

void Transfers::freeSend(TransferBucket &bucket) noexcept {
  if (bucket.send)
    sends.free.push_back(bucket.send);
  bucket.send = 0;
}

/// Rounds a gradient to what crosses; what does not has no pieces. One that is
/// not there is an addend of zeros.
void Transfers::addPieces(EntryTensor &tensor) {
  TransferBucket &bucket = buckets[tensor.bucket];
  takeSend(bucket);
  const EntryTerms &terms = bucket.terms;
  tensor.packed = tensor.ready;
  size_t place = tensor.place;
  for (const Piece &piece : tensor.pieces)
    converting.push_back(
        {tensor.ready && tensor.hasGrad
             ? tensor.grad +
                   uintptr_t(piece.first * getByteSize(tensor.gradType))
             : 0,
         bucket.send + uintptr_t(piece.at * getByteSize(terms.wire)),
         piece.last - piece.first, tensor.gradType, terms.wire,
         terms.divideBefore ? terms.divisor : 1.0, place++});
}

void Transfers::pack(Engine &engine, const size_t *list, size_t count) {
  converting.clear();
  for (size_t i = 0; i < count; ++i)
    if (isBrought(buckets[tensors[list[i]].bucket]))
      addPieces(tensors[list[i]]);
  engine.convert(converting.data(), converting.size());
}

/// What of a bucket has not been packed.
void Transfers::packRest(TransferBucket &bucket, Engine &engine) {
  converting.clear();
  bool clears = bucket.crosses() && !STEPC_FAULT("transfer-absent-not-zero");
  for (size_t member : bucket.members)
    if (tensors[member].ready ? !tensors[member].packed : clears)
      addPieces(tensors[member]);
  engine.convert(converting.data(), converting.size());
}

void Transfers::startAllToAll(const TransferBucket &bucket,
                              const TransferStage &stage, uintptr_t send,
                              uintptr_t receive, void *&work, Engine &engine) {
  StepcTransfer transfer = {};
  transfer.axes = stage.axes;
  transfer.kind = STEPC_ALL_TO_ALL;
  transfer.send = reinterpret_cast<const void *>(send);
  transfer.receive = reinterpret_cast<void *>(receive);
  transfer.sendBytes = stage.sent.data();
  transfer.receiveBytes = stage.received.data();
  int64_t bytes = -stage.sent[size_t(stage.rank)];
  for (int64_t own : stage.sent)
    bytes += own;
  start(transfer, bytes, work, Subject{bucket, "gradients"}, engine);
}

void Transfers::start(const TransferEvent &event, Engine &engine) {
  TransferBucket &bucket = buckets[event.index];
  if (!isBrought(bucket))
    return;
  packRest(bucket, engine);
  if (!bucket.crosses())
    return;
  const TransferStage &stage = bucket.getFirst();
  if (stage.axes && stage.line.back() > 0)
    startAllToAll(bucket, stage, bucket.send,
                  receiveRing.memory[event.slot].address, bucket.work, engine);
}

/// Adds up what the ranks of a stage have sent of this rank's piece.
void Transfers::sum(const TransferStage &stage, uintptr_t rows,
                    uintptr_t target, const EntryTerms &terms, double divisor,
                    bool adds, Engine &engine) {
  int64_t own = stage.getOwn();
  RowSum work = {rows,       own,       stage.size, target, own,
                 terms.wire, terms.sum, divisor,    adds};
  if (STEPC_FAULT("transfer-sum-in-another-order")) {
    work.rows += uintptr_t(own * (stage.size - 1) * getByteSize(terms.wire));
    work.stride = -own;
  }
  engine.addUp(work);
}

/// Of what each rank has of the sum over others, the sum over these.
void Transfers::reduceAgain(TransferBucket &bucket, Engine &engine) {
  const EntryTerms &terms = bucket.terms;
  const TransferStage &stage = bucket.reduce;
  int64_t item = getByteSize(terms.wire);
  uintptr_t send = scratch.address +
                   roundUpToLine(bucket.ownElements * getByteSize(terms.sum));
  uintptr_t receive = send + roundUpToLine(bucket.ownElements * item);
  ConvertPiece piece = {
      scratch.address,
      send,
      STEPC_FAULT("transfer-second-sum-of-old") ? 0 : bucket.ownElements,
      terms.sum,
      terms.wire,
      1.0,
      bucket.place};
  engine.convert(&piece, 1);
  if (stage.axes) {
    startAllToAll(bucket, stage, send, receive, bucket.work, engine);
    finish(bucket.work, Subject{bucket, "gradients"}, engine);
  }
  sum(stage, stage.axes ? receive : send,
      bucket.landing +
          uintptr_t(stage.line[size_t(stage.rank)] * getByteSize(terms.sum)),
      terms, terms.divideBefore ? 1.0 : terms.divisor, addsUp(bucket), engine);
}

void Transfers::land(const TransferEvent &event, Engine &engine) {
  TransferBucket &bucket = buckets[event.index];
  const EntryTerms &terms = bucket.terms;
  if (!isBrought(bucket) || !bucket.crosses() ||
      bucket.getFirst().line.back() == 0)
    return;
  const TransferStage &stage = bucket.getFirst();
  uintptr_t rows = bucket.send;
  if (stage.axes) {
    finish(bucket.work, Subject{bucket, "gradients"}, engine);
    rows = receiveRing.memory[event.slot].address;
  }
  bool twice = bucket.scatters() && bucket.reduces();
  uintptr_t target = twice ? scratch.address : bucket.landing;
  if (!bucket.scatters())
    target +=
        uintptr_t(stage.line[size_t(stage.rank)] * getByteSize(terms.sum));
  bool divides = !twice && !terms.divideBefore;
  if (STEPC_FAULT("transfer-divided-twice") && twice)
    divides = true;
  sum(stage, rows, target, terms, divides ? terms.divisor : 1.0,
      !twice && addsUp(bucket), engine);
  freeSend(bucket);
  if (twice && bucket.ownElements > 0)
    reduceAgain(bucket, engine);
  if (bucket.reduces() && bucket.reduce.axes && bucket.ownElements > 0)
    shareSum(bucket, engine);
}

/// Puts the pieces of a sum together where all ranks have the same.
void Transfers::shareSum(TransferBucket &bucket, Engine &engine) {
  const TransferStage &last = bucket.reduce;
  StepcTransfer transfer = {};
  transfer.axes = last.axes;
  transfer.kind = STEPC_ALL_GATHER;
  transfer.receive = reinterpret_cast<void *>(bucket.landing);
  transfer.send = reinterpret_cast<const void *>(
      bucket.landing +
      uintptr_t(last.line[size_t(last.rank)] * getByteSize(bucket.terms.sum)));
  transfer.receiveBytes = bucket.summed.data();
  const Subject subject = {bucket, "gradients"};
  start(transfer, bucket.summed[size_t(last.rank)] * (last.size - 1),
        bucket.work, subject, engine);
  finish(bucket.work, subject, engine);
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

bool Transfers::takesPart(const GatherUnit &unit) const {
  return std::any_of(unit.buckets.begin(), unit.buckets.end(),
                     [&](size_t bucket) { return buckets[bucket].takesPart; });
}

uintptr_t Transfers::getMemory(const GatherUnit &unit, size_t slot) const {
  if (!unit.inPlace)
    return gatherRing.memory[slot].address;
  const GatherSegment &segment = (unit.own.empty() ? unit.others : unit.own)[0];
  const EntryTensor &tensor = tensors[segment.tensor];
  return getGatherBase(tensor, segment, buckets[tensor.bucket].terms.param);
}

/// Copies elements of parameters into what is gathered, or out of it.
void Transfers::copy(const GatherUnit &unit, uintptr_t memory, bool out,
                     Engine &engine) {
  converting.clear();
  size_t place = unit.place + (out ? unit.own.size() : 0);
  for (const GatherSegment &segment : out ? unit.others : unit.own) {
    const EntryTensor &tensor = tensors[segment.tensor];
    const Piece &piece = segment.piece;
    Storage type = buckets[tensor.bucket].terms.param;
    uintptr_t param = tensor.param + uintptr_t(piece.first * getByteSize(type));
    uintptr_t other = memory + uintptr_t(piece.at);
    size_t own = place++;
    if (out && (!tensor.ready || STEPC_FAULT("transfer-not-placed")))
      continue;
    converting.push_back({out ? other : param, out ? param : other,
                          piece.last - piece.first, type, type, 1.0, own});
  }
  engine.convert(converting.data(), converting.size());
}

void Transfers::gather(const TransferEvent &event, Engine &engine) {
  GatherUnit &unit = units[event.index];
  if (!takesPart(unit) || STEPC_FAULT("transfer-gather-left-out"))
    return;
  uintptr_t memory = getMemory(unit, event.slot);
  if (!unit.inPlace)
    copy(unit, memory, /*out=*/false, engine);
  StepcTransfer transfer = {};
  transfer.axes = unit.axes;
  transfer.kind = STEPC_ALL_GATHER;
  transfer.receive = reinterpret_cast<void *>(memory);
  transfer.send =
      reinterpret_cast<const void *>(memory + uintptr_t(unit.ownAt));
  transfer.receiveBytes = unit.received.data();
  start(transfer, unit.received[unit.rank] * int64_t(unit.received.size() - 1),
        unit.work, Subject{buckets[unit.buckets[0]], "parameters"}, engine);
}

void Transfers::place(const TransferEvent &event, Engine &engine) {
  GatherUnit &unit = units[event.index];
  if (!unit.work)
    return;
  finish(unit.work, Subject{buckets[unit.buckets[0]], "parameters"}, engine);
  if (!unit.inPlace)
    copy(unit, getMemory(unit, event.slot), /*out=*/true, engine);
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

void Transfers::run(size_t end, Engine &engine, BucketStepper &stepper) {
  using Kind = TransferEvent::Kind;
  for (; next < end; ++next) {
    const TransferEvent &event = events[next];
    bool gives = event.kind == Kind::Gather || event.kind == Kind::Place;
    if (together && gives != giving)
      continue;
    switch (event.kind) {
    case Kind::Start: {
      const TransferBucket &bucket = buckets[event.index];
      if (bucket.numReady < bucket.members.size() &&
          !STEPC_FAULT("transfer-starts-too-early"))
        return;
      start(event, engine);
      break;
    }
    case Kind::Land:
      stepper.beforeWait();
      land(event, engine);
      if (telling)
        tellGradients(buckets[event.index]);
      buckets[event.index].done = true;
      if (parts && !pass && !together && buckets[event.index].takesPart)
        stepper.stepBucket(buckets[event.index]);
      break;
    case Kind::Gather:
      if (!pass)
        gather(event, engine);
      break;
    case Kind::Place:
      place(event, engine);
      break;
    }
  }
}

void Transfers::bring(Engine &engine, BucketStepper &stepper,
                      const size_t *list, size_t count) {
  try {
    pack(engine, list, count);
    run(beginGive, engine, stepper);
  } catch (...) {
    abandon(engine);
    throw;
  }
}

void Transfers::give(Engine &engine, BucketStepper &stepper) {
  if (together) {
    next = 0;
    giving = true;
  }
  try {
    run(events.size(), engine, stepper);
  } catch (...) {
    abandon(engine);
    throw;
  }
}
