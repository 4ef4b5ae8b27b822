// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cuda --canonicalize --cse %s -o %t
// RUN: FileCheck %s < %t
// RUN: FileCheck %s --check-prefix=BODY < %t

// What is done for elements of matrices is a launch of its own, over all blocks; one function in
// the module of the device for all products of the same types.

// CHECK-LABEL: gpu.module @kernels
// CHECK: gpu.func @opt_any_0_finish0(
// CHECK: func.call @product$of_f32_f32_f32_symmetric_spread_nt(
// CHECK: gpu.func @opt_any_0_finish0_stage1(
// CHECK: func.call @product$of_f32_f32_f32__spread_nn(
// CHECK: gpu.func @opt_any_0_finish0_stage2(
// CHECK: func.call @product$of_f32_f32_f32__spread_nn(
// CHECK: gpu.func @opt_any_0_finish0_stage3(
// CHECK-NOT: func.call
// CHECK: gpu.func @opt_any_0_finish0_stage4(
// CHECK: func.call @product$of_f32_f32_f32__spread_nn(
// CHECK: gpu.func @opt_any_0_finish0_stage5(
// CHECK: func.call @store_run(

// A thread has 8 by 8 elements, chains from +0.0 on in the compute type: 8 numbers at a time.
// BODY: func.func private @product$of_f32_f32_f32__spread_nn(
// BODY-SAME: llvm.linkage = #llvm.linkage<internal>
// BODY: gpu.barrier
// BODY: gpu.barrier
// BODY: scf.for
// BODY-COUNT-512: math.fma
// BODY: gpu.barrier
// BODY: scf.for
// BODY-COUNT-64: math.fma
// Leaves are added in f64, behind the first.
// BODY: arith.extf {{.*}} : f32 to f64
// BODY: arith.addf {{.*}} : f64
// BODY: arith.truncf {{.*}} : f64 to f32
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
