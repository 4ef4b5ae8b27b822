// RUN: stepc-opt --step-expand-pow %s | FileCheck %s

// What it computes is tested against the interpreter. Here: that it is made of
// nothing but exact operations, and of the magnitudes of both operands.

// CHECK: func.func @bias(%[[A:.*]]: f64, %[[B:.*]]: f64)
// CHECK: %[[P:.*]] = call @power(%[[A]], %[[B]])
// CHECK: %[[Q:.*]] = call @power(%[[P]], %[[B]])
// CHECK: return %[[Q]]

// Once for all.
// CHECK: func.func private @power(%[[BASE:.*]]: f64, %[[EXPONENT:.*]]: f64)
// CHECK-SAME: noinline
// CHECK-NOT: {{step\.|math\.|fastmath}}
// CHECK: arith.bitcast %[[EXPONENT]] : f64 to i64
// CHECK: arith.bitcast %[[BASE]] : f64 to i64
// CHECK: arith.sitofp
// The series of the logarithm, the exponential's.
// CHECK: %[[LOGARITHM:.*]]:3 = scf.for
// CHECK: %[[EXPONENTIAL:.*]]:3 = scf.for
// CHECK: arith.mulf %[[EXPONENTIAL]]#0
// CHECK: arith.cmpf uno, %[[BASE]], %[[EXPONENT]]
// CHECK-DAG: arith.cmpf oeq, %[[BASE]]
// CHECK-DAG: arith.cmpf oeq, %[[EXPONENT]]
// CHECK: %[[RESULT:.*]] = arith.select
// CHECK-NEXT: return %[[RESULT]]
// CHECK-NOT: func.func
func.func @bias(%base: f64, %exponent: f64) -> f64 {
  %p = step.pow %base, %exponent
  %q = step.pow %p, %exponent
  return %q : f64
}
