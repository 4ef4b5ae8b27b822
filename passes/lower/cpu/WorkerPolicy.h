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
  /// `avx512`: products are for it.
  explicit WorkerPolicy(const Words &w, bool avx512 = false)
      : FinishPolicy(w), avx512(avx512) {}

  void forEach(const Places &places,
               function_ref<void(Value, Value)> emitBody) const override;
  void byOne(function_ref<void()> emitBody) const override { emitBody(); }
  void wait() const override {}
  void foldPairwise(Combiner combiner, const Entries &entries,
                    Value width) const override;
  void foldSequence(Combiner combiner, const Entries &entries) const override;
  void multiply(const Product &product) const override {
    callProduct(w, product, [&](const Words &inner, const Product &own) {
      emitPackedProduct(inner, own, avx512);
    });
  }
  void call(const RoutineCall &routine) const override {
    callRoutine(w, routine);
  }
  void runVectors(const TileRow &row, TraverseOp traverse,
                  func::FuncOp run) const override;

private:
  bool avx512;
};

/// The run functions of the traversals of vectors among the entries.
DenseMap<Operation *, func::FuncOp>
getVectorRuns(OpBuilder &builder, const ProgramStorage &storage,
              ArrayRef<Operation *> entries);

} // namespace mlir::step

#endif // STEPC_PASSES_LOWER_CPU_WORKERPOLICY_H
