// RUN: stepc-opt --step-form-programs --cse --canonicalize %s | FileCheck %s

// The runtime looks at slots of the tensor: a scalar of the cohort that is
// contributed, or that a traversal is left out by, becomes one of the tensor.

// CHECK-LABEL: step.optimizer @opt
step.optimizer @opt {
  %lr = step.hyper "lr" = 1.0e-3
  %count = step.statistic "count" sum over model
  %n = step.scalars over model {
    step.yield %count : f64
  }
  // CHECK: step.program @opt_any_0
  // CHECK: %[[FLAG:.*]], %[[LR:.*]] = step.cohort_scalars @opt_any_0_scalars
  // CHECK: %[[OWN_LR:.*]] = step.own %[[LR]] : f64
  // CHECK-NEXT: step.contribute %count, %[[OWN_LR]]
  // CHECK-NEXT: step.exchange round 0
  // CHECK: %[[OWN_FLAG:.*]] = step.own %[[FLAG]] : i1
  // CHECK-NEXT: %[[PARTIAL:.*]] = step.traverse @opt_any_0_phase0 unless %[[OWN_FLAG]] over [*]
  // CHECK: step.combine %[[PARTIAL]] unless %[[OWN_FLAG]] : !step.partial<sum, [*] to []> -> f64
  step.rule @opt_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %half = step.constant 0.5
    %known = step.compare gt, %lr, %half : f64, f64
    %sum = step.sum %p unless %known : [*]
    step.contribute %count, %lr
    %s = step.mul %sum, %n : f64
    %u = step.mul %g, %s : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
}
