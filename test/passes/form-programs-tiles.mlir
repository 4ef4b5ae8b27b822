// RUN: stepc-opt --step-form-programs --cse --canonicalize --split-input-file %s | FileCheck %s

// A reduction that is needed whole ends a traversal. The sum of squares of the
// parameter shares the first one, and the second reads the new state back and not
// the old one with the gradient.

// CHECK-LABEL: step.optimizer @lamb
step.optimizer @lamb {
  %lr = step.hyper "lr" = 1.0e-3
  // CHECK: step.program @lamb_any_0(
  // CHECK: %[[LR:.*]] = step.cohort_scalars @lamb_any_0_scalars
  // CHECK: %[[FIRST:.*]]:3 = step.traverse @lamb_any_0_phase0 over [*]
  // CHECK-SAME: reads (%{{.*}} = %param : <[*], f32>, %{{.*}} = %grad : <[*], f32>, %{{.*}} = %m : <[*], bf16>)
  // CHECK-SAME: writes (%m : <[*], bf16>) partials (sum to [], sum to []) {
  // CHECK: %[[A:.*]] = step.combine %[[FIRST]]#1 : !step.partial<sum, [*] to []> -> f64
  // CHECK: %[[B:.*]] = step.combine %[[FIRST]]#2 : !step.partial<sum, [*] to []> -> f64
  // CHECK: %[[RATIO:.*]] = arith.divf %[[A]], %[[B]] : f64
  // CHECK: %[[RATE:.*]] = arith.mulf %[[RATIO]], %[[LR]] : f64
  // CHECK: step.traverse @lamb_any_0_phase1 over [*]
  // CHECK-SAME: reads (%{{.*}} = %param : <[*], f32>, %[[M:.*]] = %[[FIRST]]#0 : <[*], bf16>)
  // CHECK-SAME: scalars (%[[S:.*]] = %[[RATE]] as f32) writes (%param : <[*], f32>) {
  // CHECK: %[[U:.*]] = arith.extf %[[M]] : bf16 to f32
  // CHECK: arith.mulf %[[U]], %[[S]] : f32
  step.rule @lamb_any_0(%p: param[*] as f32, %g: grad[*] as f32, %m: state "m"[*] as bf16) variant <"any", {}, f32> {
    %m0 = step.add %m, %g : [*]
    %m1 = step.round %m0 to bf16 : [*]
    %pp = step.mul %p, %p : [*]
    %mm = step.mul %m1, %m1 : [*]
    %a = step.sum %pp : [*]
    %b = step.sum %mm : [*]
    %ratio = step.div %a, %b : f64
    %s = step.mul %ratio, %lr : f64
    %u = step.mul %m1, %s : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %m1
  }
}

// -----

// The old state is needed after the reduction: it is written in the last
// traversal only.

// CHECK-LABEL: step.optimizer @late
step.optimizer @late {
  // CHECK: step.traverse @late_any_0_phase0
  // CHECK-SAME: = %m : <[*], f32>) partials
  // CHECK: step.traverse @late_any_0_phase1
  // CHECK-SAME: = %m : <[*], f32>) scalars ({{.*}}) writes (%param : <[*], f32>, %m : <[*], f32>)
  step.rule @late_any_0(%p: param[*] as f32, %g: grad[*] as f32, %m: state "m"[*] as f32) variant <"any", {}, f32> {
    %m1 = step.add %m, %g : [*]
    %s = step.sum %m1 : [*]
    %u = step.mul %m, %s : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %m1
  }
}

// -----

// What is reduced to rows and columns is a vector, kept between traversals; a mean
// over all rows of an item is had from the rows.

// CHECK-LABEL: step.optimizer @factored
step.optimizer @factored {
  // CHECK: %[[TILES:.*]]:2 = step.traverse @factored_matrix_0_phase0 over [...b, n, m]
  // CHECK-SAME: partials (sum to [...b, n, 1], amax to [...b, 1, m])
  // CHECK: %[[ROWS:.*]] = step.combine mean %[[TILES]]#0 : !step.partial<sum, [...b, n, m] to [...b, n, 1]> -> !step.buffer<[...b, n, 1], f32>
  // CHECK: %[[COLUMNS:.*]] = step.combine %[[TILES]]#1 : !step.partial<amax, [...b, n, m] to [...b, 1, m]> -> !step.buffer<[...b, 1, m], f32>
  // CHECK: %[[SMALL:.*]]:2 = step.traverse @factored_matrix_0_small0 over [...b, n, 1]
  // CHECK-SAME: = %row : <[...b, n, 1], f32>, %{{.*}} = %[[ROWS]] : <[...b, n, 1], f32>)
  // CHECK-SAME: writes (%row : <[...b, n, 1], f32>) partials (sum to [...b, 1, 1])
  // CHECK: %[[MEAN:.*]] = step.combine mean %[[SMALL]]#1 : !step.partial<sum, [...b, n, 1] to [...b, 1, 1]> -> !step.buffer<[...b, 1, 1], f32>
  // CHECK: step.traverse @factored_matrix_0_phase1 over [...b, n, m]
  // CHECK-SAME: = %[[COLUMNS]] : <[...b, 1, m], f32>, %{{.*}} = %[[MEAN]] : <[...b, 1, 1], f32>)
  step.rule @factored_matrix_0(%p: param[...b, n, m] as f32, %g: grad[...b, n, m] as f32, %r: state "row"[...b, n, 1] as f32) variant <"matrix", {}, f32> {
    %rows = step.mean %g over [m] : [...b, n, m]
    %cols = step.amax %g over [n] : [...b, n, m]
    %r1 = step.add %r, %rows : [...b, n, 1]
    %mean = step.mean %r1 over [n] : [...b, n, 1]
    %a = step.mul %g, %cols : [...b, n, m], [...b, 1, m]
    %u = step.mul %a, %mean : [...b, n, m], [...b, 1, 1]
    %p1 = step.sub %p, %u : [...b, n, m]
    step.return %p1, %r1 : [...b, n, m], [...b, n, 1]
  }
}

// -----

// The norm of all gradients is known after round 0, and so whether the step is
// skipped: nothing is written before, and what the norm does not need waits.

// CHECK-LABEL: step.optimizer @clipped
step.optimizer @clipped {
  %lr = step.hyper "lr" = 1.0e-3
  %norm2 = step.statistic "norm2" sum over model
  // CHECK: %[[COEF:.*]] = step.scalars over model attributes {round = 0 : i64}
  %coef = step.scalars over model {
    %finite = step.is_finite %norm2 : f64
    %overflow = step.not %finite : i1
    step.skip_if %overflow
    %c = step.sqrt %norm2 : f64
    step.yield %c : f64
  }
  // CHECK: step.program @clipped_any_0
  // CHECK: step.cohort_scalars @clipped_any_0_scalars {
  // CHECK: step.traverse @clipped_any_0_phase0 over [*] reads (%{{[a-z0-9_]+}} = %grad : <[*], f32>) partials (sum to [])
  // CHECK: %[[SUM:.*]] = step.combine %{{.*}} -> f64
  // CHECK-NEXT: step.contribute %norm2, %[[SUM]]{{$}}
  // CHECK-NEXT: step.exchange round 0{{$}}
  // CHECK-NEXT: step.cohort_scalars @clipped_any_0_scalars1 {
  // CHECK-NEXT: step.yield %[[COEF]] : f64
  // CHECK: step.traverse @clipped_any_0_phase1
  // CHECK-SAME: = %m : <[*], f32>)
  // CHECK-SAME: writes (%param : <[*], f32>, %m : <[*], f32>)
  step.rule @clipped_any_0(%p: param[*] as f32, %g: grad[*] as f32, %m: state "m"[*] as f32) variant <"any", {}, f32> {
    %gg = step.mul %g, %g : [*]
    %s = step.sum %gg : [*]
    step.contribute %norm2, %s
    %m1 = step.mul %m, %lr : [*], f64
    %g1 = step.mul %g, %coef : [*], f64
    %u = step.add %m1, %g1 : [*]
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %m1
  }
}

// -----

// What may be left out has a traversal of its own, before what shares its time.
step.optimizer @left_out {
  %lr = step.hyper "lr" = 1.0e-3
  %o = step.hyper "o" = 0.0
  %zero = step.constant 0.0
  // CHECK-LABEL: step.program @left_out_any_0
  // CHECK: %[[FLAG:[0-9]+]], %{{.*}} = step.cohort_scalars @left_out_any_0_scalars
  // CHECK: %[[ALWAYS:[0-9]+]] = step.own %[[FLAG]] : i1
  // CHECK: step.traverse @left_out_any_0_phase0 unless %[[ALWAYS]] over [*] reads (%{{[a-z0-9_]+}} = %param : <[*], f32>) partials
  // CHECK: step.combine {{.*}} unless %[[ALWAYS]] :
  // CHECK: step.traverse @left_out_any_0_phase1 over [*] reads (%{{[a-z0-9_]+}} = %grad : <[*], f32>) partials
  // CHECK: %[[LARGE:[0-9]+]] = arith.cmpf
  // CHECK: step.traverse @left_out_any_0_phase2 unless %[[LARGE]] over
  // CHECK: step.combine {{.*}} unless %[[LARGE]] :
  // CHECK: step.traverse @left_out_any_0_phase3 over
  step.rule @left_out_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %off = step.compare gt, %o, %zero : f64, f64
    %size = step.amax %p unless %off : [*]
    %most = step.amax %g : [*]
    %large = step.compare gt, %most, %lr : f64, f64
    %gg = step.mul %g, %g : [*]
    %mean = step.mean %gg unless %large : [*]
    %rate = step.mul %size, %mean : f64
    %u = step.mul %g, %rate : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
}

// -----

// Rows of a block are whole when the block has been traversed: what needs them
// alone trails, and only what is of rows stands before it. The sum of the
// columns, which it does not need, is combined behind it.

// CHECK-LABEL: step.optimizer @trailing
step.optimizer @trailing {
  // CHECK: step.traverse @trailing_matrix_0_phase0 over [...b, n, m]
  // CHECK: step.combine {{.*}} to [...b, n, 1]> -> !step.buffer
  // CHECK-NEXT: step.traverse @trailing_matrix_0_small0 over [...b, n, 1]
  // CHECK-NOT: step.combine
  // CHECK: step.traverse @trailing_matrix_0_phase1 trailing over [...b, n, m]
  // CHECK: step.combine {{.*}} to [...b, 1, m]> -> !step.buffer
  // CHECK: step.combine {{.*}} to [...b, 1, m]> -> !step.buffer
  // CHECK: step.traverse @trailing_matrix_0_phase2 over [...b, n, m]
  step.rule @trailing_matrix_0(%p: param[...b, n, m] as f32, %g: grad[...b, n, m] as f32,
                               %r: state "row"[...b, n, 1] as f32) variant <"matrix", {}, f32> {
    %rows = step.sum %g over [m] : [...b, n, m]
    %cols = step.sum %g over [n] : [...b, n, m]
    %r1 = step.add %r, %rows : [...b, n, 1]
    %scaled = step.mul %g, %r1 : [...b, n, m], [...b, n, 1]
    %sums = step.sum %scaled over [n] : [...b, n, m]
    %both = step.add %sums, %cols : [...b, 1, m]
    %p1 = step.sub %p, %both : [...b, n, m], [...b, 1, m]
    step.return %p1, %r1 : [...b, n, m], [...b, n, 1]
  }
}

// -----

// What needs columns too, or all rows, does not trail.

// CHECK-LABEL: step.optimizer @apart
// CHECK-NOT: trailing
step.optimizer @apart {
  step.rule @columns_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32> {
    %rows = step.sum %g over [m] : [n, m]
    %cols = step.sum %g over [n] : [n, m]
    %scaled = step.mul %g, %rows : [n, m], [n, 1]
    %twice = step.mul %scaled, %cols : [n, m], [1, m]
    %sums = step.sum %twice over [n] : [n, m]
    %p1 = step.sub %p, %sums : [n, m], [1, m]
    step.return %p1 : [n, m]
  }
  step.rule @all_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32> {
    %rows = step.sum %g over [m] : [n, m]
    %all = step.sum %rows : [n, 1]
    %share = step.div %rows, %all : [n, 1], f64
    %scaled = step.mul %g, %share : [n, m], [n, 1]
    %sums = step.sum %scaled over [n] : [n, m]
    %p1 = step.sub %p, %sums : [n, m], [1, m]
    step.return %p1 : [n, m]
  }
}

// -----

// What may be left out and needs what the first traversal finds comes behind
// what trails that, which nothing may stand between.

// CHECK-LABEL: step.program @behind_matrix_0
step.optimizer @behind {
  // CHECK: step.traverse @behind_matrix_0_phase0 over
  // CHECK: step.traverse @behind_matrix_0_phase1 trailing over
  // CHECK: step.traverse @behind_matrix_0_phase2 unless %{{[0-9]+}} over
  // CHECK: step.traverse @behind_matrix_0_phase3 over
  step.rule @behind_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32> {
    %one = step.constant 1.0
    %rows = step.sum %g over [m] : [n, m]
    %scaled = step.mul %g, %rows : [n, m], [n, 1]
    %sums = step.sum %scaled over [n] : [n, m]
    %most = step.amax %rows : [n, 1]
    %small = step.compare le, %most, %one : f64
    %gg = step.mul %scaled, %g : [n, m]
    %all = step.sum %gg unless %small : [n, m]
    %moved = step.mul %sums, %all : [1, m], f64
    %p1 = step.sub %p, %moved : [n, m], [1, m]
    step.return %p1 : [n, m]
  }
}

// -----

// It stays before what writes: that could be what it reads.

// CHECK-LABEL: step.program @before_matrix_0
step.optimizer @before {
  // CHECK: step.traverse @before_matrix_0_phase0 over
  // CHECK: step.traverse @before_matrix_0_phase1 unless %{{[0-9]+}} over
  // CHECK: step.traverse @before_matrix_0_phase2 over
  // CHECK: step.traverse @before_matrix_0_phase3 over
  // CHECK-NOT: step.traverse
  step.rule @before_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %s: state "s"[n, m] as f32) variant <"matrix", {}, f32> {
    %one = step.constant 1.0
    %rows = step.sum %g over [m] : [n, m]
    %s1 = step.add %s, %rows : [n, m], [n, 1]
    %most = step.amax %rows : [n, 1]
    %small = step.compare le, %most, %one : f64
    %sg = step.mul %s, %g : [n, m]
    %all = step.sum %sg unless %small : [n, m]
    %p1 = step.sub %p, %all : [n, m], f64
    step.return %p1, %s1 : [n, m], [n, m]
  }
}
