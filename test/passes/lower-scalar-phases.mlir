// RUN: stepc-opt --step-lower-scalar-phases %s | FileCheck %s

// A function of hyper-parameters, results, count, fresh and row;
// hyper-parameters that the row does not need are not read.

// CHECK: func.func @scalars(%[[HYPERS:[^:]*]]: i64, %{{[^:]*}}: i64, %[[COUNT:[^:]*]]: i64, %[[FRESH:[^:]*]]: i64, %[[ROW:[^:]*]]: i64) {
// CHECK-DAG: %[[H:.*]] = step.view %[[HYPERS]] : memref<?xf64>
// CHECK-DAG: %[[R:.*]] = step.view %[[ROW]] : memref<?xf64>
// CHECK: %[[ONE:.*]] = arith.constant 1 : index
// CHECK-NEXT: %[[BETA:.*]] = memref.load %[[H]][%[[ONE]]]
// CHECK-NOT: memref.load
// CHECK: %[[FLAG:.*]] = arith.constant 1 : i64
// CHECK: %[[BIT:.*]] = arith.andi %[[FRESH]], %[[FLAG]] : i64
// CHECK: %[[NEW:.*]] = arith.cmpi ne, %[[BIT]], %{{.*}} : i64
// CHECK: %[[FLAG1:.*]] = arith.constant 2 : i64
// CHECK: %[[BIT1:.*]] = arith.andi %[[FRESH]], %[[FLAG1]] : i64
// CHECK: %[[NEW1:.*]] = arith.cmpi ne, %[[BIT1]], %{{.*}} : i64
// CHECK: %[[POW:.*]] = step.powi %[[BETA]], %[[COUNT]]
// CHECK: %[[I0:.*]] = arith.constant 0 : index
// CHECK: memref.store %[[POW]], %[[R]][%[[I0]]]
// In a row all is f64.
// CHECK: %[[F:.*]] = arith.uitofp %[[NEW]] : i1 to f64
// CHECK: %[[I1:.*]] = arith.constant 1 : index
// CHECK: memref.store %[[F]], %[[R]][%[[I1]]]
// CHECK: %[[F1:.*]] = arith.uitofp %[[NEW1]] : i1 to f64
// CHECK: memref.store %[[F1]], %[[R]]
// CHECK: return
step.optimizer @opt {
  %lr = step.hyper "lr" = 1.0
  %beta = step.hyper "beta" = 0.9
  step.program @program(%p: param[*] as f32, %m: state "m"[*] as f32, %t: count, %f: fresh("m"), %f1: fresh()) variant <"any", {}, f32> {
    %scalars:3 = step.cohort_scalars @scalars {
      %power = step.powi %beta, %t
      step.yield %power, %f, %f1 : f64, i1, i1
    } : f64, i1, i1
    %new = step.traverse @phase0 over [*] reads (%x = %p : <[*], f32>) writes (%p : <[*], f32>) {
      step.yield %x : f32
    }
  }
}
