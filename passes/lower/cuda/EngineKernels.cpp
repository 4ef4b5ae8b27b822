//===- EngineKernels.cpp - kernels of the engine itself -------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "passes/lower/cuda/EngineKernels.h"

#include "passes/lower/cuda/GridKernel.h"

#include "stepc/kernel_abi.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

using namespace mlir;
using namespace mlir::step;

/// The number of this thread in the grid, an index.
static Value emitGridThread(const Words &w) {
  Value block = gpu::BlockIdOp::create(w.b, w.loc, gpu::Dimension::x);
  return w.add(w.mul(block, w.constant(kBlockThreads)), emitThread(w));
}

/// One thread stores all: arguments have no place that a thread could compute.
static void emitStoreKernel(const Words &w) {
  emitKernel(w, STEPC_STORE_KERNEL, 1 + STEPC_STORE_WORDS, [&](ValueRange in) {
    Value isFirst = arith::CmpIOp::create(w.b, w.loc, arith::CmpIPredicate::eq,
                                          emitGridThread(w), w.constant(0));
    scf::IfOp branch =
        scf::IfOp::create(w.b, w.loc, isFirst, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(w.b);
    w.b.setInsertionPointToStart(branch.thenBlock());
    Value to = w.words(in[0]);
    for (int64_t k = 0; k < STEPC_STORE_WORDS; ++k)
      w.store(in[1 + k], to, w.constant(k));
  });
}

static void emitAdvanceKernel(const Words &w) {
  emitKernel(w, STEPC_ADVANCE_KERNEL, 3, [&](ValueRange in) {
    Value blocks = gpu::GridDimOp::create(w.b, w.loc, gpu::Dimension::x);
    Value list = w.words(in[0]);
    w.loop(w.add(w.toIndex(in[1]), emitGridThread(w)), w.toIndex(in[2]),
           w.mul(blocks, w.constant(kBlockThreads)), [&](Value entry) {
             Value first = w.mul(entry, w.constant(STEPC_SCALAR_ENTRY_WORDS));
             Value count = w.add(first, w.constant(STEPC_SCALAR_ENTRY_COUNT));
             Value fresh = w.add(first, w.constant(STEPC_SCALAR_ENTRY_FRESH));
             Value more = w.add(w.load(list, count), w.constantWord(1));
             w.store(more, list, count);
             w.store(w.constantWord(0), list, fresh);
           });
  });
}

void mlir::step::emitEngineKernels(const Words &w) {
  emitStoreKernel(w);
  emitAdvanceKernel(w);
}
