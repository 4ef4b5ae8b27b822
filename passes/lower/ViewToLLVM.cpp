//===- ViewToLLVM.cpp - memory by address in the LLVM dialect -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/ViewToLLVM.h"

#include "dialect/Step.h"

#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// The size in the descriptor is never read; the largest one keeps it honest.
struct LowerView : ConvertOpToLLVMPattern<ViewOp> {
  LowerView(const LLVMTypeConverter &converter, unsigned addressSpace)
      : ConvertOpToLLVMPattern(converter), addressSpace(addressSpace) {}

  LogicalResult
  matchAndRewrite(ViewOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto type = cast<MemRefType>(op.getResult().getType());
    Type descriptorType = getTypeConverter()->convertType(type);
    auto descriptor = MemRefDescriptor::poison(rewriter, loc, descriptorType);
    Value pointer = LLVM::IntToPtrOp::create(
        rewriter, loc,
        LLVM::LLVMPointerType::get(rewriter.getContext(), addressSpace),
        adaptor.getAddress());
    if (addressSpace != 0)
      pointer = LLVM::AddrSpaceCastOp::create(
          rewriter, loc, descriptor.getElementPtrType(), pointer);
    descriptor.setAllocatedPtr(rewriter, loc, pointer);
    descriptor.setAlignedPtr(rewriter, loc, pointer);
    descriptor.setConstantOffset(rewriter, loc, 0);
    descriptor.setConstantSize(rewriter, loc, 0,
                               std::numeric_limits<int64_t>::max());
    descriptor.setConstantStride(rewriter, loc, 0, 1);
    rewriter.replaceOp(op, Value(descriptor));
    return success();
  }

private:
  unsigned addressSpace;
};
} // namespace

void mlir::step::populateViewPatterns(const LLVMTypeConverter &converter,
                                      RewritePatternSet &patterns,
                                      unsigned addressSpace) {
  patterns.add<LowerView>(converter, addressSpace);
}
