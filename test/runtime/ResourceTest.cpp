//===- ResourceTest.cpp - memory, failures and the process ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"
#include "support/Interpose.h"

#include <cmath>
#include <csignal>
#include <limits>
#include <sys/wait.h>
#include <unistd.h>

using namespace stepc_test;

namespace {

std::vector<TensorSpec> makeVariedSpecs(int64_t count) {
  std::vector<TensorSpec> specs;
  for (int64_t i = 0; i < count; ++i)
    specs.push_back({i % 2 ? Type::F32 : Type::F64,
                     {1 + i % 7, 200},
                     i % 3 ? Layout::RowMajor : Layout::Padded});
  return specs;
}

/// No step allocates, on any thread: whole ones, ones in parts, with gradients
/// that move, vanish and come back, with counts that part the cohorts.
TEST(Resource, stepsAllocateNothing) {
  constexpr size_t kSize = 200;
  Model model(makeVariedSpecs(kSize), makeConfig(2, 100));
  StepcPlan *plan = model.plan.get();
  std::vector<std::unique_ptr<Array>> others;
  for (const TensorSpec &spec : model.specs)
    others.push_back(std::make_unique<Array>(spec.type, spec.shape));
  int64_t regionsBefore = countRegions();
  int64_t before = countAllocations();
  bool good = true;
  for (size_t step = 0; step < 20; ++step) {
    for (size_t i = 0; i < kSize; ++i) {
      bool missing = (i + step) % 5 == 0;
      const Array &grad = step % 2 ? *others[i] : *model.grads[i];
      good &= stepcPlanSetGrad(plan, int64_t(i),
                               missing ? nullptr : grad.dl()) == STEPC_OK;
    }
    if (step % 4 == 3) {
      good &= stepcStepBegin(plan) == STEPC_OK;
      for (size_t i = 0; i < kSize; ++i)
        if ((i + step) % 5 != 0)
          good &= stepcStepTensors(plan, &model.ids[i], 1) == STEPC_OK;
      good &= stepcStepEnd(plan) == STEPC_OK;
    } else {
      good &= stepcStep(plan) == STEPC_OK;
    }
  }
  int64_t after = countAllocations();
  EXPECT_TRUE(good) << stepcLastErrorMessage();
  EXPECT_EQ(0, after - before);
  EXPECT_GE(countRegions() - regionsBefore, 15);
}

/// The counter above counts: binding allocates.
TEST(Resource, allocationsAreCounted) {
  int64_t before = countAllocations();
  Model model(makeVariedSpecs(2));
  EXPECT_GT(countAllocations(), before);
}

/// Also when addresses have to be compared again.
TEST(Resource, movedParametersAllocateNothing) {
  Model model(makeVariedSpecs(50));
  std::vector<std::unique_ptr<Array>> moved;
  for (size_t i = 0; i < model.specs.size(); ++i) {
    moved.push_back(std::make_unique<Array>(
        model.specs[i].type, model.specs[i].shape, model.specs[i].param));
    ASSERT_OK(
        stepcPlanSetParam(model.plan.get(), int64_t(i), moved.back()->dl()));
  }
  int64_t before = countAllocations();
  StepcStatus status = stepcStep(model.plan.get());
  EXPECT_EQ(0, countAllocations() - before);
  EXPECT_EQ(STEPC_OK, status);
}

/// Each allocation of a bind fails once: it is refused, nothing has changed,
/// and the next attempt succeeds.
TEST(Resource, bindWithoutMemory) {
  Array a(Type::F32, {3, 4}, Layout::Padded), ga(Type::F32, {3, 4}),
      b(Type::F64, {7}), gb(Type::F64, {7});
  StepcBinding bindings[] = {
      makeBinding("a rather long name of a tensor", a.dl(), ga.dl()),
      makeBinding("b", b.dl(), gb.dl())};
  int64_t refused = 0;
  // The C++ library does without some: those failures are not seen.
  for (int64_t n = 0; n < 120; ++n) {
    Model model({{Type::F32, {5, 5}}});
    model.step();
    int64_t ids[2] = {-1, -1};
    failAllocation(n);
    StepcStatus status = stepcPlanBind(model.plan.get(), bindings, 2, ids);
    failAllocation(-1);
    if (status != STEPC_OK) {
      ++refused;
      ASSERT_EQ(STEPC_OUT_OF_MEMORY, status) << stepcLastErrorMessage();
      ASSERT_STREQ("out of memory", stepcLastErrorMessage());
      ASSERT_EQ(-1, ids[0]);
      ASSERT_EQ(1, getInfo(model.plan.get()).numTensors);
      model.step();
      model.check();
      ASSERT_OK(stepcPlanBind(model.plan.get(), bindings, 2, ids));
    }
    EXPECT_EQ(1, ids[0]);
    EXPECT_EQ(2, ids[1]);
    model.step();
    model.check();
  }
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 110);
}

/// The same for a gradient that changes its layout.
TEST(Resource, setGradWithoutMemory) {
  Model model({{Type::F32, {4, 4, 4}}, {Type::F32, {6}}});
  Array strided(Type::F32, {4, 4, 4}, Layout::ColumnMajor);
  int refused = 0;
  for (int64_t n = 0; n < 100; ++n) {
    failAllocation(n);
    StepcStatus status = stepcPlanSetGrad(model.plan.get(), 0, strided.dl());
    failAllocation(-1);
    if (status == STEPC_OK)
      break;
    ++refused;
    ASSERT_EQ(STEPC_OUT_OF_MEMORY, status);
    ASSERT_OK(stepcStep(model.plan.get()));
    model.stepReference();
    model.check();
  }
  EXPECT_GT(refused, 2);
  model.specs[0].grad = Layout::ColumnMajor;
  model.step();
  model.check();
}

TEST(Resource, loadWithoutMemory) {
  const std::string &bytes = getToyPackage();
  StepcPackage *package = nullptr;
  int refused = 0;
  for (int64_t n = 0; !package; n += 1 + n / 20) {
    failAllocation(n);
    StepcStatus status =
        stepcPackageLoadBytes(bytes.data(), bytes.size(), &package);
    failAllocation(-1);
    ASSERT_EQ(status == STEPC_OK, package != nullptr);
    refused += status != STEPC_OK;
  }
  EXPECT_GT(refused, 20);
  stepcPackageDestroy(package);
}

/// A kernel that fails leaves its tensors in an unknown state: the plan serves
/// nothing more, other plans do.
TEST(Resource, poisoned) {
  PackagePtr package = loadPackage(makePackage(makePlainManifest("throwing"),
                                               readFile(STEPC_TEST_THROWING)));
  for (int threads : {1, 2}) {
    PlanPtr plan = makePlan(package.get(), makeConfig(threads));
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    Array param(Type::F32, {100000}), grad(Type::F32, {100000});
    param.set(99999, 1.5);
    StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
    int64_t id, count;
    ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, &id));
    ASSERT_OK(stepcStep(plan.get()));
    EXPECT_EQ(3.0, param.get(99999));
    param.set(0, std::nan(""));
    EXPECT_REFUSED(STEPC_INTERNAL_ERROR,
                   "a kernel of package '<memory>' failed midway, the plan "
                   "cannot be used any more",
                   stepcStep(plan.get()));
    const char *message = "an earlier step of the plan failed midway, its "
                          "tensors are in an unknown state";
    EXPECT_REFUSED(STEPC_POISONED, message, stepcStep(plan.get()));
    EXPECT_REFUSED(STEPC_POISONED, message, stepcStepBegin(plan.get()));
    EXPECT_REFUSED(STEPC_POISONED, message,
                   stepcPlanSetGrad(plan.get(), id, grad.dl()));
    EXPECT_EQ(0, stepcPlanMoveGrad(plan.get(), id, param.dl(), grad.dl()));
    EXPECT_REFUSED(STEPC_POISONED, message,
                   stepcPlanGetCount(plan.get(), id, &count));
    EXPECT_EQ(1, getInfo(plan.get()).steps);
  }
  Model model({{Type::F32, {3}}});
  model.step();
  model.check();
}

/// Whether `work` returns true in the child of a fork, within ten seconds.
template <typename Work>
bool succeedsInChild(Work work) {
  pid_t child = ::fork();
  if (child == 0) {
    alarm(10);
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child &&
         WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool isRight(const Model &model) {
  return bitsOf(Type::F32, model.references[0].param) == model.params[0].bits();
}

/// OpenMP's threads are gone in the child of a fork; its steps do without.
TEST(Resource, fork) {
  Model model({{Type::F32, {100000}}}, makeConfig(2));
  model.step();
  EXPECT_TRUE(succeedsInChild([&] {
    bool good = stepcStep(model.plan.get()) == STEPC_OK;
    model.stepReference();
    return good && isRight(model);
  }));
  model.step();
  model.check();
}

/// So do those of plans that are made in the child, or in a child of it.
TEST(Resource, planAfterFork) {
  Model parents({{Type::F32, {100000}}}, makeConfig(2));
  parents.step();
  auto useNewPlan = [] {
    Model model({{Type::F32, {100000}}}, makeConfig(2));
    model.step();
    return isRight(model) && getInfo(model.plan.get()).parallelRegions == 0;
  };
  EXPECT_TRUE(succeedsInChild(useNewPlan));
  EXPECT_TRUE(succeedsInChild([&] { return succeedsInChild(useNewPlan); }));
}

TEST(Resource, plansLeaveNoMemory) {
  auto cycle = [] {
    Model model(makeVariedSpecs(30), makeConfig(2));
    model.step();
  };
  auto getResident = [] {
    FILE *file = std::fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;
    EXPECT_EQ(2, std::fscanf(file, "%ld %ld", &size, &resident));
    std::fclose(file);
    return resident;
  };
  for (int i = 0; i < 20; ++i)
    cycle();
  long before = getResident();
  for (int i = 0; i < 100; ++i)
    cycle();
  // In pages. A plan of this size has some hundred of them.
  EXPECT_LT(getResident() - before, 200);
}

} // namespace
