//===- MatrixWork.cpp - what products and decompositions cost -------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/schedule/MatrixWork.h"

#include "dialect/Sources.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cstdlib>
#include <numeric>

using namespace mlir;
using namespace mlir::step;

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

void WorkSum::add(int64_t number, int64_t divisor, ArrayRef<StringAttr> dims) {
  SmallVector<StringAttr> sorted(dims);
  llvm::sort(sorted, [](StringAttr left, StringAttr right) {
    return left.getValue() < right.getValue();
  });
  auto same = llvm::find_if(
      terms, [&](const WorkTerm &term) { return term.dims == sorted; });
  if (same == terms.end())
    same = terms.insert(same, {0, 1, std::move(sorted)});
  int64_t common = std::lcm(same->divisor, divisor);
  same->number =
      same->number * (common / same->divisor) + number * (common / divisor);
  same->divisor = common;
  int64_t shared = std::gcd(same->number, common);
  same->number /= shared;
  same->divisor /= shared;
}

void WorkSum::add(const WorkSum &other) {
  for (const WorkTerm &term : other.terms)
    add(term.number, term.divisor, term.dims);
}

/// "n^2 m"
static std::string formatDims(SmallVector<StringAttr> dims,
                              ArrayRef<StringAttr> known) {
  llvm::stable_sort(dims, [&](StringAttr left, StringAttr right) {
    return llvm::find(known, left) < llvm::find(known, right);
  });
  std::string text;
  for (size_t begin = 0, end = 0; begin < dims.size(); begin = end) {
    while (end < dims.size() && dims[end] == dims[begin])
      ++end;
    StringRef name = dims[begin].getValue();
    name.consume_front("...");
    text += (text.empty() ? "" : " ") + name.str();
    if (end - begin > 1)
      text += "^" + std::to_string(end - begin);
  }
  return text;
}

std::string WorkSum::format(ArrayRef<StringAttr> known) const {
  std::string text;
  for (const WorkTerm &term : terms) {
    if (term.number == 0)
      continue;
    bool isNegative = term.number < 0;
    if (!text.empty())
      text += isNegative ? " - " : " + ";
    else if (isNegative)
      text += "-";
    std::string number = std::to_string(std::abs(term.number));
    if (term.divisor != 1)
      number += "/" + std::to_string(term.divisor);
    std::string dims = formatDims(term.dims, known);
    if (dims.empty() || number != "1")
      text += number + (dims.empty() ? "" : " ");
    text += dims;
  }
  return text.empty() ? "0" : text;
}

//===----------------------------------------------------------------------===//
// Matrices of rules
//===----------------------------------------------------------------------===//

std::pair<Value, bool> mlir::step::findMatrix(Value value) {
  bool transposed = false;
  while (auto transpose = value.getDefiningOp<TransposeOp>()) {
    value = transpose.getOperand();
    transposed = !transposed;
  }
  return {value, transposed};
}

/// Whether the one numbers rows and the other the columns of a square.
static bool areOfSquare(IndexOp rows, IndexOp columns) {
  ArrayRef<StringAttr> down = getDims(rows.getType());
  ArrayRef<StringAttr> along = getDims(columns.getType());
  return down.size() > 1 && along.size() > 1 &&
         down.drop_back().back() == along.back() &&
         along.back().getValue() != "1" && down.back().getValue() == "1" &&
         along.drop_back().back().getValue() == "1";
}

/// Whether it says where rows and columns are the same, or are not.
static bool isOfDiagonal(Operation *op) {
  auto compare = dyn_cast_or_null<CompareOp>(op);
  if (!compare || (compare.getPredicate() != Predicate::EQ &&
                   compare.getPredicate() != Predicate::NE))
    return false;
  auto lhs = compare.getLhs().getDefiningOp<IndexOp>();
  auto rhs = compare.getRhs().getDefiningOp<IndexOp>();
  return lhs && rhs && (areOfSquare(lhs, rhs) || areOfSquare(rhs, lhs));
}

bool mlir::step::isSymmetric(Value value) {
  auto enter = [&](Value next) {
    if (!isShaped(next.getType()))
      return Follow::Nothing;
    if (isa<BlockArgument>(next))
      return Follow::Stop;
    Operation *op = next.getDefiningOp();
    if (isOfDiagonal(op))
      return Follow::Nothing;
    if (auto product = dyn_cast<MatmulOp>(op)) {
      if (product.getSymmetric())
        return Follow::Nothing;
      auto [lhs, lhsTransposed] = findMatrix(product.getLhs());
      auto [rhs, rhsTransposed] = findMatrix(product.getRhs());
      if (lhs != rhs)
        return Follow::Stop;
      return lhsTransposed == rhsTransposed ? Follow::Operands
                                            : Follow::Nothing;
    }
    ArrayRef<StringAttr> dims = getDims(next.getType());
    bool isSquare = dims.size() >= 2 && dims.back() == dims[dims.size() - 2];
    auto parts = dyn_cast<ValueOpInterface>(op);
    bool isKept = isa<TransposeOp>(op) ||
                  (parts && parts.getParts().sharding == Sharding::Elementwise);
    return isSquare && isKept ? Follow::Operands : Follow::Stop;
  };
  return walkSources(value, enter, [](Operation *) {});
}

//===----------------------------------------------------------------------===//
// FLOPs
//===----------------------------------------------------------------------===//

/// Of a result [..., n, m] and k numbers added for each of its elements.
static void addProduct(Value lhs, bool lhsTransposed, Value result,
                       bool isSymmetric, WorkSum &sum) {
  ArrayRef<StringAttr> own = getDims(lhs.getType());
  SmallVector<StringAttr> dims(getDims(result.getType()));
  dims.push_back(lhsTransposed ? own[own.size() - 2] : own.back());
  sum.add(isSymmetric ? 1 : 2, 1, dims);
}

/// Of [..., n, n].
static void addEigenvectors(Value operand, WorkSum &sum) {
  SmallVector<StringAttr> dims(getDims(operand.getType()));
  dims.push_back(dims.back());
  sum.add(9, 1, dims);
}

/// Of [..., n, r].
static void addOrthonormal(Value operand, WorkSum &sum) {
  SmallVector<StringAttr> dims(getDims(operand.getType()));
  StringAttr columns = dims.back();
  dims.push_back(columns);
  sum.add(4, 1, dims);
  dims[dims.size() - 3] = columns;
  sum.add(-4, 3, dims);
}

WorkSum mlir::step::getFlops(Operation *op, int64_t period) {
  WorkSum sum(period);
  TypeSwitch<Operation *>(op)
      .Case([&](MatmulOp product) {
        addProduct(product.getLhs(), false, product.getResult(),
                   isSymmetric(product.getResult()), sum);
      })
      .Case([&](ProductOp product) {
        addProduct(product.getLhs(), product.getLhsTransposed(),
                   product.getResult(), product.getSymmetric(), sum);
      })
      .Case<EighOp, EigenvectorsOp>(
          [&](auto own) { addEigenvectors(own.getOperand(), sum); })
      .Case([&](EigenvaluesOp own) {
        // Along with the vectors, where these are asked for.
        if (llvm::none_of(own.getOperand().getUsers(), llvm::IsaPred<EighOp>))
          addEigenvectors(own.getOperand(), sum);
      })
      .Case<QrOp, OrthonormalOp>(
          [&](auto own) { addOrthonormal(own.getOperand(), sum); });
  return sum;
}

WorkSum mlir::step::getFlops(Operation *op) {
  std::optional<uint64_t> period;
  TypeSwitch<Operation *>(op).Case<ProductOp, EigenvectorsOp, OrthonormalOp>(
      [&](auto own) { period = own.getPeriod(); });
  return getFlops(op, int64_t(period.value_or(1)));
}

StringRef mlir::step::getWorkName(Operation *op) {
  return TypeSwitch<Operation *, StringRef>(op)
      .Case([](ProductOp product) {
        if (product.getRounded())
          return product.getSymmetric() ? "symmetric product of bf16"
                                        : "product of bf16";
        return product.getSymmetric() ? "symmetric product" : "product";
      })
      .Case([](EigenvectorsOp) { return "eigenvectors"; })
      .Case([](OrthonormalOp) { return "orthonormal basis"; })
      .Default(StringRef());
}
