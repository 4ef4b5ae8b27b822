//===- OverlapTest.cpp - memory that is written belongs to one tensor -----===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "support/Fixture.h"

using namespace stepc_test;

namespace {

/// Views of one piece of memory of 64 floats.
class OverlapTest : public testing::Test {
protected:
  void SetUp() override {
    plan = makePlan(getToy());
    double hypers[] = {0.1, 0.0, 0.0};
    ASSERT_OK(stepcPlanAddGroup(plan.get(), nullptr, 0, hypers, 3, nullptr));
  }

  struct Piece {
    std::vector<int64_t> shape, strides;
    DLTensor tensor;
  };

  const DLTensor *view(int64_t offset, std::vector<int64_t> shape,
                       std::vector<int64_t> strides) {
    pieces.push_back(std::make_unique<Piece>());
    Piece &piece = *pieces.back();
    piece.shape = std::move(shape);
    piece.strides = std::move(strides);
    piece.tensor =
        makeView(memory + offset, Type::F32, piece.shape, &piece.strides);
    return &piece.tensor;
  }

  /// A gradient elsewhere.
  const DLTensor *elsewhere(const DLTensor *param) {
    arrays.push_back(std::make_unique<Array>(
        Type::F32,
        std::vector<int64_t>(param->shape, param->shape + param->ndim)));
    return arrays.back()->dl();
  }

  StepcStatus bind(std::vector<StepcBinding> bindings) {
    return stepcPlanBind(plan.get(), bindings.data(), int64_t(bindings.size()),
                         nullptr);
  }
  StepcBinding bindingOf(const char *name, const DLTensor *param) {
    return makeBinding(name, param, elsewhere(param));
  }

  PlanPtr plan;
  float memory[64] = {};
  std::vector<std::unique_ptr<Piece>> pieces;
  std::vector<std::unique_ptr<Array>> arrays;
};

TEST_F(OverlapTest, oneParameterTwice) {
  const DLTensor *w = view(0, {8}, {1});
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': parameter and tensor 'b': parameter share memory",
                 bind({bindingOf("a", w), bindingOf("b", w)}));
  EXPECT_EQ(0, getInfo(plan.get()).numTensors);
  ASSERT_OK(bind({bindingOf("a", w)}));
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': parameter and tensor 'b': parameter share memory",
                 bind({bindingOf("b", w)}));
  EXPECT_EQ(1, getInfo(plan.get()).numTensors);
}

TEST_F(OverlapTest, oneElementInCommon) {
  EXPECT_STATUS(STEPC_OVERLAP, bind({bindingOf("a", view(0, {8}, {1})),
                                     bindingOf("b", view(7, {8}, {1}))}));
  ASSERT_OK(bind(
      {bindingOf("a", view(0, {8}, {1})), bindingOf("b", view(8, {8}, {1}))}));
}

TEST_F(OverlapTest, columnsOfOneMatrix) {
  // 8 x 8; columns 0 to 3 and 4 to 7 interleave and share nothing.
  ASSERT_OK(bind({bindingOf("left", view(0, {8, 4}, {8, 1})),
                  bindingOf("right", view(4, {8, 4}, {8, 1}))}));
  EXPECT_REFUSED(
      STEPC_OVERLAP,
      "tensor 'left': parameter and tensor 'middle': parameter share memory",
      bind({bindingOf("middle", view(3, {4, 2}, {8, 1}))}));
}

TEST_F(OverlapTest, evenAndOdd) {
  ASSERT_OK(bind({bindingOf("even", view(0, {32}, {2})),
                  bindingOf("odd", view(1, {32}, {2}))}));
}

TEST_F(OverlapTest, stridesThatMeet) {
  // 0 6 12 18 24 and 9 19 29: no common element; 4 14 24 has one.
  ASSERT_OK(bind({bindingOf("six", view(0, {5}, {6})),
                  bindingOf("ten", view(9, {3}, {10}))}));
  EXPECT_STATUS(STEPC_OVERLAP, bind({bindingOf("ten", view(4, {3}, {10}))}));
}

TEST_F(OverlapTest, backwards) {
  EXPECT_STATUS(STEPC_OVERLAP, bind({bindingOf("a", view(7, {8}, {-1})),
                                     bindingOf("b", view(0, {1}, {1}))}));
  ASSERT_OK(bind(
      {bindingOf("a", view(7, {8}, {-1})), bindingOf("b", view(8, {8}, {1}))}));
}

TEST_F(OverlapTest, gradientsMayShareMemory) {
  const DLTensor *g = view(32, {8}, {1});
  const DLTensor *inside = view(33, {4}, {0});
  ASSERT_OK(bind({makeBinding("a", view(0, {8}, {1}), g),
                  makeBinding("b", view(8, {8}, {1}), g),
                  makeBinding("c", view(16, {4}, {1}), inside)}));
  ASSERT_OK(stepcStep(plan.get()));
}

TEST_F(OverlapTest, gradientsThatAreParameters) {
  const DLTensor *a = view(0, {8}, {1}), *b = view(8, {8}, {1});
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': parameter and tensor 'a': gradient share memory",
                 bind({makeBinding("a", a, a)}));
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': gradient and tensor 'b': parameter share memory",
                 bind({makeBinding("a", a, b), bindingOf("b", b)}));
}

TEST_F(OverlapTest, states) {
  const DLTensor *s = view(0, {8}, {1}), *a = view(8, {8}, {1}),
                 *b = view(16, {8}, {1});
  StepcBinding first = bindingOf("a", a), second = bindingOf("b", b);
  first.states = second.states = &s;
  first.numStates = second.numStates = 1;
  EXPECT_REFUSED(
      STEPC_OVERLAP,
      "tensor 'a': state 'second' and tensor 'b': state 'second' share memory",
      bind({first, second}));
  first.states = &a;
  EXPECT_REFUSED(
      STEPC_OVERLAP,
      "tensor 'a': parameter and tensor 'a': state 'second' share memory",
      bind({first}));
}

TEST_F(OverlapTest, emptyTensorsShareNothing) {
  ASSERT_OK(bind({bindingOf("a", view(0, {8}, {1})),
                  bindingOf("b", view(2, {0, 4}, {4, 1}))}));
}

/// Parameters move one by one; what lies where in between does not matter, and
/// the step that would be wrong is refused.
TEST_F(OverlapTest, parametersThatSwapTheirPlaces) {
  const DLTensor *left = view(0, {8}, {1}), *right = view(8, {8}, {1});
  ASSERT_OK(bind({bindingOf("a", left), bindingOf("b", right)}));
  ASSERT_OK(stepcPlanSetParam(plan.get(), 0, right));
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': parameter and tensor 'b': parameter share memory",
                 stepcStep(plan.get()));
  EXPECT_STATUS(STEPC_OVERLAP, stepcStepBegin(plan.get()));
  int64_t count = -1;
  ASSERT_OK(stepcPlanGetCount(plan.get(), 0, &count));
  EXPECT_EQ(0, count);
  ASSERT_OK(stepcPlanSetParam(plan.get(), 1, left));
  ASSERT_OK(stepcStep(plan.get()));
}

/// A gradient bound before may be gone by the time that its memory holds
/// another parameter; if it is not, the next step says so.
TEST_F(OverlapTest, gradientsBoundBefore) {
  const DLTensor *g = view(32, {8}, {1});
  ASSERT_OK(bind({makeBinding("a", view(0, {8}, {1}), g)}));
  ASSERT_OK(bind({bindingOf("b", view(32, {8}, {1}))}));
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': gradient and tensor 'b': parameter share memory",
                 stepcStep(plan.get()));
  ASSERT_OK(stepcPlanSetGrad(plan.get(), 0, view(40, {8}, {1})));
  ASSERT_OK(stepcStep(plan.get()));
}

TEST_F(OverlapTest, setGradOntoTheOwnTensor) {
  const DLTensor *even = view(0, {16}, {2});
  ASSERT_OK(bind({bindingOf("a", even)}));
  // Interleaves with the parameter, and is fine.
  ASSERT_OK(stepcPlanSetGrad(plan.get(), 0, view(1, {16}, {2})));
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': gradient and tensor 'a': parameter share memory",
                 stepcPlanSetGrad(plan.get(), 0, view(2, {16}, {2})));
  EXPECT_REFUSED(STEPC_OVERLAP,
                 "tensor 'a': gradient and tensor 'a': parameter share memory",
                 stepcPlanSetGrad(plan.get(), 0, view(30, {16}, {1})));
  DLTensor state;
  ASSERT_OK(stepcPlanGetState(plan.get(), 0, "second", &state));
  EXPECT_REFUSED(
      STEPC_OVERLAP,
      "tensor 'a': gradient and tensor 'a': state 'second' share memory",
      stepcPlanSetGrad(plan.get(), 0, &state));
}

} // namespace
