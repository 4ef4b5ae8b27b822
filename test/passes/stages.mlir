// The stages from one end to the other, by their names and by the driver's.
//
// RUN: stepc %zoo/adamw.mlir --compile-to=define > %t.define
// RUN: stepc-opt --step-stage-define %zoo/adamw.mlir > %t.define.opt
// RUN: FileCheck %s --check-prefix=DEFINED < %t.define
// RUN: FileCheck %s --check-prefix=DEFINED < %t.define.opt
// DEFINED: step.stored
// DEFINED-NOT: step.program

// RUN: stepc %zoo/adamw.mlir --param=bf16 --compile-to=bind | FileCheck %s --check-prefix=BIND
// BIND: step.rule @adamw_any_0
// BIND-SAME: as bf16
// BIND: step.round

// RUN: stepc %zoo/adamw.mlir --compile-to=schedule | FileCheck %s --check-prefix=SCHEDULE
// SCHEDULE: step.program @adamw_any_0
// SCHEDULE: step.traverse @adamw_any_0_phase0 over [*]

// RUN: stepc %zoo/adamw.mlir --compile-to=lower | FileCheck %s --check-prefix=LOWER
// LOWER: llvm.func @adamw_any_0_scalars
// LOWER: llvm.func internal @adamw_any_0_phase0_run
// LOWER: llvm.func @adamw_any_0_phase0(
// LOWER: llvm.func @adamw_any_0_phase0_strided(

// RUN: rm -rf %t.dump && stepc %zoo/sgd.mlir --dump-dir=%t.dump -o %t.stepc
// RUN: ls %t.dump | FileCheck %s --check-prefix=DUMP
// DUMP: 1-define.mlir
// DUMP-NEXT: 2-bind.mlir
// DUMP-NEXT: 3-shard.mlir
// DUMP-NEXT: 4-schedule.mlir
// DUMP-NEXT: 5-lower.mlir

// Locations of the definition are kept to the end.
// RUN: stepc-opt --step-stage-define --step-stage-bind --step-stage-schedule --step-stage-lower \
// RUN:   -mlir-print-debuginfo %zoo/adamw.mlir | FileCheck %s --check-prefix=LOCATIONS
// LOCATIONS: llvm.intr.sqrt
// LOCATIONS: loc("{{.*}}adamw.mlir":{{[0-9]+}}:{{[0-9]+}})
