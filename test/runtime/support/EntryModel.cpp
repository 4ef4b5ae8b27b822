//===- EntryModel.cpp - tensors with an entry on a rank -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace stepc_test;

StepcPackage *stepc_test::getToyTransfers() {
  static PackagePtr package = loadManifest(makeToyTransferManifest());
  return package.get();
}

PackagePtr stepc_test::loadToyWithoutParts() {
  nlohmann::json manifest = makeToyTransferManifest();
  for (nlohmann::json &variant : manifest["variants"])
    if (variant["operands"][0]["storage"] == "bf16")
      variant["subsets"] = false;
  return loadManifest(manifest);
}

EntrySpec stepc_test::makeEntry(std::vector<int64_t> shape, uint64_t whole,
                                uint64_t partial, double divisor) {
  EntrySpec spec;
  spec.shape = std::move(shape);
  spec.whole = whole;
  spec.partial = partial;
  spec.divisor = divisor;
  return spec;
}

std::vector<EntrySpec> stepc_test::makeEntries(uint64_t whole, uint64_t partial,
                                               double divisor) {
  std::vector<EntrySpec> specs;
  for (std::vector<int64_t> shape : {std::vector<int64_t>{7, 10},
                                     {3},
                                     {1},
                                     {},
                                     {0, 4},
                                     {130, 21},
                                     {16},
                                     {64, 3},
                                     {5, 0},
                                     {2, 3, 5},
                                     {1000}})
    specs.push_back(makeEntry(shape, whole, partial, divisor));
  return specs;
}

static DLDataType getWireType(Wire wire) {
  switch (wire) {
  case Wire::Own:
    return {0, 0, 0};
  case Wire::F64:
    return {kDLFloat, 64, 1};
  case Wire::F32:
    return {kDLFloat, 32, 1};
  case Wire::BF16:
    return {kDLBfloat, 16, 1};
  case Wire::F16:
    return {kDLFloat, 16, 1};
  }
  return {};
}

/// To nearest, ties to even, to so many bits behind the first, the unit no less
/// than that of 2^least: in plain words, and once, where a float between would
/// round twice.
static double roundToBits(double value, int bits, int least, double most) {
  if (value == 0.0 || std::isnan(value) || std::isinf(value))
    return value;
  if (std::fabs(value) >= most)
    return std::copysign(INFINITY, value);
  int exponent = std::max(std::ilogb(value), least);
  return std::scalbn(std::nearbyint(std::scalbn(value, bits - exponent)),
                     exponent - bits);
}

double stepc_test::roundToWire(const EntrySpec &spec, double value) {
  switch (spec.wire) {
  case Wire::Own:
    if (spec.type != Type::BF16)
      return roundTo(spec.type, value);
    return roundToBits(value, 7, -126, INFINITY);
  case Wire::F64:
    return value;
  case Wire::F32:
    return roundTo(Type::F32, value);
  case Wire::BF16:
    return roundToBits(value, 7, -126, INFINITY);
  case Wire::F16:
    return roundToBits(value, 10, -14, 65520.0);
  }
  return value;
}

Type stepc_test::getSumType(const EntrySpec &spec) {
  return spec.type == Type::F64 ? Type::F64 : Type::F32;
}

EntryRank::EntryRank(StepcPackage *package, const std::vector<EntrySpec> &specs,
                     std::vector<StepcAxis> theAxes,
                     const StepcCommunicator *communicator,
                     StepcPlanConfig config, int64_t numGroups)
    : specs(specs), axes(std::move(theAxes)), missing(specs.size(), false),
      ids(specs.size(), -1), plan(makePlan(package, config)) {
  for (int64_t g = 0; g < numGroups; ++g)
    EXPECT_EQ(STEPC_OK,
              stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  EXPECT_EQ(STEPC_OK, stepcPlanSetMesh(plan.get(), axes.data(),
                                       int64_t(axes.size()), communicator))
      << stepcLastErrorMessage();
  for (size_t i = 0; i < specs.size(); ++i) {
    params.emplace_back(specs[i].type, specs[i].shape);
    params[i].fill(1000 + uint32_t(i));
    grads.emplace_back(specs[i].type, specs[i].shape);
  }
}

int64_t EntryRank::getPlace(uint64_t mask) const {
  int64_t place = 0;
  for (size_t k = 0; k < axes.size(); ++k)
    if (mask >> k & 1)
      place = place * axes[k].size + axes[k].coordinate;
  return place;
}

int64_t EntryRank::getGroupSize(uint64_t mask) const {
  int64_t size = 1;
  for (size_t k = 0; k < axes.size(); ++k)
    if (mask >> k & 1)
      size *= axes[k].size;
  return size;
}

/// Of what is asked before there is a plan, which has to say it: as plans of
/// other ranks choose, by a manifest that says nothing of costs.
std::map<size_t, int64_t> EntryRank::chooseOwners(size_t begin, size_t end) {
  std::map<std::pair<uint64_t, uint64_t>, std::vector<size_t>> groups;
  auto getCost = [&](size_t i) { return 80.0 * double(params[i].size()); };
  for (size_t i = begin; i < end; ++i) {
    const EntrySpec &spec = specs[i];
    std::pair<uint64_t, uint64_t> key = {spec.whole,
                                         spec.partial & ~spec.whole};
    if (!spec.owned)
      continue;
    loads[key].resize(size_t(getGroupSize(spec.whole)));
    if (spec.owner)
      loads[key][size_t(spec.owner - 1)] += std::max(getCost(i), 1.0);
    else
      groups[key].push_back(i);
  }
  std::map<size_t, int64_t> owners;
  for (const auto &[key, list] : groups) {
    std::vector<double> costs, &own = loads[key];
    for (size_t i : list)
      costs.push_back(getCost(i));
    std::vector<int64_t> found(list.size());
    EXPECT_EQ(STEPC_OK,
              stepcChooseOwners(costs.data(), int64_t(list.size()),
                                int64_t(own.size()), own.data(), found.data()));
    for (size_t k = 0; k < list.size(); ++k)
      owners[list[k]] = found[k];
  }
  return owners;
}

/// Of the parts that the rank is going to step.
void EntryRank::addStates(std::vector<StepcBinding> &bindings, size_t begin,
                          std::vector<std::array<const DLTensor *, 2>> &lists) {
  std::vector<int64_t> from(bindings.size()), to(bindings.size());
  ASSERT_OK(stepcGetParts(axes.data(), int64_t(axes.size()), bindings.data(),
                          int64_t(bindings.size()), gradientBytes,
                          parameterBytes, from.data(), to.data(), nullptr));
  for (size_t i = 0; i < bindings.size(); ++i) {
    const EntrySpec &spec = specs[begin + i];
    std::vector<int64_t> shape = spec.shape;
    // Of what is empty the plan may have them.
    if (from[i] == to[i] && (spec.owned || spec.rows))
      continue;
    if (spec.rows) {
      int64_t row = 1;
      for (size_t d = 1; d < shape.size(); ++d)
        row *= shape[d];
      shape[0] = (to[i] - from[i]) / row;
    } else if (spec.whole && !spec.owned) {
      shape = {to[i] - from[i]};
    }
    for (size_t k = 0; k < 2; ++k) {
      states.emplace_back(getSumType(spec), shape);
      for (int64_t e = 0; e < states.back().size(); ++e)
        states.back().set(e, k ? 0.0 : 0.5);
      lists[i][k] = states.back().dl();
    }
    bindings[i].states = lists[i].data();
    bindings[i].numStates = 2;
  }
}

StepcStatus EntryRank::bind(
    size_t begin, size_t end,
    const std::function<void(StepcBinding &, StepcEntry &, StepcLayout &)>
        &change) {
  std::vector<std::array<const DLTensor *, 2>> lists(end - begin);
  std::vector<StepcLayout> layouts(end - begin);
  std::vector<StepcEntry> entries(end - begin);
  std::vector<std::vector<uint64_t>> dimAxes(end - begin);
  std::vector<StepcBinding> bindings;
  const std::map<size_t, int64_t> owners = chooseOwners(begin, end);
  for (size_t i = begin; i < end; ++i) {
    const EntrySpec &spec = specs[i];
    StepcLayout &layout = layouts[i - begin];
    layout = {};
    layout.structSize = sizeof(layout);
    layout.ndim = int32_t(spec.shape.size());
    layout.shape = params[i].shape.data();
    if (spec.rows) {
      dimAxes[i - begin].assign(spec.shape.size(), 0);
      dimAxes[i - begin][0] = spec.whole;
      layout.dimAxes = dimAxes[i - begin].data();
    } else if (spec.whole && !spec.owned) {
      layout.flat = 1;
      layout.flatAxes = spec.whole;
      layout.begin = -1;
    }
    StepcEntry &entry = entries[i - begin];
    entry = {};
    entry.structSize = sizeof(entry);
    entry.wholeAxes = spec.whole;
    entry.partialAxes = spec.partial;
    entry.divisor = spec.divisor;
    entry.divideBefore = spec.before;
    entry.owned = spec.owned;
    entry.owner = spec.owner;
    if (spec.owned && givesStates && !spec.owner)
      entry.owner = 1 + owners.at(i);
    entry.wireType = getWireType(spec.wire);
    bindings.push_back(makeBinding(nullptr, params[i].dl(),
                                   missing[i] ? nullptr : grads[i].dl(),
                                   spec.group));
    StepcBinding &binding = bindings.back();
    binding.gradDtype = getDLType(spec.type);
    binding.fresh = 1;
    if (layout.flat || layout.dimAxes)
      binding.layout = &layout;
    if (spec.whole | spec.partial)
      binding.entry = &entry;
    if (change && i + 1 == end)
      change(binding, entry, layout);
  }
  if (givesStates)
    addStates(bindings, begin, lists);
  return stepcPlanBind(plan.get(), bindings.data(), int64_t(bindings.size()),
                       ids.data() + begin);
}

StepcStatus EntryRank::setGrad(size_t i, bool present) {
  missing[i] = !present;
  return stepcPlanSetGrad(plan.get(), ids[i],
                          present ? grads[i].dl() : nullptr);
}

StepcStatus EntryRank::step() {
  StepcStatus status = stepcStep(plan.get());
  message = status == STEPC_OK ? "" : stepcLastErrorMessage();
  return status;
}

/// Tells of all gradients, in some order.
StepcStatus EntryRank::nameAll(uint32_t seed, size_t atATime) {
  std::mt19937 random(seed);
  std::vector<size_t> order;
  for (size_t i = 0; i < ids.size(); ++i)
    if (!missing[i])
      order.push_back(i);
  std::shuffle(order.begin(), order.end(), random);
  for (size_t at = 0; at < order.size(); at += atATime) {
    size_t end = std::min(at + atATime, order.size());
    std::vector<int64_t> own;
    for (size_t k = at; k < end; ++k)
      own.push_back(ids[order[k]]);
    if (StepcStatus status =
            stepcGradReady(plan.get(), own.data(), int64_t(own.size())))
      return status;
    // What crosses ranks may be freed.
    for (size_t k = at; k < end; ++k)
      if (specs[order[k]].partial) {
        stepcPlanSetGrad(plan.get(), ids[order[k]], nullptr);
        for (int64_t e = 0; e < grads[order[k]].size(); ++e)
          grads[order[k]].set(e, NAN);
      }
  }
  return STEPC_OK;
}

StepcStatus EntryRank::stepByEvents(uint32_t seed, size_t atATime) {
  StepcStatus status = stepcStepBegin(plan.get());
  if (status == STEPC_OK)
    status = nameAll(seed, atATime);
  if (status == STEPC_OK)
    status = stepcStepEnd(plan.get());
  message = status == STEPC_OK ? "" : stepcLastErrorMessage();
  return status;
}

StepcStatus EntryRank::pass(uint32_t seed, size_t atATime) {
  StepcStatus status = stepcPassBegin(plan.get());
  if (status == STEPC_OK)
    status = nameAll(seed, atATime);
  if (status == STEPC_OK)
    status = stepcPassEnd(plan.get());
  message = status == STEPC_OK ? "" : stepcLastErrorMessage();
  return status;
}
