// Tests the syntax of programs and of memory by address.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: step.optimizer @sgd
step.optimizer @sgd {
  %lr = step.hyper "lr" = 1.0
  %norm = step.statistic "norm" sum over model
  // CHECK: step.program @sgd_any_0(%param: param[n, m] as bf16, %grad: grad[n, m] as f32,
  // CHECK-SAME: %m: state "m"[n, 1] = 1.0 as f64, %count: count, %fresh: fresh("m"))
  // CHECK-SAME: variant <"any", {maximize = false}, f32, <{m = ["tp"]}>> {
  step.program @sgd_any_0(%p: param[n, m] as bf16, %g: grad[n, m] as f32, %m: state "m"[n, 1] = 1.0 as f64,
                          %t: count, %f: fresh("m"))
      variant <"any", {maximize = false}, f32, <{m = ["tp"]}>> {
    // Scalars print under the names of what they are.
    // CHECK-NEXT: %[[S:lr.*]]:3 = step.cohort_scalars @scalars {
    // CHECK-NEXT:   step.yield %lr, %fresh, %count : f64, i1, i64 } : f64, i1, i64
    %rate, %new, %number = step.cohort_scalars @scalars {
      step.yield %lr, %f, %t : f64, i1, i64
    } : f64, i1, i64
    // CHECK-NEXT: %[[KNOWN:.*]] = step.own %[[S]]#1 : i1
    %known = step.own %new : i1
    // CHECK-NEXT: %[[SUM:.*]] = step.traverse @sum unless %[[KNOWN]] over [n, m]
    // CHECK-SAME: reads (%[[X:.*]] = %grad : <[n, m], f32>) partials (sum to []) {
    %sum = step.traverse @sum unless %known over [n, m] reads (%x = %g : <[n, m], f32>) partials (sum to []) {
      step.yield %x : f32
    }
    // CHECK: step.combine %[[SUM]] unless %[[KNOWN]] : !step.partial<sum, [n, m] to []> -> f64
    %whole = step.combine %sum unless %known : !step.partial<sum, [n, m] to []> -> f64
    // CHECK-NEXT: %[[LARGE:.*]]:2 = step.traverse @large over [n, m]
    // CHECK-SAME: partials (amax to [n, 1], sum to [1, m])
    %large:2 = step.traverse @large over [n, m] reads (%x = %g : <[n, m], f32>)
        partials (amax to [n, 1], sum to [1, m]) {
      step.yield %x, %x : f32, f32
    }
    // CHECK: step.combine %[[LARGE]]#0 : !step.partial<amax, [n, m] to [n, 1]> -> !step.share<amax, [n, m] to [n, 1]>
    %share = step.combine %large#0 : !step.partial<amax, [n, m] to [n, 1]> -> !step.share<amax, [n, m] to [n, 1]>
    // CHECK-NEXT: %[[MEAN:.*]] = step.combine mean %[[LARGE]]#1 : !step.partial<sum, [n, m] to [1, m]> -> !step.buffer<[1, m], f32>
    %mean = step.combine mean %large#1 : !step.partial<sum, [n, m] to [1, m]> -> !step.buffer<[1, m], f32>
    // CHECK-NEXT: %[[KEPT:.*]] = step.keep %[[MEAN]] : !step.buffer<[1, m], f32>
    %kept = step.keep %mean : !step.buffer<[1, m], f32>
    // CHECK-NEXT: step.contribute %norm, %{{.*}} partial ["m"]
    step.contribute %norm, %whole partial ["m"]
    // CHECK-NEXT: %[[ALL:.*]] = step.exchange round 0 (%{{.*}} over ["m"] : !step.share<amax, [n, m] to [n, 1]>)
    %all = step.exchange round 0 (%share over ["m"] : !step.share<amax, [n, m] to [n, 1]>)
    // CHECK-NEXT: step.receive %[[ALL]] : !step.share<amax, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    %rows = step.receive %all : !step.share<amax, [n, m] to [n, 1]> -> !step.buffer<[n, 1], f32>
    // A vector that is made, and a state that is written. Scalars are of the compute type, and
    // have the name that they have outside.
    // CHECK-NEXT: %{{.*}}:2 = step.traverse @vector over [n, 1] reads (%{{.*}} = %{{.*}} : <[n, 1], f32>, %{{.*}} = %m : <[n, 1], f64>)
    // CHECK-SAME: scalars (%[[W:lr[_0-9]*]] = %[[S]]#0 as f32, %[[NEW:scalar]] = %[[S]]#1 as i1)
    // CHECK-SAME: writes (%m : <[n, 1], f64>) makes (f32) {
    // CHECK-NEXT: %[[L:.*]] = step.lerp %[[R:.*]], %[[R]], %[[W]] : f32
    // CHECK-NEXT: %[[X:.*]] = arith.select %[[NEW]], %[[R]], %[[L]] : f32
    // CHECK-NEXT: step.yield %{{.*}}, %[[X]] : f64, f32 }
    %m1, %scale = step.traverse @vector over [n, 1] reads (%r = %rows : <[n, 1], f32>, %old = %m : <[n, 1], f64>)
        scalars (%w = %rate as f32, %is_new = %new as i1) writes (%m : <[n, 1], f64>) makes (f32) {
      %l = step.lerp %r, %r, %w : f32
      %x = arith.select %is_new, %r, %l : f32
      step.yield %old, %x : f64, f32
    }
    // CHECK: step.exchange round 1{{$}}
    step.exchange round 1
    // CHECK-NEXT: step.traverse @update trailing over [n, m]
    // CHECK-NEXT:   step.yield }{{$}}
    step.traverse @update trailing over [n, m] {
      step.yield
    }
  }
  // CHECK: step.program @sgd_any_1(%param: param[*] as f32) variant <"any", {}, f32> elementwise {
  step.program @sgd_any_1(%p: param[*] as f32) variant <"any", {}, f32> elementwise {
    step.cohort_scalars @scalars1 {
      step.yield
    }
    step.traverse @nothing over [*] {
      step.yield
    }
  }
}

// CHECK-LABEL: step.optimizer @matrices
step.optimizer @matrices {
  // CHECK: step.program @matrices_any_0(
  step.program @matrices_any_0(%p: param[n, m] as bf16, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32,
                               %t: state "t"[m, n] as bf16) variant <"any", {}, f32> {
    step.cohort_scalars @scalars {
      step.yield
    }
    // Of buffers of any floats.
    // CHECK: %[[LEFT:.*]] = step.product %grad, %grad transposed symmetric : <[n, m], f32>, <[n, m], f32> -> <[n, n], f32>
    %left = step.product %g, %g transposed symmetric : <[n, m], f32>, <[n, m], f32> -> <[n, n], f32>
    // CHECK-NEXT: %[[RIGHT:.*]] = step.product %param transposed, %grad {note = "kept"} : <[n, m], bf16>, <[n, m], f32> -> <[m, m], f32>
    %right = step.product %p transposed, %g {note = "kept"} : <[n, m], bf16>, <[n, m], f32> -> <[m, m], f32>
    // CHECK-NEXT: step.product %t transposed, %param transposed : <[m, n], bf16>, <[n, m], bf16> -> <[n, n], f32>
    %turned = step.product %t transposed, %p transposed : <[m, n], bf16>, <[n, m], bf16> -> <[n, n], f32>
    // CHECK-NEXT: step.product %[[LEFT]], %{{.*}} : <[n, n], f32>, <[n, n], f32> -> <[n, n], f32>
    %square = step.product %left, %turned : <[n, n], f32>, <[n, n], f32> -> <[n, n], f32>
    // CHECK-NEXT: step.product %[[RIGHT]], %[[RIGHT]] symmetric : <[m, m], f32>, <[m, m], f32> -> <[m, m], f32>
    %other = step.product %right, %right symmetric : <[m, m], f32>, <[m, m], f32> -> <[m, m], f32>
    // CHECK-NEXT: step.product %[[RIGHT]], %[[RIGHT]] rounded : <[m, m], f32>, <[m, m], f32> -> <[m, m], f32>
    %rounded = step.product %right, %right rounded : <[m, m], f32>, <[m, m], f32> -> <[m, m], f32>
    // CHECK-NEXT: %[[GT:.*]] = step.transposed %grad : <[n, m], f32> -> <[m, n], f32>
    %gt = step.transposed %g : <[n, m], f32> -> <[m, n], f32>
    // CHECK-NEXT: step.transposed %param {note = "kept"} : <[n, m], bf16> -> <[m, n], f32>
    %pt = step.transposed %p {note = "kept"} : <[n, m], bf16> -> <[m, n], f32>
    // CHECK-NEXT: step.leading %grad {note = "kept"} : <[n, m], f32> -> <[n, n], f32>
    %first = step.leading %g {note = "kept"} : <[n, m], f32> -> <[n, n], f32>
    // CHECK-NEXT: step.eigenvectors %[[LEFT]] {note = "kept"} : <[n, n], f32> -> <[n, n], f32>
    %vectors = step.eigenvectors %left {note = "kept"} : <[n, n], f32> -> <[n, n], f32>
    // CHECK-NEXT: step.eigenvectors %[[LEFT]] {note = "kept"} : <[n, n], f32> -> <[n, n], f32>, !step.buffer<[1, n], f32>
    %vectors_too, %values = step.eigenvectors %left {note = "kept"} : <[n, n], f32> -> <[n, n], f32>, !step.buffer<[1, n], f32>
    // CHECK-NEXT: step.indices {note = "kept"} : <[n, 1], f32>
    %rows = step.indices {note = "kept"} : <[n, 1], f32>
    // CHECK-NEXT: %[[KEYS:.*]] = step.diagonals %[[LEFT]] {note = "kept"} : <[n, n], f32> -> <[1, n], f32>
    %keys = step.diagonals %left {note = "kept"} : <[n, n], f32> -> <[1, n], f32>
    // CHECK-NEXT: step.orthonormal %[[LEFT]] {note = "kept"} : <[n, n], f32> -> <[n, n], f32>
    %basis = step.orthonormal %left {note = "kept"} : <[n, n], f32> -> <[n, n], f32>
    // CHECK-NEXT: step.sorted %[[LEFT]] by %[[KEYS]] {note = "kept"} : <[n, n], f32>, <[1, n], f32> -> <[n, n], f32>
    %sorted = step.sorted %left by %keys {note = "kept"} : <[n, n], f32>, <[1, n], f32> -> <[n, n], f32>
    // Left out where a scalar, of whatever, holds.
    // CHECK-NEXT: %[[YES:.*]] = arith.constant true
    %yes = arith.constant true
    // CHECK-NEXT: step.product %{{.*}} transposed, %{{.*}} symmetric wide unless %[[YES]] {note = "kept"} : <[n, m], f32>, <[n, m], f32> -> <[m, m], f32>
    %wide = step.product %g transposed, %g symmetric wide unless %yes {note = "kept"} : <[n, m], f32>, <[n, m], f32> -> <[m, m], f32>
    // CHECK-NEXT: step.transposed %grad unless %[[YES]] : <[n, m], f32> -> <[m, n], f32>
    %out0 = step.transposed %g unless %yes : <[n, m], f32> -> <[m, n], f32>
    // CHECK-NEXT: step.leading %grad unless %[[YES]] : <[n, m], f32> -> <[n, n], f32>
    %out1 = step.leading %g unless %yes : <[n, m], f32> -> <[n, n], f32>
    // CHECK-NEXT: step.eigenvectors %[[LEFT]] unless %[[YES]] : <[n, n], f32> -> <[n, n], f32>
    %out2 = step.eigenvectors %left unless %yes : <[n, n], f32> -> <[n, n], f32>
    // CHECK-NEXT: step.eigenvectors %[[LEFT]] unless %[[YES]] : <[n, n], f32> -> <[n, n], f32>, !step.buffer<[1, n], f32>
    %out6, %out7 = step.eigenvectors %left unless %yes : <[n, n], f32> -> <[n, n], f32>, !step.buffer<[1, n], f32>
    // CHECK-NEXT: step.indices unless %[[YES]] : <[1, m], f32>
    %out8 = step.indices unless %yes : <[1, m], f32>
    // CHECK-NEXT: step.diagonals %[[LEFT]] unless %[[YES]] : <[n, n], f32> -> <[1, n], f32>
    %out3 = step.diagonals %left unless %yes : <[n, n], f32> -> <[1, n], f32>
    // CHECK-NEXT: step.orthonormal %[[LEFT]] unless %[[YES]] : <[n, n], f32> -> <[n, n], f32>
    %out4 = step.orthonormal %left unless %yes : <[n, n], f32> -> <[n, n], f32>
    // CHECK-NEXT: step.sorted %[[LEFT]] by %[[KEYS]] unless %[[YES]] : <[n, n], f32>, <[1, n], f32> -> <[n, n], f32>
    %out5 = step.sorted %left by %keys unless %yes : <[n, n], f32>, <[1, n], f32> -> <[n, n], f32>
    // CHECK-NEXT: step.extent m
    %columns = step.extent m
    // Over a dim twice, and over dims in another order.
    // CHECK-NEXT: step.traverse @square over [n, n]
    // CHECK-SAME: reads (%{{.*}} = %{{.*}} : <[n, n], f32>, %{{.*}} = %l : <[n, n], f32>) writes (%l : <[n, n], f32>) {
    %l1 = step.traverse @square over [n, n] reads (%a = %square : <[n, n], f32>, %b = %l : <[n, n], f32>)
        writes (%l : <[n, n], f32>) {
      %x = arith.addf %a, %b : f32
      step.yield %x : f32
    }
    // CHECK: step.traverse @turned over [m, n]
    // CHECK-SAME: reads (%{{.*}} = %[[GT]] : <[m, n], f32>) writes (%t : <[m, n], bf16>) {
    %t1 = step.traverse @turned over [m, n] reads (%a = %gt : <[m, n], f32>) writes (%t : <[m, n], bf16>) {
      %x = arith.truncf %a : f32 to bf16
      step.yield %x : bf16
    }
    // CHECK: step.traverse @update over [n, m]
    %p1 = step.traverse @update over [n, m] reads (%a = %g : <[n, m], f32>) writes (%p : <[n, m], bf16>) {
      %x = arith.truncf %a : f32 to bf16
      step.yield %x : bf16
    }
  }
  // CHECK: step.program @matrices_many_0(
  step.program @matrices_many_0(%p: param[...b, n, m] as f64, %l: state "l"[...b, n, n] as f64)
      variant <"many", {}, f64> {
    step.cohort_scalars @scalars1 {
      step.yield
    }
    // CHECK: step.product %param, %param transposed : <[...b, n, m], f64>, <[...b, n, m], f64> -> <[...b, n, n], f64>
    %pp = step.product %p, %p transposed : <[...b, n, m], f64>, <[...b, n, m], f64> -> <[...b, n, n], f64>
    // CHECK-NEXT: step.transposed %param : <[...b, n, m], f64> -> <[...b, m, n], f64>
    %pt = step.transposed %p : <[...b, n, m], f64> -> <[...b, m, n], f64>
    // CHECK-NEXT: step.traverse @batch over [...b, n, n]
    %l1 = step.traverse @batch over [...b, n, n] reads (%a = %pp : <[...b, n, n], f64>)
        writes (%l : <[...b, n, n], f64>) {
      step.yield %a : f64
    }
    step.traverse @nothing over [...b, n, m] {
      step.yield
    }
  }
}

// CHECK-LABEL: func.func @memory
func.func @memory(%address: i64) {
  // CHECK: step.view %{{.*}} : memref<?xf32>
  %0 = step.view %address : memref<?xf32>
  // CHECK: step.view %{{.*}} : memref<?xi16>
  %1 = step.view %address : memref<?xi16>
  // CHECK: step.prefetch %{{[a-z0-9]+}}{{$}}
  step.prefetch %address
  // CHECK: step.prefetch %{{[a-z0-9]+}} write{{$}}
  step.prefetch %address write
  return
}

// CHECK-LABEL: step.optimizer @normals
step.optimizer @normals {
  // CHECK: step.program @normals_any_0(
  step.program @normals_any_0(%p: param[n, m] as f32, %t: count, %i: position[n, m] as i64) variant <"any", {}, f32> {
    // CHECK: %[[SCALARS:.*]]:2 = step.cohort_scalars @scalars
    %seed, %count = step.cohort_scalars @scalars {
      %one = arith.constant 1.0 : f64
      step.yield %one, %t : f64, i64
    } : f64, i64
    // CHECK: step.normals "z" %[[SCALARS]]#0, %[[SCALARS]]#1 at %position {note = "kept"} : <[n, m], i64> -> <[m, n], f32>
    %z = step.normals "z" %seed, %count at %i {note = "kept"} : <[n, m], i64> -> <[m, n], f32>
    %yes = arith.constant true
    // CHECK: step.normals "y" %[[SCALARS]]#0, %[[SCALARS]]#1 at %position unless %{{.*}} : <[n, m], i64> -> <[n, m], f32>
    %y = step.normals "y" %seed, %count at %i unless %yes : <[n, m], i64> -> <[n, m], f32>
    step.traverse @update over [n, m] reads (%a = %y : <[n, m], f32>) writes (%p : <[n, m], f32>) {
      step.yield %a : f32
    }
  }
}
