//===- Plan.h - groups, tensors and the steps they take -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_PLAN_H
#define STEPC_CORE_PLAN_H

#include "core/Engine.h"
#include "core/Model.h"
#include "core/Overlap.h"
#include "core/Status.h"
#include "core/Transfers.h"

#include "stepc/stepc.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace stepc {

class Plan : private BucketStepper {
public:
  Plan(std::shared_ptr<const Package> package, const StepcPlanConfig &config,
       const MakeEngine &make);
  ~Plan() override;
  Plan(const Plan &) = delete;
  Plan &operator=(const Plan &) = delete;

  // What the C ABI asks for. All throw Error, and have changed nothing then.
  int64_t addGroup(const StepcOption *options, int64_t numOptions,
                   const double *hypers, int64_t numHypers);
  void setHypers(int64_t group, const double *hypers, int64_t numHypers);
  void setMesh(const StepcAxis *axes, int64_t numAxes,
               const StepcCommunicator *communicator);
  void bind(const StepcBinding *bindings, int64_t size, int64_t *outIds);
  void setStore(std::shared_ptr<store::Store> store);
  void setStream(void *stream) { engine->setStream(stream); }
  void upload();
  void setGrad(int64_t id, const DLTensor *grad);
  void setParam(int64_t id, const DLTensor *param);
  void step();
  void stepBegin();
  void stepTensors(const int64_t *ids, int64_t size);
  void stepEnd();
  void gradReady(const int64_t *ids, int64_t size);
  void findUnused(bool enabled);
  void shareSums();
  void gradAbsent(const int64_t *ids, int64_t size);
  void stepAbandon();
  void getGrad(int64_t id, DLTensor &out) const;
  void passBegin();
  void passEnd();
  void forgetGrads();
  void takeGrads(Plan &from);
  void setBuckets(BucketSizes sizes);
  void getPart(int64_t id, int64_t &begin, int64_t &end) const;
  int64_t getCount(int64_t id) const;
  void setCount(int64_t id, int64_t count);
  /// Or the scales of one that is kept as codes.
  void getState(int64_t id, const char *name, bool scales, DLTensor &out) const;
  double getScalar(int64_t group, const char *name) const;
  void setScalar(int64_t group, const char *name, double value);
  double getReport(int64_t group, const char *name) const;
  StepcLastStep getLastStep() const;
  StepcPlanInfo getInfo() const;
  void parametersWritten();
  void setTrace(const StepTrace &trace) noexcept { engine->setTrace(trace); }

  /// Has tensors, of which there are none yet, stepped by another engine than
  /// the processor's. `call` is what asks for it.
  void setEngine(const char *call, const MakeEngine &make);
  /// Refuses the call while a step is under way.
  void requireNoStep(const char *call) const;

  /// setGrad for the common case: the gradient looks as it did, or is gone.
  /// False when it is another case; nothing has changed then.
  bool setGradFast(int64_t id, const DLTensor *grad) noexcept;

  /// setGrad for a tensor that has a gradient and whose parameter is as bound,
  /// where the gradient looks as before, at another address or not. False when
  /// it is another case, and on devices; nothing has changed then. Writes
  /// nothing that another tensor has: may be called by several threads for
  /// different tensors.
  bool moveGrad(int64_t id, const DLTensor &param,
                const DLTensor &grad) noexcept;

  /// Not as long as a step whose store has failed goes through what other ranks
  /// wait for.
  bool isPoisoned() const { return engine->isBroken() && !failure; }

private:
  friend class Binder;

  const Variant &getVariant(const BoundTensor &tensor) const {
    return model.getVariant(tensor);
  }
  std::string describeView(const OwnedView &owned) const;
  void useEngine(std::unique_ptr<Engine> made) noexcept;
  void requireId(int64_t id) const;
  void getScales(int64_t id, size_t operand, DLTensor &out) const;
  void requireGroup(int64_t group) const;
  int64_t countLeftOut() const;
  int64_t countListBytes() const;

  // PlanRebind.cpp
  bool isOnProcessor() const { return model.place.device_type == kDLCPU; }
  bool touchesOwnRow(const BoundTensor &tensor, uintptr_t grad) const noexcept;
  bool isInMemory(const BoundTensor &tensor, uintptr_t address) const noexcept;
  void requireOwnRow(int64_t id, const View &grad);
  bool looksAsBound(const BoundTensor &tensor, size_t operand, DLDataType type,
                    const DLTensor &given) const noexcept;
  bool isBoundTo(const BoundTensor &tensor, size_t operand,
                 const DLTensor &given) const noexcept;
  void setGradActive(BoundTensor &tensor, bool active) noexcept;
  void replaceOperand(int64_t id, size_t operand, const DLTensor &tensor);
  void moveRow(int64_t id, int32_t toClass, const RowLayout &layout) noexcept;
  void addViews(int64_t id, uintptr_t begin, uintptr_t end, bool writtenOnly);

  // PlanEntry.cpp
  EntryTensor &getEntry(const BoundTensor &tensor) {
    return transfers.getTensors()[size_t(tensor.entry)];
  }
  const EntryTensor &getEntry(const BoundTensor &tensor) const {
    return transfers.getTensors()[size_t(tensor.entry)];
  }
  bool hasGradOf(const BoundTensor &tensor) const noexcept {
    return tensor.entry < 0 ? tensor.hasGrad : getEntry(tensor).hasGrad;
  }
  View getWholeView(const BoundTensor &tensor, size_t operand) const;
  bool isEntryLike(const EntryTensor &entry, Storage storage,
                   const DLTensor &given) const noexcept;
  double getCost(const StepcBinding &binding, const std::string &name) const;
  bool touchesEntry(const BoundTensor &tensor, const View &grad) const noexcept;
  bool setEntryGradFast(BoundTensor &tensor, const DLTensor *grad) noexcept;
  void setEntryActive(BoundTensor &tensor) noexcept;
  void placeGrad(BoundTensor &tensor, uintptr_t grad) noexcept;
  View requireEntryView(int64_t id, size_t operand,
                        const DLTensor &given) const;
  void setEntryGrad(int64_t id, const DLTensor &grad);
  void setEntryParam(int64_t id, const DLTensor &param);

  TakeMemory getTransferMemory();
  void renewTransfers();
  void requireEntryMemory(const NewTransfers &made) const;

  // PlanParts.cpp
  void stepWithTransfers();
  void stepBuckets();
  void stepPhases();
  void bring();
  void give();
  void beginEntries(bool together);
  template <typename Takes>
  void setFollows(Takes &&takes) noexcept;
  void followGrads() noexcept;
  void stepListed(const std::vector<int64_t> &ids);
  void unmarkListed(const std::vector<int64_t> &ids) noexcept;
  /// Whether other ranks wait for what this one does in a step in parts.
  bool othersWait() const noexcept {
    return transfers.any() || model.exchange.hasPacks(model.getEndRound());
  }
  void beforeWait() override;
  void stepBucket(const TransferBucket &bucket) override;
  void requireReady(int64_t id) const;
  void requireNotLanded(const EntryTensor &entry) const;
  void markReady(const int64_t *ids, int64_t size);
  void setReady(int64_t id) noexcept;
  void stepNamed();
  void stepNamedAtOnce();
  void countElsewhere() noexcept;
  void finishParts();
  void endParts() noexcept;
  void refuseFailure();
  StepOutcome runWithOthers();
  void dropParts() noexcept;

  // PlanTell.cpp
  void requireAbsent(int64_t id) const;
  void refuseGivenUp(int64_t numTensors);

  // PlanPass.cpp
  void dropPass() noexcept;
  void wakeEntries() noexcept;

  // PlanStep.cpp
  void checkOverlap();
  void checkStep();
  void prepareStep();
  StepOutcome runWhole();
  void countWhole(const StepOutcome &outcome);
  void requireSteppable(int64_t id) const;

  Model model;
  /// Of tensors that were bound with an entry.
  Transfers transfers;
  /// What rows need beside the caller's memory; taken by bind.
  std::vector<Memory> blocks;
  WorkspaceNeed workspaceNeed;

  /// Whether groups have changed since they were compared.
  bool groupsUnchecked = false;
  StepcLastStep lastStep = {};
  int64_t numSkipped = 0;
  bool inStep = false;
  bool inPass = false;
  /// Whether steps between begin and end find out which gradients there are.
  bool findsUnused = false;
  std::vector<int64_t> steppedIds;
  /// What a part of a step takes together; and what is stepped before a bucket
  /// is waited for.
  std::vector<int64_t> partIds;
  std::vector<int64_t> waitingIds;
  /// Entry tensors whose gradients have come.
  std::vector<size_t> readyEntries;
  /// Whether the step under way has written a parameter or a state.
  bool written = false;
  /// What this rank's store has failed with in it, where others go on.
  std::optional<Error> failure;
  int64_t numSteps = 0;

  OverlapChecker overlapChecker;
  /// Whether addresses have changed since all were compared. They change one
  /// by one, so they are compared when the next step needs them.
  bool overlapUnchecked = false;
  size_t numViews = 0;
  int64_t maxRank = 0;
  RowLayout layout;

  /// The first to go: it may have to wait for those who use the rest.
  std::unique_ptr<Engine> engine;
};

} // namespace stepc

#endif // STEPC_CORE_PLAN_H
