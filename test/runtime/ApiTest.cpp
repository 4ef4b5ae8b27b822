//===- ApiTest.cpp - the C ABI as such ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "stepc/cuda.h"
#include "support/Fixture.h"

#include <atomic>
#include <cfenv>
#include <cstring>
#include <thread>

using namespace stepc_test;

extern "C" uint32_t stepcTestVersionFromC(void);

namespace {

TEST(Api, version) {
  EXPECT_EQ(1u, stepcVersion());
  EXPECT_EQ(1u, stepcTestVersionFromC());
}

TEST(Api, everyStatusHasItsName) {
  EXPECT_STREQ("STEPC_OK", stepcStatusString(STEPC_OK));
  EXPECT_STREQ("STEPC_OVERLAP", stepcStatusString(STEPC_OVERLAP));
  for (int i = 0; i <= STEPC_INTERNAL_ERROR; ++i)
    EXPECT_STRNE("STEPC_UNKNOWN_STATUS", stepcStatusString(StepcStatus(i)));
  EXPECT_STREQ("STEPC_UNKNOWN_STATUS", stepcStatusString(StepcStatus(99)));
}

TEST(Api, nullHandlesAreRefused) {
  StepcPlan *plan = nullptr;
  StepcPackage *package = nullptr;
  int64_t n = 0;
  DLTensor tensor;
  StepcPlanInfo info = {};
  const char *text;
  size_t size;
  auto invalid = STEPC_INVALID_ARGUMENT;
  EXPECT_REFUSED(invalid, "path is NULL", stepcPackageLoad(nullptr, &package));
  EXPECT_REFUSED(invalid, "out is NULL", stepcPackageLoad("x", nullptr));
  EXPECT_REFUSED(invalid, "bytes is NULL",
                 stepcPackageLoadBytes(nullptr, 1, &package));
  EXPECT_REFUSED(invalid, "out is NULL",
                 stepcPackageLoadBytes("x", 1, nullptr));
  EXPECT_REFUSED(invalid, "package is NULL",
                 stepcPackageManifest(nullptr, &text, &size));
  EXPECT_REFUSED(invalid, "out is NULL",
                 stepcPackageManifest(getToy(), nullptr, &size));
  EXPECT_REFUSED(invalid, "package is NULL",
                 stepcPlanCreate(nullptr, nullptr, &plan));
  EXPECT_REFUSED(invalid, "out is NULL",
                 stepcPlanCreate(getToy(), nullptr, nullptr));
  EXPECT_REFUSED(invalid, "plan is NULL",
                 stepcPlanAddGroup(nullptr, nullptr, 0, nullptr, 0, &n));
  EXPECT_REFUSED(invalid, "plan is NULL",
                 stepcPlanSetHypers(nullptr, 0, nullptr, 0));
  EXPECT_REFUSED(invalid, "plan is NULL",
                 stepcPlanBind(nullptr, nullptr, 0, &n));
  EXPECT_REFUSED(invalid, "plan is NULL",
                 stepcPlanSetGrad(nullptr, 0, &tensor));
  EXPECT_REFUSED(invalid, "plan is NULL",
                 stepcPlanSetParam(nullptr, 0, &tensor));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcPlanParametersWritten(nullptr));
  EXPECT_REFUSED(invalid, "plan is NULL",
                 stepcPlanSetTrace(nullptr, nullptr, nullptr));
  StepcCudaConfig cuda = {};
  EXPECT_REFUSED(invalid, "plan is NULL", stepcPlanSetCuda(nullptr, &cuda));
  EXPECT_REFUSED(invalid, "config is NULL", stepcPlanSetCuda(nullptr, nullptr));
  DLManagedTensor *host = nullptr;
  int32_t isHost = 0;
  EXPECT_REFUSED(invalid, "config is NULL",
                 stepcCudaTakeHost(nullptr, 64, &host));
  EXPECT_REFUSED(invalid, "outTensor is NULL",
                 stepcCudaTakeHost(&cuda, 64, nullptr));
  EXPECT_REFUSED(invalid, "config is NULL",
                 stepcCudaIsHost(nullptr, &host, &isHost));
  EXPECT_REFUSED(invalid, "outIsHost is NULL",
                 stepcCudaIsHost(&cuda, &host, nullptr));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcPlanSetStream(nullptr, nullptr));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcPlanUpload(nullptr));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcStep(nullptr));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcStepBegin(nullptr));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcStepTensors(nullptr, &n, 1));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcStepEnd(nullptr));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcPlanGetCount(nullptr, 0, &n));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcPlanSetCount(nullptr, 0, 1));
  EXPECT_REFUSED(invalid, "plan is NULL",
                 stepcPlanGetState(nullptr, 0, "x", &tensor));
  EXPECT_REFUSED(invalid, "plan is NULL", stepcPlanGetInfo(nullptr, &info));
  PlanPtr good = makePlan(getToy());
  EXPECT_REFUSED(invalid, "outCount is NULL",
                 stepcPlanGetCount(good.get(), 0, nullptr));
  EXPECT_REFUSED(invalid, "out is NULL",
                 stepcPlanGetState(good.get(), 0, "x", nullptr));
  EXPECT_REFUSED(invalid, "out is NULL", stepcPlanGetInfo(good.get(), nullptr));
  stepcPackageDestroy(nullptr);
  stepcPlanDestroy(nullptr);
}

TEST(Api, messagesBelongToTheThread) {
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "plan is NULL", stepcStep(nullptr));
  std::string other = "unset";
  std::thread([&] { other = stepcLastErrorMessage(); }).join();
  EXPECT_EQ("", other);
  EXPECT_STREQ("plan is NULL", stepcLastErrorMessage());
}

TEST(Api, outParametersAreWrittenOnSuccessOnly) {
  auto *package = reinterpret_cast<StepcPackage *>(uintptr_t(64));
  StepcPackage *kept = package;
  EXPECT_STATUS(STEPC_CORRUPT_PACKAGE,
                stepcPackageLoadBytes("abc", 3, &package));
  EXPECT_EQ(kept, package);
  auto *plan = reinterpret_cast<StepcPlan *>(uintptr_t(64));
  StepcPlan *keptPlan = plan;
  StepcPlanConfig config = {};
  EXPECT_STATUS(STEPC_INVALID_ARGUMENT,
                stepcPlanCreate(getToy(), &config, &plan));
  EXPECT_EQ(keptPlan, plan);
}

TEST(Api, config) {
  StepcPlan *plan = nullptr;
  auto refuse = [&](auto change, const char *message) {
    StepcPlanConfig config = {};
    config.structSize = sizeof(config);
    change(config);
    EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, message,
                   stepcPlanCreate(getToy(), &config, &plan));
  };
  refuse([](auto &c) { c.structSize = 8; },
         "StepcPlanConfig has struct size 8, the least is 56");
  refuse([](auto &c) { c.numThreads = -1; },
         "numThreads is -1, outside 0 to 4096");
  refuse([](auto &c) { c.numThreads = 5000; },
         "numThreads is 5000, outside 0 to 4096");
  refuse([](auto &c) { c.hugePages = 2; }, "hugePages is 2, neither 0 nor 1");
  refuse([](auto &c) { c.chunkElements = -1; },
         "chunkElements is -1, outside 0 to 1099511627776");
  refuse([](auto &c) { c.reserved[3] = 1; },
         "a reserved field of the config is not 0");
  ASSERT_OK(stepcPlanCreate(getToy(), nullptr, &plan));
  stepcPlanDestroy(plan);
}

/// A caller of a later version has longer structures; zeros beyond ours mean
/// what we do, anything else we do not know.
TEST(Api, longerStructures) {
  struct {
    StepcPlanConfig known;
    uint64_t later[2];
  } config = {};
  config.known.structSize = sizeof(config);
  StepcPlan *created = nullptr;
  ASSERT_OK(stepcPlanCreate(getToy(), &config.known, &created));
  PlanPtr plan(created);
  config.later[1] = 1;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "StepcPlanConfig of struct size 72 sets a field that this "
                 "runtime does not know",
                 stepcPlanCreate(getToy(), &config.known, &created));

  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array a(Type::F32, {3}), ga(Type::F32, {3}), b(Type::F32, {5}),
      gb(Type::F32, {5});
  struct {
    StepcBinding known;
    uint64_t later;
  } bindings[2] = {{makeBinding("a", a.dl(), ga.dl()), 0},
                   {makeBinding("b", b.dl(), gb.dl()), 0}};
  for (auto &binding : bindings)
    binding.known.structSize = sizeof(binding);
  bindings[1].later = 7;
  EXPECT_STATUS(STEPC_INVALID_ARGUMENT,
                stepcPlanBind(plan.get(), &bindings[0].known, 2, nullptr));
  EXPECT_EQ(0, getInfo(plan.get()).numTensors);
  bindings[1].later = 0;
  ASSERT_OK(stepcPlanBind(plan.get(), &bindings[0].known, 2, nullptr));
  DLTensor state;
  ASSERT_OK(stepcPlanGetState(plan.get(), 1, "second", &state));
  EXPECT_EQ(5, state.shape[0]);
}

TEST(Api, infoNeedsItsSize) {
  PlanPtr plan = makePlan(getToy());
  StepcPlanInfo info = {};
  info.structSize = 16;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "StepcPlanInfo has struct size 16, the least is 56",
                 stepcPlanGetInfo(plan.get(), &info));
}

TEST(Api, plansOutliveTheirPackage) {
  PackagePtr package = loadPackage(getToyPackage());
  PlanPtr plan = makePlan(package.get());
  package.reset();
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array param(Type::F32, {4}), grad(Type::F32, {4});
  param.fill(1);
  grad.fill(2);
  std::string before = param.bits();
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_NE(before, param.bits());
}

/// Threads hammer one plan: each call is served or refused as busy, and the
/// count says how many steps were served.
TEST(Api, busy) {
  Model model({{Type::F32, {200000}}}, makeConfig(1));
  std::atomic<int64_t> served{0}, refused{0}, other{0};
  auto work = [&] {
    for (int i = 0; i < 200; ++i) {
      StepcStatus status = stepcStep(model.plan.get());
      if (status == STEPC_OK)
        ++served;
      else if (status == STEPC_BUSY &&
               !std::strcmp("another thread is inside the plan",
                            stepcLastErrorMessage()))
        ++refused;
      else
        ++other;
    }
  };
  std::thread a(work), b(work);
  a.join();
  b.join();
  int64_t count = 0;
  ASSERT_OK(stepcPlanGetCount(model.plan.get(), 0, &count));
  EXPECT_EQ(served.load(), count);
  EXPECT_GT(served.load(), 0);
  EXPECT_GT(refused.load(), 0);
  EXPECT_EQ(0, other.load());
}

TEST(Api, twoPlansAtTheSameTime) {
  auto run = [](std::string &bits) {
    Model model({{Type::F32, {50000}}, {Type::BF16, {333}}}, makeConfig(2));
    for (int i = 0; i < 10; ++i)
      model.step();
    model.check();
    bits = model.bits();
  };
  std::string first, second, alone;
  std::thread a([&] { run(first); }), b([&] { run(second); });
  a.join();
  b.join();
  run(alone);
  EXPECT_EQ(alone, first);
  EXPECT_EQ(alone, second);
}

} // namespace
