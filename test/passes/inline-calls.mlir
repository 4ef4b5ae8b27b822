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
