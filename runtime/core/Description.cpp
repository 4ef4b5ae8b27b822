//===- Description.cpp - what tensors would get -------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/Description.h"

#include "core/BoundDims.h"
#include "core/RowClass.h"
#include "core/RuleChoice.h"
#include "core/StateCodes.h"
#include "core/StateDims.h"
#include "core/Status.h"
#include "core/StepCost.h"
#include "core/TensorView.h"

#include "stepc/codes.h"

#include <algorithm>

using namespace stepc;

static Texts getTexts(const Dims &dims) {
  Texts texts;
  for (const std::string &dim : dims)
    texts.push_back(dim.c_str());
  return texts;
}

Interface::Interface(std::string_view text) : manifest(readInterface(text)) {
  for (const Rule &rule : manifest.rules) {
    Named &named = rules.emplace_back();
    named.dims = getTexts(rule.dims);
    for (const DeclaredState &state : rule.states)
      named.states.push_back(getTexts(state.dims));
    for (const std::string &dim : rule.unshardable)
      if (dim != kFlatRange)
        named.unshardable.push_back(dim.c_str());
    StepcRuleDescription &description = named.description;
    description.structSize = sizeof(description);
    description.name = rule.name.c_str();
    description.dims = named.dims.data();
    description.numDims = int64_t(named.dims.size());
    description.unshardable = named.unshardable.data();
    description.numUnshardable = int64_t(named.unshardable.size());
    description.needsMatrices =
        named.unshardable.size() != rule.unshardable.size();
    description.line = rule.line;
    description.column = rule.column;
  }
  for (const Variant &variant : manifest.variants) {
    operands.emplace_back();
    for (const Operand &operand : variant.operands)
      operands.back().push_back(getTexts(operand.dims));
  }
}

/// Of a whole tensor and of the rank's part.
void Description::setShapes(const TensorQuery &query, const Dims &dims,
                            State &state) const {
  const std::vector<int64_t> &whole = query.layout.shape;
  auto rank = int64_t(whole.size());
  switch (getReach(*rule, dims)) {
  case Reach::Full:
    state.shape = whole;
    state.part = query.extents;
    for (int64_t i = 0; i < rank; ++i)
      state.paramDims.push_back(int32_t(i));
    return;
  case Reach::Single:
    state.shape.assign(dims.size(), 1);
    state.part = state.shape;
    state.paramDims.assign(dims.size(), -1);
    return;
  case Reach::Reduced:
    break;
  }
  // A range of elements has no rows or columns of its own.
  const std::vector<int64_t> &part = query.layout.flat ? whole : query.extents;
  state.shape.resize(whole.size());
  state.part.resize(whole.size());
  setReducedExtents(*rule, dims, boundExtents, whole.data(), rank,
                    state.shape.data());
  setReducedExtents(*rule, dims, boundExtents, part.data(), rank,
                    state.part.data());
  for (int64_t i = 0; i < rank; ++i)
    state.paramDims.push_back(int32_t(i));
  // Dims count from the end: leading ones may be any number.
  int64_t named = std::min(rank, int64_t(dims.size()));
  for (int64_t back = 1; back <= named; ++back)
    if (dims[dims.size() - size_t(back)] !=
        rule->dims[rule->dims.size() - size_t(back)])
      state.paramDims[size_t(rank - back)] = -1;
}

Description::State &Description::addState(const TensorQuery &query,
                                          const std::string &name,
                                          const Dims &dims, const Texts &texts,
                                          Tensor &tensor) const {
  State &state = tensor.states.emplace_back();
  setShapes(query, dims, state);
  StepcStateDescription &description = state.description;
  description.structSize = sizeof(description);
  description.name = name.c_str();
  description.dims = texts.data();
  description.numDims = int64_t(texts.size());
  description.ndim = int32_t(state.shape.size());
  description.partNdim = int32_t(state.part.size());
  description.shape = state.shape.data();
  description.part =
      state.part == state.shape ? state.shape.data() : state.part.data();
  description.paramDims = state.paramDims.data();
  description.exists = 1;
  description.isFull = getReach(*rule, dims) == Reach::Full;
  tensor.pointers.push_back(&description);
  return state;
}

/// What steps of it take beside its states.
void Description::addWork(const TensorQuery &query, const Variant &variant,
                          Tensor &tensor) const {
  bool tiles = variant.space == Space::Tiles;
  TileShape shape =
      getTileShape(tiles ? rule->dims : Dims{"*"}, query.layout,
                   query.extents.data(), int64_t(query.extents.size()));
  addBoundExtents(boundExtents, shape);
  RowClass rows(variant, kDefaultChunkElements);
  RowSize size = rows.getSize(shape);
  StepcTensorDescription &description = tensor.description;
  description.keptBytes = getKeptBytes(variant, shape, /*buffers=*/true);
  description.workspaceBytes = size.workspace;
  description.isShared = rows.isLarge(size);
  for (const WorkspaceBuffer &buffer : variant.workspace)
    tensor.bufferEntries.push_back(getBufferEntries(buffer, shape));
  description.bufferEntries = tensor.bufferEntries.data();
  description.numBuffers = int64_t(tensor.bufferEntries.size());
}

/// Where a state is to be kept as codes, and that saves memory.
void Description::setCodes(const TensorQuery &query, const std::string &name,
                           const Dims &dims, State &state) const {
  auto coded = std::find_if(query.coded.begin(), query.coded.end(),
                            [&](const auto &own) { return own.name == name; });
  if (coded == query.coded.end() || !canEncode(state.shape, coded->least))
    return;
  size_t dim = getRowDim(state.shape);
  state.scaleShape = getScaleShape(state.shape, dim);
  const CodeFormat &format = *coded->format;
  state.codeShape = getCodeShape(format.words, state.shape, dim);
  StateCodes codes;
  codes.format = &format;
  if (query.layout.flat && getReach(*rule, dims) == Reach::Full) {
    BlockCut(state.shape, query.name + ": state '" + name + "'")
        .setRange(query.layout.begin, query.layout.end, codes);
    state.codePart = std::move(codes.codeShape);
    state.scalePart = std::move(codes.scaleShape);
  } else {
    state.codePart = getCodeShape(format.words, state.part, dim);
    const bool isFull = getReach(*rule, dims) == Reach::Full;
    state.scalePart =
        BlockCut(state.shape, query.name)
            .getScalesOf(state.part, isFull ? query.layout.begin : 0);
  }
  StepcStateDescription &description = state.description;
  description.format = format.number;
  if (description.dtype.bits)
    description.dtype = getCodesType(format);
  description.bytes =
      format.words.getBytes() *
          countElements(state.codePart.data(), int64_t(state.codePart.size())) +
      int64_t(sizeof(float)) * countElements(state.scalePart.data(),
                                             int64_t(state.scalePart.size()));
  description.scaleNdim = int32_t(state.scaleShape.size());
  description.scalePartNdim = int32_t(state.scalePart.size());
  description.scaleShape = state.scaleShape.data();
  description.scalePart = state.scalePart.data();
  description.codeNdim = int32_t(state.codeShape.size());
  description.codePartNdim = int32_t(state.codePart.size());
  description.codeShape = state.codeShape.data();
  description.codePart = state.codePart.data();
}

void Description::addVariant(const TensorQuery &query, size_t index,
                             Tensor &tensor) const {
  const Variant &variant = interface->getManifest().variants[index];
  tensor.description.variant = int64_t(index);
  for (size_t k : variant.states) {
    const Operand &operand = variant.operands[k];
    State &state = addState(query, operand.name, operand.dims,
                            interface->getOperandDims(index, k), tensor);
    state.description.initialValue = operand.initialValue;
    state.description.dtype = getDLDataType(operand.storage);
    state.description.bytes =
        countElements(state.part.data(), int64_t(state.part.size())) *
        getByteSize(operand.storage);
    if (operand.storage == Storage::F32)
      setCodes(query, operand.name, operand.dims, state);
  }
  addWork(query, variant, tensor);
}

void Description::addDeclared(const TensorQuery &query, size_t index,
                              Tensor &tensor) const {
  for (size_t k = 0; k < rule->states.size(); ++k) {
    const DeclaredState &declared = rule->states[k];
    State &state = addState(query, declared.name, declared.dims,
                            interface->getStateDims(index, k), tensor);
    state.description.initialValue = declared.initialValue;
    state.description.exists =
        !declared.guard || query.options[*declared.guard] != 0;
    setCodes(query, declared.name, declared.dims, state);
  }
}

/// The first of the dims that the rule cannot share out and ranks share.
static const char *findCutDim(const Rule &rule, const TensorLayout &layout) {
  Dims sharded = layout.getShardedDims(rule.dims);
  for (const std::string &dim : rule.unshardable)
    if (std::find(sharded.begin(), sharded.end(), dim) != sharded.end())
      return dim.c_str();
  return nullptr;
}

/// Of a range of the elements its share of the whole: no rule with products has
/// one.
void Description::addCost(const TensorQuery &query, Tensor &tensor) const {
  StepcTensorDescription &description = tensor.description;
  const std::vector<int64_t> &whole = query.layout.shape;
  bool flat = query.layout.flat;
  StepCost cost = getStepCost(interface->getManifest(), *rule, query.options,
                              flat ? whole : query.extents, query.name);
  double share = 1.0;
  if (int64_t all = countElements(whole.data(), int64_t(whole.size()));
      flat && all)
    share = double(description.elements) / double(all);
  description.flops = cost.flops * share;
  description.cost = cost.getTotal() * share;
}

void Description::addRule(const TensorQuery &query, Tensor &tensor) {
  const Manifest &manifest = interface->getManifest();
  StepcTensorDescription &description = tensor.description;
  size_t index =
      chooseRule(manifest, query.options, query.layout.shape, query.name);
  rule = &manifest.rules[index];
  description.rule = &interface->getRule(index);
  description.cutDim = findCutDim(*rule, query.layout);
  boundExtents = getBoundExtents(manifest, *rule, query.options,
                                 query.layout.shape, query.name);
  addCost(query, tensor);
  if (query.request)
    addVariant(query,
               chooseVariant(manifest, query.options, index, query.layout,
                             *query.request, query.name),
               tensor);
  else
    addDeclared(query, index, tensor);
}

void Description::add(const TensorQuery &query) {
  Tensor &tensor = tensors.emplace_back();
  StepcTensorDescription &description = tensor.description;
  description.structSize = sizeof(description);
  description.variant = -1;
  description.elements =
      countElements(query.extents.data(), int64_t(query.extents.size()));
  try {
    addRule(query, tensor);
  } catch (const Error &error) {
    tensor.refusal = error.what();
    description.refusal = tensor.refusal.c_str();
    description.status = error.getStatus();
  }
  description.states = tensor.pointers.data();
  description.numStates = int64_t(tensor.pointers.size());
  pointers.push_back(&description);
}
