//===- Engine.h - steps tensors on the processor ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of a step it makes work for threads (cpu/Workers.h): of each segment the
// chunks that the classes list, with the entries of their schedules. Rounds are
// run between two segments by one thread while the others wait.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CPU_ENGINE_H
#define STEPC_CPU_ENGINE_H

#include "core/Engine.h"
#include "core/Status.h"
#include "cpu/Carried.h"
#include "cpu/Code.h"
#include "cpu/PlacedRun.h"
#include "cpu/RoundRun.h"
#include "cpu/StateArena.h"
#include "cpu/Workers.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc::cpu {

class Engine : public stepc::Engine, private RoundRunner {
public:
  Engine(Model &model, std::shared_ptr<const Code> code);

  DLDevice getPlace() const override { return {kDLCPU, 0}; }
  std::string getName() const override { return "the cpu"; }

  void requireCode() const override { code->requireThere(); }
  Memory allocate(size_t bytes, const std::string &what) override;
  void fill(uintptr_t address, int64_t elements, const Operand &state) override;
  void advise(uintptr_t address, size_t bytes) const noexcept override;
  void reserveWorkspace(const WorkspaceNeed &need) override;
  void commit() noexcept override;
  void endBind() noexcept override { workers.startThreads(); }
  void forgetCarried(size_t first, size_t end) noexcept override;

  uintptr_t getScalarRows() const noexcept override;
  void listsChanged() noexcept override;
  void prepare() override { fillScalars(0, /*activeOnly=*/true); }
  StepOutcome run(bool some) override;
  void endStep() override;
  void beginParts() override { fillScalars(0, /*activeOnly=*/false); }
  void runParts() override { runListed(); }
  void finishParts() override { encodeShared(); }
  void runShares(int64_t bytes, Share share, void *context) noexcept override {
    workers.runShares(bytes, share, context);
  }

  void setTrace(const StepTrace &own) noexcept override { trace = own; }
  double getSlot(const BoundTensor &tensor, size_t slot) const override;
  void addInfo(StepcPlanInfo &info, int64_t memory) const override;

private:
  void listPart(int64_t segment, size_t rowClass, int64_t &line) noexcept;
  // EngineStep.cpp
  void fillScalars(int64_t segment, bool activeOnly);
  void runListed();
  bool runSegments(const StepWork &work);
  [[noreturn]] void failPlaced(const Error &error, bool crossed);
  [[noreturn]] void failMidway();
  [[noreturn]] void failWithOthers(const Error &error);
  bool runRound(int64_t round) override;
  void addContributions(int64_t round);
  bool exchangeRound(int64_t round);
  void encodeShared();

  std::shared_ptr<const Code> code;
  Workers workers;
  RoundRun rounds;
  CarriedCheck carried;
  PlacedRun placed;
  StepTrace trace;

  std::vector<WorkPart> parts;
  std::vector<WorkSegment> segments;
  int64_t workWeight = 0;
  WorkspaceMemory workspace;
  std::unique_ptr<StateBlock> workspaceBlock;
  /// What a call of bind has reserved.
  WorkspaceMemory newWorkspace;
  std::unique_ptr<StateBlock> newWorkspaceBlock;

  StepOutcome outcome;
  /// The round in which the communicator failed, or -1.
  int64_t failedRound = -1;
};

} // namespace stepc::cpu

#endif // STEPC_CPU_ENGINE_H
