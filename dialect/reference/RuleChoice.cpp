//===- RuleChoice.cpp - which rule a parameter takes --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/reference/RuleChoice.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::reference;
using llvm::Error;
using llvm::Expected;

static bool holds(const RuleCondition &condition, ArrayRef<int64_t> shape,
                  const Frame &group) {
  ConditionAttr attr = condition.attr;
  if (attr.getKind() == ConditionKind::Option)
    return std::get<bool>(group.get(condition.operand)) ==
           (attr.getPredicate() == Predicate::EQ);
  int64_t rank = static_cast<int64_t>(shape.size()), actual = rank;
  auto getExtent = [&](int64_t dim) -> std::optional<int64_t> {
    int64_t index = dim < 0 ? dim + rank : dim;
    if (index < 0 || index >= rank)
      return std::nullopt;
    return shape[index];
  };
  if (attr.getKind() == ConditionKind::Extent) {
    std::optional<int64_t> own = getExtent(attr.getDim());
    if (!own)
      return false;
    actual = *own;
  }
  int64_t wanted = 0;
  if (attr.getOther()) {
    std::optional<int64_t> other = getExtent(*attr.getOther());
    if (!other)
      return false;
    wanted = *other;
  } else {
    wanted = attr.getValue() ? *attr.getValue()
                             : std::get<int64_t>(group.get(condition.operand));
  }
  return evaluate(attr.getPredicate(), actual, wanted);
}

static bool takes(RuleOp rule, ArrayRef<int64_t> shape, const Frame &group) {
  Shapes shapes;
  Type type = rule.getArgumentOfKind(RoleKind::Param).getType();
  if (Error error = shapes.bind(type, shape)) {
    consumeError(std::move(error));
    return false;
  }
  return llvm::all_of(rule.getRuleConditions(),
                      [&](const RuleCondition &condition) {
                        return holds(condition, shape, group);
                      });
}

Expected<RuleOp> mlir::step::reference::chooseRule(const Source &source,
                                                   StringRef name,
                                                   ArrayRef<int64_t> shape,
                                                   const Frame &group) {
  OptimizerOp optimizer = source.optimizer;
  SmallVector<StringRef> known;
  RuleOp rule;
  for (auto candidate : optimizer.getBody().getOps<RuleOp>()) {
    known.push_back(candidate.getSymName());
    if (!rule && (name.empty() ? takes(candidate, shape, group)
                               : candidate.getSymName() == name))
      rule = candidate;
  }
  if (!rule && name.empty() && known.size() == 1)
    // Its error says more.
    rule = *optimizer.getBody().getOps<RuleOp>().begin();
  if (!rule && name.empty())
    return makeError("'" + optimizer.getSymName() +
                     "' has no rule for a param of shape " + toString(shape));
  if (!rule)
    return makeUnknownError(name, "rule", optimizer.getSymName(), known);
  if (rule.isBound())
    return makeError("rule '" + rule.getSymName() +
                     "' is bound; the interpreter runs definitions");
  return rule;
}
