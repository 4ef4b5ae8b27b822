//===- Words.cpp - kernels read the table as 64-bit words -----------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/Words.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mlir::step;

func::FuncOp mlir::step::makeInternalFunction(OpBuilder &builder, Location loc,
                                              StringRef name, int64_t words,
                                              int64_t indices) {
  SmallVector<Type> types(words, builder.getI64Type());
  types.append(indices, builder.getIndexType());
  auto function = func::FuncOp::create(builder, loc, name,
                                       builder.getFunctionType(types, {}));
  function.setPrivate();
  // Inlined into the kernels, which are the only names outside.
  function->setAttr(
      "llvm.linkage",
      LLVM::LinkageAttr::get(builder.getContext(), LLVM::Linkage::Internal));
  function.addEntryBlock();
  return function;
}

func::FuncOp mlir::step::getSharedFunction(
    const Words &w, StringRef name, int64_t words, int64_t indices,
    function_ref<void(const Words &, ValueRange)> emitBody) {
  // The module of a device, or the host's.
  Operation *module = SymbolTable::getNearestSymbolTable(
      w.b.getInsertionBlock()->getParentOp());
  if (Operation *known = SymbolTable::lookupSymbolIn(module, name))
    return cast<func::FuncOp>(known);
  OpBuilder::InsertionGuard guard(w.b);
  w.b.setInsertionPointToEnd(&module->getRegion(0).front());
  func::FuncOp function =
      makeInternalFunction(w.b, module->getLoc(), name, words, indices);
  function->setAttr("passthrough",
                    w.b.getArrayAttr(w.b.getStringAttr("noinline")));
  Block &entry = function.getBody().front();
  w.b.setInsertionPointToStart(&entry);
  emitBody(Words(w.b, module->getLoc()), entry.getArguments());
  func::ReturnOp::create(w.b, module->getLoc());
  return function;
}
