//===- ProgramStorage.cpp - where the values of a program lie -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/ProgramStorage.h"

#include "passes/schedule/Schedule.h"
#include "stepc/kernel_abi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::step;

ProgramStorage::ProgramStorage(ProgramOp program)
    : program(program), dims(step::getParamDims(program)) {
  numberCohort();
  numberTensor();
  if (program.getElementwise())
    return;
  addVectors();
  addPartials();
  for (auto op : program.getBody().getOps<ProgramMatrixOpInterface>())
    addMatrixMemory(op);
}

void ProgramStorage::numberCohort() {
  for (auto scalars : program.getBody().getOps<CohortScalarsOp>())
    for (Value result : scalars.getScalars())
      cohortSlots.insert({result, int64_t(cohortSlots.size())});
}

void ProgramStorage::numberTensor() {
  auto give = [&](Value value) {
    tensorSlots.insert({value, int64_t(tensorSlots.size())});
  };
  // In which run of scalar operations, one behind the other, each is.
  DenseMap<Operation *, int64_t> runs;
  int64_t run = 0;
  for (Operation &op : program.getBody().front()) {
    if (isa<arith::ConstantOp>(op))
      continue;
    if (isTensorScalar(&op))
      runs[&op] = run;
    else
      ++run;
  }
  for (Operation &op : program.getBody().front()) {
    if (isa<CohortScalarsOp>(op))
      continue;
    for (Value result : op.getResults()) {
      if (isShaped(result.getType()) ||
          isa<BufferType, PartialType, ShareType>(result.getType()) ||
          isa<arith::ConstantOp>(op))
        continue;
      bool isInRun =
          isTensorScalar(&op) &&
          llvm::all_of(op.getUsers(), [&](Operation *user) {
            auto found = runs.find(user);
            return found != runs.end() && found->second == runs.lookup(&op);
          });
      if (!isInRun)
        give(result);
    }
  }
}

/// The factors of a number of elements; dims of one add none.
static SmallVector<std::string> getSize(ArrayRef<StringAttr> dims) {
  SmallVector<std::string> size;
  for (StringAttr dim : dims)
    if (dim.getValue() != "1")
      size.push_back(dim.str());
  return size;
}

/// What a traversal leaves of a reduction: one for each leaf.
SmallVector<std::string>
ProgramStorage::getPartialSize(PartialType type) const {
  ReductionDims in(dims, type.getShape(), type.getKeptShape());
  auto ofLeaves = [&](unsigned position, int64_t leaf) {
    return (in.names[position].getValue() + "/" + Twine(leaf)).str();
  };
  ProgramOp op = program;
  bool ofRange = op.isFlatRange() && in.isKernel;
  if (ofRange && !in.reducesOuter) {
    std::string lane = in.names[*in.lane].str();
    if (in.leaves == Leaves::Columns)
      return {"range blocks", lane};
    return {"range rows", ofLeaves(*in.lane, STEPC_LEAF)};
  }
  SmallVector<std::string> size;
  for (unsigned position : in.over.getPositions()) {
    if (in.names[position].getValue() == "1")
      continue;
    if (in.leaves == Leaves::Lanes && position == *in.lane)
      size.push_back(ofLeaves(position, STEPC_LEAF));
    else if (in.leaves == Leaves::Columns && position == *dims.getRow())
      size.push_back(ofLeaves(position, STEPC_ROW_LEAF));
    else
      size.push_back(in.names[position].str());
  }
  return size;
}

void ProgramStorage::add(Value value, StringRef prefix, int64_t number,
                         SmallVector<std::string> size, Type element) {
  buffers[value] = workspace.size();
  workspace.push_back(
      {(prefix + Twine(number)).str(), std::move(size), element});
}

namespace {
/// Which buffers of a program nobody uses any more, from its first operation to
/// its last. Where buffers are small, none is used again.
class DeadBuffers {
public:
  explicit DeadBuffers(ProgramOp program);

  /// One of that size for a result of the operation; null where there is none.
  std::optional<int64_t> take(ArrayRef<std::string> size, Type element);
  /// What is not used behind the operation.
  void release(Operation *op, function_ref<int64_t(Value)> getIndex,
               ArrayRef<WorkspaceBuffer> workspace);

private:
  /// Memory by the operation behind which it is free.
  llvm::MapVector<Operation *, SmallVector<Value>> ends;
  struct Free {
    SmallVector<std::string> size;
    Type element;
    int64_t index;
  };
  SmallVector<Free> free;
};
} // namespace

/// The operations of a train run together, so what one of them uses last is
/// free behind all.
DeadBuffers::DeadBuffers(ProgramOp program) {
  if (program.getBody().getOps<ProgramMatrixOpInterface>().empty())
    return;
  llvm::MapVector<Value, Operation *> last;
  DenseMap<Operation *, Operation *> trainEnds;
  Operation *end = nullptr;
  for (Operation &op : llvm::reverse(program.getBody().front())) {
    auto traverse = dyn_cast<TraverseOp>(op);
    if (!end && traverse && traverse.getTrailing())
      end = &op;
    trainEnds[&op] = end ? end : &op;
    if (traverse && traverse.isKernel() && !traverse.getTrailing())
      end = nullptr;
  }
  for (Operation &op : program.getBody().front()) {
    SmallVector<Value> touched(op.getOperands());
    llvm::append_range(touched, op.getResults());
    for (Value value : touched)
      if (isa<BufferType>(value.getType()))
        last[getMemory(value)] = trainEnds.lookup(&op);
  }
  for (auto [memory, op] : last)
    if (!isa<BlockArgument>(memory))
      ends[op].push_back(memory);
}

std::optional<int64_t> DeadBuffers::take(ArrayRef<std::string> size,
                                         Type element) {
  auto found = llvm::find_if(free, [&](const Free &buffer) {
    return ArrayRef(buffer.size) == size && buffer.element == element;
  });
  if (found == free.end())
    return std::nullopt;
  int64_t index = found->index;
  free.erase(found);
  return index;
}

void DeadBuffers::release(Operation *op, function_ref<int64_t(Value)> getIndex,
                          ArrayRef<WorkspaceBuffer> workspace) {
  for (Value memory : ends.lookup(op)) {
    int64_t index = getIndex(memory);
    if (!workspace[index].live)
      free.push_back({workspace[index].size, workspace[index].element, index});
  }
}

void ProgramStorage::addVectors() {
  DeadBuffers dead(program);
  // What is kept over a round is nobody else's.
  DenseSet<Value> kept;
  for (auto keep : program.getBody().getOps<KeepOp>())
    kept.insert(getMemory(keep.getResult()));
  int64_t numVectors = 0;
  for (Operation &op : program.getBody().front()) {
    for (Value result : op.getResults()) {
      auto buffer = dyn_cast<BufferType>(result.getType());
      if (!buffer || getMemory(result) != result)
        continue;
      SmallVector<std::string> size = getSize(buffer.getDims());
      std::optional<int64_t> taken;
      if (!kept.contains(result))
        taken = dead.take(size, buffer.getElement());
      if (taken)
        buffers[result] = *taken;
      else
        add(result, "temp", numVectors++, std::move(size), buffer.getElement());
      workspace[buffers.lookup(result)].live = kept.contains(result);
    }
    dead.release(
        &op, [&](Value memory) { return buffers.lookup(memory); }, workspace);
  }
}

/// Partial results, and what is made of them.
void ProgramStorage::addPartials() {
  Type f64 = Float64Type::get(program.getContext());
  int64_t numPartials = 0;
  DenseMap<Value, int64_t> numbers;
  for (Operation &op : program.getBody().front()) {
    for (Value result : op.getResults())
      if (auto partial = dyn_cast<PartialType>(result.getType())) {
        numbers[result] = numPartials;
        add(result, "partial", numPartials++, getPartialSize(partial), f64);
      }
    if (auto combine = dyn_cast<CombineOp>(op)) {
      auto share = dyn_cast<ShareType>(combine.getResult().getType());
      if (!share)
        continue;
      bool crosses = isa<ExchangeOp>(*combine.getResult().user_begin());
      add(combine.getResult(), crosses ? "exchange" : "whole",
          numbers.lookup(combine.getPartial()), getSize(share.getKept()), f64);
    }
    if (auto exchange = dyn_cast<ExchangeOp>(op))
      for (auto [k, share] : llvm::enumerate(exchange.getShares())) {
        buffers[exchange.getResult(k)] = buffers.lookup(share);
        WorkspaceBuffer &own = workspace[buffers.lookup(share)];
        own.live = true;
        own.exchange = exchange;
        own.share = k;
      }
  }
}

/// What is worked in, once for all that have the same extents.
int64_t ProgramStorage::findOrAdd(StringRef prefix, ArrayRef<std::string> size,
                                  Type element, int64_t width, BufferUse use) {
  for (auto [index, buffer] : llvm::enumerate(workspace))
    if (buffer.width == width && buffer.use == use &&
        ArrayRef(buffer.size) == size && buffer.element == element &&
        StringRef(buffer.name).starts_with(prefix))
      return int64_t(index);
  int64_t number = workspace.size();
  workspace.push_back(
      {(prefix + Twine(number)).str(), llvm::to_vector(size), element});
  workspace.back().width = width;
  workspace.back().use = use;
  return number;
}

void ProgramStorage::addProductMemory(ProductOp product) {
  ArrayRef<StringAttr> lhs = getDims(product.getLhs().getType());
  StringAttr depth =
      product.getLhsTransposed() ? lhs.drop_back().back() : lhs.back();
  Type chain = product.getType().getElement();
  if (product.getWide())
    chain = Float64Type::get(program.getContext());
  // Two factors of bf16 are as long as an f32.
  if (product.getRounded())
    chain = Float32Type::get(program.getContext());
  int64_t panelColumns = STEPC_PANEL_BYTES / getBytes(chain);
  SmallVector<std::string> packed = getSize(depth), panels = packed;
  for (const std::string &columns : getSize(product.getType().getDims().back()))
    panels.push_back(columns + "/" + std::to_string(panelColumns));
  auto find = [&](StringRef prefix, ArrayRef<std::string> size, int64_t width) {
    return findOrAdd(prefix, size, chain, width, BufferUse::Packed);
  };
  products[product] = {find("panels", panels, panelColumns),
                       find("packed", packed, STEPC_PACKED_ROWS)};
}

void ProgramStorage::addRoutineMemory(RoutineOpInterface op) {
  Type f64 = Float64Type::get(program.getContext());
  ArrayRef<StringAttr> dims = getDims(op->getOperand(0).getType());
  SmallVector<std::string> rows = getSize(dims[dims.size() - 2]);
  SmallVector<std::string> columns = getSize(dims.back()), matrix(rows);
  llvm::append_range(matrix, columns);
  auto find = [&](StringRef prefix, ArrayRef<std::string> size, int64_t width) {
    return findOrAdd(prefix, size, f64, width, BufferUse::Routine);
  };
  routines[op] =
      llvm::TypeSwitch<Operation *, RoutineMemory>(op)
          .Case([&](EigenvectorsOp) -> RoutineMemory {
            return {find("matrix", matrix, 1), find("vectors", matrix, 1),
                    find("work", rows, STEPC_EIGEN_WORK)};
          })
          .Case([&](OrthonormalOp) -> RoutineMemory {
            return {find("matrix", matrix, 1), find("vectors", matrix, 1),
                    find("work", rows, STEPC_ORTHONORMAL_WORK)};
          })
          .Case([&](SortedOp) -> RoutineMemory {
            return {find("keys", columns, 1), find("places", columns, 1)};
          });
}

Type mlir::step::getHandedType(RoutineOpInterface op) {
  Type f64 = Float64Type::get(op->getContext());
  if (isa<SortedOp>(op))
    return f64;
  auto from = cast<BufferType>(op->getOperand(0).getType());
  auto to = cast<BufferType>(op->getResult(0).getType());
  return std::max(from.getElementBytes(), to.getElementBytes()) > 4
             ? f64
             : Float32Type::get(op->getContext());
}

/// Of all matrices of the tensor: each launch hands all of them over.
void ProgramStorage::addHandedMemory(RoutineOpInterface op) {
  Type f64 = Float64Type::get(program.getContext());
  unsigned operand = isa<SortedOp>(op) ? 1 : 0;
  SmallVector<std::string> size =
      getSize(getDims(op->getOperand(operand).getType()));
  handed[op] = {
      findOrAdd("record", {}, f64, STEPC_CALL_WORDS, BufferUse::Record),
      findOrAdd("handed", size, getHandedType(op), 1, BufferUse::Handed),
      std::nullopt};
  auto eigen = dyn_cast<EigenvectorsOp>(op.getOperation());
  if (eigen && eigen.getValues())
    handed[op].values =
        findOrAdd("numbers", getSize(getDims(eigen.getValues().getType())),
                  getHandedType(op), 1, BufferUse::Handed);
}

/// What works in memory beside its operands and its result.
void ProgramStorage::addMatrixMemory(Operation *op) {
  if (auto product = dyn_cast<ProductOp>(op))
    addProductMemory(product);
  else if (auto routine = dyn_cast<RoutineOpInterface>(op)) {
    addRoutineMemory(routine);
    addHandedMemory(routine);
  }
}

int64_t ProgramStorage::getBufferIndex(Value value) const {
  auto found = buffers.find(getMemory(value));
  assert(found != buffers.end() && "the value has a buffer of the workspace");
  return found->second;
}
