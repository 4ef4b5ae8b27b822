//===- Communicators.h - communicators of NCCL, with a deadline ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NCCL makes and ends communicators, and puts groups of calls on a stream, in
// threads of its own, when they are not blocking; the caller asks until it is
// done. So nothing here waits for other ranks longer than the deadline.
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NCCL_COMMUNICATORS_H
#define STEPC_NCCL_COMMUNICATORS_H

#include "comm/Deadline.h"
#include "core/Status.h"
#include "cuda/Device.h"
#include "nccl/Nccl.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc::nccl {

/// The communicators that a rank has made. The device's context is current in
/// all calls but the last two.
class Communicators {
public:
  Communicators(std::shared_ptr<const cuda::Device> device,
                std::chrono::milliseconds deadline);
  /// Aborts what was not finished.
  ~Communicators() { abort(); }
  Communicators(const Communicators &) = delete;
  Communicators &operator=(const Communicators &) = delete;

  const NcclTable &getTable() const { return nccl; }
  std::chrono::milliseconds getLength() const { return length; }

  /// With all ranks that have the identifier.
  ncclComm_t init(int numRanks, const ncclUniqueId &id, int rank);
  /// With the ranks of `parent` that give the same color; `what` it is for:
  /// "axes [0]". Where the parent is a blocking one of the caller's, this waits
  /// for all its ranks.
  ncclComm_t split(ncclComm_t parent, int color, int key,
                   const std::string &what);

  /// Waits until nothing of the communicator is in progress; throws where it
  /// reports an error. `describe()` says what may be: "ncclGroupEnd of ...".
  template <typename Describe>
  void requireReady(ncclComm_t comm, const Deadline &deadline,
                    Describe &&describe) const;
  /// Throws where one of them reports an error that other ranks or the network
  /// have made.
  void requireSound() const;

  /// Frees all of them, together with the other ranks. False where that did not
  /// come to its end within the deadline or failed.
  bool finish() noexcept;
  /// Ends their work on the device, and frees them. NCCL waits for captured
  /// graphs that have such work to be destroyed; this does not, but leaves a
  /// thread that does.
  void abort() noexcept;

private:
  /// Where NCCL writes a handle when it has made the communicator, in a thread
  /// of its own. That, and what aborts it, may outlast this object.
  struct Slot {
    ncclComm_t comm = nullptr;
    /// Of one that NCCL may write for ever.
    std::shared_ptr<Slot> self;
  };
  using SlotPtr = std::shared_ptr<Slot>;
  struct Aborts;

  static void abortOne(const NcclTable &nccl, const cuda::Device &device,
                       ncclComm_t comm) noexcept;
  /// What NCCL reports of a communicator, ncclInProgress and errors included.
  ncclResult_t getState(ncclComm_t comm) const;

  std::shared_ptr<const cuda::Device> device;
  const NcclTable &nccl;
  std::chrono::milliseconds length;
  std::vector<SlotPtr> slots;
  /// The one that a split is about to write, and of which communicator.
  SlotPtr unborn;
  ncclComm_t unbornParent = nullptr;
  std::shared_ptr<Aborts> aborts;
};

template <typename Describe>
void Communicators::requireReady(ncclComm_t comm, const Deadline &deadline,
                                 Describe &&describe) const {
  for (;;) {
    ncclResult_t state = getState(comm);
    if (state == ncclSuccess)
      return;
    require(nccl, state, describe);
    if (deadline.isOver())
      fail(STEPC_COMMUNICATION_ERROR, "%s did not end within %lld ms",
           std::string(describe()).c_str(),
           static_cast<long long>(length.count()));
    deadline.pause();
  }
}

} // namespace stepc::nccl

#endif // STEPC_NCCL_COMMUNICATORS_H
