// RUN: stepc-opt %s -step-inline-calls | FileCheck %s

// A call is its operations, in its place; so is one in a definition, and in a
// fragment. What is never called is gone, too.
// CHECK-LABEL: step.optimizer @called {
step.optimizer @called {
  // CHECK-NEXT: %lr = step.hyper
  %lr = step.hyper "lr" = 1.0
  step.define @root(%x: f64) {
    %r = step.sqrt %x : f64
    step.yield %r : f64
  }
  step.define @rate(%t: i64, %x: f64) {
    %n = step.to_f64 %t
    %r = step.call @root(%n) : (f64) -> f64
    %rate = step.div %lr, %r : f64
    step.yield %x, %rate : f64, f64
  }
  step.define @unused() {
    step.yield %lr : f64
  }
  // CHECK-NOT: step.define
  // CHECK: step.scalars over model {
  // CHECK-NEXT: %[[A:.*]] = step.sqrt %lr : f64
  // CHECK-NEXT: %[[B:.*]] = step.sqrt %[[A]] : f64
  // CHECK-NEXT: step.report "b", %[[B]]
  step.scalars over model {
    %a = step.call @root(%lr) : (f64) -> f64
    %b = step.call @root(%a) : (f64) -> f64
    step.report "b", %b
    step.yield
  }
  // CHECK: step.rule @any
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // CHECK-NEXT: %[[S:.*]] = step.sum %grad
    %s = step.sum %g : [*]
    // CHECK-NEXT: %[[N:.*]] = step.to_f64 %count
    // CHECK-NEXT: %[[R:.*]] = step.sqrt %[[N]] : f64
    // CHECK-NEXT: %[[RATE:.*]] = step.div %lr, %[[R]] : f64
    // CHECK-NEXT: %[[U:.*]] = step.mul %param, %[[S]]
    // CHECK-NEXT: step.mul %[[U]], %[[RATE]]
    %x, %rate = step.call @rate(%t, %s) : (i64, f64) -> (f64, f64)
    %u = step.mul %p, %x : [*], f64
    %p1 = step.mul %u, %rate : [*], f64
    step.return %p1
  }
}
// CHECK-LABEL: step.fragment @halved {
step.fragment @halved {
  // CHECK-NOT: step.define
  // CHECK: step.rule @any
  step.define @half(%x: f64) {
    %two = step.constant 2.0
    %y = step.div %x, %two : f64
    step.yield %y : f64
  }
  step.rule @any(%g: grad[*]) {
    // CHECK: step.div
    // CHECK-NOT: step.call
    %one = step.constant 1.0
    %half = step.call @half(%one) : (f64) -> f64
    %g1 = step.mul %g, %half : [*], f64
    step.return %g1
  }
}

// Tensors too.
// CHECK-LABEL: step.optimizer @tensors {
step.optimizer @tensors {
  %lr = step.hyper "lr" = 1.0
  step.define @gram(%x: [n, m]) {
    %xt = step.transpose %x : [n, m]
    %g = step.matmul %x, %xt : [n, m], [m, n]
    %s = step.sum %g : [n, n]
    step.yield %g, %s : [n, n], f64
  }
  step.define @twice(%x: [n, m], %rate: f64) {
    %g, %s = step.call @gram(%x) : ([n, m]) -> ([n, n], f64)
    %u = step.matmul %g, %x : [n, n], [n, m]
    %v = step.mul %u, %rate : [n, m], f64
    step.yield %v : [n, m]
  }
  // CHECK-NOT: step.define
  // CHECK: step.rule @matrix
  step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
    // CHECK-NEXT: %[[GT:.*]] = step.transpose %grad : [n, m]
    // CHECK-NEXT: %[[GG:.*]] = step.matmul %grad, %[[GT]] : [n, m], [m, n]
    // CHECK: %[[U:.*]] = step.matmul %[[GG]], %grad : [n, n], [n, m]
    // CHECK-NEXT: %[[V:.*]] = step.mul %[[U]], %lr : [n, m], f64
    %v = step.call @twice(%g, %lr) : ([n, m], f64) -> [n, m]
    // CHECK-NEXT: %[[VT:.*]] = step.transpose %[[V]] : [n, m]
    // CHECK-NEXT: %[[VV:.*]] = step.matmul %[[V]], %[[VT]] : [n, m], [m, n]
    // CHECK: %[[W:.*]] = step.matmul %[[VV]], %[[V]] : [n, n], [n, m]
    %w = step.call @twice(%v, %lr) : ([n, m], f64) -> [n, m]
    // CHECK-NOT: step.call
    // CHECK: step.sub %param
    %p1 = step.sub %p, %w : [n, m]
    step.return %p1 : [n, m]
  }
}
