//===- StepCalls.cpp - what is written once -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "dialect/StepParsers.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mlir::step;

/// Calls of calls could make any number of operations of a short text.
constexpr int64_t kMostCalled = 10000;

DefineOp CallOp::getDefinition() {
  Operation *definition = (*this)->getParentOp();
  while (!isa<OptimizerOp, FragmentOp>(definition))
    definition = definition->getParentOp();
  return cast<DefineOp>(
      SymbolTable::lookupSymbolIn(definition, getCalleeAttr()));
}

//===----------------------------------------------------------------------===//
// Syntax: `step.define @name(%a: f64, %u: [n, m]) { ... }`
//===----------------------------------------------------------------------===//

ParseResult DefineOp::parse(OpAsmParser &parser, OperationState &result) {
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  auto parseArgument = [&] {
    OpAsmParser::Argument &argument = arguments.emplace_back();
    return failure(parser.parseArgument(argument) ||
                   parser.parseOptionalLocationSpecifier(argument.sourceLoc) ||
                   parser.parseColon() || parseShort(parser, argument.type));
  };
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren,
                                     parseArgument) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  Region *body = result.addRegion();
  return parseBody(parser, *body, arguments);
}

void DefineOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << "(";
  llvm::interleaveComma(getBody().getArguments(), printer,
                        [&](BlockArgument argument) {
                          printer.printRegionArgument(argument, {},
                                                      /*omitType=*/true);
                          printer << ": ";
                          printShort(printer, argument.getType());
                        });
  printer << ")";
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {getSymNameAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

//===----------------------------------------------------------------------===//
// A definition alone
//===----------------------------------------------------------------------===//

static bool isYielded(Type type) {
  return type.isF64() || type.isInteger(1) || isa<SymTensorType>(type);
}

/// Whether every call may read the value: it is the same wherever the call
/// stands, and known before any round.
static bool isReadable(DefineOp define, Value value) {
  if (define.getBody().isAncestor(value.getParentRegion()))
    return true;
  auto option = value.getDefiningOp<OptionOp>();
  return (option && !option.isInteger()) ||
         isa_and_nonnull<HyperOp, ConstantOp>(value.getDefiningOp());
}

static LogicalResult verifyReads(DefineOp define) {
  WalkResult result = define.walk([&](Operation *inner) -> WalkResult {
    for (Value operand : inner->getOperands())
      if (!isReadable(define, operand))
        return inner->emitOpError("reads in 'step.define' what is no argument, "
                                  "hyper-parameter, option or constant");
    return success();
  });
  return failure(result.wasInterrupted());
}

LogicalResult DefineOp::verifyRegions() {
  if (failed(verifyName(*this, "definition", getSymName())))
    return failure();
  Block &block = getBody().front();
  for (Type type : block.getArgumentTypes())
    if (!isYielded(type) && !type.isInteger(64))
      return emitOpError()
             << "takes " << type
             << "; only tensors, f64, i1 and i64 can be arguments";
  if (failed(verifyComputes(*this)) || failed(verifyReads(*this)))
    return failure();
  if (getYield().getValues().empty())
    return emitOpError("yields nothing");
  for (Type type : getYield().getValues().getTypes())
    if (!isYielded(type))
      return emitOpError() << "yields " << type
                           << "; only tensors, f64 and i1 can be results";
  return success();
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

namespace {
/// Checks the calls of a definition in the order in which they stand.
/// Invariant: `made` has the definitions so far, and of how many operations
/// each consists once its own calls are replaced.
class Calls {
public:
  LogicalResult verify(Operation *definition);

private:
  LogicalResult verifyCall(CallOp call);
  LogicalResult count(Block &body, int64_t times, int64_t &total);

  struct Made {
    DefineOp define;
    int64_t operations;
  };
  llvm::StringMap<Made> made;
  llvm::StringMap<DefineOp> all;
};
} // namespace

LogicalResult Calls::verifyCall(CallOp call) {
  StringRef name = call.getCallee();
  auto found = made.find(name);
  if (found == made.end()) {
    if (all.contains(name))
      return call.emitOpError() << "calls '" << name
                                << "' before its definition ends; none calls "
                                   "itself, or what stands behind it";
    return call.emitOpError()
           << "calls '" << name << "', which no 'step.define' makes";
  }
  DefineOp define = found->second.define;
  TypeRange taken = define.getBody().getArgumentTypes();
  if (!llvm::equal(call.getArguments().getTypes(), taken))
    return call.emitOpError()
           << "passes (" << call.getArguments().getTypes() << ") to '" << name
           << "', which takes (" << taken << ")";
  TypeRange yielded = define.getYield().getValues().getTypes();
  if (!llvm::equal(call.getResultTypes(), yielded))
    return call.emitOpError()
           << "expects (" << call.getResultTypes() << ") of '" << name
           << "', which yields (" << yielded << ")";
  return success();
}

/// Adds to `total` what calls and repetitions make in a body that is run so
/// often.
LogicalResult Calls::count(Block &body, int64_t times, int64_t &total) {
  for (Operation &op : body) {
    if (auto call = dyn_cast<CallOp>(op)) {
      if (failed(verifyCall(call)))
        return failure();
      total += times * made[call.getCallee()].operations;
      if (total > kMostCalled)
        return call.emitOpError()
               << "is one of calls that make " << total
               << " operations, the most are " << kMostCalled;
      continue;
    }
    int64_t own = times;
    if (auto repeat = dyn_cast<RepeatOp>(op)) {
      // As much is too much as can be.
      own *= std::clamp<int64_t>(repeat.getTimes(), 0, kMostCalled);
      total += own * repeat.getBody().front().getOperations().size();
      if (total > kMostCalled)
        return repeat.emitOpError() << "makes more than " << kMostCalled
                                    << " operations with what stands before it";
    }
    for (Region &region : op.getRegions())
      for (Block &block : region)
        if (failed(count(block, own, total)))
          return failure();
  }
  return success();
}

LogicalResult Calls::verify(Operation *definition) {
  Block &body = definition->getRegion(0).front();
  for (auto define : body.getOps<DefineOp>())
    all[define.getSymName()] = define;
  int64_t total = 0;
  for (Operation &op : body) {
    auto define = dyn_cast<DefineOp>(op);
    int64_t own = define ? define.getBody().front().getOperations().size() : 0;
    for (Region &region : op.getRegions())
      for (Block &block : region)
        if (failed(count(block, /*times=*/1, define ? own : total)))
          return failure();
    if (define)
      made[define.getSymName()] = {define, own};
  }
  return success();
}

LogicalResult mlir::step::verifyCalls(Operation *definition) {
  return Calls().verify(definition);
}
