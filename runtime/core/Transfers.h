//===- Transfers.h - gradients that come, parameters that leave ---===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tensors that were bound with an entry share buckets. A step packs the
// gradients of a bucket, has them cross ranks, and adds them up where kernels
// read them; behind it the ranks put the parameters together again, in units of
// one bucket, several, or a piece of one.
//
// All of it is a list of events, made when tensors are bound, in an order that
// all ranks of a group have: what starts a transfer stands at one place of it,
// whenever gradients come. With two buckets under way at most and parts of a
// step permitted, four buckets are
//
//   start 0, start 1, land 0, gather 0, start 2, land 1, gather 1, start 3, ...
//
// where a bucket is stepped as it lands. Where parts are not permitted all land
// first, the step is one, and then all are gathered.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CORE_TRANSFERS_H
#define STEPC_CORE_TRANSFERS_H

#include "core/Cuts.h"
#include "core/Engine.h"
#include "core/EntryTerms.h"
#include "core/Fault.h"
#include "core/Memory.h"
#include "core/TensorView.h"

#include <cstdint>
#include <string>
#include <vector>

namespace stepc {

/// Elements [first, last) of a tensor lie from `at` on in something else.
struct Piece {
  int64_t first;
  int64_t last;
  int64_t at;
};

/// A tensor that was bound with an entry: the caller's, and which part of it
/// this rank steps.
struct EntryTensor {
  int64_t id = -1;
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  int64_t elements = 0;
  /// Of one with states that are kept as codes, the elements of a row: it is
  /// cut where blocks of these begin. 0: anywhere.
  int64_t codedColumns = 0;
  /// Of one that is owned: what a step of it costs, and the place along
  /// wholeAxes of its owner; -1: one that is chosen.
  double cost = 0.0;
  int64_t owner = -1;
  /// Over the ranks along wholeAxes.
  Cuts cuts;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t ownElements = 0;
  size_t bucket = 0;
  /// The caller's.
  uintptr_t param = 0;
  uintptr_t grad = 0;
  Storage gradType = Storage::F32;
  bool hasGrad = false;
  /// Where the sum of the part comes to lie; 0: nowhere, the gradient is read
  /// where the caller has it.
  uintptr_t landing = 0;
  /// Where its elements are in what the bucket packs, and the place of the
  /// first piece.
  std::vector<Piece> pieces;
  size_t place = 0;
  /// Whether another rank owns it: this one has no state of it, nor steps it.
  bool elsewhere = false;
  /// Whether it is gathered where it lies, side by side with others.
  bool beside = false;
  /// Whether backward passes have brought gradients of it, which landed.
  bool landed = false;

  // Of the step under way.

  /// Whether its gradient has come, and whether it has been packed.
  bool ready = false;
  bool packed = false;
  /// Whether it has been stepped before its bucket landed.
  bool stepped = false;
  /// Whether this rank is to have no gradient of it.
  bool absent = false;
};

/// Ranks that exchange pieces of one line of elements.
struct TransferStage {
  /// Of the group that are wider than one rank; none: nothing crosses.
  uint64_t axes = 0;
  int64_t size = 1;
  int64_t rank = 0;
  /// Where the pieces of the ranks begin, and where the last ends.
  Cuts line;
  /// In bytes as they cross: what goes to each rank, and comes from each.
  std::vector<int64_t> sent, received;

  int64_t getOwn() const { return line[size_t(rank) + 1] - line[size_t(rank)]; }
};

/// Invariant: its members are of the same terms.
struct TransferBucket {
  EntryTerms terms;
  /// Indices of entry tensors, in the order of their ids.
  std::vector<size_t> members;
  /// Where addends are brought to who steps them, and where all get the sum.
  /// Either may have no line.
  TransferStage scatter, reduce;
  /// Of the sums, in bytes.
  std::vector<int64_t> summed;
  /// What this rank steps of it, side by side.
  int64_t ownElements = 0;
  uintptr_t landing = 0;
  /// Whether backward passes have brought any of it.
  bool landed = false;
  /// Of what the second stage sends.
  size_t place = 0;

  // Of the step under way.

  size_t numReady = 0;
  bool takesPart = false;
  /// Whether it is behind where it lands.
  bool done = false;
  /// Whether a rank has given it up, so that nobody steps it.
  bool givenUp = false;
  /// Where it is packed, from the first gradient until all have landed: one of
  /// the memories for what is sent; 0: nowhere.
  uintptr_t send = 0;
  void *work = nullptr;

  bool scatters() const { return !scatter.line.empty(); }
  bool reduces() const { return !reduce.line.empty(); }
  bool crosses() const { return scatters() || reduces(); }
  const TransferStage &getFirst() const {
    return scatters() ? scatter : reduce;
  }
  /// Of what is packed; 0: nothing is.
  size_t getSendBytes() const;
  int64_t countElements(const std::vector<EntryTensor> &tensors) const;
};

struct GatherSegment {
  size_t tensor;
  /// `at` in bytes.
  Piece piece;
};

/// Parameters that are gathered together.
struct GatherUnit {
  std::vector<size_t> buckets;
  uint64_t axes = 0;
  size_t rank = 0;
  /// What this rank has stepped, and what others have.
  std::vector<GatherSegment> own, others;
  /// Of the pieces: first its own.
  size_t place = 0;
  std::vector<int64_t> received;
  int64_t ownAt = 0;
  int64_t bytes = 0;
  /// What is gathered lies as it crosses: it is put together where it is.
  bool inPlace = false;

  // Of the step under way.
  void *work = nullptr;
};

struct TransferEvent {
  enum class Kind : uint8_t {
    Start,  ///< of a bucket, when all of it is ready
    Land,   ///< and is where kernels read it
    Gather, ///< of a unit, when it is stepped
    Place   ///< and is where the caller has it
  };

  Kind kind;
  size_t index;
  /// Which of the memories for what is received.
  size_t slot;
};

/// Memories of one size for what buckets send, each for one after the other.
/// There are as many as cross at a time. A gradient that comes long before its
/// bucket's turn takes one more.
struct SendPool {
  size_t size = 0;
  std::vector<Memory> memory;
  /// Those that no bucket has.
  std::vector<uintptr_t> free;
};

/// Memories, each for one thing after the other.
struct TransferRing {
  std::vector<size_t> sizes;
  std::vector<Memory> memory;
};

/// What one call binds, until it is certain.
struct NewTransfers {
  std::vector<EntryTensor> tensors;
  std::vector<TransferBucket> buckets;
  std::vector<GatherUnit> units;
  std::vector<TransferEvent> events;
  size_t beginGive = 0;
  /// Of pieces, with those of calls before.
  size_t numPlaces = 0;
  TransferRing receive, gather;
  SendPool sends;
  /// For the second stage of a bucket with two.
  Memory scratch;
  std::vector<Memory> blocks;
  Owners owners;
};

/// How much crosses at a time: bytes of a bucket, as they cross, and how many
/// are under way.
struct BucketSizes {
  int64_t gradients = int64_t(25) << 20;
  int64_t parameters = int64_t(25) << 20;
  int64_t underWay = 4;
};

/// Checks what stepcPlanSetBuckets was given; 0: the default.
BucketSizes makeBucketSizes(int64_t gradients, int64_t parameters,
                            int64_t underWay);

/// Puts tensors of these terms, whose ids follow each other, into buckets, and
/// cuts them. `before`: what ranks own already; `firstBucket`: how many buckets
/// there are.
NewTransfers cutTensors(const Mesh &mesh, BucketSizes bytes,
                        const Owners &before, size_t firstBucket,
                        std::vector<EntryTensor> created,
                        const std::vector<EntryTerms> &terms);

/// Units of the buckets that one call makes, of at most so many bytes; tensors
/// and buckets are counted from these on.
std::vector<GatherUnit> makeGatherUnits(const Mesh &mesh,
                                        const NewTransfers &made,
                                        size_t firstTensor, size_t firstBucket,
                                        int64_t most);

/// The parameter as the caller has it, or the gradient.
View makeEntryView(const EntryTensor &tensor, const EntryTerms &terms,
                   bool isGrad);

/// Where what is gathered would begin, were all of it to lie as this segment
/// does.
inline uintptr_t getGatherBase(const EntryTensor &tensor,
                               const GatherSegment &segment, Storage param) {
  return tensor.param + uintptr_t(segment.piece.first * getByteSize(param)) -
         uintptr_t(segment.piece.at);
}

/// Who steps what has come.
class BucketStepper {
public:
  virtual ~BucketStepper() = default;
  /// Before it is waited for the first time.
  virtual void beforeWait() = 0;
  virtual void stepBucket(const TransferBucket &bucket) = 0;
};

class Transfers {
public:
  /// `exchange` has the mesh; outlives this.
  Transfers(const Manifest &manifest, const Exchange &exchange);

  void setBuckets(BucketSizes bytes) { bucketSizes = bytes; }
  /// Has sums of buckets that are bound from now on lie in one memory, where
  /// each is stepped before the next lands.
  void shareSums() { sumsShared = parts; }
  bool sharesSums() const { return sumsShared; }

  // Binding.

  /// Cuts tensors of these terms, whose ids follow each other, and takes memory
  /// for what crosses.
  NewTransfers prepare(std::vector<EntryTensor> created,
                       const std::vector<EntryTerms> &terms,
                       const TakeMemory &take);
  /// Takes the room that commit() needs.
  void reserve(const NewTransfers &made);
  void commit(NewTransfers &&made) noexcept;

  bool any() const { return !tensors.empty(); }
  std::vector<EntryTensor> &getTensors() { return tensors; }
  const std::vector<EntryTensor> &getTensors() const { return tensors; }
  const TransferBucket &getBucket(size_t index) const { return buckets[index]; }
  const EntryTerms &getTerms(const EntryTensor &tensor) const {
    return buckets[tensor.bucket].terms;
  }
  /// Whether buckets may be stepped as they land.
  bool permitsParts() const { return parts; }
  /// Whether one may be while others cross.
  bool overlaps() const {
    return bucketSizes.underWay > 1 && buckets.size() > 1;
  }

  // A step, or a backward pass ahead of it. What passes bring is added up where
  // it lands, and every step takes it until it is forgotten.

  /// `allTogether`: no bucket is stepped as it lands; `ranksTell`: as one lands
  /// the ranks tell each other which of its gradients there are.
  void begin(bool isPass, bool allTogether, bool ranksTell = false) noexcept;
  /// Takes the memory that packing these tensors needs.
  void reserveSends(const std::vector<size_t> &list, const TakeMemory &take);
  /// And what the end of a pass needs.
  void reserveRest(const TakeMemory &take);
  /// The gradient of a tensor has come; it is packed by pack(), or when its
  /// bucket starts.
  void setReady(size_t tensor) noexcept;
  /// There will be none of it here.
  void setAbsent(size_t tensor) noexcept;
  /// What is not ready takes no part.
  void closeAll() noexcept;
  /// Packs tensors that are ready, and brings gradients as far as buckets are.
  /// Throws STEPC_COMMUNICATION_ERROR; then nothing is under way any more.
  void bring(Engine &engine, BucketStepper &stepper, const size_t *list,
             size_t count);
  /// Whether the step under way finds out which gradients there are.
  bool tells() const { return telling; }
  /// The gradients of this rank that have not come will not.
  void giveUp() noexcept;
  /// Whether a rank has done so, and whether it was this one.
  bool isGivenUp() const { return givenUpBy >= 0; }
  bool hasGivenUp() const { return gaveUp; }
  std::string describeWhoGaveUp() const;
  /// Whether of what was given up some ranks may have stepped tensors.
  bool mayHaveHalfStepped() const;
  /// What has been brought stays until forget().
  void endPass() noexcept;
  void forget() noexcept;
  /// What passes have brought to tensors that are the same. Refuses others.
  void takeLanded(const Transfers &from, Engine &engine);
  /// Takes back what was counted of calls since the step began.
  void uncount() noexcept;
  /// And gives parameters away, where no part has done so.
  void give(Engine &engine, BucketStepper &stepper);
  /// Waits for all that is under way, whatever comes of it.
  void abandon(Engine &engine) noexcept;

  /// Whether the communicator has failed, so that memory for what crosses may
  /// still be written.
  bool isStale() const { return stale; }
  /// Takes other memory in its place; where sums land moves, too.
  void renew(const TakeMemory &take);

  int64_t getNumCalls() const { return numCalls; }
  int64_t getNumBytes() const { return numBytes; }
  size_t getBytes() const;
  /// Of the memory for what crosses.
  size_t getBufferBytes() const;

private:
  // TransferBind.cpp
  const Mesh &getMesh() const;
  void place(TransferBucket &bucket, std::vector<EntryTensor> &created) const;
  void addEvents(NewTransfers &made) const;
  void addPlaces(NewTransfers &made) const;
  SendPool makeSends(const NewTransfers &made, const TakeMemory &take) const;
  void growSends(size_t needed, const TakeMemory &take);
  void takeMemory(NewTransfers &made, const TakeMemory &take) const;

  /// What a message is about; a step makes words of it only when it fails.
  struct Subject {
    const TransferBucket &bucket;
    const char *what;
  };

  // TransferPass.cpp
  void requireLike(const Transfers &from) const;

  // TransferTell.cpp
  void tellGradients(TransferBucket &bucket);

  // TransferStep.cpp
  void run(size_t end, Engine &engine, BucketStepper &stepper);
  void start(const TransferEvent &event, Engine &engine);
  void takeSend(TransferBucket &bucket) noexcept;
  void freeSend(TransferBucket &bucket) noexcept;
  void addPieces(EntryTensor &tensor);
  void pack(Engine &engine, const size_t *list, size_t count);
  void packRest(TransferBucket &bucket, Engine &engine);
  void copy(const GatherUnit &unit, uintptr_t memory, bool out, Engine &engine);
  void sum(const TransferStage &stage, uintptr_t rows, uintptr_t target,
           const EntryTerms &terms, double divisor, bool adds, Engine &engine);
  void land(const TransferEvent &event, Engine &engine);
  void reduceAgain(TransferBucket &bucket, Engine &engine);
  void shareSum(TransferBucket &bucket, Engine &engine);
  /// Whether gradients of it cross now, and are added to what has landed.
  bool isBrought(const TransferBucket &bucket) const {
    return bucket.takesPart && (pass || !bucket.landed);
  }
  bool addsUp(const TransferBucket &bucket) const {
    return bucket.landed && !STEPC_FAULT("transfer-forgets-a-pass");
  }
  void gather(const TransferEvent &event, Engine &engine);
  void place(const TransferEvent &event, Engine &engine);
  bool takesPart(const GatherUnit &unit) const;
  uintptr_t getMemory(const GatherUnit &unit, size_t slot) const;
  void startAllToAll(const TransferBucket &bucket, const TransferStage &stage,
                     uintptr_t send, uintptr_t receive, void *&work,
                     Engine &engine);

  // TransferCalls.cpp
  void start(const StepcTransfer &transfer, int64_t bytes, void *&work,
             const Subject &subject, Engine &engine);
  void finish(void *&work, const Subject &subject, Engine &engine);
  void tell(uint64_t axes, const TransferBucket &bucket);
  std::string describe(const Subject &subject) const;
  template <typename Call>
  void callCommunicator(Call &&call, const Subject &subject);
  void keepMemory() noexcept;

  const Exchange &exchange;
  /// Whether the definition permits to step some tensors before others.
  bool parts;
  bool sumsShared = false;
  BucketSizes bucketSizes;

  std::vector<EntryTensor> tensors;
  std::vector<TransferBucket> buckets;
  std::vector<GatherUnit> units;
  std::vector<TransferEvent> events;
  /// The first event behind the step, where parts are not permitted.
  size_t beginGive = 0;
  TransferRing receiveRing, gatherRing;
  SendPool sends;
  Memory scratch;
  std::vector<Memory> blocks;
  Owners owners;

  /// The first event that is not done.
  size_t next = 0;
  /// Whether what is under way is a backward pass.
  bool pass = false;
  /// Whether all buckets land before any is stepped, where parts are permitted:
  /// then the events are gone through twice.
  bool together = false;
  bool giving = false;
  bool telling = false;
  /// Who has given up gradients, among the ranks along these axes; -1: nobody.
  int64_t givenUpBy = -1;
  uint64_t givenUpOver = 0;
  bool gaveUp = false;
  /// What ranks tell each other of a bucket; there is memory for all.
  std::vector<int64_t> told;
  int64_t callsBefore = 0, bytesBefore = 0;
  size_t numPlaces = 0;
  /// What is to be packed or copied; there is memory for all.
  std::vector<ConvertPiece> converting;
  int64_t numCalls = 0;
  int64_t numBytes = 0;
  /// Whether the communicator has failed since memory was kept for it; and
  /// whether what was kept is still in use here.
  bool failed = false;
  bool stale = false;
  char message[1024] = "";
  /// Stands for work of which the communicator has made nothing.
  char started = 0;
};

} // namespace stepc

#endif // STEPC_CORE_TRANSFERS_H
