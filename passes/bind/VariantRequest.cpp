//===- VariantRequest.cpp - what a variant is asked to be -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/bind/VariantRequest.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>

using namespace mlir;
using namespace mlir::step;

Type mlir::step::getStorageType(MLIRContext *context, StringRef name) {
  Builder builder(context);
  if (name == "f32")
    return builder.getF32Type();
  if (name == "bf16")
    return builder.getBF16Type();
  if (name == "f16")
    return builder.getF16Type();
  if (name == "f64")
    return builder.getF64Type();
  return {};
}

Type mlir::step::getComputeType(Type paramStorage) {
  return paramStorage.isF64() ? paramStorage
                              : Float32Type::get(paramStorage.getContext());
}

static llvm::Error refuse(const Twine &message) {
  return llvm::createStringError(message);
}

llvm::Error VariantRequest::setStorage(std::string &storage, StringRef type,
                                       StringRef item) {
  if (type != "f32" && type != "bf16" && type != "f16" && type != "f64")
    return refuse("'" + item + "': storage '" + type +
                  "' is none of f32, bf16, f16, f64");
  storage = type.str();
  return llvm::Error::success();
}

/// A name that says nothing else in the text of a request.
static llvm::Error checkName(StringRef name, StringRef item) {
  if (name.empty() || name.find_first_of(",;:=") != StringRef::npos)
    return refuse("'" + item + "': '" + name + "' is no name");
  return llvm::Error::success();
}

llvm::Error VariantRequest::setState(StringRef name, StringRef type,
                                     StringRef item) {
  if (llvm::Error error = checkName(name, item))
    return error;
  return setStorage(states[name.str()], type, item);
}

llvm::Error VariantRequest::setOption(StringRef name, StringRef value,
                                      StringRef item) {
  if (llvm::Error error = checkName(name, item))
    return error;
  if (value != "true" && value != "false")
    return refuse("'" + item + "': '" + value + "' is neither true nor false");
  options[name.str()] = value == "true";
  return llvm::Error::success();
}

/// Appends names joined by '+', each of which is new to `known`.
static llvm::Error addAxes(StringRef axes, StringRef item, const char *twice,
                           llvm::function_ref<bool(StringRef)> isKnown,
                           std::vector<std::string> &own) {
  SmallVector<StringRef> names;
  axes.split(names, '+');
  for (StringRef name : names) {
    if (llvm::Error error = checkName(name, item))
      return error;
    if (isKnown(name))
      return refuse("'" + item + "': axis '" + name + "' " + twice);
    own.push_back(name.str());
  }
  return llvm::Error::success();
}

llvm::Error VariantRequest::setLayout(StringRef dim, StringRef axes,
                                      StringRef item) {
  if (dim == "whole" || dim == "partial" || dim == "owned") {
    std::vector<std::string> &own = dim == "whole"     ? whole
                                    : dim == "partial" ? partial
                                                       : owned;
    auto isKnown = [&](StringRef name) {
      return llvm::is_contained(own, name);
    };
    return addAxes(axes, item, "is named twice", isKnown, own);
  }
  if (dim == "wire")
    return setStorage(wire, axes, item);
  int64_t number = kFlat;
  if (dim != "flat" && (dim.getAsInteger(10, number) || number >= 0))
    return refuse("'" + item + "': dim '" + dim +
                  "' is neither flat nor a negative number");
  if (!layout.empty() && (dim == "flat" || layout.count(kFlat)))
    return refuse("'" + item + "': a layout is flat or shards dims, once each");
  auto isKnown = [&](StringRef name) {
    return llvm::any_of(layout, [&](const auto &other) {
      return llvm::is_contained(other.second, name);
    });
  };
  return addAxes(axes, item, "shards twice", isKnown, layout[number]);
}

llvm::Error VariantRequest::checkEntry(StringRef text) const {
  auto isCut = [&](const std::string &axis) {
    return llvm::any_of(layout, [&](const auto &dim) {
      return llvm::is_contained(dim.second, axis);
    });
  };
  for (const std::string &axis : owned)
    if (isCut(axis))
      return refuse("'" + text + "': one rank steps all over axis '" + axis +
                    "', over which it is cut");
  if (!owned.empty() && !whole.empty())
    return refuse("'" + text + "': one rank steps all over axis '" +
                  owned.front() + "', and over '" + whole.front() +
                  "' each a part");
  for (const std::string &axis : whole)
    if (!isCut(axis))
      return refuse("'" + text + "': the parameter is whole over axis '" +
                    axis + "', over which nothing is cut");
  for (const std::vector<std::string> &own : {whole, owned})
    for (const std::string &axis : own)
      if (llvm::is_contained(partial, own.front()) !=
          llvm::is_contained(partial, axis))
        return refuse("'" + text + "': of axes '" + own.front() + "' and '" +
                      axis +
                      "', over which the parameter is whole, the "
                      "gradient is partial over one alone");
  for (auto &[dim, axes] : layout)
    for (const std::string &axis : axes)
      if (llvm::is_contained(partial, axis) && !llvm::is_contained(whole, axis))
        return refuse("'" + text + "': the gradient is partial over axis '" +
                      axis + "', over which the parameter is cut");
  StringRef gradient = grad.empty() ? param : grad;
  if (wire == "f64" && gradient != "f64")
    return refuse("'" + text + "': gradients of " +
                  (gradient.empty() ? "f32" : gradient) +
                  " are not summed as f64");
  if (!wire.empty() && partial.empty())
    return refuse("'" + text + "': a wire, and no gradient that is partial");
  return llvm::Error::success();
}

/// The rule's dim in which dim `number` of a tensor lies, counted from the end;
/// null where the rule has none.
static StringAttr findDim(ArrayRef<StringAttr> dims, int64_t number) {
  if (isAnyRank(dims.front()))
    return dims.front();
  int64_t index = int64_t(dims.size()) + number;
  if (index >= 0 && !isBatch(dims[index]))
    return dims[index];
  return isBatch(dims.front()) ? dims.front() : StringAttr();
}

LayoutAttr mlir::step::getLayout(const VariantRequest &request, Type param) {
  MLIRContext *context = param.getContext();
  llvm::MapVector<StringAttr, SmallVector<Attribute>> axes;
  for (auto &[number, names] : request.layout) {
    StringAttr dim = number == VariantRequest::kFlat
                         ? StringAttr::get(context, kFlatRange)
                         : findDim(getDims(param), number);
    if (!dim)
      continue;
    for (const std::string &name : names)
      axes[dim].push_back(StringAttr::get(context, name));
  }
  if (axes.empty())
    return {};
  Builder builder(context);
  SmallVector<NamedAttribute> dims;
  for (auto &[dim, names] : axes)
    dims.push_back({dim, builder.getArrayAttr(names)});
  return LayoutAttr::get(context, builder.getDictionaryAttr(dims));
}

EntryAttr mlir::step::getEntry(const VariantRequest &request, LayoutAttr layout,
                               Type gradient, Type compute) {
  Builder builder(compute.getContext());
  SmallVector<Attribute> whole, partial;
  for (const std::string &axis : request.whole)
    if (layout && layout.cuts(axis))
      whole.push_back(builder.getStringAttr(axis));
  for (const std::string &axis : request.owned)
    whole.push_back(builder.getStringAttr(axis));
  for (const std::string &axis : request.partial)
    partial.push_back(builder.getStringAttr(axis));
  if (whole.empty() && partial.empty())
    return {};
  Type wire;
  if (!partial.empty())
    wire = request.wire.empty()
               ? gradient
               : getStorageType(builder.getContext(), request.wire);
  return EntryAttr::get(builder.getContext(), builder.getArrayAttr(whole),
                        builder.getArrayAttr(partial), gradient, wire);
}

bool mlir::step::isForRule(const VariantRequest &request, Type param) {
  ArrayRef<StringAttr> dims = getDims(param);
  if (request.rank == 0 || isAnyRank(dims.front()))
    return true;
  int64_t named =
      llvm::count_if(dims, [](StringAttr dim) { return !isBatch(dim); });
  return isBatch(dims.front()) ? request.rank >= named : request.rank == named;
}

llvm::Error VariantRequest::parse(StringRef text) {
  std::string copy = text.str();
  std::replace(copy.begin(), copy.end(), ';', ',');
  SmallVector<StringRef> items;
  StringRef(copy).split(items, ',', -1, /*KeepEmpty=*/false);
  for (StringRef raw : items) {
    StringRef item = raw.trim();
    auto [key, value] = item.split('=');
    if (key == item)
      return refuse("'" + item + "' is not of the form name=value");
    if (key == "param" || key == "grad" || key == "state") {
      std::string &out = key == "param" ? param : key == "grad" ? grad : state;
      if (llvm::Error error = setStorage(out, value, item))
        return error;
    } else if (key.consume_front("state.")) {
      if (llvm::Error error = setState(key, value, item))
        return error;
    } else if (key.consume_front("option.")) {
      if (llvm::Error error = setOption(key, value, item))
        return error;
    } else if (key.consume_front("layout.")) {
      if (llvm::Error error = setLayout(key, value, item))
        return error;
    } else if (key == "master") {
      if (value != "f32" && value != "remainder")
        return refuse("'" + item + "': '" + value +
                      "' is neither f32 nor remainder");
      master = value.str();
    } else if (key == "rounding") {
      if (value != "stochastic")
        return refuse("'" + item + "': '" + value + "' is not stochastic");
      rounding = value.str();
    } else if (key == "rank") {
      if (value.getAsInteger(10, rank) || rank < 1)
        return refuse("'" + item + "': '" + value + "' is no rank above 0");
    } else {
      return refuse("'" + item + "': '" + key +
                    "' is none of param, grad, state, state.NAME, option.NAME, "
                    "layout.DIM, rank, master, rounding");
    }
  }
  return checkEntry(text);
}

std::string VariantRequest::str() const {
  SmallVector<std::string> items;
  auto add = [&](const Twine &key, StringRef value) {
    if (!value.empty())
      items.push_back((key + "=" + value).str());
  };
  add("param", param);
  add("grad", grad);
  add("state", state);
  for (auto &[name, storage] : states)
    add("state." + name, storage);
  for (auto &[name, value] : options)
    add("option." + name, value ? "true" : "false");
  for (auto &[number, axes] : layout)
    add("layout." + (number == kFlat ? "flat" : std::to_string(number)),
        llvm::join(axes, "+"));
  add("layout.whole", llvm::join(whole, "+"));
  add("layout.owned", llvm::join(owned, "+"));
  add("layout.partial", llvm::join(partial, "+"));
  add("layout.wire", wire);
  add("master", master);
  add("rounding", rounding);
  add("rank", rank ? std::to_string(rank) : "");
  return llvm::join(items, ",");
}
