// RUN: stepc-opt --step-lower-rounds %s | FileCheck %s

// One function for each step.scalars. Results come first in a results row, then
// the reports; a condition is 0 or 1 there.

step.optimizer @opt {
  %max = step.hyper "max_norm" = 1.0
  %strict = step.option "strict" = false
  %scale = step.scalar "scale" = 65536.0 over model
  %norm2 = step.statistic "norm2" sum over model
  // CHECK: func.func @opt_round0(%[[HYPERS:[^:]*]]: i64, %[[OPTIONS:[^:]*]]: i64, %[[STATISTICS:[^:]*]]: i64, %[[SCALARS:[^:]*]]: i64, %[[RESULTS:[^:]*]]: i64, %[[UPDATED:[^:]*]]: i64) -> i64
  // CHECK-DAG: %[[R:.*]] = step.view %[[RESULTS]] : memref<?xf64>
  // CHECK-DAG: %[[U:.*]] = step.view %[[UPDATED]] : memref<?xf64>
  // CHECK: %[[NORM:.*]] = math.sqrt
  // CHECK: %[[LARGE:.*]] = arith.cmpf ogt, %[[NORM]]
  // CHECK: %[[BOTH:.*]] = arith.andi
  // CHECK: %[[HALF:.*]] = arith.mulf
  // CHECK: memref.store %[[HALF]], %[[U]][%c0{{.*}}]
  // CHECK: memref.store %[[NORM]], %[[R]][%c2{{.*}}]
  // CHECK: memref.store %[[NORM]], %[[R]][%c0{{.*}}]
  // CHECK: %[[AS:.*]] = arith.uitofp %[[LARGE]] : i1 to f64
  // CHECK: memref.store %[[AS]], %[[R]][%c1{{.*}}]
  // CHECK: %[[SKIP:.*]] = arith.extui %[[BOTH]] : i1 to i64
  // CHECK: return %[[SKIP]]
  %norm, %large = step.scalars over model {
    %root = step.sqrt %norm2 : f64
    %is_large = step.compare gt, %root, %max : f64
    %both = step.and %is_large, %strict : i1
    %half = step.constant 0.5
    %scale1 = step.mul %scale, %half : f64
    step.update %scale, %scale1
    step.report "grad_norm", %root
    step.skip_if %both
    step.yield %root, %is_large : f64, i1
  }
}
