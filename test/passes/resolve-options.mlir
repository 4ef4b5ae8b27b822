// RUN: stepc-opt --step-mark-stored --step-instantiate-variants --step-resolve-options --split-input-file --verify-diagnostics %s | FileCheck %s

// Where the option is false the state is gone, with what was computed for it;
// where it is true the select is gone and the state unguarded.

// CHECK-LABEL: step.optimizer @sgd
step.optimizer @sgd {
  %mu = step.hyper "mu" = 0.0
  %moving = step.option "moving" = %mu ne 0.0
  // CHECK: step.rule @sgd_any_0(%[[P:.*]]: param[*] as f32, %[[G:.*]]: grad[*] as f32) variant
  // CHECK-NEXT: %[[P1:.*]] = step.sub %[[P]], %[[G]]
  // CHECK-NEXT: %[[S:.*]] = step.stored %[[P1]] as [0]
  // CHECK-NEXT: step.return %[[S]]

  // CHECK: step.rule @sgd_any_1(%[[P:.*]]: param[*] as f32, %[[B:.*]]: state "buf"[*] as f32, %[[G:.*]]: grad[*] as f32) variant
  // CHECK-NEXT: %[[BM:.*]] = step.mul %[[B]], %mu
  // CHECK-NEXT: %[[B1:.*]] = step.add %[[BM]], %[[G]]
  // CHECK-NEXT: %[[SB:.*]] = step.stored %[[B1]] as [1]
  // CHECK-NEXT: %[[P1:.*]] = step.sub %[[P]], %[[SB]]
  // CHECK-NEXT: %[[SP:.*]] = step.stored %[[P1]] as [0]
  // CHECK-NEXT: step.return %[[SP]], %[[SB]]
  step.rule @any(%p: param[*], %b: state "buf"[*] if %moving, %g: grad[*]) {
    %bm = step.mul %b, %mu : [*], f64
    %b1 = step.add %bm, %g : [*]
    %u = step.select %moving, %b1, %g : [*]
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %b1
  }
}

// -----

// A role that stays has another number when one before it is gone, and a value
// that was stored for an absent state alone is not rounded.

// CHECK-LABEL: step.optimizer @renumbered
step.optimizer @renumbered {
  %keep = step.option "keep" = false
  // CHECK: step.rule @renumbered_any_0(%[[A:.*]]: state "second"[*] as f32, %[[P:.*]]: param[*] as f32, %[[G:.*]]: grad[*] as f32)
  // CHECK-NEXT: %[[X:.*]] = step.add %[[P]], %[[G]]
  // CHECK-NEXT: %[[Y:.*]] = step.mul %[[X]], %[[A]]
  // CHECK-NEXT: %[[S:.*]] = step.stored %[[Y]] as [0, 1]
  // CHECK-NEXT: step.return %[[S]], %[[S]]
  step.rule @any(%f: state "first"[*] if %keep, %s: state "second"[*], %p: param[*], %g: grad[*]) {
    %x = step.add %p, %g : [*]
    %y = step.mul %x, %s : [*]
    step.return %x, %y, %y
  }
}

// -----

// Where the chosen operand has a smaller shape it is broadcast, and the other
// one is gone all the same.

// CHECK-LABEL: step.optimizer @shapes
step.optimizer @shapes {
  %keep = step.option "keep" = false
  // CHECK: step.rule @shapes_any_0(%[[P:.*]]: param[*] as f32, %[[G:.*]]: grad[*] as f32)
  // CHECK: %[[Z:.*]] = step.broadcast %{{.*}} : f64 to [*]
  // CHECK-NEXT: step.sub %[[P]], %[[Z]] : [*]
  step.rule @any(%p: param[*], %g: grad[*], %b: state "b"[*] if %keep) {
    %zero = step.constant 0.5
    %u = step.select %keep, %b, %zero : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %b
  }
}

// -----

step.optimizer @needed {
  %keep = step.option "keep" = false
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*] if %keep) {
    // expected-error @+1 {{'step.add' op needs state 'm', which does not exist where option 'keep' is false}}
    %m1 = step.add %m, %g : [*]
    %p1 = step.sub %p, %m1 : [*]
    step.return %p1, %m1
  }
}
