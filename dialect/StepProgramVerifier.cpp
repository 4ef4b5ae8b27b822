//===- StepProgramVerifier.cpp - how a program's operations stand together ===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/Step.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::step;

namespace {
/// Walks a program once, from its first operation to its last. Invariants, at
/// an operation:
/// - `segment` is the number of exchanges before it;
/// - `written` says for memory that an operation before it has written, or
///   filled with what ranks have sent, what its contents are now, so that any
///   other value of it is refused: of
///
///     %m1 = step.traverse ... reads (%m) writes (%m)
///     ... %m ...   // refused: in memory stands %m1
///
class ProgramVerifier {
public:
  explicit ProgramVerifier(ProgramOp program)
      : program(program), optimizer(program->getParentOfType<OptimizerOp>()) {}

  LogicalResult run();

private:
  LogicalResult verifyRoles();
  LogicalResult verifyKind(Operation &op);
  LogicalResult verifyBuffers(Operation &op);
  LogicalResult verifyScalars(Operation &op);
  LogicalResult verifyCohort(CohortScalarsOp op);
  LogicalResult verifyTraverse(TraverseOp op);
  LogicalResult verifyExchange(ExchangeOp op);
  LogicalResult verifyTransfer(TransferOpInterface op);
  void findSkips();

  ProgramOp program;
  OptimizerOp optimizer;
  int64_t segment = 0;
  /// The first segment in which it is known that the step is not skipped.
  int64_t firstSure = 0;
  DenseMap<Value, OpResult> written;
};
} // namespace

/// Roles and arguments agree, and there is a param.
LogicalResult ProgramVerifier::verifyRoles() {
  if (program.getRoles().size() != program.getBody().getNumArguments())
    return program.emitOpError()
           << "has " << program.getRoles().size() << " roles for "
           << program.getBody().getNumArguments() << " arguments";
  for (BlockArgument argument : program.getBody().getArguments()) {
    RoleAttr role = program.getRole(argument.getArgNumber());
    auto buffer = dyn_cast<BufferType>(argument.getType());
    if (role.isTensor() != bool(buffer) ||
        (buffer && role.getStorage() != buffer.getElement()))
      return program.emitOpError() << "has '" << role.getDisplayName()
                                   << "' of type " << argument.getType();
  }
  if (!program.getParam())
    return program.emitOpError("has no param");
  for (ArrayAttr list : program.getFreshLists()) {
    if (!list)
      return program.emitOpError("has a fresh that names no states");
    for (auto name : list.getAsRange<StringAttr>())
      if (llvm::none_of(program.getRoles().getAsRange<RoleAttr>(),
                        [&](RoleAttr role) {
                          return role.getKind() == RoleKind::State &&
                                 role.getName() == name;
                        }))
        return program.emitOpError() << "asks whether '" << name.getValue()
                                     << "' is fresh, which is no state of it";
  }
  return success();
}

LogicalResult ProgramVerifier::verifyKind(Operation &op) {
  bool allowed =
      isa<CohortScalarsOp, TraverseOp, CombineOp, ExchangeOp, ReceiveOp, KeepOp,
          OwnOp, ExtentOp, CarriedOp, CarryOp, ContributeOp, PowiOp,
          ProgramMatrixOpInterface, TransferOpInterface>(op) ||
      op.hasTrait<ExpandedInBodies>();
  if (isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op.getDialect()))
    allowed = isMemoryEffectFree(&op);
  if (!allowed)
    return op.emitOpError("is not allowed in a program, only its operations "
                          "and arith and math without side effects");
  return success();
}

/// What is used has not been written, and a partial result is used up.
LogicalResult ProgramVerifier::verifyBuffers(Operation &op) {
  for (Value operand : op.getOperands()) {
    if (!isa<BufferType>(operand.getType()))
      continue;
    auto found = written.find(getMemory(operand));
    if (found != written.end() && found->second != operand) {
      auto error = op.emitOpError("uses a buffer that was written");
      error.attachNote(found->second.getLoc()) << "it is written here";
      return error;
    }
  }
  for (Value result : op.getResults()) {
    if (isa<PartialType>(result.getType()) &&
        !(result.hasOneUse() && isa<CombineOp>(*result.user_begin())))
      return op.emitOpError(
          "leaves a partial result that is not combined once");
    if (isa<ShareType>(result.getType()) &&
        !(result.hasOneUse() &&
          isa<ExchangeOp, ReceiveOp>(*result.user_begin())))
      return op.emitOpError("leaves a share that is not received once");
  }
  return success();
}

/// Whether the scalar has a place of the tensor's.
static bool isOfTensor(Value scalar) {
  Operation *source = scalar.getDefiningOp();
  return source && !isa<CohortScalarsOp, arith::ConstantOp>(source);
}

/// A scalar of the tensor is asked for where the runtime looks at it.
static LogicalResult verifyAsked(Operation &op) {
  Value asked;
  if (auto contribute = dyn_cast<ContributeOp>(op))
    asked = contribute.getValue();
  else if (auto traverse = dyn_cast<TraverseOp>(op))
    asked = traverse.getUnless();
  else if (auto combine = dyn_cast<CombineOp>(op))
    asked = combine.getUnless();
  if (asked && !isOfTensor(asked))
    return op.emitOpError("asks for a scalar of the tensor and names one of "
                          "the cohort");
  return success();
}

/// Outside of scalars of the cohort only the program's own are there.
LogicalResult ProgramVerifier::verifyScalars(Operation &op) {
  for (OpOperand &operand : op.getOpOperands()) {
    Value value = operand.get();
    bool isOwn = value.getParentRegion() == &program.getBody();
    bool isStatistic = isa<ContributeOp>(op) && operand.getOperandNumber() == 0;
    if (isa<BufferType>(value.getType()) ||
        (isOwn ? !isa<BlockArgument>(value) : isStatistic))
      continue;
    return op.emitOpError(
        "uses a scalar of the outside, which only scalars of the cohort do");
  }
  return success();
}

/// What a scalar function is given: hyper-parameters, kept scalars, results of
/// rounds that are over, the count and the fresh flags.
LogicalResult ProgramVerifier::verifyCohort(CohortScalarsOp op) {
  Operation *wrong = nullptr, *early = nullptr;
  op.walk([&](Operation *inner) {
    for (Value value : inner->getOperands()) {
      if (op.getBody().isAncestor(value.getParentRegion()))
        continue;
      auto argument = dyn_cast<BlockArgument>(value);
      Operation *source = value.getDefiningOp();
      auto scalars = dyn_cast_or_null<ScalarsOp>(source);
      bool isGiven =
          argument
              ? !isa<BufferType>(argument.getType())
              : scalars || isa<HyperOp, ScalarOp, arith::ConstantOp>(source);
      if (!isGiven)
        wrong = inner;
      else if (scalars && scalars.getRound() &&
               int64_t(*scalars.getRound()) >= segment)
        early = inner;
    }
  });
  if (wrong)
    return wrong->emitOpError("uses what no scalar function is given");
  if (early)
    return early->emitOpError() << "uses in segment " << segment
                                << " a result of a round that is not over";
  return success();
}

LogicalResult ProgramVerifier::verifyTraverse(TraverseOp op) {
  DenseSet<Value> own;
  for (auto [buffer, result] : llvm::zip(op.getWrites(), op.getResults())) {
    if (segment < firstSure)
      return op.emitOpError() << "writes in segment " << segment
                              << ", before it is known whether the step is "
                                 "skipped";
    if (!own.insert(getMemory(buffer)).second)
      return op.emitOpError("writes a buffer twice");
    written[getMemory(buffer)] = cast<OpResult>(result);
  }
  return success();
}

LogicalResult ProgramVerifier::verifyExchange(ExchangeOp op) {
  if (int64_t(op.getRound()) != segment)
    return op.emitOpError() << "is round " << op.getRound()
                            << " and stands where round " << segment << " is";
  ++segment;
  return success();
}

/// A gradient comes before anything is done, a param goes behind all that is:
///
///   %g = step.reduce_scatter %grad ...
///   %p1 = step.traverse ... reads (%g) writes (%param)
///   %all = step.all_gather %p1 ...
///
LogicalResult ProgramVerifier::verifyTransfer(TransferOpInterface op) {
  auto isTransfer = [](Operation &other) {
    return isa<TransferOpInterface, arith::ConstantOp>(other);
  };
  Block &block = program.getBody().front();
  Block::iterator place(op.getOperation());
  if (op.isOfGradient()) {
    if (!llvm::all_of(llvm::make_range(block.begin(), place), isTransfer))
      return op.emitOpError("brings a gradient behind what needs it");
    written[getMemory(op->getOperand(0))] = op->getResult(0);
  } else if (!llvm::all_of(llvm::make_range(place, block.end()), isTransfer)) {
    return op.emitOpError("takes the param from what comes behind it");
  }
  return success();
}

void ProgramVerifier::findSkips() {
  for (auto scalars : optimizer.getBody().getOps<ScalarsOp>())
    if (scalars.getRound() && !scalars.getBody().getOps<SkipIfOp>().empty())
      firstSure = std::max(firstSure, int64_t(*scalars.getRound()) + 1);
}

LogicalResult ProgramVerifier::run() {
  if (failed(verifyRoles()))
    return failure();
  Block &block = program.getBody().front();
  if (block.getOps<CohortScalarsOp>().empty())
    return program.emitOpError("has no scalars of the cohort");
  if (block.getOps<TraverseOp>().empty())
    return program.emitOpError("has no traversal");
  findSkips();
  for (Operation &op : block) {
    if (failed(verifyKind(op)) || failed(verifyBuffers(op)) ||
        failed(verifyAsked(op)))
      return failure();
    auto cohort = dyn_cast<CohortScalarsOp>(op);
    if (cohort ? failed(verifyCohort(cohort)) : failed(verifyScalars(op)))
      return failure();
    if (auto traverse = dyn_cast<TraverseOp>(op);
        traverse && failed(verifyTraverse(traverse)))
      return failure();
    if (auto exchange = dyn_cast<ExchangeOp>(op);
        exchange && failed(verifyExchange(exchange)))
      return failure();
    if (auto transfer = dyn_cast<TransferOpInterface>(op);
        transfer && failed(verifyTransfer(transfer)))
      return failure();
  }
  return success();
}

LogicalResult ProgramOp::verifyRegions() {
  if (failed(verifyName(*this, "program", getSymName())))
    return failure();
  return ProgramVerifier(*this).run();
}
