// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=bf16;rounding=stochastic;state.v=bf16;state.row=bf16' \
// RUN:   --step-round-stochastically --step-resolve-storage %s | FileCheck %s
// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=bf16,param=bf16;rounding=stochastic' \
// RUN:   --step-round-stochastically %s | grep -c 'step.rule' | FileCheck %s --check-prefix=BOTH

// What is stored as bf16 is rounded by random bits, where it has the parameter's
// dims; the state in f32 is not rounded, and the row is rounded to nearest.

// CHECK: %[[LR:.*]] = step.hyper "lr"
// CHECK-NEXT: %[[SEED:.*]] = step.hyper "rounding_seed" = 0.0
// CHECK: step.rule @opt_any_0
// CHECK-SAME: %[[P:.*]]: param[n, m] as bf16, %[[G:.*]]: grad[n, m] as bf16
// CHECK-SAME: %[[I:[a-z]*]]: position[n, m] as i64, %[[T:[a-z]*]]: count) variant
// CHECK-NEXT: %[[S:.*]] = step.to_i64 %[[SEED]]
// CHECK: %[[V:.*]] = step.mul %[[G]], %[[G]] : [n, m]
// CHECK-NEXT: %[[V1:.*]] = step.round_stochastic %[[V]] at %[[I]], %[[S]], %[[T]] of "v" : [n, m]
// CHECK-NEXT: %[[W1:.*]] = step.add %[[V1]], %[[G]] : [n, m]
// CHECK: %[[R1:.*]] = step.round %{{.*}} to bf16 : [n, 1]
// CHECK: %[[P1:.*]] = step.round_stochastic %{{.*}} at %[[I]], %[[S]], %[[T]] of "" : [n, m]
// CHECK-NEXT: step.return %[[P1]], %[[V1]], %[[W1]], %[[R1]]

// BOTH: {{^}}2{{$}}
step.optimizer @opt {
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[n, m], %g: grad[n, m], %v: state "v"[n, m], %w: state "w"[n, m],
                 %r: state "row"[n, 1]) {
    %v1 = step.mul %g, %g : [n, m]
    %w1 = step.add %v1, %g : [n, m]
    %r1 = step.mean %w1 over [m] : [n, m]
    %u = step.mul %v1, %lr : [n, m], f64
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %v1, %w1, %r1 : [n, m], [n, m], [n, m], [n, 1]
  }
}
