//===- stepc-cuda-host.cpp - device kernels as a processor's code ---------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//     stepc INPUT.mlir --target=compute_80 --dump-dir=STAGES -o OUT.stepc
//     stepc-cuda-host STAGES/5-lower-to-cuda.mlir IMAGE.so
//
// Takes what stepc lowered for devices, the IR of which it writes PTX, and
// makes of it what the double of the driver runs (Image.h): reads of the
// thread's number become calls, PTX that accesses memory becomes accesses, and
// each access is announced before it is made. Nothing else is changed.
//
//===----------------------------------------------------------------------===//
#include "passes/package/CodeGen.h"
#include "passes/package/Compile.h"
#include "passes/package/WriteFile.h"

#include "Image.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mlir::step;

namespace {

/// Changes the functions of one module.
class HostImage {
public:
  explicit HostImage(ModuleOp module)
      : module(module), b(module.getContext()), loc(module.getLoc()),
        pointer(LLVM::LLVMPointerType::get(module.getContext())),
        word(b.getI64Type()), layout(module) {}

  LogicalResult run();

private:
  Value callService(int service, Type result, ValueRange arguments);
  void announce(Value address, Type type, int64_t alignment);
  LogicalResult replaceAssembly(LLVM::InlineAsmOp op);
  LogicalResult replaceShuffle(NVVM::ShflOp op);
  LogicalResult replace(Operation *op);
  void wrapKernel(LLVM::LLVMFuncOp kernel);
  void addGlobal(StringRef name, Type type, bool constant, Attribute value);

  ModuleOp module;
  OpBuilder b;
  Location loc;
  Type pointer, word;
  DataLayout layout;
};

} // namespace

Value HostImage::callService(int service, Type result, ValueRange arguments) {
  Value table = LLVM::AddressOfOp::create(b, loc, pointer, STEPC_SERVICES);
  Value slot = LLVM::GEPOp::create(b, loc, pointer, pointer, table,
                                   ArrayRef<LLVM::GEPArg>{service});
  Value callee = LLVM::LoadOp::create(b, loc, pointer, slot);
  SmallVector<Type> types(arguments.getTypes());
  auto type = LLVM::LLVMFunctionType::get(
      result ? result : LLVM::LLVMVoidType::get(b.getContext()), types);
  SmallVector<Value> operands{callee};
  operands.append(arguments.begin(), arguments.end());
  auto call = LLVM::CallOp::create(b, loc, type, operands);
  return result ? call.getResult() : Value();
}

void HostImage::announce(Value address, Type type, int64_t alignment) {
  auto from = dyn_cast<LLVM::LLVMPointerType>(address.getType());
  if (from && from.getAddressSpace() == 3)
    return; // Memory of the block.
  if (from)
    address = LLVM::PtrToIntOp::create(b, loc, word, address);
  auto constant = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(b, loc, word, b.getI64IntegerAttr(value));
  };
  callService(SERVICE_ACCESS, Type(),
              {address, constant(int64_t(layout.getTypeSize(type))),
               constant(alignment)});
}

/// `{v0, v1, ...} = ld [address]` or `st [address], {v0, v1, ...}`.
LogicalResult HostImage::replaceAssembly(LLVM::InlineAsmOp op) {
  StringRef text = op.getAsmString();
  bool isLoad = text.starts_with("ld.global.");
  if (!isLoad && !text.starts_with("st.global."))
    return op.emitOpError("is not known to stepc-cuda-host");
  Value address = op.getOperand(0);
  Type type;
  if (isLoad)
    type = op.getResultTypes().front();
  else
    type = LLVM::LLVMStructType::getLiteral(
        b.getContext(),
        SmallVector<Type>(op.getOperands().drop_front().getTypes()));
  announce(address, type, int64_t(layout.getTypeSize(type)));
  Value memory = LLVM::IntToPtrOp::create(b, loc, pointer, address);
  if (isLoad) {
    Value loaded = LLVM::LoadOp::create(b, loc, type, memory);
    op.getResult(0).replaceAllUsesWith(loaded);
  } else {
    Value all = LLVM::PoisonOp::create(b, loc, type);
    for (auto [k, value] : llvm::enumerate(op.getOperands().drop_front()))
      all = LLVM::InsertValueOp::create(b, loc, all, value, int64_t(k));
    LLVM::StoreOp::create(b, loc, all, memory);
  }
  op.erase();
  return success();
}

/// All 32 lanes take part, with values of 32 bits.
LogicalResult HostImage::replaceShuffle(NVVM::ShflOp op) {
  Type type = op.getVal().getType();
  if (op.getType() != type || type.getIntOrFloatBitWidth() != 32)
    return op.emitOpError("is not known to stepc-cuda-host");
  int kind = SHUFFLE_IDX;
  if (op.getKind() == NVVM::ShflKind::bfly)
    kind = SHUFFLE_BFLY;
  else if (op.getKind() == NVVM::ShflKind::up)
    kind = SHUFFLE_UP;
  else if (op.getKind() == NVVM::ShflKind::down)
    kind = SHUFFLE_DOWN;
  Type half = b.getI32Type();
  Value value = op.getVal();
  if (type != half)
    value = LLVM::BitcastOp::create(b, loc, half, value);
  Value kindValue =
      LLVM::ConstantOp::create(b, loc, half, b.getI32IntegerAttr(kind));
  Value result =
      callService(SERVICE_SHUFFLE, half,
                  {value, op.getOffset(), op.getMaskAndClamp(), kindValue});
  if (type != half)
    result = LLVM::BitcastOp::create(b, loc, type, result);
  op.getResult().replaceAllUsesWith(result);
  op.erase();
  return success();
}

LogicalResult HostImage::replace(Operation *op) {
  b.setInsertionPoint(op);
  auto replaceBy = [&](int service) {
    op->getResult(0).replaceAllUsesWith(
        callService(service, op->getResult(0).getType(), {}));
    op->erase();
    return success();
  };
  if (isa<NVVM::ThreadIdXOp>(op))
    return replaceBy(SERVICE_THREAD);
  if (isa<NVVM::BlockIdXOp>(op))
    return replaceBy(SERVICE_BLOCK);
  if (isa<NVVM::GridDimXOp>(op))
    return replaceBy(SERVICE_GRID);
  if (isa<NVVM::BarrierOp, NVVM::Barrier0Op>(op)) {
    callService(SERVICE_BARRIER, Type(), {});
    op->erase();
    return success();
  }
  if (auto shuffle = dyn_cast<NVVM::ShflOp>(op))
    return replaceShuffle(shuffle);
  if (auto text = dyn_cast<LLVM::InlineAsmOp>(op))
    return replaceAssembly(text);
  auto getAlignment = [&](std::optional<uint64_t> given, Type type) {
    return int64_t(given ? *given : layout.getTypeABIAlignment(type));
  };
  if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
    if (!load.getAddr().getDefiningOp<LLVM::AllocaOp>())
      announce(load.getAddr(), load.getType(),
               getAlignment(load.getAlignment(), load.getType()));
    return success();
  }
  if (auto store = dyn_cast<LLVM::StoreOp>(op)) {
    Type type = store.getValue().getType();
    if (!store.getAddr().getDefiningOp<LLVM::AllocaOp>())
      announce(store.getAddr(), type, getAlignment(store.getAlignment(), type));
    return success();
  }
  if (isa_and_nonnull<NVVM::NVVMDialect>(op->getDialect()))
    return op->emitOpError("is not known to stepc-cuda-host");
  return success();
}

/// `NAME(arguments)` around the kernel, which becomes `NAME_kernel`.
void HostImage::wrapKernel(LLVM::LLVMFuncOp kernel) {
  std::string name = kernel.getSymName().str();
  int64_t count = kernel.getNumArguments();
  kernel.setSymName(name + "_kernel");
  kernel.setLinkage(LLVM::Linkage::Internal);
  for (NamedAttribute attribute :
       llvm::to_vector(kernel->getDiscardableAttrs()))
    kernel->removeDiscardableAttr(attribute.getName());
  addGlobal(name + "_words", word, /*constant=*/true,
            b.getI64IntegerAttr(count));
  b.setInsertionPointToEnd(module.getBody());
  auto entry = LLVM::LLVMFuncOp::create(
      b, loc, name,
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()),
                                  {pointer}));
  b.setInsertionPointToStart(entry.addEntryBlock(b));
  SmallVector<Value> arguments;
  for (int64_t k = 0; k < count; ++k) {
    Value from =
        LLVM::GEPOp::create(b, loc, pointer, word, entry.getArgument(0),
                            ArrayRef<LLVM::GEPArg>{int32_t(k)});
    arguments.push_back(LLVM::LoadOp::create(b, loc, word, from));
  }
  LLVM::CallOp::create(b, loc, kernel, arguments);
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

void HostImage::addGlobal(StringRef name, Type type, bool constant,
                          Attribute value) {
  b.setInsertionPointToStart(module.getBody());
  LLVM::GlobalOp::create(b, loc, type, constant, LLVM::Linkage::External, name,
                         value);
}

LogicalResult HostImage::run() {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops)
    if (failed(replace(op)))
      return failure();
  for (auto function : llvm::to_vector(module.getOps<LLVM::LLVMFuncOp>()))
    if (function->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()))
      wrapKernel(function);
  auto table = LLVM::LLVMArrayType::get(pointer, SERVICES);
  b.setInsertionPointToStart(module.getBody());
  auto global = LLVM::GlobalOp::create(b, loc, table, /*isConstant=*/false,
                                       LLVM::Linkage::External, STEPC_SERVICES,
                                       Attribute());
  b.setInsertionPointToStart(b.createBlock(&global.getInitializerRegion()));
  LLVM::ReturnOp::create(b, loc,
                         LLVM::ZeroOp::create(b, loc, table).getResult());
  return success();
}

static int report(llvm::Error error) {
  llvm::errs() << "stepc-cuda-host: error: " << llvm::toString(std::move(error))
               << "\n";
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    llvm::errs() << "usage: stepc-cuda-host INPUT.mlir IMAGE.so\n";
    return 2;
  }
  DialectRegistry registry;
  registerDialects(registry);
  registerTranslations(registry);
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> input = parseSourceFile<ModuleOp>(argv[1], &context);
  if (!input)
    return 1;
  auto devices = llvm::to_vector(input->getOps<gpu::GPUModuleOp>());
  if (devices.size() != 1)
    return report(llvm::createStringError("expected one gpu.module: " +
                                          llvm::Twine(devices.size())));
  OwningOpRef<ModuleOp> module = ModuleOp::create(input->getLoc());
  for (Operation &op : llvm::make_early_inc_range(*devices[0].getBody()))
    op.moveBefore(module->getBody(), module->getBody()->end());
  if (failed(HostImage(*module).run()))
    return 1;
  auto objects = generateObjects(*module, *getDefaultTarget());
  if (!objects)
    return report(objects.takeError());
  auto image = linkSharedObject(*objects);
  if (!image)
    return report(image.takeError());
  if (llvm::Error error = writeFile(argv[2], *image))
    return report(std::move(error));
  return 0;
}
