//===- WorkspaceReader.cpp - layouts and workspaces of a manifest -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"

#include <algorithm>
#include <charconv>
#include <optional>

using namespace stepc;

/// The rule's dims, or `flat range` alone, each with its axes.
void stepc::readLayout(const FieldReader &fields, const Json &layout,
                       const std::string &where, const Manifest &manifest,
                       Variant &variant) {
  const Dims &dims = manifest.rules[variant.rule].dims;
  for (size_t i = 0; i < layout.keys.size(); ++i) {
    ShardedDim sharded{layout.keys[i], {}};
    const char *key = sharded.dim.c_str();
    if (sharded.dim == kFlatRange) {
      if (layout.keys.size() > 1)
        fields.bad(where, "has 'flat range' beside other dims");
    } else if (sharded.dim == "1" ||
               std::find(dims.begin(), dims.end(), sharded.dim) == dims.end()) {
      fields.bad(at(where, key), "is not a dim of the rule");
    }
    for (const Json &axis : fields.getArray(layout, key, where).elements) {
      if (!axis.is(Json::Kind::String) || axis.string.empty())
        fields.bad(at(where, key),
                   "has an element that is not a string, or empty");
      sharded.axes.push_back(axis.string);
    }
    if (sharded.axes.empty())
      fields.bad(at(where, key), "is empty");
    variant.layout.push_back(std::move(sharded));
  }
  // JSON has its own order of keys; messages have the rule's.
  auto getPlace = [&](const ShardedDim &sharded) {
    return std::find(dims.begin(), dims.end(), sharded.dim) - dims.begin();
  };
  std::sort(variant.layout.begin(), variant.layout.end(),
            [&](const ShardedDim &left, const ShardedDim &right) {
              return getPlace(left) < getPlace(right);
            });
}

/// "n", "m/1024", or of flat layouts "range rows".
static std::optional<Factor> readFactor(const std::string &text,
                                        const Dims &dims) {
  if (text == "range rows")
    return Factor{Factor::Kind::RangeRows, 0, 1};
  if (text == "range blocks")
    return Factor{Factor::Kind::RangeBlocks, 0, 1};
  size_t slash = text.find('/');
  Factor factor;
  if (slash != std::string::npos) {
    const char *begin = text.data() + slash + 1,
               *end = text.data() + text.size();
    auto [rest, error] = std::from_chars(begin, end, factor.per);
    if (error != std::errc() || rest != end || factor.per < 1)
      return std::nullopt;
  }
  auto found = std::find(dims.begin(), dims.end(), text.substr(0, slash));
  if (found == dims.end())
    return std::nullopt;
  factor.dim = found - dims.begin();
  return factor;
}

static std::vector<Factor> readSize(const FieldReader &fields,
                                    const Json &value, const std::string &where,
                                    const Dims &dims, bool flat) {
  std::vector<Factor> size;
  for (const Json &text : fields.getArray(value, "size", where).elements) {
    std::optional<Factor> factor = readFactor(text.string, dims);
    if (!factor)
      fields.bad(at(where, "size"), "has a factor that is not known");
    if (!flat && factor->kind != Factor::Kind::Dim)
      fields.bad(at(where, "size"), "has a factor of flat layouts");
    size.push_back(*factor);
  }
  return size;
}

/// Of every engine, where nothing else is said.
static BufferUse readUse(const FieldReader &fields, const Json &value,
                         const std::string &where) {
  if (!value.find("use"))
    return BufferUse::All;
  std::string name = fields.getString(value, "use", where);
  for (BufferUse use : kBufferUses)
    if (use != BufferUse::All && name == getName(use))
      return use;
  fields.bad(at(where, "use"), "is not a use");
}

void stepc::readWorkspace(const FieldReader &fields, const Json &value,
                          const std::string &where, const Manifest &manifest,
                          Variant &variant) {
  bool flat = variant.getShardedDims() == Dims{kFlatRange};
  const Rule &rule = manifest.rules[variant.rule];
  Dims dims = rule.dims;
  for (const BoundDim &bound : rule.boundDims)
    dims.push_back(bound.name);
  for (size_t i = 0; i < value.elements.size(); ++i) {
    std::string place = at(where, i);
    const Json &element = value.elements[i];
    WorkspaceBuffer buffer;
    buffer.name = fields.getString(element, "name", place);
    buffer.size = readSize(fields, element, place, dims, flat);
    buffer.bytes = int64_t(fields.getIndex(
        element, "bytes", 1025, "is not an integer from 0 to 1024", place));
    buffer.live = fields.getBool(element, "live", place);
    buffer.use = readUse(fields, element, place);
    if (buffer.live && buffer.use != BufferUse::All)
      fields.bad(at(place, "use"), "is of a buffer that is live");
    variant.workspace.push_back(std::move(buffer));
  }
  if (hasTwins(variant.workspace))
    fields.bad(where, "has a name twice");
}
