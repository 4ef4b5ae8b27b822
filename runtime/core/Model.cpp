//===- Model.cpp - what a plan steps ------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Model.h"

#include "core/Fault.h"
#include "core/StepCost.h"

using namespace stepc;

Model::Model(std::shared_ptr<const Package> loaded,
             const StepcPlanConfig &config)
    : package(std::move(loaded)), config(config),
      cohorts(package->getMaxScalarSlots()), rounds(getManifest(), groups),
      exchange(getManifest()) {
  int64_t chunk =
      config.chunkElements ? config.chunkElements : kDefaultChunkElements;
  for (const Variant &variant : getManifest().variants)
    addClasses(variant, chunk);
}

/// What a product costs for an element of the parameter, in bytes that could be
/// moved meanwhile: that of matrices of 320 rows. How rows are shared out is
/// settled for a class, before there are tensors.
static constexpr int64_t kProductBytes = 2 * 320 / kFlopsOfByte;

static uint64_t getBits(const std::vector<size_t> &operands) {
  uint64_t bits = 0;
  for (size_t k : operands)
    bits |= k < 64 ? uint64_t(1) << k : 0;
  return bits;
}

/// Adds what a kernel has to do with operands. What may be left out has to be
/// there as it was.
static void addOperands(const ScheduleEntry &entry, ClassSegment &segment) {
  uint64_t writes = getBits(entry.writes);
  segment.reads |= getBits(entry.reads) | (entry.unlessSlot < 0 ? 0 : writes);
  segment.writes |= writes;
}

/// Adds what a segment's finishes may read and write: nobody says so. Vectors
/// come of statistics; other states of products and decompositions, of which
/// there are some where a rule has dims that ranks cannot share. A segment that
/// has to do with no state, as that of the gradients' norm, has none.
static void addFinishes(const Manifest &manifest, const Variant &variant,
                        bool hasProducts, ClassSegment &segment) {
  uint64_t states = getBits(variant.states), wide = 0;
  bool hasMatrices = !manifest.rules[variant.rule].unshardable.empty();
  for (size_t k : variant.states)
    if (k < 64 && (hasMatrices || variant.operands[k].reach != Reach::Full))
      wide |= uint64_t(1) << k;
  if (!hasProducts && !((segment.reads | segment.writes) & states))
    return;
  segment.reads |= wide;
  segment.writes |= wide;
}

/// The operands that a segment writes and a later one has to do with. They are
/// decoded before the first that has, and encoded behind the last.
static uint64_t keepOperands(ClassSegment *begin, ClassSegment *end) {
  uint64_t written = 0, kept = 0, found = 0;
  std::vector<uint64_t> uses;
  for (const ClassSegment *segment = begin; segment != end; ++segment) {
    uses.push_back(segment->reads | segment->writes);
    kept |= written & uses.back();
    written |= segment->writes;
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    begin[i].reads = (begin[i].reads & ~kept) | (uses[i] & kept & ~found);
    found |= uses[i];
  }
  found = 0;
  for (size_t i = uses.size(); i-- > 0;) {
    begin[i].writes = (begin[i].writes & ~kept) | (uses[i] & kept & ~found);
    found |= uses[i];
  }
  return kept;
}

/// What a variant does in the segment, whose entries begin at `entry`.
static ClassSegment makeSegment(const Manifest &manifest,
                                const Variant &variant, int64_t segment,
                                size_t &entry) {
  const std::vector<ScheduleEntry> &schedule = variant.schedule;
  ClassSegment made;
  // What brings gradients is done before.
  while (entry < schedule.size() && schedule[entry].segment == segment &&
         schedule[entry].transfer)
    ++entry;
  made.beginEntry = int64_t(entry);
  bool hasFinish = false, hasProducts = false;
  for (; entry < schedule.size() && schedule[entry].segment == segment &&
         schedule[entry].isCalled();
       ++entry) {
    made.whole |= variant.takesRows(schedule[entry]);
    addOperands(schedule[entry], made);
    hasFinish |= schedule[entry].kind == EntryKind::Finish;
    hasProducts |= schedule[entry].products > 0;
    made.elementBytes += variant.getBytesPerElement(schedule[entry]) +
                         schedule[entry].products * kProductBytes;
  }
  made.endEntry = int64_t(entry);
  if (hasFinish)
    addFinishes(manifest, variant, hasProducts, made);
  made.uses = made.reads | made.writes;
  made.changes = made.writes;
  // The ranks' part of the segment.
  while (entry < schedule.size() && schedule[entry].segment == segment)
    ++entry;
  return made;
}

void Model::addClasses(const Variant &variant, int64_t chunkElements) {
  size_t entry = 0;
  for (int64_t s = 0; s < getManifest().getNumSegments(); ++s)
    classSegments.push_back(makeSegment(getManifest(), variant, s, entry));
  ClassSegment *end = classSegments.data() + classSegments.size();
  keptOperands.push_back(
      keepOperands(end - getManifest().getNumSegments(), end));
  for (int kind = 0; kind < 2; ++kind)
    classes.emplace_back(variant, chunkElements, &codes);

  const std::vector<Statistic> &statistics = getManifest().statistics;
  size_t first = contributionSlots.size();
  contributionSlots.resize(first + statistics.size());
  for (const ScheduleEntry &exchanged : variant.schedule)
    if (const auto &own = exchanged.contribution)
      contributionSlots[first + own->statistic] = {
          int64_t(own->slot), own->partial, statistics[own->statistic].maximum};
}

StateCodesRange Model::getCodes(const BoundTensor &tensor) const {
  RowCodes own = classes[tensor.rowClass].getCodes(tensor.row);
  const StateCodes *first = codes.data() + own.first;
  return {first, first + own.count};
}

View Model::getView(const BoundTensor &tensor, size_t operand) const {
  if (tensor.isCoded(operand))
    for (const StateCodes &own : getCodes(tensor))
      if (size_t(own.operand) == operand)
        return own.getCodesView();
  return makeView(tensor, getVariant(tensor), operand,
                  uintptr_t(getRow(tensor)[getOperandWord(tensor, operand)]));
}

OperandName Model::getOperandName(int64_t id, size_t operand) const {
  const Operand &description = getVariant(tensors[id]).operands[operand];
  return {names[id], description.role, description.name};
}

/// A maximum is of all that have the same, as counting twice changes none: so
/// an overflow that one of them alone has, from a fault of its own, is one.
uintptr_t Model::getContribution(const BoundTensor &tensor,
                                 size_t statistic) const {
  const ContributedSlot &own =
      contributionSlots[size_t(tensor.variant) *
                            getManifest().statistics.size() +
                        statistic];
  uint64_t partial = own.partial;
  if (STEPC_FAULT("shard-part-over-one-dim-counted-over-all") && partial)
    partial = ~uint64_t(0);
  bool counts =
      own.maximum || (!tensor.isCopy && !(tensor.laterDims & ~partial));
  if (own.slot < 0 || !counts ||
      (!tensor.listed && !STEPC_FAULT("engine-statistic-of-idle-tensor")))
    return 0;
  return getSlots(tensor) + size_t(own.slot) * sizeof(double);
}

bool Model::isWaitedFor() const {
  return exchange.isWide() && !groups.empty() &&
         (rounds.any() || exchange.hasPacks(getEndRound()));
}

void Model::formCohorts(uintptr_t scalarRows) noexcept {
  size_t rowBytes = cohorts.getSlots() * sizeof(double);
  cohorts.clear();
  for (size_t id = 0; id < tensors.size(); ++id) {
    const BoundTensor &tensor = tensors[id];
    // One of another rank is never stepped here, and its count goes on.
    CohortKey key = {tensor.variant, tensor.group, 0, 0, false};
    if (!tensor.elsewhere)
      key = {tensor.variant, tensor.group, counts[id], fresh[id],
             tensor.hasGrad};
    cohortOf[id] = cohorts.add(key);
    getRow(tensor)[STEPC_ROW_SCALARS] =
        int64_t(scalarRows + size_t(cohortOf[id]) * rowBytes);
  }
  cohortsValid = true;
}

void Model::finishLists() noexcept {
  for (RowClass &rows : classes)
    rows.finishList();
}

void Model::listActive() noexcept {
  for (RowClass &rows : classes)
    rows.clearList();
  for (Group &group : groups)
    group.activeHere = false;
  listedIds.clear();
  for (size_t id = 0; id < tensors.size(); ++id) {
    BoundTensor &tensor = tensors[id];
    tensor.listed = tensor.hasGrad;
    if (!tensor.listed)
      continue;
    listedIds.push_back(int64_t(id));
    classes[tensor.rowClass].listRow(tensor.row, tensor.size);
    groups[tensor.group].activeHere = true;
  }
  finishLists();
  numToggled = 0;
  listsValid = true;
}

void Model::listParts(const int64_t *ids, int64_t size) noexcept {
  for (RowClass &rows : classes)
    rows.clearList();
  for (int64_t i = 0; i < size; ++i) {
    const BoundTensor &tensor = tensors[ids[i]];
    classes[tensor.rowClass].listRow(tensor.row, tensor.size);
  }
  finishLists();
  listsValid = false;
}

void Model::countStep() noexcept {
  bool someFresh = false;
  for (Cohort &cohort : cohorts.getList()) {
    if (!cohort.key.active)
      continue;
    someFresh |= cohort.key.fresh != 0;
    cohort.key.fresh = STEPC_FAULT("engine-fresh-for-ever") ? ~uint64_t(0) : 0;
    if (!STEPC_FAULT("engine-cohort-not-counted"))
      ++cohort.key.count;
  }
  if (listedIds.size() == tensors.size() ||
      STEPC_FAULT("engine-idle-tensor-counts"))
    for (int64_t &count : counts)
      ++count;
  else
    for (int64_t id : listedIds)
      ++counts[id];
  if (someFresh)
    for (int64_t id : listedIds)
      fresh[id] = 0;
  if (hasMirrors)
    for (int64_t id : listedIds)
      setMirror(id);
}
