// RUN: stepc-opt --step-keep-over-rounds %s | FileCheck %s
// RUN: stepc-opt --step-keep-over-rounds --step-keep-over-rounds %s | FileCheck %s

// What a later segment uses is kept; its own segment goes on to use it as it is. What only
// its own segment uses is not.

// CHECK-LABEL: step.program @opt_any_0
step.optimizer @opt {
  step.program @opt_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %sums:2 = step.traverse @sums over [n, m] reads (%e = %g : <[n, m], f32>) partials (sum to [n, 1], sum to [1, m]) {
      step.yield %e, %e : f32, f32
    }
    // CHECK: %[[ROWS:.*]] = step.combine mean %{{.*}}#0
    // CHECK-NEXT: %[[KEPT:.*]] = step.keep %[[ROWS]] : !step.buffer<[n, 1], f32>
    // CHECK-NOT: step.keep
    // CHECK: %[[COLUMNS:.*]] = step.combine mean %{{.*}}#1
    %rows = step.combine mean %sums#0 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %columns = step.combine mean %sums#1 : !step.partial<sum, [n, m] to [1, m]> -> !step.buffer<[1, m], f32>
    // CHECK-NOT: step.keep
    // CHECK: step.traverse @first {{.*}} = %[[ROWS]] : {{.*}} = %[[COLUMNS]] :
    step.traverse @first over [n, m] reads (%r = %rows : <[n, 1], f32>, %c = %columns : <[1, m], f32>) {
      step.yield
    }
    // CHECK: step.exchange round 0
    step.exchange round 0
    // CHECK-NEXT: step.traverse @second {{.*}} = %[[KEPT]] :
    step.traverse @second over [n, m] reads (%r = %rows : <[n, 1], f32>) {
      step.yield
    }
  }
}
