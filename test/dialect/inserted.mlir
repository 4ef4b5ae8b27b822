// Tests the syntax of the operations that passes insert into rules.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: step.optimizer @inserted
step.optimizer @inserted {
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1]) {
    // CHECK: step.stored %param as [0] : [n, m]{{$}}
    %0 = step.stored %p as [0] : [n, m]
    // CHECK: step.stored %row as [2] : [n, 1]{{$}}
    %1 = step.stored %r as [2] : [n, 1]
    // One value may become several things.
    // CHECK: step.stored %row as [0, 2] : [n, 1]{{$}}
    %2 = step.stored %r as [0, 2] : [n, 1]
    // CHECK: step.round %param to bf16 : [n, m]{{$}}
    %3 = step.round %p to bf16 : [n, m]
    // CHECK: step.round %row to f32 : [n, 1]{{$}}
    %4 = step.round %r to f32 : [n, 1]
    // CHECK: step.broadcast %{{.*}} : f64 to [n, m]{{$}}
    %5 = step.constant 2.0
    %6 = step.broadcast %5 : f64 to [n, m]
    // CHECK: step.broadcast %row : [n, 1] to [n, m]{{$}}
    %7 = step.broadcast %r : [n, 1] to [n, m]
    step.return %p, %r : [n, m], [n, 1]
  }
}

// CHECK-LABEL: step.optimizer @halves
step.optimizer @halves {
  step.rule @any(%p: param[n, m] as bf16, %g: grad[n, m] as bf16, %r: state "rest"[n, m] as i16)
      variant <"any", {}, f32> {
    // CHECK: step.join_halves %param, %rest : [n, m]{{$}}
    %0 = step.join_halves %p, %r : [n, m]
    // CHECK: step.upper_half %{{.*}} : [n, m]{{$}}
    %1 = step.upper_half %0 : [n, m]
    // CHECK: step.lower_half %{{.*}} : [n, m]{{$}}
    %2 = step.lower_half %0 : [n, m]
    // CHECK: %[[OLD:.*]] = step.carried "sum"{{$}}
    %3 = step.carried "sum"
    %4 = step.sum %p : [n, m]
    // CHECK: step.carry %[[SUM:.*]] as %[[OLD]] of %[[SUM]]{{$}}
    step.carry %4 as %3 of %4
    step.return %1, %2 : [n, m], [n, m]
  }
}

// CHECK-LABEL: step.optimizer @stochastic
step.optimizer @stochastic {
  %seed = step.hyper "rounding_seed" = 0.0
  // CHECK: position[n, m] as i64, %count: count) variant
  step.rule @any(%p: param[n, m] as bf16, %g: grad[n, m] as bf16, %i: position[n, m] as i64, %t: count)
      variant <"any", {}, f32> {
    // CHECK: %[[SEED:.*]] = step.to_i64 %{{.*}}{{$}}
    %s = step.to_i64 %seed
    // CHECK: step.round_stochastic %grad at %position, %[[SEED]], %count of "" : [n, m]{{$}}
    %1 = step.round_stochastic %g at %i, %s, %t of "" : [n, m]
    step.return %1 : [n, m]
  }
}
