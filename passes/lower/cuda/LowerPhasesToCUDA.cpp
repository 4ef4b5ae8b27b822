//===- LowerPhasesToCUDA.cpp - step-lower-phases-to-cuda ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/Words.h"
#include "passes/lower/cuda/BlockRun.h"
#include "passes/lower/cuda/ElementKernel.h"
#include "passes/lower/cuda/EngineKernels.h"
#include "passes/lower/cuda/GridKernel.h"
#include "passes/lower/cuda/TileGrid.h"
#include "passes/schedule/Schedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::step {
#define GEN_PASS_DEF_LOWERPHASESTOCUDA
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
struct LowerPhasesToCUDA
    : step::impl::LowerPhasesToCUDABase<LowerPhasesToCUDA> {
  /// The engine's own kernels are made of operations of the language too, where
  /// a module has none.
  void getDependentDialects(DialectRegistry &registry) const override {
    LowerPhasesToCUDABase::getDependentDialects(registry);
    registry.insert<StepDialect>();
  }

  /// What of the tiles space has no kernels on a device.
  LogicalResult checkProgram(ProgramOp program) {
    // Where the position of each element is asked for, and not the tensor's.
    for (BlockArgument argument : program.getOperandArguments())
      if (!cast<BufferType>(argument.getType()).isInMemory() &&
          !llvm::all_of(argument.getUsers(), llvm::IsaPred<NormalsOp>))
        return program.emitOpError(
            "rounds stochastically, which has no kernels for cuda");
    for (auto traverse : program.getBody().getOps<TraverseOp>())
      if (!fitsSharedMemory(traverse))
        return traverse.emitOpError(
            "has more reductions along rows than a block of cuda has shared "
            "memory for");
    return success();
  }

  /// What has no kernels on a device, or was not made ready for this pass.
  LogicalResult check(OptimizerOp optimizer) {
    for (Operation &op : optimizer.getBody().front()) {
      if (isa<RuleOp>(op))
        return op.emitOpError("is not scheduled");
      auto program = dyn_cast<ProgramOp>(op);
      if (!program)
        continue;
      if (failed(checkProgram(program)))
        return failure();
      for (auto scalars : program.getBody().getOps<CohortScalarsOp>())
        if (!getOperation().lookupSymbol<func::FuncOp>(scalars.getSymName()))
          return scalars.emitOpError("has no function yet");
    }
    return success();
  }

  /// The functions that stand beside the optimizer, of scalar phases and
  /// rounds, become device functions behind entry points of their names.
  void wrapFunctions(OpBuilder &builder, gpu::GPUModuleOp device) {
    for (auto function :
         llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>())) {
      std::string name = function.getSymName().str();
      function->moveBefore(device.getBody(), device.getBody()->end());
      function.setSymName(name + "_entry");
      function.setPrivate();
      function->setAttr(
          "llvm.linkage",
          LLVM::LinkageAttr::get(&getContext(), LLVM::Linkage::Internal));
      builder.setInsertionPointToEnd(device.getBody());
      emitListKernel(Words(builder, function.getLoc()), name, function);
    }
  }

  void emitEntry(OpBuilder &builder, const ProgramStorage &storage,
                 const ScheduleEntry &entry) {
    if (!entry.kernel)
      emitFinishGrid(builder, storage, entry);
    else if (storage.getProgram().getElementwise())
      emitElementKernels(builder, entry.kernel, storage);
    else
      emitTileGrids(builder, entry.kernel, storage);
  }

  /// One entry point for each kind of statistics.
  void emitStatistics(OpBuilder &builder, OptimizerOp optimizer) {
    for (Combiner combiner : {Combiner::Sum, Combiner::Amax})
      if (llvm::any_of(optimizer.getBody().getOps<StatisticOp>(),
                       [&](StatisticOp statistic) {
                         bool isSum = statistic.getKind() == ReductionKind::Sum;
                         return isSum == (combiner == Combiner::Sum);
                       }))
        emitStatisticGrid(Words(builder, optimizer.getLoc()),
                          ("statistics_" + stringifyCombiner(combiner)).str(),
                          combiner);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto optimizer : module.getOps<OptimizerOp>())
      if (failed(check(optimizer)))
        return signalPassFailure();
    OpBuilder builder(&getContext());
    builder.setInsertionPointToEnd(module.getBody());
    auto device = gpu::GPUModuleOp::create(builder, module.getLoc(), "kernels");
    wrapFunctions(builder, device);
    builder.setInsertionPointToEnd(device.getBody());
    module.walk([&](ProgramOp program) {
      if (program.getKernelsOf())
        return;
      ProgramStorage storage(program);
      for (const ScheduleEntry &entry : getSchedule(program))
        emitEntry(builder, storage, entry);
    });
    for (auto optimizer : module.getOps<OptimizerOp>())
      emitStatistics(builder, optimizer);
    emitEngineKernels(Words(builder, module.getLoc()));
    emitTransferKernels(Words(builder, module.getLoc()), module);
    emitCodeKernels(Words(builder, module.getLoc()), module);
    for (auto optimizer :
         llvm::make_early_inc_range(module.getOps<OptimizerOp>()))
      optimizer.erase();
  }
};
} // namespace
