//===- RoundTest.cpp - statistics of models and groups ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Interpose.h"
#include "support/TileModel.h"

#include <cmath>
#include <limits>
#include <sys/wait.h>
#include <unistd.h>

using namespace stepc_test;

namespace {

const std::vector<std::vector<double>> kHypers = {{0.25, 3.0}, {0.125, 3.0}};

/// Enough tensors for several leaves, in two groups; some are shared by all
/// workers, some are empty.
std::vector<TensorSpec> makeMany() {
  std::vector<std::vector<int64_t>> shapes;
  for (int64_t i = 0; i < 300; ++i)
    shapes.push_back({1 + i % 7, 3});
  for (size_t at : {20, 70, 250})
    shapes[at] = {400000};
  shapes[5] = {0};
  shapes[6] = {40000};
  std::vector<TensorSpec> specs = makeSpecs(shapes);
  for (size_t i = 0; i < specs.size(); ++i)
    specs[i].group = i % 3 == 0;
  specs[9].param = Layout::Padded;
  return specs;
}

class Clip {
public:
  explicit Clip(TileModel &model) : model(model) {
    reference.d = {0.5, 0.5};
    for (size_t i = 0; i < model.specs.size(); ++i)
      reference.tensors.push_back({model.getParam(i), model.specs[i].group});
  }
  bool step(std::vector<bool> missing = {}) {
    missing.resize(model.specs.size());
    return reference.step(model.getGrads(), missing, {0.25, 0.125}, 3.0);
  }
  void check() {
    for (size_t i = 0; i < model.specs.size(); ++i)
      EXPECT_TRUE(bitsOf(reference.tensors[i].param) == model.bits(i))
          << "tensor " << i;
    EXPECT_EQ(reference.scale, getScalar(0, "scale"));
    EXPECT_EQ(reference.scale, getScalar(1, "scale"));
    EXPECT_EQ(reference.steps, getScalar(0, "steps"));
    EXPECT_EQ(reference.d[0], getScalar(0, "d"));
    EXPECT_EQ(reference.d[1], getScalar(1, "d"));
    if (reference.results.empty() || std::isnan(reference.results[1]))
      return;
    EXPECT_EQ(reference.results[1], getReport(0, "grad_norm"));
    EXPECT_EQ(reference.results[1], getReport(1, "grad_norm"));
  }
  double getScalar(int64_t group, const char *name) {
    double value = -1.0;
    EXPECT_EQ(STEPC_OK,
              stepcPlanGetScalar(model.plan.get(), group, name, &value));
    return value;
  }
  double getReport(int64_t group, const char *name) {
    double value = -1.0;
    EXPECT_EQ(STEPC_OK,
              stepcPlanGetReport(model.plan.get(), group, name, &value));
    return value;
  }

  TileModel &model;
  ClipModel reference;
};

StepcLastStep getLastStep(StepcPlan *plan) {
  StepcLastStep last = {};
  last.structSize = sizeof(last);
  EXPECT_EQ(STEPC_OK, stepcPlanGetLastStep(plan, &last));
  return last;
}

TEST(Round, everyCut) {
  for (StepcPlanConfig cut : getCuts()) {
    SCOPED_TRACE(testing::Message() << cut.numThreads << " threads, chunks of "
                                    << cut.chunkElements);
    TileModel model(getClip(), makeMany(), cut, kHypers);
    Clip clip(model);
    for (uint32_t step = 1; step <= 2; ++step) {
      model.fillGrads(step);
      ASSERT_OK(stepcStep(model.plan.get()));
      EXPECT_FALSE(clip.step());
      clip.check();
    }
  }
}

/// Tensors without gradients count as 0, and groups without any keep theirs.
TEST(Round, missing) {
  TileModel model(getClip(), makeMany(), makeConfig(2), kHypers);
  Clip clip(model);
  std::vector<bool> some, oneGroup;
  for (size_t i = 0; i < model.specs.size(); ++i) {
    some.push_back(i % 5 == 2);
    oneGroup.push_back(model.specs[i].group == 0);
  }
  for (const std::vector<bool> &missing :
       {some, oneGroup, std::vector<bool>(some.size())}) {
    model.setGrads(missing);
    ASSERT_OK(stepcStep(model.plan.get()));
    EXPECT_FALSE(clip.step(missing));
    clip.check();
  }
}

/// Nothing takes part: no round, no count, no scalar.
TEST(Round, noGradients) {
  TileModel model(getClip(), makeSpecs({{5}, {7}}), {}, kHypers);
  Clip clip(model);
  model.setGrads({true, true});
  ASSERT_OK(stepcStep(model.plan.get()));
  clip.check();
  EXPECT_TRUE(std::isnan(clip.getReport(0, "grad_norm")));
  EXPECT_EQ(0, getInfo(model.plan.get()).rounds);
  EXPECT_EQ(0, getLastStep(model.plan.get()).numTensors);
  EXPECT_EQ(0, getLastStep(model.plan.get()).skipped);
}

TEST(Round, skip) {
  for (int threads : {1, 3}) {
    TileModel model(getClip(), makeMany(), makeConfig(threads), kHypers);
    Clip clip(model);
    StepcPlan *plan = model.plan.get();
    EXPECT_EQ(-1, getLastStep(plan).skippedRound);
    ASSERT_OK(stepcStep(plan));
    clip.step();
    for (double bad : {INFINITY, NAN}) {
      double kept = model.grads[70]->get(9);
      model.grads[70]->set(9, bad);
      ASSERT_OK(stepcStep(plan));
      EXPECT_TRUE(clip.step());
      clip.check();
      EXPECT_EQ(1, getLastStep(plan).skipped);
      EXPECT_EQ(0, getLastStep(plan).skippedRound);
      EXPECT_EQ(300, getLastStep(plan).numTensors);
      int64_t count = 0;
      ASSERT_OK(stepcPlanGetCount(plan, 70, &count));
      EXPECT_EQ(1, count);
      model.grads[70]->set(9, kept);
    }
    ASSERT_OK(stepcStep(plan));
    EXPECT_FALSE(clip.step());
    clip.check();
    EXPECT_EQ(0, getLastStep(plan).skipped);
    EXPECT_EQ(-1, getLastStep(plan).skippedRound);
    StepcPlanInfo info = getInfo(plan);
    EXPECT_EQ(4, info.steps);
    EXPECT_EQ(2, info.skippedSteps);
    EXPECT_EQ(6, info.rounds);
  }
}

/// A program of elements runs in its segment, with the results of rounds.
TEST(Round, elementsBesideTiles) {
  std::vector<TensorSpec> specs = makeMany();
  specs.push_back({Type::F64, {70000}});
  specs.push_back({Type::F64, {3, 3}, Layout::Padded});
  TileModel model(getClip(), specs, makeConfig(3), kHypers);
  std::vector<double> expected, grad;
  for (int64_t i = 0; i < 70000; ++i)
    expected.push_back(model.params[300].get(i));
  TileModel alone(getClip(), makeMany(), makeConfig(1), kHypers);
  Clip clip(alone);
  for (size_t i = 0; i < 300; ++i)
    for (int64_t k = 0; k < alone.grads[i]->size(); ++k)
      alone.grads[i]->set(k, model.grads[i]->get(k));
  ASSERT_OK(stepcStep(model.plan.get()));
  clip.step();
  for (size_t i = 0; i < 300; ++i)
    EXPECT_EQ(bitsOf(clip.reference.tensors[i].param), model.bits(i));
  // What factor was: from a tensor with a known update.
  double factor = 0.0;
  ASSERT_OK(stepcPlanGetReport(model.plan.get(), 0, "factor", &factor));
  for (int64_t i = 0; i < 70000; ++i)
    expected[size_t(i)] -= 0.25 * factor * model.grads[300]->get(i);
  EXPECT_EQ(bitsOf(Type::F64, expected), model.params[300].bits());
}

/// Hyper-parameters that the model reads are equal in all groups; nothing has
/// changed when they are not.
TEST(Round, unequalGroups) {
  TileModel model(getClip(), makeSpecs({{5}, {7}}), {}, kHypers);
  Clip clip(model);
  double hypers[] = {0.125, 4.0};
  ASSERT_OK(stepcPlanSetHypers(model.plan.get(), 1, hypers, 2));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "hyper-parameter 'max_norm' is 3 in group 0 and 4 in group 1, "
                 "but it is read for the whole model",
                 stepcStep(model.plan.get()));
  EXPECT_STATUS(STEPC_INVALID_ARGUMENT, stepcStep(model.plan.get()));
  clip.check();
  EXPECT_EQ(0, getInfo(model.plan.get()).steps);
  hypers[1] = 3.0;
  ASSERT_OK(stepcPlanSetHypers(model.plan.get(), 1, hypers, 2));
  ASSERT_OK(stepcStep(model.plan.get()));
  clip.step();
  clip.check();
}

/// As a checkpoint does: scalars are read, and set in another plan.
TEST(Round, scalarsAreKept) {
  std::vector<TensorSpec> specs = makeMany();
  TileModel first(getClip(), specs, makeConfig(2), kHypers);
  ASSERT_OK(stepcStep(first.plan.get()));
  ASSERT_OK(stepcStep(first.plan.get()));
  TileModel second(getClip(), specs, makeConfig(2), kHypers);
  for (size_t i = 0; i < specs.size(); ++i)
    for (int64_t k = 0; k < second.params[i].size(); ++k)
      second.params[i].set(k, first.params[i].get(k));
  for (int64_t group : {0, 1})
    for (const char *name : {"scale", "d", "steps"}) {
      double value = 0.0;
      ASSERT_OK(stepcPlanGetScalar(first.plan.get(), group, name, &value));
      ASSERT_OK(stepcPlanSetScalar(second.plan.get(), group, name, value));
    }
  ASSERT_OK(stepcStep(first.plan.get()));
  ASSERT_OK(stepcStep(second.plan.get()));
  for (size_t i = 0; i < specs.size(); ++i)
    EXPECT_TRUE(first.bits(i) == second.bits(i)) << "tensor " << i;
}

TEST(Round, names) {
  TileModel model(getClip(), makeSpecs({{5}}), {}, kHypers);
  StepcPlan *plan = model.plan.get();
  double value = -7.0;
  EXPECT_REFUSED(STEPC_UNKNOWN_NAME,
                 "optimizer 'clip' has no scalar 'sclae', it has: scale, d, "
                 "steps",
                 stepcPlanGetScalar(plan, 0, "sclae", &value));
  EXPECT_REFUSED(STEPC_UNKNOWN_NAME,
                 "optimizer 'clip' has no scalar 'x', it has: scale, d, steps",
                 stepcPlanSetScalar(plan, 0, "x", 1.0));
  EXPECT_REFUSED(STEPC_UNKNOWN_NAME,
                 "optimizer 'clip' has no report 'norm', it has: grad_norm, "
                 "step_d, factor",
                 stepcPlanGetReport(plan, 0, "norm", &value));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "group 2 does not exist, the plan has 2",
                 stepcPlanGetReport(plan, 2, "step_d", &value));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "group -1 does not exist, the plan has 2",
                 stepcPlanSetScalar(plan, -1, "d", 1.0));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "a scalar without a name",
                 stepcPlanGetScalar(plan, 0, nullptr, &value));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "outValue is NULL",
                 stepcPlanGetScalar(plan, 0, "d", nullptr));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "outValue is NULL",
                 stepcPlanGetReport(plan, 0, "step_d", nullptr));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "out is NULL",
                 stepcPlanGetLastStep(plan, nullptr));
  StepcLastStep last = {};
  last.structSize = 8;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "StepcLastStep has struct size 8, the least is 24",
                 stepcPlanGetLastStep(plan, &last));
  EXPECT_EQ(-7.0, value);
  // A group that comes later has the model's scalars as they are.
  ASSERT_OK(stepcPlanSetScalar(plan, 1, "scale", 32.0));
  ASSERT_OK(stepcPlanSetScalar(plan, 1, "d", 2.0));
  ASSERT_OK(stepcPlanAddGroup(plan, nullptr, 0, nullptr, 0, nullptr));
  ASSERT_OK(stepcPlanGetScalar(plan, 2, "scale", &value));
  EXPECT_EQ(32.0, value);
  ASSERT_OK(stepcPlanGetScalar(plan, 2, "d", &value));
  EXPECT_EQ(0.5, value);
  ASSERT_OK(stepcPlanGetScalar(plan, 0, "d", &value));
  EXPECT_EQ(0.5, value);
}

/// What a caller of the first version knows of a plan.
TEST(Round, shorterInfo) {
  TileModel model(getClip(), makeSpecs({{5}}), {}, kHypers);
  StepcPlanInfo info = {};
  info.structSize = offsetof(StepcPlanInfo, workspaceBytes);
  info.rounds = -3;
  ASSERT_OK(stepcStep(model.plan.get()));
  ASSERT_OK(stepcPlanGetInfo(model.plan.get(), &info));
  EXPECT_EQ(1, info.steps);
  EXPECT_EQ(-3, info.rounds);
}

TEST(Round, notInParts) {
  TileModel model(getClip(), makeSpecs({{5}}), {}, kHypers);
  ASSERT_OK(stepcStepBegin(model.plan.get()));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "optimizer 'clip' steps all tensors at once, use stepcStep",
                 stepcStepTensors(model.plan.get(), model.ids.data(), 1));
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanSetScalar between stepcStepBegin and stepcStepEnd",
                 stepcPlanSetScalar(model.plan.get(), 0, "d", 1.0));
  ASSERT_OK(stepcStepEnd(model.plan.get()));
}

TEST(Round, stepsAllocateNothing) {
  TileModel model(getClip(), makeMany(), makeConfig(3), kHypers);
  ASSERT_OK(stepcStep(model.plan.get()));
  int64_t before = countAllocations(), regions = countRegions();
  bool good = true;
  for (int64_t step = 0; step < 10; ++step) {
    good &= stepcPlanSetGrad(model.plan.get(), step, nullptr) == STEPC_OK;
    good &= stepcStep(model.plan.get()) == STEPC_OK;
  }
  EXPECT_EQ(0, countAllocations() - before);
  EXPECT_EQ(10, countRegions() - regions);
  EXPECT_TRUE(good);
}

/// Each allocation of a bind fails once.
TEST(Round, bindWithoutMemory) {
  TileModel model(getClip(), makeMany(), makeConfig(2), kHypers);
  Clip clip(model);
  Array param(Type::F32, {90000}), grad(Type::F32, {90000});
  param.fill(1);
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  int refused = 0;
  for (int64_t n = 0;; ++n) {
    failAllocation(n);
    StepcStatus status = stepcPlanBind(model.plan.get(), &binding, 1, nullptr);
    failAllocation(-1);
    if (status == STEPC_OK)
      break;
    ++refused;
    ASSERT_EQ(STEPC_OUT_OF_MEMORY, status);
    EXPECT_EQ(300, getInfo(model.plan.get()).numTensors);
    if (n % 8 == 0) {
      ASSERT_OK(stepcStep(model.plan.get()));
      clip.step();
      clip.check();
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(Round, fork) {
  TileModel model(getClip(), makeMany(), makeConfig(2), kHypers);
  Clip clip(model);
  ASSERT_OK(stepcStep(model.plan.get()));
  clip.step();
  pid_t child = ::fork();
  if (child == 0) {
    alarm(20);
    bool good = stepcStep(model.plan.get()) == STEPC_OK;
    clip.step();
    for (size_t i = 0; i < 300; ++i)
      good &= bitsOf(clip.reference.tensors[i].param) == model.bits(i);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ASSERT_OK(stepcStep(model.plan.get()));
  clip.step();
  clip.check();
}

} // namespace
