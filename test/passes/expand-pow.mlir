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
// The series of the logarithm, the exponential's.
// CHECK: %[[LOGARITHM:.*]]:3 = scf.for
// CHECK: %[[EXPONENTIAL:.*]]:3 = scf.for
// CHECK: arith.mulf %[[EXPONENTIAL]]#0
// CHECK: arith.cmpf uno, %[[BASE]], %[[EXPONENT]]
// CHECK-DAG: arith.cmpf oeq, %[[BASE]]
// CHECK-DAG: arith.cmpf oeq, %[[EXPONENT]]
// CHECK: %[[RESULT:.*]] = arith.select
// CHECK-NEXT: return %[[RESULT]]
func.func @bias(%base: f64, %exponent: f64) -> f64 {
  %p = step.pow %base, %exponent
  %q = step.pow %p, %exponent
  return %q : f64
}

// RUN: stepc-opt --step-expand-pow %s | FileCheck %s --check-prefix=VECTORS

// Vectors of doubles have a function of their own; f32 has no loop.
// VECTORS-LABEL: func.func @vectors(
// VECTORS-SAME: %[[X:.*]]: vector<16xf64>, %[[Y:.*]]: vector<16xf32>)
// VECTORS: call @power_16(%[[X]], %[[X]])
// VECTORS: arith.extf %[[Y]] : vector<16xf32> to vector<16xf64>
// VECTORS-NOT: {{step\.|math\.|scf\.|fastmath|call|truncf}}
// VECTORS: %[[RESULT:.*]] = arith.truncf {{.*}} : vector<16xf64> to vector<16xf32>
// VECTORS-NEXT: return {{.*}}, %[[RESULT]]
// VECTORS: func.func private @power_16(%{{.*}}: vector<16xf64>, %{{.*}}: vector<16xf64>)
func.func @vectors(%x: vector<16xf64>, %y: vector<16xf32>) -> (vector<16xf64>, vector<16xf32>) {
  %p = step.pow %x, %x : vector<16xf64>
  %q = step.pow %y, %y : vector<16xf32>
  return %p, %q : vector<16xf64>, vector<16xf32>
}
