//===- ComputeInLoops.cpp - registers that loops need not keep ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ComputeInLoops.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/Local.h"

using namespace llvm;

namespace {
/// One function.
class LoopValues {
public:
  explicit LoopValues(Function &function)
      : function(function), tree(function), loops(tree) {}

  void computeAgain();
  void hideBegins();

private:
  /// What a value is computed from, and by how many operations: itself by none,
  /// where it is not cheap or is computed from several values.
  struct Source {
    Value *value;
    unsigned operations;
  };

  Source getSource(Value *value);
  BasicBlock *findPlace(const Use &use) const;
  Value *copy(Value *value, Value *source, BasicBlock *block);

  Function &function;
  DominatorTree tree;
  LoopInfo loops;
  DenseMap<Value *, Source> sources;
  DenseMap<std::pair<BasicBlock *, Value *>, Value *> copies;
  /// The last copy in each block.
  DenseMap<BasicBlock *, Instruction *> last;
};
} // namespace

static bool isCheap(const Instruction &op) {
  if (!op.getType()->isIntegerTy())
    return false;
  switch (op.getOpcode()) {
  case Instruction::Add:
  case Instruction::Sub:
  case Instruction::Mul:
  case Instruction::Shl:
  case Instruction::LShr:
  case Instruction::AShr:
  case Instruction::And:
  case Instruction::Or:
  case Instruction::Xor:
  case Instruction::ZExt:
  case Instruction::SExt:
  case Instruction::Trunc:
    return true;
  default:
    return isa<MinMaxIntrinsic>(op);
  }
}

/// Operands are visited before: nothing calls itself for more than one level.
LoopValues::Source LoopValues::getSource(Value *value) {
  constexpr unsigned kMost = 4; // operations
  auto known = sources.find(value);
  if (known != sources.end())
    return known->second;
  Source own{value, 0};
  auto *op = dyn_cast<Instruction>(value);
  if (op && isCheap(*op)) {
    Source all{nullptr, 1};
    bool isOne = true;
    for (Value *operand : op->operands()) {
      if (isa<Constant>(operand))
        continue;
      Source in = getSource(operand);
      isOne &= !all.value || all.value == in.value;
      all = {in.value, all.operations + in.operations};
    }
    if (all.value && isOne && all.operations <= kMost)
      own = all;
  }
  sources[value] = own;
  return own;
}

/// The block of a use in a loop that does not have what is used, or null.
BasicBlock *LoopValues::findPlace(const Use &use) const {
  auto *user = cast<Instruction>(use.getUser());
  BasicBlock *block = user->getParent();
  if (auto *phi = dyn_cast<PHINode>(user))
    block = phi->getIncomingBlock(use);
  Loop *loop = loops.getLoopFor(block);
  if (!loop || loop->isInnermost() ||
      loop->contains(cast<Instruction>(use.get())))
    return nullptr;
  return block;
}

/// The value in a block, at whose begin the source is there.
Value *LoopValues::copy(Value *value, Value *source, BasicBlock *block) {
  if (value == source || isa<Constant>(value))
    return value;
  if (Value *known = copies.lookup({block, value}))
    return known;
  Instruction *own = cast<Instruction>(value)->clone();
  for (Use &operand : own->operands())
    operand.set(copy(operand.get(), source, block));
  Instruction *&before = last[block];
  if (before)
    own->insertAfter(before->getIterator());
  else
    own->insertBefore(block->getFirstInsertionPt());
  before = own;
  copies[{block, value}] = own;
  return own;
}

void LoopValues::computeAgain() {
  SmallVector<Instruction *> found;
  for (BasicBlock *block : ReversePostOrderTraversal<Function *>(&function))
    for (Instruction &op : *block)
      if (getSource(&op).operations)
        found.push_back(&op);
  for (Instruction *op : found)
    for (Use &use : make_early_inc_range(op->uses()))
      if (BasicBlock *block = findPlace(use))
        use.set(copy(op, getSource(op).value, block));
  SmallVector<WeakTrackingVH> unused(found.begin(), found.end());
  RecursivelyDeleteTriviallyDeadInstructionsPermissive(unused);
}

/// Before an innermost loop stands a freeze of what it begins with, and of what
/// it uses of the loop around it: of that no recurrence is known.
static void hideBegin(Loop &inner) {
  Loop *outer = inner.getParentLoop();
  BasicBlock *before = inner.getLoopPreheader();
  if (!outer || !before)
    return;
  DenseMap<Value *, Value *> hidden;
  auto hide = [&](Use &use) {
    auto *value = dyn_cast<Instruction>(use.get());
    if (!value || !value->getType()->isIntegerTy(64) || inner.contains(value))
      return;
    bool isBegin = isa<PHINode>(use.getUser());
    if (!isBegin && !outer->contains(value))
      return;
    Value *&own = hidden[value];
    if (!own)
      own = new FreezeInst(value, "", before->getTerminator()->getIterator());
    use.set(own);
  };
  for (BasicBlock *block : inner.blocks())
    for (Instruction &op : *block)
      for (Use &use : op.operands())
        hide(use);
}

void LoopValues::hideBegins() {
  for (Loop *loop : loops.getLoopsInPreorder())
    if (loop->isInnermost())
      hideBegin(*loop);
}

void mlir::step::computeInLoops(llvm::Module &module) {
  for (Function &function : module) {
    // Those that need many registers; others are faster with the pointers.
    if (!function.hasFnAttribute("nvvm.minctasm"))
      continue;
    LoopValues values(function);
    values.computeAgain();
    values.hideBegins();
  }
}
