// RUN: stepc-opt %s -step-expand-identities | FileCheck %s
// RUN: stepc-opt %s -step-expand-identities -step-form-programs -cse -canonicalize | FileCheck %s --check-prefix=PROGRAM

// A column and a row, compared; no matrix is in memory but what a product needs.
// CHECK-LABEL: step.optimizer @damped
// PROGRAM-LABEL: step.optimizer @damped
step.optimizer @damped {
  %eps = step.hyper "eps" = 0.1
  // CHECK: step.rule
  // PROGRAM: step.program
  step.rule @damped_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32)
      variant <"any", {}, f32> {
    // CHECK-NEXT: %[[ROW:.*]] = step.index : [n, 1]{{$}}
    // CHECK-NEXT: %[[COLUMN:.*]] = step.index : [1, n]{{$}}
    // CHECK-NEXT: %[[SAME:.*]] = step.compare eq, %[[ROW]], %[[COLUMN]] : [n, 1], [1, n]
    // CHECK-NEXT: %[[ONE:.*]] = step.constant 1.0
    // CHECK-NEXT: %[[ZERO:.*]] = step.constant 0.0
    // CHECK-NEXT: %[[I:.*]] = step.select %[[SAME]], %[[ONE]], %[[ZERO]] : mask[n, n], f64
    // CHECK-NEXT: step.mul %[[I]], %eps : [n, n], f64
    // PROGRAM-DAG: %[[R:.*]] = step.indices : <[n, 1], f32>
    // PROGRAM-DAG: %[[C:.*]] = step.indices : <[1, n], f32>
    // PROGRAM: %[[DAMPED:.*]] = step.traverse @damped_any_0_small0 over [n, n]
    // PROGRAM-SAME: reads (%{{.*}} = %l : <[n, n], f32>, %{{.*}} = %[[R]] : <[n, 1], f32>, %{{.*}} = %[[C]] : <[1, n], f32>) scalars (%{{.*}} = %{{.*}} as f32) makes (f32) {
    // PROGRAM: step.product %[[DAMPED]],
    %one = step.identity : [n, n]
    %damp = step.mul %one, %eps : [n, n], f64
    %damped = step.add %l, %damp : [n, n]
    %u = step.matmul %damped, %g : [n, n], [n, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %l : [n, m], [n, n]
  }
}
