//===- StepTest.cpp - steps of contiguous tensors, bit for bit ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"
#include "support/Interpose.h"

#include <cfenv>
#include <immintrin.h>
#include <numeric>
#include <set>

using namespace stepc_test;

namespace {

std::vector<TensorSpec> makeSizes(Type type, int64_t from, int64_t to) {
  std::vector<TensorSpec> specs;
  for (int64_t n = from; n <= to; ++n)
    specs.push_back({type, {n}});
  return specs;
}

TEST(Step, sizesZeroToHundredThirty) {
  for (Type type : {Type::F32, Type::F64, Type::BF16}) {
    Model model(makeSizes(type, 0, 130));
    for (int i = 0; i < 3; ++i)
      model.step();
    model.check();
  }
}

TEST(Step, specialValues) {
  for (Type type : {Type::F32, Type::F64, Type::BF16}) {
    Model model(makeSizes(type, 0, 70), {}, {{}}, true, /*special=*/true);
    for (int i = 0; i < 3; ++i)
      model.step();
    model.check();
  }
}

TEST(Step, anyRank) {
  std::vector<TensorSpec> specs;
  for (const std::vector<int64_t> &shape :
       std::vector<std::vector<int64_t>>{{},
                                         {1},
                                         {1, 1, 1},
                                         {3, 0, 2},
                                         {2, 3, 4, 5},
                                         {7, 1, 9},
                                         std::vector<int64_t>(20, 1)})
    specs.push_back({Type::F32, shape});
  specs.back().shape[13] = 5;
  Model model(specs);
  for (int i = 0; i < 3; ++i)
    model.step();
  model.check();
}

TEST(Step, sixteenMisalignments) {
  std::vector<TensorSpec> specs;
  for (int64_t misalignment = 0; misalignment < 16; ++misalignment)
    for (Type type : {Type::F32, Type::F64, Type::BF16}) {
      specs.push_back({type, {67}});
      specs.back().misalignment = misalignment;
    }
  for (bool ownStates : {true, false}) {
    Model model(specs, {}, {{}}, ownStates);
    for (int i = 0; i < 3; ++i)
      model.step();
    model.check();
  }
}

TEST(Step, statesOfTheCaller) {
  Model model({{Type::F32, {40}}, {Type::BF16, {3, 5}}, {Type::F64, {0}}}, {},
              {{}}, /*ownStates=*/false);
  for (int i = 0; i < 3; ++i)
    model.step();
  model.check();
}

/// The same model gives the same bits for any number of threads and any size
/// of chunks, also where a thread has nothing to do.
TEST(Step, threadsAndChunks) {
  std::vector<TensorSpec> specs = {{Type::F32, {40000}},
                                   {Type::F32, {17}},
                                   {Type::BF16, {12345}},
                                   {Type::F64, {1}},
                                   {Type::F32, {}},
                                   {Type::F32, {0}},
                                   {Type::F64, {777}},
                                   {Type::F32, {300, 70}},
                                   {Type::F32, {64, 33}, Layout::Padded}};
  std::string expected;
  for (int threads = 1; threads <= 5; ++threads)
    for (int64_t chunk : {1, 7, 64, 1000, 16384, 1 << 30}) {
      if (chunk < 64 && threads != 3)
        continue;
      Model model(specs, makeConfig(threads, chunk));
      model.step();
      model.step({}, false);
      if (expected.empty()) {
        model.check();
        expected = model.bits();
      }
      ASSERT_EQ(expected, model.bits())
          << threads << " threads, chunks of " << chunk;
    }
}

using Told = std::vector<std::pair<std::string, int32_t>>;

void tell(void *user, const char *name, int32_t begin) {
  static_cast<Told *>(user)->emplace_back(name, begin);
}

/// On one thread or several: what the caller's thread runs, each begin followed
/// by its end, and nothing when nobody asks any more. The bits are the same.
TEST(Step, kernelsAreTold) {
  for (int threads : {1, 3}) {
    Model model({{Type::F32, {400000}},
                 {Type::BF16, {5}},
                 {Type::F32, {6, 7}, Layout::Padded}},
                makeConfig(threads, 1000));
    Told told;
    ASSERT_EQ(STEPC_OK, stepcPlanSetTrace(model.plan.get(), tell, &told));
    model.step();
    ASSERT_FALSE(told.empty());
    ASSERT_EQ(0u, told.size() % 2);
    std::set<std::string> names;
    for (size_t i = 0; i < told.size(); i += 2) {
      EXPECT_EQ(told[i].first, told[i + 1].first);
      EXPECT_EQ(1, told[i].second);
      EXPECT_EQ(0, told[i + 1].second);
      names.insert(told[i].first);
    }
    // The caller has the first share of the line, which may be one class only.
    EXPECT_EQ(threads == 1 ? 3u : 1u, names.size());
    ASSERT_EQ(STEPC_OK, stepcPlanSetTrace(model.plan.get(), nullptr, nullptr));
    size_t before = told.size();
    model.step();
    EXPECT_EQ(before, told.size());
    model.check();
  }
}

TEST(Step, chunksAreCounted) {
  Model model({{Type::F32, {100}}, {Type::F32, {0}}, {Type::F32, {}}},
              makeConfig(1, 32));
  EXPECT_EQ(4 + 0 + 1, getInfo(model.plan.get()).numChunks);
}

/// A tensor without a gradient keeps parameter, states and count.
TEST(Step, missingGradients) {
  Model model({{Type::F32, {50}}, {Type::F32, {60}}, {Type::F64, {70}}});
  model.step();
  for (unsigned mask = 0; mask < 8; ++mask) {
    std::vector<bool> missing = {(mask & 1) != 0, (mask & 2) != 0,
                                 (mask & 4) != 0};
    model.step(missing);
    model.step(missing);
    model.check();
  }
  model.step();
  model.check();
}

TEST(Step, boundWithoutGradient) {
  PlanPtr plan = makePlan(getToy());
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array param(Type::BF16, {9}), grad(Type::BF16, {9});
  param.fill(1);
  grad.fill(2);
  std::string before = param.bits();
  StepcBinding binding = makeBinding("w", param.dl(), nullptr);
  binding.gradDtype = getDLType(Type::BF16);
  ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_EQ(before, param.bits());
  ASSERT_OK(stepcPlanSetGrad(plan.get(), 0, grad.dl()));
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_NE(before, param.bits());
  int64_t count;
  ASSERT_OK(stepcPlanGetCount(plan.get(), 0, &count));
  EXPECT_EQ(1, count);
}

/// Tensors of one group whose counts differ have different scalars.
TEST(Step, countsThatDiffer) {
  std::vector<TensorSpec> specs;
  for (int64_t i = 0; i < 40; ++i)
    specs.push_back({Type::F32, {5 + i}});
  Model model(specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    int64_t count = int64_t(i * i % 7);
    ASSERT_OK(stepcPlanSetCount(model.plan.get(), int64_t(i), count));
    model.references[i].count = count;
  }
  for (int step = 0; step < 6; ++step) {
    std::vector<bool> missing(specs.size());
    for (size_t i = 0; i < specs.size(); ++i)
      missing[i] = (i + size_t(step)) % 3 == 0;
    model.step(missing);
    model.check();
  }
}

/// `fresh` is about the states, not about the count: after a step it is over,
/// and a skipped tensor keeps it.
TEST(Step, fresh) {
  Model model({{Type::F32, {10}}, {Type::F32, {10}}});
  ASSERT_OK(stepcPlanSetCount(model.plan.get(), 0, 100));
  model.references[0].count = 100;
  model.step({false, true});
  EXPECT_FALSE(model.references[0].fresh);
  EXPECT_TRUE(model.references[1].fresh);
  model.step();
  model.step();
  model.check();
}

TEST(Step, moreTensorsLater) {
  Model model({{Type::F32, {100}}, {Type::F32, {33}}});
  model.step();
  Array param(Type::F64, {12}), grad(Type::F64, {12});
  param.fill(5);
  grad.fill(6);
  ToyTensor reference;
  reference.type = Type::F64;
  std::vector<double> gradient;
  for (int64_t i = 0; i < 12; ++i) {
    reference.param.push_back(param.get(i));
    gradient.push_back(grad.get(i));
  }
  reference.second.assign(12, 0.5);
  reference.buffer.assign(12, 0.0);
  StepcBinding binding = makeBinding("late", param.dl(), grad.dl());
  int64_t id;
  ASSERT_OK(stepcPlanBind(model.plan.get(), &binding, 1, &id));
  EXPECT_EQ(2, id);
  for (int i = 0; i < 2; ++i) {
    model.step();
    reference.step(gradient, model.groups[0].hypers, false);
  }
  model.check();
  EXPECT_EQ(bitsOf(Type::F64, reference.param), param.bits());
}

/// Tensors bound one by one are as tensors bound together.
TEST(Step, boundOneByOne) {
  Model model({});
  std::vector<std::unique_ptr<Array>> params, grads;
  for (int64_t i = 0; i < 300; ++i) {
    params.push_back(
        std::make_unique<Array>(Type::F32, std::vector<int64_t>{3, 5},
                                i % 3 ? Layout::RowMajor : Layout::Padded));
    grads.push_back(
        std::make_unique<Array>(Type::F32, std::vector<int64_t>{3, 5}));
    params.back()->fill(7);
    grads.back()->fill(8);
    StepcBinding binding =
        makeBinding(nullptr, params.back()->dl(), grads.back()->dl());
    int64_t id;
    ASSERT_OK(stepcPlanBind(model.plan.get(), &binding, 1, &id));
    ASSERT_EQ(i, id);
  }
  ASSERT_OK(stepcStep(model.plan.get()));
  ASSERT_OK(stepcStep(model.plan.get()));
  for (const auto &param : params)
    ASSERT_EQ(params[0]->bits(), param->bits());
}

/// Whatever float mode the host is in, the bits are the same, and the host
/// finds its mode and flags as they were, on every thread.
TEST(Step, floatModeOfTheHost) {
  std::vector<TensorSpec> specs = makeSizes(Type::F32, 60, 70);
  specs.push_back({Type::F32, {60000}});
  specs.push_back({Type::F64, {30000}});
  specs.push_back({Type::BF16, {333}});
  std::string expected;
  constexpr unsigned kFlush = 0x8040, kUp = 0x4000, kDown = 0x2000;
  for (unsigned bits : {0u, kFlush, kUp, kDown, kFlush | kUp | kDown}) {
    Model model(specs, makeConfig(2), {{}}, true, /*special=*/true);
    for (int i = 0; i < 2; ++i) {
      model.makeGrads();
      model.setGrads();
      unsigned before = _mm_getcsr();
      unsigned mode = (before & ~0x3fu) | bits;
      _mm_setcsr(mode);
      StepcStatus status = stepcStep(model.plan.get());
      unsigned after = _mm_getcsr();
      _mm_setcsr(before);
      ASSERT_EQ(STEPC_OK, status);
      EXPECT_EQ(mode, after);
      model.stepReference();
    }
    model.check();
    if (expected.empty())
      expected = model.bits();
    EXPECT_EQ(expected, model.bits()) << "mode " << bits;
  }
}

/// OpenMP's threads belong to the host as well.
TEST(Step, floatModeOfTheThreads) {
  Model model({{Type::F32, {100000}}}, makeConfig(2));
  unsigned modes[2] = {0, 0};
  unsigned before = _mm_getcsr();
#pragma omp parallel num_threads(2)
  _mm_setcsr(before | 0x8040);
  model.step();
#pragma omp parallel num_threads(2)
  {
#pragma omp critical
    modes[modes[0] != 0] = _mm_getcsr();
    _mm_setcsr(before);
  }
  model.check();
  for (unsigned mode : modes)
    EXPECT_EQ((before | 0x8040) & ~0x3fu, mode & ~0x3fu);
}

TEST(Step, oneRegionForAllTensors) {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 200; ++i)
    specs.push_back({i % 3 ? Type::F32 : Type::F64,
                     {40, 20},
                     i % 5 ? Layout::RowMajor : Layout::Padded});
  Model model(specs, makeConfig(2));
  model.step();
  int64_t regions = countRegions();
  StepcPlanInfo before = getInfo(model.plan.get());
  for (int i = 0; i < 10; ++i)
    ASSERT_OK(stepcStep(model.plan.get()));
  StepcPlanInfo after = getInfo(model.plan.get());
  EXPECT_EQ(10, countRegions() - regions);
  EXPECT_EQ(10, after.parallelRegions - before.parallelRegions);
  EXPECT_EQ(10, after.steps - before.steps);
}

/// A step of little does not wake threads.
TEST(Step, smallStepsStayOnTheCaller) {
  Model model({{Type::F32, {8000}}}, makeConfig(2));
  int64_t regions = countRegions();
  model.step();
  EXPECT_EQ(regions, countRegions());
  EXPECT_EQ(0, getInfo(model.plan.get()).parallelRegions);
}

/// The count does not overflow: after the last one there is no further step.
TEST(Step, lastCount) {
  const char *message =
      "a tensor has count 9223372036854775807, it cannot be stepped";
  Model model({{Type::F32, {100}}});
  ASSERT_OK(stepcPlanSetCount(model.plan.get(), 0, INT64_MAX - 1));
  ASSERT_OK(stepcStep(model.plan.get()));
  int64_t count = 0;
  ASSERT_OK(stepcPlanGetCount(model.plan.get(), 0, &count));
  EXPECT_EQ(INT64_MAX, count);
  std::string bits = model.bits();
  EXPECT_REFUSED(STEPC_WRONG_STATE, message, stepcStep(model.plan.get()));
  EXPECT_REFUSED(STEPC_WRONG_STATE, message, stepcStepBegin(model.plan.get()));
  EXPECT_EQ(bits, model.bits());
  ASSERT_OK(stepcPlanSetCount(model.plan.get(), 0, 1));
  ASSERT_OK(stepcStep(model.plan.get()));
}

TEST(Step, emptyPlan) {
  PlanPtr plan = makePlan(getToy());
  ASSERT_OK(stepcStep(plan.get()));
  EXPECT_EQ(1, getInfo(plan.get()).steps);
}

} // namespace
