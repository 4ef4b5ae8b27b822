//===- LowerPhasesToCUDA.cpp - step-lower-phases-to-cuda ------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/Words.h"
#include "passes/lower/cuda/ElementKernel.h"
#include "passes/lower/cuda/GridKernel.h"
#include "passes/schedule/Schedule.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
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
  /// What has no kernels on a device, or was not made ready for this pass.
  LogicalResult check(OptimizerOp optimizer) {
    for (Operation &op : optimizer.getBody().front()) {
      if (isa<RuleOp>(op))
        return op.emitOpError("is not scheduled");
      auto program = dyn_cast<ProgramOp>(op);
      if (!program)
        continue;
      if (program.isTiled())
        return program.emitOpError(
            "is in the tiles space, which has no kernels for cuda");
      for (auto phase : program.getBody().getOps<ScalarPhaseOp>())
        if (!getOperation().lookupSymbol<func::FuncOp>(phase.getSymName()))
          return phase.emitOpError("has no function yet");
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
      for (const ScheduleEntry &entry : getSchedule(program))
        emitElementKernels(builder, entry.kernel);
    });
    for (auto optimizer :
         llvm::make_early_inc_range(module.getOps<OptimizerOp>()))
      optimizer.erase();
  }
};
} // namespace
