// RUN: stepc-opt --step-stage-define --step-instantiate-variants --step-number-tensors %s | FileCheck %s
// RUN: stepc-opt --step-stage-define --step-stage-bind %s | FileCheck %s --check-prefix=BIND
// RUN: stepc-opt --step-stage-define --step-stage-bind='variants=param=bf16;rounding=stochastic' %s \
// RUN:   | FileCheck %s --check-prefix=BOTH

// Random numbers are told the tensor by the position, once for the rule; a rule without them gets none.
// What nobody needs in a step is left out, as a product is.

// CHECK: step.rule @opt_matrix_0
// CHECK-SAME: position[n, m] as i64) dim r = min %rank, n, m variant
// CHECK: step.random_normal "a" %seed, %count at %position : [n, m] : [m, r]
// CHECK: step.random_normal "b" %seed, %count at %position : [n, m] : [n, m]
// CHECK: step.rule @opt_any_1(%param: param[*] as f32, %grad: grad[*] as f32) variant

// BIND: %[[DUE:.*]] = step.every
// BIND: %[[NOT:.*]] = step.not %[[DUE]] : i1
// BIND: step.random_normal "a" %seed, %count at %position : [n, m] unless %[[NOT]] : [m, r]
// BIND: step.random_normal "b" %seed, %count at %position : [n, m] : [n, m]

// Of the one role; what is rounded says so beside it.
// BOTH: step.rule @opt_matrix_0
// BOTH-SAME: position[n, m] as i64) dim
// BOTH-SAME: rounds
// BOTH: step.random_normal "b" %{{.*}}, %count at %position : [n, m] : [n, m]
// BOTH: step.round_stochastic %{{.*}} at %position,
step.optimizer @opt {
  %seed = step.hyper "seed" = 1.0
  %gap = step.hyper "gap" = 3.0
  %rank = step.option "rank" = 4
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %o: state "o"[m, r], %t: count)
      dim r = min %rank, n, m {
    %due = step.every %gap, %t
    %o1 = step.when %due, %o : [m, r] {
      %a = step.random_normal "a" %seed, %t : [m, r]
      step.yield %a : [m, r]
    }
    %low = step.matmul %g, %o1 : [n, m], [m, r]
    %ot = step.transpose %o1 : [m, r]
    %back = step.matmul %low, %ot : [n, r], [r, m]
    %b = step.random_normal "b" %seed, %t : [n, m]
    %u = step.add %back, %b : [n, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %o1 : [n, m], [m, r]
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
}
