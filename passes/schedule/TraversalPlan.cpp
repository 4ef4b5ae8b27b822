//===- TraversalPlan.cpp - which traversal does what ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/TraversalPlan.h"

#include "dialect/Sources.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::step;

size_t TraversalPlan::getIndex(Time time, Value unless) const {
  return llvm::find_if(traversals,
                       [&](const Traversal &t) {
                         return t.time == time && t.unless == unless;
                       }) -
         traversals.begin();
}

/// One traversal for each time at which a reduction or a store is due; those
/// that may be left out have their own.
void TraversalPlan::findTraversals() {
  SmallVector<std::pair<Time, ReductionOpInterface>> reductions;
  SmallVector<std::pair<Time, unsigned>> stores;
  std::vector<Traversal> due;
  auto need = [&](Time time, Value unless) {
    if (llvm::none_of(due, [&](const Traversal &t) {
          return t.time == time && t.unless == unless;
        }))
      due.push_back({time, unless});
  };
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>()) {
    if (analysis.getDomain(reduction.getInput()) != Domain::Full)
      continue;
    reductions.push_back({analysis.getReductionTime(reduction), reduction});
    need(reductions.back().first, reduction.getUnless());
  }
  for (unsigned argument : rule.getReturnedArguments()) {
    bool isFull = analysis.getDomain(rule.getBody().getArgument(argument)) ==
                  Domain::Full;
    if (!isFull || !analysis.getStoredValue(argument))
      continue;
    stores.push_back({analysis.getStoreTime(argument), argument});
    need(stores.back().first, {});
  }
  for (Value value : analysis.getKeptWhole())
    need(analysis.getTime(value), {});
  // A program has a phase, also where the tensor stays as it is.
  if (due.empty())
    need(Time{0, 0}, {});
  llvm::stable_sort(due, [](const Traversal &a, const Traversal &b) {
    return a.time < b.time ||
           (a.time == b.time && bool(a.unless) > bool(b.unless));
  });
  traversals = std::move(due);
  for (auto &[time, reduction] : reductions)
    traversals[getIndex(time, reduction.getUnless())].reductions.push_back(
        reduction);
  for (auto &[time, argument] : stores)
    writers[argument] = getIndex(time, {});
  for (Value value : analysis.getKeptWhole())
    traversals[getIndex(analysis.getTime(value), {})].keeps.push_back(value);
}

/// Whether it is there before traversal `index` begins. An argument is read
/// where it is.
bool TraversalPlan::isInMemory(size_t index, Value value) const {
  if (analysis.isMadeByProduct(value))
    return true;
  return !isa<BlockArgument>(value) &&
         analysis.getKeptWhole().contains(value) &&
         getIndex(analysis.getTime(value), {}) < index;
}

/// Of a Full value: whether traversal `index` reads it. Where that is an
/// argument's old value and an earlier traversal has overwritten it,
/// `conflicts` gets the argument.
bool TraversalPlan::read(size_t index, Value value,
                         llvm::SetVector<unsigned> &conflicts) {
  Traversal &traversal = traversals[index];
  auto isWritten = [&](unsigned argument) {
    auto writer = writers.find(argument);
    return writer != writers.end() && writer->second < index;
  };
  auto read = [&](unsigned argument) {
    traversal.reads.insert(argument);
    traversal.leaves[value] = argument;
  };
  auto argument = dyn_cast<BlockArgument>(value);
  if (argument) {
    if (isWritten(argument.getArgNumber()))
      conflicts.insert(argument.getArgNumber());
    read(argument.getArgNumber());
    return true;
  }
  for (unsigned stored : analysis.getArgumentsStoring(value))
    if (isWritten(stored)) {
      read(stored);
      return true;
    }
  return false;
}

/// Adds what traversal `index` needs for `value`.
void TraversalPlan::collect(size_t index, Value value,
                            llvm::SetVector<unsigned> &conflicts) {
  Traversal &traversal = traversals[index];
  auto enter = [&](Value next) {
    Domain domain = analysis.getDomain(next);
    if (domain != Domain::Full || isInMemory(index, next)) {
      if (domain != Domain::Constant)
        traversal.inputs.insert(next);
      return Follow::Nothing;
    }
    bool isThere = traversal.computed.contains(next) ||
                   traversal.leaves.contains(next) ||
                   read(index, next, conflicts);
    return isThere ? Follow::Nothing : Follow::Operands;
  };
  walkSources(value, enter, [&](Operation *op) {
    traversal.computed.insert(op->getResult(0));
  });
}

/// The first from `index` on that is never left out, so may write.
size_t TraversalPlan::findSure(size_t index) {
  Time time = traversals[index].time;
  while (index < traversals.size() && traversals[index].unless)
    ++index;
  if (index == traversals.size())
    traversals.push_back({time, {}});
  return index;
}

/// Fills the traversals for the present `writers`. Old values that are still
/// needed after their writers defer the writes, of one traversal at a time;
/// returns false then. A write that is deferred never spares another that: what
/// could be read back before has to be computed of old values.
bool TraversalPlan::distribute() {
  for (auto [index, traversal] : llvm::enumerate(traversals)) {
    traversal.stores.clear();
    traversal.computed.clear();
    traversal.reads.clear();
    traversal.leaves.clear();
    traversal.inputs.clear();
    for (auto [argument, writer] : writers)
      if (writer == index)
        traversal.stores.push_back(argument);
    llvm::SetVector<unsigned> conflicts;
    for (ReductionOpInterface reduction : traversal.reductions)
      for (Value input : reduction.getInputs())
        collect(index, input, conflicts);
    for (unsigned argument : traversal.stores)
      collect(index, analysis.getStoredValue(argument), conflicts);
    for (Value value : traversal.keeps)
      collect(index, value, conflicts);
    if (conflicts.empty())
      continue;
    size_t sure = findSure(index);
    for (unsigned argument : conflicts)
      writers[argument] = sure;
    return false;
  }
  return true;
}

int64_t TraversalPlan::getBytes(const Traversal &traversal) const {
  RuleOp op = rule;
  int64_t bytes = 0;
  auto add = [&](unsigned argument) {
    bytes += step::getBytes(op.getRole(argument).getStorage());
  };
  llvm::for_each(traversal.reads, add);
  llvm::for_each(traversal.stores, add);
  return bytes;
}

int64_t TraversalPlan::getTotalBytes() const {
  int64_t bytes = 0;
  for (const Traversal &traversal : traversals)
    bytes += getBytes(traversal);
  return bytes;
}

/// Moves the argument's write to the traversal where the total is least; true
/// where that is another one than now.
bool TraversalPlan::improveWriter(unsigned argument) {
  auto best = writers, original = writers;
  int64_t least = getTotalBytes();
  for (size_t later = original[argument] + 1; later < traversals.size();
       ++later) {
    if (traversals[later].unless)
      continue;
    writers = original;
    writers[argument] = later;
    settle();
    if (getTotalBytes() < least) {
      least = getTotalBytes();
      best = writers;
    }
  }
  writers = best;
  settle();
  return writers[argument] != original[argument];
}

void TraversalPlan::settle() {
  while (!distribute()) {
  }
}

/// Whether the reduction's rows are whole in a block of rows when the
/// traversals from `head` to before `index` have been there.
bool TraversalPlan::isReducedInRowBlock(ReductionOpInterface reduction,
                                        size_t head, size_t index) const {
  ArrayRef<Traversal> before(traversals);
  bool isThere =
      llvm::any_of(before.slice(head, index - head), [&](const Traversal &t) {
        return llvm::is_contained(t.reductions, reduction);
      });
  // Several tensors are added up in a finish.
  return isThere && !reduction.getAcrossAttr() &&
         reduction.getInputs().size() == 1;
}

/// Whether there is a value for each row: of all dims but the lane.
bool TraversalPlan::isOfRows(Domain domain) const {
  const ParamDims &dims = analysis.getDims();
  return dims.getRow() && domain == Domain(dims.getRows());
}

/// Whether the value is known for a block of rows when the traversals from
/// `head` to before `index` have been there. Adds what has to be computed then.
bool TraversalPlan::isKnownInRowBlock(
    Value value, size_t head, size_t index,
    llvm::SetVector<Operation *> &needed) const {
  auto enter = [&](Value next) {
    Domain domain = analysis.getDomain(next);
    Operation *op = next.getDefiningOp();
    if (domain == Domain::Constant || domain == Domain::Cohort || !op ||
        analysis.getTime(next) <= traversals[head].time || needed.contains(op))
      return Follow::Nothing;
    if (!isOfRows(domain))
      return Follow::Stop;
    auto reduction = dyn_cast<ReductionOpInterface>(op);
    if (!reduction)
      return Follow::Operands;
    if (!isReducedInRowBlock(reduction, head, index))
      return Follow::Stop;
    needed.insert(op);
    return Follow::Nothing;
  };
  return walkSources(value, enter, [&](Operation *op) { needed.insert(op); });
}

/// Whether the traversal trails `index - 1`, in whose train `head` is the
/// first. Adds what is computed of rows between them.
bool TraversalPlan::canTrail(const Traversal &traversal, size_t head,
                             size_t index,
                             llvm::SetVector<Operation *> &needed) const {
  const Traversal &before = traversals[index - 1];
  auto isOfProduct = [&](Value input) {
    return analysis.getDomain(input) == Domain::Full;
  };
  return !before.unless && !traversal.unless &&
         llvm::none_of(traversal.inputs, isOfProduct) &&
         before.time.segment == traversal.time.segment &&
         llvm::all_of(traversal.inputs, [&](Value input) {
           return isKnownInRowBlock(input, head, index, needed);
         });
}

/// What may be left out stands before others of its time. Where one of those
/// could trail `index - 1` and writes nothing, it comes to `index`, so that
/// nothing stands between them.
void TraversalPlan::bringForward(size_t head, size_t index) {
  size_t sure = index;
  while (sure < traversals.size() && traversals[sure].unless)
    ++sure;
  llvm::SetVector<Operation *> needed;
  if (sure == index || sure == traversals.size() ||
      !(traversals[sure].time == traversals[index].time) ||
      !traversals[sure].stores.empty() ||
      !canTrail(traversals[sure], head, index, needed))
    return;
  auto begin = traversals.begin();
  std::rotate(begin + index, begin + sure, begin + sure + 1);
}

void TraversalPlan::findTrailing() {
  LayoutAttr layout = rule.getVariantAttr().getLayout();
  // A flat range has parts of rows.
  if (layout && layout.isFlat())
    return;
  size_t head = 0;
  for (size_t index = 1; index < traversals.size(); ++index) {
    bringForward(head, index);
    Traversal &traversal = traversals[index];
    llvm::SetVector<Operation *> needed;
    traversal.isTrailing = canTrail(traversal, head, index, needed);
    if (traversal.isTrailing)
      rowBlockOps.insert_range(needed);
    else
      head = index;
  }
}

void TraversalPlan::run() {
  findTraversals();
  settle();
  auto arguments = llvm::to_vector(llvm::make_first_range(writers));
  bool changed = true;
  while (changed) {
    changed = false;
    for (unsigned argument : arguments)
      changed |= improveWriter(argument);
  }
  findTrailing();
}

void TraversalPlan::print(raw_ostream &os, AsmState &state) const {
  RuleOp op = rule;
  auto printRole = [&](unsigned argument) {
    os << op.getRole(argument).getDisplayName();
  };
  for (const auto &[index, traversal] : llvm::enumerate(traversals)) {
    os << "  traversal " << index << " at " << traversal.time << ": reads ";
    llvm::interleaveComma(traversal.reads, os, printRole);
    if (!traversal.reductions.empty()) {
      os << "; reduces ";
      llvm::interleaveComma(traversal.reductions, os,
                            [&](ReductionOpInterface reduction) {
                              reduction->getResult(0).printAsOperand(os, state);
                            });
    }
    if (!traversal.stores.empty()) {
      os << "; writes ";
      llvm::interleaveComma(traversal.stores, os, printRole);
    }
    if (!traversal.keeps.empty()) {
      os << "; keeps ";
      llvm::interleaveComma(traversal.keeps, os, [&](Value value) {
        value.printAsOperand(os, state);
      });
    }
    if (traversal.isTrailing)
      os << "; trails the one before it";
    if (traversal.unless) {
      os << "; not where ";
      traversal.unless.printAsOperand(os, state);
    }
    os << "\n";
  }
  if (rowBlockOps.empty())
    return;
  os << "  of strips of rows: ";
  llvm::interleaveComma(rowBlockOps, os, [&](Operation *inner) {
    inner->getResult(0).printAsOperand(os, state);
  });
  os << "\n";
}
