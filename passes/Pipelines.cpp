//===- Pipelines.cpp - the stages, each a pipeline ------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Pipelines.h"
#include "passes/Passes.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mlir::step;

/// Canonicalizes and removes common subexpressions. Safe from the bind stage
/// on, where roundings are operations, and in the define stage after they are
/// marked; before that it would change where values are rounded.
static void addCleanup(OpPassManager &pm) {
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

void mlir::step::buildDefinePipeline(OpPassManager &pm) {
  pm.addPass(createInlineCalls());
  pm.addPass(createUnrollRepeats());
  pm.addPass(createFlattenWhens());
  pm.addPass(createExpandIdentities());
  // Of each rule as it is written: fragments' operations are not the rule's.
  pm.addPass(createReassociateMeans());
  pm.addPass(createInlineFragments());
  pm.addNestedPass<OptimizerOp>(createMarkStored());
  pm.addNestedPass<OptimizerOp>(createDropDeadStates());
  addCleanup(pm);
  pm.addNestedPass<OptimizerOp>(createVerifyDefined());
}

void mlir::step::buildBindPipeline(OpPassManager &pm,
                                   const BindOptions &options) {
  InstantiateVariantsOptions variants;
  variants.variants.assign(options.variants.begin(), options.variants.end());
  pm.addNestedPass<OptimizerOp>(createInstantiateVariants(variants));
  pm.addNestedPass<OptimizerOp>(createResolveOptions());
  pm.addNestedPass<OptimizerOp>(createKeepMasters());
  pm.addNestedPass<OptimizerOp>(createNumberTensors());
  pm.addNestedPass<OptimizerOp>(createRoundStochastically());
  pm.addNestedPass<OptimizerOp>(createResolveStorage());
  addCleanup(pm);
  pm.addNestedPass<OptimizerOp>(createSkipReductions());
  pm.addNestedPass<OptimizerOp>(createSkipProducts());
  pm.addNestedPass<OptimizerOp>(createVerifyBound());
}

void mlir::step::buildShardPipeline(OpPassManager &pm,
                                    const ShardOptions &options) {
  if (options.reproducible) {
    pm.addNestedPass<OptimizerOp>(createReproduceSums());
    addCleanup(pm);
  }
  pm.addNestedPass<OptimizerOp>(createInsertCollectives());
  pm.addNestedPass<OptimizerOp>(createInsertExchanges());
  pm.addNestedPass<OptimizerOp>(createVerifySharded());
}

void mlir::step::buildSchedulePipeline(OpPassManager &pm,
                                       const ScheduleOptions &options) {
  if (options.exclusiveWrites) {
    pm.addNestedPass<OptimizerOp>(createCarryStatistics());
    addCleanup(pm);
  }
  pm.addNestedPass<OptimizerOp>(createDropUnreadContributions());
  pm.addNestedPass<OptimizerOp>(createFormPrograms());
  pm.addNestedPass<OptimizerOp>(createDropTwinPrograms());
  pm.addNestedPass<OptimizerOp>(createShareKernels());
  addCleanup(pm);
  pm.addNestedPass<OptimizerOp>(createKeepOverRounds());
  pm.addNestedPass<OptimizerOp>(createVerifyScheduled());
}

/// The same of each function by itself: what one of them changes makes no other
/// be looked at again. Blocks stay as they are, since LLVM joins them anyway.
static void addCleanupOfFunctions(OpPassManager &pm) {
  GreedyRewriteConfig config;
  config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
  OpPassManager &functions = pm.nestAny();
  functions.addPass(createCanonicalizerPass(config));
  functions.addPass(createCSEPass());
}

/// What every target computes by the same operations.
static void addExpansions(OpPassManager &pm) {
  pm.addPass(createExpandPowi());
  pm.addPass(createExpandPow());
  pm.addPass(createExpandExp());
  pm.addPass(createExpandLog());
  pm.addPass(createExpandBF16());
  addCleanupOfFunctions(pm);
  pm.addPass(createSCFToControlFlowPass());
}

void mlir::step::buildLowerPipeline(OpPassManager &pm,
                                    const LowerOptions &options) {
  pm.addPass(createLowerScalarPhases());
  pm.addPass(createLowerRounds());
  pm.addPass(createExpandLerp());
  LowerPhasesToCPUOptions cpu;
  cpu.prefetchLines = options.prefetchLines;
  cpu.avx512 = options.avx512;
  pm.addPass(createLowerPhasesToCPU(cpu));
  addExpansions(pm);
  // LLVM cleans up behind it, and of all parts of the module at once.
  pm.addPass(createConvertToLLVM());
  pm.addPass(createVerifyLowered());
}

void mlir::step::buildLowerToCUDAPipeline(OpPassManager &pm) {
  pm.addPass(createLowerScalarPhases());
  pm.addPass(createLowerRounds());
  pm.addPass(createExpandLerp());
  pm.addPass(createLowerPhasesToCUDA());
  addExpansions(pm);
  pm.addNestedPass<gpu::GPUModuleOp>(createConvertToNVVM());
  addCleanup(pm);
  pm.addPass(createVerifyLowered());
}

void mlir::step::registerPassesAndPipelines() {
  registerStepPasses();
  PassPipelineRegistration<>("step-stage-define",
                             "the define stage: rules on whole tensors",
                             buildDefinePipeline);
  PassPipelineRegistration<BindOptions>(
      "step-stage-bind", "the bind stage: one rule for each variant",
      buildBindPipeline);
  PassPipelineRegistration<ShardOptions>(
      "step-stage-shard", "the shard stage: local programs of a rank",
      buildShardPipeline);
  PassPipelineRegistration<ScheduleOptions>(
      "step-stage-schedule", "the schedule stage: programs of phases",
      buildSchedulePipeline);
  PassPipelineRegistration<LowerOptions>(
      "step-stage-lower", "the lower stage: CPU kernels in the LLVM dialect",
      buildLowerPipeline);
  PassPipelineRegistration<>(
      "step-stage-lower-to-cuda",
      "the lower stage: CUDA kernels in the LLVM and NVVM dialects",
      buildLowerToCUDAPipeline);
}
