//===- EntryWorld.cpp - tensors with an entry, on ranks and on one --------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/EntryModel.h"

#include "support/SimulatedRanks.h"

#include <random>

using namespace stepc_test;

EntryWorld::EntryWorld(StepcPackage *package, std::vector<int64_t> theSizes,
                       std::vector<EntrySpec> theSpecs, StepcPlanConfig config,
                       int64_t gradientBytes, int64_t parameterBytes,
                       int64_t numGroups, int64_t underWay)
    : specs(std::move(theSpecs)), plan(makePlan(package, config)),
      sizes(std::move(theSizes)), missing(specs.size(), false) {
  if (config.numThreads == 0)
    config.numThreads = 1;
  world = makeSimulatedRanks(sizes, [&](const std::vector<StepcAxis> &axes,
                                        const StepcCommunicator &communicator) {
    ranks.emplace_back(package, specs, axes, &communicator, config, numGroups);
    EntryRank &rank = ranks.back();
    rank.gradientBytes = gradientBytes;
    rank.parameterBytes = parameterBytes;
    rank.givesStates = package == getToyTransfers() && ranks.size() % 2 == 0;
    EXPECT_EQ(STEPC_OK, stepcPlanSetBuckets(rank.plan.get(), gradientBytes,
                                            parameterBytes, underWay));
  });
  for (int64_t g = 0; g < numGroups; ++g)
    EXPECT_EQ(STEPC_OK,
              stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  for (size_t i = 0; i < specs.size(); ++i) {
    params.emplace_back(specs[i].type, specs[i].shape);
    params[i].fill(1000 + uint32_t(i));
    grads.emplace_back(specs[i].partial ? getSumType(specs[i]) : specs[i].type,
                       specs[i].shape);
  }
  ids.resize(specs.size(), -1);
  fillGrads(1);
}

EntryWorld::~EntryWorld() { stepcSimulatedWorldDestroy(world); }

void EntryWorld::bind(size_t begin, size_t end) {
  for (EntryRank &rank : ranks)
    ASSERT_OK(rank.bind(begin, end));
  bindWhole(begin, end);
}

void EntryWorld::bindWhole(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    StepcBinding binding =
        makeBinding(nullptr, params[i].dl(),
                    missing[i] ? nullptr : grads[i].dl(), specs[i].group);
    binding.gradDtype = getDLType(grads[i].type);
    binding.fresh = 1;
    ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, &ids[i]));
  }
}

void EntryWorld::fillGrads(uint32_t seed, bool integers) {
  for (EntryRank &rank : ranks)
    for (size_t i = 0; i < specs.size(); ++i) {
      std::mt19937 random(seed * 100003 + uint32_t(i) * 1009 +
                          uint32_t(rank.getPlace(specs[i].partial)));
      std::normal_distribution<double> normal;
      for (int64_t k = 0; k < rank.grads[i].size(); ++k)
        rank.grads[i].set(k, integers ? double(int(random() % 9)) - 4.0
                                      : normal(random));
    }
}

void EntryWorld::setMissing(const std::vector<bool> &without) {
  missing = without;
  for (EntryRank &rank : ranks)
    for (size_t i = 0; i < specs.size(); ++i)
      ASSERT_OK(rank.setGrad(i, !missing[i]));
  for (size_t i = 0; i < specs.size(); ++i)
    ASSERT_OK(stepcPlanSetGrad(plan.get(), ids[i],
                               missing[i] ? nullptr : grads[i].dl()));
}

void EntryWorld::forEachRank(const std::function<void(EntryRank &)> &visit) {
  inThreads(int64_t(ranks.size()),
            [&](int64_t rank) { visit(ranks[size_t(rank)]); });
}

int64_t EntryWorld::getSize(uint64_t axes) const {
  int64_t size = 1;
  for (size_t k = 0; k < sizes.size(); ++k)
    size *= axes >> k & 1 ? sizes[k] : 1;
  return size;
}

const EntryRank &EntryWorld::getRank(size_t i, int64_t scatter,
                                     int64_t reduce) const {
  const EntrySpec &spec = specs[i];
  for (const EntryRank &rank : ranks)
    if (rank.getPlace(spec.partial & spec.whole) == scatter &&
        rank.getPlace(spec.partial & ~spec.whole) == reduce)
      return rank;
  return ranks[0];
}

/// First over the ranks that share the parameter, then over the others.
double EntryWorld::getSum(size_t i, int64_t element) const {
  const EntrySpec &spec = specs[i];
  if (!spec.partial)
    return ranks[0].grads[i].get(element);
  Type type = getSumType(spec);
  uint64_t inner = spec.partial & spec.whole, outer = spec.partial & ~inner;
  auto sum = [&](int64_t size, auto get) {
    double total = get(0);
    for (int64_t k = 1; k < size; ++k)
      total = roundTo(type, total + get(k));
    return total;
  };
  auto addend = [&](int64_t scatter, int64_t reduce) {
    double value = getRank(i, scatter, reduce).grads[i].get(element);
    if (spec.before)
      value = roundTo(type, value / roundTo(type, spec.divisor));
    return roundToWire(spec, value);
  };
  double total = sum(getSize(outer), [&](int64_t reduce) {
    double part = sum(getSize(inner),
                      [&](int64_t scatter) { return addend(scatter, reduce); });
    return inner && outer ? roundToWire(spec, part) : part;
  });
  return spec.before ? total
                     : roundTo(type, total / roundTo(type, spec.divisor));
}

/// Before the ranks, whose gradients may be spoiled.
void EntryWorld::stepWhole() {
  for (size_t i = 0; i < specs.size(); ++i)
    for (int64_t k = 0; k < grads[i].size(); ++k)
      grads[i].set(k, getSum(i, k));
  ASSERT_OK(stepcStep(plan.get()));
}

void EntryWorld::step() {
  stepWhole();
  forEachRank([](EntryRank &rank) {
    StepcStatus status = rank.step();
    EXPECT_EQ(STEPC_OK, status) << rank.message;
  });
}

/// The one process adds up what the ranks' sums are.
void EntryWorld::pass(uint32_t seed, bool first) {
  std::mt19937 random(seed);
  std::vector<bool> without(specs.size());
  for (size_t i = 0; i < specs.size(); ++i)
    without[i] = random() % 4 == 0;
  fillGrads(seed);
  for (size_t i = 0; i < specs.size(); ++i) {
    for (EntryRank &rank : ranks)
      ASSERT_OK(rank.setGrad(i, !without[i]));
    bool there = !(first || missing[i]);
    missing[i] = missing[i] && !first ? bool(without[i])
                                      : (first ? bool(without[i]) : false);
    for (int64_t k = 0; !without[i] && k < grads[i].size(); ++k)
      grads[i].set(k, there ? roundTo(getSumType(specs[i]),
                                      grads[i].get(k) + getSum(i, k))
                            : getSum(i, k));
    ASSERT_OK(stepcPlanSetGrad(plan.get(), ids[i],
                               missing[i] ? nullptr : grads[i].dl()));
  }
  forEachRank([&](EntryRank &rank) {
    auto own = uint32_t(&rank - ranks.data());
    StepcStatus status = rank.pass(seed * 31 + own, 1 + (seed + own) % 5);
    EXPECT_EQ(STEPC_OK, status) << rank.message;
  });
}

/// Each rank in another order.
void EntryWorld::stepByEvents(uint32_t seed, size_t atATime) {
  stepWhole();
  forEachRank([&](EntryRank &rank) {
    auto own = uint32_t(&rank - ranks.data());
    StepcStatus status = rank.stepByEvents(seed * 31 + own, atATime + own);
    EXPECT_EQ(STEPC_OK, status) << rank.message;
  });
  for (EntryRank &rank : ranks)
    for (size_t i = 0; i < specs.size(); ++i)
      ASSERT_OK(rank.setGrad(i, !missing[i]));
}

void EntryWorld::run(std::vector<const char *> states, bool integers) {
  for (uint32_t step = 1; step <= 4; ++step) {
    fillGrads(step, integers);
    if (step % 2)
      this->step();
    else
      stepByEvents(step, step);
    check(states);
  }
}

void EntryWorld::check(std::vector<const char *> states) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    EntryRank &rank = ranks[r];
    for (size_t i = 0; i < specs.size(); ++i) {
      if (ids[i] < 0)
        continue;
      SCOPED_TRACE(testing::Message() << "rank " << r << ", tensor " << i);
      EXPECT_EQ(params[i].bits(), rank.params[i].bits());
      int64_t begin = -1, end = -1, count = -1, whole = -2;
      ASSERT_OK(stepcPlanGetCount(rank.plan.get(), rank.ids[i], &count));
      ASSERT_OK(stepcPlanGetCount(plan.get(), ids[i], &whole));
      EXPECT_EQ(whole, count);
      ASSERT_OK(stepcPlanGetPart(rank.plan.get(), rank.ids[i], &begin, &end));
      if (specs[i].owned && begin == end)
        continue;
      for (const char *state : states) {
        std::vector<double> all = readState(plan.get(), ids[i], state);
        // One with fewer dims is whole where the tensor is.
        if (specs[i].whole && !specs[i].owned)
          all = {all.begin() + begin, all.begin() + end};
        EXPECT_EQ(
            bitsOf(Type::F64, all),
            bitsOf(Type::F64, readState(rank.plan.get(), rank.ids[i], state)))
            << state;
      }
    }
  }
}

StepcSimulatedCounters EntryWorld::getCounters(int64_t rank) const {
  StepcSimulatedCounters counters = {};
  counters.structSize = sizeof(counters);
  EXPECT_EQ(STEPC_OK, stepcSimulatedWorldGetCounters(world, rank, &counters));
  return counters;
}
