// RUN: stepc-opt --step-lower-scalar-phases --step-lower-phases-to-cuda --canonicalize --cse %s | FileCheck %s

// A traversal with more sums along rows than a row of a strip has room for: half of
// its columns are staged at a time, and the lanes of the leaf wait in between.

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
  step.program @program(%p: param[n, m] as f32) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    %0:9 = step.traverse @phase0 over [n, m] reads (%x = %p : <[n, m], f32>)
        partials (sum to [n, 1], amax to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
                  sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1]) {
      step.yield %x, %x, %x, %x, %x, %x, %x, %x, %x : f32, f32, f32, f32, f32, f32, f32, f32, f32
    }
    %1:8 = step.traverse @phase1 over [n, m] reads (%x = %p : <[n, m], f32>)
        partials (sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1],
                  sum to [n, 1], sum to [n, 1], sum to [n, 1], sum to [n, 1]) {
      step.yield %x, %x, %x, %x, %x, %x, %x, %x : f32, f32, f32, f32, f32, f32, f32, f32
    }
    %a0 = step.combine %0#0 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %a1 = step.combine %0#1 : !step.partial<amax, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %a2 = step.combine %0#2 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %a3 = step.combine %0#3 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %a4 = step.combine %0#4 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %a5 = step.combine %0#5 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %a6 = step.combine %0#6 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %a7 = step.combine %0#7 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %a8 = step.combine %0#8 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %b0 = step.combine %1#0 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %b1 = step.combine %1#1 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %b2 = step.combine %1#2 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %b3 = step.combine %1#3 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %b4 = step.combine %1#4 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %b5 = step.combine %1#5 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %b6 = step.combine %1#6 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %b7 = step.combine %1#7 : !step.partial<sum, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
  }
}
