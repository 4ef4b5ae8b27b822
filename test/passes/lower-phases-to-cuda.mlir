// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cuda --canonicalize --cse %s | FileCheck %s

// The optimizer is gone; the module of a device is left.

// CHECK-NOT: step.optimizer
// CHECK-LABEL: gpu.module @kernels

// The function of scalars of the cohort, and a kernel of its name: a thread for each
// entry of a list of the function's five arguments.

// CHECK: func.func private @scalars_entry(
// CHECK-SAME: llvm.linkage = #llvm.linkage<internal>
// CHECK: gpu.func @scalars(%[[LIST:.*]]: i64, %{{.*}}: i64, %{{.*}}: i64, %[[SKIP:.*]]: i64) kernel
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK: %[[BLOCK:.*]] = gpu.block_id x
// CHECK: %[[BLOCKS:.*]] = gpu.grid_dim x
// CHECK-DAG: %[[THREAD:.*]] = gpu.thread_id x
// CHECK-DAG: %[[FIRST:.*]] = arith.muli %[[BLOCK]], %c256
// CHECK: arith.addi %[[FIRST]], %[[THREAD]]
// CHECK: %[[STEP:.*]] = arith.muli %[[BLOCKS]], %c256
// CHECK: scf.for %[[ENTRY:.*]] = %{{.*}} to %{{.*}} step %[[STEP]]
// CHECK: arith.muli %[[ENTRY]], %c5
// CHECK-COUNT-5: memref.load
// CHECK: func.call @scalars_entry

// A run: where all addresses are multiples of 16, accesses of 16 bytes (8 bf16,
// twice 4 f32), spread over the 256 threads; then, or else, single elements.

// CHECK-LABEL: func.func private @phase0_run(
// CHECK-SAME: %[[SCALARS:.*]]: i64, %[[P:.*]]: i64, %[[G:.*]]: i64, %[[M:.*]]: i64, %[[N:.*]]: index)
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: %[[TID:.*]] = gpu.thread_id x
// CHECK-DAG: %[[WHOLE:.*]] = arith.andi %[[N]], %c-8
// CHECK-DAG: %[[SOME:.*]] = arith.ori %[[P]], %[[G]]
// CHECK-DAG: %[[BITS:.*]] = arith.ori %[[SOME]], %[[M]]
// CHECK-DAG: %[[LOW:.*]] = arith.andi %[[BITS]], %c15_i64
// CHECK-DAG: %[[ALIGNED:.*]] = arith.cmpi eq, %[[LOW]], %c0_i64
// CHECK: %[[VECTORS:.*]] = arith.select %[[ALIGNED]], %[[WHOLE]], %c0
// CHECK: %[[BEGIN:.*]] = arith.muli %[[TID]], %c8
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[VECTORS]] step %c2048
// CHECK: vector.load %{{.*}} {alignment = 16 : i64} : memref<?xi16>, vector<8xi16>
// CHECK: vector.load %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<8xf32>
// A state is not used again soon.
// CHECK: vector.load %{{.*}} {alignment = 16 : i64, nontemporal = true} : memref<?xf32>, vector<8xf32>
// CHECK: vector.store %{{.*}} {alignment = 16 : i64} : memref<?xi16>, vector<8xi16>
// CHECK: vector.store %{{.*}} {alignment = 16 : i64, nontemporal = true} : memref<?xf32>, vector<8xf32>
// CHECK: %[[REST:.*]] = arith.addi %[[VECTORS]], %[[TID]]
// CHECK: scf.for %{{.*}} = %[[REST]] to %[[N]] step %c256
// CHECK: memref.load %{{.*}} : memref<?xi16>
// CHECK: memref.store %{{.*}} : memref<?xi16>

// CHECK-LABEL: func.func private @phase0_strided_run(
// CHECK: scf.for {{.*}} step %c256
// CHECK: arith.remui
// CHECK: memref.load
// CHECK-NOT: vector.load

// The kernels: a block of threads for each chunk.

// CHECK: gpu.func @phase0(%[[TABLE:.*]]: i64, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64, %[[FROM:.*]]: i64, %[[TO:.*]]: i64, %[[SKIP:.*]]: i64) kernel
// CHECK: step.view %[[SKIP]]
// CHECK: %[[RUNS:.*]] = arith.cmpi eq
// CHECK: arith.select %[[RUNS]], %[[TO]], %[[FROM]]
// CHECK: %[[BLOCK:.*]] = gpu.block_id x
// CHECK: %[[BLOCKS:.*]] = gpu.grid_dim x
// CHECK: scf.for {{.*}} step %[[BLOCKS]]
// CHECK: func.call @phase0_run
// CHECK: gpu.func @phase0_strided(
// CHECK: func.call @phase0_strided_run
step.optimizer @opt {
  %lr = step.hyper "lr" = 1.0
  step.program @program(%p: param[*] as bf16, %g: grad[*] as f32, %m: state "m"[*] as f32) variant <"any", {}, f32> elementwise {
    %rate = step.cohort_scalars @scalars {
      step.yield %lr : f64
    } : f64
    %new:2 = step.traverse @phase0 over [*] reads (%x = %p : <[*], bf16>, %y = %g : <[*], f32>, %z = %m : <[*], f32>) scalars (%lr_value = %rate as f32) writes (%p : <[*], bf16>, %m : <[*], f32>) {
      %0 = arith.extf %x : bf16 to f32
      %1 = arith.addf %z, %y : f32
      %2 = arith.mulf %1, %lr_value : f32
      %3 = arith.subf %0, %2 : f32
      %4 = arith.truncf %3 : f32 to bf16
      step.yield %4, %1 : bf16, f32
    }
  }
}
