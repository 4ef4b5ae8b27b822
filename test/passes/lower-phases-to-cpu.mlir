// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cpu --canonicalize --cse %s | FileCheck %s
// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cpu=prefetch-lines=0 --canonicalize --cse %s \
// RUN:   | FileCheck %s --check-prefix=NOPREFETCH

// The optimizer is gone; two kernels are left, and what they call.

// CHECK-NOT: step.optimizer

// A run: scalars are loaded and rounded once; vectors of 512 bits of the compute
// type, one line of the narrowest operand (32 bf16) in each iteration, with the
// lines that lie ahead asked for; then single vectors; then single elements.

// CHECK-LABEL: func.func private @phase0_run(
// CHECK-SAME: %[[SCALARS:.*]]: i64, %[[P:.*]]: i64, %[[G:.*]]: i64, %[[N:.*]]: index)
// CHECK-SAME: llvm.linkage = #llvm.linkage<internal>
// CHECK: %[[ROW:.*]] = step.view %[[SCALARS]] : memref<?xf64>
// CHECK: %[[SLOT:.*]] = memref.load %[[ROW]]
// CHECK: %[[LR:.*]] = arith.truncf %[[SLOT]] : f64 to f32
// CHECK: scf.for {{.*}} step %c32
// CHECK: step.prefetch %{{.*}} write
// CHECK: step.prefetch %{{[0-9]+$}}
// CHECK: step.prefetch %{{[0-9]+$}}
// CHECK-NOT: step.prefetch
// CHECK: vector.load %{{.*}} : memref<?xi16>, vector<16xi16>
// CHECK: arith.bitcast %{{.*}} : vector<16xi16> to vector<16xbf16>
// CHECK: vector.load %{{.*}} : memref<?xf32>, vector<16xf32>
// CHECK: arith.extf %{{.*}} : vector<16xbf16> to vector<16xf32>
// CHECK: vector.broadcast %[[LR]] : f32 to vector<16xf32>
// CHECK: arith.mulf %{{.*}} : vector<16xf32>
// CHECK: vector.store %{{.*}} : memref<?xi16>, vector<16xi16>
// CHECK: vector.store
// CHECK: scf.for {{.*}} step %c32
// CHECK-NOT: step.prefetch
// CHECK: scf.for {{.*}} step %c16
// CHECK: scf.for {{.*}} step %c1
// CHECK: memref.load %{{.*}} : memref<?xi16>
// CHECK: arith.bitcast %{{.*}} : i16 to bf16
// CHECK: memref.store %{{.*}} : memref<?xi16>

// CHECK-LABEL: func.func private @phase0_strided_run(
// CHECK: scf.for {{.*}} step %c1
// CHECK: memref.load
// CHECK-NOT: vector.load

// The kernels: chunks of rows, the first lines of a later chunk asked for.

// CHECK-LABEL: func.func @phase0(%{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64)
// CHECK: scf.for
// CHECK: scf.if
// CHECK: step.prefetch %{{.*}} write
// CHECK: step.prefetch
// CHECK: call @phase0_run

// CHECK-LABEL: func.func @phase0_strided(%{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64)
// CHECK: scf.while
// CHECK: arith.remui
// CHECK: scf.if
// CHECK: call @phase0_run
// CHECK: else
// CHECK: call @phase0_strided_run

// What does not depend on the elements is computed once, made bits, and then
// broadcast: no vector of bf16 but the ones that are converted.

// CHECK-LABEL: func.func private @constant0_run(
// CHECK: %[[NARROW:.*]] = arith.truncf %{{.*}} : f32 to bf16
// CHECK: scf.for
// CHECK: %[[BITS:.*]] = arith.bitcast %[[NARROW]] : bf16 to i16
// CHECK: vector.broadcast %[[BITS]] : i16 to vector<16xi16>
// CHECK: vector.store

// NOPREFETCH-NOT: step.prefetch
step.optimizer @opt {
  %lr = step.hyper "lr" = 1.0
  step.program @program(%p: param[*] as bf16, %g: grad[*] as f32) variant <"any", {}, f32> elementwise {
    %rate = step.cohort_scalars @scalars {
      step.yield %lr : f64
    } : f64
    %new = step.traverse @phase0 over [*] reads (%x = %p : <[*], bf16>, %y = %g : <[*], f32>) scalars (%lr_value = %rate as f32) writes (%p : <[*], bf16>) {
      %0 = arith.extf %x : bf16 to f32
      %1 = arith.mulf %y, %lr_value : f32
      %2 = arith.subf %0, %1 : f32
      %3 = arith.truncf %2 : f32 to bf16
      step.yield %3 : bf16
    }
  }
}
step.optimizer @constant {
  step.program @program(%p: param[*] as bf16) variant <"any", {}, f32> elementwise {
    %scalar = step.cohort_scalars @constant_scalars {
      %one = arith.constant 1.0 : f64
      step.yield %one : f64
    } : f64
    %new = step.traverse @constant0 over [*] scalars (%x = %scalar as f32) writes (%p : <[*], bf16>) {
      %r = arith.truncf %x : f32 to bf16
      step.yield %r : bf16
    }
  }
}
