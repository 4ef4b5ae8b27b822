// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cuda --canonicalize --cse %s | FileCheck %s

// One function in the module of the device for all products of the same types; between
// them the threads of the block wait for each other.

// CHECK-LABEL: gpu.module @kernels
// CHECK: gpu.func @opt_any_0_finish0(
// CHECK: func.call @product$of_f32_f32_f32_symmetric(
// CHECK-NEXT: gpu.barrier
// CHECK: func.call @product$of_f32_f32_f32_(
// CHECK-NEXT: gpu.barrier
// CHECK: func.call @product$of_f32_f32_f32_(
// CHECK-NEXT: gpu.barrier
// CHECK: func.call @product$of_f32_f32_f32_(
// CHECK-NEXT: gpu.barrier
// CHECK-NOT: func.call @product
// CHECK: func.func private @product$of_f32_f32_f32_symmetric(
// CHECK: math.fma
// An element is a thread's: leaves of 512, each from +0.0 on in the compute type, added
// in f64; the first is what it is.
// CHECK: func.func private @product$of_f32_f32_f32_(%[[LEFT:.*]]: i64, %[[ROW:.*]]: i64, %[[ALONG:.*]]: i64,
// CHECK-SAME: llvm.linkage = #llvm.linkage<internal>
// CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-DAG: %[[WIDE:.*]] = arith.constant 0.000000e+00 : f64
// CHECK: %[[THREAD:.*]] = gpu.thread_id x
// CHECK: scf.for %{{.*}} = %[[THREAD]] to %{{.*}} step %c256
// CHECK: %[[ALL:.*]] = scf.for %[[BEGIN:.*]] = %c0 to %[[DEPTH:.*]] step %c512 iter_args(%[[SUM:.*]] = %[[WIDE]]) -> (f64) {
// CHECK: %[[END:.*]] = arith.minsi %[[DEPTH]], %{{.*}} : index
// CHECK: %[[LEAF:.*]] = scf.for %{{.*}} = %[[BEGIN]] to %[[END]] step %c1 iter_args(%[[CHAIN:.*]] = %[[ZERO]]) -> (f32) {
// CHECK: %[[NEXT:.*]] = math.fma %{{.*}}, %{{.*}}, %[[CHAIN]] : f32
// CHECK-NEXT: scf.yield %[[NEXT]] : f32
// CHECK: %[[X:.*]] = arith.extf %[[LEAF]] : f32 to f64
// CHECK: %[[MORE:.*]] = arith.addf %[[SUM]], %[[X]] : f64
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[BEGIN]], %c0 : index
// CHECK: arith.select %[[FIRST]], %[[X]], %[[MORE]] : f64
// CHECK: arith.truncf %[[ALL]] : f64 to f32
// CHECK-NOT: func.func private @product
step.optimizer @opt {
  step.program @opt_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32, %r: state "r"[n, n] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %u = step.traverse @keep over [n, m] reads (%a = %g : <[n, m], f32>) makes (f32) {
      step.yield %a : f32
    }
    %gg = step.product %u, %u transposed symmetric : <[n, m], f32>, <[n, m], f32> -> <[n, n], f32>
    %sq = step.product %gg, %gg : <[n, n], f32>, <[n, n], f32> -> <[n, n], f32>
    %cu = step.product %sq, %gg : <[n, n], f32>, <[n, n], f32> -> <[n, n], f32>
    %rt = step.transposed %r : <[n, n], f32> -> <[n, n], f32>
    %v = step.product %cu, %u : <[n, n], f32>, <[n, m], f32> -> <[n, m], f32>
    %l1 = step.traverse @store over [n, n] reads (%a = %cu : <[n, n], f32>, %b = %rt : <[n, n], f32>) writes (%l : <[n, n], f32>) {
      %c = arith.addf %a, %b : f32
      step.yield %c : f32
    }
    %p1 = step.traverse @update over [n, m] reads (%a = %p : <[n, m], f32>, %b = %v : <[n, m], f32>) writes (%p : <[n, m], f32>) {
      %c = arith.subf %a, %b : f32
      step.yield %c : f32
    }
  }
}
