//===- Pipelines.h - the stages, each a pipeline --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_PIPELINES_H
#define STEPC_PASSES_PIPELINES_H

#include "mlir/Pass/PassOptions.h"

#include <string>

namespace mlir {
class OpPassManager;
} // namespace mlir

namespace mlir::step {

/// The stages, in order. Their names are those of `stepc --compile-to=`, and
/// the pipelines are `step-stage-define` and so on.
enum class Stage { Define, Bind, Shard, Schedule, Lower, Package };

struct BindOptions : PassPipelineOptions<BindOptions> {
  ListOption<std::string> variants{
      *this, "variants",
      llvm::cl::desc("requested variants; see step-instantiate-variants")};
};

struct ShardOptions : PassPipelineOptions<ShardOptions> {
  Option<bool> reproducible{
      *this, "reproducible",
      llvm::cl::desc("sums whose bits do not depend on the order of additions"),
      llvm::cl::init(false)};
};

struct ScheduleOptions : PassPipelineOptions<ScheduleOptions> {
  Option<bool> exclusiveWrites{
      *this, "exclusive-writes",
      llvm::cl::desc("carry statistics of parameters from step to step"),
      llvm::cl::init(false)};
};

struct LowerOptions : PassPipelineOptions<LowerOptions> {
  Option<bool> avx512{*this, "avx512",
                      llvm::cl::desc("make products for AVX-512"),
                      llvm::cl::init(false)};
  Option<int64_t> prefetchLines{
      *this, "prefetch-lines",
      llvm::cl::desc("how many cache lines to have on their way ahead of a "
                     "loop, of all its operands together; 0: none"),
      llvm::cl::init(128)};
};

/// Each stage's passes, the last of them the verifier of what may stand after
/// it. The root is a module.
void buildDefinePipeline(OpPassManager &pm);
void buildBindPipeline(OpPassManager &pm, const BindOptions &options);
void buildShardPipeline(OpPassManager &pm, const ShardOptions &options);
void buildSchedulePipeline(OpPassManager &pm, const ScheduleOptions &options);
void buildLowerPipeline(OpPassManager &pm, const LowerOptions &options);
/// The lower stage of a CUDA device, in place of the one above.
void buildLowerToCUDAPipeline(OpPassManager &pm);

/// Makes all passes and pipelines of Stepc known by name.
void registerPassesAndPipelines();

} // namespace mlir::step

#endif // STEPC_PASSES_PIPELINES_H
