//===- ReproduceSums.cpp - step-reproduce-sums ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pre-rounded summation: P. Demmel, H. D. Nguyen, "Fast Reproducible
// Floating-Point Summation", ARITH 2013, with the extraction of S. M. Rump,
// T. Ogita, S. Oishi, "Accurate Floating-Point Summation Part I", SISC 31
// (2008). Let L be the power of two with L/2 < max |x| <= L, and y = x / L.
// Term j of y is y - h1 - ... - h(j-1) rounded to a multiple of
//
//   grid(j) = 2^(1 - 18 * j)
//
// by adding and subtracting 1.5 * grid(j) * 2^(p - 1), in whose binade the sum
// stays, as terms are small beside it (p bits in a number, 24 or 53). What is
// left is exact, and at most grid(j) / 2, so the next term is at most 2^17
// times its grid, as the first is. So any sum of 2^36 terms hj is a multiple of
// grid(j) of at most 2^53 times that: f64 holds it, and every sum on the way,
// exactly, in any order and however the terms are spread over ranks. The five
// sums are added in one order, the smallest first.
//
// What is lost of a term is at most grid(5) / 2 = 2^-90, in all n * 2^-89 *
// max |x|; the f64 tree's own bound is above 2^-47 * sum |x|, so for n < 2^42
// that is the larger one. The five additions err by 2^-53 of each sum, as any.
//
// Scaling is exact but where it makes denormals. y is 0 or at most rounded
// below 2^-126 (f32), far beneath the last grid. L is no less than the smallest
// normal number, and where L is large it is kept below the largest power by a
// factor of its own, so that x / L and sum * L never overflow by themselves.
// The sum is scaled back after it was rounded; where the result is denormal a
// mean may be rounded twice. (A sum is not: it is a multiple of the smallest
// number as its terms are.)
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/schedule/Rounds.h"

#include "mlir/IR/Builders.h"

#include <cmath>

namespace mlir::step {
#define GEN_PASS_DEF_REPRODUCESUMS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// How many terms are made of one, and by how many bits their grids differ.
static constexpr int kFolds = 5, kFoldBits = 18;

namespace {
/// What is particular to numbers of one type.
struct Format {
  int precision;
  /// From `large` on numbers are multiplied by `shrink` before L is found.
  double large, shrink;
  /// The smallest normal number.
  double least;
};
constexpr Format kF32 = {24, 0x1p64, 0x1p-30, 0x1p-126};
constexpr Format kF64 = {53, 0x1p512, 0x1p-100, 0x1p-1022};

/// How terms are scaled, and their sum again.
struct Scaling {
  /// y = x * down; x = (y * up) * grow.
  Value down, up, grow;
  /// Whether all terms are; where not, `other` is the sum.
  Value finite, other;
};

/// Emits operations where `b` stands.
class Emitter {
public:
  Emitter(OpBuilder &b, Location loc) : b(b), loc(loc) {}

  Value constant(double value) {
    return ConstantOp::create(b, loc, b.getF64FloatAttr(value));
  }
  template <typename OpT>
  Value emit(Value lhs, Value rhs) {
    return OpT::create(b, loc, lhs, rhs);
  }
  Value select(Value condition, Value yes, Value no) {
    return SelectOp::create(b, loc, condition, yes, no);
  }
  Value compare(Predicate predicate, Value lhs, Value rhs) {
    return CompareOp::create(b, loc, predicate, lhs, rhs);
  }
  Value negate(Value value) { return NegOp::create(b, loc, value); }

  Value emitPowerAbove(Value value, int precision);
  Scaling emitScaling(Value high, Value low, const Format &terms,
                      const Format &numbers);
  SmallVector<Value> emitTerms(Value value, const Scaling &scaling,
                               const Format &terms);
  Value emitResult(Value sum, const Scaling &scaling);

private:
  OpBuilder &b;
  Location loc;
};
} // namespace

/// The power of two L with L/2 < value <= L, and 0 of 0 (Rump, Ogita, Oishi,
/// NextPowerTwo). q is value * 2^p, so a unit of it is above value / 2: the sum
/// is q, or a unit more; q only where value is a power of two, a tie that goes
/// to the even q.
Value Emitter::emitPowerAbove(Value value, int precision) {
  Value q = emit<MulOp>(value, constant(std::ldexp(1.0, precision)));
  Value power = emit<SubOp>(emit<AddOp>(q, value), q);
  Value isPower = compare(Predicate::EQ, power, constant(0.0));
  return select(isPower, value, power);
}

/// Of terms whose maximum is `high`, and that of whose opposites is `low`; null
/// where no term is below zero. The two are numbers of another format where
/// they are scalars.
Scaling Emitter::emitScaling(Value high, Value low, const Format &terms,
                             const Format &numbers) {
  Scaling scaling;
  Value size = low ? emit<MaximumOp>(high, low) : high;
  size = emit<MaximumOp>(size, constant(0.0)); // of nothing it is -Inf
  scaling.finite = IsFiniteOp::create(b, loc, size);
  Value isLarge = compare(Predicate::GE, size, constant(terms.large));
  Value shrink = select(isLarge, constant(terms.shrink), constant(1.0));
  scaling.grow = select(isLarge, constant(1.0 / terms.shrink), constant(1.0));
  Value power = emitPowerAbove(emit<MulOp>(size, shrink), numbers.precision);
  scaling.up = emit<MaximumOp>(power, constant(terms.least));
  scaling.down = emit<MulOp>(emit<DivOp>(constant(1.0), scaling.up), shrink);
  // Inf, -Inf, or NaN, where both are among the terms or NaN is.
  scaling.other = low ? emit<SubOp>(high, low) : high;
  return scaling;
}

/// Those of `value`, the largest first.
SmallVector<Value> Emitter::emitTerms(Value value, const Scaling &scaling,
                                      const Format &terms) {
  SmallVector<Value> results;
  Value rest = emit<MulOp>(value, scaling.down);
  for (int fold = 1; fold <= kFolds; ++fold) {
    Value rounder =
        constant(std::ldexp(1.5, terms.precision - kFoldBits * fold));
    Value term = emit<SubOp>(emit<AddOp>(rest, rounder), rounder);
    results.push_back(term);
    if (fold < kFolds)
      rest = emit<SubOp>(rest, term);
  }
  return results;
}

Value Emitter::emitResult(Value sum, const Scaling &scaling) {
  Value scaled = emit<MulOp>(emit<MulOp>(sum, scaling.up), scaling.grow);
  return select(scaling.finite, scaled, scaling.other);
}

namespace {
/// Rewrites the sums of one optimizer.
class Reproducer {
public:
  explicit Reproducer(OptimizerOp optimizer)
      : optimizer(optimizer), b(optimizer.getContext()) {}

  void run();

private:
  /// The statistics that take the place of one.
  struct Parts {
    StatisticOp high, low;
    SmallVector<StatisticOp> folds;
    Scaling scaling;
  };

  void keepRounds();
  bool areNonNegative(ValueRange values) const;
  bool isNonNegative(Operation *op) const;
  void rewrite(RuleOp rule);
  void rewrite(ReductionOpInterface reduction, const Format &terms);
  void rewrite(StatisticOp statistic);
  StatisticOp addStatistic(StatisticOp like, const Twine &suffix,
                           ReductionKind kind);
  Parts addParts(StatisticOp statistic, bool nonNegative);
  Value addWhole(StatisticOp statistic, Parts &parts);
  ScalarsOp addScalars(StatisticOp statistic, TypeRange results,
                       llvm::function_ref<SmallVector<Value>(Emitter &)> body);
  void contribute(ContributeOp old, Parts &parts);

  OptimizerOp optimizer;
  OpBuilder b;
  /// Values of rules that are never below zero.
  llvm::DenseSet<Value> nonNegative;
};
} // namespace

/// Which scalars are still made in a skipped step does not change.
void Reproducer::keepRounds() {
  Rounds rounds(optimizer);
  if (rounds.getFirstSureSegment() == 0)
    return;
  for (ScalarsOp op : rounds.getScalarsOps())
    op->setAttr(kWholeRound, b.getI64IntegerAttr(rounds.getRound(op)));
}

bool Reproducer::areNonNegative(ValueRange values) const {
  return llvm::all_of(values,
                      [&](Value value) { return nonNegative.contains(value); });
}

/// True only where the result is never below zero, but may be NaN; of the
/// operands it is known already.
bool Reproducer::isNonNegative(Operation *op) const {
  if (isa<AbsOp, SqrtOp>(op))
    return true;
  if (auto mul = dyn_cast<MulOp>(op); mul && mul.getLhs() == mul.getRhs())
    return true;
  return isa<MulOp, AddOp, RoundOp, BroadcastOp>(op) &&
         areNonNegative(op->getOperands());
}

static Value createReduction(OpBuilder &b, ReductionOpInterface like,
                             ReductionKind kind, ValueRange inputs) {
  auto over = like->getAttrOfType<ArrayAttr>("over");
  Location loc = like.getLoc();
  Value unless = like.getUnless();
  if (kind == ReductionKind::Amax)
    return AmaxOp::create(b, loc, inputs, over, ArrayAttr(), unless);
  if (kind == ReductionKind::Mean)
    return MeanOp::create(b, loc, inputs, over, ArrayAttr(), unless);
  return SumOp::create(b, loc, inputs, over, ArrayAttr(), unless);
}

void Reproducer::rewrite(ReductionOpInterface reduction, const Format &terms) {
  b.setInsertionPoint(reduction);
  Emitter emitter(b, reduction.getLoc());
  SmallVector<Value> inputs(reduction.getInputs());
  bool isPositive = areNonNegative(inputs);
  Value high = createReduction(b, reduction, ReductionKind::Amax, inputs), low;
  if (!isPositive) {
    SmallVector<Value> opposites;
    for (Value input : inputs)
      opposites.push_back(emitter.negate(input));
    low = createReduction(b, reduction, ReductionKind::Amax, opposites);
  }
  Scaling scaling =
      emitter.emitScaling(high, low, terms, reduction.isWhole() ? kF64 : terms);
  SmallVector<SmallVector<Value>> termsOfInputs;
  for (Value input : inputs)
    termsOfInputs.push_back(emitter.emitTerms(input, scaling, terms));
  // The smallest first; those of one grid one after the other.
  SmallVector<Value> summands;
  for (int fold = kFolds; fold-- > 0;)
    for (ArrayRef<Value> own : termsOfInputs)
      summands.push_back(own[fold]);
  Value sum =
      createReduction(b, reduction, reduction.getReductionKind(), summands);
  Value result = emitter.emitResult(sum, scaling);
  if (isPositive)
    nonNegative.insert(result);
  reduction->getResult(0).replaceAllUsesWith(result);
  reduction->erase();
}

StatisticOp Reproducer::addStatistic(StatisticOp like, const Twine &suffix,
                                     ReductionKind kind) {
  std::string name = (like.getName() + suffix).str();
  auto isTaken = [&](Operation &op) {
    auto attr = op.getAttrOfType<StringAttr>("name");
    return attr && attr.getValue() == name;
  };
  while (llvm::any_of(optimizer.getBody().front(), isTaken))
    name += "_";
  return StatisticOp::create(b, like.getLoc(), name, kind, like.getScope());
}

ScalarsOp
Reproducer::addScalars(StatisticOp statistic, TypeRange results,
                       llvm::function_ref<SmallVector<Value>(Emitter &)> body) {
  auto scalars = ScalarsOp::create(b, statistic.getLoc(), results,
                                   statistic.getScope(), IntegerAttr());
  OpBuilder::InsertionGuard guard(b);
  b.createBlock(&scalars.getBody());
  Emitter emitter(b, statistic.getLoc());
  YieldOp::create(b, statistic.getLoc(), body(emitter));
  return scalars;
}

/// The maxima of what is contributed, what they scale it by, and its sums.
Reproducer::Parts Reproducer::addParts(StatisticOp statistic, bool isPositive) {
  Parts parts;
  b.setInsertionPointAfter(statistic);
  parts.high = addStatistic(statistic, ".high", ReductionKind::Amax);
  if (!isPositive)
    parts.low = addStatistic(statistic, ".low", ReductionKind::Amax);
  for (int fold = 1; fold <= kFolds; ++fold)
    parts.folds.push_back(
        addStatistic(statistic, ".fold" + Twine(fold), ReductionKind::Sum));
  Type f64 = b.getF64Type();
  auto scalars = addScalars(
      statistic, {f64, f64, f64, b.getI1Type(), f64}, [&](Emitter &emitter) {
        Scaling own = emitter.emitScaling(
            parts.high, isPositive ? Value() : parts.low.getResult(), kF64,
            kF64);
        return SmallVector<Value>{own.down, own.up, own.grow, own.finite,
                                  own.other};
      });
  auto results = scalars.getResults();
  parts.scaling = {results[0], results[1], results[2], results[3], results[4]};
  return parts;
}

/// The sum of all, when its parts are complete.
Value Reproducer::addWhole(StatisticOp statistic, Parts &parts) {
  return addScalars(statistic, b.getF64Type(),
                    [&](Emitter &emitter) {
                      Value sum = parts.folds.back().getResult();
                      for (StatisticOp fold : llvm::reverse(
                               ArrayRef<StatisticOp>(parts.folds).drop_back()))
                        sum = emitter.emit<AddOp>(sum, fold.getResult());
                      return SmallVector<Value>{
                          emitter.emitResult(sum, parts.scaling)};
                    })
      .getResults()[0];
}

void Reproducer::contribute(ContributeOp old, Parts &parts) {
  b.setInsertionPoint(old);
  Location loc = old.getLoc();
  Emitter emitter(b, loc);
  Value value = old.getValue();
  StatisticOp high = parts.high, low = parts.low;
  ContributeOp::create(b, loc, high, value, ArrayAttr());
  if (low)
    ContributeOp::create(b, loc, low, emitter.negate(value), ArrayAttr());
  for (auto [fold, term] :
       llvm::zip(parts.folds, emitter.emitTerms(value, parts.scaling, kF64)))
    ContributeOp::create(b, loc, fold.getResult(), term, ArrayAttr());
  old.erase();
}

/// What tensors contribute is whole here, the same number on each of their
/// ranks; so all that is left is the order of tensors and ranks.
void Reproducer::rewrite(StatisticOp statistic) {
  SmallVector<ContributeOp> contributions;
  bool isRead = false, isPositive = true;
  for (Operation *user : statistic.getResult().getUsers()) {
    auto contribution = dyn_cast<ContributeOp>(user);
    isRead |= !contribution;
    if (!contribution)
      continue;
    contributions.push_back(contribution);
    isPositive &= nonNegative.contains(contribution.getValue());
  }
  if (!isRead)
    return;
  Parts parts = addParts(statistic, isPositive);
  Value whole = addWhole(statistic, parts);
  for (ContributeOp contribution : contributions)
    contribute(contribution, parts);
  statistic.getResult().replaceAllUsesWith(whole);
  statistic.erase();
}

/// From the first operation to the last, so that what is known of operands is
/// never looked for again.
void Reproducer::rewrite(RuleOp rule) {
  const Format &terms =
      rule.getVariantAttr().getCompute().isF64() ? kF64 : kF32;
  for (Operation &op : llvm::make_early_inc_range(rule.getBody().front())) {
    auto reduction = dyn_cast<ReductionOpInterface>(op);
    if (reduction && reduction.getReductionKind() != ReductionKind::Amax)
      rewrite(reduction, terms);
    else if (op.getNumResults() == 1 && isNonNegative(&op))
      nonNegative.insert(op.getResult(0));
  }
}

void Reproducer::run() {
  keepRounds();
  for (auto rule : optimizer.getBody().getOps<RuleOp>())
    if (rule.getVariantAttr())
      rewrite(rule);
  for (auto statistic :
       llvm::to_vector(optimizer.getBody().getOps<StatisticOp>()))
    if (statistic.getKind() == ReductionKind::Sum)
      rewrite(statistic);
}

namespace {
struct ReproduceSums : step::impl::ReproduceSumsBase<ReproduceSums> {
  void runOnOperation() override { Reproducer(getOperation()).run(); }
};
} // namespace
