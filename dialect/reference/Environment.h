//===- Environment.h - what a definition's values stand for ------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef STEPC_DIALECT_REFERENCE_ENVIRONMENT_H
#define STEPC_DIALECT_REFERENCE_ENVIRONMENT_H

#include "dialect/reference/Interpreter.h"

#include <variant>

namespace mlir::step::reference {

/// A guarded state whose option does not hold, and everything computed from it.
struct Absent {
  std::string state;
  std::string option;
};

/// What a value of the definition stands for: an i1, an i64, an f64, a mask or
/// a tensor; or nothing. In bound mode numbers are intervals and conditions may
/// be open, except what is given from outside.
using Datum = std::variant<Absent, bool, int64_t, double, Mask, Tensor, Truth,
                           Interval, Bounds>;

/// An error with this message.
llvm::Error makeError(const Twine &message);

/// "'rate' is no hyper-parameter of 'adamw', which has lr, beta1".
llvm::Error makeUnknownError(StringRef name, StringRef what, StringRef owner,
                             ArrayRef<StringRef> known);

/// What a constant stands for.
Datum getConstant(ConstantOp op);

/// The values of a tensor, of its group, or of the model; each sees those of
/// the next.
struct Frame {
  const Frame *outer = nullptr;
  DenseMap<Value, Datum> values;

  /// Null where the value is not known, or not yet.
  const Datum *find(Value value) const;
  const Datum &get(Value value) const { return *find(value); }
};

/// The optimizer, and the fragments that stand beside it, in their order.
class Source {
public:
  explicit Source(OptimizerOp optimizer);

  /// The operations of a kind that the optimizer and then the fragments hold.
  template <typename OpT>
  SmallVector<OpT> getOps() const {
    SmallVector<OpT> ops;
    for (Block *body : bodies)
      llvm::append_range(ops, body->getOps<OpT>());
    return ops;
  }

  /// The optimizer's name.
  StringRef getName() const { return OptimizerOp(optimizer).getSymName(); }

  /// The name that the operation's is known by: that of a fragment's gets the
  /// fragment's as a prefix where it is taken.
  StringRef getName(Operation *op) const { return names.at(op); }

  OptimizerOp optimizer;
  SmallVector<FragmentOp> fragments;

private:
  /// Chooses the names of what `body` declares. `prefix` is the fragment's
  /// name.
  void chooseNames(Block &body, StringRef prefix);

  SmallVector<Block *> bodies;
  std::map<Operation *, std::string> names;
};

/// That the operation is none of those that a source may say.
llvm::Error makeSourceError(Operation *op);

/// Gives hyper-parameters, options and kept scalars of a group their values.
llvm::Error bindGroup(const Source &source, const GroupRequest &request,
                      Frame &frame);

/// Gives constants and the model's kept scalars their values.
llvm::Error bindModel(const Source &source,
                      const std::map<std::string, double> &scalars,
                      Frame &frame);

} // namespace mlir::step::reference

#endif // STEPC_DIALECT_REFERENCE_ENVIRONMENT_H
