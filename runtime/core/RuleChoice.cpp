//===- RuleChoice.cpp - which rule updates a tensor ---------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/RuleChoice.h"

#include "core/Status.h"
#include "core/TensorView.h"

using namespace stepc;

namespace {

/// Compares one tensor with one rule after the other; the functions return why
/// a rule does not take it, or "".
class RuleMatcher {
public:
  RuleMatcher(const Manifest &manifest, const std::vector<int64_t> &options,
              const std::vector<int64_t> &shape)
      : manifest(manifest), options(options), extents(shape.data()),
        rank(int64_t(shape.size())) {}

  std::string refuseDims(const Dims &dims) const;
  std::string refuseTerm(const GuardTerm &term) const;
  std::string refuse(const Rule &rule) const;

private:
  std::string describeOption(size_t option) const {
    return "option '" + manifest.options[option].name + "'";
  }

  static std::string describeExtent(int64_t dim) {
    return "extent " + std::to_string(dim);
  }
  /// The extent of that index, from the end where it is negative; false where
  /// there is none.
  bool findExtent(int64_t dim, int64_t &extent) const {
    int64_t index = dim < 0 ? rank + dim : dim;
    if (index < 0 || index >= rank)
      return false;
    extent = extents[index];
    return true;
  }

  const Manifest &manifest;
  const std::vector<int64_t> &options;
  const int64_t *extents;
  int64_t rank;
};

} // namespace

/// Equal names have equal extents, `1` is an extent.
std::string RuleMatcher::refuseDims(const Dims &dims) const {
  if (dims == Dims{"*"})
    return "";
  bool leading = !dims.empty() && dims[0].rfind("...", 0) == 0;
  int64_t named = int64_t(dims.size()) - leading;
  if (leading ? rank < named : rank != named)
    return "has dims " + describe(dims);
  const int64_t *last = extents + rank - named;
  const std::string *names = dims.data() + leading;
  for (int64_t i = 0; i < named; ++i) {
    if (names[i] == "1" && last[i] != 1)
      return "has dims " + describe(dims);
    for (int64_t k = 0; k < i; ++k)
      if (names[i] == names[k] && last[i] != last[k])
        return "has dims " + describe(dims) + ", with equal extents";
  }
  return "";
}

std::string RuleMatcher::refuseTerm(const GuardTerm &term) const {
  std::string subject;
  int64_t found = 0;
  switch (term.subject) {
  case GuardTerm::Subject::Rank:
    subject = "rank";
    found = rank;
    break;
  case GuardTerm::Subject::Extent:
    subject = describeExtent(term.extent);
    if (!findExtent(term.extent, found))
      return "needs an " + subject;
    break;
  case GuardTerm::Subject::Option:
    subject = describeOption(term.option);
    found = options[term.option];
    break;
  }
  int64_t other = term.value;
  std::string name;
  switch (term.other) {
  case GuardTerm::Other::Value:
    break;
  case GuardTerm::Other::Extent:
    name = describeExtent(term.otherExtent);
    if (!findExtent(term.otherExtent, other))
      return "needs an " + name;
    break;
  case GuardTerm::Other::Option:
    name = describeOption(term.otherOption);
    other = options[term.otherOption];
    break;
  }
  if (compare(double(found), term.predicate, double(other)))
    return "";
  return "needs " + subject + " " + getName(term.predicate) + " " +
         std::to_string(other) + (name.empty() ? "" : " (" + name + ")") +
         ", it is " + std::to_string(found);
}

std::string RuleMatcher::refuse(const Rule &rule) const {
  std::string reason = refuseDims(rule.dims);
  for (size_t i = 0; reason.empty() && i < rule.guard.size(); ++i)
    reason = refuseTerm(rule.guard[i]);
  return reason;
}

size_t stepc::chooseRule(const Manifest &manifest,
                         const std::vector<int64_t> &options,
                         const std::vector<int64_t> &shape,
                         const std::string &name) {
  RuleMatcher matcher(manifest, options, shape);
  for (size_t i = 0; i < manifest.rules.size(); ++i)
    if (matcher.refuse(manifest.rules[i]).empty())
      return i;
  std::string reasons;
  for (const Rule &rule : manifest.rules)
    reasons += (reasons.empty() ? "'" : "; '") + rule.name + "' " +
               matcher.refuse(rule);
  fail(STEPC_SHAPE_MISMATCH,
       "tensor %s: no rule of optimizer '%s' takes shape %s: %s", name.c_str(),
       manifest.optimizer.c_str(),
       describeShape(shape.data(), int64_t(shape.size())).c_str(),
       reasons.c_str());
}
