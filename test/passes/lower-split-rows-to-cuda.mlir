// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cuda --canonicalize --cse %s | FileCheck %s

// A phase with more sums along rows than a row of a strip has room for: half of
// its columns are staged at a time, and the lanes of the leaf wait in between.

#p = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = f32, reads = true, writes = true>
#a = #step.accumulator<combiner = sum, direction = row, partial = "partial">
#m = #step.accumulator<combiner = amax, direction = row, partial = "partial">

// CHECK-DAG: memref.global "private" @staged_f32 : memref<9216xf32, #gpu.address_space<workgroup>> = uninitialized
// CHECK-DAG: memref.global "private" @waiting_160 : memref<160xf64, #gpu.address_space<workgroup>> = uninitialized

// CHECK-LABEL: func.func private @phase0_run
// A strip, its rows one by one, and the parts of a row.
// CHECK: scf.for %[[STRIP:.*]] = %c0 to %{{.*}} step %c1024
// CHECK: scf.for %{{.*}} = %c0 to %{{.*}} step %c1
// CHECK: scf.for %[[PART:.*]] = %[[STRIP]] to %{{.*}} step %c512
// Vectors of the threads that have one there, then single columns.
// CHECK: scf.if
// CHECK: vector.store
// CHECK: scf.for {{.*}} step %c256
// CHECK: gpu.barrier
// The eight sums are added by one loop, 16 threads for each; the maximum by
// another one. A lane goes on from where it was, but at the begin of a leaf.
// CHECK: scf.for {{.*}} = %{{.*}} to %c128 step %c256
// CHECK: %[[WAITING:.*]] = memref.get_global @waiting_160
// CHECK: %[[LANE:.*]] = memref.load %[[WAITING]]
// CHECK: %[[FROM:.*]] = arith.select %{{.*}}, %cst{{.*}}, %[[LANE]] : f64
// CHECK: scf.for {{.*}} step %c16 iter_args(%{{.*}} = %[[FROM]]) -> (f64)
// At its end the lanes are folded; else they wait.
// CHECK: scf.if
// CHECK-COUNT-8: gpu.shuffle xor
// CHECK: } else {
// CHECK-NEXT: memref.store %{{.*}}, %[[WAITING]]
// CHECK: scf.for {{.*}} = %{{.*}} to %c32 step %c256
// CHECK: arith.maximumf
// CHECK: gpu.barrier

// Eight fit: rows are staged whole.
// CHECK-LABEL: func.func private @phase1_run
// CHECK-NOT: step %c512
// CHECK-NOT: @waiting
step.optimizer @many {
  step.program @program variant <"any", {}, f32> operands [#p] attributes {workspace = [#step.buffer<"partial", ["B", "N", "ML"], f64, false>]} {
    step.scalar_phase @scalars {
    ^bb0(%t: i64, %fresh: i1):
      step.yield
    }
    step.phase @phase0 slots 0 operands [#p] attributes {space = #step<space tiles>, accumulators = [#a, #m, #a, #a, #a, #a, #a, #a, #a]} {
    ^bb0(%x: f32):
      step.yield %x, %x, %x, %x, %x, %x, %x, %x, %x, %x : f32, f32, f32, f32, f32, f32, f32, f32, f32, f32
    }
    step.phase @phase1 slots 0 operands [#p] attributes {space = #step<space tiles>, accumulators = [#a, #a, #a, #a, #a, #a, #a, #a]} {
    ^bb0(%x: f32):
      step.yield %x, %x, %x, %x, %x, %x, %x, %x, %x : f32, f32, f32, f32, f32, f32, f32, f32, f32
    }
  }
}
