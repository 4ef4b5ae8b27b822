//===- ConvertToLLVM.cpp - step-convert-to-llvm ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/Products.h"
#include "passes/lower/ViewToLLVM.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::step {
#define GEN_PASS_DEF_CONVERTTOLLVM
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

namespace {
struct LowerPrefetch : ConvertOpToLLVMPattern<PrefetchOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult
  matchAndRewrite(PrefetchOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Value pointer = LLVM::IntToPtrOp::create(
        rewriter, op.getLoc(), LLVM::LLVMPointerType::get(getContext()),
        adaptor.getAddress());
    // Locality 3: into all levels; cache 1: data.
    rewriter.replaceOpWithNewOp<LLVM::Prefetch>(op, pointer, op.getWrite(),
                                                /*hint=*/3, /*cache=*/1);
    return success();
  }
};

/// A pointer takes the registers of a word.
struct LowerInvoke : ConvertOpToLLVMPattern<InvokeOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult
  matchAndRewrite(InvokeOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    SmallVector<Value> operands{LLVM::IntToPtrOp::create(
        rewriter, op.getLoc(), LLVM::LLVMPointerType::get(getContext()),
        adaptor.getRoutine())};
    llvm::append_range(operands, adaptor.getWords());
    auto type = LLVM::LLVMFunctionType::get(
        LLVM::LLVMVoidType::get(getContext()),
        llvm::to_vector(ValueRange(adaptor.getWords()).getTypes()));
    LLVM::CallOp::create(rewriter, op.getLoc(), type, operands);
    rewriter.eraseOp(op);
    return success();
  }
};

struct LowerDotPairs : ConvertOpToLLVMPattern<DotPairsOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;

  LogicalResult
  matchAndRewrite(DotPairsOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    auto type = VectorType::get({32}, rewriter.getBF16Type());
    auto toPairs = [&](Value words) -> Value {
      return LLVM::BitcastOp::create(rewriter, op.getLoc(), type, words);
    };
    rewriter.replaceOpWithNewOp<LLVM::CallIntrinsicOp>(
        op, op.getType(), rewriter.getStringAttr(kDotsIntrinsic),
        ValueRange{adaptor.getSum(), toPairs(adaptor.getLhs()),
                   toPairs(adaptor.getRhs())});
    return success();
  }
};

struct ConvertToLLVM : step::impl::ConvertToLLVMBase<ConvertToLLVM> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    LowerToLLVMOptions options(context);
    LLVMTypeConverter converter(context, options);
    RewritePatternSet patterns(context);
    populateViewPatterns(converter, patterns, /*addressSpace=*/0);
    patterns.add<LowerPrefetch, LowerInvoke, LowerDotPairs>(converter);
    arith::populateArithToLLVMConversionPatterns(converter, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
    populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
    populateFuncToLLVMConversionPatterns(converter, patterns);
    populateMathToLLVMConversionPatterns(converter, patterns);
    populateVectorToLLVMConversionPatterns(converter, patterns);
    LLVMConversionTarget target(*context);
    target.addLegalOp<ModuleOp>();
    // Nothing that was rewritten is ever taken back; to be able to costs a
    // fifth of the pass.
    ConversionConfig config;
    config.allowPatternRollback = false;
    if (failed(applyFullConversion(getOperation(), target, std::move(patterns),
                                   config)))
      signalPassFailure();
  }
};
} // namespace
