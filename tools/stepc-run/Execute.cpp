//===- Execute.cpp - steps by the interpreter, and comparisons ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Execute.h"

#include "Rows.h"
#include "Zip.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace llvm;
using namespace stepc::run;
using namespace mlir::step;
using namespace mlir::step::reference;

//===----------------------------------------------------------------------===//
// The interpreter
//===----------------------------------------------------------------------===//

/// The first step.
static ModelRequest makeRequest(const PreparedCase &prepared) {
  ModelRequest request;
  request.mode = prepared.mode;
  request.scalars = prepared.scalars;
  request.groups = prepared.groups;
  for (const PreparedTensor &tensor : prepared.tensors) {
    request.tensors.push_back(tensor.request);
    for (const auto &[name, state] : tensor.states)
      request.tensors.back().states[name] = toTensor(state);
  }
  return request;
}

/// What a step left is what the next one begins with.
static void advance(ModelRequest &request, ModelOutcome outcome) {
  for (auto [tensor, result] : zip(request.tensors, outcome.tensors)) {
    tensor.param.tensor = std::move(result.param);
    for (auto &[name, state] : tensor.states)
      state.tensor = std::move(result.states[name]);
    if (outcome.skipped || !tensor.participates)
      continue;
    ++tensor.count;
    tensor.fresh = false;
    tensor.created.clear();
  }
  request.scalars = std::move(outcome.scalars);
  request.reports = std::move(outcome.reports);
  for (auto [group, scalars, reports] :
       zip(request.groups, outcome.groupScalars, outcome.groupReports)) {
    group.scalars = std::move(scalars);
    group.reports = std::move(reports);
  }
}

void stepc::run::addRow(Rows &rows, const std::string &name,
                        ArrayRef<double> numbers, bool perGroup) {
  Tensor &tensor = rows[name];
  if (tensor.shape.empty())
    tensor.shape =
        perGroup ? Shape{0, static_cast<int64_t>(numbers.size())} : Shape{0};
  ++tensor.shape.front();
  append_range(tensor.elements, numbers);
}

/// Adds what a step says: "PREFIX:NAME" of the model, and of all groups.
static void addRows(Rows &rows, const std::string &prefix,
                    const std::map<std::string, double> &ofModel,
                    ArrayRef<std::map<std::string, double>> ofGroups) {
  for (const auto &[name, number] : ofModel)
    addRow(rows, prefix + name, number, false);
  if (ofGroups.empty())
    return;
  for (const auto &[name, first] : ofGroups.front()) {
    std::vector<double> numbers;
    for (const auto &group : ofGroups)
      numbers.push_back(group.at(name));
    addRow(rows, prefix + name, numbers, true);
  }
}

static void addTensors(const PreparedCase &prepared,
                       const ModelRequest &request, ArrayMap &results) {
  bool exact = request.mode == Mode::Exact;
  auto storageOf = [&](const StoredTensor &stored) {
    return exact ? stored.storage : Format::F64;
  };
  for (auto [input, tensor] : zip(prepared.tensors, request.tensors)) {
    results[input.prefix + "param"] =
        toArray(tensor.param.tensor, storageOf(tensor.param));
    for (const auto &[name, state] : tensor.states)
      results[input.prefix + name] = toArray(state.tensor, storageOf(state));
  }
}

/// Whether the optimizer, or a fragment beside it, can skip steps.
static bool maySkip(OptimizerOp optimizer) {
  bool found = false;
  for (mlir::Operation &op : *optimizer->getBlock())
    op.walk([&](SkipIfOp) { found = true; });
  return found;
}

/// Adds the ends of intervals as arrays of f64.
static void addBounds(ArrayMap &results, const std::string &name,
                      const Bounds &bounds) {
  Tensor low{bounds.shape, {}}, high = low, nan = low;
  for (Interval element : bounds.elements) {
    bool empty = !element.hasNumbers();
    low.elements.push_back(empty ? element.getPoint() : element.low);
    high.elements.push_back(empty ? element.getPoint() : element.high);
    nan.elements.push_back(element.nan);
  }
  results[name + ":low"] = toArray(low, Format::F64);
  results[name + ":high"] = toArray(high, Format::F64);
  results[name + ":nan"] = toArray(nan, Format::F64);
}

/// Of the model, and rows of what groups say.
static void addBounds(ArrayMap &results, const std::string &prefix,
                      const std::map<std::string, Interval> &ofModel,
                      ArrayRef<std::map<std::string, Interval>> ofGroups) {
  for (const auto &[name, value] : ofModel)
    addBounds(results, prefix + name, {{1}, {value}});
  if (ofGroups.empty())
    return;
  for (const auto &[name, first] : ofGroups.front()) {
    Bounds row{{1, static_cast<int64_t>(ofGroups.size())}, {}};
    for (const auto &group : ofGroups)
      row.elements.push_back(group.at(name));
    addBounds(results, prefix + name, row);
  }
}

/// One step in bound mode.
static Expected<ArrayMap> boundCase(OptimizerOp optimizer,
                                    const PreparedCase &prepared) {
  if (prepared.steps != 1)
    return makeError("bounds are those of one step, " + Twine(prepared.steps) +
                     " are asked for");
  ModelRequest request = makeRequest(prepared);
  for (auto [input, tensor] : zip(prepared.tensors, request.tensors)) {
    tensor.grad = toTensor(input.getGrad(0));
    tensor.participates = input.takesPart(0);
  }
  Expected<ModelOutcome> outcome = interpretStep(optimizer, request);
  if (!outcome)
    return outcome.takeError();
  ArrayMap results;
  for (auto [input, result] : zip(prepared.tensors, outcome->tensors)) {
    addBounds(results, input.prefix + "param", result.paramBounds);
    for (const auto &[name, bounds] : result.stateBounds)
      addBounds(results, input.prefix + name, bounds);
  }
  addBounds(results, "report:", outcome->reportBounds,
            outcome->groupReportBounds);
  addBounds(results, "scalar:", outcome->scalarBounds,
            outcome->groupScalarBounds);
  results["jumps"] = toArray(
      Tensor{{2},
             {double(outcome->jumps.elements), double(outcome->jumps.open)}},
      Format::F64);
  return results;
}

Expected<ArrayMap> stepc::run::interpretCase(OptimizerOp optimizer,
                                             const PreparedCase &prepared) {
  if (prepared.mode == Mode::Bound)
    return boundCase(optimizer, prepared);
  ModelRequest request = makeRequest(prepared);
  bool mayBeSkipped = maySkip(optimizer);
  Rows rows;
  for (int64_t step = 0; step < prepared.steps; ++step) {
    for (auto [input, tensor] : zip(prepared.tensors, request.tensors)) {
      tensor.grad = toTensor(input.getGrad(step));
      tensor.participates = input.takesPart(step);
    }
    Expected<ModelOutcome> outcome = interpretStep(optimizer, request);
    if (!outcome)
      return outcome.takeError();
    addRows(rows, "report:", outcome->reports, outcome->groupReports);
    addRows(rows, "scalar:", outcome->scalars, outcome->groupScalars);
    if (mayBeSkipped)
      addRow(rows, "step:skipped", outcome->skipped, false);
    advance(request, std::move(*outcome));
  }
  ArrayMap results;
  addTensors(prepared, request, results);
  for (const auto &[name, numbers] : rows)
    results[name] = toArray(numbers, Format::F64);
  return results;
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

static bool areEqual(double lhs, double rhs) {
  return (std::isnan(lhs) && std::isnan(rhs)) ||
         bit_cast<uint64_t>(lhs) == bit_cast<uint64_t>(rhs);
}

bool stepc::run::compareResults(StringRef prefix, const ArrayMap &interpreted,
                                const ArrayMap &compiled, raw_ostream &out) {
  bool equal = true;
  for (const auto &[name, array] : interpreted) {
    Tensor expected = toTensor(array).tensor;
    auto found = compiled.find(name);
    if (found == compiled.end()) {
      // A state that nothing depends on is none of the package's. What has a
      // colon in its name is no state.
      if (!StringRef(name).contains(':'))
        continue;
      equal = false;
      out << prefix << name << ": not known of the compiled step\n";
      continue;
    }
    Tensor actual = toTensor(found->second).tensor;
    size_t count = 0, first = 0;
    for (size_t index = expected.elements.size(); index-- > 0;) {
      if (areEqual(expected.elements[index], actual.elements[index]))
        continue;
      ++count;
      first = index;
    }
    if (count == 0)
      continue;
    equal = false;
    double left = expected.elements[first], right = actual.elements[first];
    out << prefix << name << ": " << count << " of " << expected.elements.size()
        << " elements differ, first element " << first << ": interpreted "
        << format("%.17g (%a)", left, left) << ", compiled "
        << format("%.17g (%a)", right, right) << "\n";
  }
  return equal;
}
