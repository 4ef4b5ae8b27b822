//===- PartsTest.cpp - every operation of a rule has its parts ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of every registered operation that may stand in a rule; that the parts agree
// with each other; and that operations which lack one are found.
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"
#include "dialect/reference/Element.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Parser/Parser.h"

#include "llvm/ADT/StringSet.h"

#include "gtest/gtest.h"

#include <cmath>
#include <functional>
#include <limits>

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;

//===----------------------------------------------------------------------===//
// Which parts there must be
//===----------------------------------------------------------------------===//

/// Of many elements, or read from where it lies.
static bool hasCodeElsewhere(RegisteredOperationName name) {
  auto *value = name.getInterface<ValueOpInterface>();
  return (value && value->getParts().sharding == Sharding::Matrix) ||
         name.getStringRef() == CarriedOp::getOperationName() ||
         name.getStringRef() == ExtentOp::getOperationName();
}

/// The names of parts that the operation lacks, which may stand in rules.
static std::vector<std::string> findMissing(RegisteredOperationName name) {
  std::vector<std::string> missing;
  auto *value = name.getInterface<ValueOpInterface>();
  if (!value)
    return {"all"};
  ValueParts parts = value->getParts();
  // How an explanation prints it, if not by its name, stands with what it
  // becomes.
  if (parts.scalarOp.empty() != parts.symbol.empty() && parts.symbol.empty())
    missing.push_back("symbol");
  bool isReduction = name.hasInterface<ReductionOpInterface>();
  if (isReduction != (parts.sharding == Sharding::Reduction))
    missing.push_back("sharding");
  if (isReduction || hasCodeElsewhere(name))
    return missing;
  if (!parts.emit)
    missing.push_back("scalar code");
  if (name.hasTrait<InsertedByPasses>())
    return missing;
  if (!parts.evaluate)
    missing.push_back("meaning");
  if (!parts.bound)
    missing.push_back("interval");
  return missing;
}

/// Those with the interface, which the verifier of rules lets through; and
/// those that were meant to have it: pure operations whose one result is of a
/// type that follows from the operands'.
static bool mayStandInRule(RegisteredOperationName name) {
  return name.hasInterface<ValueOpInterface>() ||
         (name.hasTrait<OpTrait::OneResult>() &&
          name.hasTrait<OpTrait::ZeroRegions>() &&
          name.hasInterface<InferTypeOpInterface>() &&
          name.hasInterface<ConditionallySpeculatable>());
}

TEST(Parts, AreThereOfEveryOperation) {
  MLIRContext context;
  context.loadDialect<StepDialect>();
  size_t count = 0;
  for (RegisteredOperationName name :
       context.getRegisteredOperationsByDialect("step")) {
    if (!mayStandInRule(name))
      continue;
    ++count;
    EXPECT_EQ(findMissing(name), std::vector<std::string>())
        << name.getStringRef().str();
  }
  EXPECT_GE(count, 36u);
}

namespace {
/// An operation with the parts that it is given.
template <typename ConcreteT>
struct Lacking : public Op<ConcreteT, OpTrait::OneResult, OpTrait::ZeroRegions,
                           OpTrait::ZeroSuccessors, OpTrait::ZeroOperands,
                           ValueOpInterface::Trait> {
  using Op<ConcreteT, OpTrait::OneResult, OpTrait::ZeroRegions,
           OpTrait::ZeroSuccessors, OpTrait::ZeroOperands,
           ValueOpInterface::Trait>::Op;
  static ArrayRef<StringRef> getAttributeNames() { return {}; }
};
struct WithoutCode : Lacking<WithoutCode> {
  using Lacking::Lacking;
  static StringRef getOperationName() { return "lacking.code"; }
  static ValueParts getParts() {
    ValueParts parts = AddOp::getParts();
    parts.emit = nullptr;
    return parts;
  }
};
struct WithoutMeaning : Lacking<WithoutMeaning> {
  using Lacking::Lacking;
  static StringRef getOperationName() { return "lacking.meaning"; }
  static ValueParts getParts() {
    ValueParts parts = AddOp::getParts();
    parts.evaluate = nullptr;
    parts.bound = nullptr;
    return parts;
  }
};
struct WithoutSymbol : Lacking<WithoutSymbol> {
  using Lacking::Lacking;
  static StringRef getOperationName() { return "lacking.symbol"; }
  static ValueParts getParts() {
    ValueParts parts = AddOp::getParts();
    parts.symbol = "";
    parts.sharding = Sharding::Reduction;
    return parts;
  }
};
struct LackingDialect : Dialect {
  explicit LackingDialect(MLIRContext *context)
      : Dialect(getDialectNamespace(), context, TypeID::get<LackingDialect>()) {
    addOperations<WithoutCode, WithoutMeaning, WithoutSymbol>();
  }
  static StringRef getDialectNamespace() { return "lacking"; }
};
} // namespace

TEST(Parts, ThatAreNotThereAreFound) {
  MLIRContext context;
  context.loadDialect<StepDialect, LackingDialect>();
  auto find = [&](StringRef name) {
    return findMissing(*RegisteredOperationName::lookup(name, &context));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(find("lacking.code"), Names({"scalar code"}));
  EXPECT_EQ(find("lacking.meaning"), Names({"meaning", "interval"}));
  EXPECT_EQ(find("lacking.symbol"), Names({"symbol", "sharding"}));
  // What is no operation of a rule.
  EXPECT_EQ(find("step.hyper"), Names({"all"}));
}

//===----------------------------------------------------------------------===//
// That parts agree
//===----------------------------------------------------------------------===//

/// One of each operation of source definitions on values, and of each
/// predicate.
static constexpr StringLiteral source = R"(
step.optimizer @all {
  %x = step.hyper "x" = 0.5
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    %yes = step.compare lt, %x, %x : f64
    %c1 = step.compare le, %x, %x : f64
    %c2 = step.compare gt, %x, %x : f64
    %c3 = step.compare ge, %x, %x : f64
    %c4 = step.compare eq, %x, %x : f64
    %c5 = step.compare ne, %x, %x : f64
    %c6 = step.is_finite %x : f64
    %c7 = step.and %yes, %c1 : i1
    %c8 = step.or %yes, %c1 : i1
    %c9 = step.not %yes : i1
    %half = step.constant 0.5
    %true = step.constant true
    %u0 = step.neg %x : f64
    %u1 = step.abs %x : f64
    %u2 = step.sqrt %x : f64
    %u3 = step.sign %x : f64
    %u4 = step.floor %x : f64
    %u5 = step.exp %x : f64
    %u6 = step.log %x : f64
    %b0 = step.add %x, %x : f64
    %b1 = step.sub %x, %x : f64
    %b2 = step.mul %x, %x : f64
    %b3 = step.div %x, %x : f64
    %b4 = step.maximum %x, %x : f64
    %b5 = step.minimum %x, %x : f64
    %b6 = step.lerp %x, %x, %x : f64
    %b7 = step.select %yes, %x, %x : f64
    %b8 = step.pow %x, %x
    %i0 = step.powi %x, %t
    %i1 = step.to_f64 %t
    %i2 = step.every %x, %t
    %narrow = step.round %g to bf16 : [*]
    %stored = step.stored %narrow as [0] : [*]
    step.return %stored
  }
}
)";

namespace {
struct PartsOf : testing::Test {
  PartsOf() {
    context.loadDialect<StepDialect, arith::ArithDialect, math::MathDialect>();
    module = parseSourceString<ModuleOp>(source, &context);
  }
  /// Calls `fn` for each operation of the rule that has a value.
  template <typename Fn>
  void forEach(Fn fn) {
    ASSERT_TRUE(bool(module));
    module->walk([&](ValueOpInterface op) { fn(op); });
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};
} // namespace

TEST_F(PartsOf, EachOperationOfTheLanguageIsHere) {
  llvm::StringSet<> seen;
  forEach([&](Operation *op) { seen.insert(op->getName().getStringRef()); });
  for (RegisteredOperationName name :
       context.getRegisteredOperationsByDialect("step")) {
    bool isWanted = name.hasInterface<ValueOpInterface>() &&
                    !name.hasInterface<ReductionOpInterface>() &&
                    !hasCodeElsewhere(name) &&
                    !name.hasTrait<InsertedByPasses>();
    EXPECT_TRUE(!isWanted || seen.contains(name.getStringRef()))
        << name.getStringRef().str() << " is not in the source above";
  }
}

/// Values of f32, so of both formats.
static const double values[] = {0.0,    -0.0,        1.0,      -1.0,     0.5,
                                -0.375, 3.0,         -2.0,     1e10f,    -1e10f,
                                88.5,   -103.875,    0x1p-149, 0x1p-126, inf,
                                -inf,   std::nan("")};

/// Calls `fn` with each combination of elements of the operands.
template <typename Fn>
static void forElements(Operation *op, Fn fn) {
  SmallVector<SmallVector<Element>> choices;
  for (Type type : op->getOperandTypes()) {
    SmallVector<Element> &choice = choices.emplace_back();
    if (type.isInteger(1))
      choice = {Element::ofInteger(0), Element::ofInteger(1)};
    else if (type.isInteger(64))
      choice = {Element::ofInteger(0), Element::ofInteger(5),
                Element::ofInteger(-3), Element::ofInteger((1LL << 53) + 1)};
    else
      for (double value : values)
        choice.push_back(Element::of(value));
  }
  SmallVector<Element> elements(choices.size());
  std::function<void(size_t)> choose = [&](size_t position) {
    if (position == choices.size())
      return fn(elements);
    for (Element element : choices[position]) {
      elements[position] = element;
      choose(position + 1);
    }
  };
  choose(0);
}

static bool isSame(double x, double y) {
  return std::isnan(x) ? std::isnan(y)
                       : x == y && std::signbit(x) == std::signbit(y);
}

/// What the code gives of constants, by folding each operation.
static Attribute runCode(Block &block, Value result,
                         DenseMap<Value, Attribute> &known) {
  for (Operation &op : block) {
    SmallVector<Attribute> operands;
    for (Value operand : op.getOperands())
      operands.push_back(known.lookup(operand));
    SmallVector<OpFoldResult> folded;
    if (failed(op.fold(operands, folded)) || folded.empty())
      return {};
    Attribute attr = dyn_cast<Attribute>(folded.front());
    known[op.getResult(0)] =
        attr ? attr : known.lookup(cast<Value>(folded.front()));
  }
  return known.lookup(result);
}

static Attribute toAttribute(Builder &b, Type type, Element element) {
  if (auto number = dyn_cast<FloatType>(type))
    return b.getFloatAttr(number, element.number);
  return b.getIntegerAttr(type, element.integer);
}

TEST_F(PartsOf, CodeComputesTheMeaning) {
  forEach([&](Operation *op) {
    ValueParts parts = cast<ValueOpInterface>(op).getParts();
    // Loops and expansions are compared by running them.
    if (!parts.emit || isa<PowiOp, ExpOp, LogOp, PowOp, LerpOp>(op))
      return;
    for (Format format : {Format::F64, Format::F32}) {
      // Of scalars alone, which are f64.
      if (isa<EveryOp>(op) && format == Format::F32)
        continue;
      OpBuilder b(&context);
      Type type = format == Format::F64 ? Type(b.getF64Type()) : b.getF32Type();
      Block block;
      for (Type operand : op->getOperandTypes())
        block.addArgument(isa<IntegerType>(operand) ? operand : type,
                          op->getLoc());
      b.setInsertionPointToStart(&block);
      Value result = parts.emit(b, op, block.getArguments(), type);
      forElements(op, [&](ArrayRef<Element> elements) {
        DenseMap<Value, Attribute> known;
        for (auto [argument, element] :
             llvm::zip(block.getArguments(), elements))
          known[argument] = toAttribute(b, argument.getType(), element);
        Attribute actual = runCode(block, result, known);
        Element expected = parts.evaluate(op, elements, format);
        // Of what is negative MLIR folds no root.
        if (!actual && isa<SqrtOp>(op) && std::signbit(elements[0].number))
          return;
        // Nor does it fold a conversion that is not exact.
        if (!actual && isa<RoundOp>(op) &&
            expected.number != elements[0].number)
          return;
        auto number = dyn_cast_or_null<FloatAttr>(actual);
        auto integer = dyn_cast_or_null<IntegerAttr>(actual);
        ASSERT_TRUE(number || integer) << op->getName().getStringRef().str();
        if (number)
          EXPECT_TRUE(isSame(number.getValueAsDouble(), expected.number))
              << op->getName().getStringRef().str() << " of "
              << elements.front().number << ": " << number.getValueAsDouble()
              << ", not " << expected.number;
        else
          EXPECT_EQ(!integer.getValue().isZero(), expected.holds())
              << op->getName().getStringRef().str();
      });
    }
  });
}

/// Of an interval around the element, or of it alone.
static BoundElement around(Type type, Element element, double size) {
  if (type.isInteger(1))
    return BoundElement::of(element.holds() ? Truth::True : Truth::False);
  if (type.isInteger(64))
    return BoundElement::ofInteger(element.integer);
  double x = element.number;
  if (!std::isfinite(x) || size == 0.0)
    return BoundElement::of(Interval::of(x));
  return BoundElement::of(
      Interval{x - size * std::fabs(x), x + size * std::fabs(x), false});
}

TEST_F(PartsOf, IntervalsHoldTheMeaning) {
  forEach([&](Operation *op) {
    ValueParts parts = cast<ValueOpInterface>(op).getParts();
    if (!parts.bound)
      return;
    for (Format format : {Format::F64, Format::F32})
      for (double size : {0.0, 0x1p-20, 0.25})
        forElements(op, [&](ArrayRef<Element> elements) {
          SmallVector<BoundElement> bounds;
          for (auto [type, element] :
               llvm::zip(op->getOperandTypes(), elements))
            bounds.push_back(around(type, element, size));
          Element exact = parts.evaluate(op, elements, format);
          BoundElement bound = parts.bound(op, bounds, format);
          if (op->getResult(0).getType().isInteger(1)) {
            EXPECT_TRUE(bound.truth == Truth::Either ||
                        (bound.truth == Truth::True) == exact.holds())
                << op->getName().getStringRef().str();
            return;
          }
          double x = exact.number;
          EXPECT_TRUE(std::isnan(x) ? bound.number.nan : holds(bound.number, x))
              << op->getName().getStringRef().str() << " of "
              << elements.front().number << ": " << x << " is not from "
              << bound.number.low << " to " << bound.number.high;
        });
  });
}
