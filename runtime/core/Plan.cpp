//===- Plan.cpp - groups, and what is inside a plan -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"

#include "core/Reserve.h"
#include "core/Status.h"
#include "store/Store.h"

#include <utility>

using namespace stepc;

Plan::Plan(std::shared_ptr<const Package> package,
           const StepcPlanConfig &config, const MakeEngine &make)
    : model(std::move(package), config),
      transfers(model.getManifest(), model.exchange) {
  lastStep.skippedRound = -1;
  useEngine(make(model));
}

/// What is under way in a step that has not ended writes memory of the plan and
/// of the caller.
Plan::~Plan() { transfers.abandon(*engine); }

void Plan::useEngine(std::unique_ptr<Engine> made) noexcept {
  engine = std::move(made);
  model.place = engine->getPlace();
  model.exchange.setMemory([own = engine.get()](size_t bytes) {
    return own->allocate(bytes, "what crosses ranks");
  });
}

void Plan::setEngine(const char *call, const MakeEngine &make) {
  requireNoStep(call);
  if (!isOnProcessor())
    fail(STEPC_WRONG_STATE, "the plan runs on %s already",
         engine->getName().c_str());
  if (!model.tensors.empty())
    fail(STEPC_WRONG_STATE, "%s after %zu tensors were bound", call,
         model.tensors.size());
  useEngine(make(model));
}

std::string Plan::describeView(const OwnedView &owned) const {
  if (owned.operand == OwnedView::kMirror)
    return "tensor " + model.names[owned.tensor] + ": countMirror";
  if (owned.isOfScales()) {
    OperandName name =
        model.getOperandName(owned.tensor, owned.getScalesOperand());
    name.scales = true;
    return name.str();
  }
  return model.getOperandName(owned.tensor, size_t(owned.operand)).str();
}

void Plan::requireId(int64_t id) const {
  if (id < 0 || id >= int64_t(model.tensors.size()))
    fail(STEPC_INVALID_ARGUMENT, "tensor %lld does not exist, the plan has %zu",
         static_cast<long long>(id), model.tensors.size());
}

void Plan::requireGroup(int64_t group) const {
  if (group < 0 || group >= int64_t(model.groups.size()))
    fail(STEPC_INVALID_ARGUMENT, "group %lld does not exist, the plan has %zu",
         static_cast<long long>(group), model.groups.size());
}

void Plan::requireNoStep(const char *call) const {
  if (inStep)
    fail(STEPC_WRONG_STATE, "%s between stepcStepBegin and stepcStepEnd", call);
  if (inPass)
    fail(STEPC_WRONG_STATE, "%s between stepcPassBegin and stepcPassEnd", call);
}

int64_t Plan::addGroup(const StepcOption *options, int64_t numOptions,
                       const double *hypers, int64_t numHypers) {
  Group group =
      makeGroup(*model.package, options, numOptions, hypers, numHypers);
  engine->beginChange("stepcPlanAddGroup", Change::All);
  std::vector<Group> &groups = model.groups;
  model.rounds.adopt(group);
  model.exchange.reserveGroups(model.groups.size() + 1);
  reserveAtLeast(groups, model.groups.size() + 1);
  engine->reserveGroups(model.groups.size() + 1, group);
  model.groups.push_back(std::move(group));
  groupsUnchecked = true;
  return int64_t(model.groups.size()) - 1;
}

void Plan::setHypers(int64_t group, const double *hypers, int64_t numHypers) {
  requireGroup(group);
  stepc::setHypers(*model.package, group, model.groups[group], hypers,
                   numHypers);
  groupsUnchecked = true;
}

int64_t Plan::getCount(int64_t id) const {
  requireId(id);
  return engine->getCount(id);
}

void Plan::setCount(int64_t id, int64_t count) {
  requireId(id);
  requireNoStep("stepcPlanSetCount");
  if (count < 0)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: count %lld is negative",
         model.names[id].c_str(), static_cast<long long>(count));
  if (count > kMaxCount)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: count %lld is above %lld",
         model.names[id].c_str(), static_cast<long long>(count),
         static_cast<long long>(kMaxCount));
  engine->beginChange("stepcPlanSetCount", Change::Counts);
  if (model.counts[id] == count)
    return;
  model.counts[id] = count;
  model.cohortsValid = false;
}

void Plan::getScales(int64_t id, size_t operand, DLTensor &out) const {
  const BoundTensor &tensor = model.tensors[id];
  for (const StateCodes &codes : model.getCodes(tensor)) {
    if (size_t(codes.operand) != operand)
      continue;
    out = {};
    out.data = reinterpret_cast<void *>(codes.scales);
    out.device = model.place;
    out.ndim = int32_t(codes.scaleShape.size());
    out.dtype = getDLDataType(Storage::F32);
    out.shape = const_cast<int64_t *>(codes.scaleShape.data());
    return;
  }
  fail(STEPC_WRONG_STATE, "%s is not kept as codes",
       model.getOperandName(id, operand).str().c_str());
}

void Plan::getState(int64_t id, const char *name, bool scales,
                    DLTensor &out) const {
  requireId(id);
  if (!name)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: a state without a name",
         model.names[id].c_str());
  const BoundTensor &tensor = model.tensors[id];
  if (tensor.elsewhere)
    fail(STEPC_WRONG_STATE,
         "tensor %s is owned by another rank, which has its states",
         model.names[id].c_str());
  const Variant &variant = getVariant(tensor);
  std::string known;
  for (size_t k : variant.states) {
    const Operand &state = variant.operands[k];
    known += (known.empty() ? "" : ", ") + state.name;
    if (state.name != name)
      continue;
    if (scales)
      return getScales(id, k, out);
    View view = model.getView(tensor, k);
    out.data = reinterpret_cast<void *>(view.address);
    out.device = model.place;
    out.ndim = int32_t(view.rank);
    out.dtype = getDLDataType(state.storage);
    for (const StateCodes &codes : model.getCodes(tensor))
      if (size_t(codes.operand) == k)
        out.dtype = getCodesType(*codes.format);
    out.shape = const_cast<int64_t *>(view.extents);
    out.strides = const_cast<int64_t *>(view.strides);
    out.byte_offset = 0;
    return;
  }
  fail(STEPC_UNKNOWN_NAME, "tensor %s has no state '%s', it has: %s",
       model.names[id].c_str(), name, known.empty() ? "none" : known.c_str());
}

void Plan::setMesh(const StepcAxis *axes, int64_t numAxes,
                   const StepcCommunicator *communicator) {
  requireNoStep("stepcPlanSetMesh");
  if (!model.tensors.empty())
    fail(STEPC_WRONG_STATE, "stepcPlanSetMesh after %zu tensors were bound",
         model.tensors.size());
  engine->setMesh(Mesh(axes, numAxes, communicator));
}

void Plan::setStore(std::shared_ptr<store::Store> store) {
  requireNoStep("stepcPlanSetStore");
  if (!model.tensors.empty())
    fail(STEPC_WRONG_STATE, "stepcPlanSetStore after %zu tensors were bound",
         model.tensors.size());
  model.store = std::move(store);
}

double Plan::getScalar(int64_t group, const char *name) const {
  requireGroup(group);
  return engine->getResult(group, model.rounds.findScalar(name));
}

void Plan::setScalar(int64_t group, const char *name, double value) {
  requireGroup(group);
  requireNoStep("stepcPlanSetScalar");
  model.rounds.findScalar(name);
  engine->beginChange("stepcPlanSetScalar", Change::Values);
  model.rounds.setScalar(group, name, value);
}

double Plan::getReport(int64_t group, const char *name) const {
  requireGroup(group);
  return engine->getResult(group, model.rounds.findReport(name));
}

void Plan::parametersWritten() {
  requireNoStep("stepcPlanParametersWritten");
  engine->forgetCarried(0, model.tensors.size());
}

StepcLastStep Plan::getLastStep() const {
  StepcLastStep last = lastStep;
  engine->completeLastStep(last);
  return last;
}

/// The slots of a tensor still say it.
int64_t Plan::countLeftOut() const {
  int64_t count = 0;
  if (!engine->hasSlots())
    return count;
  for (const BoundTensor &tensor : model.tensors)
    for (const ScheduleEntry &entry : getVariant(tensor).schedule)
      if (entry.unlessSlot >= 0)
        count += engine->getSlot(tensor, size_t(entry.unlessSlot)) != 0.0;
  return count;
}

/// The bytes of what the plan keeps for its tensors and steps on the host,
/// blocks apart.
int64_t Plan::countListBytes() const {
  size_t bytes = model.cohorts.getBytes() + overlapChecker.getBytes() +
                 model.exchange.getBytes() + transfers.getBytes();
  for (const RowClass &rows : model.classes)
    bytes += rows.getBytes();
  for (const BoundTensor &tensor : model.tensors)
    bytes += (getVariant(tensor).operands.size() + 1) * tensor.rank *
             sizeof(int64_t);
  bytes += model.tensors.capacity() *
           (sizeof(BoundTensor) + sizeof(std::string) + 3 * sizeof(int64_t) +
            sizeof(uint8_t) + sizeof(int32_t) + sizeof(float *));
  return int64_t(bytes);
}

StepcPlanInfo Plan::getInfo() const {
  StepcPlanInfo info = {};
  info.structSize = sizeof(info);
  info.numTensors = int64_t(model.tensors.size());
  info.numGroups = int64_t(model.groups.size());
  info.steps = numSteps;
  info.rounds = model.numRounds;
  info.skippedSteps = numSkipped;
  info.exchangeRounds = model.exchange.getNumRounds();
  info.exchangeCalls = model.exchange.getNumCalls() + transfers.getNumCalls();
  info.exchangeBytes = model.exchange.getNumBytes() + transfers.getNumBytes();
  info.leftOut = countLeftOut();
  info.bytesAllocated = countListBytes();
  for (const RowClass &rows : model.classes)
    info.numChunks += rows.getNumChunks();
  size_t memory = model.exchange.getPackBytes() + transfers.getBufferBytes();
  for (const Memory &block : blocks)
    memory += block.size;
  engine->addInfo(info, int64_t(memory));
  return info;
}
