//===- VariantReader.cpp - the variants of a manifest -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/ManifestReader.h"
#include "core/StateDims.h"

#include <algorithm>

using namespace stepc;

namespace {

constexpr size_t kMaxSlots = 65536;
/// As many as a word has bits.
constexpr size_t kMaxFreshes = 64;

/// Reads one variant.
class VariantReader {
public:
  VariantReader(const FieldReader &fields, const Manifest &manifest)
      : fields(fields), manifest(manifest) {}

  Variant read(const Json &value, const std::string &where);

private:
  void readOptions(const Json &options, const std::string &where);
  Operand readOperand(const Json &value, const std::string &where) const;
  void readStorage(const Json &value, const std::string &where,
                   Operand &operand) const;
  void setReach(const std::string &where, Operand &operand) const;
  void readOperands(const Json &value, const std::string &where);
  void readFresh(const Json &value, const std::string &where);
  void readScalars(const Json &value, const std::string &where);
  void readCarried(const Json &value, const std::string &where);
  bool isOneSegment() const;
  void requireElements(const std::string &where) const;

  const FieldReader &fields;
  const Manifest &manifest;
  Variant variant;
};

} // namespace

Variant VariantReader::read(const Json &value, const std::string &where) {
  variant.name = fields.getString(value, "name", where);
  variant.rule =
      findName(manifest.rules, fields.getString(value, "rule", where));
  if (variant.rule == manifest.rules.size())
    fields.bad(at(where, "rule"), "is not a rule");
  readOptions(fields.getObject(value, "options", where), at(where, "options"));
  readLayout(fields, fields.getObject(value, "layout", where),
             at(where, "layout"), manifest, variant);
  readOperands(fields.getArray(value, "operands", where),
               at(where, "operands"));
  readFresh(fields.getArray(value, "fresh", where), at(where, "fresh"));
  readScalars(fields.getObject(value, "scalars", where), at(where, "scalars"));
  variant.tensorSlots =
      fields.getIndex(value, "tensor_slots", kMaxSlots + 1,
                      "is not an integer from 0 to 65536", where);
  std::string space = fields.getString(value, "space", where);
  if (space != "elements" && space != "tiles")
    fields.bad(at(where, "space"), "is neither elements nor tiles");
  variant.space = space == "tiles" ? Space::Tiles : Space::Elements;
  const Rule &rule = manifest.rules[variant.rule];
  variant.roles = TileRoles(rule.dims, int64_t(rule.boundDims.size()));
  readWorkspace(fields, fields.getArray(value, "workspace", where),
                at(where, "workspace"), manifest, variant);
  readSchedule(fields, fields.getArray(value, "schedule", where),
               at(where, "schedule"), manifest, variant);
  if (value.find("carried"))
    readCarried(fields.getArray(value, "carried", where), at(where, "carried"));
  variant.rounds = fields.getBool(value, "rounds", where);
  variant.subsets = fields.getBool(value, "subsets", where);
  if (variant.subsets && !isOneSegment())
    fields.bad(at(where, "subsets"), "is true for several segments");
  if (variant.space == Space::Elements)
    requireElements(where);
  requireNothingBeforeSkips(fields, at(where, "schedule"), manifest, variant);
  return std::move(variant);
}

/// A value of each option but those that are integers.
void VariantReader::readOptions(const Json &options, const std::string &where) {
  size_t named = 0;
  for (const Option &option : manifest.options) {
    const Json *found = options.find(option.name);
    named += found != nullptr;
    if (option.integer) {
      variant.options.push_back(option.defaultValue);
      continue;
    }
    if (!found)
      fields.bad(at(where, option.name.c_str()), "is missing");
    if (!found->is(Json::Kind::Boolean))
      fields.bad(at(where, option.name.c_str()), "is not true or false");
    variant.options.push_back(found->boolean);
  }
  if (options.elements.size() != named)
    fields.bad(where, "names an option that does not exist");
}

Operand VariantReader::readOperand(const Json &value,
                                   const std::string &where) const {
  Operand operand;
  operand.name = fields.getString(value, "name", where);
  operand.reads = fields.getBool(value, "reads", where);
  operand.writes = fields.getBool(value, "writes", where);
  operand.dims = fields.getDims(value, where);

  std::string role = fields.getString(value, "role", where);
  if (role == "param")
    operand.role = Role::Param;
  else if (role == "grad")
    operand.role = Role::Grad;
  else if (role == "state")
    operand.role = Role::State;
  else if (role == "position")
    operand.role = Role::Position;
  else
    fields.bad(at(where, "role"), "is not a role");
  setReach(at(where, "dims"), operand);
  if (operand.role == Role::State)
    operand.initialValue = fields.getNumber(value, "init", where);
  if (operand.role == Role::Grad && operand.writes)
    fields.bad(at(where, "writes"), "is true for a gradient");
  if (operand.role == Role::Position && operand.writes)
    fields.bad(at(where, "writes"), "is true for a position");
  readStorage(value, where, operand);
  return operand;
}

void VariantReader::readStorage(const Json &value, const std::string &where,
                                Operand &operand) const {
  std::string storage = fields.getString(value, "storage", where);
  if (operand.role == Role::Position) {
    operand.storage = Storage::Position;
    if (storage != getName(operand.storage))
      fields.bad(at(where, "storage"), "is not that of a position");
    return;
  }
  for (Storage s : kStorages)
    if (storage == getName(s) &&
        (s != Storage::I16 || operand.role == Role::State)) {
      operand.storage = s;
      return;
    }
  fields.bad(at(where, "storage"), "is not a storage type");
}

/// Parameter and gradient have the rule's dims.
void VariantReader::setReach(const std::string &where, Operand &operand) const {
  const Rule &rule = manifest.rules[variant.rule];
  operand.reach = getReach(rule, operand.dims);
  if (operand.reach != Reach::Full && operand.role != Role::State)
    fields.bad(where, "is not the rule's");
  if (!followsFrom(rule, operand.dims))
    fields.bad(where, "does not follow from the rule's");
}

void VariantReader::readOperands(const Json &value, const std::string &where) {
  int params = 0, grads = 0;
  for (size_t i = 0; i < value.elements.size(); ++i) {
    variant.operands.push_back(readOperand(value.elements[i], at(where, i)));
    switch (variant.operands.back().role) {
    case Role::Param:
      variant.param = i;
      ++params;
      break;
    case Role::Grad:
      variant.grad = i;
      ++grads;
      break;
    case Role::State:
      variant.states.push_back(i);
      break;
    case Role::Position:
      break;
    }
  }
  if (params != 1 || grads != 1)
    fields.bad(where, "does not have one parameter and one gradient");
  if (hasTwins(variant.operands))
    fields.bad(where, "has a name twice");
}

void VariantReader::readFresh(const Json &value, const std::string &where) {
  if (value.elements.size() > kMaxFreshes)
    fields.bad(where, "has more than 64 elements");
  for (size_t i = 0; i < value.elements.size(); ++i) {
    const Json &list = value.elements[i];
    if (!list.is(Json::Kind::Array))
      fields.bad(at(where, i), "is not an array");
    std::vector<size_t> &states = variant.fresh.emplace_back();
    for (const Json &name : list.elements) {
      size_t state = 0;
      while (state < variant.states.size() &&
             (!name.is(Json::Kind::String) ||
              variant.operands[variant.states[state]].name != name.string))
        ++state;
      if (state == variant.states.size())
        fields.bad(at(where, i), "names something that is no state");
      states.push_back(state);
    }
  }
}

void VariantReader::readScalars(const Json &value, const std::string &where) {
  variant.scalarSlots =
      fields.getIndex(value, "slots", kMaxSlots + 1,
                      "is not an integer from 0 to 65536", where);
  const Json &list = fields.getArray(value, "functions", where);
  for (const Json &function : list.elements) {
    bool none = function.is(Json::Kind::Null);
    if (!none && (!function.is(Json::Kind::String) || function.string.empty()))
      fields.bad(at(where, "functions"),
                 "has an element that is neither a string nor null");
    variant.scalarFunctions.push_back(none ? "" : function.string);
  }
  if (int64_t(list.elements.size()) > manifest.getNumSegments())
    fields.bad(at(where, "functions"), "has more elements than segments");
  variant.scalarFunctions.resize(size_t(manifest.getNumSegments()));
}

void VariantReader::readCarried(const Json &value, const std::string &where) {
  for (size_t i = 0; i < value.elements.size(); ++i) {
    std::string place = at(where, i);
    auto getSlot = [&](const char *name) {
      return fields.getIndex(value.elements[i], name, variant.tensorSlots,
                             "is not a slot", place);
    };
    variant.carried.push_back({getSlot("slot"), getSlot("recomputed")});
  }
}

/// Of what is called or leads to a round: parameters leave behind the last
/// segment, wherever the tensor's own part of the step ends.
bool VariantReader::isOneSegment() const {
  const ScheduleEntry *first = nullptr;
  for (const ScheduleEntry &entry : variant.schedule) {
    if (entry.transfer)
      continue;
    first = first ? first : &entry;
    if (entry.segment != first->segment)
      return false;
  }
  return true;
}

/// The elements space knows one kernel, and nothing but elements.
void VariantReader::requireElements(const std::string &where) const {
  size_t kernels = 0, others = 0;
  for (const ScheduleEntry &entry : variant.schedule)
    if (!entry.transfer)
      ++(entry.kind == EntryKind::Kernel ? kernels : others);
  if (kernels != 1 || others)
    fields.bad(at(where, "schedule"), "is not one kernel on elements");
  if (variant.tensorSlots || !variant.workspace.empty())
    fields.bad(at(where, "space"), "has no slots and no workspace");
  for (const Operand &operand : variant.operands)
    if (operand.reach != Reach::Full)
      fields.bad(at(where, "space"), "has no operands of fewer dims");
}

void stepc::readVariants(const FieldReader &fields, const Json &root,
                         Manifest &manifest) {
  const Json &list = fields.getArray(root, "variants", "");
  if (list.elements.empty())
    fields.bad("variants", "is empty");
  for (size_t i = 0; i < list.elements.size(); ++i)
    manifest.variants.push_back(VariantReader(fields, manifest)
                                    .read(list.elements[i], at("variants", i)));
  if (hasTwins(manifest.variants))
    fields.bad("variants", "has a name twice");
  for (const Variant &variant : manifest.variants)
    for (const ScheduleEntry &entry : variant.schedule)
      if (entry.contribution) {
        Statistic &statistic =
            manifest.statistics[entry.contribution->statistic];
        statistic.segment = std::max(statistic.segment, entry.segment);
      }
}
