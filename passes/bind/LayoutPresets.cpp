//===- LayoutPresets.cpp - layouts by the names that trainers give them ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/bind/LayoutPresets.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// What of a tensor a preset cuts.
enum class Cut { Nothing, Range, FirstDim, GivenDim };

struct Preset {
  StringRef name;
  Cut cut;
  StringRef axis;
};

/// A preset of a product, and its dim where one is given.
struct Factor {
  const Preset *preset;
  int64_t dim = 0;
};
} // namespace

/// docs/sharding.md says what each means.
static constexpr Preset kPresets[] = {
    {"ddp", Cut::Nothing, ""},      {"pp", Cut::Nothing, ""},
    {"ep", Cut::Nothing, ""},       {"zero1", Cut::Range, "dp"},
    {"zero2", Cut::Range, "dp"},    {"zero3", Cut::FirstDim, "dp"},
    {"fsdp2", Cut::FirstDim, "dp"}, {"hsdp", Cut::FirstDim, "shard"},
    {"tp", Cut::GivenDim, "tp"},
};

/// Requests count dims from the last, which is another one for each rank.
static constexpr int64_t kMaxRank = 4;

static llvm::Error refuse(StringRef text, const Twine &message) {
  return llvm::createStringError("'layout=" + text + "': " + message);
}

/// Reads "fsdp2", "tp(1)".
static llvm::Expected<Factor> readFactor(StringRef given, StringRef text) {
  auto [name, rest] = given.split('(');
  const bool hasDim = name.size() != given.size();
  const Preset *preset = llvm::find_if(
      kPresets, [&](const Preset &known) { return known.name == name; });
  if (preset == std::end(kPresets)) {
    SmallVector<StringRef> names;
    for (const Preset &known : kPresets)
      names.push_back(known.name);
    return refuse(text, "'" + name + "' is none of " + llvm::join(names, ", ") +
                            ", and no dim=axes");
  }
  Factor factor{preset};
  if (preset->cut != Cut::GivenDim) {
    if (hasDim)
      return refuse(text, "'" + name + "' takes no dim");
    return factor;
  }
  if (!rest.consume_back(")") || rest.getAsInteger(10, factor.dim))
    return refuse(text, "'" + given + "' is not of the form " + name + "(dim)");
  if (factor.dim >= kMaxRank || factor.dim < -kMaxRank)
    return refuse(text, "dim " + Twine(factor.dim) + " is none of " +
                            Twine(-kMaxRank) + " to " + Twine(kMaxRank - 1));
  return factor;
}

/// The dim that the factor cuts of a tensor of that rank, as a request has it;
/// empty where there is none.
static std::string getDim(const Factor &factor, int64_t rank) {
  switch (factor.preset->cut) {
  case Cut::Nothing:
    return "";
  case Cut::Range:
    return "flat";
  case Cut::FirstDim:
    return std::to_string(-rank);
  case Cut::GivenDim:
    int64_t dim = factor.dim < 0 ? factor.dim : factor.dim - rank;
    return dim < 0 && dim >= -rank ? std::to_string(dim) : "";
  }
  llvm_unreachable("a cut");
}

/// Whether what it cuts is another dim of a request for each rank.
static bool needsRank(const Factor &factor) {
  return factor.preset->cut == Cut::FirstDim ||
         (factor.preset->cut == Cut::GivenDim && factor.dim >= 0);
}

static void addNew(VariantRequest request,
                   std::vector<VariantRequest> &requests) {
  bool known = llvm::any_of(requests, [&](const VariantRequest &other) {
    return other.str() == request.str();
  });
  if (!known)
    requests.push_back(std::move(request));
}

/// Adds "-2=dp,-1=tp".
static llvm::Error addDims(StringRef text, const VariantRequest &base,
                           std::vector<VariantRequest> &requests) {
  VariantRequest request = base;
  SmallVector<StringRef> items;
  text.split(items, ',');
  for (StringRef item : items) {
    auto [dim, axes] = item.split('=');
    if (llvm::Error error =
            request.setLayout(dim, axes, ("layout=" + text).str()))
      return error;
  }
  addNew(std::move(request), requests);
  return llvm::Error::success();
}

llvm::Error mlir::step::addLayout(StringRef text, const VariantRequest &base,
                                  std::vector<VariantRequest> &requests) {
  if (text.contains('='))
    return addDims(text, base, requests);
  SmallVector<StringRef> names;
  text.split(names, '*');
  SmallVector<Factor> factors;
  for (StringRef name : names) {
    llvm::Expected<Factor> factor = readFactor(name, text);
    if (!factor)
      return factor.takeError();
    factors.push_back(*factor);
  }
  for (int64_t rank = 1; rank <= kMaxRank; ++rank) {
    VariantRequest request = base;
    if (llvm::any_of(factors, needsRank))
      request.rank = rank;
    for (const Factor &factor : factors) {
      std::string dim = getDim(factor, rank);
      if (dim.empty())
        continue;
      if (llvm::Error error = request.setLayout(dim, factor.preset->axis,
                                                ("layout=" + text).str()))
        return error;
    }
    addNew(std::move(request), requests);
  }
  return llvm::Error::success();
}
