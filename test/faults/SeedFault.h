//===- SeedFault.h - deliberate faults of the passes ----------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#ifndef STEPC_TEST_FAULTS_SEEDFAULT_H
#define STEPC_TEST_FAULTS_SEEDFAULT_H

#include "passes/Pipelines.h"

#include "dialect/Step.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

#include <memory>
#include <vector>

namespace mlir::step::faults {

/// A fault, or, by its name `control-...`, a change that changes no result.
struct Fault {
  const char *name;
  /// After this stage, or, of Lower, after the pass that makes kernels: what
  /// comes behind it is the LLVM dialect.
  Stage stage;
  const char *description;
  /// Seeds it; false where the module has no place for it.
  bool (*seed)(ModuleOp module);
};

/// By stage: of rules, of programs, of what runs between kernels, of kernels.
std::vector<Fault> getRuleFaults();
std::vector<Fault> getProgramFaults();
std::vector<Fault> getFinishFaults();
std::vector<Fault> getLowerFaults();
/// Of what crosses ranks, and of kernels of a rank's part.
std::vector<Fault> getShardFaults();
std::vector<Fault> getRangeFaults();
std::vector<Fault> getSumFaults();

std::vector<Fault> getFaults();

/// Adds the pass `test-seed-fault{name=...}` to the stage's passes, if the
/// fault is one of the stage. The pass fails, and `seeded` stays false, where
/// there is no place for it.
void addFault(PassManager &pm, Stage stage, const Fault &fault, bool &seeded);

} // namespace mlir::step::faults

#endif // STEPC_TEST_FAULTS_SEEDFAULT_H
