//===- Binder.h - one call of stepcPlanBind -----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_BINDER_H
#define STEPC_CORE_BINDER_H

#include "core/EntryBinder.h"
#include "core/Plan.h"
#include "core/StateCodes.h"

namespace stepc {

/// One call of Plan::bind. Everything that can be refused, or run out of
/// memory, happens before commit(), which only moves what is there already.
class Binder {
public:
  /// `entries`: those of the bindings that are of parts, whose bindings they
  /// are.
  Binder(Plan &plan, const BindingList &bindings, EntryBinder &entries)
      : plan(plan), model(plan.model), bindings(bindings),
        size(bindings.getSize()), entries(entries) {}

  void run(int64_t *outIds);

private:
  struct NewTensor {
    BoundTensor bound;
    std::string name;
    std::vector<uintptr_t> addresses;
    RowLayout rowLayout;
    TensorLayout layout;
    TileShape tiles;
    /// Of dims of the rule that follow from others.
    std::vector<int64_t> boundExtents;
    /// Of states that are kept as codes, in the order of the variant's.
    std::vector<StateCodes> codes;
    /// Of states that lie in the store; where a piece begins, and the bytes
    /// of the largest.
    std::vector<PlacedState> places;
    int64_t pieceCut = 0;
    int64_t pieceBytes = 0;
    /// Of slots and live buffers.
    uintptr_t ownMemory = 0;
    bool ownsStates = false;
    bool empty = false;
  };

  const StepcLayout *getLayout(const StepcBinding &binding) const;
  const uint8_t *getFreshStates(const StepcBinding &binding) const;
  uint64_t getFresh(const StepcBinding &binding, const Variant &variant) const;
  int64_t getNumber(int64_t i) const;
  void describe(int64_t i);
  void requireFields(int64_t i, const std::string &name) const;
  void setLayout(NewTensor &tensor) const;
  void setRowSize(NewTensor &tensor) const;
  void setReducedExtents(size_t operand, NewTensor &tensor) const;
  void setDims(int64_t i, NewTensor &tensor) const;
  void setOperand(size_t operand, const DLTensor &given,
                  NewTensor &tensor) const;
  void setOwnState(size_t operand, NewTensor &tensor) const;
  void setPosition(int64_t i, size_t operand, NewTensor &tensor) const;
  // BindCodes.cpp
  void readFormats(int64_t i, NewTensor &tensor) const;
  std::vector<int64_t> getWholeExtents(const NewTensor &tensor,
                                       size_t operand) const;
  void requireEncodable(const StateCodes &codes, const OperandName &name) const;
  void setCodes(int64_t i, NewTensor &tensor) const;
  void setCodedSize(NewTensor &tensor) const;
  void addCodedNeed(const NewTensor &tensor);
  bool hasFloats(const StateCodes &codes) const;
  size_t getCodedBytes(const StateCodes &codes, bool own) const;
  void allocateCodes();
  void allocateFloats();
  void addCodes(NewTensor &tensor) noexcept;

  // BindPlaces.cpp
  void setPlaces(NewTensor &tensor) const;
  void requirePlaceable(const NewTensor &tensor, size_t operand) const;
  void addPlaced(PlacedState placed, NewTensor &tensor) const;
  void setPieces(NewTensor &tensor) const;
  void addPlaces(NewTensor &tensor) noexcept;

  void requireNoSelfOverlap(const NewTensor &tensor);
  void requireUsable(const NewTensor &tensor) const;
  void allocateStates();
  uintptr_t takeZeros(size_t bytes, const char *what);
  void allocateTiles();
  void allocateWorkspace();
  void allocateExchange();
  void addExchange(int64_t id, const NewTensor &tensor) noexcept;
  template <typename Visit>
  void forEachExchange(const NewTensor &tensor, Visit &&visit) const;
  int64_t getOwnBytes(const NewTensor &tensor) const;
  void checkOverlap();
  void reserve();
  void commit() noexcept;
  void setRow(NewTensor &tensor) noexcept;
  void advise() const noexcept;

  const Variant &getVariant(const NewTensor &tensor) const {
    return model.getVariant(tensor.bound);
  }
  void addViews(int64_t i);
  OwnedView getView(const NewTensor &tensor, int64_t id, size_t operand) const;
  std::string describeView(const OwnedView &owned) const;
  void setExchanged(int64_t id, int64_t word, uintptr_t address) noexcept;

  Plan &plan;
  Model &model;
  BindingList bindings;
  int64_t size;
  EntryBinder &entries;
  std::vector<NewTensor> created;
  std::vector<Memory> newBlocks;
  WorkspaceNeed need;
};

} // namespace stepc

#endif // STEPC_CORE_BINDER_H
