//===- RuleAnalysis.h - where and when each value of a rule is --*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_SCHEDULE_RULEANALYSIS_H
#define STEPC_PASSES_SCHEDULE_RULEANALYSIS_H

#include "passes/ParamDims.h"
#include "passes/schedule/Rounds.h"

#include "mlir/IR/AsmState.h"

#include "llvm/ADT/SetVector.h"

#include <tuple>

namespace mlir::step {

/// What a value of a rule is a value of.
struct Domain {
  enum Kind {
    Constant,
    Cohort, // a scalar that is the same for tensors of one group and count
    Tensor, // a scalar of one tensor: it depends on a reduction of the whole
    Full,   // a tensor of the parameter's dims
    Vector, // a tensor of some of them
    Other,  // a tensor of dims in another order than the parameter's
    Matrix, // what a product or a transpose needs: whole operands
  };

  Domain(Kind kind) : kind(kind) {}
  explicit Domain(DimSet dims) : kind(Vector), dims(dims) {}
  Domain(Kind kind, unsigned number) : kind(kind), number(number) {}

  bool operator==(const Domain &other) const {
    return kind == other.kind && dims == other.dims && number == other.number;
  }
  bool operator!=(const Domain &other) const { return !(*this == other); }
  bool operator<(const Domain &other) const {
    return std::tie(kind, dims, number) <
           std::tie(other.kind, other.dims, other.number);
  }

  Kind kind;
  /// Of a vector.
  DimSet dims;
  /// Of other dims, which they are among the rule's; of a product, which one.
  unsigned number = 0;
};

/// Whether the tensor is computed in a finish.
inline bool isSmall(Domain domain) {
  return domain.kind == Domain::Vector || domain.kind == Domain::Other;
}

/// A point of a tensor's program. What a time says of a value: of a Full one
/// the earliest traversal in which it can be computed; of others that they are
/// known before that traversal.
struct Time {
  int64_t segment = 0;
  int64_t level = 0;

  bool operator<(const Time &other) const {
    return std::tie(segment, level) < std::tie(other.segment, other.level);
  }
  bool operator==(const Time &other) const {
    return segment == other.segment && level == other.level;
  }
  bool operator<=(const Time &other) const { return !(other < *this); }
};

/// "segment.level"
inline raw_ostream &operator<<(raw_ostream &os, Time time) {
  return os << time.segment << "." << time.level;
}

/// Domains and times of all values of one bound rule.
///
/// Times are as late as segments allow, so that nothing is kept from one
/// segment to the next that need not be, and within a segment as early as can
/// be. No value is known before its operands; what is Full or a Vector and made
/// of a reduction of the tensor, not before the traversal that the reduction
/// needs has ended:
///
///   %gg = step.mul %g, %g : [n, m]             full at 0.0
///   %r  = step.mean %gg over [m] : [n, m]      [n, 1] at 0.1, reduced in 0.0
///   %u  = step.div %g, %r : [n, m], [n, 1]     full at 0.1
///   %s  = step.mean %u : [n, m]                tensor at 0.2, reduced in 0.1
///
/// Operands of products are whole before these. A Full one is kept in memory by
/// the traversal of its time, and the product is known when that has ended:
///
///   %ut = step.transpose %u : [n, m]           [m, n] at 0.2, %u is kept
///   %uu = step.matmul %u, %ut : ...            [n, n] at 0.2
class RuleAnalysis {
public:
  RuleAnalysis(RuleOp rule, Rounds &rounds)
      : rule(rule), rounds(rounds),
        dims(rule.getArgumentOfKind(RoleKind::Param).getType()) {}

  /// Fails with a diagnostic where the rule has dims that cannot be compiled.
  LogicalResult run();

  const ParamDims &getDims() const { return dims; }
  Domain getDomain(Value value) const;
  /// Where the operation is done: where its result is; a reduction where its
  /// input is; a product by itself.
  Domain getPlace(Operation *op) const;
  /// Full values that traversals keep in memory, since a product needs them
  /// whole; in their order. What a product makes is in memory anyway.
  const llvm::SetVector<Value> &getKeptWhole() const { return keptWhole; }
  /// Whether the value is in memory before the traversals of its time: a
  /// product's, of the param's dims.
  bool isMadeByProduct(Value value) const {
    return isMatrixOp(value.getDefiningOp());
  }
  Time getTime(Value value) const { return times.lookup(value); }
  /// The time of the traversal that the reduction needs, or at which what it
  /// reduces is known. Its result is known later: where it crosses ranks, from
  /// the next segment on.
  Time getReductionTime(ReductionOpInterface reduction) const {
    return reductionTimes.lookup(reduction);
  }
  /// The value that the rule returns for the argument; null where it returns
  /// none or the argument itself.
  Value getStoredValue(unsigned argument) const {
    return storedValues.lookup(argument);
  }
  /// Arguments for which the rule returns the value, in their order.
  ArrayRef<unsigned> getArgumentsStoring(Value value) const;
  /// The earliest time at which the argument's new value may be written: when
  /// it is known that the step is not skipped.
  Time getStoreTime(unsigned argument) const;

  void print(raw_ostream &os, AsmState &state) const;

private:
  LogicalResult checkDims();
  Domain classifyDims(Type type);
  Domain classify(Operation *op);
  void findDomains();
  void findKeptWhole();
  void findLatestSegments();
  void findTimes();
  void findStored();

  RuleOp rule;
  Rounds &rounds;
  ParamDims dims;
  DenseMap<Value, Domain> domains;
  /// Types of other dims.
  llvm::SetVector<Type> otherDims;
  /// The number of each product and transpose.
  DenseMap<Operation *, unsigned> products;
  llvm::SetVector<Value> keptWhole;
  DenseMap<Value, int64_t> latestSegments;
  DenseMap<Value, Time> times;
  DenseMap<Operation *, Time> reductionTimes;
  DenseMap<unsigned, Value> storedValues;
  DenseMap<Value, SmallVector<unsigned, 1>> storing;
};

} // namespace mlir::step

#endif // STEPC_PASSES_SCHEDULE_RULEANALYSIS_H
