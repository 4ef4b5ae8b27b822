//===- Executor.h - memory and launches of steps on a CUDA device ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step is a list of launches, made of the manifest's schedule: for each
// segment the scalars of its cohorts, then each kernel over the rows of each
// class, then the round; at the end the counts. It is enqueued on the caller's
// stream; nothing waits, allocates, or copies from the host's memory, but where
// states lie in a store (PlacedRun.h). Before it, what the device does not know
// yet is stored there, as arguments of launches.
//
// Whether a step is skipped is decided on the device: all launches that a skip
// concerns look at a word there.
//
// A graph reads lists and memory that a later step may change. What it relies
// on has a version: when it changes, graphs from before do nothing and count
// that, on the device. Their memory is kept.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_EXECUTOR_H
#define STEPC_CUDA_EXECUTOR_H

#include "core/Fault.h"
#include "core/Package.h"
#include "core/Pieces.h"
#include "core/RowList.h"
#include "core/TensorView.h"
#include "cuda/CodedWindows.h"
#include "cuda/HostCalls.h"
#include "cuda/Launcher.h"
#include "cuda/PlacedRun.h"
#include "cuda/RoundList.h"

#include "stepc/cuda.h"
#include "stepc/kernel_abi.h"
#include "stepc/stepc.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace stepc::cuda {

/// The rows of a class that a step takes.
struct ListedRows : RowList {
  size_t rowClass;
  /// Whether it changes what a caller has in a segment, a bit for each.
  uint64_t writes;
  /// Those whose states are codes, window by window; null: none are.
  const CodedWindows *coded;
  /// Whether states of some lie in a store.
  bool placed;
};

/// Entries [begin, end) of the list of scalars are of one variant.
struct ScalarRange {
  size_t variant;
  int64_t begin;
  int64_t end;
};

/// What a step works on, as the host has it.
struct DeviceStep {
  std::vector<ListedRows> rows;
  /// Whether chunks have changed since the last step.
  bool chunksChanged = true;
  /// Arguments of scalar functions, entry by entry.
  std::vector<int64_t> scalars;
  std::vector<ScalarRange> ranges;
  /// Hyper-parameters, bits of doubles, and options of all groups.
  std::vector<int64_t> groups;
  /// What rounds change in each group (ValueLayout), as the host knows it.
  std::vector<int64_t> values;
  RoundInputs rounds;
  /// Carried scalars of all tensors, entry by entry, and whether they are to be
  /// unknown.
  std::vector<int64_t> carried;
  /// What is decoded and encoded, entry by entry.
  std::vector<int64_t> codes;
  bool forgets = false;
  /// Whether other ranks may wait for the rounds of this one, which lists
  /// nothing.
  bool waitedFor = false;
  /// Whether the stream captures a graph.
  bool graph = false;
};

/// Which tensors the rows of a class are, for messages: " for 2 tensors, the
/// first 'w'".
using DescribeRows = std::function<std::string(size_t rowClass)>;

class Executor {
public:
  /// `broken` is set where tensors may have been updated in part.
  Executor(std::shared_ptr<const Package> package,
           const StepcCudaConfig &config, int numThreads, bool &broken);

  int32_t getOrdinal() const { return device->getOrdinal(); }
  const std::shared_ptr<const Device> &getDevice() const { return device; }
  void setStream(void *stream);
  /// What rounds exchange with other ranks; null: there are none.
  void setExchange(Exchange *own);
  bool isCapturing();

  /// Waits for steps that use more than what the driver frees: of several
  /// ranks, or until their communicator has given up, as freeing what they use
  /// would wait without a deadline; and for what the host does in them.
  void waitForOthers() noexcept;

  // Memory; none of it is taken in steps.
  void reserveRows(size_t rowClass, int64_t tableWords, int64_t numChunks,
                   int64_t numFinishes);
  void reserveWorkspace(size_t bytes);
  /// For so many launches beside those of a step without windows.
  void reserveLaunches(size_t numMore) {
    launches.reserve(numOwnLaunches + numMore);
  }
  /// For what is handed over to the host: records of so many rows of a class;
  /// so many bytes of matrices, and of what a routine works in. Whether they
  /// lie elsewhere then.
  bool reserveRecords(size_t rowClass, int64_t numRows);
  bool reserveHanded(size_t bytes, size_t routineBytes, size_t matrices);
  uintptr_t getRecords(size_t rowClass) const {
    return records[rowClass] ? records[rowClass]->getAddress() : 0;
  }
  uintptr_t getHanded() const { return handed ? handed->getAddress() : 0; }
  /// For states that are codes: scratch memory, and entries of so many words.
  void reserveCodes(size_t bytes, size_t words);
  /// What brings states that lie in a store; null: none do.
  void setPlaced(PlacedRun *own) { placed = own; }
  bool hasCodes(int32_t format) const {
    return format <= kCodeFormats &&
           launcher.getModule().getDecode(format).function;
  }
  uintptr_t getCodesScratch() const {
    return codesScratch ? uintptr_t(codesScratch->getAddress()) : 0;
  }
  void reserveCohorts(size_t cohorts, size_t slots);
  void reserveGroups(size_t words);
  void reserveCarried(size_t words);
  /// What rounds need for so many tensors and groups.
  void reserveRounds(size_t tensors, size_t numGroups);
  void reservePieces(size_t numPlaces);
  /// A block of zeros.
  DeviceBlock allocate(size_t size, const std::string &what);
  void write(CUdeviceptr to, const void *from, size_t size);
  /// Whether the address is in memory of the device. Needs no context.
  bool hasMemory(uintptr_t address) const noexcept;
  /// Refuses an address that is not.
  void requireMemory(uintptr_t address, const OperandName &name) const;
  CUdeviceptr getScalars(int32_t cohort) const;
  /// The list of the arguments of scalar functions.
  CUdeviceptr getScalarList() const { return scalars.getAddress(); }
  CUdeviceptr getGroups() const { return groups.getAddress(); }
  /// What rounds change in a group.
  CUdeviceptr getValues(size_t group) const;
  const ValueLayout &getLayout() const { return roundList.getLayout(); }
  bool hasRounds() const { return !package->getManifest().rounds.empty(); }
  bool maySkip() const { return roundList.maySkip(); }

  /// Whether the device has the scalars' list, the groups and their values.
  bool hasScalars(const DeviceStep &step) const;
  /// Stores what the device does not have.
  void upload(DeviceStep &step);
  /// Runs a whole step, and counts it on the device.
  void run(DeviceStep &step, const DescribeRows &describe);
  /// The parts of one, which is not counted on the device.
  void runScalars(DeviceStep &step);
  void runKernels(DeviceStep &step, const DescribeRows &describe);

  // What crosses ranks (ExecutorTransfers.cpp).
  void beginTransfers(bool graph);
  void convert(const ConvertPiece *list, size_t size);
  void addUp(const RowSum &sum);
  /// Calls the communicator with the stream, the context being current; what it
  /// returns. Where that is not `success` the plan goes on no more.
  int32_t callCommunicator(int32_t success,
                           const std::function<int32_t(void *)> &call);

  /// Tells the engine that the device has counted a step in the list, of so
  /// many words.
  void countKnown(size_t words);
  // Reading waits for the stream.
  /// Takes over so many words of the list, or of the groups' values, from the
  /// begin on: the next upload compares with these.
  void takeScalars(int64_t *words, size_t count);
  void takeValues(int64_t *words, size_t count);
  int64_t readWord(CUdeviceptr from);
  /// Reads the words STEPC_STATE_...
  void readState(int64_t *words);

  int64_t getBytes() const;
  /// Of the host, for what is handed over to it.
  int64_t getHostBytes() const;
  int64_t getNumLaunches() const { return launcher.getNumLaunches(); }
  int64_t getNumStores() const { return launcher.getNumStores(); }

private:
  /// What stands between launches without a kernel: the calls of a round, the
  /// only argument; a window of states that is waited for, and is over.
  /// And what the host does of what was handed over, of a class of rows.
  enum class Between : uint8_t { Round, Await, Release, Call };

  /// One launch of a step; `rowClass` is that of its rows, or -1.
  struct Launch {
    const Kernel *kernel;
    int64_t blocks;
    int64_t rowClass;
    int64_t numArguments;
    int64_t arguments[7];
    Between between = Between::Round;
    /// Whether it changes what a caller has.
    bool writes = false;
  };

  // Memory, and what graphs rely on.
  template <typename Block>
  void retire(std::unique_ptr<Block> &block,
              std::vector<std::unique_ptr<Block>> &kept);
  std::unique_ptr<PinnedBlock> takePinned(size_t size, const char *what);
  void replace(std::unique_ptr<PinnedBlock> &block,
               std::unique_ptr<PinnedBlock> newBlock);
  void reserve(Mirror &mirror, size_t words);
  void reserve(std::unique_ptr<DeviceBlock> &block, size_t bytes,
               const char *what);
  void raiseVersion();
  int64_t getWorkspace() const;
  size_t countScratch() const;
  bool movesScalars(const DeviceStep &step);
  bool movesLists(const DeviceStep &step) const;
  void storeChunks(Mirror &list, const StepcChunk *own, int64_t size);
  void storeLists(const DeviceStep &step);
  void forgetCarried(DeviceStep &step);
  void makeRounds(DeviceStep &step);
  // Launches.
  int64_t getState(int64_t word) const;
  int64_t getSkip(bool always = false) const;
  void beginLaunches(bool graph);
  void addScalars(const DeviceStep &step, int64_t segment);
  void addKernels(const DeviceStep &step, int64_t segment);
  void addRows(const ListedRows &rows, int64_t segment);
  void addWindow(const ListedRows &rows, const RowWindow &window,
                 int64_t segment);
  void addCodedWindow(const ListedRows &rows, const RowWindow &window,
                      int64_t segment, size_t number);
  void addEntry(const ListedRows &rows, const RowWindow &window, size_t entry,
                bool writes);
  void addPlaced(const ListedRows &rows, int64_t segment);
  void addCodes(const ListedRows &rows, int64_t segment, size_t window,
                bool encodes);
  void addRound(int64_t round);
  void addPart(const RoundPart &part);
  void addList(const Kernel &kernel, int64_t blocks, int64_t list,
               int64_t begin, int64_t end, int64_t skip);
  void addCarried(const DeviceStep &step, const Kernel &kernel);
  void addAdvance(const DeviceStep &step);
  void enqueue(const DescribeRows &describe);
  void enqueueAll(const DescribeRows &describe, bool &written);
  void enqueueBetween(const Launch &launch, const DescribeRows &describe);
  [[noreturn]] void failPlaced(const Error &error, size_t next, bool changed);
  void enqueueRound(int64_t round);
  bool isSkipped();
  void clearLaunches();
  int64_t getTransferSkip() const;
  void setPiece(const ConvertPiece &piece, int64_t tile);
  void launchPieces(size_t place, size_t count, int64_t tiles);
  template <typename Work>
  void guard(Work &&work);

  std::shared_ptr<const Package> package;
  std::shared_ptr<const Device> device;
  Launcher launcher;
  /// Behind all that frees memory of the device, which waits for what may use
  /// this.
  HostCalls calls;
  /// One for each class, and what all of them hand over.
  std::vector<std::unique_ptr<PinnedBlock>> records;
  std::unique_ptr<PinnedBlock> handed;
  std::vector<std::unique_ptr<PinnedBlock>> retiredPinned;
  Mirror groups{"hyper-parameters"};
  Mirror scalars{"the list of scalars"};
  Mirror carried{"the list of carried scalars"};
  /// Two for each variant, as Plan's classes.
  std::vector<Mirror> tables;
  std::vector<Mirror> chunks;
  std::vector<Mirror> finishes;
  /// One for all launches: those of a class are done before the next one's;
  /// behind so many bytes for blocks of a grid (kernel_abi.h).
  std::unique_ptr<DeviceBlock> workspace;
  size_t scratchBytes = 0;
  /// And for the f32 of states that are codes.
  std::unique_ptr<DeviceBlock> codesScratch;
  Mirror codes{"the list of codes"};
  std::unique_ptr<DeviceBlock> scalarRows;
  size_t scalarSlots = 0;
  RoundList roundList;
  Mirror values{"the values of groups"};
  Mirror roundWords{"the list of rounds"};
  /// What is converted, and as the host has it last.
  Mirror pieces{"the list of what crosses ranks"};
  std::vector<int64_t> pieceWords;
  /// Contributions, while they are combined.
  std::unique_ptr<DeviceBlock> scratch;
  Exchange *exchange = nullptr;
  /// Words that cross ranks beside buffers.
  std::unique_ptr<DeviceBlock> crossing;
  /// STEPC_STATE_WORDS words.
  std::unique_ptr<DeviceBlock> state;
  std::vector<Launch> launches;
  /// How many a step has at most that decodes and encodes nothing.
  size_t numOwnLaunches = 0;
  PlacedRun *placed = nullptr;
  /// Whether launches look at whether the step is skipped.
  bool gated = false;
  bool &broken;

  /// Whether steps have been captured, and this one is.
  bool captured = false;
  bool capturing = false;
  /// Whether a step that is captured has begun, to bring what it needs.
  bool begun = false;
  /// Of what graphs rely on.
  int64_t version = 0;
  std::vector<size_t> listedClasses;
  /// Memory that graphs may still name.
  std::vector<std::unique_ptr<DeviceBlock>> retired;
};

/// Runs what enqueues or waits. An error that ends the context, or the
/// communicator, leaves tensors in an unknown state: earlier steps may not have
/// come to their ends.
template <typename Work>
void Executor::guard(Work &&work) {
  try {
    ContextScope scope(*device);
    work();
  } catch (const DriverError &error) {
    broken |= isFatal(error.getResult()) && !STEPC_FAULT("device-lives-on");
    throw;
  } catch (const Error &error) {
    broken |= error.getStatus() == STEPC_COMMUNICATION_ERROR &&
              !STEPC_FAULT("device-goes-on-without-ranks");
    throw;
  }
}

} // namespace stepc::cuda

#endif // STEPC_CUDA_EXECUTOR_H
