// Tests the syntax of values that are written once, and of their calls.
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

// Tensors are arguments and results, in their short form; dims are those of the rule
// that calls.
// CHECK-LABEL: step.optimizer @tensors {
step.optimizer @tensors {
  %lr = step.hyper "lr" = 1.0
  // CHECK: step.define @product(%[[X:.*]]: [n, m], %[[Y:.*]]: [m, n], %[[W:.*]]: f64) {
  step.define @product(%x: [n, m], %y: [m, n], %w: f64) {
    // CHECK-NEXT: %[[XY:.*]] = step.matmul %[[X]], %[[Y]] : [n, m], [m, n]
    %xy = step.matmul %x, %y : [n, m], [m, n]
    // CHECK-NEXT: %[[SUM:.*]] = step.sum %[[XY]] : [n, n]
    %sum = step.sum %xy : [n, n]
    %z = step.mul %xy, %w : [n, n], f64
    %u = step.matmul %z, %x : [n, n], [n, m]
    // CHECK: step.yield %{{.*}}, %[[SUM]], %{{.*}} : [n, m], f64, [n, n]
    step.yield %u, %sum, %z : [n, m], f64, [n, n]
  }
  // CHECK: step.define @scaled(%[[X:.*]]: [*]) {
  step.define @scaled(%x: !step.tensor<*>) {
    %y = step.mul %x, %lr : [*], f64
    // CHECK: step.yield %{{.*}} : [*]{{$}}
    step.yield %y : [*]
  }
  // One that is called by another.
  // CHECK: step.define @twice(%[[X:.*]]: [*]) {
  step.define @twice(%x: [*]) {
    // CHECK-NEXT: step.call @scaled(%[[X]]) : ([*]) -> [*]
    %y = step.call @scaled(%x) : ([*]) -> [*]
    %z = step.call @scaled(%y) : (!step.tensor<*>) -> !step.tensor<*>
    step.yield %z : [*]
  }
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %s: state "s"[n, n]) {
    %gt = step.transpose %g : [n, m]
    // CHECK: %[[R:.*]]:3 = step.call @product(%grad, %{{.*}}, %lr) : ([n, m], [m, n], f64) -> ([n, m], f64, [n, n])
    %u, %sum, %z = step.call @product(%g, %gt, %lr) : ([n, m], [m, n], f64) -> ([n, m], f64, [n, n])
    // CHECK-NEXT: step.mul %[[R]]#0, %[[R]]#1 : [n, m], f64
    %p1 = step.mul %u, %sum : [n, m], f64
    %s1 = step.neg %z : [n, n]
    step.return %p1, %s1 : [n, m], [n, n]
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.call @twice(%grad) {note = "kept"} : ([*]) -> [*]
    %y = step.call @twice(%g) {note = "kept"} : ([*]) -> [*]
    %p1 = step.sub %p, %y : [*]
    step.return %p1
  }
}
