//===- Engine.h - steps tensors on a CUDA device ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cohorts, rows and chunks are those of the processor, with addresses of the
// device. A step lists what the device works on (EngineLists.cpp), and the
// executor stores there what has changed and enqueues the launches.
//
// Counts of steps that were captured or that may be skipped, and what rounds
// compute, are the device's: steps do not wait for them. Whoever asks waits for
// the stream; whoever changes them takes them over first, and the next step or
// upload tells the device what differs (EngineRead.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_ENGINE_H
#define STEPC_CUDA_ENGINE_H

#include "core/Engine.h"
#include "core/Plan.h"
#include "cuda/Executor.h"
#include "stepc/cuda.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc::cuda {

class Engine : public stepc::Engine {
public:
  /// Of a model without tensors, whose rows are worked on together from then
  /// on.
  Engine(Model &model, const StepcCudaConfig &config);
  ~Engine() override;

  DLDevice getPlace() const override {
    return {kDLCUDA, executor.getOrdinal()};
  }
  std::string getName() const override;

  void setMesh(Mesh &&mesh) override;
  Memory allocate(size_t bytes, const std::string &what) override;
  void fill(uintptr_t address, int64_t elements, const Operand &state) override;
  bool hasCodes(const CodeFormat &format) const override {
    return executor.hasCodes(format.number);
  }
  void fillCodes(const StateCodes &codes, double value) override;
  bool hasMemory(uintptr_t address) const noexcept override;
  void requireMemory(uintptr_t address, const OperandName &name) const override;
  void reserveGroups(size_t numGroups, const Group &like) override;
  void reserveTensors(size_t numTensors) override;
  void reserveRows(size_t rowClass) override;
  void reserveWorkspace(const WorkspaceNeed &need) override;
  void reservePieces(size_t numPlaces) override {
    executor.reservePieces(numPlaces);
  }
  void commit() noexcept override;
  void beginChange(const char *call, Change change) override;
  void forgetCarried(size_t first, size_t end) noexcept override;

  void requireStep() override;
  void requireParts() override;
  void requireUpload() override;
  void takeCounts() override;
  uintptr_t getScalarRows() const noexcept override;
  void listsChanged() noexcept override { step.chunksChanged = true; }
  void prepare() override { list(/*activeOnly=*/true); }
  StepOutcome run(bool some) override;
  void beginParts() override;
  void runParts() override;

  bool stepsWhole() const override { return capturing || captured; }
  void beginTransfers() override;
  void convert(const ConvertPiece *pieces, size_t size) override {
    executor.convert(pieces, size);
  }
  void addUp(const RowSum &sum) override { executor.addUp(sum); }
  int32_t startTransfer(const StepcCommunicator &communicator,
                        const StepcTransfer &transfer, void **outWork,
                        char *message, size_t messageSize) override;
  int32_t finishTransfer(const StepcCommunicator &communicator, void *work,
                         char *message, size_t messageSize) override;

  void setStream(void *stream) override { executor.setStream(stream); }
  void upload() override;

  int64_t getCount(int64_t id) const override;
  double getResult(int64_t group, size_t index) const override;
  bool hasSlots() const override { return !broken && !executor.isCapturing(); }
  double getSlot(const BoundTensor &tensor, size_t slot) const override;
  void completeLastStep(StepcLastStep &last) const override;
  void addInfo(StepcPlanInfo &info, int64_t memory) const override;

private:
  void requireNoCapture(const char *call);
  void reserveRounds(size_t numTensors, size_t numGroups);
  void reserveCodes();
  void placeHanded() noexcept;
  int64_t countWindows() const;
  size_t countCodesOfPieces() const;
  size_t countCarriedWords(size_t numTensors) const;
  bool listsAreStored() const;
  void leaveToDevice();
  void requireTold() const;
  std::string describeRows(size_t rowClass) const;

  // EngineLists.cpp
  void list(bool activeOnly);
  void listRows();
  void findCodes(ListedRows &rows, const RowList &whole);
  uint64_t getWrites(size_t variant) const;
  void listCodes(ListedRows &rows);
  void listPlaced(ListedRows &rows);
  void listScalars(bool activeOnly);
  void listFollowed(bool activeOnly);
  void listGroups();
  void listValues();
  void listRounds();
  void listIdleBuffers();
  void listCarried();

  // EngineRead.cpp
  void requireReadable(const char *what) const;
  void tellStale() const;
  void takeValues();

  /// Blocks that were given out and are gone, where graphs may name them.
  struct Retired {
    bool keeps = false;
    std::vector<std::unique_ptr<DeviceBlock>> blocks;
    void take(DeviceBlock *block) noexcept;
  };
  std::shared_ptr<Retired> retired = std::make_shared<Retired>();
  /// Asking the device waits for it, and changes nothing that a caller knows.
  mutable Executor executor;
  DeviceStep step;
  /// One for each class, where some state is codes, and what they need.
  std::vector<CodedWindows> coded;
  PlacedRun placed;
  WorkspaceNeed need;
  /// The cohort of each entry of the list of scalars; -1 - id for a tensor that
  /// another rank steps, whose steps the device counts.
  std::vector<int32_t> listedCohorts;
  /// Whether the stream captures the step under way.
  bool capturing = false;
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
};

/// What stepcPlanSetCuda does.
void setEngine(Plan &plan, const StepcCudaConfig &config);

} // namespace stepc::cuda

#endif // STEPC_CUDA_ENGINE_H
