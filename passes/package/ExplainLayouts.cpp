//===- ExplainLayouts.cpp - what crosses ranks around a step --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainLayouts.h"
#include "passes/package/ExplainModel.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace mlir;
using namespace mlir::step;

namespace {
/// One operation of a caller on the tensors of an entry.
struct Crossing {
  StringRef operation, what;
  std::vector<std::string> axes;
  int64_t bytes;
  /// How often a rank sends (W - 1) / W of its elements, over W ranks.
  int64_t passes;
  /// Axes over which the elements are cut further than the parameter is.
  std::vector<std::string> cut;
};

/// Explains one file, and counts what crosses.
class LayoutExplainer {
public:
  LayoutExplainer(const LayoutFile &file, const VariantRequest &base)
      : file(file), out(text) {
    auto getBytes = [](StringRef storage) {
      return storage == "f64"                        ? 8
             : storage == "bf16" || storage == "f16" ? 2
                                                     : 4;
    };
    paramBytes = getBytes(base.param);
    gradBytes = base.grad.empty() ? paramBytes : getBytes(base.grad);
  }

  std::string run();

private:
  void explain(const TensorLayouts &tensor);
  void explain(const TensorLayouts &tensor, StringRef when,
               const Crossing &crossing);
  std::vector<Crossing> findBefore(const TensorLayouts &tensor) const;

  const LayoutFile &file;
  int64_t paramBytes, gradBytes;
  std::string text;
  llvm::raw_string_ostream out;
  /// When, what and over which axes: calls, whatever the number of tensors.
  std::set<std::string> calls;
  double sent = 0;
  /// Whether a shape is missing, so that `sent` is not all.
  bool isPartial = false;
};
} // namespace

/// "dim -2 over tp, dim -1 over cp+dp"; "whole".
static std::string describe(const AxesOfDims &layout) {
  SmallVector<std::string> parts;
  for (const auto &[dim, axes] : layout)
    parts.push_back((dim == VariantRequest::kFlat
                         ? std::string("a range of elements")
                         : "dim " + std::to_string(dim)) +
                    " over " + llvm::join(axes, "+"));
  return parts.empty() ? "whole" : llvm::join(parts, ", ");
}

static std::vector<std::string> getAllAxes(const AxesOfDims &layout) {
  std::vector<std::string> all;
  for (const auto &dim : layout)
    llvm::append_range(all, dim.second);
  return all;
}

/// Those of `axes` that are, or are not, among `others`.
static std::vector<std::string> select(ArrayRef<std::string> axes,
                                       ArrayRef<std::string> others, bool are) {
  std::vector<std::string> found;
  for (const std::string &axis : axes)
    if (llvm::is_contained(others, axis) == are)
      found.push_back(axis);
  return found;
}

static std::vector<std::string> getFurther(const TensorLayouts &tensor) {
  return select(getAllAxes(tensor.states), getAllAxes(tensor.param), false);
}

/// What brings the gradient to where the states are. What is cut there, and
/// not summed, each rank takes from what it has.
std::vector<Crossing>
LayoutExplainer::findBefore(const TensorLayouts &tensor) const {
  std::vector<Crossing> found;
  std::vector<std::string> further;
  if (tensor.grad == tensor.param)
    further = getFurther(tensor);
  auto scattered = select(tensor.partial, further, true);
  auto reduced = select(tensor.partial, further, false);
  if (!scattered.empty())
    found.push_back(
        {"reduce_scatter", "the gradient", scattered, gradBytes, 1, {}});
  if (!reduced.empty()) {
    std::vector<std::string> cut = further;
    if (tensor.grad != tensor.param)
      cut = getFurther(tensor);
    found.push_back({"all_reduce", "the gradient", reduced, gradBytes, 2, cut});
  }
  return found;
}

void LayoutExplainer::explain(const TensorLayouts &tensor, StringRef when,
                              const Crossing &crossing) {
  std::string call = (crossing.operation + " of " + crossing.what + " over " +
                      llvm::join(crossing.axes, "+"))
                         .str();
  out << "    " << when << ": " << call << ", " << crossing.bytes
      << " bytes of an element";
  int64_t ranks = file.countRanks(crossing.axes);
  if (ranks > 1)
    calls.insert((when + call).str());
  if (tensor.shape.empty()) {
    isPartial = true;
    out << "\n";
    return;
  }
  double elements = double(tensor.count);
  for (int64_t extent : tensor.shape)
    elements *= double(extent);
  elements /= double(file.countRanks(getAllAxes(tensor.param)));
  elements /= double(file.countRanks(crossing.cut));
  double bytes = elements * double(crossing.bytes * crossing.passes) *
                 double(ranks - 1) / double(ranks);
  sent += bytes;
  out << ", a rank sends " << int64_t(bytes) << " bytes\n";
}

void LayoutExplainer::explain(const TensorLayouts &tensor) {
  out << "  " << tensor.name;
  if (tensor.count > 1)
    out << ", " << tensor.count << " tensors";
  if (!tensor.shape.empty()) {
    out << ", shape (";
    llvm::interleaveComma(tensor.shape, out);
    out << ")";
  }
  out << "\n    param on entry and on exit: " << describe(tensor.param)
      << "\n    gradient: " << describe(tensor.grad);
  if (!tensor.partial.empty())
    out << ", to be summed over " << llvm::join(tensor.partial, "+");
  if (tensor.divisor != 1)
    out << ", divided by " << llvm::format("%g", tensor.divisor)
        << (tensor.dividesBefore ? " before" : " after") << " the sum";
  out << "\n    states on entry and on exit, and the step: "
      << describe(tensor.states) << "\n";
  for (const Crossing &crossing : findBefore(tensor))
    explain(tensor, "before the step", crossing);
  if (std::vector<std::string> further = getFurther(tensor); !further.empty())
    explain(tensor, "behind it",
            {"all_gather", "the parameter", further, paramBytes, 1, {}});
}

std::string LayoutExplainer::run() {
  SmallVector<std::string> axes;
  int64_t ranks = 1;
  for (const auto &[name, size] : file.mesh) {
    axes.push_back(name + " " + std::to_string(size));
    ranks *= size;
  }
  out << file.path << ": mesh " << (axes.empty() ? "" : llvm::join(axes, ", "))
      << (axes.empty() ? "of " : ", ") << formatCount(ranks, "rank") << "\n";
  for (const TensorLayouts &tensor : file.tensors)
    explain(tensor);
  out << "  around the step: " << formatCount(int64_t(calls.size()), "call")
      << " where buckets hold all";
  if (sent > 0)
    out << ", a rank sends " << int64_t(sent) << " bytes"
        << (isPartial ? " of the tensors whose shape is known" : "");
  out << "\n";
  return text;
}

std::string mlir::step::explainLayouts(const LayoutFile &file,
                                       const VariantRequest &base) {
  return LayoutExplainer(file, base).run();
}
