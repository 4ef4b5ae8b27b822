//===- ReferenceTest.cpp - the interpreter as a library -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What cannot be reached through stepc-run. The operations' meaning is tested
// against numpy, in Python.
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/Interpreter.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include "gtest/gtest.h"

#include <cfenv>
#include <cmath>
#include <limits>
#include <xmmintrin.h>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

//===----------------------------------------------------------------------===//
// Rounding
//===----------------------------------------------------------------------===//

TEST(Rounding, NamesGoBothWays) {
  for (Format format : {Format::BF16, Format::F16, Format::F32, Format::F64})
    EXPECT_EQ(parseFormat(getName(format)), format);
  EXPECT_EQ(parseFormat("f8"), std::nullopt);
}

TEST(Rounding, TiesGoToEven) {
  EXPECT_EQ(roundTo(Format::BF16, 1 + 0x1p-8), 1.0);
  EXPECT_EQ(roundTo(Format::BF16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
  EXPECT_EQ(roundTo(Format::F32, 1 + 0x1p-24), 1.0);
  EXPECT_EQ(roundTo(Format::F32, -1 - 3 * 0x1p-24), -1 - 0x1p-22);
}

TEST(Rounding, IsDoneOnce) {
  // By way of f32 this would be a tie, and become 1.
  EXPECT_EQ(roundTo(Format::BF16, 1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(roundTo(Format::F64, 1 + 0x1p-52), 1 + 0x1p-52);
}

TEST(Rounding, KeepsDenormalsAndSigns) {
  EXPECT_EQ(roundTo(Format::F32, 0x1p-149), 0x1p-149);
  EXPECT_EQ(roundTo(Format::F32, 0x1.8p-150), 0x1p-149);
  EXPECT_EQ(roundTo(Format::F32, 0x1p-150), 0.0);
  EXPECT_EQ(roundTo(Format::BF16, 0x1p-133), 0x1p-133);
  EXPECT_EQ(roundTo(Format::BF16, 0x1p-134), 0.0);
  EXPECT_TRUE(std::signbit(roundTo(Format::F32, -0x1p-1074)));
  EXPECT_TRUE(std::signbit(roundTo(Format::BF16, -0.0)));
}

TEST(Rounding, OverflowsAtTheMiddle) {
  const double largest = 0x1.fffffep127, middle = 0x1.ffffffp127;
  EXPECT_EQ(roundTo(Format::F32, largest), largest);
  EXPECT_EQ(roundTo(Format::F32, std::nextafter(middle, 0.0)), largest);
  EXPECT_EQ(roundTo(Format::F32, middle), inf);
  EXPECT_EQ(roundTo(Format::F32, -middle), -inf);
  EXPECT_EQ(roundTo(Format::BF16, largest), inf);
  EXPECT_EQ(roundTo(Format::F32, std::numeric_limits<double>::max()), inf);
  EXPECT_EQ(roundTo(Format::BF16, -inf), -inf);
  EXPECT_TRUE(std::isnan(roundTo(Format::BF16, std::nan(""))));
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

TEST(Tensors, BroadcastIndices) {
  // Position 5 of a 2x3 array is row 1, column 2.
  EXPECT_EQ(getBroadcastIndex({2, 3}, {2, 3}, 5), 5);
  EXPECT_EQ(getBroadcastIndex({2, 1}, {2, 3}, 5), 1);
  EXPECT_EQ(getBroadcastIndex({1, 3}, {2, 3}, 5), 2);
  EXPECT_EQ(getBroadcastIndex({}, {2, 3}, 5), 0);
  EXPECT_EQ(getBroadcastIndex({1}, {}, 0), 0);
  // Position 17 of 2x3x4 is (1, 1, 1).
  EXPECT_EQ(getBroadcastIndex({2, 1, 4}, {2, 3, 4}, 17), 5);
}

//===----------------------------------------------------------------------===//
// Requests
//===----------------------------------------------------------------------===//

namespace {
class Requests : public ::testing::Test {
protected:
  void SetUp() override {
    context.loadDialect<StepDialect>();
    module = parseSourceString<ModuleOp>(R"mlir(
      step.optimizer @example {
        %keep = step.option "keep" = false
        step.rule @any(%p: param[*], %g: grad[*], %m: state "memory"[*] = 2.0,
                       %x: state "extra"[*] if %keep) {
          %a = step.add %p, %g : [*]
          %b = step.add %m, %a : [*]
          step.return %a, %b, %x
        }
      })mlir",
                                         &context);
    ASSERT_TRUE(module);
    optimizer = *module->getOps<OptimizerOp>().begin();
    request.param = request.grad =
        request.states["memory"] = {Tensor{{2}, {1.0, 2.0}}, Format::F32};
  }

  /// The message with which the request is refused; "" if it is not.
  std::string refusal() {
    llvm::Expected<Outcome> outcome = interpret(optimizer, request);
    return outcome ? "" : llvm::toString(outcome.takeError());
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  OptimizerOp optimizer;
  Request request;
};
} // namespace

TEST_F(Requests, AreAnswered) {
  llvm::Expected<Outcome> outcome = interpret(optimizer, request);
  ASSERT_TRUE(bool(outcome));
  EXPECT_EQ(outcome->param.elements, (std::vector<double>{2.0, 4.0}));
  EXPECT_EQ(outcome->states.at("memory").elements,
            (std::vector<double>{3.0, 6.0}));
  EXPECT_EQ(outcome->states.count("extra"), 0u);
}

TEST_F(Requests, NeedEachState) {
  request.states.clear();
  EXPECT_EQ(refusal(), "state 'memory' is not given");
}

TEST_F(Requests, HaveNoOtherState) {
  request.states["other"] = request.param;
  EXPECT_EQ(refusal(), "'other' is no state of 'any', which has memory");
}

TEST_F(Requests, HaveNoAbsentState) {
  request.states["extra"] = request.param;
  EXPECT_EQ(refusal(),
            "state 'extra' is given and exists only with option 'keep'");
  request.options["keep"] = true;
  EXPECT_EQ(refusal(), "");
}

TEST_F(Requests, HaveElementsOfTheirStorageFormat) {
  request.grad.tensor.elements[1] = 0.1;
  EXPECT_EQ(refusal(), "'grad' is stored as f32, which does not have its "
                       "element 1");
  request.grad.tensor.elements[1] = std::nan("");
  EXPECT_EQ(refusal(), "");
}

TEST_F(Requests, HaveAsManyElementsAsTheirShapeSays) {
  request.grad.tensor.elements.push_back(0.0);
  EXPECT_EQ(refusal(), "'grad' has shape 2 and 3 elements");
}

TEST_F(Requests, InitialStatesFollowFromTheOptions) {
  auto states = makeInitialStates(optimizer, request);
  ASSERT_TRUE(bool(states));
  ASSERT_EQ(states->size(), 1u);
  EXPECT_EQ((*states)[0].name, "memory");
  EXPECT_EQ((*states)[0].tensor.elements, (std::vector<double>{2.0, 2.0}));
  request.options["keep"] = true;
  states = makeInitialStates(optimizer, request);
  ASSERT_TRUE(bool(states));
  ASSERT_EQ(states->size(), 2u);
  EXPECT_EQ((*states)[1].name, "extra");
  EXPECT_EQ((*states)[1].tensor.elements, (std::vector<double>{0.0, 0.0}));
}

TEST_F(Requests, AreRefusedInAnotherRoundingMode) {
  std::fesetround(FE_UPWARD);
  std::string message = refusal();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(message, "the host's floating-point mode is not the default one: "
                     "to nearest, with denormals");
  EXPECT_EQ(refusal(), "");
}

TEST_F(Requests, AreRefusedWhereDenormalsAreFlushed) {
  const unsigned before = _mm_getcsr();
  for (unsigned bit : {0x8000u /* results */, 0x0040u /* operands */}) {
    _mm_setcsr(before | bit);
    std::string message = refusal();
    _mm_setcsr(before);
    EXPECT_NE(message, "") << bit;
  }
  EXPECT_EQ(refusal(), "");
}

TEST_F(Requests, OfAModelNameGroupsThatThereAre) {
  ModelRequest model;
  model.tensors.push_back({});
  llvm::Expected<ModelOutcome> outcome = interpretStep(optimizer, model);
  ASSERT_FALSE(bool(outcome));
  EXPECT_EQ(llvm::toString(outcome.takeError()),
            "tensor 0 is of group 0, there are 0");
}

TEST_F(Requests, OfAModelLeaveOutTensors) {
  ModelRequest model;
  model.groups.push_back({});
  TensorRequest tensor;
  tensor.param = request.param;
  tensor.grad = request.grad;
  tensor.states = request.states;
  model.tensors = {tensor, tensor};
  model.tensors[1].participates = false;
  llvm::Expected<ModelOutcome> outcome = interpretStep(optimizer, model);
  ASSERT_TRUE(bool(outcome));
  ASSERT_EQ(outcome->tensors.size(), 2u);
  EXPECT_EQ(outcome->tensors[0].param.elements,
            (std::vector<double>{2.0, 4.0}));
  EXPECT_EQ(outcome->tensors[1].param.elements,
            (std::vector<double>{1.0, 2.0}));
  EXPECT_FALSE(outcome->skipped);
}
