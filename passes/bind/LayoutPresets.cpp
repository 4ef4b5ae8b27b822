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

/// Where the param and its gradient lie outside of the step.
enum class Entry {
  /// Where the step has them.
  AsCut,
  /// The param whole, the gradient too, after others have summed it.
  Whole,
  /// The param whole, of the gradient each rank's addend.
  Partial
};

struct Preset {
  StringRef name;
  Cut cut;
  StringRef axis;
  Entry entry = Entry::AsCut;
};

/// A preset of a product, and its dim where one is given.
struct Factor {
  const Preset *preset;
  int64_t dim = 0;
  /// A range is of tensors that nobody else cuts: beside others it is the first
  /// dim that is cut further.
  bool isAlone = true;

  Cut getCut() const {
    return preset->cut == Cut::Range && !isAlone ? Cut::FirstDim : preset->cut;
  }
};
} // namespace

/// docs/sharding.md says what each means.
static constexpr Preset kPresets[] = {
    {"ddp", Cut::Nothing, "dp", Entry::Partial},
    {"pp", Cut::Nothing, ""},
    {"ep", Cut::Nothing, ""},
    {"zero1", Cut::Range, "dp", Entry::Whole},
    {"zero2", Cut::Range, "dp", Entry::Partial},
    {"zero3", Cut::FirstDim, "dp"},
    {"fsdp2", Cut::FirstDim, "dp"},
    {"hsdp", Cut::FirstDim, "shard"},
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
  switch (factor.getCut()) {
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
  return factor.getCut() == Cut::FirstDim ||
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

/// What the preset says of tensors outside of the step.
static llvm::Error setEntry(const Preset &preset, StringRef item,
                            VariantRequest &request) {
  if (preset.entry == Entry::Partial)
    if (llvm::Error error = request.setLayout("partial", preset.axis, item))
      return error;
  if (preset.entry != Entry::AsCut && preset.cut != Cut::Nothing)
    return request.setLayout("whole", preset.axis, item);
  return llvm::Error::success();
}

/// Adds "-2=dp,-1=tp", "flat=dp,whole=dp,partial=dp".
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
  if (llvm::Error error = request.checkEntry(("layout=" + text).str()))
    return error;
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
    factor->isAlone = names.size() == 1;
    factors.push_back(*factor);
  }
  const std::string item = ("layout=" + text).str();
  for (int64_t rank = 1; rank <= kMaxRank; ++rank) {
    VariantRequest request = base;
    if (llvm::any_of(factors, needsRank))
      request.rank = rank;
    for (const Factor &factor : factors) {
      std::string dim = getDim(factor, rank);
      if (!dim.empty())
        if (llvm::Error error =
                request.setLayout(dim, factor.preset->axis, item))
          return error;
      if (llvm::Error error = setEntry(*factor.preset, item, request))
        return error;
    }
    if (llvm::Error error = request.checkEntry(item))
      return error;
    addNew(std::move(request), requests);
  }
  return llvm::Error::success();
}
