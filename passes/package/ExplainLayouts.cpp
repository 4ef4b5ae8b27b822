//===- ExplainLayouts.cpp - what crosses ranks around a step --------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/Explain.h"
#include "passes/shard/Sharding.h"

#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;
using namespace mlir::step;
namespace json = llvm::json;
using Axes = std::vector<std::string>;

/// Where it lies; nowhere: it is whole.
static json::Array describe(const AxesOfDims &layout) {
  json::Array dims;
  for (const auto &[dim, axes] : layout) {
    json::Object one{{"axes", axes}};
    if (dim != VariantRequest::kFlat)
      one["dim"] = "dim " + std::to_string(dim);
    dims.push_back(std::move(one));
  }
  return dims;
}

static Axes getAllAxes(const AxesOfDims &layout) {
  Axes all;
  for (const auto &dim : layout)
    llvm::append_range(all, dim.second);
  return all;
}

static int64_t getStorageBytes(StringRef storage) {
  bool isShort = storage == "bf16" || storage == "f16";
  return storage == "f64" ? 8 : isShort ? 2 : 4;
}

namespace {
/// Explains the tensors of one file, and counts what crosses.
struct LayoutExplainer {
  const LayoutFile &file;
  int64_t paramBytes, gradBytes;
  /// When, what and over which axes: calls, whatever the number of tensors.
  std::set<std::string> calls = {};
  double sent = 0;
  /// Whether a shape is missing, so that `sent` is not all.
  bool isPartial = false;

  json::Object describeTensors(const TensorLayouts &tensor);
  json::Array findCrossings(const TensorLayouts &tensor);
  json::Object cross(const TensorLayouts &tensor, json::Object call,
                     const Axes &axes, int64_t bytes, const Axes &cut);
};
} // namespace

/// One exchange, `call`: how many bytes of an element cross, and how many a
/// rank sends, which sends (W - 1) / W of its elements over W ranks. Over `cut`
/// elements are cut further than the parameter is.
json::Object LayoutExplainer::cross(const TensorLayouts &tensor,
                                    json::Object call, const Axes &axes,
                                    int64_t bytes, const Axes &cut) {
  call["axes"] = axes;
  int64_t ranks = file.countRanks(axes);
  if (ranks > 1)
    calls.insert(llvm::formatv("{0}", json::Value(json::Object(call))));
  call["bytes"] = bytes;
  isPartial |= tensor.shape.empty();
  if (tensor.shape.empty())
    return call;
  double elements = double(tensor.count);
  for (int64_t extent : tensor.shape)
    elements *= double(extent);
  elements /= double(file.countRanks(getAllAxes(tensor.param)));
  elements /= double(file.countRanks(cut));
  double own = elements * double(bytes) * double(ranks - 1) / double(ranks);
  sent += own;
  call["sent"] = int64_t(own);
  return call;
}

/// What brings the gradient to where the states are, and the parameter back.
/// What is cut there, and not summed, each rank takes from what it has.
json::Array LayoutExplainer::findCrossings(const TensorLayouts &tensor) {
  Axes further = tensor.getAxesOfStatesAlone(), whole = tensor.getWhole();
  EntryTransfers transfers(whole, tensor.partial);
  int64_t gradBytes =
      tensor.wire.empty() ? this->gradBytes : getStorageBytes(tensor.wire);
  json::Array found;
  auto add = [&](const char *when, const char *operation, const char *what,
                 const Axes &axes, int64_t bytes, const Axes &cut) {
    json::Object call{{"when", when}, {"operation", operation}, {"what", what}};
    if (!axes.empty())
      found.push_back(cross(tensor, std::move(call), axes, bytes, cut));
  };
  add("before the step", "reduce_scatter", "the gradient", transfers.scattered,
      gradBytes, {});
  // Addends cross, and then their sums.
  add("before the step", "all_reduce", "the gradient", transfers.reduced,
      gradBytes + (this->gradBytes == 8 ? 8 : 4), further);
  add("behind it", "all_gather", "the parameter", whole, paramBytes, {});
  return found;
}

json::Object LayoutExplainer::describeTensors(const TensorLayouts &tensor) {
  json::Object object{{"name", tensor.name},
                      {"shape", tensor.shape},
                      {"param", describe(tensor.param)},
                      {"gradient", describe(tensor.grad)},
                      {"partial", tensor.partial},
                      {"states", describe(tensor.states)},
                      {"crossings", findCrossings(tensor)}};
  if (tensor.count > 1)
    object["count"] = tensor.count;
  if (tensor.divisor != 1) {
    object["divisor"] = tensor.divisor;
    object["divided"] = tensor.dividesBefore ? "before" : "after";
  }
  return object;
}

json::Object mlir::step::explainLayouts(const LayoutFile &file,
                                        const VariantRequest &base) {
  LayoutExplainer explainer{
      file, getStorageBytes(base.param),
      getStorageBytes(base.grad.empty() ? base.param : base.grad)};
  json::Array mesh, tensors;
  int64_t ranks = 1;
  for (const auto &[name, size] : file.mesh) {
    mesh.push_back(json::Object{{"axis", name}, {"ranks", size}});
    ranks *= size;
  }
  for (const TensorLayouts &tensor : file.tensors)
    tensors.push_back(explainer.describeTensors(tensor));
  return json::Object{{"file", json::fixUTF8(file.path)},
                      {"mesh", std::move(mesh)},
                      {"ranks", ranks},
                      {"tensors", std::move(tensors)},
                      {"calls", int64_t(explainer.calls.size())},
                      {"sent", int64_t(explainer.sent)},
                      {"partial", explainer.isPartial}};
}
