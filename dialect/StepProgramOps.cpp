//===- StepProgramOps.cpp - operations of programs, memory by address --===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What each operation says of itself; those on matrices in
// StepProgramMatrices.cpp. How they stand together is checked by
// StepProgramVerifier.cpp.
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;

/// Bodies compute and do nothing else. Integer powers, which are loops, are for
/// scalars.
static LogicalResult verifyPureBody(Region &body, bool allowsPowers) {
  for (Operation &op : body.front().without_terminator()) {
    bool allowed = isa_and_nonnull<arith::ArithDialect, math::MathDialect>(
                       op.getDialect()) ||
                   op.hasTrait<ExpandedInBodies>() ||
                   (allowsPowers && isa<PowiOp>(op));
    if (!allowed || !isMemoryEffectFree(&op))
      return op.emitOpError("is not allowed in a body, only arith and math "
                            "without side effects");
  }
  return success();
}

//===----------------------------------------------------------------------===//
// ProgramOp
//===----------------------------------------------------------------------===//

static SmallVector<BlockArgument> getArgumentsOfKind(ProgramOp program,
                                                     RoleKind kind) {
  SmallVector<BlockArgument> found;
  for (BlockArgument argument : program.getBody().getArguments())
    if (program.getRole(argument.getArgNumber()).getKind() == kind)
      found.push_back(argument);
  return found;
}

SmallVector<BlockArgument> ProgramOp::getOperandArguments() {
  SmallVector<BlockArgument> operands;
  for (BlockArgument argument : getBody().getArguments())
    if (isa<BufferType>(argument.getType()))
      operands.push_back(argument);
  return operands;
}

int64_t ProgramOp::getOperandIndex(BlockArgument argument) {
  return llvm::count_if(
      getBody().getArguments().take_front(argument.getArgNumber()),
      [](BlockArgument other) { return isa<BufferType>(other.getType()); });
}

BlockArgument ProgramOp::getParam() {
  SmallVector<BlockArgument> found = getArgumentsOfKind(*this, RoleKind::Param);
  return found.empty() ? BlockArgument() : found.front();
}

BlockArgument ProgramOp::getCount() {
  SmallVector<BlockArgument> found = getArgumentsOfKind(*this, RoleKind::Count);
  return found.empty() ? BlockArgument() : found.front();
}

SmallVector<BlockArgument> ProgramOp::getFreshes() {
  return getArgumentsOfKind(*this, RoleKind::Fresh);
}

SmallVector<ArrayAttr> ProgramOp::getFreshLists() {
  SmallVector<ArrayAttr> lists;
  for (BlockArgument fresh : getFreshes())
    lists.push_back(getRole(fresh.getArgNumber()).getStates());
  if (lists.empty())
    lists.push_back(ArrayAttr::get(getContext(), {}));
  return lists;
}

SmallVector<StringAttr> ProgramOp::getBoundDimNames() {
  SmallVector<StringAttr> names;
  if (getBoundDimsAttr())
    llvm::append_range(names, getBoundDimsAttr().getAsRange<StringAttr>());
  return names;
}

bool ProgramOp::hasDim(StringAttr dim) {
  return llvm::is_contained(getDims(getParam().getType()), dim) ||
         llvm::is_contained(getBoundDimNames(), dim);
}

bool ProgramOp::isFlatRange() {
  LayoutAttr layout = getVariant().getLayout();
  return layout && layout.isFlat() &&
         !isVector(cast<BufferType>(getParam().getType()).getShape());
}

void ProgramOp::getAsmBlockArgumentNames(Region &region,
                                         OpAsmSetValueNameFn setName) {
  for (BlockArgument argument : region.getArguments())
    if (argument.getArgNumber() < getRoles().size())
      setName(argument, getRole(argument.getArgNumber()).getDisplayName());
}

int64_t mlir::step::getSegment(Operation *op) {
  Operation *entry = getEntryOf(op);
  int64_t segment = 0;
  for (Operation &other : *entry->getBlock()) {
    if (&other == entry)
      break;
    segment += isa<ExchangeOp>(other);
  }
  return segment;
}

Operation *mlir::step::getEntryOf(Operation *op) {
  while (op && !isa_and_nonnull<ProgramOp>(op->getParentOp()))
    op = op->getParentOp();
  return op;
}

Value mlir::step::getMemory(Value buffer) {
  while (true) {
    auto result = dyn_cast<OpResult>(buffer);
    if (!result)
      return buffer;
    if (isa<KeepOp, TransferOpInterface>(result.getOwner())) {
      buffer = result.getOwner()->getOperand(0);
      continue;
    }
    auto traverse = dyn_cast<TraverseOp>(result.getOwner());
    unsigned number = result.getResultNumber();
    if (!traverse || number >= traverse.getWrites().size())
      return buffer;
    buffer = traverse.getWrites()[number];
  }
}

//===----------------------------------------------------------------------===//
// CohortScalarsOp
//===----------------------------------------------------------------------===//

/// A scalar that is one of the outside as it is has its name.
void CohortScalarsOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  for (OpResult result : getScalars())
    if (StringRef name = getScalarName(result); !name.empty())
      setName(result, name);
}

StringRef CohortScalarsOp::getScalarName(OpResult scalar) {
  // What is printed need not be valid.
  Block &block = getBody().front();
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield || scalar.getResultNumber() >= yield.getValues().size())
    return {};
  Value value = yield.getValues()[scalar.getResultNumber()];
  if (auto hyper = value.getDefiningOp<HyperOp>())
    return hyper.getName();
  if (auto kept = value.getDefiningOp<ScalarOp>())
    return kept.getName();
  return {};
}

LogicalResult CohortScalarsOp::verifyRegions() {
  if (failed(verifyName(*this, "scalars", getSymName())))
    return failure();
  YieldOp yield = getYield();
  if (yield.getValues().getTypes() != getScalars().getTypes())
    return emitOpError() << "yields " << yield.getValues().getTypes() << " for "
                         << getScalars().getTypes();
  return verifyPureBody(getBody(), /*allowsPowers=*/true);
}

//===----------------------------------------------------------------------===//
// TraverseOp
//===----------------------------------------------------------------------===//

SmallVector<Value> TraverseOp::getMade() {
  SmallVector<Value> made;
  for (Value result : getResults().drop_front(getWrites().size()))
    if (isa<BufferType>(result.getType()))
      made.push_back(result);
  return made;
}

SmallVector<Value> TraverseOp::getPartials() {
  SmallVector<Value> partials;
  for (Value result : getResults())
    if (isa<PartialType>(result.getType()))
      partials.push_back(result);
  return partials;
}

bool TraverseOp::isKernel() {
  BlockArgument param = cast<ProgramOp>((*this)->getParentOp()).getParam();
  return param && getDims(param.getType()) == getDims(getOver());
}

void TraverseOp::getAsmBlockArgumentNames(Region &region,
                                          OpAsmSetValueNameFn setName) {
  for (auto [argument, buffer] : llvm::zip(region.getArguments(), getReads())) {
    auto memory = dyn_cast<BlockArgument>(getMemory(buffer));
    auto program = dyn_cast_or_null<ProgramOp>((*this)->getParentOp());
    bool isOperand =
        memory && program && memory.getArgNumber() < program.getRoles().size();
    setName(argument,
            isOperand ? program.getRole(memory.getArgNumber()).getDisplayName()
                      : StringRef("vector"));
  }
  // What is printed need not be valid.
  if (region.getNumArguments() < getReads().size())
    return;
  for (auto [argument, scalar] :
       llvm::zip(getScalarArguments(), getScalars())) {
    auto cohort = scalar.getDefiningOp<CohortScalarsOp>();
    StringRef name =
        cohort ? cohort.getScalarName(cast<OpResult>(scalar)) : StringRef();
    setName(argument, name.empty() ? "scalar" : name);
  }
}

/// Whether each of the dims is that of `over` in its place, or 1.
static bool goesAlong(ArrayRef<StringAttr> dims, ArrayRef<StringAttr> over) {
  return dims.size() == over.size() &&
         llvm::all_of(llvm::zip(dims, over), [](auto pair) {
           auto [dim, own] = pair;
           return dim == own || dim.getValue() == "1";
         });
}

static LogicalResult verifyBuffers(TraverseOp op) {
  ArrayRef<StringAttr> over = getDims(op.getOver());
  auto program = cast<ProgramOp>(op->getParentOp());
  BlockArgument param = program.getParam();
  for (StringAttr dim : over)
    if (param && dim.getValue() != "1" && !program.hasDim(dim))
      return op.emitOpError() << "goes over " << op.getOver()
                              << " in a program of " << param.getType();
  for (Value buffer : op.getReads())
    if (!goesAlong(getDims(buffer.getType()), over))
      return op.emitOpError()
             << "reads " << buffer.getType() << " over " << op.getOver();
  for (Value buffer : op.getWrites())
    if (getDims(buffer.getType()) != over)
      return op.emitOpError()
             << "writes " << buffer.getType() << " over " << op.getOver();
  unsigned number = 0;
  bool reduces = false;
  for (Value result : op.getResults()) {
    auto partial = dyn_cast<PartialType>(result.getType());
    reduces |= bool(partial);
    bool fits =
        partial ? partial.getDims() == over &&
                      (partial.isWhole() || goesAlong(partial.getKept(), over))
                : !reduces && getDims(result.getType()) == over &&
                      (number >= op.getWrites().size() ||
                       result.getType() == op.getWrites()[number].getType());
    if (!fits)
      return op.emitOpError()
             << "gives " << result.getType() << " over " << op.getOver();
    ++number;
  }
  if (number < op.getWrites().size())
    return op.emitOpError() << "gives " << number << " results for "
                            << op.getWrites().size() << " written buffers";
  return success();
}

LogicalResult TraverseOp::verifyRegions() {
  if (failed(verifyName(*this, "traversal", getSymName())))
    return failure();
  YieldOp yield = getYield();
  if (!isa<SymTensorType>(getOver()))
    return emitOpError() << "goes over " << getOver()
                         << ", which are no dims of a tensor";
  if (failed(verifyBuffers(*this)))
    return failure();
  SmallVector<Type> arguments, results;
  for (Value buffer : getReads())
    arguments.push_back(cast<BufferType>(buffer.getType()).getElement());
  Type compute =
      cast<ProgramOp>((*this)->getParentOp()).getVariant().getCompute();
  for (Type scalar : getScalars().getTypes())
    arguments.push_back(scalar.isF64() ? compute : scalar);
  for (Value result : getResults()) {
    auto buffer = dyn_cast<BufferType>(result.getType());
    results.push_back(buffer ? buffer.getElement() : compute);
  }
  if (getUnless() &&
      (!isKernel() || !getWrites().empty() || !getMade().empty()))
    return emitOpError("is left out, but is no kernel or writes buffers");
  if (getTrailing() && (!isKernel() || getUnless()))
    return emitOpError("is trailing, but is no kernel or may be left out");
  if (TypeRange(arguments) != getBody().getArgumentTypes())
    return emitOpError() << "takes " << getBody().getArgumentTypes()
                         << "; buffers and scalars give " << arguments;
  if (TypeRange(results) != TypeRange(yield.getValues().getTypes()))
    return emitOpError() << "yields " << yield.getValues().getTypes()
                         << "; the results are of " << results;
  return verifyPureBody(getBody(), /*allowsPowers=*/false);
}

//===----------------------------------------------------------------------===//
// CombineOp, ExchangeOp, ReceiveOp, KeepOp
//===----------------------------------------------------------------------===//

/// Whether `type` is what the reduction leaves: an f64, or a buffer of the kept
/// dims.
template <typename TypeT>
static bool isResultOf(Type type, TypeT reduced) {
  if (reduced.isWhole())
    return type.isF64();
  return isa<BufferType>(type) && getDims(type) == reduced.getKept();
}

LogicalResult CombineOp::verify() {
  PartialType partial = getPartial().getType();
  Type type = getResult().getType();
  auto share = dyn_cast<ShareType>(type);
  bool fits =
      share ? share == ShareType::get(getContext(), partial.getCombiner(),
                                      partial.getDims(), partial.getKept())
            : isResultOf(type, partial);
  if (!fits)
    return emitOpError() << "makes " << type << " of " << partial;
  if (share && getMean())
    return emitOpError("makes a mean of a share");
  if (getMean() && partial.getCombiner() != Combiner::Sum)
    return emitOpError() << "makes a mean of " << partial;
  auto traverse = getPartial().getDefiningOp<TraverseOp>();
  if (traverse && traverse.getUnless() != getUnless())
    return emitOpError("is left out otherwise than its traversal");
  if (getUnless() && !partial.isWhole())
    return emitOpError() << "leaves out " << partial
                         << ", which is more than a number";
  return success();
}

LogicalResult ExchangeOp::verify() {
  if (getShares().getTypes() != getResults().getTypes())
    return emitOpError() << "gives " << getResults().getTypes() << " for "
                         << getShares().getTypes();
  if (getOver().size() != getShares().size())
    return emitOpError() << "has dims for " << getOver().size() << " of "
                         << getShares().size() << " shares";
  return success();
}

LogicalResult ReceiveOp::verify() {
  if (getShares().empty())
    return emitOpError("receives nothing");
  if (!llvm::all_equal(getShares().getTypes()))
    return emitOpError() << "receives shares of several reductions: "
                         << getShares().getTypes();
  auto share = cast<ShareType>(getShares().front().getType());
  if (!isResultOf(getResult().getType(), share))
    return emitOpError() << "makes " << getResult().getType() << " of "
                         << share;
  return success();
}

LogicalResult KeepOp::verify() {
  if (isa<BlockArgument>(getMemory(getBuffer())) ||
      getBuffer().getDefiningOp<KeepOp>())
    return emitOpError("keeps a buffer that is kept anyway");
  return success();
}

//===----------------------------------------------------------------------===//
// ViewOp
//===----------------------------------------------------------------------===//

LogicalResult ViewOp::verify() {
  auto type = cast<MemRefType>(getResult().getType());
  if (type.getRank() != 1 || !type.isDynamicDim(0) ||
      !type.getLayout().isIdentity())
    return emitOpError() << "makes " << type
                         << ", which is not a one-dimensional contiguous "
                            "memref of dynamic extent";
  return success();
}
