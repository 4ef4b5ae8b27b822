// RUN: stepc-opt --step-expand-exp %s | FileCheck %s

// What it computes is tested against the interpreter. Here: that it is made of
// nothing but exact operations, without branches, of vectors as of elements.

// CHECK-LABEL: func.func @element(
// CHECK-SAME: %[[X:.*]]: f64)
// CHECK-NOT: {{step\.|math\.|scf\.|fastmath|call}}
// CHECK: arith.cmpf olt, %{{.*}}, %[[X]]
// The exponent's bits.
// CHECK: arith.bitcast {{.*}} : f64 to i64
// The series, and two powers of two.
// CHECK: %[[SERIES:.*]] = arith.addf
// CHECK: arith.shrsi
// CHECK: arith.shli
// CHECK: arith.shli
// CHECK: arith.mulf
// CHECK: %[[RESULT:.*]] = arith.mulf
// CHECK-NEXT: return %[[RESULT]] : f64
func.func @element(%x: f64) -> f64 {
  %0 = step.exp %x : f64
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
  %0 = step.exp %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// What is of no function yet is left.
// CHECK-LABEL: step.optimizer @left
// CHECK: step.exp %{{.*}} : [*]
step.optimizer @left {
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.exp %g : [*]
    step.return %0
  }
}
