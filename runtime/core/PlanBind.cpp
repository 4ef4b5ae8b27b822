//===- PlanBind.cpp - binding tensors to a plan ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Plan.h"
#include "core/Reserve.h"
#include "core/Status.h"
#include "core/VariantChoice.h"
#include "cpu/HugePages.h"

#include <algorithm>
#include <cmath>

using namespace stepc;

namespace stepc {

/// One call of Plan::bind. Everything that can be refused, or run out of
/// memory, happens before commit(), which only moves what is there already.
class Binder {
public:
  Binder(Plan &plan, const StepcBinding *bindings, int64_t size)
      : plan(plan), bindings(bindings), size(size) {}

  void run(int64_t *outIds);

private:
  struct NewTensor {
    BoundTensor bound;
    std::string name;
    std::vector<uintptr_t> addresses;
    RowLayout layout;
    bool ownsStates = false;
  };

  const StepcBinding &getBinding(int64_t i) const;
  void describe(int64_t i);
  void requireFields(const StepcBinding &binding,
                     const std::string &name) const;
  void setDims(const StepcBinding &binding, NewTensor &tensor) const;
  void requireNoSelfOverlap(const NewTensor &tensor);
  void allocateStates();
  void checkOverlap();
  void reserve();
  void commit() noexcept;
  void advise() const noexcept;

  const Variant &getVariant(const NewTensor &tensor) const {
    return plan.getVariant(tensor.bound);
  }
  OwnedView getView(const NewTensor &tensor, int64_t id, size_t operand) const;
  OperandName getOperandName(int64_t id, size_t operand) const;

  Plan &plan;
  const StepcBinding *bindings;
  int64_t size;
  std::vector<NewTensor> created;
  std::unique_ptr<StateBlock> newStates;
};

} // namespace stepc

void Binder::run(int64_t *outIds) {
  int64_t firstId = int64_t(plan.tensors.size());
  if (size > 0)
    requireStructSize(bindings, sizeof(StepcBinding), "StepcBinding");
  created.resize(size);
  for (int64_t i = 0; i < size; ++i)
    describe(i);
  allocateStates();
  checkOverlap();
  reserve();
  commit();
  advise();
  if (outIds)
    for (int64_t i = 0; i < size; ++i)
      outIds[i] = firstId + i;
}

/// The caller's structure may be longer than ours: it steps by its own size.
const StepcBinding &Binder::getBinding(int64_t i) const {
  const char *first = reinterpret_cast<const char *>(bindings);
  size_t stride = bindings->structSize;
  return *reinterpret_cast<const StepcBinding *>(first + size_t(i) * stride);
}

void Binder::requireFields(const StepcBinding &binding,
                           const std::string &name) const {
  const char *text = name.c_str();
  requireStructSize(&binding, sizeof(StepcBinding), "StepcBinding");
  if (binding.structSize != bindings->structSize)
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: struct size %zu, that of the first binding is %zu", text,
         binding.structSize, bindings->structSize);
  if (binding.group < 0 || binding.group >= int64_t(plan.groups.size()))
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s: group %lld does not exist, the plan has %zu", text,
         static_cast<long long>(binding.group), plan.groups.size());
  if (!binding.param)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s has no parameter", text);
  if (binding.count < 0)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: count %lld is negative", text,
         static_cast<long long>(binding.count));
  if (binding.count > kMaxCount)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: count %lld is above %lld", text,
         static_cast<long long>(binding.count),
         static_cast<long long>(kMaxCount));
  if (binding.fresh != 0 && binding.fresh != 1)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: fresh is %d, neither 0 nor 1",
         text, int(binding.fresh));
  if (binding.reserved0 != 0)
    fail(STEPC_INVALID_ARGUMENT, "tensor %s: a reserved field is %d, not 0",
         text, int(binding.reserved0));
  if (binding.numStates < 0 || (binding.numStates > 0 && !binding.states))
    fail(STEPC_INVALID_ARGUMENT, "tensor %s has %lld states without a list",
         text, static_cast<long long>(binding.numStates));
  for (int64_t k = 0; k < binding.numStates; ++k)
    if (!binding.states[k])
      fail(STEPC_INVALID_ARGUMENT, "tensor %s: state %lld is missing", text,
           static_cast<long long>(k));
}

void Binder::describe(int64_t i) {
  const StepcBinding &binding = getBinding(i);
  NewTensor &tensor = created[i];
  tensor.name = binding.name ? "'" + std::string(binding.name) + "'"
                             : std::to_string(int64_t(plan.tensors.size()) + i);
  requireFields(binding, tensor.name);

  BoundTensor &bound = tensor.bound;
  bound.group = int32_t(binding.group);
  bound.variant =
      int32_t(chooseVariant(plan.package->getManifest(),
                            plan.groups[binding.group], binding, tensor.name));
  bound.elements =
      requireElements(*binding.param, {tensor.name, Role::Param, {}});
  bound.rank = binding.param->ndim;
  const Variant &variant = getVariant(tensor);
  Storage gradStorage = variant.operands[variant.grad].storage;
  bound.gradWord = STEPC_ROW_OPERANDS + int32_t(variant.grad);
  bound.gradType = getDLDataType(gradStorage);
  bound.gradItemSize = int32_t(getByteSize(gradStorage));
  bound.hasGrad = binding.grad != nullptr;
  tensor.ownsStates = !binding.states;

  setDims(binding, tensor);
  requireNoSelfOverlap(tensor);
  tensor.layout.compute(bound.getExtents(), bound.rank, bound.getStrides(0),
                        int64_t(variant.operands.size()),
                        int64_t(variant.param));
  bound.rowClass = 2 * bound.variant + (tensor.layout.getRank() != 0);
}

/// Copies extents, strides and addresses. A missing gradient is taken to lie as
/// the parameter does; states to be allocated are as dense as can be.
void Binder::setDims(const StepcBinding &binding, NewTensor &tensor) const {
  BoundTensor &bound = tensor.bound;
  const Variant &variant = getVariant(tensor);
  size_t operands = variant.operands.size();
  bound.dims.reset(new int64_t[size_t(bound.rank) * (operands + 1) + 1]);
  int64_t *extents = bound.getExtents();
  std::copy_n(binding.param->shape, bound.rank, extents);
  tensor.addresses.assign(operands, 0);

  auto import = [&](size_t k, const DLTensor &given) {
    const Operand &operand = variant.operands[k];
    OperandName name{tensor.name, operand.role, operand.name};
    requireShape(given, extents, bound.rank, name);
    tensor.addresses[k] = requireMemory(given, extents, operand.storage, name,
                                        bound.getStrides(k));
  };
  import(variant.param, *binding.param);
  const int64_t *paramStrides = bound.getStrides(variant.param);
  if (binding.grad)
    import(variant.grad, *binding.grad);
  else
    std::copy_n(paramStrides, bound.rank, bound.getStrides(variant.grad));
  bound.gradRowMajor =
      isRowMajor(extents, bound.rank, bound.getStrides(variant.grad));
  for (size_t k = 0; k < variant.states.size(); ++k) {
    size_t operand = variant.states[k];
    if (binding.states)
      import(operand, *binding.states[k]);
    else
      setDenseLike(extents, bound.rank, paramStrides,
                   bound.getStrides(operand));
  }
}

OwnedView Binder::getView(const NewTensor &tensor, int64_t id,
                          size_t operand) const {
  const Operand &description = getVariant(tensor).operands[operand];
  const BoundTensor &bound = tensor.bound;
  View view{tensor.addresses[operand], bound.rank, bound.getExtents(),
            bound.getStrides(operand), getByteSize(description.storage)};
  return {view, description.role != Role::Grad, id, int64_t(operand)};
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

/// All states of one call in one block, the states of a tensor side by side.
void Binder::allocateStates() {
  size_t bytes = 0;
  auto forEachState = [&](auto visit) {
    for (NewTensor &tensor : created)
      if (tensor.ownsStates)
        for (size_t k : getVariant(tensor).states)
          visit(tensor, k, getVariant(tensor).operands[k]);
  };
  auto getSize = [](const NewTensor &tensor, const Operand &state) {
    size_t size = size_t(tensor.bound.elements) * getByteSize(state.storage);
    return (size + 63) & ~size_t(63);
  };
  forEachState([&](NewTensor &tensor, size_t, const Operand &state) {
    if (__builtin_add_overflow(bytes, getSize(tensor, state), &bytes))
      throw std::bad_alloc();
  });
  if (bytes == 0)
    return;
  newStates = std::make_unique<StateBlock>(bytes);
  char *next = newStates->getData();
  forEachState([&](NewTensor &tensor, size_t k, const Operand &state) {
    tensor.addresses[k] = reinterpret_cast<uintptr_t>(next);
    if (state.initialValue != 0.0 || std::signbit(state.initialValue))
      fillElements(next, tensor.bound.elements, state.storage,
                   state.initialValue);
    next += getSize(tensor, state);
  });
}

OperandName Binder::getOperandName(int64_t id, size_t operand) const {
  int64_t firstId = int64_t(plan.tensors.size());
  if (id < firstId)
    return plan.getOperandName(id, operand);
  const NewTensor &tensor = created[id - firstId];
  const Operand &description = getVariant(tensor).operands[operand];
  return {tensor.name, description.role, description.name};
}

/// Compares the new views with each other, and with the memory that steps of
/// the bound tensors write. Gradients bound before may be long gone; the next
/// step compares those that are in use then.
void Binder::checkOverlap() {
  OverlapChecker &checker = plan.overlapChecker;
  int64_t firstId = int64_t(plan.tensors.size());
  size_t numViews = plan.numViews;
  int64_t maxRank = plan.maxRank;
  for (const NewTensor &tensor : created) {
    numViews += tensor.addresses.size();
    maxRank = std::max<int64_t>(maxRank, tensor.bound.rank);
  }
  checker.reserve(numViews, maxRank);
  checker.clear();
  for (int64_t i = 0; i < size; ++i)
    for (size_t k = 0; k < created[i].addresses.size(); ++k)
      if (k != getVariant(created[i]).grad || created[i].bound.hasGrad)
        checker.add(getView(created[i], firstId + i, k));
  auto [begin, end] = checker.getRange();
  for (int64_t id = 0; id < firstId; ++id)
    plan.addViews(id, begin, end, /*writtenOnly=*/true);

  const OwnedView *first, *second;
  if (checker.find(first, second))
    fail(STEPC_OVERLAP, "%s and %s share memory",
         getOperandName(first->tensor, first->operand).str().c_str(),
         getOperandName(second->tensor, second->operand).str().c_str());
}

/// Takes all memory that commit() and the steps after it need. Should it run
/// out midway, the lists have become longer and nothing else.
void Binder::reserve() {
  plan.listsValid = false;
  plan.cohortsValid = false;
  struct Demand {
    int64_t rows = 0;
    int64_t rank = 0;
    int64_t chunks = 0;
  };
  std::vector<Demand> demands(plan.classes.size());
  for (const NewTensor &tensor : created) {
    Demand &demand = demands[tensor.bound.rowClass];
    ++demand.rows;
    demand.rank = std::max(demand.rank, tensor.layout.getRank());
    demand.chunks +=
        plan.classes[tensor.bound.rowClass].countChunks(tensor.bound.elements);
  }
  for (size_t c = 0; c < demands.size(); ++c)
    if (demands[c].rows)
      plan.classes[c].reserve(demands[c].rows, demands[c].rank,
                              demands[c].chunks);

  size_t total = plan.tensors.size() + created.size();
  plan.cohorts.reserve(total);
  reserveAtLeast(plan.tensors, total);
  reserveAtLeast(plan.names, total);
  reserveAtLeast(plan.counts, total);
  reserveAtLeast(plan.fresh, total);
  reserveAtLeast(plan.cohortOf, total);
  reserveAtLeast(plan.mirrors, total);
  reserveAtLeast(plan.listedIds, total);
  reserveAtLeast(plan.steppedIds, total);
  reserveAtLeast(plan.stateBlocks, plan.stateBlocks.size() + 1);
}

void Binder::commit() noexcept {
  // Gradients bound before have not been compared with the new tensors.
  plan.overlapUnchecked |= !plan.tensors.empty();
  for (int64_t i = 0; i < size; ++i) {
    const StepcBinding &binding = getBinding(i);
    NewTensor &tensor = created[i];
    BoundTensor &bound = tensor.bound;
    int64_t id = int64_t(plan.tensors.size());
    RowClass &rows = plan.classes[bound.rowClass];
    bound.row = rows.addRow(id, bound.elements);
    rows.setLayout(bound.row, tensor.layout);
    std::copy(tensor.addresses.begin(), tensor.addresses.end(),
              rows.getRow(bound.row) + STEPC_ROW_OPERANDS);
    plan.numViews += tensor.addresses.size();
    plan.maxRank = std::max<int64_t>(plan.maxRank, bound.rank);
    plan.numToggled += bound.hasGrad;
    plan.hasMirrors |= binding.countMirror != nullptr;
    plan.tensors.push_back(std::move(bound));
    plan.names.push_back(std::move(tensor.name));
    plan.counts.push_back(binding.count);
    plan.fresh.push_back(uint8_t(binding.fresh));
    plan.cohortOf.push_back(-1);
    plan.mirrors.push_back(binding.countMirror);
  }
  if (newStates)
    plan.stateBlocks.push_back(std::move(*newStates));
}

/// Huge pages for what the caller allocated and steps use again and again;
/// gradients come and go.
void Binder::advise() const noexcept {
  if (!plan.config.hugePages)
    return;
  size_t firstId = plan.tensors.size() - created.size();
  for (size_t i = 0; i < created.size(); ++i) {
    const BoundTensor &bound = plan.tensors[firstId + i];
    const Variant &variant = plan.getVariant(bound);
    for (size_t k = 0; k < variant.operands.size(); ++k) {
      if (k == variant.grad || (k != variant.param && created[i].ownsStates))
        continue;
      View view = plan.getView(bound, k);
      ByteSpan span = getByteSpan(view);
      adviseHugePages(reinterpret_cast<void *>(view.address + span.low),
                      size_t(span.high - span.low));
    }
  }
}

void Plan::bind(const StepcBinding *bindings, int64_t size, int64_t *outIds) {
  requireNoStep("stepcPlanBind");
  if (size < 0 || (size > 0 && !bindings))
    fail(STEPC_INVALID_ARGUMENT, "%lld bindings were given, without values",
         static_cast<long long>(size));
  Binder(*this, bindings, size).run(outIds);
  engine.startThreads();
}
