//===- Model.h - what a plan steps --------------------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What belongs to a tensor is kept three times, each for its reader:
//
//   - BoundTensor and its dims: what the caller bound, to compare with;
//   - a row of its class's table: what kernels read. Addresses live only here;
//   - its cohort: the scalars, shared with the tensors of equal count.
//
// A row is one of a class: a variant's contiguous rows, or its strided ones. In
// the tiles space a tensor also has slots and live buffers, in memory of the
// plan, which its row names.
//
// Steps work on lists that are made anew only when something changed that they
// depend on:
//
//   cohortsValid   members of a cohort have one key, apart from `active`
//   listsValid     the classes list the chunks of exactly the tensors that have
//                  a gradient, and no cohort has members of both kinds
//
// The plan changes all of it; its engine reads it in steps.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_MODEL_H
#define STEPC_CORE_MODEL_H

#include "core/BoundTensor.h"
#include "core/Cohorts.h"
#include "core/Exchange.h"
#include "core/Groups.h"
#include "core/Package.h"
#include "core/PlacedStates.h"
#include "core/Rounds.h"
#include "core/RowClass.h"
#include "core/StateCodes.h"

#include "stepc/stepc.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc {

namespace store {
class Store;
} // namespace store

/// The greatest count of a tensor that a step takes, one below the greatest
/// integer.
inline constexpr int64_t kMaxCount = INT64_MAX - 1;

/// What a class does in one segment: entries of the variant's schedule that are
/// called.
struct ClassSegment {
  int64_t beginEntry = 0;
  int64_t endEntry = 0;
  /// Whether a row goes through them on its own.
  bool whole = false;
  /// Bytes that its kernels move for one element.
  int64_t elementBytes = 0;
  /// The operands that may have to be decoded before it and encoded behind it,
  /// a bit for each of the first 64.
  uint64_t reads = 0;
  uint64_t writes = 0;
  /// All that it has to do with, and what it may change: of codes alone
  /// `reads` and `writes` leave out what stays f32 between segments.
  uint64_t uses = 0;
  uint64_t changes = 0;
};

/// What a variant has of a statistic.
struct ContributedSlot {
  int64_t slot = -1;    // -1: nothing
  uint64_t partial = 0; // dims over which it is a part
  bool maximum = false;
};

struct Model {
  Model(std::shared_ptr<const Package> package, const StepcPlanConfig &config);
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  const Manifest &getManifest() const { return package->getManifest(); }
  const Variant &getVariant(const BoundTensor &tensor) const {
    return getManifest().variants[tensor.variant];
  }
  int64_t *getRow(const BoundTensor &tensor) {
    return classes[tensor.rowClass].getRow(tensor.row);
  }
  const int64_t *getRow(const BoundTensor &tensor) const {
    return classes[tensor.rowClass].getRow(tensor.row);
  }
  /// Where the slots of a tensor are.
  uintptr_t getSlots(const BoundTensor &tensor) const {
    return uintptr_t(getRow(tensor)[STEPC_TILE_SLOTS]);
  }
  size_t getOperandWord(const BoundTensor &tensor, size_t operand) const {
    return size_t(classes[tensor.rowClass].getOperandsWord()) + operand;
  }
  /// Whether a state that is kept as codes stays f32 over rounds of a step.
  bool isKept(int32_t variant, size_t operand) const {
    return operand < 64 && keptOperands[size_t(variant)] >> operand & 1;
  }
  /// Those of the tensor's states that are kept as codes.
  StateCodesRange getCodes(const BoundTensor &tensor) const;
  View getView(const BoundTensor &tensor, size_t operand) const;
  OperandName getOperandName(int64_t id, size_t operand) const;
  const ClassSegment &getSegment(size_t variant, int64_t segment) const {
    return classSegments[variant * size_t(getManifest().getNumSegments()) +
                         size_t(segment)];
  }
  /// The address of what the tensor contributes to a statistic on this rank, or
  /// 0: nothing.
  uintptr_t getContribution(const BoundTensor &tensor, size_t statistic) const;
  /// What crosses ranks at the end of a step, behind all rounds, is of this
  /// one: blocks of codes that ranks share.
  int64_t getEndRound() const { return getManifest().getNumSegments(); }
  /// Whether other ranks may have what takes part, and wait for this one.
  bool isWaitedFor() const;

  /// Forms cohorts anew, whose rows of scalars lie from `scalarRows` on.
  void formCohorts(uintptr_t scalarRows) noexcept;
  /// Lists the tensors that have a gradient.
  void listActive() noexcept;
  /// Lists these, for a part of a step.
  void listParts(const int64_t *ids, int64_t size) noexcept;
  bool areListsValid() const {
    return cohortsValid && listsValid && numToggled == 0;
  }
  /// Counts a step of all listed tensors, which are whole cohorts.
  void countStep() noexcept;
  void setMirror(int64_t id) noexcept {
    if (mirrors[id])
      *mirrors[id] = float(counts[id]);
  }

  std::shared_ptr<const Package> package;
  StepcPlanConfig config;
  /// Where tensors are.
  DLDevice place = {kDLCPU, 0};
  std::vector<Group> groups;

  std::vector<BoundTensor> tensors;
  /// As messages call them: "'w'" or "5".
  std::vector<std::string> names;
  std::vector<int64_t> counts;
  /// The variant's fresh flags that are set.
  std::vector<uint64_t> fresh;
  std::vector<int32_t> cohortOf;
  std::vector<float *> mirrors;
  bool hasMirrors = false;

  /// Of all states that are kept as codes.
  std::vector<StateCodes> codes;
  /// And of all that lie in the store.
  std::vector<PlacedState> places;
  std::shared_ptr<store::Store> store;
  /// Two for each variant: contiguous rows, strided rows.
  std::vector<RowClass> classes;
  /// For each variant one for each segment.
  std::vector<ClassSegment> classSegments;
  /// For each variant the operands of isKept.
  std::vector<uint64_t> keptOperands;
  /// For each variant one for each statistic.
  std::vector<ContributedSlot> contributionSlots;
  Cohorts cohorts;
  bool cohortsValid = true;

  bool listsValid = false;
  /// How many tensors have `hasGrad` other than `listed`.
  int64_t numToggled = 0;
  std::vector<int64_t> listedIds;

  Rounds rounds;
  Exchange exchange;
  int64_t numRounds = 0;

private:
  void addClasses(const Variant &variant, int64_t chunkElements);
  void finishLists() noexcept;
};

} // namespace stepc

#endif // STEPC_CORE_MODEL_H
