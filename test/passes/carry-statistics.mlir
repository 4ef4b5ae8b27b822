// Tests --step-carry-statistics: which reductions are kept from step to step, and of what.
// RUN: stepc-opt --step-carry-statistics --split-input-file %s | FileCheck %s

// The reduction of the new value is of what is stored: rounded, where it is bf16.
step.optimizer @rms {
  %lr = step.hyper "lr" = 1.0
  // CHECK-LABEL: step.rule @rms_any_0
  step.rule @rms_any_0(%p: param[*] as bf16, %g: grad[*] as bf16) variant <"any", {}, f32> {
    %pp = step.mul %p, %p : [*]
    // CHECK: %[[SQUARE:.*]] = step.mul %param, %param
    // CHECK: %[[BEFORE:.*]] = step.carried "carried0"
    // CHECK: %[[KNOWN:.*]] = step.compare ne, %[[BEFORE]], %{{.*}} : f64
    // CHECK: %[[MEAN:.*]] = step.mean %[[SQUARE]] unless %[[KNOWN]]
    // CHECK: %[[NOW:.*]] = step.select %[[KNOWN]], %[[BEFORE]], %[[MEAN]]
    %mean = step.mean %pp : [*]
    // CHECK: step.sqrt %[[NOW]]
    %rms = step.sqrt %mean : f64
    %rate = step.mul %lr, %rms : f64
    %u = step.mul %g, %rate : [*], f64
    // CHECK: %[[NEW:.*]] = step.sub
    %p1 = step.sub %p, %u : [*]
    // CHECK: %[[STORED:.*]] = step.round %[[NEW]] to bf16
    // CHECK: %[[NEW_SQUARE:.*]] = step.mul %[[STORED]], %[[STORED]]
    // CHECK: %[[AFTER:.*]] = step.mean %[[NEW_SQUARE]] :
    // CHECK: step.carry %[[AFTER]] as %[[BEFORE]] of %[[MEAN]]
    // CHECK: step.return %[[NEW]]
    step.return %p1 : [*]
  }
}

// -----

// Of a param with a remainder both halves are the new ones, and no rounding is added.
step.optimizer @halves {
  // CHECK-LABEL: step.rule @halves_any_0
  step.rule @halves_any_0(%p: param[*] as bf16, %g: grad[*] as f32, %r: state "remainder"[*] as i16) variant <"any", {}, f32> {
    %w = step.join_halves %p, %r : [*], [*]
    // CHECK: step.amax %{{.*}} unless
    %most = step.amax %w : [*]
    %u = step.mul %g, %most : [*], f64
    %w1 = step.sub %w, %u : [*]
    // CHECK: %[[UPPER:.*]] = step.upper_half
    %p1 = step.upper_half %w1 : [*]
    // CHECK: %[[LOWER:.*]] = step.lower_half
    %r1 = step.lower_half %w1 : [*]
    // CHECK-NEXT: %[[WHOLE:.*]] = step.join_halves %[[UPPER]], %[[LOWER]]
    // CHECK-NEXT: %[[AFTER:.*]] = step.amax %[[WHOLE]] :
    // CHECK-NEXT: step.carry %[[AFTER]]
    step.return %p1, %r1 : [*], [*]
  }
}

// -----

// Whether the states are fresh is known of the next step: they are not.
step.optimizer @fresh {
  // CHECK-LABEL: step.rule @fresh_any_0
  step.rule @fresh_any_0(%p: param[*] as bf16, %g: grad[*] as f32, %m: state "m"[*] as f32, %first: fresh) variant <"any", {}, f32> {
    %w = step.select %first, %p, %m : [*]
    %sum = step.sum %w : [*]
    %u = step.mul %g, %sum : [*], f64
    // CHECK: %[[NEW:.*]] = step.sub
    %w1 = step.sub %w, %u : [*]
    // CHECK: %[[STORED:.*]] = step.round %[[NEW]] to bf16
    // CHECK: %[[FALSE:.*]] = step.constant false
    // CHECK: step.select %[[FALSE]], %[[STORED]], %[[NEW]]
    step.return %w1, %w1 : [*], [*]
  }
}

// -----

// Two that read the same are kept both; the third reads what another reduction reads.
step.optimizer @several {
  // CHECK-LABEL: step.rule @several_any_0
  step.rule @several_any_0(%p: param[*] as f32, %g: grad[*] as f32, %s: state "s"[*] as f32) variant <"any", {}, f32> {
    // CHECK: step.carried "carried0"
    %sum = step.sum %p : [*]
    // CHECK: step.carried "carried1"
    %most = step.amax %p : [*]
    // CHECK-NOT: step.carried
    %size = step.sum %s : [*]
    %sg = step.mul %s, %g : [*]
    %other = step.sum %sg : [*]
    %a = step.mul %sum, %most : f64
    %b = step.mul %size, %other : f64
    %rate = step.mul %a, %b : f64
    %u = step.mul %g, %rate : [*], f64
    %p1 = step.sub %p, %u : [*]
    %s1 = step.add %s, %g : [*]
    step.return %p1, %s1 : [*], [*]
  }
}

// -----

// Of several tensors that are reduced together all values are the new ones.
step.optimizer @together {
  // CHECK-LABEL: step.rule @together_any_0
  step.rule @together_any_0(%p: param[*] as bf16, %g: grad[*] as f32, %m: state "m"[*] as f32) variant <"any", {}, f32> {
    // CHECK: %[[PP:.*]] = step.mul %param, %param
    %pp = step.mul %p, %p : [*]
    // CHECK: %[[MM:.*]] = step.mul %m, %m
    %mm = step.mul %m, %m : [*]
    // CHECK: step.sum %[[PP]], %[[MM]] unless
    %sum = step.sum %pp, %mm : [*]
    // CHECK: %[[M1:.*]] = step.add %m, %grad
    %m1 = step.add %m, %g : [*]
    %u = step.mul %m1, %sum : [*], f64
    // CHECK: %[[P1:.*]] = step.sub
    %p1 = step.sub %p, %u : [*]
    // CHECK: %[[STORED:.*]] = step.round %[[P1]] to bf16
    // CHECK-DAG: %[[PP1:.*]] = step.mul %[[STORED]], %[[STORED]]
    // CHECK-DAG: %[[MM1:.*]] = step.mul %[[M1]], %[[M1]]
    // CHECK: step.sum %[[PP1]], %[[MM1]] :
    step.return %p1, %m1 : [*], [*]
  }
}

// -----

// Nor where one of several inputs is not what the step leaves, and so is not known.
step.optimizer @mixed {
  // CHECK-LABEL: step.rule @mixed_any_0
  // CHECK-NOT: step.carried
  step.rule @mixed_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %sum = step.sum %p, %g : [*]
    %u = step.mul %g, %sum : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1 : [*]
  }
}

// -----

// Not: of the gradient, with a hyper-parameter in it, over some dims, with a condition, of
// which the new param does not depend, of a sharded tensor, of a rule that is not bound.
step.optimizer @others {
  %lr = step.hyper "lr" = 1.0
  %s = step.statistic "s" sum over model
  // CHECK-LABEL: step.rule @others_read_0
  // CHECK-NOT: step.carried
  step.rule @others_read_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, m] as f32, %q: state "q"[n, m] as f32, %v: state "v"[n, m] as f32) variant <"read", {}, f32> {
    %of_grad = step.sum %g : [n, m]
    %scaled = step.mul %p, %lr : [n, m], f64
    %of_scaled = step.sum %scaled : [n, m]
    %rows = step.sum %r over [m] : [n, m]
    %flag = step.compare gt, %of_grad, %lr : f64, f64
    %left_out = step.sum %q unless %flag : [n, m]
    %only_told = step.sum %v : [n, m]
    step.contribute %s, %only_told
    %a = step.add %of_grad, %of_scaled : f64
    %b = step.add %a, %left_out : f64
    %u = step.mul %rows, %b : [n, 1], f64
    %p1 = step.sub %p, %u : [n, m], [n, 1]
    %r1 = step.add %r, %g : [n, m]
    step.return %p1, %r1, %q, %v : [n, m], [n, m], [n, m], [n, m]
  }
  // CHECK-LABEL: step.rule @sharded
  // CHECK-NOT: step.carried
  step.rule @sharded(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"sharded", {}, f32, <{m = ["tp"]}>> {
    %sum = step.sum %p across [tp] : [n, m]
    %p1 = step.mul %p, %sum : [n, m], f64
    step.return %p1 : [n, m]
  }
  // CHECK-LABEL: step.rule @unbound
  // CHECK-NOT: step.carried
  step.rule @unbound(%p: param[n, m], %g: grad[n, m]) {
    %sum = step.sum %p : [n, m]
    %p1 = step.mul %p, %sum : [n, m], f64
    step.return %p1 : [n, m]
  }
}
