// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cpu --canonicalize --cse %s | FileCheck %s
// RUN: stepc-opt --step-stage-lower %s | FileCheck %s --check-prefix=LLVM

// What a finish leaves out it branches around: by a scalar of the cohort, in its row. A product
// that adds up in f64 packs f64, in panels of 8, and rounds what it stores.

// CHECK-LABEL: func.func @opt_any_0_finish0(
// CHECK: %[[SLOT:.*]] = memref.load %{{.*}} : memref<?xf64>
// CHECK-NEXT: %[[UNDUE:.*]] = arith.cmpf une, %[[SLOT]], %{{.*}} : f64
// CHECK-NEXT: scf.if %[[UNDUE]] {
// CHECK-NEXT: } else {
// CHECK: call @product$of_f32_f32_f64_f32_symmetric(
// CHECK: scf.if %{{.*}} {
// CHECK-NEXT: } else {
// Widened, decomposed by the routine that the call names, and rounded.
// CHECK: arith.extf %{{.*}} : f32 to f64
// CHECK: memref.store %{{.*}} : memref<?xf64>
// CHECK: call @routine$of_eigenvectors(%{{.*}}, %{{.*}}, %[[N:.*]], %{{.*}}, %{{.*}}) : (i64, i64, i64, i64, i64) -> ()
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: scf.if %{{.*}} {
// CHECK-NEXT: } else {
// CHECK-LABEL: func.func private @product$of_f32_f32_f64_f32_symmetric(
// CHECK-COUNT-6: math.fma %{{.*}} : vector<8xf64>
// CHECK: arith.truncf %{{.*}} : vector<8xf64> to vector<8xf32>
// CHECK-LABEL: func.func private @routine$of_eigenvectors(
// CHECK-NEXT: step.invoke %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})
// CHECK-NEXT: return

// CHECK-LABEL: func.func private @routine$of_order(
// CHECK-NEXT: step.invoke %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}})
// CHECK-LABEL: func.func private @routine$of_orthonormal(
// CHECK-NEXT: step.invoke %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})

// LLVM-LABEL: llvm.func internal @routine$of_eigenvectors(%arg0: i64, %arg1: i64, %arg2: i64, %arg3: i64, %arg4: i64)
// LLVM: %[[ROUTINE:.*]] = llvm.inttoptr %arg0 : i64 to !llvm.ptr
// LLVM-NEXT: llvm.call %[[ROUTINE]](%arg1, %arg2, %arg3, %arg4) : !llvm.ptr, (i64, i64, i64, i64) -> ()
step.optimizer @opt {
  step.program @opt_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %q: state "q"[n, r] as f32, %f: fresh("q"))
      variant <"any", {}, f32> attributes {bound_dims = ["r"]} {
    %undue = step.cohort_scalars @scalars {
      %yes = arith.constant true
      %not = arith.xori %f, %yes : i1
      step.yield %not : i1
    } : i1
    %u = step.traverse @keep over [n, m] reads (%a = %g : <[n, m], f32>) makes (f32) {
      step.yield %a : f32
    }
    %gg = step.product %u, %u transposed symmetric wide unless %undue : <[n, m], f32>, <[n, m], f32> -> <[n, n], f32>
    %v = step.eigenvectors %gg unless %undue : <[n, n], f32> -> <[n, n], f32>
    %vt = step.transposed %v unless %undue : <[n, n], f32> -> <[n, n], f32>
    %keys = step.diagonals %vt unless %undue : <[n, n], f32> -> <[1, n], f32>
    %w = step.sorted %vt by %keys unless %undue : <[n, n], f32>, <[1, n], f32> -> <[n, n], f32>
    %v1 = step.orthonormal %w unless %undue : <[n, n], f32> -> <[n, n], f32>
    %first = step.leading %v1 unless %undue : <[n, n], f32> -> <[n, r], f32>
    %q1 = step.traverse @store over [n, r] reads (%a = %first : <[n, r], f32>) writes (%q : <[n, r], f32>) {
      step.yield %a : f32
    }
    %p1 = step.traverse @update over [n, m] reads (%a = %p : <[n, m], f32>) writes (%p : <[n, m], f32>) {
      step.yield %a : f32
    }
  }
}
