// RUN: stepc-opt --step-form-phases --cse --canonicalize --split-input-file %s | FileCheck %s

// A reduction that is needed whole ends a traversal. The sum of squares of the
// parameter shares the first one, and the second reads the new state back and not
// the old one with the gradient.

// CHECK-LABEL: step.optimizer @lamb
step.optimizer @lamb {
  %lr = step.hyper "lr" = 1.0e-3
  // CHECK: step.program @lamb_any_0
  // CHECK-SAME: tensor_slots = 3
  // CHECK-SAME: <"partial0", ["B", "N", "ML"], f64, false>
  // CHECK: step.scalar_phase @lamb_any_0_scalars
  // CHECK: step.phase @lamb_any_0_phase0 slots 1 operands
  // CHECK-SAME: name = "param", {{[^>]*}}>, storage = f32, reads = true, writes = false>
  // CHECK-SAME: name = "grad", {{[^>]*}}>, storage = f32, reads = true, writes = false>
  // CHECK-SAME: name = "m", {{[^>]*}}>, storage = bf16, {{[^>]*}}reads = true, writes = true>
  // CHECK-SAME: accumulators = [#step.accumulator<combiner = sum, direction = row, partial = "partial0">, #step.accumulator<combiner = sum, direction = row, partial = "partial1">]
  // CHECK-SAME: space = #step<space tiles>
  // CHECK: step.combine "partial0" sum of tiles to tensor slot 0
  // CHECK: step.combine "partial1" sum of tiles to tensor slot 1
  // CHECK: step.tensor_scalars @lamb_any_0_small0 slots 1, 3 writes [2]
  // CHECK: arith.divf
  // CHECK: step.phase @lamb_any_0_phase1 slots 1 operands
  // CHECK-SAME: name = "param", {{[^>]*}}>, storage = f32, reads = true, writes = true>
  // CHECK-SAME: name = "m", {{[^>]*}}>, storage = bf16, {{[^>]*}}reads = true, writes = false>
  // CHECK-NOT: name = "grad"
  // CHECK: arith.extf {{.*}} : bf16 to f32
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
  // CHECK: step.phase @late_any_0_phase0
  // CHECK-SAME: name = "m", {{[^>]*}}>, storage = f32, {{[^>]*}}reads = true, writes = false>
  // CHECK: step.phase @late_any_0_phase1
  // CHECK-SAME: name = "m", {{[^>]*}}>, storage = f32, {{[^>]*}}reads = true, writes = true>
  step.rule @late_any_0(%p: param[*] as f32, %g: grad[*] as f32, %m: state "m"[*] as f32) variant <"any", {}, f32> {
    %m1 = step.add %m, %g : [*]
    %s = step.sum %m1 : [*]
    %u = step.mul %m, %s : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %m1
  }
}

// -----

// What is reduced to rows and columns is a vector, kept between phases; a mean
// over all rows of an item is had from the rows.

// CHECK-LABEL: step.optimizer @factored
step.optimizer @factored {
  // CHECK: workspace = [#step.buffer<"temp0", ["B", "N"], f32, false>, #step.buffer<"temp1", ["B", "M"], f32, false>, #step.buffer<"temp2", ["B"], f32, false>, #step.buffer<"partial0", ["B", "N", "ML"], f64, false>, #step.buffer<"partial1", ["B", "NL", "M"], f64, false>, #step.buffer<"partial2", ["B", "N1"], f64, false>]
  // CHECK: step.phase @factored_matrix_0_phase0
  // CHECK-SAME: direction = row, partial = "partial0"
  // CHECK-SAME: direction = column, partial = "partial1"
  // CHECK: step.combine "partial0" sum of tiles to rows mean in "temp0"
  // CHECK: step.combine "partial1" amax of tiles to columns in "temp1"
  // CHECK: step.phase @factored_matrix_0_small0
  // CHECK-SAME: name = "row"
  // CHECK-SAME: writes = true
  // CHECK-SAME: direction = row, partial = "partial2"
  // CHECK-SAME: space = #step<space rows>
  // CHECK: step.combine "partial2" sum of rows to items mean in "temp2"
  // CHECK: step.phase @factored_matrix_0_phase1
  // CHECK-SAME: name = "temp2", shape = !step.tensor<...b, 1, 1>
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
  // CHECK: step.scalars over model attributes {round = 0 : i64}
  %coef = step.scalars over model {
    %finite = step.is_finite %norm2 : f64
    %overflow = step.not %finite : i1
    step.skip_if %overflow
    %c = step.sqrt %norm2 : f64
    step.yield %c : f64
  }
  // CHECK: step.program @clipped_any_0
  // CHECK-SAME: contributions = array<i64: 0, 0, 0>
  // CHECK: step.phase @clipped_any_0_phase0
  // CHECK-NOT: name = "m"
  // CHECK: step.combine "partial0" sum of tiles to tensor slot 0
  // CHECK: step.scalar_phase @clipped_any_0_scalars1 attributes {first_slot = 1 : i64, segment = 1 : i64}
  // CHECK: step.phase @clipped_any_0_phase1
  // CHECK-SAME: name = "m", {{[^>]*}}>, storage = f32, {{[^>]*}}reads = true, writes = true>
  // CHECK-SAME: segment = 1
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
  // CHECK: step.tensor_scalars @left_out_any_0_small0 slots {{[0-9]+}}, 6 writes [[[ALWAYS:[0-9]+]]]
  // CHECK: step.phase @left_out_any_0_phase0 slots {{[0-9]+}} unless [[ALWAYS]]
  // CHECK-SAME: name = "param"
  // CHECK-NOT: name = "grad"
  // CHECK: step.combine {{.*}} unless [[ALWAYS]]
  // CHECK: step.phase @left_out_any_0_phase1 slots {{[0-9]+}} operands
  // CHECK-SAME: name = "grad"
  // CHECK: step.tensor_scalars {{.*}} writes [[[LARGE:[0-9]+]]]
  // CHECK: step.phase @left_out_any_0_phase2 slots {{[0-9]+}} unless [[LARGE]]
  // CHECK: step.combine {{.*}} unless [[LARGE]]
  // CHECK: step.phase @left_out_any_0_phase3
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
  // CHECK: step.phase @trailing_matrix_0_phase0 slots 0 operands
  // CHECK: step.combine "partial0" sum of tiles to rows
  // CHECK-NEXT: step.phase @trailing_matrix_0_small0 slots 0 operands
  // CHECK-SAME: space = #step<space rows>
  // CHECK-NOT: step.combine
  // CHECK: step.phase @trailing_matrix_0_phase1 trailing slots 0 operands
  // CHECK: step.combine "partial1" sum of tiles to columns
  // CHECK: step.combine "partial2" sum of tiles to columns
  // CHECK: step.phase @trailing_matrix_0_phase2 slots 0 operands
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
  // CHECK: step.phase @behind_matrix_0_phase0 slots 0 operands
  // CHECK: step.phase @behind_matrix_0_phase1 trailing slots 0 operands
  // CHECK: step.phase @behind_matrix_0_phase2 slots 0 unless {{[0-9]+}} operands
  // CHECK: step.phase @behind_matrix_0_phase3 slots 0 operands
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
  // CHECK: step.phase @before_matrix_0_phase0 slots 0 operands
  // CHECK: step.phase @before_matrix_0_phase1 slots 0 unless {{[0-9]+}} operands
  // CHECK: step.phase @before_matrix_0_phase2 slots 0 operands
  // CHECK: step.phase @before_matrix_0_phase3 slots 0 operands
  // CHECK-NOT: step.phase
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
