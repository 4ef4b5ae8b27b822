//===- StatisticsTest.cpp - schedules of several phases, bit for bit ----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Interpose.h"
#include "support/TileModel.h"

#include <omp.h>

using namespace stepc_test;

namespace {

// The last ones are shared by all workers.
const std::vector<std::vector<int64_t>> kLambShapes = {
    {},     {1},       {16},        {1023},   {1024},     {0},
    {1025}, {3, 5, 7}, {4, 0, 3},   {4097},   {70000},    {2, 1, 9},
    {12},   {12},      {1000, 300}, {600000}, {2, 200001}};

const std::vector<std::vector<int64_t>> kFactorShapes = {
    {1, 1},    {64, 40},  {65, 33},    {3, 65, 1030},    {2, 2, 130, 70},
    {2, 0, 5}, {0, 3, 4}, {5, 0},      {2, 1, 5},        {7, 4097},
    {3, 5},    {300, 3},  {200, 3000}, {2, 3, 130, 900}, {100, 4100}};

class Lamb {
public:
  explicit Lamb(TileModel &model) : model(model) {
    for (size_t i = 0; i < model.specs.size(); ++i) {
      Floats param = model.getParam(i);
      tensors.push_back({param, Floats(param.size(), 0.0f)});
    }
  }
  void step() {
    for (size_t i = 0; i < tensors.size(); ++i)
      tensors[i].step(model.getGrad(i), 0.25, 0.5);
  }
  void check() const {
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(bitsOf(tensors[i].param) + bitsOf(tensors[i].moment) ==
                  model.bits(i, {"moment"}))
          << "tensor " << i;
  }
  TileModel &model;
  std::vector<LambTensor> tensors;
};

class Factor {
public:
  explicit Factor(TileModel &model) : model(model) {
    for (size_t i = 0; i < model.specs.size(); ++i) {
      const std::vector<int64_t> &shape = model.specs[i].shape;
      size_t rank = shape.size();
      FactorTensor tensor = {1, shape[rank - 2], shape[rank - 1], {}, {}, {}};
      for (size_t d = 0; d + 2 < rank; ++d)
        tensor.b *= shape[d];
      tensor.param = model.getParam(i);
      tensor.rows.assign(size_t(tensor.b * tensor.n), 0.0f);
      tensor.columns.assign(size_t(tensor.b * tensor.m), 0.25f);
      tensors.push_back(tensor);
    }
  }
  void step() {
    for (size_t i = 0; i < tensors.size(); ++i)
      tensors[i].step(model.getGrad(i), 0.25);
  }
  /// The means of no values are no numbers.
  void check() const {
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_TRUE(bitsOf(tensors[i].param) + bitsOf(tensors[i].rows) +
                      bitsOf(tensors[i].columns) ==
                  model.bits(i, {"rows", "columns"}))
          << "tensor " << i;
  }
  TileModel &model;
  std::vector<FactorTensor> tensors;
};

template <typename Reference>
void compare(StepcPackage *package, const std::vector<TensorSpec> &specs,
             StepcPlanConfig config) {
  SCOPED_TRACE(testing::Message() << config.numThreads << " threads, chunks of "
                                  << config.chunkElements);
  TileModel model(package, specs, config);
  Reference reference(model);
  for (uint32_t step = 1; step <= 2; ++step) {
    model.fillGrads(step);
    ASSERT_OK(stepcStep(model.plan.get()));
    reference.step();
    reference.check();
  }
}

TEST(Statistics, lamb) {
  for (StepcPlanConfig cut : getCuts())
    compare<Lamb>(getLamb(), makeSpecs(kLambShapes), cut);
}

TEST(Statistics, factor) {
  for (StepcPlanConfig cut : getCuts())
    compare<Factor>(getFactor(), makeSpecs(kFactorShapes), cut);
}

/// The order of the sums is that of the indices, wherever elements lie.
TEST(Statistics, strided) {
  const std::vector<std::vector<int64_t>> shapes = {
      {5, 7}, {3, 70, 11}, {2, 2, 65, 9}, {1, 1100}, {6, 0, 2}, {130, 700}};
  for (Layout param : {Layout::RowMajor, Layout::ColumnMajor, Layout::Padded,
                       Layout::Sliced, Layout::Backwards})
    for (Layout grad : {Layout::RowMajor, Layout::ColumnMajor, Layout::Sliced,
                        Layout::Expanded}) {
      compare<Lamb>(getLamb(), makeSpecs(shapes, param, grad), makeConfig(2));
      compare<Factor>(getFactor(), makeSpecs(shapes, param, grad),
                      makeConfig(3, 1));
    }
}

/// Operands that agree on another order are still strided: in this package the
/// contiguous kernels would fail to be called for.
TEST(Statistics, sameOrderIsNotEnough) {
  nlohmann::json manifest = makeLambManifest();
  for (int entry : {0, 2})
    manifest["variants"][0]["schedule"][entry]["kernel"] = "lamb_scalars";
  PackagePtr package = loadManifest(manifest);
  compare<Lamb>(
      package.get(),
      makeSpecs({{5, 7}, {1030, 4}}, Layout::ColumnMajor, Layout::ColumnMajor),
      makeConfig(1));
}

/// A gradient that changes its layout moves its row, with slots and dims.
TEST(Statistics, gradientsThatChangeTheirLayout) {
  TileModel model(getFactor(), makeSpecs({{5, 70}, {3, 4, 9}, {8, 8}}));
  Factor reference(model);
  const Layout layouts[] = {Layout::RowMajor, Layout::ColumnMajor,
                            Layout::Sliced};
  for (uint32_t step = 0; step < 9; ++step) {
    for (size_t i = 0; i < 3; ++i)
      model.grads[i] = std::make_unique<Array>(Type::F32, model.specs[i].shape,
                                               layouts[(step + i) % 3]);
    model.fillGrads(step + 5);
    model.setGrads({false, false, false});
    ASSERT_OK(stepcStep(model.plan.get()));
    reference.step();
    reference.check();
  }
}

/// Kernels with `unless_slot` are left out for the tensors that ask for it.
TEST(Statistics, unlessSlot) {
  for (int threads : {1, 3}) {
    TileModel model(getLamb(),
                    makeSpecs({{9}, {40}, {600000}, {5}, {6}, {500000}, {1}}),
                    makeConfig(threads));
    for (size_t i : {1, 2, 4})
      for (Array *array : {&model.params[i], model.grads[i].get()})
        for (int64_t k = 0; k < array->size(); ++k)
          array->set(k, 0.0);
    Lamb reference(model);
    ASSERT_OK(stepcStep(model.plan.get()));
    reference.step();
    reference.check();
  }
}

/// Neither the order in which tensors are bound nor their company matters.
TEST(Statistics, order) {
  std::vector<TensorSpec> specs = makeSpecs(kFactorShapes);
  TileModel forwards(getFactor(), specs, makeConfig(2));
  std::vector<TensorSpec> reversed(specs.rbegin(), specs.rend());
  TileModel backwards(getFactor(), reversed, makeConfig(3));
  size_t last = specs.size() - 1;
  for (size_t i = 0; i <= last; ++i)
    for (int64_t k = 0; k < forwards.params[i].size(); ++k) {
      backwards.params[last - i].set(k, forwards.params[i].get(k));
      backwards.grads[last - i]->set(k, forwards.grads[i]->get(k));
    }
  ASSERT_OK(stepcStep(forwards.plan.get()));
  ASSERT_OK(stepcStep(backwards.plan.get()));
  for (size_t i = 0; i <= last; ++i)
    EXPECT_EQ(forwards.bits(i, {"rows", "columns"}),
              backwards.bits(last - i, {"rows", "columns"}));
}

/// Of one segment, so parts are permitted.
TEST(Statistics, subsets) {
  TileModel model(getLamb(), makeSpecs(kLambShapes), makeConfig(2));
  Lamb reference(model);
  ASSERT_OK(stepcStepBegin(model.plan.get()));
  for (size_t i = model.ids.size(); i-- > 0;)
    ASSERT_OK(stepcStepTensors(model.plan.get(), &model.ids[i], 1));
  ASSERT_OK(stepcStepEnd(model.plan.get()));
  reference.step();
  reference.check();
}

TEST(Statistics, stepsAllocateNothing) {
  TileModel model(getFactor(), makeSpecs(kFactorShapes), makeConfig(3));
  ASSERT_OK(stepcStep(model.plan.get()));
  int64_t before = countAllocations();
  bool good = true;
  for (int64_t step = 0; step < 10; ++step) {
    good &= stepcPlanSetGrad(model.plan.get(), step, nullptr) == STEPC_OK;
    good &= stepcStep(model.plan.get()) == STEPC_OK;
  }
  EXPECT_EQ(0, countAllocations() - before);
  EXPECT_TRUE(good);
}

/// More threads than when tensors were bound have no workspace: they do not
/// come, until the next bind.
TEST(Statistics, threadsThatComeLater) {
  int before = omp_get_max_threads();
  omp_set_num_threads(2);
  TileModel model(getFactor(), makeSpecs(kFactorShapes));
  Factor reference(model);
  int64_t bytes = getInfo(model.plan.get()).workspaceBytes;
  omp_set_num_threads(7);
  ASSERT_OK(stepcStep(model.plan.get()));
  reference.step();
  reference.check();
  Array param(Type::F32, {3, 4}), grad(Type::F32, {3, 4});
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  ASSERT_OK(stepcPlanBind(model.plan.get(), &binding, 1, nullptr));
  EXPECT_GT(getInfo(model.plan.get()).workspaceBytes, bytes);
  ASSERT_OK(stepcStep(model.plan.get()));
  reference.step();
  reference.check();
  omp_set_num_threads(before);
}

/// One region a step, whatever the phases.
TEST(Statistics, oneRegion) {
  TileModel model(getFactor(), makeSpecs(kFactorShapes), makeConfig(3));
  int64_t before = countRegions();
  ASSERT_OK(stepcStep(model.plan.get()));
  EXPECT_EQ(1, countRegions() - before);
}

/// Workspace is shared by tensors: it grows with the largest, not the sum.
TEST(Statistics, workspace) {
  TileModel one(getFactor(), makeSpecs({{500, 3000}}), makeConfig(2));
  std::vector<std::vector<int64_t>> shapes(10, {500, 3000});
  TileModel ten(getFactor(), makeSpecs(shapes), makeConfig(2));
  int64_t bytes = getInfo(one.plan.get()).workspaceBytes;
  EXPECT_GT(bytes, 8 * 3000 * 8);
  EXPECT_EQ(bytes, getInfo(ten.plan.get()).workspaceBytes);

  // Tensors bound later take more, and all still have the right bits.
  Factor reference(one);
  Array param(Type::F32, {900, 5000}), grad(Type::F32, {900, 5000});
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  ASSERT_OK(stepcPlanBind(one.plan.get(), &binding, 1, nullptr));
  EXPECT_GT(getInfo(one.plan.get()).workspaceBytes, bytes);
  ASSERT_OK(stepcStep(one.plan.get()));
  reference.step();
  reference.check();
}

TEST(Statistics, states) {
  PlanPtr plan = makePlan(getFactor());
  ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, nullptr, 0, nullptr));
  Array param(Type::F32, {3, 4, 5}), grad(Type::F32, {3, 4, 5});
  Array rows(Type::F32, {3, 4, 1}), columns(Type::F32, {3, 1, 5});
  Array flat(Type::F32, {3, 4}), sliced(Type::F32, {3, 1, 5}, Layout::Sliced);
  StepcBinding binding = makeBinding("w", param.dl(), grad.dl());
  const DLTensor *states[] = {flat.dl(), columns.dl()};
  binding.states = states;
  binding.numStates = 2;
  auto bind = [&] { return stepcPlanBind(plan.get(), &binding, 1, nullptr); };
  EXPECT_REFUSED(STEPC_SHAPE_MISMATCH,
                 "tensor 'w': state 'rows' has shape [3, 4], it must have "
                 "[3, 4, 1], since the bound parameter has [3, 4, 5]",
                 bind());
  states[0] = rows.dl();
  states[1] = sliced.dl();
  EXPECT_REFUSED(STEPC_LAYOUT_UNSUPPORTED,
                 "tensor 'w': state 'columns' has strides [10, 10, 2], a state "
                 "with fewer dims than its parameter must be row-major without "
                 "gaps",
                 bind());
  states[1] = param.dl();
  EXPECT_STATUS(STEPC_SHAPE_MISMATCH, bind());
  states[1] = columns.dl();
  columns.fill(3);
  rows.fill(4);
  for (Array *array : {&param, &grad})
    array->fill(5);
  ASSERT_OK(bind());
  ASSERT_OK(stepcStep(plan.get()));
  DLTensor view;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "rows", &view));
  EXPECT_EQ(rows.dl()->data, view.data);
  EXPECT_EQ(3, view.ndim);
  EXPECT_EQ(1, view.shape[2]);
  // A gradient that shares memory with a small state.
  Array inside(Type::F32, {3, 4, 5});
  DLTensor overlapping = *inside.dl();
  overlapping.data = static_cast<char *>(columns.dl()->data) - 4 * 59;
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'w': gradient and tensor 'w': state 'columns' share "
                 "memory",
                 stepcPlanSetGrad(plan.get(), 0, &overlapping));
}

} // namespace
