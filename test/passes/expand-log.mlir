// RUN: stepc-opt --step-expand-log %s | FileCheck %s

// What it computes is tested against the interpreter. Here: that it is made of
// nothing but exact operations, without branches, of vectors as of elements.

// CHECK-LABEL: func.func @element(
// CHECK-SAME: %[[X:.*]]: f64)
// CHECK-NOT: {{step\.|math\.|scf\.|fastmath|call}}
// Denormals are scaled; the exponent's bits; the series of a quotient.
// CHECK: arith.cmpf olt, %[[X]]
// CHECK: arith.bitcast {{.*}} : f64 to i64
// CHECK: arith.shrsi
// CHECK: arith.divf
// Infinity, zeros, and what has no logarithm.
// CHECK: arith.cmpf oeq, %[[X]]
// CHECK: arith.cmpf oeq, %[[X]]
// CHECK: arith.cmpf uno, %[[X]], %[[X]]
// CHECK: %[[RESULT:.*]] = arith.select
// CHECK-NEXT: return %[[RESULT]] : f64
func.func @element(%x: f64) -> f64 {
  %0 = step.log %x : f64
  return %0 : f64
}

// In f32 by doubles, rounded once.
// CHECK-LABEL: func.func @vector(
// CHECK-SAME: %[[X:.*]]: vector<16xf32>)
// CHECK: arith.extf %[[X]] : vector<16xf32> to vector<16xf64>
// CHECK-NOT: {{step\.|math\.|scf\.|fastmath|call|extf|truncf}}
// CHECK: %[[RESULT:.*]] = arith.truncf {{.*}} : vector<16xf64> to vector<16xf32>
// CHECK-NEXT: return %[[RESULT]]
func.func @vector(%x: vector<16xf32>) -> vector<16xf32> {
  %0 = step.log %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// What is of no function yet is left.
// CHECK-LABEL: step.optimizer @left
// CHECK: step.log %{{.*}} : [*]
step.optimizer @left {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.log %g : [*]
    step.return %0
  }
}
