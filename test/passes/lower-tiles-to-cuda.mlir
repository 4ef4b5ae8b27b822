// RUN: stepc-opt --step-form-programs --step-lower-scalar-phases --step-lower-phases-to-cuda --canonicalize --cse %s | FileCheck %s

// Kernels and finishes of the tiles space on a device.

// What the threads of a block stage; all kernels use the same memory.
// CHECK: memref.global "private" @staged_f32 : memref<9216xf32, #gpu.address_space<workgroup>> = uninitialized
// CHECK-NOT: memref.global

// A run: columns by vectors where every row is aligned; sums along columns stay
// in a thread, row after row; values along rows are staged.
// CHECK-LABEL: func.func private @norm_matrix_0_phase0_run
// CHECK: %[[VECTORS:.*]] = arith.select %{{.*}}, %{{.*}}, %c0
// CHECK: scf.for %{{.*}} = %c0 to %{{.*}} step %c1024
// CHECK: scf.for {{.*}} step %c4 iter_args(%{{.*}} = %{{.*}}) -> (vector<4xf64>)
// CHECK: scf.for {{.*}} step %c1 iter_args(%[[SUM:.*]] = %{{.*}}) -> (vector<4xf64>)
// CHECK: scf.if
// CHECK: vector.load %{{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK: vector.store %{{.*}} {alignment = 16 : i64} : memref<9216xf32, #gpu.address_space<workgroup>>, vector<4xf32>
// CHECK: arith.addf %[[SUM]], %{{.*}} : vector<4xf64>
// Single columns have their sums in memory.
// CHECK: scf.for {{.*}} step %c256
// CHECK: memref.load
// CHECK: memref.store %{{.*}} : memref<?xf64>
// Then each thread adds a lane of a leaf, and 16 of them are folded.
// CHECK: gpu.barrier
// CHECK: scf.for {{.*}} step %c16 iter_args(%{{.*}} = %{{.*}}) -> (f64)
// CHECK: arith.extf %{{.*}} : f32 to f64
// CHECK: gpu.shuffle xor %{{.*}}, %c8_i32, %c32_i32 : i32
// CHECK: gpu.shuffle xor %{{.*}}, %c4_i32, %c32_i32 : i32
// CHECK: gpu.shuffle xor %{{.*}}, %c2_i32, %c32_i32 : i32
// CHECK: gpu.shuffle xor %{{.*}}, %c1_i32, %c32_i32 : i32
// CHECK: gpu.barrier

// Strided rows have single columns alone.
// CHECK-LABEL: func.func private @norm_matrix_0_phase0_strided_run
// CHECK-NOT: vector.load
// CHECK: arith.remui

// A block for a quarter of the columns of each entry's tiles.
// Two blocks are to fit on a multiprocessor; of strided rows one.
// CHECK: gpu.func @norm_matrix_0_phase0(
// CHECK-SAME: nvvm.minctasm = 2 : i32
// CHECK: arith.muli %{{.*}}, %c4
// CHECK: scf.for
// CHECK: arith.divui %{{.*}}, %c4
// CHECK: arith.remui %{{.*}}, %c4
// CHECK: func.call @norm_matrix_0_phase0_run
// CHECK: gpu.func @norm_matrix_0_phase0_strided(
// CHECK-SAME: nvvm.minctasm = 1 : i32
// CHECK: func.call @norm_matrix_0_phase0_strided_run

// A finish: 8 entries to one between two barriers, then the means.
// CHECK: func.func private @norm_matrix_0_small0_run
// CHECK: gpu.func @norm_matrix_0_finish0(
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK: scf.while
// CHECK: scf.for {{.*}} step %c256
// CHECK-COUNT-8: memref.load
// CHECK-COUNT-7: arith.addf
// CHECK: gpu.barrier
// CHECK: arith.divf
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: func.call @norm_matrix_0_small0_run
// CHECK: gpu.barrier
// CHECK: gpu.func @norm_matrix_0_phase1(

// Statistics over tensors: a list of addresses, 0 where there is none.
// CHECK: gpu.func @statistics_sum(%{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: i64) kernel
// CHECK: arith.cmpi eq, %{{.*}}, %c0_i64
// CHECK: gpu.barrier
// CHECK-NOT: @statistics_amax
step.optimizer @norm {
  %norm2 = step.statistic "norm2" sum over model
  step.scalars over model {
    %norm = step.sqrt %norm2 : f64
    step.report "grad_norm", %norm
    step.yield
  }
  step.rule @norm_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "row"[n, 1] as f32) variant <"matrix", {}, f32> {
    %rows = step.mean %g over [m] : [n, m]
    %cols = step.sum %g over [n] : [n, m]
    %all = step.sum %g : [n, m]
    step.contribute %norm2, %all
    %r1 = step.add %r, %rows : [n, 1]
    %a = step.mul %g, %cols : [n, m], [1, m]
    %u = step.mul %a, %r1 : [n, m], [n, 1]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %r1 : [n, m], [n, 1]
  }
}
