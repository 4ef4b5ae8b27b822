//===- ConvertToNVVM.cpp - step-convert-to-nvvm ---------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/Passes.h"
#include "passes/lower/ViewToLLVM.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/GPUToNVVM/GPUToNVVMPass.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::step {
#define GEN_PASS_DEF_CONVERTTONVVM
#include "passes/Passes.h.inc"
} // namespace mlir::step

using namespace mlir;
using namespace mlir::step;

/// Over the patterns of upstream for the same operations.
static constexpr unsigned kOwnBenefit = 10;
/// One access: four 32-bit registers.
static constexpr int64_t kRegisters = 4, kStreamedBytes = 4 * kRegisters;

/// Whether the access by `type` is to be written as PTX: the code generator
/// does not know that memory is used once.
template <typename OpT>
static bool isStreamed(OpT op) {
  VectorType type = op.getVectorType();
  int64_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / 8;
  return op.getNontemporal() && bytes % kStreamedBytes == 0 &&
         op.getAlignment().value_or(0) >= uint64_t(kStreamedBytes);
}

static LLVM::InlineAsmOp emitPTX(OpBuilder &b, Location loc, TypeRange results,
                                 ValueRange operands, StringRef text,
                                 StringRef constraints) {
  return LLVM::InlineAsmOp::create(
      b, loc, results, operands, b.getStringAttr(text),
      b.getStringAttr(constraints), /*has_side_effects=*/b.getUnitAttr(),
      /*is_align_stack=*/UnitAttr(),
      LLVM::TailCallKindAttr::get(b.getContext(),
                                  LLVM::tailcallkind::TailCallKind::None),
      LLVM::AsmDialectAttr(), ArrayAttr());
}

namespace {
/// What loads and stores of streamed vectors share. The vector is handled as
/// one of 32-bit registers, four for each access.
template <typename OpT>
struct LowerStreamed : ConvertOpToLLVMPattern<OpT> {
  explicit LowerStreamed(const LLVMTypeConverter &converter)
      : ConvertOpToLLVMPattern<OpT>(converter, kOwnBenefit) {}

  static VectorType getRegisters(OpT op) {
    VectorType type = op.getVectorType();
    int64_t bits = type.getNumElements() * type.getElementTypeBitWidth();
    return VectorType::get({bits / 32}, IntegerType::get(op.getContext(), 32));
  }
  /// The address of an element, an integer in the global space.
  Value getAddress(OpT op, Value base, ValueRange indices,
                   ConversionPatternRewriter &rewriter) const {
    Location loc = op.getLoc();
    Value pointer = this->getStridedElementPtr(
        rewriter, loc, op.getMemRefType(), base, indices);
    auto global = LLVM::LLVMPointerType::get(
        rewriter.getContext(), unsigned(NVVM::NVVMMemorySpace::Global));
    pointer = LLVM::AddrSpaceCastOp::create(rewriter, loc, global, pointer);
    return LLVM::PtrToIntOp::create(rewriter, loc, rewriter.getI64Type(),
                                    pointer);
  }
  static Value getPart(OpBuilder &b, Location loc, Value address,
                       int64_t first) {
    Value offset = LLVM::ConstantOp::create(b, loc, b.getI64Type(),
                                            b.getI64IntegerAttr(4 * first));
    return LLVM::AddOp::create(b, loc, address, offset);
  }
  static Value getIndex(OpBuilder &b, Location loc, int64_t index) {
    return LLVM::ConstantOp::create(b, loc, b.getI64Type(),
                                    b.getI64IntegerAttr(index));
  }
};

struct LowerStreamedLoad : LowerStreamed<vector::LoadOp> {
  using LowerStreamed::LowerStreamed;

  LogicalResult
  matchAndRewrite(vector::LoadOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    if (!isStreamed(op))
      return failure();
    Location loc = op.getLoc();
    Value address =
        getAddress(op, adaptor.getBase(), adaptor.getIndices(), rewriter);
    VectorType registers = getRegisters(op);
    auto part = LLVM::LLVMStructType::getLiteral(
        getContext(),
        SmallVector<Type>(kRegisters, registers.getElementType()));
    Value vector = LLVM::PoisonOp::create(rewriter, loc, registers);
    for (int64_t first = 0; first < registers.getNumElements();
         first += kRegisters) {
      Value loaded =
          emitPTX(rewriter, loc, part, getPart(rewriter, loc, address, first),
                  "ld.global.cs.v4.b32 {$0, $1, $2, $3}, [$4];",
                  "=r,=r,=r,=r,l")
              .getResult(0);
      for (int64_t k = 0; k < kRegisters; ++k)
        vector = LLVM::InsertElementOp::create(
            rewriter, loc, vector,
            LLVM::ExtractValueOp::create(rewriter, loc, loaded, k),
            getIndex(rewriter, loc, first + k));
    }
    rewriter.replaceOpWithNewOp<LLVM::BitcastOp>(
        op, typeConverter->convertType(op.getVectorType()), vector);
    return success();
  }
};

struct LowerStreamedStore : LowerStreamed<vector::StoreOp> {
  using LowerStreamed::LowerStreamed;

  LogicalResult
  matchAndRewrite(vector::StoreOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    if (!isStreamed(op))
      return failure();
    Location loc = op.getLoc();
    Value address =
        getAddress(op, adaptor.getBase(), adaptor.getIndices(), rewriter);
    VectorType registers = getRegisters(op);
    Value vector = LLVM::BitcastOp::create(rewriter, loc, registers,
                                           adaptor.getValueToStore());
    for (int64_t first = 0; first < registers.getNumElements();
         first += kRegisters) {
      SmallVector<Value> in{getPart(rewriter, loc, address, first)};
      for (int64_t k = 0; k < kRegisters; ++k)
        in.push_back(LLVM::ExtractElementOp::create(
            rewriter, loc, vector, getIndex(rewriter, loc, first + k)));
      emitPTX(rewriter, loc, TypeRange(), in,
              "st.global.cs.v4.b32 [$0], {$1, $2, $3, $4};", "l,r,r,r,r");
    }
    rewriter.eraseOp(op);
    return success();
  }
};

struct ConvertToNVVM : step::impl::ConvertToNVVMBase<ConvertToNVVM> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    LowerToLLVMOptions options(context);
    LLVMTypeConverter converter(context, options);
    configureGpuToNVVMTypeConverter(converter);
    RewritePatternSet patterns(context);
    populateViewPatterns(converter, patterns,
                         unsigned(NVVM::NVVMMemorySpace::Global));
    patterns.add<LowerStreamedLoad, LowerStreamedStore>(converter);
    arith::populateArithToLLVMConversionPatterns(converter, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
    populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
    populateFuncToLLVMConversionPatterns(converter, patterns);
    // Before upstream's for devices: a square root is rounded correctly.
    populateMathToLLVMConversionPatterns(converter, patterns,
                                         /*approximateLog1p=*/false,
                                         kOwnBenefit);
    populateVectorToLLVMConversionPatterns(converter, patterns);
    populateGpuToNVVMConversionPatterns(converter, patterns);
    LLVMConversionTarget target(*context);
    target.addLegalDialect<NVVM::NVVMDialect>();
    target.addLegalOp<gpu::GPUModuleOp>();
    if (failed(
            applyFullConversion(getOperation(), target, std::move(patterns))))
      return signalPassFailure();
    requireBlockSize();
  }

  /// Upstream makes a bound of the known size of a block; but a block of fewer
  /// threads would leave elements out.
  void requireBlockSize() {
    StringRef bound = NVVM::NVVMDialect::getMaxntidAttrName();
    for (auto function : getOperation().getOps<LLVM::LLVMFuncOp>())
      if (Attribute size = function->removeAttr(bound))
        function->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), size);
  }
};
} // namespace
