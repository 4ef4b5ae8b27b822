//===- Module.h - the kernels of a package on a device --------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_CUDA_MODULE_H
#define STEPC_CUDA_MODULE_H

#include "core/Package.h"
#include "cuda/Device.h"

#include "stepc/kernel_abi.h"

#include "numerics/Codes.h"

#include <memory>
#include <string>
#include <vector>

namespace stepc::cuda {

/// Threads of a block, of every kernel (docs/cuda.md).
inline constexpr int32_t kBlockThreads = STEPC_BLOCK_THREADS;

struct Kernel {
  std::string name;
  CUfunction function = nullptr;
  /// How many blocks the device holds at once.
  int32_t maxBlocks = 1;
};

/// The entry points of one variant.
struct VariantKernels {
  /// One for each segment; without a function where there is nothing to fill.
  std::vector<Kernel> scalars;
  /// The schedule for contiguous rows, and for strided ones: of each entry the
  /// kernels, several of a finish that has parts, without functions where
  /// nothing is launched.
  std::vector<std::vector<Kernel>> entries[2];
};

/// The code of a package for one device, which code to take being decided
/// here, loaded in one context. Immutable once made; plans of the package on
/// the device share it.
class Module {
public:
  Module(std::shared_ptr<const Package> package,
         std::shared_ptr<const Device> device);
  ~Module();
  Module(const Module &) = delete;
  Module &operator=(const Module &) = delete;

  const VariantKernels &getKernels(size_t variant) const {
    return variants[variant];
  }
  const Kernel &getStore() const { return store; }
  const Kernel &getSet() const { return set; }
  const Kernel &getAdvance() const { return advance; }
  const Kernel &getCopy() const { return copy; }
  const Kernel &getFill() const { return fill; }
  const Kernel &getOrder() const { return order; }
  const Kernel &getUnorder() const { return unorder; }
  const Kernel &getCheck() const { return check; }
  const Kernel &getCompare() const { return compare; }
  const Kernel &getForget() const { return forget; }
  const Kernel &getBegin() const { return begin; }
  const Kernel &getDecide() const { return decide; }
  /// Without functions where the package has no transfers.
  const Kernel &getConvert() const { return convert; }
  const Kernel &getSum() const { return sum; }
  /// Without functions where no state is of f32, and in packages of compilers
  /// that knew no codes.
  const Kernel &getDecode(int32_t format) const { return decode[format - 1]; }
  const Kernel &getEncode(int32_t format) const { return encode[format - 1]; }
  /// Without a function where the package has no such statistic.
  const Kernel &getStatistic(bool maximum) const { return statistics[maximum]; }
  /// The function of a call of a round.
  const Kernel &getCall(size_t round, size_t call) const {
    return rounds[round][call];
  }

private:
  void load(const DeviceCode &code);
  Kernel getKernel(const std::string &name) const;
  /// Without a function where the code has none of the name.
  Kernel findKernel(const std::string &name) const;
  Kernel describe(const std::string &name, CUfunction function) const;
  std::string getWhat(const std::string &name) const;
  void resolve();
  void resolveRounds();
  std::vector<Kernel> getEntry(const ScheduleEntry &entry, bool strided) const;

  std::shared_ptr<const Package> package;
  std::shared_ptr<const Device> device;
  std::string codeName;
  CUmodule module = nullptr;
  std::vector<VariantKernels> variants;
  Kernel store;
  Kernel set;
  Kernel advance;
  Kernel copy;
  Kernel fill;
  Kernel order;
  Kernel unorder;
  Kernel check;
  Kernel compare;
  Kernel forget;
  Kernel begin;
  Kernel decide;
  Kernel convert;
  Kernel sum;
  /// One for each format.
  Kernel decode[kCodeFormats];
  Kernel encode[kCodeFormats];
  Kernel statistics[2];
  std::vector<std::vector<Kernel>> rounds;
};

/// The code that a device of this capability runs: the cubin of the highest
/// capability of its major number that it reaches, else the PTX of the highest
/// that it reaches. Throws STEPC_UNSUPPORTED_TARGET.
const DeviceCode &chooseCode(const Package &package, int32_t capability);

/// The module of the package in the device's context, loaded where no plan has
/// it yet.
std::shared_ptr<const Module> getModule(std::shared_ptr<const Package> package,
                                        std::shared_ptr<const Device> device);

} // namespace stepc::cuda

#endif // STEPC_CUDA_MODULE_H
