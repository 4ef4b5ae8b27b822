//===- ScheduleReader.cpp - the schedules of a manifest -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"

#include <algorithm>

using namespace stepc;

namespace {
/// Reads the entries of one variant, of which all but the schedule is known.
class ScheduleReader {
public:
  ScheduleReader(const FieldReader &fields, const Manifest &manifest,
                 Variant &variant)
      : fields(fields), manifest(manifest), variant(variant) {}

  void read(const Json &value, const std::string &where);

private:
  EntryKind readKind(const Json &value, const std::string &where) const;
  std::vector<FinishStage> readStages(const Json &value,
                                      const std::string &where) const;
  void readCalled(const Json &value, const std::string &where,
                  ScheduleEntry &entry) const;
  void readExchange(const Json &value, const std::string &where,
                    ScheduleEntry &entry);
  BufferExchange readBuffer(const Json &value, const std::string &where);
  Contribution readContribution(const Json &value,
                                const std::string &where) const;
  uint64_t readPartialDims(const Json &value, const std::string &where) const;
  void readEdges(const Json &value, const std::string &where,
                 ScheduleEntry &entry) const;
  void requireOrder(const ScheduleEntry &entry, const std::string &where) const;

  const FieldReader &fields;
  const Manifest &manifest;
  Variant &variant;
};
} // namespace

/// An entry says its kind by the key of what it names.
EntryKind ScheduleReader::readKind(const Json &value,
                                   const std::string &where) const {
  for (EntryKind kind : {EntryKind::Call, EntryKind::Copy}) {
    if (!value.find(getName(kind)))
      continue;
    std::string what = "is an entry of kind '" + std::string(getName(kind)) +
                       "', which this runtime does not read";
    fields.bad(where, what.c_str());
  }
  for (EntryKind kind : {EntryKind::Finish, EntryKind::Exchange})
    if (value.find(getName(kind)))
      return kind;
  return EntryKind::Kernel;
}

/// One that says nothing of it is one part of rows.
std::vector<FinishStage>
ScheduleReader::readStages(const Json &value, const std::string &where) const {
  if (!value.find("stages"))
    return {FinishStage::Rows};
  std::vector<FinishStage> stages;
  for (const Json &name : fields.getArray(value, "stages", where).elements) {
    auto known = std::find_if(
        std::begin(kFinishStages), std::end(kFinishStages),
        [&](FinishStage stage) { return name.string == getName(stage); });
    if (known == std::end(kFinishStages))
      fields.bad(at(where, "stages"), "has an element that is not a stage");
    stages.push_back(*known);
  }
  if (stages.empty())
    fields.bad(at(where, "stages"), "is empty");
  return stages;
}

void ScheduleReader::readCalled(const Json &value, const std::string &where,
                                ScheduleEntry &entry) const {
  entry.trailing =
      value.find("trailing") && fields.getBool(value, "trailing", where);
  entry.function = fields.getString(value, getName(entry.kind), where);
  if (entry.kind == EntryKind::Finish) {
    if (value.find("products"))
      entry.products =
          int64_t(fields.getIndex(value, "products", 65537,
                                  "is not an integer from 0 to 65536", where));
    entry.stages = readStages(value, where);
    return;
  }
  entry.stridedFunction = fields.getString(value, "strided_kernel", where);
  const char *what = "is not an operand";
  entry.reads =
      fields.getIndices(value, "reads", variant.operands.size(), what, where);
  entry.writes =
      fields.getIndices(value, "writes", variant.operands.size(), what, where);
  for (size_t operand : entry.writes)
    if (operand == variant.grad)
      fields.bad(at(where, "writes"), "names the gradient");
  if (value.find("unless_slot"))
    entry.unlessSlot = int64_t(fields.getIndex(
        value, "unless_slot", variant.tensorSlots, "is not a slot", where));
}

/// Which ranks combine a buffer of the workspace.
BufferExchange ScheduleReader::readBuffer(const Json &value,
                                          const std::string &where) {
  BufferExchange exchange;
  exchange.buffer = fields.getIndex(value, "buffer", variant.workspace.size(),
                                    "is not a buffer", where);
  std::string op = fields.getString(value, "op", where);
  if (op != "sum" && op != "amax")
    fields.bad(at(where, "op"), "is neither sum nor amax");
  exchange.maximum = op == "amax";
  bool flat = variant.getShardedDims() == Dims{kFlatRange};
  const Dims known =
      flat ? variant.getShardedDims() : manifest.rules[variant.rule].dims;
  for (const Json &dim : fields.getArray(value, "dims", where).elements) {
    if (!dim.is(Json::Kind::String) || dim.string == "1" ||
        std::find(known.begin(), known.end(), dim.string) == known.end())
      fields.bad(at(where, "dims"),
                 flat ? "has an element that is not the flat range"
                      : "has an element that is not a dim of the rule");
    exchange.dims.push_back(dim.string);
  }
  if (exchange.dims.empty())
    fields.bad(at(where, "dims"), "is empty");
  WorkspaceBuffer &buffer = variant.workspace[exchange.buffer];
  if (buffer.bytes != 8)
    fields.bad(where, "is of a buffer whose entries do not have 8 bytes");
  if (!buffer.live)
    fields.bad(where, "is of a buffer that is not live");
  if (buffer.crosses)
    fields.bad(where, "is of a buffer that crosses already");
  buffer.crosses = true;
  return exchange;
}

/// Indices into the layout, as bits: there are fewer dims than axes.
uint64_t ScheduleReader::readPartialDims(const Json &value,
                                         const std::string &where) const {
  uint64_t partial = 0;
  for (const Json &dim : fields.getArray(value, "partial", where).elements) {
    size_t index = 0;
    while (index < variant.layout.size() &&
           !(dim.is(Json::Kind::String) &&
             variant.layout[index].dim == dim.string))
      ++index;
    if (index >= std::min<size_t>(variant.layout.size(), 64))
      fields.bad(at(where, "partial"), "has a dim that is not sharded");
    partial |= uint64_t(1) << index;
  }
  return partial;
}

Contribution ScheduleReader::readContribution(const Json &value,
                                              const std::string &where) const {
  Contribution contribution;
  contribution.statistic =
      fields.getIndex(value, "statistic", manifest.statistics.size(),
                      "is not a statistic", where);
  contribution.slot = fields.getIndex(value, "slot", variant.tensorSlots,
                                      "is not a slot", where);
  contribution.partial = readPartialDims(value, where);
  for (const ScheduleEntry &other : variant.schedule)
    if (other.contribution &&
        other.contribution->statistic == contribution.statistic)
      fields.bad(at(where, "statistic"), "is contributed to twice");
  return contribution;
}

void ScheduleReader::readExchange(const Json &value, const std::string &where,
                                  ScheduleEntry &entry) {
  // What has an operand is no round's.
  if (value.find("operand")) {
    entry.transfer = readTransfer(fields, value, where, manifest, variant);
    return;
  }
  if (entry.segment >= int64_t(manifest.rounds.size()))
    fields.bad(at(where, "segment"), "has no round after it");
  if (value.find("statistic"))
    entry.contribution = readContribution(value, where);
  else
    entry.buffer = readBuffer(value, where);
}

void ScheduleReader::readEdges(const Json &value, const std::string &where,
                               ScheduleEntry &entry) const {
  const Json &list = fields.getArray(value, "after", where);
  for (size_t i = 0; i < list.elements.size(); ++i) {
    std::string place = at(at(where, "after"), i);
    Edge edge;
    edge.entry =
        fields.getIndex(list.elements[i], "entry", variant.schedule.size(),
                        "is not an entry before this one", place);
    std::string scope = fields.getString(list.elements[i], "scope", place);
    auto known = std::find_if(
        std::begin(kEdgeScopes), std::end(kEdgeScopes),
        [&](EdgeScope candidate) { return scope == getName(candidate); });
    if (known == std::end(kEdgeScopes))
      fields.bad(at(place, "scope"), "is not a scope");
    edge.scope = *known;
    entry.edges.push_back(edge);
  }
}

/// Segments ascend, and exchanges are what a segment ends with. Transfers of
/// the gradient come before all else, and those of the parameter behind it.
void ScheduleReader::requireOrder(const ScheduleEntry &entry,
                                  const std::string &where) const {
  bool begins = entry.transfer && isOfGradient(entry.transfer->kind);
  if (begins && entry.segment != 0)
    fields.bad(at(where, "segment"), "is not the first, and it is of the "
                                     "gradient");
  if (entry.transfer && !begins &&
      entry.segment != manifest.getNumSegments() - 1)
    fields.bad(at(where, "segment"), "is not the last, and it is of the "
                                     "parameter");
  if (variant.schedule.empty())
    return;
  const ScheduleEntry &before = variant.schedule.back();
  if (before.transfer && isOfGradient(before.transfer->kind))
    return;
  if (begins)
    fields.bad(where, "is of the gradient, behind what uses it");
  if (before.transfer && !entry.transfer)
    fields.bad(where, "is behind what gives the parameter away");
  if (before.segment > entry.segment)
    fields.bad(at(where, "segment"), "is below the one before it");
  if (before.segment == entry.segment && entry.isCalled() && !before.isCalled())
    fields.bad(where, "is behind an exchange of its segment");
}

void ScheduleReader::read(const Json &value, const std::string &where) {
  for (size_t i = 0; i < value.elements.size(); ++i) {
    const Json &element = value.elements[i];
    std::string place = at(where, i);
    ScheduleEntry entry;
    entry.kind = readKind(element, place);
    entry.segment = int64_t(fields.getIndex(element, "segment",
                                            size_t(manifest.getNumSegments()),
                                            "is not a segment", place));
    if (entry.isCalled())
      readCalled(element, place, entry);
    else
      readExchange(element, place, entry);
    readEdges(element, place, entry);
    requireOrder(entry, place);
    variant.schedule.push_back(std::move(entry));
  }
  if (variant.schedule.empty())
    fields.bad(where, "is empty");
  requireTransfers(fields, where, variant);
}

void stepc::readSchedule(const FieldReader &fields, const Json &value,
                         const std::string &where, const Manifest &manifest,
                         Variant &variant) {
  ScheduleReader(fields, manifest, variant).read(value, where);
}

void stepc::requireNothingBeforeSkips(const FieldReader &fields,
                                      const std::string &where,
                                      const Manifest &manifest,
                                      const Variant &variant) {
  int64_t lastSkip = -1;
  for (size_t r = 0; r < manifest.rounds.size(); ++r)
    for (const RoundCall &call : manifest.rounds[r].calls)
      if (call.maySkip)
        lastSkip = int64_t(r);
  for (size_t i = 0; i < variant.schedule.size(); ++i)
    if (!variant.schedule[i].writes.empty() &&
        variant.schedule[i].segment <= lastSkip)
      fields.bad(at(at(where, i), "writes"),
                 "names operands before a round that may skip the step");
}
