//===- ExplainValues.cpp - which values are computed more than once -------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/package/ExplainValues.h"
#include "passes/schedule/Rounds.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
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
/// Numbers the values of a program: equal numbers are equal values. Phases are
/// numbered in the order in which they run; `contents` has for each place in
/// memory the number of what lies there, so that a value is known again when it
/// is read back.
class ValueNumbers {
public:
  ValueNumbers(OptimizerOp optimizer, ProgramOp program)
      : optimizer(optimizer), program(program),
        symbols(collectSymbols(optimizer.getContext())) {}

  void run();
  std::vector<ExplainedAgain> findRecomputed();
  llvm::StringMap<std::string> printExchanged();
  std::string printExchanged(ReceiveOp receive, StringRef source);

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
  unsigned read(StringRef place, StringRef name);
  /// The number of a value that has a name of its own from here on.
  unsigned keep(StringRef name, unsigned value) {
    unsigned number = getNumber(("kept " + name).str(), {value}, name);
    nodes[number].operands.clear();
    return number;
  }
  void nameSlots();
  void enterSlots(Block &block, int64_t slots);
  void number(Block &block);
  void visit(PhaseOp phase);
  void visit(CombineOp combine);
  void visit(ReceiveOp receive);
  void visit(TensorScalarsOp scalars);
  template <typename OpT>
  void keepCombined(OpT op, unsigned number);
  StringRef getSymbol(Operation &op) const;
  std::string print(unsigned number, int depth) const;
  std::string printLine(unsigned number) const;

  OptimizerOp optimizer;
  ProgramOp program;
  llvm::StringMap<StringRef> symbols;
  std::vector<Node> nodes;
  std::map<Key, unsigned> numbers;
  DenseMap<Value, unsigned> ofValue;
  llvm::StringMap<unsigned> contents;
  SmallVector<std::string> slotNames;
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

/// What lies in a place of memory: before anything is written, itself.
unsigned ValueNumbers::read(StringRef place, StringRef name) {
  auto found = contents.find(place);
  if (found == contents.end())
    found = contents.try_emplace(place, getLeaf(name.str())).first;
  return found->second;
}

/// Scalars that are a hyper-parameter or a kept scalar have its name.
void ValueNumbers::nameSlots() {
  SmallVector<Value> inputs = getScalarInputs(optimizer);
  for (auto phase : program.getBody().getOps<ScalarPhaseOp>())
    for (Value value : phase.getBody().front().getTerminator()->getOperands()) {
      std::string name = "scalar" + std::to_string(slotNames.size());
      auto argument = dyn_cast<BlockArgument>(value);
      if (argument && argument.getArgNumber() < inputs.size()) {
        Operation *source = inputs[argument.getArgNumber()].getDefiningOp();
        if (auto hyper = dyn_cast<HyperOp>(source))
          name = hyper.getName().str();
        else if (auto scalar = dyn_cast<ScalarOp>(source))
          name = scalar.getName().str();
      }
      slotNames.push_back(name);
    }
}

/// Numbers the arguments that are slots: of the row, then of the tensor.
void ValueNumbers::enterSlots(Block &block, int64_t slots) {
  for (int64_t k = 0; k < slots; ++k)
    ofValue[block.getArgument(k)] = getLeaf(slotNames[k]);
  for (int64_t k = 0; k < int64_t(program.getTensorSlots()); ++k) {
    std::string name = "tensor" + std::to_string(k);
    ofValue[block.getArgument(slots + k)] = read("slot " + name, name);
  }
}

StringRef ValueNumbers::getSymbol(Operation &op) const {
  auto found = symbols.find(op.getName().getStringRef());
  return found == symbols.end() ? op.getName().stripDialect() : found->second;
}

static std::string toString(Attribute attr) {
  std::string text;
  llvm::raw_string_ostream(text) << attr;
  return text;
}

void ValueNumbers::number(Block &block) {
  for (Operation &op : block.without_terminator()) {
    SmallVector<unsigned> operands;
    for (Value operand : op.getOperands())
      operands.push_back(ofValue.lookup(operand));
    std::string key =
        op.getName().getStringRef().str() + toString(op.getAttrDictionary());
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
}

void ValueNumbers::visit(PhaseOp phase) {
  Block &block = phase.getBody().front();
  int64_t next = phase.getNumSlots() + phase.getTensorSlots();
  enterSlots(block, phase.getNumSlots());
  for (auto operand : phase.getOperands().getAsRange<OperandAttr>())
    if (operand.getReads())
      ofValue[block.getArgument(next++)] =
          read(operand.getName().getValue(), operand.getName().getValue());
  number(block);
  ValueRange results = block.getTerminator()->getOperands();
  unsigned result = 0;
  for (auto operand : phase.getOperands().getAsRange<OperandAttr>())
    if (operand.getWrites()) {
      StringRef name = operand.getName().getValue();
      unsigned value = ofValue.lookup(results[result++]);
      contents[name] =
          operand.getKind() == RoleKind::Temp ? keep(name, value) : value;
    }
  for (auto accumulator :
       phase.getAccumulators().getAsRange<AccumulatorAttr>()) {
    StringRef name = accumulator.getPartial().getValue();
    contents[name] = getNumber("partial " + toString(accumulator),
                               {ofValue.lookup(results[result++])}, name);
  }
}

/// In the temp or the slot that the operation names.
template <typename OpT>
void ValueNumbers::keepCombined(OpT op, unsigned number) {
  std::string name = op.getTemp() ? op.getTemp()->str()
                                  : ("tensor" + Twine(*op.getSlot())).str();
  contents[op.getTemp() ? name : "slot " + name] = keep(name, number);
}

void ValueNumbers::visit(CombineOp combine) {
  unsigned partial = read(combine.getPartial(), combine.getPartial());
  unsigned number =
      getNumber("combine " + toString(combine->getAttrDictionary()), {partial},
                combine.getPartial());
  if (combine.getExchange())
    contents[*combine.getExchange()] = number;
  else
    keepCombined(combine, number);
}

void ValueNumbers::visit(ReceiveOp receive) {
  SmallVector<unsigned> sent;
  for (StringRef source : receive.getSources())
    sent.push_back(read(source, source));
  keepCombined(receive,
               getNumber("receive " + toString(receive->getAttrDictionary()),
                         sent, receive.getSources()[0]));
}

void ValueNumbers::visit(TensorScalarsOp scalars) {
  Block &block = scalars.getBody().front();
  enterSlots(block, scalars.getNumSlots());
  number(block);
  for (auto [slot, value] :
       llvm::zip(scalars.getWrites(), block.getTerminator()->getOperands())) {
    std::string name = "tensor" + std::to_string(slot);
    contents["slot " + name] = keep(name, ofValue.lookup(value));
  }
}

void ValueNumbers::run() {
  nameSlots();
  for (Operation &op : program.getBody().front()) {
    if (auto phase = dyn_cast<PhaseOp>(op))
      visit(phase);
    else if (auto combine = dyn_cast<CombineOp>(op))
      visit(combine);
    else if (auto receive = dyn_cast<ReceiveOp>(op))
      visit(receive);
    else if (auto scalars = dyn_cast<TensorScalarsOp>(op))
      visit(scalars);
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

/// "sum of grad * grad for each row".
std::string ValueNumbers::printExchanged(ReceiveOp receive, StringRef source) {
  // What was sent, of partial sums, of a value.
  unsigned number = contents.lookup(source);
  for (int k = 0; k < 2 && !nodes[number].operands.empty(); ++k)
    number = nodes[number].operands[0];
  StringRef kind =
      receive.getMean() ? "mean" : stringifyCombiner(receive.getCombiner());
  std::string text = (kind + " of " + printLine(number)).str();
  StringRef level = stringifyLevel(receive.getLevel());
  if (receive.getLevel() != Level::Tensor)
    text += (" for each " + level.drop_back()).str();
  return text;
}

/// What ranks send their parts of.
llvm::StringMap<std::string> ValueNumbers::printExchanged() {
  llvm::StringMap<std::string> texts;
  for (auto receive : program.getBody().getOps<ReceiveOp>())
    for (StringRef source : receive.getSources())
      texts[source] = printExchanged(receive, source);
  return texts;
}

std::vector<ExplainedAgain> ValueNumbers::findRecomputed() {
  auto isCounted = [](Operation &op) {
    StringRef name = op.getName().stripDialect();
    return name != "constant" && name != "truncf" && name != "extf";
  };
  SmallVector<PhaseOp> kernels;
  for (auto phase : program.getBody().getOps<PhaseOp>())
    if (phase.getSpace() == Space::Tiles || phase.getSpace() == Space::Elements)
      kernels.push_back(phase);
  llvm::MapVector<unsigned, std::vector<std::string>> computed;
  for (PhaseOp phase : kernels) {
    llvm::SetVector<unsigned> own;
    for (Operation &op : phase.getBody().front().without_terminator())
      if (isCounted(op))
        own.insert(ofValue.lookup(op.getResult(0)));
    for (unsigned number : own)
      computed[number].push_back(phase.getSymName().str());
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

ExplainedValues mlir::step::explainValues(OptimizerOp optimizer,
                                          ProgramOp program) {
  ValueNumbers numbers(optimizer, program);
  numbers.run();
  return {numbers.findRecomputed(), numbers.printExchanged()};
}
