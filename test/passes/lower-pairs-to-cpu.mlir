// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cpu --canonicalize --cse %s | FileCheck %s --implicit-check-not=dot_pairs
// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cpu=avx512 --canonicalize --cse %s | FileCheck %s --check-prefix=DOTS
// RUN: stepc-opt --step-stage-lower=avx512 %s | FileCheck %s --check-prefix=LLVM

// Factors of bf16 are packed in pairs, and a leaf is a function: of two fused multiply-adds a
// pair, the second number of each first, in a mode without denormals.

// CHECK-LABEL: func.func private @product$of_f32_f32_f32_pairs_(
// The first number of a pair is in the lower half.
// CHECK: %[[ROUNDED:.*]] = arith.truncf %{{.*}} : vector<16xf32> to vector<16xbf16>
// CHECK: %[[BITS:.*]] = arith.bitcast %[[ROUNDED]] : vector<16xbf16> to vector<16xi16>
// CHECK: %[[LOW:.*]] = arith.extui %[[BITS]] : vector<16xi16> to vector<16xi32>
// CHECK: %[[SECOND:.*]] = arith.extui %{{.*}} : vector<16xi16> to vector<16xi32>
// CHECK: %[[HIGH:.*]] = arith.shli %[[SECOND]], %{{.*}} : vector<16xi32>
// CHECK: arith.ori %[[LOW]], %[[HIGH]] : vector<16xi32>
// A leaf of 512 numbers.
// CHECK: scf.for %{{.*}} = %c0 to %{{.*}} step %c256
// CHECK: call @routine$of_flush(%{{.*}}, %c1_i64)
// CHECK-NEXT: call @product$of_fused_pairs(
// CHECK: call @routine$of_flush(%{{.*}}, %c0_i64)
// CHECK-LABEL: func.func private @product$of_fused_pairs(
// CHECK: arith.andi %{{.*}} : vector<16xi32>
// CHECK-COUNT-6: math.fma
// CHECK: arith.shli %{{.*}} : vector<16xi32>
// CHECK-COUNT-6: math.fma
// CHECK-NOT: math.fma

// With AVX-512 by dot products, where the processor has them.
// DOTS-LABEL: func.func private @product$of_f32_f32_f32_pairs_(
// DOTS: %[[HAS:.*]] = arith.cmpi sgt, %{{.*}}, %c0_i64 : i64
// DOTS: scf.if %[[HAS]] {
// DOTS-NEXT: call @product$of_dots(
// DOTS-NEXT: } else {
// DOTS: call @product$of_fused_pairs(
// DOTS-LABEL: func.func private @product$of_dots(
// Two panels of 12 rows.
// DOTS-COUNT-24: step.dot_pairs %{{.*}} : vector<16xi32> -> vector<16xf32>
// DOTS-NOT: step.dot_pairs

// LLVM-LABEL: llvm.func internal @product$of_dots(
// LLVM-COUNT-24: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"(%{{.*}}) : (vector<16xf32>, vector<32xbf16>, vector<32xbf16>) -> vector<16xf32>
step.optimizer @opt {
  step.program @opt_any_0(%p: param[n, m] as f32, %g: grad[m, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %u = step.traverse @keep over [n, m] reads (%a = %p : <[n, m], f32>) makes (f32) {
      step.yield %a : f32
    }
    %v = step.product %u, %g rounded : <[n, m], f32>, <[m, m], f32> -> <[n, m], f32>
    %p1 = step.traverse @update over [n, m] reads (%a = %p : <[n, m], f32>, %b = %v : <[n, m], f32>) writes (%p : <[n, m], f32>) {
      %c = arith.subf %a, %b : f32
      step.yield %c : f32
    }
  }
}
