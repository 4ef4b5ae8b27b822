//===- Plan.cpp - groups, and what is inside a plan -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"

#include "core/Status.h"

#include <algorithm>

using namespace stepc;

static constexpr int64_t kDefaultChunkElements = 16384;

Plan::Plan(std::shared_ptr<const Package> loaded, const StepcPlanConfig &config)
    : package(std::move(loaded)), config(config), engine(config.numThreads),
      cohorts(package->getMaxScalarSlots()) {
  const std::vector<Variant> &variants = package->getManifest().variants;
  int64_t chunk =
      config.chunkElements ? config.chunkElements : kDefaultChunkElements;
  for (const Variant &variant : variants)
    for (int kind = 0; kind < 2; ++kind)
      classes.emplace_back(int64_t(variant.operands.size()),
                           variant.getBytesPerElement(), chunk);
  work.reserve(classes.size());
}

View Plan::getView(const BoundTensor &tensor, size_t operand) const {
  const Operand &description = getVariant(tensor).operands[operand];
  return {uintptr_t(getRow(tensor)[STEPC_ROW_OPERANDS + operand]), tensor.rank,
          tensor.getExtents(), tensor.getStrides(operand),
          getByteSize(description.storage)};
}

OperandName Plan::getOperandName(int64_t id, size_t operand) const {
  const Operand &description = getVariant(tensors[id]).operands[operand];
  return {names[id], description.role, description.name};
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
  groups.push_back(makeGroup(*package, options, numOptions, hypers, numHypers));
  return int64_t(groups.size()) - 1;
}

void Plan::setHypers(int64_t group, const double *hypers, int64_t numHypers) {
  requireGroup(group);
  stepc::setHypers(*package, group, groups[group], hypers, numHypers);
}

int64_t Plan::getCount(int64_t id) const {
  requireId(id);
  return counts[id];
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
    out.device = {kDLCPU, 0};
    out.ndim = tensor.rank;
    out.dtype = getDLDataType(state.storage);
    out.shape = tensor.getExtents();
    out.strides = tensor.getStrides(k);
    out.byte_offset = 0;
    return;
  }
  fail(STEPC_UNKNOWN_NAME, "tensor %s has no state '%s', it has: %s",
       names[id].c_str(), name, known.empty() ? "none" : known.c_str());
}

StepcPlanInfo Plan::getInfo() const {
  StepcPlanInfo info = {};
  info.structSize = sizeof(info);
  info.numTensors = int64_t(tensors.size());
  info.numGroups = int64_t(groups.size());
  info.steps = numSteps;
  info.parallelRegions = engine.getNumRegions();

  size_t bytes = cohorts.getBytes() + overlapChecker.getBytes();
  for (const RowClass &rows : classes) {
    info.numChunks += rows.getNumChunks();
    bytes += rows.getBytes();
  }
  for (const StateBlock &block : stateBlocks)
    bytes += block.getSize();
  for (const BoundTensor &tensor : tensors)
    bytes += (getVariant(tensor).operands.size() + 1) * tensor.rank *
             sizeof(int64_t);
  bytes += tensors.capacity() *
           (sizeof(BoundTensor) + sizeof(std::string) + 3 * sizeof(int64_t) +
            sizeof(uint8_t) + sizeof(int32_t) + sizeof(float *));
  info.bytesAllocated = int64_t(bytes);
  return info;
}
