//===- PlanBind.cpp - binding tensors to a plan ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Binder.h"
#include "core/Fault.h"
#include "core/Reserve.h"
#include "core/RuleChoice.h"
#include "core/Status.h"
#include "core/StepCost.h"
#include "store/Store.h"

#include <algorithm>

using namespace stepc;

void Binder::run(int64_t *outIds) {
  int64_t firstId = int64_t(model.tensors.size());
  created.resize(size);
  for (int64_t i = 0; i < size; ++i)
    describe(i);
  allocateStates();
  allocateCodes();
  allocateFloats();
  allocateTiles();
  allocateWorkspace();
  allocateExchange();
  checkOverlap();
  reserve();
  commit();
  advise();
  if (outIds)
    for (int64_t i = 0; i < size; ++i)
      outIds[i] = firstId + i;
}

OwnedView Binder::getView(const NewTensor &tensor, int64_t id,
                          size_t operand) const {
  const Variant &variant = getVariant(tensor);
  View view =
      makeView(tensor.bound, variant, operand, tensor.addresses[operand]);
  for (const StateCodes &codes : tensor.codes)
    if (size_t(codes.operand) == operand)
      view = codes.getCodesView();
  return {view, variant.operands[operand].role != Role::Grad, id,
          int64_t(operand)};
}

void Binder::requireNoSelfOverlap(const NewTensor &tensor) {
  const Variant &variant = getVariant(tensor);
  for (size_t k = 0; k < variant.operands.size(); ++k) {
    OwnedView owned = getView(tensor, 0, k);
    if (!owned.written || !plan.overlapChecker.overlapsItself(owned.view))
      continue;
    OperandName name{tensor.name, variant.operands[k].role,
                     variant.operands[k].name};
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s is written, but shape %s with strides %s keeps several elements "
         "in one place",
         name.str().c_str(),
         describeShape(owned.view.extents, owned.view.rank).c_str(),
         describeShape(owned.view.strides, owned.view.rank).c_str());
  }
}

std::string Binder::describeView(const OwnedView &owned) const {
  int64_t firstId = int64_t(model.tensors.size());
  if (owned.tensor < firstId)
    return plan.describeView(owned);
  const NewTensor &tensor = created[owned.tensor - firstId];
  if (owned.operand == OwnedView::kMirror)
    return "tensor " + tensor.name + ": countMirror";
  if (owned.isOfScales())
    return OperandName{
        tensor.name, Role::State,
        getVariant(tensor).operands[owned.getScalesOperand()].name, true}
        .str();
  const Operand &description = getVariant(tensor).operands[owned.operand];
  return OperandName{tensor.name, description.role, description.name}.str();
}

/// Adds what a new tensor reads and writes: with an entry all that the caller
/// has of it, which is read and written when it crosses ranks.
void Binder::addViews(int64_t i) {
  OverlapChecker &checker = plan.overlapChecker;
  const NewTensor &tensor = created[i];
  const Variant &variant = getVariant(tensor);
  const EntryTensor *entry = entries.getTensor(i);
  int64_t id = int64_t(model.tensors.size()) + i;
  for (size_t k = 0; k < tensor.addresses.size(); ++k) {
    bool isGrad = k == variant.grad;
    if (isGrad && !(entry ? entry->hasGrad : tensor.bound.hasGrad))
      continue;
    if (entry && (isGrad || k == variant.param))
      checker.add({makeEntryView(*entry, *entries.getTerms(i), isGrad), !isGrad,
                   id, int64_t(k)});
    else if (!tensor.bound.elsewhere)
      checker.add(getView(tensor, id, k));
  }
  for (const StateCodes &codes : tensor.codes)
    if (!tensor.bound.elsewhere)
      checker.add(OwnedView::ofScales(codes, id));
  if (const float *mirror = bindings[i].countMirror)
    checker.add(OwnedView::ofMirror(mirror, id));
}

/// Compares the new views with each other, and with the memory that steps of
/// the bound tensors write. Gradients bound before may be long gone; the next
/// step compares those that are in use then.
void Binder::checkOverlap() {
  OverlapChecker &checker = plan.overlapChecker;
  int64_t firstId = int64_t(model.tensors.size());
  size_t numViews = plan.numViews;
  int64_t maxRank = plan.maxRank;
  for (const NewTensor &tensor : created) {
    numViews += tensor.addresses.size() + tensor.codes.size() + 1;
    maxRank = std::max<int64_t>(maxRank, tensor.bound.getMaxRank());
  }
  for (const EntryTensor &entry : entries.getMade().tensors)
    maxRank = std::max(maxRank, int64_t(entry.shape.size()));
  checker.reserve(numViews, maxRank);
  checker.clear();
  for (int64_t i = 0; i < size; ++i)
    addViews(i);
  auto [begin, end] = checker.getRange();
  for (int64_t id = 0; id < firstId; ++id)
    plan.addViews(id, begin, end, /*writtenOnly=*/true);

  const OwnedView *first, *second;
  if (checker.find(first, second))
    fail(STEPC_OVERLAP, "%s and %s share memory", describeView(*first).c_str(),
         describeView(*second).c_str());
}

/// Takes all memory that commit() and the steps after it need. Should it run
/// out midway, the lists have become longer and nothing else.
void Binder::reserve() {
  model.listsValid = false;
  model.cohortsValid = false;
  struct Demand {
    int64_t rows = 0;
    int64_t rank = 0;
    int64_t chunks = 0;
  };
  std::vector<Demand> demands(model.classes.size());
  size_t numCodes = model.codes.size();
  size_t numPlaces = model.places.size();
  for (const NewTensor &tensor : created) {
    Demand &demand = demands[tensor.bound.rowClass];
    ++demand.rows;
    demand.rank = std::max(demand.rank, tensor.rowLayout.getRank());
    demand.chunks += tensor.bound.size.countChunks();
    numCodes += tensor.codes.size();
    numPlaces += tensor.places.size();
  }
  for (size_t c = 0; c < demands.size(); ++c)
    if (demands[c].rows)
      model.classes[c].reserve(demands[c].rows, demands[c].rank,
                               demands[c].chunks);

  size_t total = model.tensors.size() + created.size();
  model.cohorts.reserve(total);
  reserveAtLeast(model.tensors, total);
  reserveAtLeast(model.names, total);
  reserveAtLeast(model.counts, total);
  reserveAtLeast(model.codes, numCodes);
  reserveAtLeast(model.places, numPlaces);
  reserveAtLeast(model.fresh, total);
  reserveAtLeast(model.cohortOf, total);
  reserveAtLeast(model.mirrors, total);
  reserveAtLeast(model.listedIds, total);
  reserveAtLeast(plan.steppedIds, total);
  reserveAtLeast(plan.partIds, total);
  reserveAtLeast(plan.waitingIds, total);
  reserveAtLeast(plan.readyEntries, total);
  if (!entries.getMade().tensors.empty()) {
    plan.transfers.reserve(entries.getMade());
    plan.engine->reservePieces(entries.getMade().numPlaces);
  }
  reserveAtLeast(plan.blocks, plan.blocks.size() + newBlocks.size());
  plan.engine->reserveTensors(total);
}

void Binder::commit() noexcept {
  // Gradients bound before have not been compared with the new tensors.
  plan.overlapUnchecked |= !model.tensors.empty();
  auto firstEntry = int32_t(plan.transfers.getTensors().size());
  for (int64_t i = 0; i < size; ++i)
    if (const EntryTensor *entry = entries.getTensor(i)) {
      created[i].bound.entry =
          firstEntry + int32_t(entry - entries.getMade().tensors.data());
      plan.maxRank = std::max(plan.maxRank, int64_t(entry->shape.size()));
    }
  for (int64_t i = 0; i < size; ++i) {
    const StepcBinding &binding = bindings[i];
    NewTensor &tensor = created[i];
    BoundTensor &bound = tensor.bound;
    bound.row = model.classes[bound.rowClass].addRow(bound.size);
    setRow(tensor);
    addCodes(tensor);
    addPlaces(tensor);
    addExchange(int64_t(model.tensors.size()), tensor);
    // And its mirror.
    plan.numViews += tensor.addresses.size() + tensor.codes.size() + 1;
    plan.maxRank = std::max<int64_t>(plan.maxRank, bound.getMaxRank());
    model.numToggled += bound.hasGrad;
    model.hasMirrors |= binding.countMirror != nullptr;
    model.fresh.push_back(getFresh(binding, model.getVariant(bound)));
    model.tensors.push_back(std::move(bound));
    model.names.push_back(std::move(tensor.name));
    model.counts.push_back(binding.count);
    model.cohortOf.push_back(-1);
    model.mirrors.push_back(binding.countMirror);
  }
  model.exchange.place([&](int64_t id, int64_t word, uintptr_t address) {
    setExchanged(id, word, address);
  });
  for (Memory &block : newBlocks)
    plan.blocks.push_back(std::move(block));
  if (!entries.getMade().tensors.empty())
    plan.transfers.commit(std::move(entries.getMade()));
  plan.workspaceNeed = need;
  plan.engine->commit();
}

void Binder::addCodes(NewTensor &tensor) noexcept {
  RowCodes codes = {int32_t(model.codes.size()), int32_t(tensor.codes.size())};
  for (StateCodes &own : tensor.codes)
    model.codes.push_back(std::move(own));
  model.classes[tensor.bound.rowClass].setCodes(tensor.bound.row, codes);
}

/// Sets the row of a new tensor but for its scalars, and the offsets that
/// listing sets.
void Binder::setRow(NewTensor &tensor) noexcept {
  const BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  RowClass &rows = model.classes[bound.rowClass];
  rows.setLayout(bound.row, tensor.rowLayout);
  int64_t *words = rows.getRow(bound.row);
  int64_t *next = std::copy(tensor.addresses.begin(), tensor.addresses.end(),
                            words + rows.getOperandsWord());
  if (variant.space != Space::Tiles)
    return;
  uintptr_t address = tensor.ownMemory;
  words[STEPC_TILE_SLOTS] = int64_t(address);
  storeTileShape(tensor.tiles, words);
  address += roundUpToLine(size_t(variant.tensorSlots) * sizeof(double));
  for (const WorkspaceBuffer &buffer : variant.workspace) {
    // What crosses ranks lies side by side with other tensors'.
    bool own = buffer.live && !buffer.crosses;
    *next++ = own ? int64_t(address) : 0;
    if (own && !STEPC_FAULT("engine-live-buffers-overlap"))
      address += uintptr_t(getBufferBytes(buffer, tensor.tiles));
  }
}

/// Tells of what the caller allocated and steps use again and again; gradients
/// come and go.
void Binder::advise() const noexcept {
  if (!model.config.hugePages)
    return;
  size_t firstId = model.tensors.size() - created.size();
  for (size_t i = 0; i < created.size(); ++i) {
    const BoundTensor &bound = model.tensors[firstId + i];
    const Variant &variant = model.getVariant(bound);
    for (size_t k = 0; k < variant.operands.size(); ++k) {
      if (k == variant.grad || (k != variant.param && created[i].ownsStates) ||
          variant.operands[k].role == Role::Position)
        continue;
      View view = model.getView(bound, k);
      if (model.store && model.store->contains(view.address))
        continue;
      ByteSpan span = getByteSpan(view);
      plan.engine->advise(view.address + uintptr_t(span.low),
                          size_t(span.high - span.low));
    }
  }
}

/// What a step of a tensor that one rank owns costs: of all that the ranks
/// along the entry's axes have of it.
double Plan::getCost(const StepcBinding &binding,
                     const std::string &name) const {
  // That is refused, like any other binding of no group.
  if (binding.group < 0 || size_t(binding.group) >= model.groups.size())
    return 1.0;
  const Manifest &manifest = model.package->getManifest();
  const std::vector<int64_t> &options = model.groups[binding.group].options;
  const DLTensor &param = *binding.param;
  std::vector<int64_t> own(param.shape, param.shape + param.ndim);
  std::vector<int64_t> whole = own;
  if (binding.layout && binding.layout->shape)
    whole.assign(binding.layout->shape,
                 binding.layout->shape + binding.layout->ndim);
  size_t rule = chooseRule(manifest, options, whole, name);
  return getStepCost(manifest, manifest.rules[rule], options, own, name)
      .getTotal();
}

void Plan::bind(const StepcBinding *bindings, int64_t size, int64_t *outIds) {
  requireNoStep("stepcPlanBind");
  BindingList list = makeBindingList(bindings, size);
  engine->requireCode();
  engine->beginChange("stepcPlanBind", Change::All);
  EntryBinder entries(
      model.exchange.getMesh(), model.place, int64_t(model.tensors.size()),
      list, [this](const StepcBinding &binding, const std::string &name) {
        return getCost(binding, name);
      });
  if (entries.any()) {
    entries.run(transfers, getTransferMemory());
    requireEntryMemory(entries.getMade());
    list = entries.getBindings();
  }
  Binder(*this, list, entries).run(outIds);
  engine->endBind();
}
