//===- FinishPlan.cpp - what runs once for a tensor -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/FinishPlan.h"

using namespace mlir;
using namespace mlir::step;

static bool isOfFinish(Domain domain) {
  return isSmall(domain) || domain == Domain::Tensor ||
         domain.kind == Domain::Matrix;
}

/// Where what could be done at the position is done: behind the last traversal
/// that trails, since nothing but the row block's stands inside a train.
/// Another traversal of that time comes behind the train, and what it needs
/// before it.
Position FinishPlan::behindTrain(Position position) const {
  auto isOfTrain = [&](Time time) {
    bool trails = false, waits = false;
    for (const Traversal &traversal : traversals.getTraversals())
      if (traversal.time == time)
        (traversal.isTrailing ? trails : waits) = true;
    return trails && !waits;
  };
  while (isOfTrain(position.time))
    position = {{position.time.segment, position.time.level + 1}, 0};
  return position;
}

/// The first position at which a step of the domain `user` can use the value.
Position FinishPlan::getAvailable(Value value, Domain user) const {
  Operation *op = value.getDefiningOp();
  auto found = positions.find(op);
  // Arguments, what traversals leave and what crossed ranks: there when the
  // time comes.
  auto reduction = dyn_cast_or_null<ReductionOpInterface>(op);
  if (!op || found == positions.end() ||
      (reduction && reduction.getAcrossAttr()))
    return {analysis.getTime(value), 0};
  Position position = found->second;
  bool sameStep = getPlace(op) == user && !isa<ReductionOpInterface>(op);
  if (!sameStep)
    ++position.index;
  return position;
}

Domain FinishPlan::getPlace(Operation *op) const {
  auto found = joined.find(op);
  return found == joined.end() ? analysis.getPlace(op) : found->second;
}

SmallStep &FinishPlan::getStep(Position position, Domain domain) {
  auto [found, isNew] =
      stepNumbers.try_emplace({position, domain}, steps.size());
  if (isNew)
    steps.push_back({position, domain, {}, {}, {}});
  return steps[found->second];
}

void FinishPlan::placeOps() {
  SmallVector<Operation *> placed;
  for (Operation &op : rule.getBody().front().without_terminator()) {
    // What is carried is there from the beginning.
    if (op.getNumResults() == 0 || isa<CarriedOp>(op) ||
        !isOfFinish(analysis.getPlace(&op)))
      continue;
    placed.push_back(&op);
    Domain domain = analysis.getPlace(&op);
    // All that it needs is there, or is of the same step.
    if (traversals.isOfRowBlock(&op)) {
      positions[&op] = {analysis.getTime(op.getResult(0)), kRowBlock};
      continue;
    }
    auto reduction = dyn_cast<ReductionOpInterface>(op);
    Position position{reduction ? analysis.getReductionTime(reduction)
                                : analysis.getTime(op.getResult(0)),
                      0};
    for (Value operand : op.getOperands())
      if (isOfFinish(analysis.getDomain(operand)) ||
          analysis.isMadeByProduct(operand))
        position = std::max(position, getAvailable(operand, domain));
    if (reduction && reduction.getUnless())
      position =
          std::max(position, getAvailable(reduction.getUnless(), domain));
    positions[&op] = behindTrain(position);
  }
  joinSteps(placed);
  for (Operation *op : placed)
    getStep(positions.lookup(op), getPlace(op)).ops.push_back(op);
}

/// Calls `check` with what a step's operations are used by in the finish, but
/// for themselves, until it says false; null where it is outside of the finish.
bool FinishPlan::checkUsers(
    ArrayRef<Operation *> ops, const StepKey &step,
    function_ref<bool(Operation *, const StepKey *)> check) const {
  for (Operation *op : ops)
    for (Operation *user : op->getUsers()) {
      auto found = positions.find(user);
      if (found == positions.end()) {
        if (!check(op, nullptr))
          return false;
        continue;
      }
      StepKey other{found->second, getPlace(user)};
      if (other != step && !check(op, &other))
        return false;
    }
  return true;
}

/// Whether nobody needs before `later` what is done in the step.
bool FinishPlan::canWait(ArrayRef<Operation *> ops, const StepKey &step,
                         const StepKey &later) const {
  return checkUsers(ops, step, [&](Operation *op, const StepKey *user) {
    bool isThere = user && *user == later && !isa<ReductionOpInterface>(op);
    return !user || isThere || later.first < user->first;
  });
}

/// The one step that uses what this step makes, if it goes over the same dims
/// and one more, its innermost.
std::optional<FinishPlan::StepKey>
FinishPlan::findOnlyUser(ArrayRef<Operation *> ops, const StepKey &step) const {
  std::optional<StepKey> only;
  bool isOnly = checkUsers(ops, step, [&](Operation *op, const StepKey *user) {
    if (!user || isa<ReductionOpInterface>(op) || (only && *only != *user))
      return false;
    only = *user;
    return true;
  });
  if (!isOnly || !only || step.second.kind != Domain::Vector ||
      only->second.kind != Domain::Vector ||
      !(only->first.time == step.first.time) || only->first.index == kRowBlock)
    return std::nullopt;
  DimSet own = step.second.dims, theirs = only->second.dims;
  bool isOfLane = theirs.contains(own) && !theirs.empty() &&
                  theirs - own == DimSet::of(*theirs.getInnermost());
  return isOfLane ? only : std::nullopt;
}

/// Each step is a pass over vectors, so what nobody needs before the next step
/// in the same domain waits for it, and what is used in one other step is done
/// there. From the last step to the first, so that what is needed late is
/// itself there late.
void FinishPlan::joinSteps(ArrayRef<Operation *> placed) {
  std::map<StepKey, SmallVector<Operation *>> steps;
  for (Operation *op : placed)
    steps[{positions.lookup(op), getPlace(op)}].push_back(op);
  std::map<Domain, Position> next;
  for (auto &[step, ops] : llvm::reverse(steps)) {
    auto [position, domain] = step;
    if (!isSmall(domain) || position.index == kRowBlock)
      continue;
    auto later = next.find(domain);
    std::optional<StepKey> other;
    if (later != next.end() && later->second.time == position.time &&
        canWait(ops, step, {later->second, domain}))
      other = {later->second, domain};
    else
      other = findOnlyUser(ops, step);
    if (!other) {
      next[domain] = position;
      continue;
    }
    for (Operation *op : ops) {
      positions[op] = other->first;
      if (other->second != domain)
        joined.try_emplace(op, other->second);
    }
  }
}

/// A state is written when its new value is there and nobody needs the old one
/// any more.
Position FinishPlan::findStorePosition(unsigned argument) {
  BlockArgument old = rule.getBody().getArgument(argument);
  Domain domain = analysis.getDomain(old);
  Position position{analysis.getStoreTime(argument), 0};
  position = std::max(position,
                      getAvailable(analysis.getStoredValue(argument), domain));
  // A product reads what is transposed where it came from.
  SmallVector<Operation *> users(old.getUsers());
  while (!users.empty()) {
    Operation *user = users.pop_back_val();
    if (isa<TransposeOp>(user))
      llvm::append_range(users, user->getUsers());
    auto found = positions.find(user);
    if (found == positions.end())
      continue;
    Position use = found->second;
    if (getPlace(user) != domain)
      ++use.index;
    position = std::max(position, use);
  }
  for (const Traversal &traversal : traversals.getTraversals())
    if (traversal.inputs.contains(old))
      position = std::max(
          position,
          Position{{traversal.time.segment, traversal.time.level + 1}, 0});
  return behindTrain(position);
}

void FinishPlan::placeStores() {
  std::map<unsigned, Position> places;
  for (unsigned argument : rule.getReturnedArguments())
    if (isSmall(analysis.getDomain(rule.getBody().getArgument(argument))) &&
        analysis.getStoredValue(argument))
      places[argument] = findStorePosition(argument);
  // Where a state becomes the old value of another, that is not written before;
  // two that change places are written in one step.
  bool changed = true;
  while (changed) {
    changed = false;
    for (auto &[argument, place] : places) {
      auto old = dyn_cast<BlockArgument>(analysis.getStoredValue(argument));
      auto other = old ? places.find(old.getArgNumber()) : places.end();
      if (other == places.end() || !(other->second < place))
        continue;
      other->second = place;
      changed = true;
    }
  }
  for (auto &[argument, place] : places)
    getStep(place, analysis.getDomain(rule.getBody().getArgument(argument)))
        .stores.push_back(argument);
}

void FinishPlan::findAskedFor() {
  for (auto contribute : rule.getBody().front().getOps<ContributeOp>())
    scalars.insert(contribute.getValue());
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>())
    if (reduction.getUnless())
      scalars.insert(reduction.getUnless());
}

/// A scalar is carried when it is there and nobody needs the old one any more.
void FinishPlan::placeCarried() {
  for (auto carry : rule.getBody().front().getOps<CarryOp>()) {
    Position position = getAvailable(carry.getValue(), Domain::Tensor);
    for (Operation *user : carry.getCarried().getUsers()) {
      auto found = positions.find(user);
      if (found != positions.end())
        position =
            std::max(position, {found->second.time, found->second.index + 1});
    }
    getStep(behindTrain(position), Domain::Tensor).carries.push_back(carry);
  }
}

void FinishPlan::keep(Value value) {
  Domain domain = analysis.getDomain(value);
  if (domain == Domain::Tensor)
    scalars.insert(value);
  else if (!isa<BlockArgument>(value) &&
           (isSmall(domain) || domain == Domain::Full))
    temps.insert(value);
}

bool FinishPlan::isOfStep(Operation *op, const SmallStep &step) const {
  auto found = positions.find(op);
  return op && found != positions.end() && found->second == step.position &&
         getPlace(op) == step.domain && !isa<ReductionOpInterface>(op);
}

void FinishPlan::findKept() {
  for (auto reduction : rule.getBody().front().getOps<ReductionOpInterface>())
    keep(reduction->getResult(0));
  for (const Traversal &traversal : traversals.getTraversals())
    llvm::for_each(traversal.inputs, [&](Value input) { keep(input); });
  for (const SmallStep &step : steps) {
    auto use = [&](Value value) {
      Operation *op = value.getDefiningOp();
      if (!isOfStep(op, step))
        keep(value);
    };
    for (Operation *op : step.ops)
      llvm::for_each(op->getOperands(), use);
    for (unsigned argument : step.stores)
      use(analysis.getStoredValue(argument));
  }
}

void FinishPlan::run() {
  placeOps();
  placeStores();
  placeCarried();
  llvm::stable_sort(steps, [](const SmallStep &a, const SmallStep &b) {
    return a.position < b.position;
  });
  findAskedFor();
  findKept();
}

void FinishPlan::print(raw_ostream &os, AsmState &state) const {
  RuleOp op = rule;
  auto printValue = [&](Value value) { value.printAsOperand(os, state); };
  auto printResult = [&](Operation *inner) { printValue(inner->getResult(0)); };
  for (const SmallStep &step : steps) {
    os << "  before " << step.position.time << ", ";
    if (step.position.index == kRowBlock)
      os << "for a strip of rows";
    else
      os << step.position.index;
    os << ": ";
    llvm::interleaveComma(step.ops, os, printResult);
    if (!step.stores.empty()) {
      os << (step.ops.empty() ? "writes " : "; writes ");
      llvm::interleaveComma(step.stores, os, [&](unsigned argument) {
        os << op.getRole(argument).getDisplayName();
      });
    }
    if (!step.carries.empty()) {
      os << "; carries ";
      llvm::interleaveComma(step.carries, os, [&](CarryOp carry) {
        printValue(carry.getValue());
      });
    }
    os << "\n";
  }
  if (temps.empty())
    return;
  os << "  in memory: ";
  llvm::interleaveComma(temps, os, printValue);
  os << "\n";
}
