//===- TransferStep.cpp - what crosses in a step --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Transfers.h"

#include "core/Fault.h"
#include "core/Status.h"
#include "core/TransferWork.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>

using namespace stepc;

//===----------------------------------------------------------------------===//
// The communicator
//===----------------------------------------------------------------------===//

std::string Transfers::describe(const Subject &subject) const {
  const std::vector<size_t> &members = subject.bucket.members;
  std::string text =
      std::string(subject.what) + " of tensor " + tensors[members[0]].name;
  if (members.size() > 1)
    text += " and " + std::to_string(members.size() - 1) + " more";
  return text;
}

template <typename Call>
void Transfers::callCommunicator(Call &&call, const Subject &subject) {
  message[0] = '\0';
  int32_t code = 0;
  const char *words = message;
  try {
    code = call(getMesh().getCommunicator());
    if (code == getMesh().getCommunicator().success)
      return;
  } catch (...) {
    words = "the communicator threw";
  }
  failed = true;
  message[sizeof(message) - 1] = '\0';
  if (!words[0])
    std::snprintf(message, sizeof(message), "the communicator returned %d",
                  int(code));
  fail(STEPC_COMMUNICATION_ERROR, "%s: %s", describe(subject).c_str(), words);
}

/// `bytes` are what goes to other ranks.
void Transfers::start(const StepcTransfer &transfer, int64_t bytes, void *&work,
                      const Subject &subject) {
  ++numCalls;
  numBytes += bytes;
  void *made = nullptr;
  callCommunicator(
      [&](const StepcCommunicator &communicator) {
        return communicator.start(communicator.context, &transfer, &made,
                                  message, sizeof(message));
      },
      subject);
  // What is nothing to the communicator has to be finished all the same.
  work = made ? made : &started;
}

void Transfers::finish(void *&work, const Subject &subject) {
  void *own = work == &started ? nullptr : work;
  work = nullptr;
  callCommunicator(
      [&](const StepcCommunicator &communicator) {
        return communicator.finish(communicator.context, own, message,
                                   sizeof(message));
      },
      subject);
}

/// Where a communicator has failed it may still write what it was to receive,
/// and who waits for it reads what was sent: that memory stays for good.
void Transfers::keepMemory() noexcept {
  failed = false;
  stale = true;
  static std::mutex mutex;
  static auto *const kept = new std::vector<Memory>();
  std::lock_guard<std::mutex> lock(mutex);
  try {
    kept->push_back(scratch);
    for (const auto *list : {&blocks, &receiveRing.memory, &gatherRing.memory})
      kept->insert(kept->end(), list->begin(), list->end());
  } catch (...) {
    // There is none for the list: nothing that could be done about it.
  }
}

void Transfers::abandon() noexcept {
  auto end = [&](void *&work) {
    if (!work)
      return;
    try {
      finish(work, {buckets[0], "what is under way"});
    } catch (...) {
      // Of what has failed the caller is told the first.
    }
  };
  for (TransferBucket &bucket : buckets)
    end(bucket.work);
  for (GatherUnit &unit : units)
    end(unit.work);
  // Also where it is nothing of these that has failed.
  if (failed)
    keepMemory();
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

void Transfers::begin() noexcept {
  next = 0;
  for (TransferBucket &bucket : buckets) {
    bucket.numReady = 0;
    bucket.takesPart = false;
  }
  for (EntryTensor &tensor : tensors)
    tensor.ready = tensor.packed = tensor.stepped = false;
}

void Transfers::setReady(size_t index) noexcept {
  EntryTensor &tensor = tensors[index];
  tensor.ready = true;
  TransferBucket &bucket = buckets[tensor.bucket];
  bucket.takesPart = true;
  ++bucket.numReady;
}

void Transfers::closeAll() noexcept {
  for (TransferBucket &bucket : buckets)
    bucket.numReady = bucket.members.size();
}

void Transfers::pack(Engine &engine, const size_t *list,
                     size_t count) noexcept {
  PackWork work = {tensors.data(), buckets.data(), list, count, 0};
  for (size_t i = 0; i < count; ++i) {
    EntryTensor &tensor = tensors[list[i]];
    tensor.packed = true;
    for (const Piece &piece : tensor.pieces)
      work.total += piece.last - piece.first;
  }
  if (work.total > 0)
    runWork(engine, work.total * 8, work);
}

/// A gradient that is not there is an addend of zeros.
void Transfers::clearAbsent(const TransferBucket &bucket) const noexcept {
  int64_t item = getByteSize(bucket.terms.wire);
  for (size_t member : bucket.members) {
    const EntryTensor &tensor = tensors[member];
    if (tensor.ready || STEPC_FAULT("transfer-absent-not-zero"))
      continue;
    for (const Piece &piece : tensor.pieces)
      std::memset(
          reinterpret_cast<void *>(bucket.send + uintptr_t(piece.at * item)), 0,
          size_t((piece.last - piece.first) * item));
  }
}

void Transfers::startAllToAll(const TransferBucket &bucket,
                              const TransferStage &stage, uintptr_t send,
                              uintptr_t receive, void *&work) {
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
  start(transfer, bytes, work, Subject{bucket, "gradients"});
}

void Transfers::start(const TransferEvent &event, Engine &engine) {
  TransferBucket &bucket = buckets[event.index];
  if (!bucket.takesPart)
    return;
  packing.clear();
  for (size_t member : bucket.members)
    if (tensors[member].ready && !tensors[member].packed)
      packing.push_back(member);
  pack(engine, packing.data(), packing.size());
  if (!bucket.crosses())
    return;
  clearAbsent(bucket);
  const TransferStage &stage = bucket.getFirst();
  if (stage.axes && stage.line.back() > 0)
    startAllToAll(bucket, stage, bucket.send,
                  receiveRing.memory[event.slot].address, bucket.work);
}

/// Of what each rank has of the sum over others, the sum over these.
void Transfers::reduceAgain(TransferBucket &bucket, Engine &engine) {
  const EntryTerms &terms = bucket.terms;
  const TransferStage &stage = bucket.reduce;
  int64_t item = getByteSize(terms.wire);
  uintptr_t send = scratch.address;
  uintptr_t receive = send + roundUpToLine(bucket.ownElements * item);
  ConvertWork convert = {
      bucket.landing, terms.sum, send, terms.wire,
      STEPC_FAULT("transfer-second-sum-of-old") ? 0 : bucket.ownElements};
  runWork(engine, bucket.ownElements * 8, convert);
  if (stage.axes) {
    startAllToAll(bucket, stage, send, receive, bucket.work);
    finish(bucket.work, Subject{bucket, "gradients"});
  }
  SumWork sum = {stage.axes ? receive : send,
                 bucket.landing + uintptr_t(stage.line[size_t(stage.rank)] *
                                            getByteSize(terms.sum)),
                 stage.getOwn(),
                 stage.size,
                 terms.wire,
                 terms.sum,
                 terms.divideBefore ? 1.0 : terms.divisor};
  runWork(engine, sum.own * stage.size * item, sum);
}

void Transfers::land(const TransferEvent &event, Engine &engine) {
  TransferBucket &bucket = buckets[event.index];
  const EntryTerms &terms = bucket.terms;
  if (!bucket.takesPart || !bucket.crosses() ||
      bucket.getFirst().line.back() == 0)
    return;
  const TransferStage &stage = bucket.getFirst();
  uintptr_t rows = bucket.send;
  if (stage.axes) {
    finish(bucket.work, Subject{bucket, "gradients"});
    rows = receiveRing.memory[event.slot].address;
  }
  bool twice = bucket.scatters() && bucket.reduces();
  uintptr_t target = bucket.landing;
  if (!bucket.scatters())
    target +=
        uintptr_t(stage.line[size_t(stage.rank)] * getByteSize(terms.sum));
  bool divides = !twice && !terms.divideBefore;
  if (STEPC_FAULT("transfer-divided-twice") && twice)
    divides = true;
  SumWork sum = {rows,
                 target,
                 stage.getOwn(),
                 stage.size,
                 terms.wire,
                 terms.sum,
                 divides ? terms.divisor : 1.0};
  runWork(engine, sum.own * stage.size * getByteSize(terms.wire), sum);
  if (twice && bucket.ownElements > 0)
    reduceAgain(bucket, engine);
  const TransferStage &last = bucket.reduce;
  if (!bucket.reduces() || !last.axes || bucket.ownElements == 0)
    return;
  StepcTransfer transfer = {};
  transfer.axes = last.axes;
  transfer.kind = STEPC_ALL_GATHER;
  transfer.receive = reinterpret_cast<void *>(bucket.landing);
  transfer.send = reinterpret_cast<const void *>(
      bucket.landing +
      uintptr_t(last.line[size_t(last.rank)] * getByteSize(terms.sum)));
  transfer.receiveBytes = bucket.summed.data();
  const Subject subject = {bucket, "gradients"};
  start(transfer, bucket.summed[size_t(last.rank)] * (last.size - 1),
        bucket.work, subject);
  finish(bucket.work, subject);
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
  return tensors[(unit.own.empty() ? unit.others : unit.own)[0].tensor].param;
}

void Transfers::gather(const TransferEvent &event, Engine &engine) {
  GatherUnit &unit = units[event.index];
  if (!takesPart(unit) || STEPC_FAULT("transfer-gather-left-out"))
    return;
  uintptr_t memory = getMemory(unit, event.slot);
  if (!unit.inPlace) {
    CopyWork copy = {tensors.data(), buckets.data(), &unit.own, memory, false};
    runWork(engine, unit.received[unit.rank] * 2, copy);
  }
  StepcTransfer transfer = {};
  transfer.axes = unit.axes;
  transfer.kind = STEPC_ALL_GATHER;
  transfer.receive = reinterpret_cast<void *>(memory);
  transfer.send =
      reinterpret_cast<const void *>(memory + uintptr_t(unit.ownAt));
  transfer.receiveBytes = unit.received.data();
  start(transfer, unit.received[unit.rank] * int64_t(unit.received.size() - 1),
        unit.work, Subject{buckets[unit.buckets[0]], "parameters"});
}

void Transfers::place(const TransferEvent &event, Engine &engine) {
  GatherUnit &unit = units[event.index];
  if (!unit.work)
    return;
  finish(unit.work, Subject{buckets[unit.buckets[0]], "parameters"});
  if (unit.inPlace)
    return;
  CopyWork copy = {tensors.data(), buckets.data(), &unit.others,
                   getMemory(unit, event.slot), true};
  runWork(engine, unit.bytes * 2, copy);
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

void Transfers::run(size_t end, Engine &engine, BucketStepper &stepper) {
  using Kind = TransferEvent::Kind;
  for (; next < end; ++next) {
    const TransferEvent &event = events[next];
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
      if (parts && buckets[event.index].takesPart)
        stepper.stepBucket(buckets[event.index]);
      break;
    case Kind::Gather:
      gather(event, engine);
      break;
    case Kind::Place:
      place(event, engine);
      break;
    }
  }
}

void Transfers::bring(Engine &engine, BucketStepper &stepper) {
  try {
    run(beginGive, engine, stepper);
  } catch (...) {
    abandon();
    throw;
  }
}

void Transfers::give(Engine &engine, BucketStepper &stepper) {
  try {
    run(events.size(), engine, stepper);
  } catch (...) {
    abandon();
    throw;
  }
}
