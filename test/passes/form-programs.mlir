// RUN: stepc-opt --step-form-programs --cse --canonicalize --split-input-file --verify-diagnostics %s | FileCheck %s

// Scalars are computed once for each row, in f64; a traversal is given them in the
// compute type. Storage conversions stand where elements
// are read and written.

// CHECK-LABEL: step.optimizer @opt
step.optimizer @opt {
  %lr = step.hyper "lr" = 1.0e-3
  %beta = step.hyper "beta" = 0.9
  // CHECK: %[[LR:.*]] = step.hyper "lr"
  // CHECK: %[[BETA:.*]] = step.hyper "beta"
  // CHECK: step.program @opt_any_0(%[[PS:[a-z]+]]: param[*] as bf16, %[[GS:[a-z]+]]: grad[*] as f32,
  // CHECK-SAME: %[[MS:m]]: state "m"[*] = 0.5 as f32, %idle: state "idle"[*] as f32, %[[T:[a-z]+]]: count,

  // What the flag is about; where no states are named, all that the rule has.
  // CHECK-SAME: %[[FRESH:[a-z]+]]: fresh("m", "idle")) variant <"any", {}, f32> elementwise {
  // CHECK: %[[S:.*]]:3 = step.cohort_scalars @opt_any_0_scalars {
  // CHECK-NEXT: %[[POW:.*]] = step.powi %[[BETA]], %[[T]]
  // CHECK-NEXT: %[[ALPHA:.*]] = arith.divf %[[LR]], %[[POW]] : f64
  // CHECK-NEXT: step.yield %[[BETA]], %[[FRESH]], %[[ALPHA]] : f64, i1, f64 } : f64, i1, f64

  // The state that stays as it is is neither read nor written.
  // CHECK-NEXT: step.traverse @opt_any_0_phase0 over [*]
  // CHECK-SAME: reads (%[[P:.*]] = %[[PS]] : <[*], bf16>, %[[G:.*]] = %[[GS]] : <[*], f32>, %[[M:.*]] = %[[MS]] : <[*], f32>)
  // CHECK-SAME: scalars (%[[B:.*]] = %[[S]]#0 as f32, %[[NEW:.*]] = %[[S]]#1 as i1, %[[A:.*]] = %[[S]]#2 as f32)
  // CHECK-SAME: writes (%[[PS]] : <[*], bf16>, %[[MS]] : <[*], f32>) {
  // CHECK-NEXT: %[[PX:.*]] = arith.extf %[[P]] : bf16 to f32
  // CHECK-NEXT: %[[L:.*]] = step.lerp %[[M]], %[[G]], %[[B]] : f32
  // CHECK-NEXT: %[[M1:.*]] = arith.select %[[NEW]], %[[G]], %[[L]] : f32
  // CHECK: %[[HALF:.*]] = arith.mulf %[[M1]], %[[A]] : f32
  // CHECK: %[[P1:.*]] = arith.subf %[[PX]], %[[HALF]] : f32
  // CHECK: %[[R:.*]] = arith.truncf %[[P1]] : f32 to bf16
  // CHECK: step.yield %[[R]], %[[M1]] : bf16, f32
  step.rule @opt_any_0(%p: param[*] as bf16, %g: grad[*] as f32, %m: state "m"[*] = 0.5 as f32,
                       %i: state "idle"[*] as f32, %t: count, %f: fresh) variant <"any", {}, f32> {
    %l = step.lerp %m, %g, %beta : [*], [*], f64
    %m1 = step.select %f, %g, %l : [*]
    %bt = step.powi %beta, %t
    %alpha = step.div %lr, %bt : f64
    %u = step.mul %m1, %alpha : [*], f64
    %p1 = step.sub %p, %u : [*]
    %r = step.round %p1 to bf16 : [*]
    step.return %r, %m1, %i
  }
}

// -----

// Each operation of the language as scalar code; constants are rounded to the
// compute type and are no scalars of the cohort.

// CHECK-LABEL: step.optimizer @ops
step.optimizer @ops {
  // CHECK: step.cohort_scalars @ops_any_0_scalars {
  // CHECK-NEXT: step.yield }{{$}}
  // CHECK: step.traverse @ops_any_0_phase0 over [*]
  // CHECK-DAG: %[[TENTH:.*]] = arith.constant 1.000000e-01 : f32
  // CHECK-DAG: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
  // CHECK-DAG: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
  // CHECK-DAG: %[[MINUS:.*]] = arith.constant -1.000000e+00 : f32
  // CHECK: %[[NEG:.*]] = arith.negf %[[P:.*]] : f32
  // CHECK: %[[ABS:.*]] = math.absf %[[NEG]] : f32
  // CHECK: %[[POSITIVE:.*]] = arith.cmpf ogt, %[[ABS]], %[[ZERO]] : f32
  // CHECK: %[[NEGATIVE:.*]] = arith.cmpf olt, %[[ABS]], %[[ZERO]] : f32
  // CHECK: %[[INNER:.*]] = arith.select %[[NEGATIVE]], %[[MINUS]], %[[ABS]] : f32
  // CHECK: %[[SIGN:.*]] = arith.select %[[POSITIVE]], %[[ONE]], %[[INNER]] : f32
  // CHECK: %[[MAX:.*]] = arith.maximumf %[[SIGN]], %[[G:.*]] : f32
  // CHECK: %[[MIN:.*]] = arith.minimumf %[[MAX]], %[[TENTH]] : f32
  // CHECK: %[[LE:.*]] = arith.cmpf ole, %[[MIN]], %[[G]] : f32
  // CHECK: %[[NE:.*]] = arith.cmpf une, %[[MIN]], %[[G]] : f32
  // CHECK: arith.select %[[LE]], %[[MIN]]
  // CHECK: arith.select %[[NE]]
  step.rule @ops_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %tenth = step.constant 0.1
    %n = step.neg %p : [*]
    %a = step.abs %n : [*]
    %s = step.sign %a : [*]
    %max = step.maximum %s, %g : [*]
    %min = step.minimum %max, %tenth : [*], f64
    %le = step.compare le, %min, %g : [*]
    %ne = step.compare ne, %min, %g : [*]
    %x = step.select %le, %min, %g : mask[*], [*]
    %y = step.select %ne, %x, %tenth : mask[*], [*], f64
    step.return %y
  }
}

// -----

step.optimizer @unbound {
  // expected-error @+1 {{'step.rule' op is not bound}}
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}

// -----

step.optimizer @five {
  // expected-error @+1 {{'step.rule' op has a param of '!step.tensor<a, b, c, d, e>' with 5 named dims; rules of 1 to 4 beside the leading ones can be compiled, others only interpreted}}
  step.rule @five_any_0(%p: param[a, b, c, d, e] as f32, %g: grad[a, b, c, d, e] as f32) variant <"any", {}, f32> {
    step.return %p : [a, b, c, d, e]
  }
}

// -----

step.optimizer @turned {
  // expected-error @+1 {{'step.rule' op has state 's' of '!step.tensor<n>', which has not as many dims as the param '!step.tensor<n, m>'; such states cannot be compiled, only interpreted}}
  step.rule @turned_any_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %s: state "s"[n] as f32) variant <"any", {}, f32> {
    step.return %p, %s : [n, m], [n]
  }
}

// -----

// A broadcast is nothing to one element.

// CHECK-LABEL: step.optimizer @broadcast
step.optimizer @broadcast {
  // CHECK: %[[HALF:.*]] = arith.constant 5.000000e-01 : f32
  // CHECK: arith.addf %{{.*}}, %[[HALF]]
  step.rule @broadcast_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %half = step.constant 0.5
    %b = step.broadcast %half : f64 to [*]
    %p1 = step.add %p, %b : [*]
    step.return %p1
  }
}
