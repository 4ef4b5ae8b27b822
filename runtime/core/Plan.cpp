//===- Plan.cpp - groups, and what is inside a plan -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"

#include "core/Reserve.h"
#include "core/Status.h"

#include <algorithm>

using namespace stepc;

static constexpr int64_t kDefaultChunkElements = 16384;

Plan::Plan(std::shared_ptr<const Package> loaded, const StepcPlanConfig &config)
    : package(std::move(loaded)), config(config), engine(config.numThreads),
      cohorts(package->getMaxScalarSlots()), rounds(*package, groups),
      exchange(package->getManifest()) {
  const Manifest &manifest = package->getManifest();
  int64_t chunk =
      config.chunkElements ? config.chunkElements : kDefaultChunkElements;
  for (const Variant &variant : manifest.variants)
    addClasses(variant, chunk);
  segments.reserve(manifest.getNumSegments());
  parts.reserve(manifest.getNumSegments() * classes.size());
  lastStep.skippedRound = -1;
}

void Plan::addClasses(const Variant &variant, int64_t chunkElements) {
  const Manifest &manifest = package->getManifest();
  bool anyWhole = false;
  size_t entry = 0;
  for (int64_t s = 0; s < manifest.getNumSegments(); ++s) {
    ClassSegment segment;
    segment.beginEntry = int64_t(entry);
    for (; entry < variant.schedule.size() &&
           variant.schedule[entry].segment == s;
         ++entry) {
      segment.whole |= variant.schedule[entry].finish;
      segment.elementBytes +=
          variant.getBytesPerElement(variant.schedule[entry]);
    }
    segment.endEntry = int64_t(entry);
    segment.whole |= segment.endEntry - segment.beginEntry > 1;
    anyWhole |= segment.whole;
    classSegments.push_back(segment);
  }
  for (int kind = 0; kind < 2; ++kind)
    classes.emplace_back(variant, chunkElements, anyWhole);

  size_t first = contributionSlots.size();
  contributionSlots.resize(first + manifest.statistics.size());
  for (const Contribution &contribution : variant.contributions)
    contributionSlots[first + contribution.statistic] = {
        int64_t(contribution.slot), contribution.partial,
        manifest.statistics[contribution.statistic].maximum};
}

View stepc::makeView(const BoundTensor &tensor, const Variant &variant,
                     size_t operand, uintptr_t address) {
  static const int64_t single[] = {1};
  static const int64_t none[] = {0};
  const Operand &description = variant.operands[operand];
  int64_t itemSize = getByteSize(description.storage);
  if (description.role == Role::Position)
    return {address, 1, none, single, itemSize};
  if (description.reach == Reach::Single)
    return {address, int64_t(description.dims.size()), single, single,
            itemSize};
  size_t operands = variant.operands.size();
  if (description.reach == Reach::Reduced)
    return {address, tensor.reducedRank,
            tensor.getReducedExtents(operands, operand),
            tensor.getReducedStrides(operands, operand), itemSize};
  return {address, tensor.rank, tensor.getExtents(), tensor.getStrides(operand),
          itemSize};
}

View Plan::getView(const BoundTensor &tensor, size_t operand) const {
  const Variant &variant = getVariant(tensor);
  return makeView(tensor, variant, operand,
                  uintptr_t(getRow(tensor)[getOperandWord(tensor, operand)]));
}

OperandName Plan::getOperandName(int64_t id, size_t operand) const {
  const Operand &description = getVariant(tensors[id]).operands[operand];
  return {names[id], description.role, description.name};
}

std::string Plan::describeView(const OwnedView &owned) const {
  if (owned.operand == OwnedView::kMirror)
    return "tensor " + names[owned.tensor] + ": countMirror";
  return getOperandName(owned.tensor, size_t(owned.operand)).str();
}

void Plan::requireId(int64_t id) const {
  if (id < 0 || id >= int64_t(tensors.size()))
    fail(STEPC_INVALID_ARGUMENT, "tensor %lld does not exist, the plan has %zu",
         static_cast<long long>(id), tensors.size());
}

void Plan::requireGroup(int64_t group) const {
  if (group < 0 || group >= int64_t(groups.size()))
    fail(STEPC_INVALID_ARGUMENT, "group %lld does not exist, the plan has %zu",
         static_cast<long long>(group), groups.size());
}

void Plan::requireNoStep(const char *call) const {
  if (inStep)
    fail(STEPC_WRONG_STATE, "%s between stepcStepBegin and stepcStepEnd", call);
}

int64_t Plan::addGroup(const StepcOption *options, int64_t numOptions,
                       const double *hypers, int64_t numHypers) {
  Group group = makeGroup(*package, options, numOptions, hypers, numHypers);
  takeFromDevice("stepcPlanAddGroup");
  rounds.adopt(group);
  exchange.reserveGroups(groups.size() + 1);
  reserveAtLeast(groups, groups.size() + 1);
  if (device) {
    reserveDeviceGroups(*device, groups.size() + 1, group);
    listsValid = false;
  }
  groups.push_back(std::move(group));
  groupsUnchecked = true;
  return int64_t(groups.size()) - 1;
}

void Plan::setHypers(int64_t group, const double *hypers, int64_t numHypers) {
  requireGroup(group);
  stepc::setHypers(*package, group, groups[group], hypers, numHypers);
  groupsUnchecked = true;
}

int64_t Plan::getCount(int64_t id) const {
  requireId(id);
  return countsOnDevice ? readDeviceCount(id) : counts[id];
}

void Plan::setCount(int64_t id, int64_t count) {
  requireId(id);
  requireNoStep("stepcPlanSetCount");
  if (count < 0)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: count %lld is negative",
         names[id].c_str(), static_cast<long long>(count));
  if (count > kMaxCount)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: count %lld is above %lld",
         names[id].c_str(), static_cast<long long>(count),
         static_cast<long long>(kMaxCount));
  if (device) {
    requireNoCapture("stepcPlanSetCount");
    takeCounts();
  }
  if (counts[id] == count)
    return;
  counts[id] = count;
  cohortsValid = false;
}

void Plan::getState(int64_t id, const char *name, DLTensor &out) const {
  requireId(id);
  if (!name)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: a state without a name",
         names[id].c_str());
  const BoundTensor &tensor = tensors[id];
  const Variant &variant = getVariant(tensor);
  std::string known;
  for (size_t k : variant.states) {
    const Operand &state = variant.operands[k];
    known += (known.empty() ? "" : ", ") + state.name;
    if (state.name != name)
      continue;
    View view = getView(tensor, k);
    out.data = reinterpret_cast<void *>(view.address);
    out.device = place;
    out.ndim = int32_t(view.rank);
    out.dtype = getDLDataType(state.storage);
    out.shape = const_cast<int64_t *>(view.extents);
    out.strides = const_cast<int64_t *>(view.strides);
    out.byte_offset = 0;
    return;
  }
  fail(STEPC_UNKNOWN_NAME, "tensor %s has no state '%s', it has: %s",
       names[id].c_str(), name, known.empty() ? "none" : known.c_str());
}

void Plan::setMesh(const StepcAxis *axes, int64_t numAxes,
                   const StepcCommunicator *communicator) {
  requireNoStep("stepcPlanSetMesh");
  if (!tensors.empty())
    fail(STEPC_WRONG_STATE, "stepcPlanSetMesh after %zu tensors were bound",
         tensors.size());
  Mesh mesh(axes, numAxes, communicator);
  if (!device) {
    exchange.setMesh(std::move(mesh));
    return;
  }
  requireEnqueue(mesh);
  setDeviceMesh(std::move(mesh));
}

double Plan::getScalar(int64_t group, const char *name) const {
  requireGroup(group);
  size_t index = rounds.findScalar(name);
  return valuesOnDevice ? readDeviceValue(group, index)
                        : groups[group].results[index];
}

void Plan::setScalar(int64_t group, const char *name, double value) {
  requireGroup(group);
  requireNoStep("stepcPlanSetScalar");
  rounds.findScalar(name);
  if (device) {
    requireNoCapture("stepcPlanSetScalar");
    takeValues();
  }
  rounds.setScalar(group, name, value);
}

double Plan::getReport(int64_t group, const char *name) const {
  requireGroup(group);
  size_t index = rounds.findReport(name);
  return valuesOnDevice ? readDeviceValue(group, index)
                        : groups[group].results[index];
}

/// The slots of a tensor still say it. A plan that has failed is not asked.
int64_t Plan::countLeftOut() const {
  int64_t count = 0;
  if (device && (isPoisoned() || device->isCapturing()))
    return count;
  for (const BoundTensor &tensor : tensors)
    for (const ScheduleEntry &entry :
         package->getManifest().variants[tensor.variant].schedule)
      if (entry.unlessSlot >= 0)
        count += readSlot(tensor, size_t(entry.unlessSlot)) != 0.0;
  return count;
}

StepcPlanInfo Plan::getInfo() const {
  StepcPlanInfo info = {};
  info.structSize = sizeof(info);
  info.numTensors = int64_t(tensors.size());
  info.numGroups = int64_t(groups.size());
  info.steps = numSteps;
  info.parallelRegions = engine.getNumRegions();
  info.rounds = numRounds;
  info.skippedSteps = numSkipped;
  info.exchangeRounds = exchange.getNumRounds();
  info.exchangeCalls = exchange.getNumCalls();
  info.exchangeBytes = exchange.getNumBytes();
  info.leftOut = countLeftOut();
  if (device)
    readDeviceInfo(info);
  if (workspaceBlock)
    info.workspaceBytes = int64_t(workspaceBlock->getSize());

  size_t bytes =
      cohorts.getBytes() + overlapChecker.getBytes() + exchange.getBytes();
  for (const RowClass &rows : classes) {
    info.numChunks += rows.getNumChunks();
    bytes += rows.getBytes();
  }
  for (const StateBlock &block : stateBlocks)
    bytes += block.getSize();
  for (const StateBlock &block : tileBlocks)
    bytes += block.getSize();
  if (!device)
    bytes += exchange.getPackBytes();
  bytes += size_t(info.workspaceBytes);
  for (const BoundTensor &tensor : tensors)
    bytes += (getVariant(tensor).operands.size() + 1) * tensor.rank *
             sizeof(int64_t);
  bytes += tensors.capacity() *
           (sizeof(BoundTensor) + sizeof(std::string) + 3 * sizeof(int64_t) +
            sizeof(uint8_t) + sizeof(int32_t) + sizeof(float *));
  info.bytesAllocated = int64_t(bytes);
  return info;
}
