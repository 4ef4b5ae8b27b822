// Tests the syntax of what is done again, and of what is done in some steps.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: step.optimizer @repeated {
step.optimizer @repeated {
  %half = step.constant 0.5
  // CHECK: step.define @often(%[[X:.*]]: [n, m]) {
  step.define @often(%x: [n, m]) {
    // CHECK-NEXT: %[[Y:.*]] = step.repeat 2 (%[[A:.*]]: [n, m] = %[[X]]) {
    %y = step.repeat 2 (%a: [n, m] = %x) {
      // CHECK-NEXT: %[[B:.*]] = step.repeat 3 (%[[C:.*]]: [n, m] = %[[A]]) {
      %b = step.repeat 3 (%c: [n, m] = %a) {
        // CHECK-NEXT: %[[D:.*]] = step.mul %[[C]], %{{.*}} : [n, m], f64
        %d = step.mul %c, %half : [n, m], f64
        // CHECK-NEXT: step.yield %[[D]] : [n, m]
        step.yield %d : [n, m]
      }
      // CHECK: step.yield %[[B]] : [n, m]
      step.yield %b : [n, m]
    }
    // CHECK: step.yield %[[Y]] : [n, m]
    step.yield %y : [n, m]
  }
  // Several values, of any sort; none of a time of 0; attributes.
  step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
    %yes = step.constant true
    // CHECK: %[[R:.*]]:3 = step.repeat 0 (%{{.*}}: [n, m] = %grad, %{{.*}}: f64 = %{{.*}}, %{{.*}}: i1 = %{{.*}}) attributes {note = "kept"} {
    %x, %y, %z = step.repeat 0 (%a: [n, m] = %g, %b: f64 = %half, %c: i1 = %yes) attributes {note = "kept"} {
      // CHECK-NEXT: step.call @often(%{{.*}}) : ([n, m]) -> [n, m]
      %d = step.call @often(%a) : ([n, m]) -> [n, m]
      %e = step.add %b, %half : f64
      %f = step.not %c : i1
      // CHECK: step.yield %{{.*}}, %{{.*}}, %{{.*}} : [n, m], f64, i1
      step.yield %d, %e, %f : [n, m], f64, i1
    }
    %u = step.mul %x, %y : [n, m], f64
    %p1 = step.select %z, %u, %p : [n, m]
    step.return %p1 : [n, m]
  }
}

// CHECK-LABEL: step.optimizer @sometimes {
step.optimizer @sometimes {
  %gap = step.hyper "gap" = 3.0
  %on = step.option "on" = true
  %half = step.constant 0.5
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %q: state "q"[n, n], %f: fresh, %t: count) {
    // CHECK: %[[EVERY:.*]] = step.every %gap, %count{{$}}
    %every = step.every %gap, %t
    %either = step.or %every, %f : i1
    %due = step.and %either, %on : i1
    // CHECK: %[[R:.*]]:2 = step.when %{{.*}}, %q, %{{.*}} : [n, n], f64 attributes {note = "kept"} {
    %q1, %x = step.when %due, %q, %half : [n, n], f64 attributes {note = "kept"} {
      %gt = step.transpose %g : [n, m]
      %gram = step.matmul %g, %gt : [n, m], [m, n]
      // CHECK: step.repeat 2
      %y = step.repeat 2 (%a: [n, n] = %gram) {
        %b = step.matmul %a, %gram : [n, n]
        step.yield %b : [n, n]
      }
      %sum = step.sum %y : [n, n]
      // CHECK: step.yield %{{.*}}, %{{.*}} : [n, n], f64
      step.yield %y, %sum : [n, n], f64
    }
    %u = step.matmul %q1, %g : [n, n], [n, m]
    %v = step.mul %u, %x : [n, m], f64
    %p1 = step.sub %p, %v : [n, m]
    // CHECK: step.return %{{.*}}, %[[R]]#0 : [n, m], [n, n]
    step.return %p1, %q1 : [n, m], [n, n]
  }
}

// CHECK-LABEL: step.optimizer @called {
step.optimizer @called {
  %start = step.hyper "start" = 3.0
  step.define @number(%t: i64) {
    %number = step.to_f64 %t
    step.yield %number : f64
  }
  step.define @schedule(%t: i64, %f: i1) {
    %number = step.call @number(%t) : (i64) -> f64
    %later = step.compare ge, %number, %start : f64
    %due = step.or %later, %f : i1
    step.yield %due : i1
  }
  step.rule @any(%p: param[*], %g: grad[*], %f: fresh, %t: count) {
    // CHECK: %[[DUE:.*]] = step.call @schedule
    %due = step.call @schedule(%t, %f) : (i64, i1) -> i1
    // CHECK-NEXT: %{{.*}} = step.when %[[DUE]], %grad : [*] {
    %x = step.when %due, %g : [*] {
      step.yield %p : [*]
    }
    %p1 = step.sub %p, %x : [*]
    step.return %p1
  }
}
