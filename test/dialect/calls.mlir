// Tests the syntax of scalars that are written once, and of their calls.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: step.optimizer @called {
step.optimizer @called {
  %lr = step.hyper "lr" = 1.0
  %on = step.option "on" = false
  %half = step.constant 0.5
  // CHECK: step.define @rates(%[[T:.*]]: i64, %[[X:.*]]: f64, %[[F:.*]]: i1) {
  step.define @rates(%t: i64, %x: f64, %f: i1) {
    // CHECK-NEXT: %[[N:.*]] = step.to_f64 %[[T]]
    %n = step.to_f64 %t
    // CHECK-NEXT: %[[A:.*]] = step.select %[[F]], %[[X]], %[[N]] : f64
    %a = step.select %f, %x, %n : f64
    // CHECK-NEXT: %[[B:.*]] = step.select %on, %[[A]], %lr : f64
    %b = step.select %on, %a, %lr : f64
    // CHECK-NEXT: %[[C:.*]] = step.compare lt, %[[B]], %{{.*}} : f64
    %c = step.compare lt, %b, %half : f64
    // CHECK-NEXT: step.yield %[[B]], %[[C]] : f64, i1
    step.yield %b, %c : f64, i1
  }
  // CHECK: step.define @nothing() attributes {note = "kept"} {
  step.define @nothing() attributes {note = "kept"} {
    // CHECK-NEXT: step.yield %lr : f64
    step.yield %lr : f64
  }
  // CHECK: step.define @again(%{{.*}}: f64) {
  step.define @again(%x: f64) {
    // CHECK-NEXT: %[[L:.*]] = step.call @nothing() : () -> f64
    %l = step.call @nothing() : () -> f64
    %y = step.mul %l, %x : f64
    step.yield %y : f64
  }
  // CHECK: step.scalars over model {
  %z = step.scalars over model {
    // CHECK-NEXT: step.call @again(%{{.*}}) {note = "kept"} : (f64) -> f64
    %y = step.call @again(%half) {note = "kept"} : (f64) -> f64
    step.yield %y : f64
  }
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // CHECK: %[[R:.*]]:2 = step.call @rates(%count, %{{.*}}, %on) : (i64, f64, i1) -> (f64, i1)
    %r, %c = step.call @rates(%t, %z, %on) : (i64, f64, i1) -> (f64, i1)
    // CHECK-NEXT: %[[S:.*]] = step.select %[[R]]#1, %grad, %[[R]]#0 : [*], f64
    %s = step.select %c, %g, %r : [*], f64
    step.return %s
  }
}

// CHECK-LABEL: step.fragment @halved {
step.fragment @halved {
  // CHECK-NEXT: step.define @half
  step.define @half(%x: f64) {
    %two = step.constant 2.0
    %y = step.div %x, %two : f64
    step.yield %y : f64
  }
  step.rule @any(%g: grad[*]) {
    %one = step.constant 1.0
    // CHECK: step.call @half(
    %half = step.call @half(%one) : (f64) -> f64
    %g1 = step.mul %g, %half : [*], f64
    step.return %g1
  }
}
