//===- ExplainValues.cpp - which values are computed more than once -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainValues.h"
#include "passes/ParamDims.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Support/DebugStringHelper.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

using namespace mlir;
using namespace mlir::step;

std::string mlir::step::describeDims(Type shape) {
  SmallVector<StringRef> dims;
  for (StringAttr dim : getDims(shape))
    dims.push_back(dim.getValue());
  return "[" + llvm::join(dims, ", ") + "]";
}

/// What operations of scalar code are called: as those of the language that
/// become them say.
static llvm::StringMap<StringRef> collectSymbols(MLIRContext *context) {
  llvm::StringMap<StringRef> symbols;
  for (RegisteredOperationName name : context->getRegisteredOperationsByDialect(
           StepDialect::getDialectNamespace()))
    if (auto *value = name.getInterface<ValueOpInterface>()) {
      ValueParts parts = value->getParts();
      if (!parts.scalarOp.empty())
        symbols[parts.scalarOp] = parts.symbol;
    }
  return symbols;
}

namespace {
/// Numbers the values of a program: equal numbers are equal values. A buffer's
/// number is that of its elements, so that a value is known again when it is
/// read back.
class ValueNumbers {
public:
  explicit ValueNumbers(const ProgramStorage &storage)
      : storage(storage), program(storage.getProgram()),
        symbols(collectSymbols(program.getContext())) {}

  void run();
  std::vector<ExplainedAgain> findRecomputed();
  llvm::StringMap<std::string> printExchanged();

private:
  struct Node {
    std::string symbol; // of a leaf its name
    SmallVector<unsigned> operands;
  };
  using Key = std::pair<std::string, std::vector<unsigned>>;

  unsigned getNumber(const std::string &key, ArrayRef<unsigned> operands,
                     StringRef symbol);
  unsigned getLeaf(const std::string &name) {
    return getNumber("leaf " + name, {}, name);
  }
  /// The number of a value that has a name of its own from here on.
  unsigned keep(StringRef name, unsigned value) {
    unsigned number = getNumber(("kept " + name).str(), {value}, name);
    nodes[number].operands.clear();
    return number;
  }
  void nameArguments();
  void nameCohort(CohortScalarsOp scalars);
  void number(Operation &op);
  void visit(TraverseOp traverse);
  void visit(CombineOp combine);
  void visit(ReceiveOp receive);
  void visitScalar(Operation &op);
  void keepCombined(Value result, unsigned number);
  std::string printExchanged(ReceiveOp receive, Value share);
  StringRef getSymbol(Operation &op) const;
  std::string print(unsigned number, int depth) const;
  std::string printLine(unsigned number) const;

  const ProgramStorage &storage;
  ProgramOp program;
  llvm::StringMap<StringRef> symbols;
  std::vector<Node> nodes;
  std::map<Key, unsigned> numbers;
  DenseMap<Value, unsigned> ofValue;
};
} // namespace

unsigned ValueNumbers::getNumber(const std::string &key,
                                 ArrayRef<unsigned> operands,
                                 StringRef symbol) {
  auto [found, isNew] =
      numbers.try_emplace({key, operands.vec()}, unsigned(nodes.size()));
  if (isNew)
    nodes.push_back({symbol.str(), SmallVector<unsigned>(operands)});
  return found->second;
}

void ValueNumbers::nameArguments() {
  for (BlockArgument argument : program.getBody().getArguments())
    ofValue[argument] = getLeaf(
        program.getRole(argument.getArgNumber()).getDisplayName().str());
}

/// Scalars that are a hyper-parameter or a kept scalar have its name.
void ValueNumbers::nameCohort(CohortScalarsOp scalars) {
  for (OpResult result : scalars.getScalars()) {
    std::string name = scalars.getScalarName(result).str();
    if (name.empty())
      name = "scalar" + std::to_string(*storage.getCohortSlot(result));
    ofValue[result] = getLeaf(name);
  }
}

StringRef ValueNumbers::getSymbol(Operation &op) const {
  auto found = symbols.find(op.getName().getStringRef());
  return found == symbols.end() ? op.getName().stripDialect() : found->second;
}

void ValueNumbers::number(Operation &op) {
  SmallVector<unsigned> operands;
  for (Value operand : op.getOperands())
    operands.push_back(ofValue.lookup(operand));
  std::string key =
      op.getName().getStringRef().str() + debugString(op.getAttrDictionary());
  for (Type type : op.getResultTypes())
    llvm::raw_string_ostream(key) << " " << type;
  std::string symbol = getSymbol(op).str();
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    symbol = "constant";
    if (auto number = dyn_cast<FloatAttr>(constant.getValue())) {
      llvm::SmallString<16> digits;
      number.getValue().toString(digits, 6);
      symbol = digits.str();
    }
  }
  ofValue[op.getResult(0)] = getNumber(key, operands, symbol);
}

void ValueNumbers::visit(TraverseOp traverse) {
  Block &block = traverse.getBody().front();
  for (auto [element, buffer] :
       llvm::zip(block.getArguments(), traverse.getReads()))
    ofValue[element] = ofValue.lookup(buffer);
  for (auto [argument, scalar] :
       llvm::zip(traverse.getScalarArguments(), traverse.getScalars()))
    ofValue[argument] = ofValue.lookup(scalar);
  for (Operation &op : block.without_terminator())
    number(op);
  for (auto [result, value] :
       llvm::zip(traverse.getResults(), block.getTerminator()->getOperands())) {
    unsigned number = ofValue.lookup(value);
    if (isa<PartialType>(result.getType()))
      number =
          getNumber("partial " + debugString(TypeAttr::get(result.getType())),
                    {number}, storage.getBufferName(result));
    else if (getMemory(result) == Value(result))
      number = keep(storage.getBufferName(result), number);
    ofValue[result] = number;
  }
}

/// A vector or a scalar of the tensor has a name from here on; a share has
/// none.
void ValueNumbers::keepCombined(Value result, unsigned number) {
  if (result.getType().isF64())
    number =
        keep("tensor" + std::to_string(*storage.getTensorSlot(result)), number);
  else if (isa<BufferType>(result.getType()))
    number = keep(storage.getBufferName(result), number);
  ofValue[result] = number;
}

void ValueNumbers::visit(CombineOp combine) {
  StringRef name = storage.getBufferName(combine.getPartial());
  std::string key = "combine " + debugString(combine->getAttrDictionary());
  keepCombined(combine.getResult(),
               getNumber(key, {ofValue.lookup(combine.getPartial())}, name));
}

void ValueNumbers::visit(ReceiveOp receive) {
  SmallVector<unsigned> sent;
  for (Value share : receive.getShares())
    sent.push_back(ofValue.lookup(share));
  keepCombined(receive.getResult(),
               getNumber("receive " + debugString(receive->getAttrDictionary()),
                         sent,
                         storage.getBufferName(receive.getShares().front())));
}

/// Scalars that have a slot are names, as those of a cohort are.
void ValueNumbers::visitScalar(Operation &op) {
  if (!isa<CarriedOp>(op))
    number(op);
  Value result = op.getResult(0);
  if (std::optional<int64_t> slot = storage.getTensorSlot(result))
    ofValue[result] =
        keep("tensor" + std::to_string(*slot), ofValue.lookup(result));
}

void ValueNumbers::run() {
  nameArguments();
  for (Operation &op : program.getBody().front()) {
    if (auto scalars = dyn_cast<CohortScalarsOp>(op))
      nameCohort(scalars);
    else if (auto traverse = dyn_cast<TraverseOp>(op))
      visit(traverse);
    else if (auto combine = dyn_cast<CombineOp>(op))
      visit(combine);
    else if (auto receive = dyn_cast<ReceiveOp>(op))
      visit(receive);
    else if (isa<ExchangeOp, KeepOp, OwnOp>(op))
      for (auto [result, operand] :
           llvm::zip(op.getResults(), op.getOperands()))
        ofValue[result] = ofValue.lookup(operand);
    else if (op.getNumResults() == 1)
      visitScalar(op);
  }
}

/// The expression, no deeper than `depth`.
std::string ValueNumbers::print(unsigned number, int depth) const {
  const Node &node = nodes[number];
  if (node.operands.empty())
    return node.symbol;
  if (node.symbol == "truncf" || node.symbol == "extf")
    return print(node.operands[0], depth);
  if (depth == 0)
    return "...";
  SmallVector<std::string> parts;
  for (unsigned operand : node.operands)
    parts.push_back(print(operand, depth - 1));
  if (llvm::isAlpha(node.symbol.front()))
    return node.symbol + "(" + llvm::join(parts, ", ") + ")";
  if (parts.size() == 1)
    return node.symbol + parts[0];
  return "(" + llvm::join(parts, " " + node.symbol + " ") + ")";
}

/// As a line of its own, which needs no parentheses around it.
std::string ValueNumbers::printLine(unsigned number) const {
  std::string text = print(number, 5);
  if (StringRef(text).starts_with("("))
    text = text.substr(1, text.size() - 2);
  return text;
}

/// "sum of grad * grad for each b, n".
std::string ValueNumbers::printExchanged(ReceiveOp receive, Value share) {
  auto type = cast<ShareType>(share.getType());
  // What was sent, of partial sums, of a value.
  unsigned number = ofValue.lookup(share);
  for (int k = 0; k < 2 && !nodes[number].operands.empty(); ++k)
    number = nodes[number].operands[0];
  StringRef kind =
      receive.getMean() ? "mean" : stringifyCombiner(type.getCombiner());
  std::string text = (kind + " of " + printLine(number)).str();
  SmallVector<StringRef> kept;
  if (!type.isWhole())
    for (StringAttr dim : type.getKept())
      if (dim.getValue() != "1")
        kept.push_back(dim.getValue().ltrim('.'));
  if (!kept.empty())
    text += " for each " + llvm::join(kept, ", ");
  return text;
}

/// What ranks send their parts of.
llvm::StringMap<std::string> ValueNumbers::printExchanged() {
  llvm::StringMap<std::string> texts;
  for (auto receive : program.getBody().getOps<ReceiveOp>())
    for (Value share : receive.getShares())
      texts[storage.getBufferName(share)] = printExchanged(receive, share);
  return texts;
}

std::vector<ExplainedAgain> ValueNumbers::findRecomputed() {
  auto isCounted = [](Operation &op) {
    StringRef name = op.getName().stripDialect();
    return name != "constant" && name != "truncf" && name != "extf";
  };
  SmallVector<TraverseOp> kernels;
  for (auto traverse : program.getBody().getOps<TraverseOp>())
    if (traverse.isKernel())
      kernels.push_back(traverse);
  llvm::MapVector<unsigned, std::vector<std::string>> computed;
  for (TraverseOp traverse : kernels) {
    llvm::SetVector<unsigned> own;
    for (Operation &op : traverse.getBody().front().without_terminator())
      if (isCounted(op))
        own.insert(ofValue.lookup(op.getResult(0)));
    for (unsigned number : own)
      computed[number].push_back(traverse.getSymName().str());
  }
  // What is used by other values of the same kernels alone is a part of them.
  std::vector<ExplainedAgain> again;
  for (auto &[number, names] : computed) {
    if (names.size() < 2)
      continue;
    bool isPart = llvm::any_of(
        computed, [&, number = number, names = names](auto &other) {
          SmallVector<unsigned> operands(nodes[other.first].operands);
          for (unsigned k = 0; k < operands.size(); ++k)
            if (nodes[operands[k]].symbol == "truncf" ||
                nodes[operands[k]].symbol == "extf")
              llvm::append_range(operands, nodes[operands[k]].operands);
          return other.second == names && llvm::is_contained(operands, number);
        });
    if (isPart)
      continue;
    again.push_back({printLine(number), names});
  }
  return again;
}

ExplainedValues mlir::step::explainValues(const ProgramStorage &storage) {
  ValueNumbers numbers(storage);
  numbers.run();
  return {numbers.findRecomputed(), numbers.printExchanged()};
}
