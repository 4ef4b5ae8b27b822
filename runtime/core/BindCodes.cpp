//===- BindCodes.cpp - binding states that are kept as codes ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Binder.h"
#include "core/StateCodes.h"
#include "core/StateDims.h"
#include "core/Status.h"
#include "store/Store.h"

#include "stepc/codes.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <utility>

using namespace stepc;

/// What a binding had before it said how states are kept.
static constexpr size_t kEntryBinding = offsetof(StepcBinding, formats);

const int32_t *stepc::getFormats(const StepcBinding &binding) {
  return binding.structSize <= kEntryBinding ? nullptr : binding.formats;
}

void stepc::requireCodes(const DLTensor &tensor, int32_t format, DLDevice place,
                         const OperandName &name) {
  DLDataType wanted = getCodesType(requireFormat(format, name.str()));
  requirePlace(tensor, place, name);
  DLDataType type = tensor.dtype;
  if (type.code != wanted.code || type.bits != wanted.bits || type.lanes != 1)
    fail(STEPC_DTYPE_MISMATCH, "%s has dtype %s, codes of format %d are %s",
         name.str().c_str(), describe(type).c_str(), int(format),
         describe(wanted).c_str());
}

/// Notes which operands are codes; refuses those that cannot be.
void Binder::readFormats(int64_t i, NewTensor &tensor) const {
  const StepcBinding &binding = bindings[i];
  const int32_t *formats = getFormats(binding);
  const Variant &variant = getVariant(tensor);
  if (!formats)
    return;
  const char *name = tensor.name.c_str();
  if (size_t(binding.numStates) != variant.states.size())
    fail(STEPC_INVALID_ARGUMENT,
         "tensor %s has formats of %lld states, variant '%s' has %zu", name,
         static_cast<long long>(binding.numStates), variant.name.c_str(),
         variant.states.size());
  for (size_t k = 0; k < variant.states.size(); ++k) {
    if (formats[k] == STEPC_STATE_PLAIN)
      continue;
    size_t operand = variant.states[k];
    const Operand &state = variant.operands[operand];
    const CodeFormat &format = requireFormat(
        formats[k], OperandName{tensor.name, Role::State, state.name}.str());
    if (state.storage != Storage::F32 || state.reach == Reach::Single)
      fail(STEPC_DTYPE_MISMATCH,
           "tensor %s: state '%s' is %s, those of f32 are kept as codes", name,
           state.name.c_str(),
           state.reach == Reach::Single ? "one element"
                                        : getName(state.storage));
    if (!plan.engine->hasCodes(format))
      fail(STEPC_UNSUPPORTED_TARGET,
           "tensor %s: state '%s' is kept as codes, for which package '%s' has "
           "no kernels on %s; compile it anew",
           name, state.name.c_str(), model.package->getName().c_str(),
           plan.engine->getName().c_str());
    if (!variant.carried.empty())
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: state '%s' is kept as codes, and the package keeps "
           "statistics from step to step (--exclusive-writes)",
           name, state.name.c_str());
    if (operand >= 64)
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: state '%s' is operand %zu, the first 64 can be codes",
           name, state.name.c_str(), operand);
    if (binding.states && (!binding.scales || !binding.scales[k]))
      fail(STEPC_INVALID_ARGUMENT,
           "tensor %s: state '%s' is kept as codes, without scales", name,
           state.name.c_str());
    tensor.bound.coded |= uint64_t(1) << operand;
  }
}

/// The extents of a state beside the whole tensor.
std::vector<int64_t> Binder::getWholeExtents(const NewTensor &tensor,
                                             size_t operand) const {
  const Variant &variant = getVariant(tensor);
  const Operand &state = variant.operands[operand];
  std::vector<int64_t> whole = tensor.layout.shape;
  if (state.reach == Reach::Reduced)
    stepc::setReducedExtents(model.getManifest().rules[variant.rule],
                             state.dims, tensor.boundExtents,
                             tensor.layout.shape.data(), int64_t(whole.size()),
                             whole.data());
  return whole;
}

/// Takes the codes of a state from the caller; `beside` is the parameter's
/// shape, where the state has other dims.
static uintptr_t requireCodes(const DLTensor &given, const StateCodes &codes,
                              const char *beside, const OperandName &name) {
  const View view = codes.getCodesView();
  if (codes.format->words.perWord > 1 &&
      (given.ndim != view.rank ||
       !std::equal(view.extents, view.extents + view.rank, given.shape)))
    fail(STEPC_SHAPE_MISMATCH, "%s has shape %s, codes of format %d are %s",
         name.str().c_str(), describeShape(given.shape, given.ndim).c_str(),
         int(codes.format->number),
         describeShape(view.extents, view.rank).c_str());
  if (beside)
    requireStateShape(given, view.extents, view.rank, beside, name);
  else
    requireShape(given, view.extents, view.rank, name);
  std::vector<int64_t> strides(size_t(view.rank) + 1);
  uintptr_t address =
      requireMemory(given, view.extents, view.itemSize, name, strides.data());
  if (!isRowMajor(view.extents, view.rank, strides.data()))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s is kept as codes and has strides %s, they must be row-major "
         "without gaps",
         name.str().c_str(), describeShape(strides.data(), view.rank).c_str());
  return address;
}

/// Takes the scales of a state from the caller.
static uintptr_t requireScales(const DLTensor &given, const StateCodes &codes,
                               DLDevice place, const OperandName &name) {
  Storage storage = requireStorage(given, place, name);
  if (storage != Storage::F32)
    fail(STEPC_DTYPE_MISMATCH, "%s are %s, expected f32", name.str().c_str(),
         getName(storage));
  const std::vector<int64_t> &shape = codes.scaleShape;
  auto rank = int64_t(shape.size());
  requireElements(given, name);
  if (given.ndim != rank ||
      !std::equal(shape.begin(), shape.end(), given.shape))
    fail(STEPC_SHAPE_MISMATCH, "%s have shape %s, expected %s",
         name.str().c_str(), describeShape(given.shape, given.ndim).c_str(),
         describeShape(shape.data(), rank).c_str());
  std::vector<int64_t> strides(shape.size() + 1);
  uintptr_t address =
      requireMemory(given, shape.data(), sizeof(float), name, strides.data());
  if (!isRowMajor(shape.data(), rank, strides.data()))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s have strides %s, they must be row-major without gaps",
         name.str().c_str(), describeShape(strides.data(), rank).c_str());
  return address;
}

/// Refuses blocks that other ranks have parts of where no memory is the
/// processor's from the begin of a step to its end.
void Binder::requireEncodable(const StateCodes &codes,
                              const OperandName &name) const {
  if (!codes.shared.any())
    return;
  if (model.place.device_type != kDLCPU)
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s is kept as codes, and ranks cut blocks of %lld elements: a plan "
         "on %s has whole ones",
         name.str().c_str(), static_cast<long long>(kCodeBlock),
         plan.engine->getName().c_str());
}

/// The same of codes that the caller has given.
static void requireInMemory(const StateCodes &codes, const store::Store *store,
                            const OperandName &name) {
  if (codes.shared.any() && store && store->contains(codes.codes))
    fail(STEPC_LAYOUT_UNSUPPORTED,
         "%s is kept as codes on disk, and ranks cut blocks of %lld elements: "
         "those that are cut have to be in memory",
         name.str().c_str(), static_cast<long long>(kCodeBlock));
}

/// Finds out where blocks lie, and takes the caller's codes and scales.
void Binder::setCodes(int64_t i, NewTensor &tensor) const {
  const StepcBinding &binding = bindings[i];
  const Variant &variant = getVariant(tensor);
  const BoundTensor &bound = tensor.bound;
  for (size_t k = 0; k < variant.states.size(); ++k) {
    size_t operand = variant.states[k];
    if (!bound.isCoded(operand))
      continue;
    const Operand &state = variant.operands[operand];
    OperandName name{tensor.name, Role::State, state.name};
    // As floats.
    View view = makeView(bound, variant, operand, 0);
    StateCodes &codes = tensor.codes.emplace_back();
    codes.operand = int32_t(operand);
    codes.format = findCodeFormat(getFormats(binding)[k]);
    codes.kept = model.isKept(bound.variant, operand);
    BlockCut cut(getWholeExtents(tensor, operand), name.str());
    bool isPart = state.reach == Reach::Full;
    if (bound.flat && isPart)
      cut.setRange(tensor.layout.begin, tensor.layout.end, codes);
    else
      cut.setBox({view.extents, view.extents + view.rank},
                 isPart ? tensor.layout.start : std::vector<int64_t>(),
                 isPart ? tensor.layout.dimAxes : std::vector<uint64_t>(),
                 model.exchange.getMesh(), codes);
    requireEncodable(codes, name);
    if (!binding.states)
      continue;
    std::string beside = describeShape(bound.getExtents(), bound.rank);
    codes.codes = tensor.addresses[operand] = ::requireCodes(
        *binding.states[k], codes, isPart ? nullptr : beside.c_str(), name);
    requireInMemory(codes, model.store.get(), name);
    OperandName scales{tensor.name, Role::State, state.name, true};
    codes.scales =
        requireScales(*binding.scales[k], codes, model.place, scales);
    if (codes.scales)
      plan.engine->requireMemory(codes.scales, scales);
  }
}

/// What a chunk's kernel works on, or that of the whole tensor where rows are
/// taken one by one.
void Binder::setCodedSize(NewTensor &tensor) const {
  BoundTensor &bound = tensor.bound;
  if (tensor.codes.empty())
    return;
  const Variant &variant = getVariant(tensor);
  const RowClass &rows = model.classes[bound.rowClass];
  bool inChunks = variant.space == Space::Elements;
  bound.size.coded = true;
  if (inChunks) {
    for (const StateCodes &codes : tensor.codes)
      bound.size.unitsPerChunk = codes.getChunk(bound.size.unitsPerChunk);
  }
  if (rows.isTogether())
    return;
  if (inChunks) {
    bound.size.workspace +=
        int64_t(roundUpToLine(rows.getRowBytes(bound.getMaxRank())));
  }
  int64_t window = StateCodes::getMostOfWindow(int64_t(tensor.codes.size()));
  for (const StateCodes &codes : tensor.codes)
    if (!codes.kept)
      bound.size.workspace += StateCodes::getScratchBytes(
          inChunks && !rows.isWhole() ? std::min(codes.elements, window)
                                      : codes.elements);
}

/// What the f32 of states takes that are not kept, where rows are worked on
/// together: in chunks of elements, or the whole tensor.
void Binder::addCodedNeed(const NewTensor &tensor) {
  const RowClass &rows = model.classes[tensor.bound.rowClass];
  if (!rows.isTogether())
    return;
  const RowSize &size = tensor.bound.size;
  bool inChunks = getVariant(tensor).space == Space::Elements;
  // Where some lie in a store, a window has pieces of these.
  int64_t piece = tensor.places.empty() ? size.unitsPerChunk : tensor.pieceCut;
  int64_t largest = 0, total = 0;
  for (const StateCodes &codes : tensor.codes) {
    ++need.codedStates;
    if (codes.kept)
      continue;
    bool whole = !inChunks || piece == 0 || piece >= codes.elements;
    int64_t bytes = StateCodes::getScratchBytes(whole ? codes.elements : piece);
    largest += bytes;
    total += whole ? bytes : bytes * ((codes.elements + piece - 1) / piece);
  }
  need.codedLargest = std::max(need.codedLargest, largest);
  need.codedTotal += total;
}

/// Whether what is f32 in a step lies in memory of the plan's.
bool Binder::hasFloats(const StateCodes &codes) const {
  return codes.kept && !(model.store && model.store->contains(codes.codes));
}

/// The bytes of a tensor's codes and scales, and of what is kept as f32 in a
/// step: all of it, or what is cut.
size_t Binder::getCodedBytes(const StateCodes &codes, bool own) const {
  size_t bytes = 0;
  if (own)
    bytes += roundUpToLine(size_t(codes.getCodeBytes())) +
             roundUpToLine(size_t(codes.getScaleBytes()));
  if (hasFloats(codes))
    bytes += size_t(StateCodes::getScratchBytes(codes.elements));
  bytes += size_t(StateCodes::getScratchBytes(codes.shared.countFloats()));
  return bytes;
}

/// Gives states that the runtime allocates their memory, with what is encoded
/// of their initial values.
void Binder::allocateCodes() {
  size_t bytes = 0;
  auto forEach = [&](auto visit) {
    for (NewTensor &tensor : created)
      if (!tensor.bound.elsewhere)
        for (StateCodes &codes : tensor.codes)
          visit(tensor, codes);
  };
  forEach([&](const NewTensor &tensor, const StateCodes &codes) {
    if (__builtin_add_overflow(bytes, getCodedBytes(codes, tensor.ownsStates),
                               &bytes))
      throw std::bad_alloc();
  });
  if (bytes == 0)
    return;
  uintptr_t next = takeZeros(bytes, "the codes of states");
  forEach([&](NewTensor &tensor, StateCodes &codes) {
    if (tensor.ownsStates) {
      codes.codes = tensor.addresses[size_t(codes.operand)] = next;
      next += roundUpToLine(size_t(codes.getCodeBytes()));
      codes.scales = next;
      next += roundUpToLine(size_t(codes.getScaleBytes()));
      plan.engine->fillCodes(
          codes,
          getVariant(tensor).operands[size_t(codes.operand)].initialValue);
    }
    if (hasFloats(codes)) {
      codes.scratch = next;
      next += uintptr_t(StateCodes::getScratchBytes(codes.elements));
    }
    codes.shared.floats = next;
    next += uintptr_t(StateCodes::getScratchBytes(codes.shared.countFloats()));
  });
}
