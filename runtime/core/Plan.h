//===- Plan.h - groups, tensors and the steps they take -------------------===//
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
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_PLAN_H
#define STEPC_CORE_PLAN_H

#include "core/Cohorts.h"
#include "core/Exchange.h"
#include "core/Groups.h"
#include "core/Overlap.h"
#include "core/Package.h"
#include "core/Rounds.h"
#include "core/RowClass.h"
#include "cpu/Engine.h"
#include "cpu/StateArena.h"
#include "cuda/Engine.h"

#include "stepc/stepc.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace stepc {

/// The greatest count of a tensor that a step takes, one below the greatest
/// integer.
inline constexpr int64_t kMaxCount = INT64_MAX - 1;

/// Buffers that are not live, for whom and of what size.
struct WorkspaceNeed {
  /// Of rows that one worker takes: the largest, and all together.
  int64_t largest = 0;
  int64_t total = 0;
  /// The largest of a row that all workers share.
  int64_t shared = 0;
};

struct BoundTensor {
  int32_t variant = 0;
  int32_t group = 0;
  int32_t rank = 0;
  /// Of operands of fewer dims: another one where `rank` is that of a flat
  /// range.
  int32_t reducedRank = 0;
  int32_t rowClass = 0;
  /// The word of the row that holds the gradient's address.
  int32_t gradWord = 0;
  int64_t row = 0;
  /// The dims of Variant::layout, a bit for each, whose first part another rank
  /// has. It counts what is no part over them.
  uint64_t laterDims = 0;
  RowSize size;
  DLDataType gradType = {0, 0, 0};
  uint8_t gradItemSize = 1;
  /// Whether the rank has a range of the elements.
  bool flat = false;
  /// Whether another rank has the same part of the tensor and counts for it.
  bool isCopy = false;
  bool hasGrad = false;
  /// Whether the classes' lists have its chunks.
  bool listed = false;
  /// Whether the step under way has stepped it.
  bool stepped = false;
  /// The extents, then the strides of each operand as the caller gave them;
  /// then, where some operand is reduced, extents and strides of each, which
  /// mean nothing for others.
  std::unique_ptr<int64_t[]> dims;

  int32_t getMaxRank() const { return std::max(rank, reducedRank); }
  int64_t *getExtents() const { return dims.get(); }
  int64_t *getStrides(size_t operand) const {
    return dims.get() + int64_t(operand + 1) * rank;
  }
  int64_t *getReducedExtents(size_t operands, size_t operand) const {
    return getStrides(operands) + int64_t(2 * operand) * reducedRank;
  }
  int64_t *getReducedStrides(size_t operands, size_t operand) const {
    return getReducedExtents(operands, operand) + reducedRank;
  }
};

/// What the operand of a bound tensor looks like, at `address`.
View makeView(const BoundTensor &tensor, const Variant &variant, size_t operand,
              uintptr_t address);

class Plan : private RoundRunner {
public:
  Plan(std::shared_ptr<const Package> package, const StepcPlanConfig &config);
  ~Plan();
  Plan(const Plan &) = delete;
  Plan &operator=(const Plan &) = delete;

  // What the C ABI asks for. All throw Error, and have changed nothing then.
  int64_t addGroup(const StepcOption *options, int64_t numOptions,
                   const double *hypers, int64_t numHypers);
  void setHypers(int64_t group, const double *hypers, int64_t numHypers);
  void setMesh(const StepcAxis *axes, int64_t numAxes,
               const StepcCommunicator *communicator);
  void bind(const StepcBinding *bindings, int64_t size, int64_t *outIds);
  void setCuda(const StepcCudaConfig &config);
  void setStream(void *stream);
  void upload();
  void setGrad(int64_t id, const DLTensor *grad);
  void setParam(int64_t id, const DLTensor *param);
  void step();
  void stepBegin();
  void stepTensors(const int64_t *ids, int64_t size);
  void stepEnd();
  int64_t getCount(int64_t id) const;
  void setCount(int64_t id, int64_t count);
  void getState(int64_t id, const char *name, DLTensor &out) const;
  double getScalar(int64_t group, const char *name) const;
  void setScalar(int64_t group, const char *name, double value);
  double getReport(int64_t group, const char *name) const;
  StepcLastStep getLastStep() const;
  StepcPlanInfo getInfo() const;

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

  void parametersWritten();
  void setTrace(const StepTrace &newTrace) noexcept { trace = newTrace; }

  bool isPoisoned() const { return poisoned || (device && device->isBroken()); }

private:
  friend class Binder;

  const Variant &getVariant(const BoundTensor &tensor) const {
    return package->getManifest().variants[tensor.variant];
  }
  int64_t *getRow(const BoundTensor &tensor) {
    return classes[tensor.rowClass].getRow(tensor.row);
  }
  const int64_t *getRow(const BoundTensor &tensor) const {
    return classes[tensor.rowClass].getRow(tensor.row);
  }
  size_t getOperandWord(const BoundTensor &tensor, size_t operand) const {
    return size_t(classes[tensor.rowClass].getOperandsWord()) + operand;
  }
  View getView(const BoundTensor &tensor, size_t operand) const;
  OperandName getOperandName(int64_t id, size_t operand) const;
  std::string describeView(const OwnedView &owned) const;
  void requireId(int64_t id) const;
  void requireGroup(int64_t group) const;
  void requireNoStep(const char *call) const;

  // PlanRebind.cpp
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

  // PlanCarried.cpp
  double *getSlots(const BoundTensor &tensor);
  void forgetCarried(const BoundTensor &tensor);
  void beginCarriedCheck() noexcept;
  void endCarriedCheck();
  [[noreturn]] void failCarried(size_t tensor, double known, double now) const;
  size_t countCarriedWords(size_t numTensors) const;
  void listDeviceCarried();
  void checkDeviceCarried(const int64_t *state) const;

  /// What a variant has of a statistic.
  struct ContributedSlot {
    int64_t slot = -1;
    uint64_t partial = 0; // dims over which it is a part
    bool maximum = false;
  };

  // PlanStep.cpp
  void checkOverlap();
  uintptr_t getScalars(int32_t cohort) noexcept;
  void formCohorts() noexcept;
  void listActive() noexcept;
  void listWork() noexcept;
  void listPart(int64_t segment, size_t rowClass, int64_t &line) noexcept;
  void prepareStep();
  void fillScalars(int64_t segment, bool activeOnly);
  void requireSteppable(int64_t id) const;
  void runListed();
  bool runRound(int64_t round) override;
  const double *getContribution(const BoundTensor &tensor,
                                const ContributedSlot &own) const;
  int64_t countLeftOut() const;
  void addContributions(int64_t round);
  bool exchangeRound(int64_t round);
  bool isWaitedFor() const;
  void countStep() noexcept;

  // PlanDevice.cpp
  bool isCapturing();
  void requireNoCapture(const char *call);
  void requireEnqueue(const Mesh &mesh) const;
  void setDeviceMesh(Mesh &&mesh);
  void reserveDeviceGroups(cuda::Engine &engine, size_t numGroups,
                           const Group &group);
  void reserveDeviceRounds(cuda::Engine &engine, size_t numTensors,
                           size_t numGroups);
  void reserveDevice(size_t numTensors);
  void reserveDeviceRows(size_t rowClass);
  template <typename Work>
  void guardDevice(Work &&work);
  void stepOnDevice();
  void fillOnDevice();
  void runOnDevice();
  void leaveToDevice();
  std::string describeRows(size_t rowClass) const;

  // PlanDeviceLists.cpp
  void prepareDevice(bool activeOnly);
  void listDeviceRows();
  void listDeviceScalars(bool activeOnly);
  void listDeviceGroups();
  void listDeviceValues();
  void listDeviceRounds();
  void listIdleBuffers();

  // PlanDeviceRead.cpp
  void requireReadable(const char *what) const;
  void tellStale() const;
  void takeFromDevice(const char *call);
  void takeCounts();
  void takeValues();
  int64_t readDeviceCount(int64_t id) const;
  double readDeviceValue(int64_t group, size_t index) const;
  double readSlot(const BoundTensor &tensor, size_t slot) const;
  void readDeviceInfo(StepcPlanInfo &info) const;

  std::shared_ptr<const Package> package;
  StepcPlanConfig config;
  Engine engine;
  StepTrace trace;
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
  std::vector<StateBlock> stateBlocks;

  /// What a class does in one segment: entries of the variant's schedule.
  struct ClassSegment {
    int64_t beginEntry = 0;
    int64_t endEntry = 0;
    bool whole = false;
    /// Bytes that its kernels move for one element.
    int64_t elementBytes = 0;
  };
  void addClasses(const Variant &variant, int64_t chunkElements);

  /// Two for each variant: contiguous rows, strided rows.
  std::vector<RowClass> classes;
  /// For each variant one for each segment.
  std::vector<ClassSegment> classSegments;
  /// For each variant, for each statistic: the slot to contribute, or -1.
  std::vector<ContributedSlot> contributionSlots;
  /// The tensor whose carried scalar was looked at last, and the scalar of the
  /// step under way; no slot: none.
  size_t carriedTurn = 0;
  struct {
    double *slot = nullptr;
    const double *recomputed = nullptr;
    double known = 0.0;
  } checked;
  Cohorts cohorts;
  bool cohortsValid = true;

  bool listsValid = false;
  /// How many tensors have `hasGrad` other than `listed`.
  int64_t numToggled = 0;
  std::vector<int64_t> listedIds;
  std::vector<WorkPart> parts;
  std::vector<WorkSegment> segments;
  int64_t workWeight = 0;

  /// What rows need beside the caller's memory; taken by bind.
  std::vector<StateBlock> tileBlocks;
  WorkspaceNeed workspaceNeed;
  std::unique_ptr<StateBlock> workspaceBlock;
  WorkspaceMemory workspace;

  Rounds rounds;
  Exchange exchange;
  /// The round in which the communicator failed, or -1.
  int64_t failedRound = -1;
  /// Whether groups have changed since they were compared.
  bool groupsUnchecked = false;
  StepcLastStep lastStep = {};
  int64_t numRounds = 0;
  int64_t numSkipped = 0;

  bool inStep = false;
  std::vector<int64_t> steppedIds;
  bool poisoned = false;
  int64_t numSteps = 0;

  /// Where tensors are, and what steps them if that is a device.
  DLDevice place = {kDLCPU, 0};
  std::unique_ptr<cuda::Engine> device;
  cuda::DeviceStep deviceStep;
  /// The cohort of each entry of the list of scalars.
  std::vector<int32_t> deviceCohorts;
  std::vector<cuda::DeviceBlock> deviceStates;
  /// Whether steps have been captured: graphs step tensors without us.
  bool captured = false;
  /// Whether the device may have other counts than the host: of graphs, and of
  /// steps that may be skipped.
  bool countsOnDevice = false;
  /// The same of what rounds change.
  bool valuesOnDevice = false;
  /// Whether the device knows if the last step was skipped.
  bool skipOnDevice = false;
  /// Launches of graphs that did nothing, of which a call has told.
  mutable int64_t staleLaunches = 0;
  /// The same of carried scalars that were stale.
  mutable int64_t staleCarried = 0;

  OverlapChecker overlapChecker;
  /// Whether addresses have changed since all were compared. They change one
  /// by one, so they are compared when the next step needs them.
  bool overlapUnchecked = false;
  size_t numViews = 0;
  int64_t maxRank = 0;
  RowLayout layout;
};

} // namespace stepc

#endif // STEPC_CORE_PLAN_H
