//===- Engine.h - what steps the tensors of a plan ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A plan knows what is bound and when a step is counted; its engine has the
// memory, knows the code, and runs the entries of the schedules, with the
// rounds between them: on threads of the processor (cpu/Engine.h), or on the
// stream of a CUDA device (cuda/Engine.h). One call of an engine is a whole
// step, or all of the tensors that are stepped together, never one of them.
//
// What throws has changed nothing, but where it says so.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_ENGINE_H
#define STEPC_CORE_ENGINE_H

#include "core/Memory.h"
#include "core/Model.h"
#include "core/Pieces.h"

#include "stepc/stepc.h"

#include <functional>
#include <memory>
#include <string>

namespace stepc {

/// Buffers that are not live, for whom and of what size.
struct WorkspaceNeed {
  /// Of rows that one worker takes: the largest, and all together.
  int64_t largest = 0;
  int64_t total = 0;
  /// The largest of a row that all workers share.
  int64_t shared = 0;
  /// The largest piece of a tensor with states in a store; 0: there is none.
  int64_t piece = 0;
  /// What of all tensors lies there.
  int64_t placedTotal = 0;
  /// Where rows are worked on together, the f32 of states that are codes: of
  /// what is worked on at once the largest, and of all; and how many there are.
  int64_t codedLargest = 0;
  int64_t codedTotal = 0;
  int64_t codedStates = 0;
  /// There, too, what is handed over to the host: of all rows, how many
  /// matrices a call has of these, and the most that the routines of a tensor
  /// work in.
  int64_t handedTotal = 0;
  int64_t handedMatrices = 0;
  int64_t routine = 0;
};

/// Who is told of what the caller's own thread runs.
struct StepTrace {
  StepcTrace function = nullptr;
  void *user = nullptr;
};

/// What has become of a step, as the host knows it.
struct StepOutcome {
  enum class Kind : uint8_t {
    Stepped,
    Skipped,
    /// Whether it was skipped the device alone knows.
    Undecided,
    /// Nothing has happened: a graph was captured, which will step.
    Captured
  };

  Kind kind = Kind::Stepped;
  int32_t skippedRound = -1;
};

/// What a call changes that an engine may know better than the model.
enum class Change : uint8_t { Counts, Values, All };

class Engine {
public:
  explicit Engine(Model &model) : model(model) {}
  virtual ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  /// Whether tensors may have been updated in part. Asked in each call.
  bool isBroken() const { return broken; }

  virtual DLDevice getPlace() const = 0;
  /// "the cpu", "CUDA device 0".
  virtual std::string getName() const = 0;

  // Binding.

  /// Refuses to bind where there is no code for it.
  virtual void requireCode() const {}
  virtual void setMesh(Mesh &&mesh);
  /// A block of zeros; messages say `what` they are.
  virtual Memory allocate(size_t bytes, const std::string &what) = 0;
  /// Sets the elements of a state to its initial value.
  virtual void fill(uintptr_t address, int64_t elements,
                    const Operand &state) = 0;
  /// Whether it has code for states that are codes of a format.
  virtual bool hasCodes(const CodeFormat &) const { return true; }
  /// Makes all of a state what encodes a number.
  virtual void fillCodes(const StateCodes &codes, double value);
  /// Whether the address is in memory that steps can use.
  virtual bool hasMemory(uintptr_t address) const noexcept;
  /// Refuses one that is not.
  virtual void requireMemory(uintptr_t address, const OperandName &name) const;
  /// Told of memory of the caller that steps will use again and again.
  virtual void advise(uintptr_t address, size_t bytes) const noexcept;

  // Memory for what a call is going to add; what runs out midway has made lists
  // longer and nothing else.

  /// For so many groups like this one.
  virtual void reserveGroups(size_t numGroups, const Group &like);
  virtual void reserveTensors(size_t numTensors);
  virtual void reserveRows(size_t rowClass);
  virtual void reserveWorkspace(const WorkspaceNeed &need) = 0;
  /// For so many places of pieces that are converted.
  virtual void reservePieces(size_t numPlaces);
  /// The tensors are bound for which it was reserved.
  virtual void commit() noexcept = 0;
  /// And the call is over.
  virtual void endBind() noexcept {}

  /// Before a call that changes the model: it takes over what the engine alone
  /// knows.
  virtual void beginChange(const char *call, Change change);
  /// Makes carried scalars unknown of tensors [first, end).
  virtual void forgetCarried(size_t first, size_t end) noexcept = 0;

  // Steps.

  /// Refuses a whole step, the begin of one in parts, or an upload. They may
  /// have poisoned the plan where they throw.
  virtual void requireStep() {}
  virtual void requireParts() {}
  virtual void requireUpload();
  /// Before cohorts are formed anew.
  virtual void takeCounts() {}
  /// Where the rows of scalars lie, of as many bytes as the cohorts' on the
  /// host.
  virtual uintptr_t getScalarRows() const noexcept = 0;
  /// The classes have other lists.
  virtual void listsChanged() noexcept = 0;
  /// Makes ready what a whole step begins with, behind the lists.
  virtual void prepare() = 0;
  /// Runs it: all segments, and the rounds between them; `some`: whether
  /// anything takes part here or anywhere.
  virtual StepOutcome run(bool some) = 0;
  /// When it is counted.
  virtual void endStep() {}
  /// The same of one in parts: for tensors without a gradient, too, and then of
  /// those that are listed.
  virtual void beginParts() = 0;
  virtual void runParts() = 0;
  /// What is of the whole step in parts, behind the last.
  virtual void finishParts() {}

  /// Work that is cut evenly: share(context, index, count) for each index below
  /// `count`.
  using Share = void (*)(void *context, int index, int count);
  /// Runs it on as many threads as so many bytes are worth, in the float mode
  /// of kernels. No share throws, and no result depends on the count.
  virtual void runShares(int64_t bytes, Share share, void *context) noexcept;

  // What crosses ranks, behind all that was asked for before.

  /// Whether tensors are stepped together even where parts are permitted.
  virtual bool stepsWhole() const { return false; }
  /// Begins a whole step that brings gradients, when it is made ready.
  virtual void beginTransfers() {}
  /// The pieces write nothing that another one reads.
  virtual void convert(const ConvertPiece *pieces, size_t size);
  virtual void addUp(const RowSum &sum);
  /// Starts a transfer by the communicator, and ends it: the target may be read
  /// by what is asked for next. They return what the communicator does.
  virtual int32_t startTransfer(const StepcCommunicator &communicator,
                                const StepcTransfer &transfer, void **outWork,
                                char *message, size_t messageSize);
  virtual int32_t finishTransfer(const StepcCommunicator &communicator,
                                 void *work, char *message, size_t messageSize);

  /// The tensors are in an unknown state from now on.
  void poison() noexcept { broken = true; }

  // Calls that only one kind of engine knows.

  virtual void setTrace(const StepTrace &trace) noexcept;
  virtual void setStream(void *stream);
  /// Stores what the next step needs.
  virtual void upload() {}

  // What steps have left.

  virtual int64_t getCount(int64_t id) const;
  /// A result of rounds, or a scalar behind them.
  virtual double getResult(int64_t group, size_t index) const;
  /// Whether slots can be read now.
  virtual bool hasSlots() const { return true; }
  virtual double getSlot(const BoundTensor &tensor, size_t slot) const = 0;
  /// Adds what the host did not know of the last step.
  virtual void completeLastStep(StepcLastStep &) const {}
  /// Adds what the engine counts; `memory`: the bytes of all blocks that it has
  /// given out.
  virtual void addInfo(StepcPlanInfo &info, int64_t memory) const = 0;

protected:
  Model &model;
  bool broken = false;
};

using MakeEngine = std::function<std::unique_ptr<Engine>(Model &)>;

/// Throws for a tensor whose carried scalar was `known` and is `now`.
[[noreturn]] void failCarried(const Model &model, size_t tensor, double known,
                              double now);

/// Refuses a count that cannot be raised.
void requireSteppable(const CohortKey &key);

} // namespace stepc

#endif // STEPC_CORE_ENGINE_H
