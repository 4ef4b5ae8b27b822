//===- WorkerPolicy.h - a finish that one worker runs -----------*- C++ -*-===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_PASSES_LOWER_CPU_WORKERPOLICY_H
#define STEPC_PASSES_LOWER_CPU_WORKERPOLICY_H

#include "passes/lower/Finish.h"
#include "passes/lower/cpu/ProductKernel.h"

namespace mlir::step {

class WorkerPolicy : public FinishPolicy {
public:
  /// `productRows`: of a product's result, that are computed in registers;
  /// null where the finish has no products.
  explicit WorkerPolicy(const Words &w,
                        std::optional<int64_t> productRows = std::nullopt)
      : FinishPolicy(w), productRows(productRows) {}

  void forEach(const Places &places,
               function_ref<void(Value, Value)> emitBody) const override;
  void byOne(function_ref<void()> emitBody) const override { emitBody(); }
  void wait() const override {}
  void foldPairwise(Combiner combiner, const Entries &entries,
                    Value width) const override;
  void foldSequence(Combiner combiner, const Entries &entries) const override;
  void multiply(const Product &product) const override {
    assert(productRows && "products need to know how many rows");
    callProduct(w, product, [&](const Words &inner, const Product &own) {
      emitPackedProduct(inner, own, *productRows);
    });
  }
  void call(const RoutineCall &routine) const override {
    callRoutine(w, routine);
  }
  void runVectors(const TileRow &row, TraverseOp traverse,
                  func::FuncOp run) const override;

private:
  std::optional<int64_t> productRows;
};

/// The run functions of the traversals of vectors among the entries.
DenseMap<Operation *, func::FuncOp>
getVectorRuns(OpBuilder &builder, const ProgramStorage &storage,
              ArrayRef<Operation *> entries);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_WORKERPOLICY_H
