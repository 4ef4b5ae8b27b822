// RUN: split-file %s %t
// RUN: stepc-opt --step-insert-collectives --step-form-programs --step-lower-scalar-phases --step-lower-phases-to-cuda %t/dims.mlir | FileCheck %s --check-prefix=DIMS
// RUN: stepc-opt --step-insert-collectives --step-form-programs --step-lower-scalar-phases --step-lower-phases-to-cuda %t/range.mlir | FileCheck %s --check-prefix=RANGE

// What is sent is neither divided nor rounded, and a maximum is sent as an integer, by all
// threads of the block.
// DIMS: gpu.func @dims_matrix_0_finish0(
// DIMS-NOT: arith.truncf
// DIMS-NOT: arith.uitofp
// DIMS: %[[BITS:.*]] = arith.bitcast %[[MAX:.*]] : f64 to i64
// DIMS: %[[NAN:.*]] = arith.cmpf uno, %[[MAX]], %[[MAX]] : f64
// DIMS: memref.store %{{.*}} : memref<?xi64>
// What is received is: a mean by the number of elements of the whole tensor.
// DIMS: gpu.func @dims_matrix_0_finish1(
// DIMS: scf.for {{.*}} step %c256
// DIMS: arith.bitcast %{{.*}} : i64 to f64
// DIMS: %[[NUMBER:.*]] = arith.uitofp %{{.*}} : i64 to f64
// DIMS: %[[MEAN:.*]] = arith.divf %{{.*}}, %[[NUMBER]] : f64
// DIMS: arith.truncf %[[MEAN]] : f64 to f32
// DIMS: gpu.func @dims_matrix_0_phase1(
// DIMS: gpu.func @dims_matrix_0_phase1_strided(

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

// Sums along columns go on from what rows before have left.
// RANGE: func.func private @range_matrix_0_phase0_run(
// RANGE: scf.if %{{.*}} -> (vector<4xf64>) {
// RANGE: vector.load %{{.*}} : memref<?xf64>, vector<4xf64>
// RANGE: } else {
// RANGE: arith.constant dense<0.000000e+00> : vector<4xf64>

// A range is dense: one kernel, for there are no strides. Columns are cleared, then a strip of
// a tile that it has all of runs at once, as any other does; of the others row by row, leaf by
// leaf, what is clipped to the range, with a barrier after each, for another thread may have the
// column in the next row.
// RANGE: gpu.func @range_matrix_0_phase0(
// RANGE: memref.store %{{.*}} : memref<?xf64>
// RANGE: gpu.barrier
// RANGE: scf.if %{{.*}} {
// RANGE-NOT: scf.for
// RANGE: func.call @range_matrix_0_phase0_run
// RANGE: } else {
// RANGE: scf.for
// RANGE: memref.store %{{.*}} : memref<?xf64>
// RANGE: gpu.barrier
// RANGE: arith.minsi
// RANGE: scf.for
// RANGE: func.call @range_matrix_0_phase0_run
// RANGE-NEXT: gpu.barrier
// RANGE-NOT: @range_matrix_0_phase0_strided

// Rows and columns that the range does not touch are sent as zeros: all of them before, and
// then, behind a barrier, those that it touches.
// RANGE: gpu.func @range_matrix_0_finish0(
// RANGE: arith.constant 0.000000e+00 : f64
// RANGE: gpu.barrier
// RANGE: scf.if
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
