// RUN: stepc-opt --step-expand-lerp %s | FileCheck %s

// In a program and in a function, of elements; from the nearer end, each operation rounded.

// CHECK-LABEL: step.optimizer @opt
step.optimizer @opt {
  %beta = step.hyper "beta" = 0.9
  // CHECK: step.program @opt_any_0
  step.program @opt_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    // CHECK: step.cohort_scalars @scalars {
    // CHECK-NOT: step.lerp
    // CHECK: arith.addf %{{.*}}, %{{.*}} : f64
    %w = step.cohort_scalars @scalars {
      %x = step.lerp %beta, %beta, %beta : f64
      step.yield %x : f64
    } : f64
    // CHECK: step.traverse @k over [*]
    // CHECK-SAME: reads (%[[A:.*]] = %param : <[*], f32>, %[[B:.*]] = %grad : <[*], f32>) scalars (%[[W:.*]] = %{{.*}} as f32)
    // CHECK-NEXT: %[[HALF:.*]] = arith.constant 5.000000e-01 : f32
    // CHECK-NEXT: %[[NEAR:.*]] = arith.cmpf olt, %[[W]], %[[HALF]] : f32
    // CHECK-NEXT: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
    // CHECK-NEXT: %[[FROM_END:.*]] = arith.subf %[[W]], %[[ONE]] : f32
    // CHECK-NEXT: %[[FACTOR:.*]] = arith.select %[[NEAR]], %[[W]], %[[FROM_END]] : f32
    // CHECK-NEXT: %[[END:.*]] = arith.select %[[NEAR]], %[[A]], %[[B]] : f32
    // CHECK-NEXT: %[[D:.*]] = arith.subf %[[B]], %[[A]] : f32
    // CHECK-NEXT: %[[PART:.*]] = arith.mulf %[[FACTOR]], %[[D]] : f32
    // CHECK-NEXT: %[[L:.*]] = arith.addf %[[END]], %[[PART]] : f32
    // CHECK-NEXT: step.yield %[[L]] : f32
    %p1 = step.traverse @k over [*] reads (%a = %p : <[*], f32>, %b = %g : <[*], f32>)
        scalars (%v = %w as f32) writes (%p : <[*], f32>) {
      %l = step.lerp %a, %b, %v : f32
      step.yield %l : f32
    }
  }
}

// CHECK-LABEL: func.func @of_round(
// CHECK-NOT: step.lerp
// CHECK: arith.cmpf olt
// CHECK: %[[R:.*]] = arith.addf
// CHECK-NEXT: return %[[R]] : f64
func.func @of_round(%a: f64, %b: f64, %w: f64) -> f64 {
  %l = step.lerp %a, %b, %w : f64
  return %l : f64
}

// What is of the language is left.
// CHECK-LABEL: step.optimizer @left
// CHECK: step.lerp
// CHECK: step.lerp
step.optimizer @left {
  %beta = step.hyper "beta" = 0.9
  %norm = step.statistic "norm" sum over model
  %mean = step.scalars over model {
    %l = step.lerp %norm, %beta, %beta : f64
    step.yield %l : f64
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    %l = step.lerp %p, %g, %beta : [*], [*], f64
    step.return %l
  }
}
