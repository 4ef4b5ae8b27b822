//===- RangeTest.cpp - the numbers that enter by the ABI ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each number of a structure or call of the C ABI has a range: its ends are
// taken, what lies beyond is refused, up to the ends of its type. A structure
// that grows fails to compile here until its new fields are in the table.
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

using namespace stepc_test;
using nlohmann::json;

static_assert(sizeof(StepcPlanConfig) == 56);
static_assert(sizeof(StepcOption) == 16);
static_assert(sizeof(StepcAxis) == 24);
static_assert(sizeof(StepcCommunicator) == 80);
static_assert(sizeof(StepcLayout) == 64);
static_assert(sizeof(StepcBinding) == 136);
static_assert(sizeof(StepcEntry) == 56);
static_assert(sizeof(StepcTransfer) == 48);

namespace {

constexpr int64_t kLeast64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost64 = std::numeric_limits<int64_t>::max();

/// All that a case may change, good as it is. Nothing is ever stepped.
struct Call {
  StepcPlanConfig config = makeConfig(0);
  StepcOption option = {"maximize", 0};
  int64_t numOptions = 1, numHypers = 3;
  double hypers[3] = {0.1, 0.9, 0.1};
  StepcAxis axis = {"x", 2, 0};
  int64_t numAxes = 1;
  StepcCommunicator communicator = {};
  StepcLayout layout = {};
  int64_t shape[2] = {6, 4};
  uint64_t dimAxes[2] = {1, 0};
  int64_t start[2] = {0, 0};
  StepcBinding binding = {};
  Array param{Type::F32, {3, 4}}, grad{Type::F32, {3, 4}};
  int64_t numBindings = 1;
  float mirror[2] = {};
  // Of calls on what is bound.
  int64_t id = 0, group = 0, newCount = 1;

  Call() {
    config.structSize = sizeof(config);
    communicator.structSize = sizeof(communicator);
    communicator.reduce = [](void *, const StepcReduceCall *, int64_t, char *,
                             size_t) -> int32_t { return 0; };
    layout.structSize = sizeof(layout);
    layout.ndim = 2;
    layout.shape = shape;
    layout.dimAxes = dimAxes;
    layout.start = start;
    binding = makeBinding("w", param.dl(), grad.dl());
    binding.countMirror = mirror;
    binding.layout = &layout;
  }

  /// Makes all calls; the first status that is not good.
  StepcStatus run();
};

StepcStatus Call::run() {
  StepcPlan *raw = nullptr;
  StepcStatus status = stepcPlanCreate(getToy(), &config, &raw);
  PlanPtr plan(raw);
  int64_t made, bound, count;
  auto go = [&](StepcStatus next) { return (status = next) == STEPC_OK; };
  if (status == STEPC_OK &&
      go(stepcPlanAddGroup(raw, &option, numOptions, hypers, numHypers,
                           &made)) &&
      go(stepcPlanSetHypers(raw, group, hypers, numHypers)) &&
      go(stepcPlanSetMesh(raw, &axis, numAxes, &communicator)) &&
      go(stepcPlanBind(raw, &binding, numBindings, &bound)) &&
      go(stepcPlanSetGrad(raw, id, grad.dl())) &&
      go(stepcPlanSetParam(raw, id, param.dl())) &&
      go(stepcPlanSetCount(raw, id, newCount)))
    go(stepcPlanGetCount(raw, id, &count));
  return status;
}

/// A number with its range. `set` puts a value into a call; false where the
/// field's type does not have it.
struct Field {
  const char *name;
  int64_t least, most;
  std::function<bool(Call &, int64_t)> set;
  bool isLength = false; // of the caller's list, of which nobody knows more
};

template <typename T>
bool put(T &field, int64_t value) {
  field = static_cast<T>(value);
  return static_cast<int64_t>(field) == value;
}

#define FIELD(least, most, path)                                               \
  Field {                                                                      \
    #path, least, most,                                                        \
        [](Call &call, int64_t value) { return put(call.path, value); }        \
  }
#define LENGTH(least, most, path)                                              \
  Field {                                                                      \
    #path, least, most,                                                        \
        [](Call &call, int64_t value) { return put(call.path, value); }, true  \
  }

const Field kFields[] = {
    FIELD(0, 4096, config.numThreads),
    FIELD(0, 1, config.hugePages),
    FIELD(0, int64_t(1) << 40, config.chunkElements),
    FIELD(0, 0, config.reserved[0]),
    FIELD(0, 0, config.reserved[3]),
    FIELD(0, 1, option.value),
    LENGTH(0, 1, numOptions),
    FIELD(3, 3, numHypers),
    FIELD(0, 0, group),
    FIELD(0, 1, axis.coordinate),
    LENGTH(1, 1, numAxes),
    FIELD(0, 0, communicator.reserved),
    LENGTH(2, 2, layout.ndim),
    FIELD(0, 0, layout.flat),
    FIELD(0, 0, layout.begin),
    FIELD(0, 0, layout.flatAxes),
    FIELD(0, 3, start[0]),
    FIELD(0, 0, start[1]),
    FIELD(0, 0, binding.group),
    FIELD(0, 0, binding.numStates),
    FIELD(0, kMost64 - 1, binding.count),
    FIELD(0, 1, binding.fresh),
    FIELD(0, 0, binding.reserved0),
    FIELD(0, (1 << 23) - 1, binding.number),
    LENGTH(1, 1, numBindings),
    FIELD(0, 0, id),
    FIELD(0, kMost64 - 1, newCount),
};

TEST(Range, theCallIsGood) {
  Call call;
  EXPECT_STATUS(STEPC_OK, call.run());
}

TEST(Range, endsAreTakenAndWhatIsBeyondIsRefused) {
  for (const Field &field : kFields) {
    for (int64_t value : {field.least, field.most}) {
      Call call;
      ASSERT_TRUE(field.set(call, value)) << field.name;
      EXPECT_EQ(STEPC_OK, call.run())
          << field.name << " = " << value << ": " << stepcLastErrorMessage();
    }
    for (int64_t value :
         {kLeast64, int64_t(std::numeric_limits<int32_t>::min()), int64_t(-1),
          field.least - (field.least > kLeast64),
          field.most + (field.most < kMost64),
          int64_t(std::numeric_limits<int32_t>::max()), int64_t(1) << 53,
          kMost64 - 63, kMost64}) {
      Call call;
      if ((value >= field.least && value <= field.most) ||
          (field.isLength && value > field.most) || !field.set(call, value))
        continue;
      StepcStatus status = call.run();
      EXPECT_TRUE(status == STEPC_INVALID_ARGUMENT ||
                  status == STEPC_SHAPE_MISMATCH ||
                  status == STEPC_LAYOUT_UNSUPPORTED)
          << field.name << " = " << value << ": " << stepcStatusString(status)
          << ": " << stepcLastErrorMessage();
    }
  }
}

TEST(Range, ranks) {
  for (int32_t rank : {65, std::numeric_limits<int32_t>::max()}) {
    Call call;
    call.layout.ndim = rank;
    EXPECT_STATUS(STEPC_SHAPE_MISMATCH, call.run());
    std::string layout = "tensor 'w': the layout has rank " +
                         std::to_string(rank) + ", the most is 64";
    EXPECT_EQ(layout, stepcLastErrorMessage());
    Call other;
    other.param.dl()->ndim = rank;
    EXPECT_STATUS(STEPC_SHAPE_MISMATCH, other.run());
    std::string param = "tensor 'w': parameter has rank " +
                        std::to_string(rank) + ", the most is 64";
    EXPECT_EQ(param, stepcLastErrorMessage());
  }
}

TEST(Range, countMirrors) {
  Call call;
  call.binding.countMirror =
      reinterpret_cast<float *>(reinterpret_cast<char *>(call.mirror) + 1);
  EXPECT_STATUS(STEPC_INVALID_ARGUMENT, call.run());
  EXPECT_NE(nullptr, std::strstr(stepcLastErrorMessage(),
                                 "tensor 'w': countMirror is at address "));

  auto *inside = static_cast<float *>(call.param.dl()->data) + 5;
  call.binding.countMirror = inside;
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'w': countMirror and tensor 'w': parameter share "
                 "memory",
                 call.run());
  call.binding.countMirror = static_cast<float *>(call.grad.dl()->data);
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'w': countMirror and tensor 'w': gradient share "
                 "memory",
                 call.run());
}

/// Two tensors, one after the other.
TEST(Range, countMirrorsOfOthers) {
  PlanPtr plan = makePlan(getToy());
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array first(Type::F32, {5}), second(Type::F32, {5});
  float mirror = 0;
  StepcBinding binding = makeBinding("a", first.dl(), nullptr);
  binding.gradDtype = getDLType(Type::F32);
  binding.countMirror = &mirror;
  ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
  binding.name = "b";
  binding.param = second.dl();
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': countMirror and tensor 'b': countMirror share "
                 "memory",
                 stepcPlanBind(plan.get(), &binding, 1, nullptr));
  binding.countMirror = static_cast<float *>(first.dl()->data) + 1;
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': parameter and tensor 'b': countMirror share "
                 "memory",
                 stepcPlanBind(plan.get(), &binding, 1, nullptr));
  EXPECT_EQ(1, getInfo(plan.get()).numTensors);
  binding.countMirror = nullptr;
  ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
}

/// The toy with a seed, which its kernels do not read.
json makeSeededManifest(double seed) {
  json manifest = makeToyManifest();
  manifest["hypers"].push_back({{"name", "rounding_seed"}, {"default", seed}});
  for (json &variant : manifest["variants"])
    variant["operands"].push_back(
        makeOperand("position", "position", "i64", true, false));
  return manifest;
}

TEST(Range, seeds) {
  const double most = 9007199254740992.0, inf = INFINITY;
  const std::string kernels = readFile(STEPC_TEST_KERNELS);
  PackagePtr package = loadPackage(makePackage(makeSeededManifest(7), kernels));
  PlanPtr plan = makePlan(package.get());
  double hypers[4] = {0.1, 0.9, 0.1, 0};
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, hypers, 4, nullptr));
  for (double good : {0.0, -0.0, 1.0, most}) {
    hypers[3] = good;
    EXPECT_STATUS(STEPC_OK, stepcPlanSetHypers(plan.get(), 0, hypers, 4));
  }
  for (double bad : {-1.0, 0.5, most + 2, 1e300, inf, -inf, double(NAN)}) {
    hypers[3] = bad;
    EXPECT_STATUS(STEPC_INVALID_ARGUMENT,
                  stepcPlanSetHypers(plan.get(), 0, hypers, 4));
    EXPECT_STATUS(
        STEPC_INVALID_ARGUMENT,
        stepcPlanAddGroup(plan.get(), nullptr, 0, hypers, 4, nullptr));
  }
  hypers[3] = 0.5;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "hyper-parameter 'rounding_seed' of optimizer 'toy' is 0.5, "
                 "not an integer from 0 to 2^53",
                 stepcPlanSetHypers(plan.get(), 0, hypers, 4));
  for (double bad : {-1.0, 0.5, 1e300}) {
    std::string bytes = makePackage(makeSeededManifest(bad), kernels);
    StepcPackage *loaded = nullptr;
    EXPECT_STATUS(STEPC_CORRUPT_PACKAGE,
                  stepcPackageLoadBytes(bytes.data(), bytes.size(), &loaded));
  }
}

} // namespace
