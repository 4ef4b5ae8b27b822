//===- ScalarFunctions.cpp - functions in place of operations -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/ScalarFunctions.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::step;

static func::FuncOp
makeFunction(Operation *op, Operation *module, StringRef name, bool isInlined,
             function_ref<Value(OpBuilder &, ValueRange)> emitBody) {
  OpBuilder b = OpBuilder::atBlockEnd(&module->getRegion(0).front());
  Location loc = module->getLoc();
  auto function = func::FuncOp::create(
      b, loc, name,
      b.getFunctionType(op->getOperandTypes(), op->getResultTypes()));
  function.setPrivate();
  function->setAttr(
      "llvm.linkage",
      LLVM::LinkageAttr::get(b.getContext(), LLVM::Linkage::Internal));
  if (!isInlined)
    function->setAttr("passthrough",
                      b.getArrayAttr(b.getStringAttr("noinline")));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  func::ReturnOp::create(b, loc, emitBody(b, entry->getArguments()));
  return function;
}

void mlir::step::callInstead(
    ArrayRef<Operation *> ops, StringRef name,
    function_ref<Value(OpBuilder &, ValueRange)> emitBody) {
  // A call costs a device's thread more than it spares, but for code that
  // grows with the number of calls.
  constexpr size_t kFew = 16;
  for (Operation *op : ops) {
    // What is of no function yet is left.
    auto caller = op->getParentOfType<FunctionOpInterface>();
    if (!caller)
      continue;
    Operation *module =
        SymbolTable::getNearestSymbolTable(caller->getParentOp());
    bool isInlined = isa<gpu::GPUModuleOp>(module) && ops.size() <= kFew;
    auto function = dyn_cast_or_null<func::FuncOp>(
        SymbolTable::lookupSymbolIn(module, name));
    if (!function)
      function = makeFunction(op, module, name, isInlined, emitBody);
    OpBuilder b(op);
    op->replaceAllUsesWith(
        func::CallOp::create(b, op->getLoc(), function, op->getOperands()));
    op->erase();
  }
}
