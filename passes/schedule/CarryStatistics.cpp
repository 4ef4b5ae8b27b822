//===- CarryStatistics.cpp - step-carry-statistics ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A reduction of the old parameter reads it once more than the update needs.
// Its value is that of the same reduction of the new parameter of the step
// before, by the same tree of additions, so to the bit; and that one shares the
// traversal that writes.
//
//===----------------------------------------------------------------------===//
#include "dialect/Sources.h"
#include "passes/Passes.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::step {
#define GEN_PASS_DEF_CARRYSTATISTICS
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
/// What a reduction reads, by any of its inputs: the rule's tensors, and the
/// operations in between.
struct Source {
  llvm::SetVector<Value> leaves;
  llvm::SetVector<Operation *> ops;
  /// Whether it depends on nothing but the leaves, and `fresh`.
  bool closed = true;
};

struct Candidate {
  ReductionOpInterface reduction;
  Source source;
};

class Carrier {
public:
  explicit Carrier(RuleOp rule) : rule(rule), b(rule.getContext()) {}
  void run();

private:
  void findCandidates();
  void dropUseless();
  bool movesParam(ReductionOpInterface reduction);
  Value getStored(BlockArgument argument);
  void carry(Candidate &candidate, unsigned number);

  RuleOp rule;
  OpBuilder b;
  SmallVector<Candidate> candidates;
};
} // namespace

/// Through elementwise operations, up to other reductions.
static void collect(RuleOp rule, Value value, Source &source) {
  auto enter = [&](Value next) {
    Operation *op = next.getDefiningOp();
    if (!op) {
      if (isShaped(next.getType()))
        source.leaves.insert(next);
      else
        source.closed &= llvm::is_contained(rule.getFreshes(), next);
      return Follow::Nothing;
    }
    if (source.ops.contains(op) || isa<ConstantOp>(op))
      return Follow::Nothing;
    if (!isa<RuleOp>(op->getParentOp()) || isa<ReductionOpInterface>(op)) {
      source.closed = false;
      return Follow::Nothing;
    }
    return Follow::Operands;
  };
  walkSources(value, enter, [&](Operation *op) { source.ops.insert(op); });
}

static Source getSource(ReductionOpInterface reduction) {
  Source source;
  for (Value input : reduction.getInputs())
    collect(cast<RuleOp>(reduction->getParentOp()), input, source);
  return source;
}

void Carrier::findCandidates() {
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>()) {
    if (!reduction.isWhole() || reduction.getUnless() ||
        reduction.getAcrossAttr() || !movesParam(reduction))
      continue;
    Source source = getSource(reduction);
    bool own = source.closed;
    for (Value leaf : source.leaves)
      own &=
          rule.getRole(cast<BlockArgument>(leaf).getArgNumber()).isReturned();
    if (own && !source.leaves.empty())
      candidates.push_back({reduction, std::move(source)});
  }
}

/// Whether the new param depends on the result, so cannot be computed in the
/// traversal that the reduction needs.
bool Carrier::movesParam(ReductionOpInterface reduction) {
  SetVector<Operation *> users;
  getForwardSlice(reduction->getResult(0), &users);
  return users.contains(rule.getReturn());
}

/// A candidate saves nothing where another reduction reads the same tensors.
void Carrier::dropUseless() {
  bool changed = true;
  while (changed) {
    changed = false;
    llvm::SetVector<Value> read;
    for (auto other : rule.getBody().front().getOps<ReductionOpInterface>())
      if (llvm::none_of(candidates, [&](const Candidate &candidate) {
            return candidate.reduction == other;
          }))
        read.insert_range(getSource(other).leaves);
    llvm::erase_if(candidates, [&](const Candidate &candidate) {
      bool useless = llvm::any_of(candidate.source.leaves, [&](Value leaf) {
        return read.contains(leaf);
      });
      changed |= useless;
      return useless;
    });
  }
}

/// The new value of a param or state as the next step reads it.
Value Carrier::getStored(BlockArgument argument) {
  VariantAttr variant = rule.getVariantAttr();
  RoleAttr role = rule.getRole(argument.getArgNumber());
  Value value = argument;
  for (auto [index, returned] :
       llvm::zip(rule.getReturnedArguments(), rule.getReturn().getValues()))
    if (index == argument.getArgNumber())
      value = returned;
  if (auto transfer = value.getDefiningOp<TransferOpInterface>())
    value = transfer->getOperand(0);
  Type storage = role.getStorage();
  // Integers of `step.lower_half` are stored as they are.
  if (value == argument || storage == variant.getCompute() ||
      storage.isInteger())
    return value;
  Operation *op = value.getDefiningOp();
  auto round = dyn_cast_or_null<RoundOp>(op);
  if ((round && round.getStorage() == storage) ||
      isa_and_nonnull<UpperHalfOp>(op))
    return value;
  return RoundOp::create(b, rule.getReturn().getLoc(), value, storage);
}

void Carrier::carry(Candidate &candidate, unsigned number) {
  ReductionOpInterface reduction = candidate.reduction;
  Value result = reduction->getResult(0);
  Location loc = reduction->getLoc();
  b.setInsertionPoint(reduction);
  auto before = CarriedOp::create(b, loc, b.getF64Type(),
                                  ("carried" + Twine(number)).str());
  Value zero = ConstantOp::create(b, loc, b.getF64FloatAttr(0.0));
  Value known = CompareOp::create(b, loc, Predicate::NE, before, zero);
  b.setInsertionPointAfter(reduction);
  auto now = SelectOp::create(b, loc, known, before, result);
  result.replaceAllUsesExcept(now, now);

  b.setInsertionPoint(rule.getReturn());
  IRMapping mapping;
  for (Value leaf : candidate.source.leaves)
    mapping.map(leaf, getStored(cast<BlockArgument>(leaf)));
  // The states of the next step are not fresh.
  for (BlockArgument fresh : rule.getFreshes())
    mapping.map(fresh, ConstantOp::create(b, loc, b.getBoolAttr(false)));
  for (Operation *op : candidate.source.ops)
    b.clone(*op, mapping);
  Operation *after = b.clone(*reduction, mapping);
  CarryOp::create(b, loc, after->getResult(0), before, result);
  // In the end: the clone has no condition.
  reduction.setUnless(known);
}

void Carrier::run() {
  findCandidates();
  dropUseless();
  for (auto [number, candidate] : llvm::enumerate(candidates))
    carry(candidate, number);
}

namespace {
struct CarryStatistics : step::impl::CarryStatisticsBase<CarryStatistics> {
  void runOnOperation() override {
    for (auto rule : getOperation().getBody().getOps<RuleOp>()) {
      VariantAttr variant = rule.getVariantAttr();
      // The parts of a sharded tensor cross ranks in a round that there is
      // anyway.
      if (variant && !variant.getLayout())
        Carrier(rule).run();
    }
  }
};
} // namespace
