// RUN: stepc-opt --step-expand-powi %s | FileCheck %s

// CHECK: func.func @bias(%[[A:.*]]: f64, %[[B:.*]]: i64)
// CHECK: call @integer_power(%[[A]], %[[B]])

// CHECK: func.func private @integer_power(%[[BASE:.*]]: f64, %[[N:.*]]: i64)
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1.0{{.*}} : f64
// CHECK: %[[NEGATIVE:.*]] = arith.cmpi slt, %[[N]]
// CHECK: %[[OPPOSITE:.*]] = arith.subi %{{.*}}, %[[N]]
// CHECK: %[[M:.*]] = arith.select %[[NEGATIVE]], %[[OPPOSITE]], %[[N]] : i64
// CHECK: %[[LOOP:.*]]:3 = scf.while (%{{.*}} = %[[M]], %{{.*}} = %[[ONE]], %{{.*}} = %[[BASE]])
// CHECK: ^bb0(%[[REST:.*]]: i64, %[[RESULT:.*]]: f64, %[[FACTOR:.*]]: f64):
// CHECK: arith.andi %[[REST]]
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[RESULT]], %[[FACTOR]] : f64
// CHECK: %[[NEXT:.*]] = arith.select %{{.*}}, %[[PRODUCT]], %[[RESULT]]
// CHECK: %[[SQUARE:.*]] = arith.mulf %[[FACTOR]], %[[FACTOR]]
// CHECK: %[[SHIFTED:.*]] = arith.shrui %[[REST]]
// CHECK: scf.yield %[[SHIFTED]], %[[NEXT]], %[[SQUARE]]
// CHECK: %[[INVERSE:.*]] = arith.divf %[[ONE]], %[[LOOP]]#1
// CHECK: arith.select %[[NEGATIVE]], %[[INVERSE]], %[[LOOP]]#1
func.func @bias(%base: f64, %n: i64) -> f64 {
  %p = step.powi %base, %n
  return %p : f64
}
