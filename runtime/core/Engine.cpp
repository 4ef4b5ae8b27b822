//===- Engine.cpp - what steps the tensors of a plan --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Engine.h"

#include "core/FloatMode.h"
#include "core/Status.h"
#include "core/TransferWork.h"

using namespace stepc;

Engine::~Engine() = default;

void Engine::setMesh(Mesh &&mesh) { model.exchange.setMesh(std::move(mesh)); }

void Engine::fillCodes(const StateCodes &codes, double value) {
  codes.fill(value);
}

bool Engine::hasMemory(uintptr_t) const noexcept { return true; }

void Engine::requireMemory(uintptr_t, const OperandName &) const {}

void Engine::advise(uintptr_t, size_t) const noexcept {}

void Engine::reserveGroups(size_t, const Group &) {}

void Engine::reserveTensors(size_t) {}

void Engine::reserveRows(size_t) {}

void Engine::reservePieces(size_t) {}

void Engine::beginChange(const char *, Change) {}

void Engine::requireUpload() {
  fail(STEPC_WRONG_STATE, "stepcPlanUpload, but the plan runs on %s",
       getName().c_str());
}

void Engine::runShares(int64_t, Share share, void *context) noexcept {
  FloatMode mode;
  share(context, 0, 1);
}

void Engine::convert(const ConvertPiece *pieces, size_t size) {
  ConvertWork work = {pieces, size, 0};
  int64_t bytes = 0;
  for (size_t i = 0; i < size; ++i) {
    work.total += pieces[i].count;
    bytes += pieces[i].count *
             (getByteSize(pieces[i].from) + getByteSize(pieces[i].to));
  }
  if (work.total > 0)
    runWork(*this, bytes, work);
}

void Engine::addUp(const RowSum &sum) {
  SumWork work = {sum};
  runWork(*this, sum.count * sum.numRows * getByteSize(sum.wire), work);
}

int32_t Engine::startTransfer(const StepcCommunicator &communicator,
                              const StepcTransfer &transfer, void **outWork,
                              char *message, size_t messageSize) {
  return communicator.start(communicator.context, &transfer, outWork, message,
                            messageSize);
}

int32_t Engine::finishTransfer(const StepcCommunicator &communicator,
                               void *work, char *message, size_t messageSize) {
  return communicator.finish(communicator.context, work, message, messageSize);
}

void Engine::setTrace(const StepTrace &) noexcept {}

void Engine::setStream(void *) {
  fail(STEPC_WRONG_STATE, "stepcPlanSetStream, but the plan runs on %s",
       getName().c_str());
}

int64_t Engine::getCount(int64_t id) const { return model.counts[size_t(id)]; }

double Engine::getResult(int64_t group, size_t index) const {
  return model.groups[size_t(group)].results[index];
}

void stepc::failCarried(const Model &model, size_t tensor, double known,
                        double now) {
  fail(STEPC_STALE_STATISTICS,
       "tensor %s: its parameter was written by others since the step before "
       "(a statistic of it was %s and is %s), which --exclusive-writes "
       "promises not to happen unless stepcPlanParametersWritten tells of it; "
       "this step has used old statistics of other tensors",
       model.names[tensor].c_str(), describeNumber(known).c_str(),
       describeNumber(now).c_str());
}

void stepc::requireSteppable(const CohortKey &key) {
  if (key.count > kMaxCount)
    fail(STEPC_WRONG_STATE, "a tensor has count %lld, it cannot be stepped",
         static_cast<long long>(key.count));
}
