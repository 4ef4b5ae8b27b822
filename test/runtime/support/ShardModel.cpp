//===- ShardModel.cpp - plans of ranks that share tensors ---------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/ShardModel.h"

#include "support/SimulatedRanks.h"

#include <random>

using namespace stepc_test;

StepcPackage *stepc_test::getShare() {
  static PackagePtr package = loadManifest(makeShareManifest());
  return package.get();
}

StepcPackage *stepc_test::getShardedClip() {
  static PackagePtr package = loadManifest(makeShardedClipManifest());
  return package.get();
}

ShardSpec stepc_test::makeDims(std::vector<int64_t> shape,
                               std::vector<uint64_t> axes) {
  ShardSpec spec;
  spec.shape = std::move(shape);
  spec.dimAxes = std::move(axes);
  return spec;
}

ShardSpec stepc_test::makeFlat(std::vector<int64_t> shape, uint64_t axes) {
  ShardSpec spec;
  spec.shape = std::move(shape);
  spec.flatAxes = axes;
  return spec;
}

ShardRank::ShardRank(StepcPackage *package, const std::vector<ShardSpec> &specs,
                     std::vector<StepcAxis> theAxes,
                     const StepcCommunicator *communicator,
                     StepcPlanConfig config, int64_t numGroups)
    : specs(specs), axes(std::move(theAxes)), plan(makePlan(package, config)) {
  for (int64_t g = 0; g < numGroups; ++g)
    EXPECT_EQ(STEPC_OK,
              stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  if (!axes.empty()) {
    EXPECT_EQ(STEPC_OK, stepcPlanSetMesh(plan.get(), axes.data(),
                                         int64_t(axes.size()), communicator))
        << stepcLastErrorMessage();
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    params.emplace_back(Type::F32, specs[i].shape);
    params[i].fill(1000 + uint32_t(i));
    grads.emplace_back(Type::F32, specs[i].shape);
    parts.push_back(getPart(i));
  }
  fillGrads(1);
}

/// What lies at this rank's place of the ranks that differ in `cutAxes`.
void ShardRank::getCut(int64_t extent, uint64_t cutAxes, int64_t &begin,
                       int64_t &end) const {
  int64_t place = 0, count = 1;
  for (size_t k = 0; k < axes.size(); ++k)
    if (cutAxes >> k & 1) {
      place = place * axes[k].size + axes[k].coordinate;
      count *= axes[k].size;
    }
  begin = extent * place * place / (count * count);
  end = extent * (place + 1) * (place + 1) / (count * count);
}

ShardRank::Part ShardRank::getPart(size_t i) const {
  const ShardSpec &spec = specs[i];
  Part part;
  part.size = 1;
  for (size_t d = 0; d < spec.shape.size(); ++d) {
    int64_t begin = 0, end = spec.shape[d];
    if (!spec.dimAxes.empty() && !axes.empty())
      getCut(spec.shape[d], spec.dimAxes[d], begin, end);
    part.starts.push_back(begin);
    part.extents.push_back(end - begin);
    part.size *= end - begin;
  }
  if (spec.flatAxes && !axes.empty()) {
    int64_t end;
    getCut(part.size, spec.flatAxes, part.begin, end);
    part.size = end - part.begin;
  }
  return part;
}

/// The rank's part of a copy. `part` outlives the view.
DLTensor ShardRank::getView(Array &array, size_t i) {
  static int64_t one = 1;
  Part &part = parts[i];
  DLTensor view = *array.dl();
  int64_t offset = part.begin;
  for (size_t d = 0; d < part.starts.size(); ++d)
    offset += part.starts[d] * array.strides[d];
  view.byte_offset = uint64_t(4 * offset);
  bool flat = specs[i].flatAxes && !axes.empty();
  if (flat)
    view.ndim = 1;
  view.shape = flat ? &part.size : part.extents.data();
  view.strides = flat ? &one : array.strides.data();
  return view;
}

void ShardRank::bind(size_t begin, size_t end) {
  std::vector<DLTensor> views(2 * (end - begin));
  std::vector<StepcLayout> layouts(end - begin);
  std::vector<StepcBinding> bindings;
  for (size_t i = begin; i < end; ++i) {
    const ShardSpec &spec = specs[i];
    DLTensor *view = &views[2 * (i - begin)];
    view[0] = getView(params[i], i);
    view[1] = getView(grads[i], i);
    StepcLayout &layout = layouts[i - begin];
    layout = {sizeof(StepcLayout),
              int32_t(spec.shape.size()),
              spec.flatAxes != 0,
              spec.shape.data(),
              nullptr,
              spec.flatAxes,
              parts[i].begin,
              spec.distinctAxes};
    if (!spec.dimAxes.empty())
      layout.dimAxes = spec.dimAxes.data();
    bindings.push_back(makeBinding(nullptr, view, view + 1, spec.group));
    bindings.back().fresh = 1;
    if (!axes.empty())
      bindings.back().layout = &layout;
  }
  ids.resize(end);
  StepcStatus status = stepcPlanBind(plan.get(), bindings.data(),
                                     int64_t(bindings.size()), &ids[begin]);
  EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
}

/// Whose squares add up without rounding, in any order.
void ShardRank::fillGrads(uint32_t seed) {
  for (size_t i = 0; i < grads.size(); ++i) {
    std::mt19937 random(seed * 1000 + uint32_t(i));
    for (int64_t k = 0; k < grads[i].size(); ++k)
      grads[i].set(k, int(random() % 17) - 8);
  }
}

void ShardRank::setGrad(size_t i, bool present) {
  DLTensor view = getView(grads[i], i);
  StepcStatus status =
      stepcPlanSetGrad(plan.get(), ids[i], present ? &view : nullptr);
  EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
}

StepcStatus ShardRank::step() {
  StepcStatus status = stepcStep(plan.get());
  message = status == STEPC_OK ? "" : stepcLastErrorMessage();
  return status;
}

double ShardRank::getReport(const char *name, int64_t group) const {
  double value = -1.0;
  EXPECT_EQ(STEPC_OK, stepcPlanGetReport(plan.get(), group, name, &value))
      << stepcLastErrorMessage();
  return value;
}

bool ShardRank::has(size_t i, int64_t at) const {
  const Part &part = parts[i];
  if (specs[i].flatAxes && !axes.empty())
    return at >= part.begin && at < part.begin + part.size;
  for (size_t d = part.starts.size(); d-- > 0;) {
    int64_t index = at % specs[i].shape[d];
    at /= specs[i].shape[d];
    if (index < part.starts[d] || index >= part.starts[d] + part.extents[d])
      return false;
  }
  return true;
}

int64_t ShardRank::countElements(size_t i) const { return parts[i].size; }

ShardWorld::ShardWorld(StepcPackage *package, std::vector<int64_t> sizes,
                       std::vector<ShardSpec> specs, StepcPlanConfig config,
                       int64_t numGroups) {
  if (config.numThreads == 0)
    config.numThreads = 1;
  world = makeSimulatedRanks(sizes, [&](const std::vector<StepcAxis> &axes,
                                        const StepcCommunicator &communicator) {
    ranks.emplace_back(package, specs, axes, &communicator, config, numGroups);
  });
}

ShardWorld::~ShardWorld() { stepcSimulatedWorldDestroy(world); }

void ShardWorld::forEachRank(const std::function<void(ShardRank &)> &visit) {
  inThreads(int64_t(ranks.size()),
            [&](int64_t rank) { visit(ranks[size_t(rank)]); });
}

void ShardWorld::bindAll() {
  for (ShardRank &rank : ranks)
    rank.bind(0, rank.specs.size());
}

void ShardWorld::step() {
  forEachRank([](ShardRank &rank) {
    StepcStatus status = rank.step();
    EXPECT_EQ(STEPC_OK, status) << rank.message;
  });
}

StepcSimulatedCounters ShardWorld::getCounters(int64_t rank) const {
  StepcSimulatedCounters counters = {};
  counters.structSize = sizeof(counters);
  EXPECT_EQ(STEPC_OK, stepcSimulatedWorldGetCounters(world, rank, &counters));
  return counters;
}

void stepc_test::expectSame(ShardWorld &world, ShardWorld &whole,
                            std::vector<const char *> reports,
                            const char *rowState) {
  ShardRank &expected = whole.ranks[0];
  for (size_t r = 0; r < world.ranks.size(); ++r) {
    ShardRank &rank = world.ranks[r];
    for (size_t i = 0; i < rank.params.size(); ++i) {
      int64_t wrong = 0;
      for (int64_t k = 0; k < rank.params[i].size(); ++k)
        wrong += rank.has(i, k) &&
                 bitsOf(Type::F32, {rank.params[i].get(k)}) !=
                     bitsOf(Type::F32, {expected.params[i].get(k)});
      EXPECT_EQ(0, wrong) << "rank " << r << ", tensor " << i;
      // Of a tensor whose rows are whole on each rank.
      bool wholeRows = rank.specs[i].dimAxes.empty() ||
                       rank.countElements(i) == rank.params[i].size();
      if (rowState && wholeRows) {
        EXPECT_EQ(readState(expected.plan.get(), expected.ids[i], rowState),
                  readState(rank.plan.get(), rank.ids[i], rowState))
            << "rank " << r << ", tensor " << i;
      }
    }
    for (const char *name : reports) {
      double value = expected.getReport(name), found = rank.getReport(name);
      EXPECT_EQ(bitsOf(Type::F64, {value}), bitsOf(Type::F64, {found}))
          << "rank " << r << ", " << name << ": " << value << ", " << found;
    }
  }
}
