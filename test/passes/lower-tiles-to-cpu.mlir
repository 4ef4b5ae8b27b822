// RUN: stepc-opt --step-form-programs --step-lower-scalar-phases --step-lower-phases-to-cpu %s | FileCheck %s

// Kernels and finishes of the tiles space: two kernels of each traversal, over
// the same function, and one finish of what stands between two.

// A leaf of a row: 16 lanes of f64, then the rest, each in its lane, and a fold.
// CHECK: func.func private @norm_matrix_0_phase0_run
// CHECK: %[[REST:.*]] = memref.alloca() : memref<16xf64>
// CHECK: scf.for {{.*}} iter_args(%[[LANES:.*]] = %{{.*}}) -> (vector<16xf64>)
// CHECK: %[[WIDE:.*]] = arith.extf %{{.*}} : vector<16xf32> to vector<16xf64>
// CHECK: arith.addf %[[LANES]], %[[WIDE]] : vector<16xf64>
// CHECK: vector.load {{.*}} vector<16xf64>
// CHECK: vector.store {{.*}} vector<16xf64>
// CHECK: scf.if
// CHECK: memref.store %{{.*}}, %[[REST]]
// CHECK: vector.shuffle {{.*}} [0, 1, 2, 3, 4, 5, 6, 7]
// CHECK: vector.shuffle {{.*}} [8, 9, 10, 11, 12, 13, 14, 15]

// CHECK: func.func @norm_matrix_0_phase0(
// CHECK: call @norm_matrix_0_phase0_run
// CHECK: func.func @norm_matrix_0_phase0_strided(
// CHECK: memref.alloca() {alignment = 64 : i64} : memref<512xi64>
// CHECK: call @norm_matrix_0_phase0_run

// CHECK: func.func private @norm_matrix_0_small0_run
// CHECK: func.func @norm_matrix_0_finish0(%{{.*}}: i64, %{{.*}}: i64)
// CHECK: arith.divf
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: call @norm_matrix_0_small0_run
// CHECK: func.func @norm_matrix_0_phase1(
// CHECK-NOT: finish1
// CHECK-NOT: step.optimizer
step.optimizer @norm {
  step.rule @norm_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "row"[n, 1] as f32) variant <"matrix", {}, f32> {
    %rows = step.mean %g over [m] : [n, m]
    %cols = step.sum %g over [n] : [n, m]
    %r1 = step.add %r, %rows : [n, 1]
    %a = step.mul %g, %cols : [n, m], [1, m]
    %u = step.mul %a, %r1 : [n, m], [n, 1]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %r1 : [n, m], [n, 1]
  }
}

// A phase that trails is run by the kernel before it, a strip of rows at a time,
// where rows are not too long; then its own kernel and the finish do nothing.
// CHECK: func.func private @train_matrix_0_finish0_rows(%{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64)
// CHECK: call @tree_dense_sum
// CHECK: call @train_matrix_0_small0_run
// CHECK: func.func @train_matrix_0_phase0(
// CHECK: scf.if
// CHECK: call @train_matrix_0_phase0_run
// CHECK: call @train_matrix_0_finish0_rows
// CHECK: call @train_matrix_0_phase1_run
// CHECK: else
// CHECK: call @train_matrix_0_phase0_run
// CHECK: func.func @train_matrix_0_phase0_strided(
// CHECK: func.func @train_matrix_0_finish0(
// CHECK: scf.if
// CHECK: func.func @train_matrix_0_phase1(
// CHECK: scf.if
// CHECK: call @train_matrix_0_phase1_run
step.optimizer @train {
  step.rule @train_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "row"[n, 1] as f32) variant <"matrix", {}, f32> {
    %rows = step.mean %g over [m] : [n, m]
    %r1 = step.add %r, %rows : [n, 1]
    %a = step.mul %g, %r1 : [n, m], [n, 1]
    %sums = step.sum %a over [n] : [n, m]
    %p1 = step.sub %p, %sums : [n, m], [1, m]
    step.return %p1, %r1 : [n, m], [n, 1]
  }
}

// Lanes of a maximum are of the compute type; of magnitudes, integers.
// CHECK: func.func private @largest_any_0_phase0_run
// CHECK: scf.for {{.*}} iter_args(%[[SIZES:.*]] = %{{.*}}, %[[MOST:.*]] = %{{.*}}) -> (vector<16xi32>, vector<16xf32>)
// CHECK: %[[BITS:.*]] = arith.bitcast %{{.*}} : vector<16xf32> to vector<16xi32>
// CHECK: arith.maxsi %[[SIZES]], %[[BITS]] : vector<16xi32>
// CHECK: arith.maximumf %[[MOST]], %{{.*}} : vector<16xf32>
// CHECK: arith.extf %{{.*}} : vector<16xf32> to vector<16xf64>
// CHECK: arith.extf %{{.*}} : vector<16xf32> to vector<16xf64>
// CHECK: vector.shuffle
step.optimizer @largest {
  step.rule @largest_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %a = step.abs %g : [*]
    %size = step.amax %a : [*]
    %most = step.amax %g : [*]
    %rate = step.mul %size, %most : f64
    %p1 = step.mul %p, %rate : [*], f64
    step.return %p1
  }
}
