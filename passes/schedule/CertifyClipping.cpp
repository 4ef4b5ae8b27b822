//===- CertifyClipping.cpp - step-certify-clipping ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of an update u = x * row * col, as Adafactor's, the mean of u^2 needs a
// traversal of its own: row and col are known when all of x has been read. But
// the factors of the step before are known, row0 and col0, and with
//
//   T = (x * row0 * col0)^2 + 2^-60,  rho = (row / row0)^2,
//   kappa = (col / col0)^2,           a, d, B = means of T over columns, rows,
//   all
//
// the mean of T * rho * kappa, which is no less than that of u^2, is
//
//   alpha * beta * B + mean of T * (rho - alpha) * (kappa - beta),
//   alpha = (mean of a * rho) / B,  beta = (mean of d * kappa) / B,
//
// whose last term is by Cauchy and Schwarz at most
//
//   sqrt(mean of a * (rho - alpha)^2) * sqrt(mean of d * (kappa - beta)^2).
//
// So an upper bound of the mean of u^2 is known after the traversal that finds
// row and col. Where it proves that a clip, maximum(K, sqrt(mean) / c), is
// exactly K, the reduction is left out: the result has the same bits.
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/Sources.h"
#include "passes/Spaces.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::step {
#define GEN_PASS_DEF_CERTIFYCLIPPING
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Added to squares, so that none is lost where it is too small for the type.
static constexpr double kFloor = 0x1p-60;
/// Of alpha * beta * B and the rest, whose parts are each right to some 2^-22.
static constexpr double kMargin = 1.0 + 0x1p-16;
/// Of rho and kappa, beside alpha and beta: what is lost in a difference.
static constexpr double kLost = 0x1p-20;

namespace {
/// A mean of squares that clips: maximum(least, sqrt(mean) / divisor).
struct Clip {
  MeanOp mean;
  /// x, and factors of rows and of columns.
  Value x, row, col;
  /// A scalar of the cohort; null where nothing is divided.
  Value divisor;
  ConstantOp least;
};

/// What is computed before the traversal, of one rule.
class Certifier {
public:
  Certifier(RuleOp rule, MeanOp mean)
      : rule(rule), b(rule.getContext()), loc(mean.getLoc()) {
    clip.mean = mean;
  }

  /// Gives the mean a condition, where it has the form and the factors of the
  /// step before can be had.
  void run();

private:
  bool matchClip();
  bool matchUpdate();
  Value getOld(Value value);
  bool findOld(Value value, llvm::SetVector<Operation *> &ops);
  Value emitBound(Value rowOld, Value colOld);
  Value emitCondition(Value bound);
  Value emitSide(Value sums, Value factor, Value share, Attribute dim);

  Value constant(double value) {
    return ConstantOp::create(b, loc, b.getF64FloatAttr(value));
  }
  template <typename OpT>
  Value emit(Value lhs, Value rhs) {
    return OpT::create(b, loc, lhs, rhs);
  }
  Value square(Value value) { return emit<MulOp>(value, value); }
  Value root(Value value) { return SqrtOp::create(b, loc, value); }
  Value mean(Value value, ArrayRef<Attribute> over) {
    return MeanOp::create(b, loc, value,
                          over.empty() ? ArrayAttr() : b.getArrayAttr(over),
                          ArrayAttr(), Value());
  }
  Space getSpace(Value value) {
    return getSpaceOf(rule.getArgumentOfKind(RoleKind::Param).getType(),
                      value.getType());
  }

  RuleOp rule;
  OpBuilder b;
  Location loc;
  Clip clip;
  /// The dims of a row and of a column.
  Attribute n, m;
  /// From values of this step to those of the step before.
  IRMapping old;
};
} // namespace

static Operation *getOnlyUser(Value value) {
  return value.hasOneUse() ? *value.getUsers().begin() : nullptr;
}

bool Certifier::matchClip() {
  Value value = clip.mean.getResult();
  Operation *user = getOnlyUser(value);
  if (auto sqrt = dyn_cast_or_null<SqrtOp>(user))
    user = getOnlyUser(value = sqrt.getResult());
  auto div = dyn_cast_or_null<DivOp>(user);
  if (div && div.getLhs() == value) {
    clip.divisor = div.getRhs();
    // Known before the tensor is read: not of its own.
    if (clip.divisor.getParentBlock() == clip.mean->getBlock())
      return false;
    user = getOnlyUser(value = div.getResult());
  }
  auto maximum = dyn_cast_or_null<MaximumOp>(user);
  if (!maximum)
    return false;
  Value other = maximum.getLhs() == value ? maximum.getRhs() : maximum.getLhs();
  clip.least = other.getDefiningOp<ConstantOp>();
  auto number =
      clip.least ? dyn_cast<FloatAttr>(clip.least.getValue()) : FloatAttr();
  return number && number.getValueAsDouble() > 0.0;
}

/// Whether the reduced value is the square of a product of a full value and of
/// one vector of rows and one of columns.
bool Certifier::matchUpdate() {
  auto squared = clip.mean.getInputs()[0].getDefiningOp<MulOp>();
  if (clip.mean.getInputs().size() > 1 || !squared ||
      squared.getLhs() != squared.getRhs())
    return false;
  Value value = squared.getLhs();
  while (auto product = value.getDefiningOp<MulOp>()) {
    Value full = product.getLhs(), factor = product.getRhs();
    if (!isShaped(full.getType()) || getSpace(full) != Space::Tiles)
      std::swap(full, factor);
    if (!isShaped(factor.getType()) || !isShaped(full.getType()))
      break;
    Space space = getSpace(factor);
    if (space != Space::Rows && space != Space::Columns)
      break;
    Value &own = space == Space::Rows ? clip.row : clip.col;
    if (own)
      return false;
    own = factor;
    value = full;
  }
  clip.x = value;
  return clip.row && clip.col && getSpace(value) == Space::Tiles;
}

/// Collects what is to be cloned for the value of the step before: up to states
/// and what is outside of the rule, through values of rows, columns and items.
bool Certifier::findOld(Value value, llvm::SetVector<Operation *> &ops) {
  auto enter = [&](Value next) {
    Operation *op = next.getDefiningOp();
    if (old.contains(next) || (op && ops.contains(op)))
      return Follow::Nothing;
    if (!op || op->getBlock() != clip.mean->getBlock())
      return op || !isShaped(next.getType()) ? Follow::Nothing : Follow::Stop;
    bool isTile = isShaped(next.getType()) && getSpace(next) == Space::Tiles;
    return isTile ? Follow::Stop : Follow::Operands;
  };
  return walkSources(value, enter, [&](Operation *op) { ops.insert(op); });
}

/// The value as it was in the step before, from the states; null if it cannot
/// be had so.
Value Certifier::getOld(Value value) {
  llvm::SetVector<Operation *> ops;
  if (!findOld(value, ops))
    return {};
  for (Operation *op : ops)
    if (!old.contains(op->getResult(0)))
      b.clone(*op, old);
  return old.lookupOrDefault(value);
}

/// At least sqrt(mean of sums * (factor - share)^2), over the rows or columns.
Value Certifier::emitSide(Value sums, Value factor, Value share,
                          Attribute dim) {
  Value off = square(emit<SubOp>(factor, share));
  Value spread = root(mean(emit<MulOp>(sums, off), dim));
  Value size = root(mean(emit<MulOp>(sums, square(factor)), dim));
  return emit<AddOp>(spread, emit<MulOp>(size, constant(kLost)));
}

/// An upper bound of the mean of u^2: an f64.
Value Certifier::emitBound(Value rowOld, Value colOld) {
  Value scaled = emit<MulOp>(emit<MulOp>(clip.x, rowOld), colOld);
  Value t = emit<AddOp>(square(scaled), constant(kFloor));
  Value a = mean(t, m), d = mean(t, n), all = mean(a, n);
  Value rho = square(emit<DivOp>(clip.row, rowOld));
  Value kappa = square(emit<DivOp>(clip.col, colOld));
  Value alpha = emit<DivOp>(mean(emit<MulOp>(a, rho), n), all);
  Value beta = emit<DivOp>(mean(emit<MulOp>(d, kappa), m), all);
  Value estimate = emit<MulOp>(emit<MulOp>(alpha, beta), all);
  Value error =
      emit<MulOp>(emitSide(a, rho, alpha, n), emitSide(d, kappa, beta, m));
  Value bound = mean(emit<AddOp>(estimate, error), {});
  return emit<MulOp>(bound, constant(kMargin));
}

/// Whether the clip is its least value. What is NaN proves nothing.
Value Certifier::emitCondition(Value bound) {
  Value value = bound, positive;
  if (isa<SqrtOp>(getOnlyUser(clip.mean.getResult())))
    value = root(value);
  if (clip.divisor) {
    value = emit<DivOp>(value, clip.divisor);
    positive =
        CompareOp::create(b, loc, Predicate::GT, clip.divisor, constant(0.0));
  }
  Value least = clip.least.getResult();
  Value proved = CompareOp::create(b, loc, Predicate::LE, value, least);
  return positive ? emit<AndOp>(proved, positive) : proved;
}

void Certifier::run() {
  if (clip.mean.getOverAttr() || clip.mean.getUnless() || !matchClip() ||
      !matchUpdate())
    return;
  ArrayRef<StringAttr> dims =
      getDims(rule.getArgumentOfKind(RoleKind::Param).getType());
  n = dims[dims.size() - 2];
  m = dims.back();
  for (auto [number, value] :
       llvm::zip(rule.getReturnedArguments(), rule.getReturn().getValues()))
    old.map(value, rule.getBody().getArgument(number));
  b.setInsertionPoint(clip.mean);
  Value rowOld = getOld(clip.row), colOld = getOld(clip.col);
  if (!rowOld || !colOld)
    return;
  Value condition = emitCondition(emitBound(rowOld, colOld));
  clip.mean.getUnlessMutable().assign(condition);
}

namespace {
struct CertifyClipping : step::impl::CertifyClippingBase<CertifyClipping> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>()) {
      VariantAttr variant = rule.getVariantAttr();
      Type param = rule.getArgumentOfKind(RoleKind::Param).getType();
      // Of a sharded tensor the mean crosses ranks in a round that there is
      // anyway.
      if (!variant || variant.getLayout() ||
          getNamedPositions(param).size() != 2)
        continue;
      SmallVector<MeanOp> means(rule.getBody().front().getOps<MeanOp>());
      for (MeanOp mean : means)
        Certifier(rule, mean).run();
    }
  }
};
} // namespace
