// RUN: split-file %s %t
// RUN: stepc-opt --step-insert-collectives --step-form-programs --step-lower-scalar-phases --step-lower-phases-to-cpu %t/dims.mlir | FileCheck %s --check-prefix=DIMS
// RUN: stepc-opt --step-insert-collectives --step-form-programs --step-lower-scalar-phases --step-lower-phases-to-cpu %t/range.mlir | FileCheck %s --check-prefix=RANGE

// What is sent is neither divided nor rounded. A maximum is sent as an integer: the
// largest for NaN, else the bits, all but the sign inverted below zero.
// DIMS: func.func @dims_matrix_0_finish0(
// DIMS-NOT: arith.truncf
// DIMS-NOT: arith.uitofp
// DIMS: %[[BITS:.*]] = arith.bitcast %[[MAX:.*]] : f64 to i64
// DIMS-DAG: %[[NAN:.*]] = arith.cmpf uno, %[[MAX]], %[[MAX]] : f64
// DIMS-DAG: %[[SIGN:.*]] = arith.shrsi %[[BITS]],
// DIMS-DAG: %[[MASK:.*]] = arith.andi %[[SIGN]],
// DIMS-DAG: %[[KEY:.*]] = arith.xori %[[BITS]], %[[MASK]] : i64
// DIMS: %[[LARGEST:.*]] = arith.constant 9223372036854775807 : i64
// DIMS: %[[SENT:.*]] = arith.select %[[NAN]], %[[LARGEST]], %[[KEY]] : i64
// DIMS: memref.store %[[SENT]], {{.*}} : memref<?xi64>
// DIMS-NOT: arith.truncf

// What is received is: a mean by the number of elements of the whole tensor.
// DIMS: func.func @dims_matrix_0_finish1(
// DIMS: arith.shrsi
// DIMS: arith.xori
// DIMS: arith.bitcast %{{.*}} : i64 to f64
// DIMS: %[[NUMBER:.*]] = arith.uitofp %{{.*}} : i64 to f64
// DIMS: %[[MEAN:.*]] = arith.divf %{{.*}}, %[[NUMBER]] : f64
// DIMS: arith.truncf %[[MEAN]] : f64 to f32
// DIMS: func.func @dims_matrix_0_phase1(

//--- dims.mlir
step.optimizer @dims {
  step.rule @dims_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32, <{n = ["dp"]}>> {
    %tops = step.amax %g over [n] : [n, m]
    %means = step.mean %g over [n] : [n, m]
    %a = step.mul %g, %tops : [n, m], [1, m]
    %u = step.mul %a, %means : [n, m], [1, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1 : [n, m]
  }
}

// A range is dense: one kernel, for there are no strides. A tile that it has all of runs
// at once, as any other does; of the others row by row, leaf by leaf, what is clipped to
// the range.
// RANGE: func.func @range_matrix_0_phase0(
// RANGE: scf.if %{{.*}} {
// RANGE-NOT: scf.for
// RANGE: func.call @range_matrix_0_phase0_run
// RANGE: } else {
// RANGE: scf.for
// RANGE: arith.minsi
// RANGE: scf.for
// RANGE: func.call @range_matrix_0_phase0_run
// RANGE-NOT: @range_matrix_0_phase0_strided

// Rows and columns that the range does not touch are sent as zeros.
// RANGE: func.func @range_matrix_0_finish0(
// RANGE: arith.constant 0.000000e+00 : f64
// RANGE-NOT: @range_matrix_0_phase1_strided

//--- range.mlir
step.optimizer @range {
  step.rule @range_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32, <{"flat range" = ["dp"]}>> {
    %rows = step.sum %g over [m] : [n, m]
    %cols = step.sum %g over [n] : [n, m]
    %a = step.mul %g, %rows : [n, m], [n, 1]
    %u = step.mul %a, %cols : [n, m], [1, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1 : [n, m]
  }
}
