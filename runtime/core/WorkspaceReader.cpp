//===- WorkspaceReader.cpp - layouts and workspaces of a manifest -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"

#include <algorithm>

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

/// R and L count what a flat range touches.
static std::vector<Factor> readSize(const FieldReader &fields,
                                    const Json &value, const std::string &where,
                                    bool flat) {
  static const std::pair<const char *, Factor> factors[] = {
      {"B", Factor::B},   {"N", Factor::N},   {"M", Factor::M},
      {"NL", Factor::NL}, {"ML", Factor::ML}, {"N1", Factor::N1},
      {"B1", Factor::B1}, {"R", Factor::R},   {"L", Factor::L}};
  std::vector<Factor> size;
  for (const Json &factor : fields.getArray(value, "size", where).elements) {
    auto known =
        std::find_if(std::begin(factors), std::end(factors),
                     [&](auto &entry) { return factor.string == entry.first; });
    if (known == std::end(factors))
      fields.bad(at(where, "size"), "has a factor that is not known");
    size.push_back(known->second);
    if (!flat && (size.back() == Factor::R || size.back() == Factor::L))
      fields.bad(at(where, "size"), "has a factor of flat layouts");
  }
  return size;
}

/// Which ranks combine the buffer, the next of the variant, and when.
static ScheduleEntry readExchange(const FieldReader &fields, const Json &value,
                                  const std::string &where,
                                  const Manifest &manifest,
                                  const Variant &variant,
                                  const WorkspaceBuffer &buffer) {
  ScheduleEntry entry;
  entry.kind = EntryKind::Exchange;
  entry.segment = int64_t(fields.getIndex(
      value, "round", manifest.rounds.size(), "is not a round", where));
  BufferExchange &own = entry.buffer.emplace();
  own.buffer = variant.workspace.size();
  std::string op = fields.getString(value, "op", where);
  if (op != "sum" && op != "amax")
    fields.bad(at(where, "op"), "is neither sum nor amax");
  own.maximum = op == "amax";
  bool flat = variant.getShardedDims() == Dims{kFlatRange};
  const Dims known =
      flat ? variant.getShardedDims() : manifest.rules[variant.rule].dims;
  for (const Json &dim : fields.getArray(value, "dims", where).elements) {
    if (!dim.is(Json::Kind::String) || dim.string == "1" ||
        std::find(known.begin(), known.end(), dim.string) == known.end())
      fields.bad(at(where, "dims"),
                 flat ? "has an element that is not the flat range"
                      : "has an element that is not a dim of the rule");
    own.dims.push_back(dim.string);
  }
  if (own.dims.empty())
    fields.bad(at(where, "dims"), "is empty");
  if (buffer.bytes != 8)
    fields.bad(where, "is of a buffer whose entries do not have 8 bytes");
  if (!buffer.live)
    fields.bad(where, "is of a buffer that is not live");
  return entry;
}

void stepc::readWorkspace(const FieldReader &fields, const Json &value,
                          const std::string &where, const Manifest &manifest,
                          Variant &variant,
                          std::vector<ScheduleEntry> &exchanges) {
  bool flat = variant.getShardedDims() == Dims{kFlatRange};
  for (size_t i = 0; i < value.elements.size(); ++i) {
    std::string place = at(where, i);
    const Json &element = value.elements[i];
    WorkspaceBuffer buffer;
    buffer.name = fields.getString(element, "name", place);
    buffer.size = readSize(fields, element, place, flat);
    buffer.bytes = int64_t(fields.getIndex(
        element, "bytes", 65, "is not an integer from 0 to 64", place));
    buffer.live = fields.getBool(element, "live", place);
    if (element.find("exchange")) {
      exchanges.push_back(
          readExchange(fields, fields.getObject(element, "exchange", place),
                       at(place, "exchange"), manifest, variant, buffer));
      buffer.crosses = true;
    }
    variant.workspace.push_back(std::move(buffer));
  }
  if (hasTwins(variant.workspace))
    fields.bad(where, "has a name twice");
}
