// RUN: stepc-opt %s -step-flatten-whens | FileCheck %s

// The operations, and a select for each value; it stores what a state becomes.
// CHECK-LABEL: step.optimizer @sometimes {
step.optimizer @sometimes {
  %gap = step.hyper "gap" = 3.0
  %half = step.constant 0.5
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %q: state "q"[n, n], %t: count) {
    // CHECK: %[[DUE:.*]] = step.every %gap, %count
    // CHECK-NEXT: %[[GT:.*]] = step.transpose %grad : [n, m]
    // CHECK-NEXT: %[[GRAM:.*]] = step.matmul %grad, %[[GT]] : [n, m], [m, n]
    // CHECK-NEXT: %[[SUM:.*]] = step.sum %[[GRAM]] : [n, n]
    // CHECK-NEXT: %[[Q:.*]] = step.select %[[DUE]], %[[GRAM]], %q : [n, n]{{$}}
    // CHECK-NEXT: %[[X:.*]] = step.select %[[DUE]], %[[SUM]], %{{.*}} : f64{{$}}
    // CHECK-NEXT: %[[U:.*]] = step.matmul %[[Q]], %grad
    // CHECK-NEXT: %[[V:.*]] = step.mul %[[U]], %[[X]]
    // CHECK-NEXT: step.return %[[V]], %[[Q]]
    %due = step.every %gap, %t
    %q1, %x = step.when %due, %q, %half : [n, n], f64 {
      %gt = step.transpose %g : [n, m]
      %gram = step.matmul %g, %gt : [n, m], [m, n]
      %sum = step.sum %gram : [n, n]
      step.yield %gram, %sum : [n, n], f64
    }
    %u = step.matmul %q1, %g : [n, n], [n, m]
    %v = step.mul %u, %x : [n, m], f64
    step.return %v, %q1 : [n, m], [n, n]
  }
  // What is yielded need not be made there.
  // CHECK: step.rule @vector
  step.rule @vector(%p: param[n], %g: grad[n], %f: fresh) {
    // CHECK-NEXT: %[[X:.*]] = step.select %fresh, %param, %grad : [n]{{$}}
    %x = step.when %f, %g : [n] {
      step.yield %p : [n]
    }
    %p1 = step.sub %p, %x : [n]
    step.return %p1 : [n]
  }
}
