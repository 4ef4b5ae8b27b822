//===- Environment.h - what a rule's values stand for ------------*- C++
//-*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_ENVIRONMENT_H
#define STEPC_DIALECT_REFERENCE_ENVIRONMENT_H

#include "dialect/reference/Interpreter.h"

#include "llvm/ADT/DenseSet.h"

#include <variant>

namespace mlir::step::reference {

/// A guarded state whose option does not hold, and everything computed from it.
struct Absent {
  std::string state;
  std::string option;
};

/// What a value of the definition stands for: an i1, an i64, an f64, a mask or
/// a tensor; or nothing.
using Datum = std::variant<Absent, bool, int64_t, double, Mask, Tensor>;

/// An error with this message.
llvm::Error makeError(const Twine &message);

/// What a constant stands for.
Datum getConstant(ConstantOp op);

/// The values of hyper-parameters, options, arguments and operations, and the
/// extents of dims.
class Environment {
public:
  /// Finds the rule, gives hyper-parameters, options, count and fresh their
  /// values, says which states are absent, and binds the dims of the param.
  llvm::Error bind(OptimizerOp optimizer, const Request &request);

  /// Gives the tensor arguments their values, in the compute format. Must come
  /// after bind.
  llvm::Error bindTensors(const Request &request);

  /// The extents of a shaped type; empty for a scalar.
  Shape getShape(Type type) const;

  /// True where argument `index` is a state that does not exist.
  bool isAbsent(unsigned index);

  /// The storage format of a tensor argument that exists.
  Format getStorage(unsigned index) const { return storages.at(index); }

  RuleOp rule;
  DenseMap<Value, Datum> values;

private:
  llvm::Error findRule(OptimizerOp optimizer, StringRef name);
  llvm::Error bindHypers(OptimizerOp optimizer, const Request &request);
  llvm::Error bindOptions(OptimizerOp optimizer, const Request &request);
  llvm::Error bindArguments(const Request &request);
  llvm::Error bindDims(const Tensor &param);
  llvm::Error bindTensor(unsigned index, const StoredTensor &stored,
                         Format compute);
  llvm::Error checkShape(unsigned index, const Tensor &tensor) const;

  /// Extents by the name of a dim; those of `*` are the param's.
  std::map<std::string, int64_t> extents;
  Shape paramShape;
  std::map<unsigned, Format> storages;
};

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_ENVIRONMENT_H
