//===- ShardModel.h - plans of ranks that share tensors -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_TEST_SUPPORT_SHARDMODEL_H
#define STEPC_TEST_SUPPORT_SHARDMODEL_H

#include "support/Fixture.h"

#include "stepc/simulated.h"

#include <functional>

namespace stepc_test {

/// The optimizer of support/share.c, and clip with variants for parts.
StepcPackage *getShare();
StepcPackage *getShardedClip();

/// A tensor and how it lies on the mesh. Parts are uneven, the first is empty
/// where there are few elements.
struct ShardSpec {
  std::vector<int64_t> shape;
  /// For each dim, where some are sharded.
  std::vector<uint64_t> dimAxes;
  uint64_t flatAxes = 0;
  uint64_t distinctAxes = 0;
  int64_t group = 0;
};

/// Masks of the first two axes.
constexpr uint64_t A = 1, B = 2;

ShardSpec makeDims(std::vector<int64_t> shape, std::vector<uint64_t> axes);
ShardSpec makeFlat(std::vector<int64_t> shape, uint64_t axes);

/// What one rank has: of each tensor a copy, of which it steps its part.
class ShardRank {
public:
  ShardRank(StepcPackage *package, const std::vector<ShardSpec> &specs,
            std::vector<StepcAxis> axes, const StepcCommunicator *communicator,
            StepcPlanConfig config, int64_t numGroups);

  /// Binds tensors [begin, end), and gives them small integers as gradients.
  void bind(size_t begin, size_t end);
  void fillGrads(uint32_t seed);
  void setGrad(size_t i, bool present);
  StepcStatus step();
  double getReport(const char *name, int64_t group = 0) const;

  /// Whether element `at` of tensor `i` is of the rank's part.
  bool has(size_t i, int64_t at) const;
  int64_t countElements(size_t i) const;

  std::vector<ShardSpec> specs;
  std::vector<StepcAxis> axes;
  std::vector<Array> params;
  std::vector<Array> grads;
  std::vector<int64_t> ids;
  PlanPtr plan;
  /// Of the last call that was refused.
  std::string message;

private:
  struct Part {
    std::vector<int64_t> starts, extents;
    int64_t begin = 0, size = 0;
  };
  void getCut(int64_t extent, uint64_t axes, int64_t &begin,
              int64_t &end) const;
  Part getPart(size_t i) const;
  DLTensor getView(Array &array, size_t i);

  std::vector<Part> parts;
};

/// All ranks of a grid, each a thread. Without sizes: one that has no mesh.
class ShardWorld {
public:
  ShardWorld(StepcPackage *package, std::vector<int64_t> sizes,
             std::vector<ShardSpec> specs, StepcPlanConfig config = {},
             int64_t numGroups = 1);
  ~ShardWorld();

  void forEachRank(const std::function<void(ShardRank &)> &visit);
  void bindAll();
  /// A step of all ranks, which must succeed.
  void step();
  StepcSimulatedCounters getCounters(int64_t rank) const;

  std::vector<ShardRank> ranks;
  StepcSimulatedWorld *world = nullptr;
};

/// Expects that each rank has the bits of the whole tensors of `whole`, and
/// their reports.
void expectSame(ShardWorld &world, ShardWorld &whole,
                std::vector<const char *> reports,
                const char *rowState = nullptr);

} // namespace stepc_test

#endif // STEPC_TEST_SUPPORT_SHARDMODEL_H
