//===- PlacedTest.cpp - plans whose states lie in a store -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"
#include "support/Interpose.h"

#include "stepc/codes.h"
#include "stepc/store.h"

#include <cerrno>
#include <cstring>

using namespace stepc_test;

namespace {

struct StoreDeleter {
  void operator()(StepcStore *store) const { stepcStoreDestroy(store); }
};
using StorePtr = std::unique_ptr<StepcStore, StoreDeleter>;

StepcStoreConfig makeStoreConfig(int64_t windowBytes = 4096) {
  StepcStoreConfig config = {};
  config.structSize = sizeof(config);
  config.directory = "/tmp";
  config.windowBytes = windowBytes;
  return config;
}

StorePtr makeStore(StepcStoreConfig config = makeStoreConfig()) {
  StepcStore *store = nullptr;
  EXPECT_EQ(STEPC_OK, stepcStoreCreate(&config, &store))
      << stepcLastErrorMessage();
  return StorePtr(store);
}

StepcStoreInfo getStoreInfo(StepcStore *store) {
  StepcStoreInfo info = {};
  info.structSize = sizeof(info);
  EXPECT_EQ(STEPC_OK, stepcStoreGetInfo(store, &info));
  return info;
}

/// Tensors of the toy optimizer, whose two states lie in a store, or in memory
/// where there is none.
class Side {
public:
  Side(const std::vector<std::vector<int64_t>> &shapes, StepcPlanConfig config,
       StepcStore *store, bool coded = false)
      : plan(makePlan(getToy(), config)), store(store), coded(coded) {
    EXPECT_EQ(STEPC_OK,
              stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    if (store) {
      EXPECT_EQ(STEPC_OK, stepcPlanSetStore(plan.get(), store));
    }
    for (const auto &shape : shapes)
      addTensor(shape);
    std::vector<StepcBinding> bindings;
    for (size_t i = 0; i < tensors.size(); ++i)
      bindings.push_back(describe(*tensors[i]));
    status = stepcPlanBind(plan.get(), bindings.data(),
                           int64_t(bindings.size()), nullptr);
  }

  void fillGrads(uint32_t seed) {
    for (auto &tensor : tensors)
      tensor->grad.fill(seed++);
  }
  void setGrad(size_t i, bool there) {
    ASSERT_OK(stepcPlanSetGrad(plan.get(), int64_t(i),
                               there ? tensors[i]->grad.dl() : nullptr));
  }

  /// All bits of parameters and states.
  std::string bits() {
    std::string all;
    for (auto &tensor : tensors) {
      all += tensor->param.bits();
      for (Bytes &bytes : tensor->arrays)
        all += read(bytes);
    }
    return all;
  }

  PlanPtr plan;
  StepcStatus status;

private:
  struct Bytes {
    std::vector<int64_t> shape;
    std::vector<char> memory;
    void *stored = nullptr;
    DLTensor tensor = {};
  };
  struct Tensor {
    explicit Tensor(const std::vector<int64_t> &shape)
        : param(Type::F32, shape), grad(Type::F32, shape) {}
    Array param, grad;
    std::vector<Bytes> arrays;
    std::vector<const DLTensor *> states, scales;
    std::vector<int32_t> formats;
  };

  void addArray(Tensor &tensor, std::vector<int64_t> shape, DLDataType type) {
    Bytes &bytes = tensor.arrays.emplace_back();
    bytes.shape = std::move(shape);
    int64_t size = type.bits / 8;
    for (int64_t extent : bytes.shape)
      size *= extent;
    bytes.memory.resize(size_t(size));
    bytes.tensor.data = bytes.memory.data();
    if (store) {
      EXPECT_EQ(STEPC_OK, stepcStoreTake(store, size, &bytes.stored));
      bytes.tensor.data = bytes.stored;
    }
    bytes.tensor.device = {kDLCPU, 0};
    bytes.tensor.ndim = int32_t(bytes.shape.size());
    bytes.tensor.dtype = type;
    bytes.tensor.shape = bytes.shape.data();
  }

  void addTensor(const std::vector<int64_t> &shape) {
    auto &tensor = *tensors.emplace_back(std::make_unique<Tensor>(shape));
    tensor.param.fill(uint32_t(tensors.size()));
    tensor.grad.fill(uint32_t(tensors.size() + 100));
    tensor.arrays.reserve(4);
    for (int k = 0; k < 2; ++k) {
      if (!coded) {
        addArray(tensor, shape, {kDLFloat, 32, 1});
        continue;
      }
      addArray(tensor, shape, {kDLUInt, 8, 1});
      addArray(tensor, {shape[0], (shape[1] + 63) / 64}, {kDLFloat, 32, 1});
    }
    for (size_t k = 0; k < tensor.arrays.size(); ++k)
      (coded && k % 2 ? tensor.scales : tensor.states)
          .push_back(&tensor.arrays[k].tensor);
    tensor.formats.assign(2, STEPC_STATE_Q8);
  }

  StepcBinding describe(const Tensor &tensor) const {
    StepcBinding binding =
        makeBinding(nullptr, tensor.param.dl(), tensor.grad.dl());
    binding.states = tensor.states.data();
    binding.numStates = 2;
    if (coded) {
      binding.formats = tensor.formats.data();
      binding.scales = tensor.scales.data();
    }
    return binding;
  }

  std::string read(Bytes &bytes) const {
    if (store) {
      EXPECT_EQ(STEPC_OK, stepcStoreRead(store, bytes.stored,
                                         int64_t(bytes.memory.size()),
                                         bytes.memory.data()))
          << stepcLastErrorMessage();
    }
    return {bytes.memory.data(), bytes.memory.size()};
  }

  StepcStore *store;
  bool coded;
  std::vector<std::unique_ptr<Tensor>> tensors;
};

const std::vector<std::vector<int64_t>> kShapes = {
    {3, 5}, {100, 90}, {0, 7}, {64, 64}, {1, 30000}, {1, 1}, {40, 50}};

class PlacedTest : public testing::TestWithParam<bool> {};

/// Any chunks, windows and threads, some gradients missing.
TEST_P(PlacedTest, stepsAreThoseOfMemory) {
  const bool coded = GetParam();
  for (int64_t chunk : {0, 37, 1024})
    for (int64_t window : {4096, 70000, 1 << 20})
      for (int threads : {1, 3}) {
        StorePtr store = makeStore(makeStoreConfig(window));
        StepcPlanConfig config = makeConfig(threads, chunk);
        Side memory(kShapes, config, nullptr, coded);
        Side disk(kShapes, config, store.get(), coded);
        ASSERT_EQ(STEPC_OK, disk.status) << stepcLastErrorMessage();
        for (uint32_t step = 0; step < 4; ++step) {
          for (Side *side : {&memory, &disk}) {
            side->fillGrads(step * 50);
            for (size_t i = 0; i < kShapes.size(); ++i)
              side->setGrad(i, (i + step) % 4 != 0);
            ASSERT_OK(stepcStep(side->plan.get()));
          }
          ASSERT_EQ(memory.bits(), disk.bits())
              << "chunks of " << chunk << ", windows of " << window << ", step "
              << step;
        }
      }
}

INSTANTIATE_TEST_SUITE_P(states, PlacedTest, testing::Bool());

/// A step moves what it works on and nothing else, in windows.
TEST(Placed, whatASteppedTensorMoves) {
  StorePtr store = makeStore();
  Side side({{64, 64}, {64, 64}}, {}, store.get());
  side.setGrad(0, false);
  StepcStoreInfo before = getStoreInfo(store.get());
  EXPECT_EQ(4 * 64 * 64 * 4, before.takenBytes);
  ASSERT_OK(stepcStep(side.plan.get()));
  StepcStoreInfo after = getStoreInfo(store.get());
  EXPECT_EQ(2 * 64 * 64 * 4, after.bytesRead - before.bytesRead);
  EXPECT_EQ(2 * 64 * 64 * 4, after.bytesWritten - before.bytesWritten);
  side.setGrad(1, false);
  ASSERT_OK(stepcStep(side.plan.get()));
  EXPECT_EQ(after.bytesRead, getStoreInfo(store.get()).bytesRead);
}

/// Windows hold what the store was told, or the largest tensor that cannot be
/// cut.
TEST(Placed, memoryOfWindows) {
  StorePtr store = makeStore(makeStoreConfig(1 << 16));
  auto getBytes = [&](std::vector<int64_t> shape, bool coded, StepcStore *own) {
    Side side({std::move(shape)}, {}, own, coded);
    return getInfo(side.plan.get()).bytesAllocated;
  };
  int64_t more = getBytes({1, 500000}, false, store.get()) -
                 getBytes({1, 500000}, false, nullptr);
  EXPECT_GE(more, 4 * 2 * 65536); // a piece is a chunk
  EXPECT_LE(more, 4 * 2 * 65536 + 4096);
  more = getBytes({200, 100}, true, store.get()) -
         getBytes({200, 100}, true, nullptr);
  EXPECT_GE(more, 4 * 65536);
  EXPECT_LE(more, 4 * 65536 + 4096);
}

/// What fails before anything was stepped changes nothing; later it poisons.
TEST(Placed, filesThatFail) {
  int poisoned = 0, refused = 0;
  for (int error : {EIO, ENOSPC})
    for (int64_t n = 0; n < 40; n += 3) {
      StorePtr store = makeStore();
      StepcPlanConfig config = makeConfig(2, 1024);
      Side memory(kShapes, config, nullptr), disk(kShapes, config, store.get());
      ASSERT_OK(stepcStep(memory.plan.get()));
      ASSERT_OK(stepcStep(disk.plan.get()));
      std::string before = disk.bits();
      failFileCalls(n, error);
      StepcStatus status = stepcStep(disk.plan.get());
      std::string words = stepcLastErrorMessage();
      failFileCalls(-1, 0);
      if (status == STEPC_OK) {
        ASSERT_OK(stepcStep(memory.plan.get()));
        EXPECT_EQ(memory.bits(), disk.bits());
        continue;
      }
      EXPECT_EQ(STEPC_STORE_ERROR, status);
      EXPECT_NE(std::string::npos, words.find("the file of states in '/tmp': "))
          << words;
      EXPECT_NE(std::string::npos, words.find(std::strerror(error))) << words;
      status = stepcStep(disk.plan.get());
      if (words.find("some tensors were stepped before") != std::string::npos) {
        EXPECT_EQ(STEPC_POISONED, status);
        ++poisoned;
        continue;
      }
      ++refused;
      EXPECT_EQ(STEPC_OK, status) << stepcLastErrorMessage();
      ASSERT_OK(stepcStep(memory.plan.get()));
      EXPECT_EQ(memory.bits(), disk.bits());
    }
  EXPECT_GT(poisoned, 0);
  EXPECT_GT(refused, 0);
}

TEST(Placed, noMemoryForWindows) {
  StorePtr store = makeStore(makeStoreConfig(1 << 20));
  int refused = 0;
  for (int64_t n = 0; n < 120; ++n) {
    PlanPtr plan = makePlan(getToy());
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    ASSERT_OK(stepcPlanSetStore(plan.get(), store.get()));
    Array param(Type::F32, {64, 64}), grad(Type::F32, {64, 64});
    void *address[2];
    DLTensor tensors[2] = {*param.dl(), *param.dl()};
    const DLTensor *states[2];
    for (int k = 0; k < 2; ++k) {
      ASSERT_OK(stepcStoreTake(store.get(), 64 * 64 * 4, &address[k]));
      tensors[k].data = address[k];
      tensors[k].byte_offset = 0;
      tensors[k].strides = nullptr;
      states[k] = &tensors[k];
    }
    StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
    binding.states = states;
    binding.numStates = 2;
    failAllocation(n);
    StepcStatus status = stepcPlanBind(plan.get(), &binding, 1, nullptr);
    failAllocation(-1);
    if (status != STEPC_OK) {
      ++refused;
      EXPECT_EQ(STEPC_OUT_OF_MEMORY, status) << stepcLastErrorMessage();
      ASSERT_OK(stepcPlanBind(plan.get(), &binding, 1, nullptr));
    }
    ASSERT_OK(stepcStep(plan.get()));
    plan.reset();
    for (void *own : address)
      ASSERT_OK(stepcStoreGive(store.get(), own));
  }
  EXPECT_GT(refused, 5);
}

TEST(Placed, refusals) {
  StepcStore *out = nullptr;
  StepcStoreConfig config = makeStoreConfig();
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "config is NULL",
                 stepcStoreCreate(nullptr, &out));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "out is NULL",
                 stepcStoreCreate(&config, nullptr));
  config.windowBytes = 100;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "windowBytes of a store is 100, outside 4096 to 17179869184",
                 stepcStoreCreate(&config, &out));
  config = makeStoreConfig();
  config.numWindows = 1;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "numWindows of a store is 1, outside 2 to 64",
                 stepcStoreCreate(&config, &out));
  config = makeStoreConfig();
  config.numThreads = -1;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "numThreads of a store is -1, outside 1 to 64",
                 stepcStoreCreate(&config, &out));
  config = makeStoreConfig();
  config.buffered = 2;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "buffered is 2, neither 0 nor 1",
                 stepcStoreCreate(&config, &out));
  config = makeStoreConfig();
  config.reserved0 = 1;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "a reserved field of the config is not 0",
                 stepcStoreCreate(&config, &out));
  config = makeStoreConfig();
  config.directory = "/no/such/folder";
  EXPECT_REFUSED(STEPC_STORE_ERROR,
                 "no file for states can be made in '/no/such/folder': No such "
                 "file or directory",
                 stepcStoreCreate(&config, &out));
  EXPECT_EQ(nullptr, out);

  StorePtr store = makeStore();
  Side side({{64, 64}}, {}, store.get());
  EXPECT_REFUSED(STEPC_WRONG_STATE,
                 "stepcPlanSetStore after 1 tensors were bound",
                 stepcPlanSetStore(side.plan.get(), store.get()));
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT, "store is NULL",
                 stepcPlanSetStore(side.plan.get(), nullptr));
}

class RefusedStates : public testing::Test {
protected:
  void SetUp() override {
    plan = makePlan(getToy());
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
    ASSERT_OK(stepcPlanSetStore(plan.get(), store.get()));
    ASSERT_OK(stepcStoreTake(store.get(), 1 << 20, &address));
    for (int k = 0; k < 2; ++k) {
      tensors[k] = *param.dl();
      tensors[k].byte_offset = 0;
      tensors[k].strides = nullptr;
      setState(k, 65536 * k);
      states[k] = &tensors[k];
    }
    binding = makeBinding("w", param.dl(), grad.dl());
    binding.states = states;
    binding.numStates = 2;
  }
  void setState(int k, int64_t offset) {
    tensors[k].data = static_cast<char *>(address) + offset;
  }
  StepcStatus bind() { return stepcPlanBind(plan.get(), &binding, 1, nullptr); }

  StorePtr store = makeStore();
  PlanPtr plan;
  Array param{Type::F32, {64, 64}}, grad{Type::F32, {64, 64}};
  void *address = nullptr;
  DLTensor tensors[2];
  const DLTensor *states[2];
  StepcBinding binding;
};

TEST_F(RefusedStates, addresses) {
  setState(0, 16);
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 "tensor 'w': state 'second' begins at byte 4112 of a store, "
                 "where no page does",
                 bind());
  setState(0, 65536 + 4096);
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'w': state 'second' and tensor 'w': state "
                 "'momentum_buffer' share memory",
                 bind());
  setState(0, 0);
  ASSERT_OK(bind());
}

TEST_F(RefusedStates, codesAndScalesApart) {
  std::vector<float> scales(64);
  int64_t shape[] = {64, 1};
  DLTensor of = *param.dl();
  of.data = scales.data();
  of.byte_offset = 0;
  of.strides = nullptr;
  of.shape = shape;
  const DLTensor *scaleStates[] = {&of, nullptr};
  int32_t formats[] = {STEPC_STATE_Q8, STEPC_STATE_PLAIN};
  tensors[0].dtype = {kDLUInt, 8, 1};
  binding.scales = scaleStates;
  binding.formats = formats;
  EXPECT_REFUSED(STEPC_INVALID_ARGUMENT,
                 "tensor 'w': of state 'second' the codes or the scales are on "
                 "disk, and the others are not",
                 bind());
}

/// Another class of rows would find no pieces.
TEST_F(RefusedStates, otherStrides) {
  ASSERT_OK(bind());
  Array turned(Type::F32, {64, 64}, Layout::ColumnMajor);
  EXPECT_REFUSED(STEPC_NEEDS_BIND,
                 "tensor 'w': parameter has other strides, and states on disk",
                 stepcPlanSetParam(plan.get(), 0, turned.dl()));
  ASSERT_OK(stepcStep(plan.get()));
}

} // namespace
