// RUN: stepc-opt %s -step-unroll-repeats | FileCheck %s
// RUN: stepc-opt %s -step-inline-calls -step-unroll-repeats | FileCheck %s --check-prefix=CALLED

// Each copy uses what the one before has made; what stands inside is unrolled, too.
// CHECK-LABEL: step.optimizer @repeated {
step.optimizer @repeated {
  %half = step.constant 0.5
  // CHECK: step.rule @nested
  step.rule @nested(%p: param[*], %g: grad[*]) {
    // CHECK-NEXT: %[[A:.*]] = step.mul %grad, %{{.*}} : [*], f64
    // CHECK-NEXT: %[[B:.*]] = step.mul %[[A]], %{{.*}} : [*], f64
    // CHECK-NEXT: %[[C:.*]] = step.sub %[[B]], %param
    // CHECK-NEXT: %[[D:.*]] = step.mul %[[C]], %{{.*}} : [*], f64
    // CHECK-NEXT: %[[E:.*]] = step.mul %[[D]], %{{.*}} : [*], f64
    // CHECK-NEXT: %[[F:.*]] = step.sub %[[E]], %param
    // CHECK-NEXT: step.sub %param, %[[F]]
    %x = step.repeat 2 (%a: [*] = %g) {
      %b = step.repeat 2 (%c: [*] = %a) {
        %d = step.mul %c, %half : [*], f64
        step.yield %d : [*]
      }
      %e = step.sub %b, %p : [*]
      step.yield %e : [*]
    }
    %p1 = step.sub %p, %x : [*]
    step.return %p1
  }
  // Two values that change places, and one that no operation makes.
  // CHECK: step.rule @swapped
  step.rule @swapped(%p: param[*], %g: grad[*]) {
    // CHECK-NEXT: %[[A:.*]] = step.sub %param, %grad
    // CHECK-NEXT: %[[B:.*]] = step.sub %grad, %param
    // CHECK-NEXT: %[[C:.*]] = step.sub %param, %grad
    // CHECK-NEXT: %[[D:.*]] = step.mul %grad, %param
    // CHECK-NEXT: step.add %[[D]], %[[C]]
    %x, %y, %z = step.repeat 3 (%a: [*] = %p, %b: [*] = %g, %c: [*] = %g) {
      %d = step.sub %a, %b : [*]
      step.yield %b, %a, %d : [*], [*], [*]
    }
    %u = step.mul %x, %y : [*]
    %p1 = step.add %u, %z : [*]
    step.return %p1
  }
  // As often as not at all.
  // CHECK: step.rule @never
  step.rule @never(%p: param[*], %g: grad[*]) {
    // CHECK-NEXT: step.sub %param, %grad
    %x = step.repeat 0 (%a: [*] = %g) {
      %d = step.neg %a : [*]
      step.yield %d : [*]
    }
    %p1 = step.sub %p, %x : [*]
    step.return %p1
  }
}

// CALLED-LABEL: step.optimizer @called {
step.optimizer @called {
  step.define @twice(%x: [*]) {
    %y = step.repeat 2 (%a: [*] = %x) {
      %b = step.neg %a : [*]
      step.yield %b : [*]
    }
    step.yield %y : [*]
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CALLED: step.rule @any
    // CALLED-NEXT: %[[A:.*]] = step.neg %grad
    // CALLED-NEXT: %[[B:.*]] = step.neg %[[A]]
    // CALLED-NEXT: %[[C:.*]] = step.neg %[[B]]
    // CALLED-NEXT: %[[D:.*]] = step.neg %[[C]]
    // CALLED-NEXT: step.sub %param, %[[D]]
    %x = step.repeat 2 (%a: [*] = %g) {
      %b = step.call @twice(%a) : ([*]) -> [*]
      step.yield %b : [*]
    }
    %p1 = step.sub %p, %x : [*]
    step.return %p1
  }
}
