//===- CutCodesTest.cpp - blocks of codes that ranks share ----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks that cut rows anywhere have the codes and scales of one process.
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"
#include "support/Interpose.h"
#include "support/SimulatedRanks.h"

#include "stepc/codes.h"
#include "stepc/store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

using namespace stepc_test;

namespace {

constexpr int64_t kBlock = 64;

/// Columns [begin, end) of a matrix of `rows` rows, or of several.
struct Part {
  std::vector<int64_t> rows;
  std::vector<int64_t> wholes;
  std::vector<int64_t> begins;
  std::vector<int64_t> ends;
};

/// What one rank has: its columns of each matrix, with both states as codes.
class CutRank {
public:
  CutRank(Part part, std::array<int32_t, 2> formats, StepcPlanConfig config)
      : part(std::move(part)), formats(formats) {
    plan = makePlan(getToy(), config);
    EXPECT_EQ(STEPC_OK,
              stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    for (size_t i = 0; i < this->part.rows.size(); ++i) {
      std::vector<int64_t> shape = {this->part.rows[i],
                                    this->part.ends[i] - this->part.begins[i]};
      params.emplace_back(Type::F32, shape);
      grads.emplace_back(Type::F32, shape);
      fill(params.back(), i, 1000 + uint32_t(i), false);
    }
  }

  void setMesh(const StepcAxis &axis, const StepcCommunicator &communicator) {
    isShared = true;
    ASSERT_OK(stepcPlanSetMesh(plan.get(), &axis, 1, &communicator));
  }

  /// Has the first matrix's states, in float32, lie in a file.
  void place() {
    StepcStoreConfig config = {};
    config.structSize = sizeof(config);
    config.directory = "/tmp";
    config.windowBytes = 4096;
    StepcStore *made = nullptr;
    ASSERT_OK(stepcStoreCreate(&config, &made));
    store.reset(made);
    ASSERT_OK(stepcPlanSetStore(plan.get(), made));
    for (DLTensor &state : placed) {
      state = *params[0].dl();
      ASSERT_OK(stepcStoreTake(made, params[0].size() * 4, &state.data));
    }
  }

  StepcStatus bind() {
    const std::array<const DLTensor *, 2> states = {placed.data(),
                                                    placed.data() + 1};
    std::vector<StepcBinding> bindings;
    std::vector<StepcLayout> layouts(params.size());
    std::vector<std::array<int64_t, 2>> shapes(params.size()),
        starts(params.size());
    uint64_t axes[] = {0, 1};
    for (size_t i = 0; i < params.size(); ++i) {
      StepcBinding binding = makeBinding("w", params[i].dl(), grads[i].dl());
      binding.numStates = 2;
      binding.formats = formats.data();
      shapes[i] = {part.rows[i], part.wholes[i]};
      starts[i] = {0, part.begins[i]};
      layouts[i] = {};
      layouts[i].structSize = sizeof(StepcLayout);
      layouts[i].ndim = 2;
      layouts[i].shape = shapes[i].data();
      layouts[i].dimAxes = axes;
      layouts[i].start = starts[i].data();
      binding.layout = isShared ? &layouts[i] : nullptr;
      if (store && i == 0) {
        binding.formats = nullptr;
        binding.states = states.data();
      }
      bindings.push_back(binding);
    }
    ids.resize(params.size());
    return stepcPlanBind(plan.get(), bindings.data(), int64_t(bindings.size()),
                         ids.data());
  }

  /// The columns of what the whole matrix has.
  void fill(Array &array, size_t i, uint32_t seed, bool special) {
    Array whole(Type::F32, {part.rows[i], part.wholes[i]});
    whole.fill(seed, special);
    const int64_t columns = part.ends[i] - part.begins[i];
    for (int64_t k = 0; k < array.size(); ++k)
      array.set(k, whole.get(k / columns * part.wholes[i] + part.begins[i] +
                             k % columns));
  }

  StepcStatus step(uint32_t seed, bool special) {
    for (size_t i = 0; i < grads.size(); ++i)
      fill(grads[i], i, seed + uint32_t(i), special);
    return stepcStep(plan.get());
  }

  DLTensor get(size_t i, const char *name, bool scales) const {
    DLTensor out = {};
    EXPECT_EQ(STEPC_OK,
              scales ? stepcPlanGetStateScales(plan.get(), ids[i], name, &out)
                     : stepcPlanGetState(plan.get(), ids[i], name, &out));
    return out;
  }

  StepcStatus stepInParts(int64_t first = 0) {
    StepcStatus status = stepcStepBegin(plan.get());
    for (int64_t id = first; id < int64_t(ids.size()) && status == STEPC_OK;
         ++id)
      status = stepcStepTensors(plan.get(), &id, 1);
    return status == STEPC_OK ? stepcStepEnd(plan.get()) : status;
  }

  struct StoreDeleter {
    void operator()(StepcStore *store) const { stepcStoreDestroy(store); }
  };

  Part part;
  std::array<int32_t, 2> formats;
  std::unique_ptr<StepcStore, StoreDeleter> store;
  std::array<DLTensor, 2> placed = {};
  PlanPtr plan;
  std::vector<Array> params, grads;
  std::vector<int64_t> ids;
  bool isShared = false;
};

bool isSame(float a, float b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0 ||
         (std::isnan(a) && std::isnan(b));
}

void expectSameState(const CutRank &rank, const CutRank &whole, size_t i,
                     const char *name) {
  const Part &part = rank.part;
  const int64_t begin = part.begins[i], columns = part.ends[i] - begin;
  DLTensor codes = rank.get(i, name, false), all = whole.get(i, name, false);
  const auto *own = static_cast<const uint8_t *>(codes.data);
  const auto *of = static_cast<const uint8_t *>(all.data);
  for (int64_t row = 0; row < part.rows[i]; ++row)
    for (int64_t c = 0; c < columns; ++c)
      ASSERT_EQ(int(of[row * part.wholes[i] + begin + c]),
                int(own[row * columns + c]))
          << name << " of " << i << ", row " << row << ", column " << begin + c;
  DLTensor scales = rank.get(i, name, true),
           everyScale = whole.get(i, name, true);
  const int64_t blocks =
      columns ? (begin + columns + kBlock - 1) / kBlock - begin / kBlock : 0;
  ASSERT_EQ(blocks, scales.shape[1]);
  const auto *floats = static_cast<const float *>(scales.data);
  const auto *others = static_cast<const float *>(everyScale.data);
  for (int64_t row = 0; row < part.rows[i]; ++row)
    for (int64_t b = 0; b < blocks; ++b)
      ASSERT_TRUE(isSame(others[row * everyScale.shape[1] + begin / kBlock + b],
                         floats[row * blocks + b]))
          << name << " of " << i << ", row " << row << ", block " << b;
}

void expectSame(const CutRank &rank, const CutRank &whole) {
  for (size_t i = 0; i < rank.params.size(); ++i) {
    const int64_t columns = rank.part.ends[i] - rank.part.begins[i];
    for (int64_t k = 0; k < rank.params[i].size(); ++k)
      ASSERT_TRUE(
          isSame(float(whole.params[i].get(k / columns * rank.part.wholes[i] +
                                           rank.part.begins[i] + k % columns)),
                 float(rank.params[i].get(k))));
    for (const char *name : {"second", "momentum_buffer"})
      expectSameState(rank, whole, i, name);
  }
}

/// Ranks of a simulated world, and one process.
struct CutWorld {
  explicit CutWorld(int64_t count) : numRanks(count) {}
  ~CutWorld() {
    ranks.clear();
    stepcSimulatedWorldDestroy(world);
  }

  /// A matrix that ranks cut at `cuts`.
  void add(int64_t rows, int64_t columns, std::vector<int64_t> cuts) {
    wholeOf.rows.push_back(rows);
    wholeOf.wholes.push_back(columns);
    wholeOf.begins.push_back(0);
    wholeOf.ends.push_back(columns);
    cuts.insert(cuts.begin(), 0);
    cuts.push_back(columns);
    partsOf.push_back(std::move(cuts));
  }

  void make(std::array<int32_t, 2> formats, StepcPlanConfig config = {},
            bool places = false) {
    whole = std::make_unique<CutRank>(wholeOf, formats, config);
    size_t r = 0;
    world = makeSimulatedRanks(
        {numRanks}, [&](const std::vector<StepcAxis> &axes,
                        const StepcCommunicator &communicator) {
          Part part = wholeOf;
          for (size_t i = 0; i < partsOf.size(); ++i) {
            part.begins[i] = partsOf[i][r];
            part.ends[i] = partsOf[i][r + 1];
          }
          ++r;
          ranks.push_back(std::make_unique<CutRank>(part, formats, config));
          ranks.back()->setMesh(axes[0], communicator);
          if (places)
            ranks.back()->place();
        });
    ASSERT_OK(whole->bind());
    for (auto &rank : ranks)
      ASSERT_OK(rank->bind());
  }

  void step(uint32_t seed, bool special = false) {
    ASSERT_OK(whole->step(seed, special));
    inThreads(numRanks, [&](int64_t r) {
      EXPECT_EQ(STEPC_OK, ranks[size_t(r)]->step(seed, special))
          << stepcLastErrorMessage();
    });
  }

  int64_t countCalls() const {
    StepcSimulatedCounters counters = {};
    counters.structSize = sizeof(counters);
    EXPECT_EQ(STEPC_OK, stepcSimulatedWorldGetCounters(world, 0, &counters));
    return counters.calls;
  }

  int64_t numRanks;
  Part wholeOf;
  std::vector<std::vector<int64_t>> partsOf;
  StepcSimulatedWorld *world = nullptr;
  std::unique_ptr<CutRank> whole;
  std::vector<std::unique_ptr<CutRank>> ranks;
};

int64_t draw(std::mt19937 &random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

/// Some matrices, of which equal shares would cut blocks, cut anywhere: some
/// ranks have nothing, some a few elements of one block.
void addAny(CutWorld &world, std::mt19937 &random) {
  for (int64_t i = draw(random, 1, 3); i > 0; --i) {
    int64_t columns;
    do
      columns = draw(random, 33, 900);
    while ((columns + world.numRanks - 1) / world.numRanks % kBlock == 0);
    std::vector<int64_t> cuts;
    for (int64_t r = 1; r < world.numRanks; ++r)
      cuts.push_back(draw(random, 0, 3)
                         ? draw(random, 0, columns)
                         : draw(random, 0, columns / kBlock) * kBlock);
    std::sort(cuts.begin(), cuts.end());
    world.add(4096 / columns + draw(random, 1, 20), columns, std::move(cuts));
  }
}

TEST(CutCodes, anyCutsOfAnyRanks) {
  std::mt19937 random(7);
  for (int round = 0; round < 24; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    CutWorld world(2 + round % 4);
    addAny(world, random);
    std::array<int32_t, 2> formats = {1 + round / 4 % 2, 1 + round / 8 % 2};
    world.make(formats, makeConfig(1 + round % 3, round % 5 ? 4096 : 200));
    for (uint32_t step = 0; step < 3; ++step) {
      world.step(uint32_t(100 * round) + 10 * step, step == 1 && round % 2);
      for (auto &rank : world.ranks)
        expectSame(*rank, *world.whole);
      if (testing::Test::HasFailure())
        return;
    }
  }
}

TEST(CutCodes, oneExchangeOfAllTensorsAndNoneOfWholeBlocks) {
  CutWorld cut(4);
  cut.add(70, 100, {25, 50, 75});
  cut.add(50, 352, {88, 176, 264});
  cut.make({1, 2});
  cut.step(1);
  EXPECT_EQ(1, cut.countCalls());
  cut.step(2);
  EXPECT_EQ(2, cut.countCalls());
  CutWorld whole(4);
  whole.add(70, 512, {128, 256, 384});
  whole.add(50, 253, {64, 128, 192});
  whole.make({1, 2});
  whole.step(1);
  EXPECT_EQ(0, whole.countCalls());
  for (auto &rank : whole.ranks)
    expectSame(*rank, *whole.whole);
}

TEST(CutCodes, whatOthersCannotKnowOf) {
  // Equal shares would be whole blocks.
  CutWorld world(2);
  world.add(70, 256, {100});
  world.whole = std::make_unique<CutRank>(
      world.wholeOf, std::array<int32_t, 2>{1, 1}, StepcPlanConfig());
  StepcStatus found = STEPC_OK;
  std::string message;
  world.world =
      makeSimulatedRanks({2}, [&](const std::vector<StepcAxis> &axes,
                                  const StepcCommunicator &communicator) {
        Part part = world.wholeOf;
        part.begins[0] = axes[0].coordinate ? 100 : 0;
        part.ends[0] = axes[0].coordinate ? 256 : 100;
        CutRank rank(part, {1, 1}, {});
        rank.setMesh(axes[0], communicator);
        found = rank.bind();
        message = stepcLastErrorMessage();
      });
  EXPECT_EQ(STEPC_LAYOUT_UNSUPPORTED, found);
  EXPECT_EQ("tensor 'w': state 'second' is kept as codes in blocks of 64 "
            "elements along rows of 256, and this rank has columns 100 to 256 "
            "of one, which cuts a block where equal shares do not",
            message);
}

TEST(CutCodes, aTensorThatOneRankHasNoGradientOf) {
  CutWorld world(2);
  world.add(70, 100, {50});
  world.make({1, 1});
  ASSERT_OK(stepcPlanSetGrad(world.ranks[1]->plan.get(), 0, nullptr));
  std::array<StepcStatus, 2> found = {};
  std::array<std::string, 2> words;
  inThreads(2, [&](int64_t r) {
    found[size_t(r)] = stepcStep(world.ranks[size_t(r)]->plan.get());
    words[size_t(r)] = stepcLastErrorMessage();
  });
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(STEPC_COMMUNICATION_ERROR, found[r]);
    EXPECT_EQ("codes of 'toy': of ranks that share blocks of codes some have "
              "stepped a tensor and others, which had no gradient of it, have "
              "not",
              words[r]);
  }
}

/// Two ranks with a matrix in files and one of which they cut blocks.
struct PlacedWorld : CutWorld {
  PlacedWorld() : CutWorld(2) {
    add(70, 512, {256});
    add(70, 100, {50});
    make({1, 1}, {}, /*places=*/true);
    step(1);
  }
};

/// The other one steps, and does not wait for it until the deadline.
TEST(CutCodes, aFileThatFailsOnOneRank) {
  for (bool inParts : {false, true})
    for (int64_t n : {0, 5}) {
      SCOPED_TRACE(testing::Message() << inParts << ", call " << n);
      PlacedWorld world;
      ASSERT_OK(stepcSimulatedWorldSetDeadline(world.world, 5000));
      // One has no matrix in its file that takes part.
      ASSERT_OK(stepcPlanSetGrad(world.ranks[0]->plan.get(), 0, nullptr));
      std::array<StepcStatus, 2> found = {};
      std::array<std::string, 2> words;
      failFileCalls(n, EIO);
      inThreads(2, [&](int64_t r) {
        CutRank &rank = *world.ranks[size_t(r)];
        found[size_t(r)] =
            inParts ? rank.stepInParts(1 - r) : stepcStep(rank.plan.get());
        words[size_t(r)] = stepcLastErrorMessage();
      });
      failFileCalls(-1, 0);
      EXPECT_EQ(STEPC_OK, found[0]) << words[0];
      EXPECT_EQ(STEPC_STORE_ERROR, found[1]);
      EXPECT_NE(std::string::npos,
                words[1].find(n == 0 || inParts
                                  ? "other ranks have gone on"
                                  : "some tensors were stepped before"))
          << words[1];
      EXPECT_EQ(STEPC_POISONED, stepcStepBegin(world.ranks[1]->plan.get()));
    }
}

/// The plan says that it is broken, and tells no more of the file.
TEST(CutCodes, aFileThatFailsWhereNoOtherRankComes) {
  PlacedWorld world;
  ASSERT_OK(stepcSimulatedWorldSetDeadline(world.world, 50));
  StepcPlan *plan = world.ranks[1]->plan.get();
  failFileCalls(0, EIO);
  EXPECT_EQ(STEPC_COMMUNICATION_ERROR, world.ranks[1]->stepInParts());
  failFileCalls(-1, 0);
  EXPECT_EQ(STEPC_POISONED, stepcStepBegin(plan));
  EXPECT_EQ(STEPC_POISONED, stepcStep(plan));
}

TEST(CutCodes, memoryIsCounted) {
  // Of each row the second rank has 14 elements of one block and 36 of the
  // next, which are 200 bytes of f32.
  CutWorld world(2);
  world.add(70, 100, {50});
  world.make({1, 1});
  CutRank plain(world.ranks[1]->part, {1, 1}, {});
  plain.part.wholes[0] = 50;
  plain.part.begins[0] = 0;
  plain.part.ends[0] = 50;
  ASSERT_OK(plain.bind());
  int64_t more = getInfo(world.ranks[1]->plan.get()).bytesAllocated -
                 getInfo(plain.plan.get()).bytesAllocated;
  EXPECT_GE(more, 2 * 70 * (14 * 4 + 16 * 2));
  EXPECT_LE(more, 2 * 70 * (14 * 4 + 16 * 2) + 4096);
}

} // namespace
