//===- Engine.cpp - steps tensors on the processor ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cpu/Engine.h"

#include "core/Fill.h"
#include "cpu/CpuFeatures.h"
#include "cpu/HugePages.h"

#include "numerics/Order.h"
#include "numerics/Orthonormal.h"
#include "numerics/SymmetricEigen.h"

#include <algorithm>
#include <immintrin.h>
#include <new>

using namespace stepc;
using namespace stepc::cpu;

static_assert(kEigenWork == STEPC_EIGEN_WORK &&
                  kOrthonormalWork == STEPC_ORTHONORMAL_WORK,
              "what kernels give them to work in");

/// As StepcRoutines says; FloatMode has the mode as it was before the step.
static void flushDenormals(int64_t on) {
  constexpr unsigned kFlush = 0x8040; // of results and of operands
  unsigned mode = _mm_getcsr();
  _mm_setcsr(on ? mode | kFlush : mode & ~kFlush);
}

/// What kernels may call.
static const StepcRoutines &getRoutines() {
  static const StepcRoutines routines = {
      findEigenvectors, makeOrthonormal, findOrder, flushDenormals,
      getMissingCpuFeatures({"avx512bf16"}).empty() ? 1 : 0};
  return routines;
}

cpu::Engine::Engine(Model &model, std::shared_ptr<const Code> ownCode)
    : stepc::Engine(model), code(std::move(ownCode)),
      workers(model.config.numThreads),
      rounds(model.getManifest(), *code, model.groups), carried(model),
      placed(model) {
  auto numSegments = size_t(model.getManifest().getNumSegments());
  segments.reserve(numSegments);
  parts.reserve(numSegments * model.classes.size());
}

Memory cpu::Engine::allocate(size_t bytes, const std::string &) {
  auto block = std::make_shared<StateBlock>(bytes);
  auto address = reinterpret_cast<uintptr_t>(block->getData());
  return {address, block->getSize(), std::move(block)};
}

void cpu::Engine::fill(uintptr_t address, int64_t elements,
                       const Operand &state) {
  fillElements(reinterpret_cast<char *>(address), elements, state.storage,
               state.initialValue);
}

void cpu::Engine::advise(uintptr_t address, size_t bytes) const noexcept {
  adviseHugePages(reinterpret_cast<void *>(address), bytes);
}

/// What workers and shared rows need for one row after the other: as much as
/// the largest. Taken anew where it has grown, or the team has.
void cpu::Engine::reserveWorkspace(const WorkspaceNeed &need) {
  placed.reserve(need.piece);
  newWorkspace = workspace;
  newWorkspaceBlock.reset();
  int64_t own = RowClass::getBatchWorkspace(need.largest, need.total);
  int64_t team = std::max<int64_t>(workers.getTeamSize(), workspace.numWorkers);
  int64_t sharedBytes = workspace.shared[1] - workspace.shared[0];
  if ((own == 0 && need.shared == 0) ||
      (team == workspace.numWorkers && own <= int64_t(workspace.workerStride) &&
       need.shared <= sharedBytes))
    return;
  int64_t bytes;
  if (__builtin_mul_overflow(own, team, &bytes) ||
      need.shared > INT64_MAX / 4 ||
      __builtin_add_overflow(bytes, 2 * need.shared, &bytes))
    throw std::bad_alloc();
  newWorkspaceBlock = std::make_unique<StateBlock>(size_t(bytes));
  newWorkspace.workers = newWorkspaceBlock->getData();
  newWorkspace.workerStride = size_t(own);
  newWorkspace.numWorkers = team;
  newWorkspace.shared[0] = newWorkspace.workers + own * team;
  newWorkspace.shared[1] = newWorkspace.shared[0] + need.shared;
}

void cpu::Engine::commit() noexcept {
  model.exchange.freeReplaced();
  placed.commit();
  workspace = newWorkspace;
  if (newWorkspaceBlock)
    workspaceBlock = std::move(newWorkspaceBlock);
}

void cpu::Engine::forgetCarried(size_t first, size_t end) noexcept {
  for (size_t tensor = first; tensor < end; ++tensor)
    carried.forget(tensor);
}

uintptr_t cpu::Engine::getScalarRows() const noexcept {
  return reinterpret_cast<uintptr_t>(model.cohorts.getScalars(0));
}

/// Gathers what the classes list into work.
void cpu::Engine::listsChanged() noexcept {
  parts.clear();
  segments.clear();
  workWeight = 0;
  for (int64_t s = 0; s < model.getManifest().getNumSegments(); ++s) {
    WorkSegment segment = {int64_t(parts.size()), 0, 0};
    for (size_t c = 0; c < model.classes.size(); ++c)
      if (model.classes[c].hasList())
        listPart(s, c, segment.weight);
    segment.endPart = int64_t(parts.size());
    segments.push_back(segment);
  }
}

/// Adds what a class does in a segment; `line` is the weight of the segment's
/// line so far.
void cpu::Engine::listPart(int64_t segment, size_t rowClass,
                           int64_t &line) noexcept {
  size_t variant = rowClass / 2;
  const ClassSegment &own = model.getSegment(variant, segment);
  if (own.beginEntry == own.endEntry)
    return;
  const RowClass &rows = model.classes[rowClass];
  WorkPart part = {};
  static_cast<RowList &>(part) = rows.getList();
  part.call.routines = &getRoutines();
  part.entries =
      code->getVariant(variant).entries[rowClass % 2].data() + own.beginEntry;
  part.numEntries = own.endEntry - own.beginEntry;
  part.whole = own.whole || (rows.isWhole() && rows.hasCodes());
  part.operandsWord = rows.getOperandsWord();
  part.rowOperands =
      int64_t(model.getManifest().variants[variant].operands.size());
  part.fixedWords = rows.getFixedWords();
  part.reads = own.reads;
  part.writes = own.writes;
  part.uses = own.uses;
  part.changes = own.changes;
  part.places = model.places.data();
  if (!part.whole)
    part.numLarge = 0;
  part.before = line;
  part.elementWeight = own.elementBytes;
  part.itemWeight = kItemWeight;
  line = part.getWeightBefore(part.getNumItems());
  workWeight += rows.getListedElements() * own.elementBytes +
                part.numChunks * part.itemWeight;
  parts.push_back(part);
}

double cpu::Engine::getSlot(const BoundTensor &tensor, size_t slot) const {
  return reinterpret_cast<const double *>(model.getSlots(tensor))[slot];
}

void cpu::Engine::addInfo(StepcPlanInfo &info, int64_t memory) const {
  info.parallelRegions = workers.getNumRegions();
  if (workspaceBlock)
    info.workspaceBytes = int64_t(workspaceBlock->getSize());
  info.bytesAllocated += memory + info.workspaceBytes + placed.getBytes();
}
