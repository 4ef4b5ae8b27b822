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

Value Words::choose(Type type, Value condition, function_ref<Value()> emitThen,
                    function_ref<Value()> emitElse) const {
  auto branch =
      scf::IfOp::create(b, loc, type, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loc, emitThen());
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, loc, emitElse());
  return branch.getResult(0);
}

SmallVector<Value> Words::foldAll(
    Value begin, Value end, Value step, ValueRange init,
    function_ref<SmallVector<Value>(Value, ValueRange)> emitBody) const {
  auto loop = scf::ForOp::create(b, loc, begin, end, step, init);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next =
      emitBody(loop.getInductionVar(), loop.getRegionIterArgs());
  // Without values the loop has its end already.
  if (!next.empty())
    scf::YieldOp::create(b, loc, next);
  return SmallVector<Value>(loop.getResults());
}

Value Words::fold(Value begin, Value end, int64_t step, Value init,
                  function_ref<Value(Value, Value)> emitBody) const {
  return foldAll(begin, end, constant(step), init,
                 [&](Value index, ValueRange values) {
                   return SmallVector<Value>{emitBody(index, values[0])};
                 })
      .front();
}

SmallVector<Value>
Words::repeatAll(ValueRange init, function_ref<Value(ValueRange)> emitCondition,
                 function_ref<SmallVector<Value>(ValueRange)> emitBody) const {
  TypeRange types = init.getTypes();
  SmallVector<Location> locs(init.size(), loc);
  auto loop = scf::WhileOp::create(b, loc, types, init);
  OpBuilder::InsertionGuard guard(b);
  Block *before = b.createBlock(&loop.getBefore(), {}, types, locs);
  Value more = emitCondition(before->getArguments());
  scf::ConditionOp::create(b, loc, more, before->getArguments());
  Block *after = b.createBlock(&loop.getAfter(), {}, types, locs);
  scf::YieldOp::create(b, loc, emitBody(after->getArguments()));
  return SmallVector<Value>(loop.getResults());
}

Value Words::repeat(Value init, function_ref<Value(Value)> emitCondition,
                    function_ref<Value(Value)> emitBody) const {
  return repeatAll(
             init, [&](ValueRange values) { return emitCondition(values[0]); },
             [&](ValueRange values) {
               return SmallVector<Value>{emitBody(values[0])};
             })
      .front();
}

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
