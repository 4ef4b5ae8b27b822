//===- ScheduleReader.cpp - the schedules of a manifest -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"

#include <algorithm>

using namespace stepc;

static int64_t getSegment(const FieldReader &fields, const Json &value,
                          const std::string &where, const Manifest &manifest) {
  return int64_t(fields.getIndex(value, "segment",
                                 size_t(manifest.getNumSegments()),
                                 "is not a segment", where));
}

/// An entry says its kind by the key of what it names. Buffers and
/// contributions say what is exchanged.
static EntryKind readKind(const FieldReader &fields, const Json &value,
                          const std::string &where) {
  for (EntryKind kind : kEntryKinds) {
    bool isRead = kind == EntryKind::Kernel || kind == EntryKind::Finish;
    if (isRead || !value.find(getName(kind)))
      continue;
    std::string what = "is an entry of kind '" + std::string(getName(kind)) +
                       "', which this runtime does not read";
    fields.bad(where, what.c_str());
  }
  return value.find(getName(EntryKind::Finish)) ? EntryKind::Finish
                                                : EntryKind::Kernel;
}

static ScheduleEntry readEntry(const FieldReader &fields, const Json &value,
                               const std::string &where,
                               const Manifest &manifest,
                               const Variant &variant) {
  ScheduleEntry entry;
  entry.kind = readKind(fields, value, where);
  entry.segment = getSegment(fields, value, where, manifest);
  entry.trailing =
      value.find("trailing") && fields.getBool(value, "trailing", where);
  if (entry.kind == EntryKind::Finish) {
    entry.function = fields.getString(value, "finish", where);
    return entry;
  }
  entry.function = fields.getString(value, "kernel", where);
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
  return entry;
}

void stepc::readSchedule(const FieldReader &fields, const Json &value,
                         const std::string &where, const Manifest &manifest,
                         Variant &variant) {
  for (size_t i = 0; i < value.elements.size(); ++i) {
    variant.schedule.push_back(
        readEntry(fields, value.elements[i], at(where, i), manifest, variant));
    if (i && variant.schedule[i - 1].segment > variant.schedule[i].segment)
      fields.bad(at(at(where, i), "segment"), "is below the one before it");
  }
  if (value.elements.empty())
    fields.bad(where, "is empty");
}

/// Indices into the layout, as bits: there are fewer dims than axes.
static uint64_t getPartialDims(const FieldReader &fields, const Json &value,
                               const std::string &where,
                               const Variant &variant) {
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

void stepc::readContributions(const FieldReader &fields, const Json &value,
                              const std::string &where,
                              const Manifest &manifest, const Variant &variant,
                              std::vector<ScheduleEntry> &exchanges) {
  for (size_t i = 0; i < value.elements.size(); ++i) {
    const Json &element = value.elements[i];
    std::string place = at(where, i);
    ScheduleEntry entry;
    entry.kind = EntryKind::Exchange;
    Contribution &own = entry.contribution.emplace();
    own.statistic =
        fields.getIndex(element, "statistic", manifest.statistics.size(),
                        "is not a statistic", place);
    own.slot = fields.getIndex(element, "slot", variant.tensorSlots,
                               "is not a slot", place);
    entry.segment = getSegment(fields, element, place, manifest);
    own.partial = getPartialDims(fields, element, place, variant);
    if (entry.segment >= int64_t(manifest.rounds.size()))
      fields.bad(at(place, "segment"), "has no round after it");
    for (const ScheduleEntry &other : exchanges)
      if (other.contribution && other.contribution->statistic == own.statistic)
        fields.bad(at(place, "statistic"), "is contributed to twice");
    exchanges.push_back(std::move(entry));
  }
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
