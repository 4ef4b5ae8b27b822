//===- SeedFault.cpp - a pass that seeds a fault --------------------------===//
//
// Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "SeedFault.h"

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"

using namespace mlir;
using namespace mlir::step;
using namespace mlir::step::faults;

namespace {
/// Seeds one fault into the module.
class SeedFault : public PassWrapper<SeedFault, OperationPass<ModuleOp>> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SeedFault)
  SeedFault(const Fault &fault, bool &seeded) : fault(&fault), seeded(&seeded) {
    name = fault.name;
  }
  SeedFault(const SeedFault &other)
      : PassWrapper(other), fault(other.fault), seeded(other.seeded) {}

  StringRef getArgument() const final { return "test-seed-fault"; }
  StringRef getDescription() const final { return fault->description; }
  void runOnOperation() final {
    *seeded = fault->seed(getOperation());
    if (!*seeded)
      signalPassFailure();
  }

private:
  const Fault *fault;
  bool *seeded;
  Option<std::string> name{*this, "name", llvm::cl::desc("the fault")};
};

/// Does the same in the midst of the lower stage.
class SeedKernels : public PassInstrumentation {
public:
  SeedKernels(const Fault &fault, bool &seeded)
      : fault(fault), seeded(seeded) {}

  void runAfterPass(Pass *pass, Operation *op) final {
    if (pass->getArgument() == "step-lower-phases-to-cpu")
      seeded = fault.seed(cast<ModuleOp>(op));
  }

private:
  Fault fault;
  bool &seeded;
};
} // namespace

std::vector<Fault> faults::getFaults() {
  std::vector<Fault> all = getRuleFaults();
  llvm::append_range(all, getProgramFaults());
  llvm::append_range(all, getFinishFaults());
  llvm::append_range(all, getLowerFaults());
  llvm::append_range(all, getShardFaults());
  llvm::append_range(all, getRangeFaults());
  llvm::append_range(all, getSumFaults());
  return all;
}

void faults::addFault(PassManager &pm, Stage stage, const Fault &fault,
                      bool &seeded) {
  if (stage != fault.stage)
    return;
  if (stage == Stage::Lower)
    pm.addInstrumentation(std::make_unique<SeedKernels>(fault, seeded));
  else
    pm.addPass(std::make_unique<SeedFault>(fault, seeded));
}
