//===- VerifyLowered.cpp - step-verify-lowered ----------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"

#include "passes/lower/Products.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace mlir::step {
#define GEN_PASS_DEF_VERIFYLOWERED
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// What kernels may be made of. Each computes exactly, calls nothing, and holds
/// no state; anything else, as an intrinsic that becomes a call to a
/// mathematical library, is refused by not being here. Fused multiply-adds are
/// what products mean, and stand in their functions alone, as calls of the
/// runtime's routines do in theirs.
static bool isAllowed(Operation *op) {
  return isa<
      // Structure.
      LLVM::LLVMFuncOp, LLVM::CallOp, LLVM::ReturnOp, LLVM::BrOp,
      LLVM::CondBrOp, LLVM::UnreachableOp,
      // Values.
      LLVM::ConstantOp, LLVM::PoisonOp, LLVM::UndefOp, LLVM::ZeroOp,
      LLVM::SelectOp, LLVM::FreezeOp, LLVM::BitcastOp,
      // Integers.
      LLVM::AddOp, LLVM::SubOp, LLVM::MulOp, LLVM::UDivOp, LLVM::URemOp,
      LLVM::SDivOp, LLVM::SRemOp, LLVM::AndOp, LLVM::OrOp, LLVM::XOrOp,
      LLVM::ShlOp, LLVM::LShrOp, LLVM::AShrOp, LLVM::ICmpOp, LLVM::ZExtOp,
      LLVM::SExtOp, LLVM::TruncOp, LLVM::SMinOp, LLVM::SMaxOp, LLVM::UMinOp,
      LLVM::UMaxOp,
      // Floats: correctly rounded, or exact.
      LLVM::FAddOp, LLVM::FSubOp, LLVM::FMulOp, LLVM::FDivOp, LLVM::FNegOp,
      LLVM::FCmpOp, LLVM::FPExtOp, LLVM::FPTruncOp, LLVM::UIToFPOp,
      LLVM::FPToSIOp, LLVM::SIToFPOp, LLVM::SqrtOp, LLVM::FAbsOp,
      LLVM::FFloorOp, LLVM::MaximumOp, LLVM::MinimumOp,
      // Vectors, memory.
      LLVM::InsertElementOp, LLVM::ExtractElementOp, LLVM::ShuffleVectorOp,
      LLVM::InsertValueOp, LLVM::ExtractValueOp, LLVM::LoadOp, LLVM::StoreOp,
      LLVM::AllocaOp, LLVM::GEPOp, LLVM::IntToPtrOp, LLVM::PtrToIntOp,
      LLVM::Prefetch>(op);
}

static bool isDots(Operation *op) {
  auto call = dyn_cast<LLVM::CallIntrinsicOp>(op);
  return call && call.getIntrin() == kDotsIntrinsic;
}

static bool isOfProduct(Operation *op) {
  auto function = op->getParentOfType<LLVM::LLVMFuncOp>();
  if (!function)
    return false;
  StringRef name = function.getSymName();
  return (isa<LLVM::FMAOp>(op) && name.starts_with(kProductPrefix)) ||
         (isDots(op) && name == kDotsName);
}

/// A routine of the runtime, whose address it tells the kernel.
static bool callsRoutine(LLVM::CallOp call) {
  auto function = call->getParentOfType<LLVM::LLVMFuncOp>();
  return !call.getCalleeAttr() && function &&
         function.getSymName().starts_with(kRoutinePrefix) &&
         !call->getParentOfType<gpu::GPUModuleOp>();
}

static bool isShared(LLVM::LLVMPointerType type) {
  return type.getAddressSpace() == unsigned(NVVM::NVVMMemorySpace::Shared);
}

/// What a device's module may have besides: its threads and blocks, the spaces
/// of its memory, the memory that a block shares, barriers and shuffles, and
/// PTX that does nothing but access memory.
static bool isAllowedOnDevice(Operation *op) {
  if (auto memory = dyn_cast<LLVM::GlobalOp>(op))
    return memory.getAddrSpace() == unsigned(NVVM::NVVMMemorySpace::Shared);
  if (auto address = dyn_cast<LLVM::AddressOfOp>(op))
    return isShared(cast<LLVM::LLVMPointerType>(address.getType()));
  if (auto text = dyn_cast<LLVM::InlineAsmOp>(op))
    return text.getAsmString().starts_with("ld.global.") ||
           text.getAsmString().starts_with("st.global.");
  return isa<gpu::GPUModuleOp, LLVM::AddrSpaceCastOp, NVVM::ThreadIdXOp,
             NVVM::BlockIdXOp, NVVM::GridDimXOp, NVVM::BarrierOp,
             NVVM::Barrier0Op, NVVM::ShflOp>(op);
}

/// f16 is converted from and to f32, by one instruction on every target. From
/// f64 it would be a function that nobody links.
static LogicalResult verifyNarrow(Operation *op) {
  auto is = [](Value value, auto check) {
    return check(getElementTypeOrSelf(value.getType()));
  };
  auto isF16 = [](Type type) { return type.isF16(); };
  auto isF32 = [](Type type) { return type.isF32(); };
  bool isConversion =
      isa<LLVM::BitcastOp>(op) ||
      (isa<LLVM::FPExtOp>(op) && is(op->getResult(0), isF32)) ||
      (isa<LLVM::FPTruncOp>(op) && is(op->getOperand(0), isF32));
  for (ValueRange values :
       {ValueRange(op->getResults()), ValueRange(op->getOperands())})
    for (Value value : values) {
      if (getElementTypeOrSelf(value.getType()).isBF16() &&
          !isa<LLVM::BitcastOp>(op) && !isDots(op))
        return op->emitOpError("computes in bf16");
      if (is(value, isF16) && !isConversion)
        return op->emitOpError("computes in f16");
    }
  return success();
}

static LogicalResult verifyOp(Operation *op, SymbolTableCollection &symbols) {
  bool onDevice =
      isa<gpu::GPUModuleOp>(op) || op->getParentOfType<gpu::GPUModuleOp>();
  if (!isAllowed(op) && !isOfProduct(op) &&
      !(onDevice && isAllowedOnDevice(op)))
    return op->emitOpError("is not allowed after the lower stage");
  if (auto function = dyn_cast<LLVM::LLVMFuncOp>(op);
      function && function.isExternal())
    return function.emitOpError("has no body; kernels call nothing outside");
  if (auto call = dyn_cast<LLVM::CallOp>(op); call && !callsRoutine(call)) {
    if (!call.getCalleeAttr() ||
        !symbols.lookupNearestSymbolFrom<LLVM::LLVMFuncOp>(
            call, call.getCalleeAttr()))
      return call.emitOpError("calls something outside of the module");
  }
  if (auto math = dyn_cast<LLVM::FastmathFlagsInterface>(op);
      math && math.getFastmathAttr() &&
      math.getFastmathAttr().getValue() != LLVM::FastmathFlags::none)
    return op->emitOpError("has fast-math flags, which change values");
  return verifyNarrow(op);
}

namespace {
struct VerifyLowered : step::impl::VerifyLoweredBase<VerifyLowered> {
  void runOnOperation() override {
    SymbolTableCollection symbols;
    auto check = [&](Operation *op) -> WalkResult {
      if (op == getOperation())
        return WalkResult::advance();
      return verifyOp(op, symbols);
    };
    // Outermost first, so that the message names the function that is left and
    // not what is in it.
    WalkResult result = getOperation()->walk<WalkOrder::PreOrder>(check);
    if (result.wasInterrupted())
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
