// RUN: stepc-opt --canonicalize %s | FileCheck %s

// Folds leave constants where they are used: in the program, or in the body.

// CHECK-LABEL: step.optimizer @opt
// CHECK-NEXT: step.program @opt_any_0
step.optimizer @opt {
  step.program @opt_any_0(%p: param[*] as f32) variant <"any", {}, f32> {
    // CHECK-NEXT: %[[THREE:.*]] = arith.constant 3.0{{.*}} : f64
    // CHECK-NEXT: step.cohort_scalars @scalars {
    // CHECK-NEXT:   %[[FIVE:.*]] = arith.constant 5.0{{.*}} : f64
    // CHECK-NEXT:   step.yield %[[FIVE]] : f64
    %s = step.cohort_scalars @scalars {
      %two = arith.constant 2.0 : f64
      %three = arith.constant 3.0 : f64
      %five = arith.addf %two, %three : f64
      step.yield %five : f64
    } : f64
    // CHECK: step.traverse @k
    // CHECK-NEXT: %[[SEVEN:.*]] = arith.constant 7.0{{.*}} : f32
    // CHECK-NEXT: step.yield %[[SEVEN]] : f32
    %sum = step.traverse @k over [*] partials (sum to []) {
      %three = arith.constant 3.0 : f32
      %four = arith.constant 4.0 : f32
      %seven = arith.addf %three, %four : f32
      step.yield %seven : f32
    }
    %x = step.combine %sum : !step.partial<sum, [*] to []> -> f64
    // CHECK: arith.mulf %{{.*}}, %[[THREE]] : f64
    %one = arith.constant 1.0 : f64
    %two = arith.constant 2.0 : f64
    %three = arith.addf %one, %two : f64
    %y = arith.mulf %x, %three : f64
    %p1 = step.traverse @w over [*] scalars (%z = %y as f32) writes (%p : <[*], f32>) {
      step.yield %z : f32
    }
  }
}
