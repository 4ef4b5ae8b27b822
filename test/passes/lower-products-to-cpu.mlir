// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cpu --canonicalize --cse %s | FileCheck %s
// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cpu %s | grep -c math.fma | FileCheck %s --check-prefix=SIX
// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cpu=avx512 %s | grep -c math.fma | FileCheck %s --check-prefix=TWELVE

// A finish calls one function for all products of the same types, and another for those
// of which half is computed: a matrix is its address and two strides, one of which is 1,
// so what is transposed has them exchanged.

// CHECK-LABEL: func.func @opt_any_0_finish0(
// CHECK: call @product$of_f32_f32_f32_symmetric(%{{.*}}, %[[M:.*]], %c1_i64, %{{.*}}, %c1_i64, %[[M]], %{{.*}}, %[[N:.*]], %[[M]], %[[N]], %[[PANELS:.*]], %[[PACKED:.*]]) :
// CHECK: call @product$of_f32_f32_f32_(%{{.*}}, %[[N]], %c1_i64, %{{.*}}, %[[N]], %c1_i64, %{{.*}}, %[[N]], %[[N]], %[[N]], %{{.*}}, %{{.*}}) :
// CHECK: call @product$of_f32_f32_f32_(%{{.*}}, %[[N]], %c1_i64, %{{.*}}, %[[N]], %c1_i64, %{{.*}}, %[[N]], %[[N]], %[[N]], %{{.*}}, %{{.*}}) :
// CHECK: call @product$of_f32_f32_f32_(%{{.*}}, %[[N]], %c1_i64, %{{.*}}, %[[M]], %c1_i64, %{{.*}}, %[[N]], %[[N]], %[[M]], %{{.*}}, %{{.*}}) :
// CHECK-NOT: call @product
// CHECK-LABEL: func.func private @product$of_f32_f32_f32_symmetric(
// CHECK-SAME: llvm.linkage = #llvm.linkage<internal>
// CHECK-NOT: func.func
// Rows of a tile, a vector of 16 f32 each, along a leaf of 512.
// CHECK-COUNT-6: math.fma %{{.*}} : vector<16xf32>
// CHECK-NOT: math.fma
// CHECK: arith.extf %{{.*}} : vector<{{.*}}xf32> to vector<{{.*}}xf64>
// CHECK-LABEL: func.func private @product$of_f32_f32_f32_(
// CHECK-COUNT-6: math.fma %{{.*}} : vector<16xf32>
// CHECK-NOT: math.fma
// CHECK-NOT: @product

// Two functions of a tile each.
// SIX: {{^}}12{{$}}
// TWELVE: {{^}}24{{$}}
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
