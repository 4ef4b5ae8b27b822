//===- OwnStream.h - a stream beside the callers' -----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_NCCL_OWNSTREAM_H
#define STEPC_NCCL_OWNSTREAM_H

#include "cuda/Device.h"

#include <memory>
#include <vector>

namespace stepc::nccl {

/// A stream on which transfers cross while callers' streams go on, and the
/// events between them. The device's context is current in all calls but the
/// destructor. Waiting for an event that was recorded in a capture makes the
/// stream part of it.
class OwnStream {
public:
  explicit OwnStream(std::shared_ptr<const cuda::Device> device)
      : device(std::move(device)) {}
  ~OwnStream();
  OwnStream(const OwnStream &) = delete;
  OwnStream &operator=(const OwnStream &) = delete;

  /// The stream, behind what is on the other one by now; it is made by the
  /// first call.
  cuda::CUstream follow(cuda::CUstream other);
  /// An event behind what is on the stream by now.
  cuda::CUevent record();
  /// Has the other stream wait for it, and takes it back, also where that
  /// throws.
  void join(cuda::CUstream other, cuda::CUevent event);
  void takeBack(cuda::CUevent event) noexcept { free.push_back(event); }

private:
  cuda::CUevent takeEvent();
  void record(cuda::CUevent event, cuda::CUstream on);

  std::shared_ptr<const cuda::Device> device;
  cuda::CUstream stream = nullptr;
  /// All that were made, and those that nobody waits for.
  std::vector<cuda::CUevent> events, free;
};

} // namespace stepc::nccl

#endif // STEPC_NCCL_OWNSTREAM_H
