// RUN: split-file %s %t
// RUN: sed 's/LAYOUT/m = ["tp"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-programs | FileCheck %s --check-prefix=COLUMNS
// RUN: sed 's/LAYOUT/n = ["dp"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-programs | FileCheck %s --check-prefix=ROWS
// RUN: sed 's/LAYOUT/m = ["tp"], n = ["dp"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-programs | FileCheck %s --check-prefix=BOTH
// RUN: sed 's/LAYOUT/"flat range" = ["dp"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-programs | FileCheck %s --check-prefix=FLAT
// RUN: sed 's/LAYOUT/"...b" = ["ep"]/' %t/factored.mlir | stepc-opt --step-insert-collectives --step-verify-sharded --step-form-programs | FileCheck %s --check-prefix=ITEMS
// RUN: stepc-opt --step-insert-collectives --step-form-programs %t/lamb.mlir | FileCheck %s --check-prefix=LAMB
// RUN: stepc-opt --step-insert-collectives --step-form-programs %t/clipped.mlir | FileCheck %s --check-prefix=CLIPPED
// RUN: stepc-opt --step-insert-collectives --step-form-programs %t/skipped.mlir | FileCheck %s --check-prefix=SKIPPED
// RUN: stepc-opt --step-insert-collectives --step-form-programs %t/elements.mlir | FileCheck %s --check-prefix=ELEMENTS

// Columns on other ranks: rows are shares of sums, and their mean is whole; what needs no
// rank is done before the round.
// COLUMNS: step.program
// COLUMNS: %[[TILES:.*]]:2 = step.traverse @factored_phase0
// COLUMNS: %[[SHARE:.*]] = step.combine %[[TILES]]#0 : {{.*}} -> !step.share<sum, [...b, n, m] to [...b, n, 1]>
// COLUMNS: step.combine mean %[[TILES]]#1 : {{.*}} -> !step.buffer<[...b, 1, m], f32>
// COLUMNS: step.traverse @factored_small0 over [...b, 1, m]
// COLUMNS: %[[SUM:.*]] = step.exchange round 0 (%[[SHARE]] over ["m"] : !step.share<sum, [...b, n, m] to [...b, n, 1]>)
// COLUMNS: step.receive mean %[[SUM]] : {{.*}} -> !step.buffer<[...b, n, 1], f32>
// COLUMNS: %[[SMALL:.*]]:3 = step.traverse @factored_small1 over [...b, n, 1]
// COLUMNS: step.combine mean %[[SMALL]]#2 : {{.*}} -> !step.buffer<[...b, 1, 1], f32>
// COLUMNS: step.traverse @factored_phase1
// COLUMNS: %[[SHARE1:.*]] = step.combine {{.*}} -> !step.share<sum, [...b, n, m] to []>
// COLUMNS: %[[SUM1:.*]] = step.exchange round 1 (%[[SHARE1]] over ["m"] :
// COLUMNS: step.receive mean %[[SUM1]] : {{.*}} -> f64
// COLUMNS: step.traverse @factored_phase2

// Rows on other ranks: columns are shares, and so is the mean of all rows, which takes
// part in their round. What is made of rows before it is used after it, and so kept.
// ROWS: step.program
// ROWS: %[[TILES:.*]]:2 = step.traverse @factored_phase0
// ROWS: step.combine mean %[[TILES]]#0 : {{.*}} -> !step.buffer<[...b, n, 1], f32>
// ROWS: %[[SHARE:.*]] = step.combine %[[TILES]]#1 : {{.*}} -> !step.share<sum, [...b, n, m] to [...b, 1, m]>
// ROWS: %[[SMALL:.*]]:3 = step.traverse @factored_small0 over [...b, n, 1]
// ROWS: %[[MEAN:.*]] = step.combine %[[SMALL]]#2 : {{.*}} -> !step.share<sum, [...b, n, 1] to [...b, 1, 1]>
// ROWS: %[[SUMS:.*]]:2 = step.exchange round 0 (%[[SHARE]] over ["n"] : {{.*}}, %[[MEAN]] over ["n"] :
// ROWS: step.receive mean %[[SUMS]]#0 : {{.*}} -> !step.buffer<[...b, 1, m], f32>
// ROWS: step.receive mean %[[SUMS]]#1 : {{.*}} -> !step.buffer<[...b, 1, 1], f32>
// ROWS: step.traverse @factored_phase1 {{.*}} = %[[SMALL]]#1 : <[...b, n, 1], f32>
// ROWS: %[[SHARE1:.*]] = step.combine {{.*}} -> !step.share<sum, [...b, n, m] to []>
// ROWS: step.exchange round 1 (%[[SHARE1]] over ["n"] :
// ROWS: step.traverse @factored_phase2

// Both: the mean of all rows waits for the rows.
// BOTH: step.program
// BOTH: step.exchange round 0 (%{{.*}} over ["m"] : !step.share<sum, [...b, n, m] to [...b, n, 1]>, %{{.*}} over ["n"] : !step.share<sum, [...b, n, m] to [...b, 1, m]>)
// BOTH: %[[MEAN:.*]] = step.combine {{.*}} -> !step.share<sum, [...b, n, 1] to [...b, 1, 1]>
// BOTH: %[[SUM:.*]] = step.exchange round 1 (%[[MEAN]] over ["n"] :
// BOTH: step.receive mean %[[SUM]] : {{.*}} -> !step.buffer<[...b, 1, 1], f32>
// BOTH: step.traverse @factored_phase1
// BOTH: step.exchange round 2 (%{{.*}} over ["n", "m"] : !step.share<sum, [...b, n, m] to []>)
// BOTH: step.traverse @factored_phase2

// Whole rows and columns of a flat range cross, and what is had from them is not reduced
// again.
// FLAT: step.program
// FLAT: step.exchange round 0 (%{{.*}} over ["flat range"] : !step.share<sum, [...b, n, m] to [...b, n, 1]>, %{{.*}} over ["flat range"] : !step.share<sum, [...b, n, m] to [...b, 1, m]>)
// FLAT: step.combine mean %{{.*}} : !step.partial<sum, [...b, n, 1] to [...b, 1, 1]> -> !step.buffer<[...b, 1, 1], f32>
// FLAT: step.exchange round 1 (%{{.*}} over ["flat range"] : !step.share<sum, [...b, n, m] to []>)
// FLAT: step.traverse @factored_phase2

// Items on other ranks: only what is of the whole tensor crosses.
// ITEMS: step.program
// ITEMS-NOT: !step.share
// ITEMS: step.combine {{.*}} -> !step.share<sum, [...b, n, m] to []>
// ITEMS-NOT: -> !step.share
// ITEMS: step.exchange round 0 (%{{[0-9]+}} over ["...b"] : !step.share<sum, [...b, n, m] to []>)
// ITEMS-NOT: step.exchange
// ITEMS: step.traverse @factored_phase2

//--- factored.mlir
step.optimizer @factors {
  step.rule @factored(%p: param[...b, n, m] as f32, %g: grad[...b, n, m] as f32, %r: state "r"[...b, n, 1] as f32, %c: state "c"[...b, 1, m] as f32)
      variant <"matrix", {}, f32, <{LAYOUT}>> {
    %rows = step.mean %g over [m] : [...b, n, m]
    %cols = step.mean %g over [n] : [...b, n, m]
    %r1 = step.add %r, %rows : [...b, n, 1]
    %c1 = step.add %c, %cols : [...b, 1, m]
    %mean = step.mean %r1 over [n] : [...b, n, 1]
    %a = step.mul %g, %c1 : [...b, n, m], [...b, 1, m]
    %b = step.mul %a, %r1 : [...b, n, m], [...b, n, 1]
    %u = step.mul %b, %mean : [...b, n, m], [...b, 1, 1]
    %uu = step.mul %u, %u : [...b, n, m]
    %rms = step.mean %uu : [...b, n, m]
    %v = step.mul %u, %rms : [...b, n, m], f64
    %p1 = step.sub %p, %v : [...b, n, m]
    step.return %p1, %r1, %c1 : [...b, n, m], [...b, n, 1], [...b, 1, m]
  }
}

// Both norms cross in one round, and the second traversal follows. Of the twin without a
// layout nothing crosses.
// LAMB: step.program @lamb_any_0(
// LAMB-NOT: step.exchange
// LAMB: step.program @lamb_any_1({{.*}}<{"flat range" = ["dp"]}>
// LAMB: %[[TILES:.*]]:2 = step.traverse @lamb_any_1_phase0
// LAMB: %[[A:.*]] = step.combine %[[TILES]]#0 : {{.*}} -> !step.share<sum, [*] to []>
// LAMB: %[[B:.*]] = step.combine %[[TILES]]#1 : {{.*}} -> !step.share<amax, [*] to []>
// LAMB: %[[TWO:.*]]:2 = step.exchange round 0 (%[[A]] over ["flat range"] : !step.share<sum, [*] to []>, %[[B]] over ["flat range"] : !step.share<amax, [*] to []>)
// LAMB: %[[SUM:.*]] = step.receive %[[TWO]]#0 : {{.*}} -> f64
// LAMB: %[[MAX:.*]] = step.receive %[[TWO]]#1 : {{.*}} -> f64
// LAMB: arith.divf %[[SUM]], %[[MAX]] : f64
// LAMB: step.traverse @lamb_any_1_phase1
// LAMB-NOT: step.exchange

//--- lamb.mlir
step.optimizer @lamb {
  step.rule @lamb_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %pp = step.mul %p, %p : [*]
    %a = step.sum %pp : [*]
    %b = step.amax %g : [*]
    %ratio = step.div %a, %b : f64
    %u = step.mul %g, %ratio : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
  step.rule @lamb_any_1(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}>> {
    %pp = step.mul %p, %p : [*]
    %a = step.sum %pp : [*]
    %b = step.amax %g : [*]
    %ratio = step.div %a, %b : f64
    %u = step.mul %g, %ratio : [*], f64
    %p1 = step.sub %p, %u : [*]
    step.return %p1
  }
}

// What goes to a statistic is a part of it; a sum that the rule uses too is whole, in the
// segment after it has crossed.
// CLIPPED: step.scalars over model attributes {round = 0 : i64}
// CLIPPED: step.program @clipped_any_0(
// CLIPPED-NOT: !step.share
// CLIPPED: %[[PART:.*]] = step.combine {{.*}} -> f64
// CLIPPED: step.contribute %norm2, %[[PART]] partial ["*"]
// CLIPPED: step.exchange round 0{{$}}
// CLIPPED: step.traverse @clipped_any_0_phase1
// CLIPPED: step.program @clipped_whole_1(
// CLIPPED: %[[SHARE:.*]] = step.combine {{.*}} -> !step.share<sum, [n] to []>
// CLIPPED: %[[ALL:.*]] = step.exchange round 0 (%[[SHARE]] over ["n"] :
// CLIPPED: %[[WHOLE:.*]] = step.receive %[[ALL]] : {{.*}} -> f64
// CLIPPED: step.contribute %other, %[[WHOLE]]{{$}}

//--- clipped.mlir
step.optimizer @clipped {
  %norm2 = step.statistic "norm2" sum over model
  %other = step.statistic "other" sum over model
  %coef = step.scalars over model {
    %c = step.sqrt %norm2 : f64
    step.yield %c : f64
  }
  %late = step.scalars over model {
    %c = step.sqrt %other : f64
    step.report "other", %c
    step.yield %c : f64
  }
  step.rule @clipped_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"*" = ["dp"]}>> {
    %gg = step.mul %g, %g : [*]
    %s = step.sum %gg : [*]
    step.contribute %norm2, %s
    %g1 = step.mul %g, %coef : [*], f64
    %p1 = step.sub %p, %g1 : [*]
    step.return %p1
  }
  step.rule @clipped_whole_1(%p: param[n] as f32, %g: grad[n] as f32) variant <"whole", {}, f32, <{n = ["dp"]}>> {
    %gg = step.mul %g, %g : [n]
    %s = step.sum %gg : [n]
    step.contribute %other, %s
    %g1 = step.mul %g, %s : [n], f64
    %p1 = step.sub %p, %g1 : [n]
    step.return %p1 : [n]
  }
}

// What crosses is needed before the round that may skip the step, but the state that it
// is had from is not written before.
// SKIPPED: step.program @skipped
// SKIPPED: %[[SMALL:.*]]:2 = step.traverse @skipped_small0 over [n, 1]
// SKIPPED-SAME: = %r : <[n, 1], f32>,
// SKIPPED-SAME: ) makes (f32) partials (sum to [1, 1])
// SKIPPED: step.combine %[[SMALL]]#1 : {{.*}} -> !step.share
// SKIPPED: step.exchange round 0
// SKIPPED: step.traverse @skipped_small1 over [n, 1] reads (%[[R:.*]] = %[[SMALL]]#0 : <[n, 1], f32>) writes (%r : <[n, 1], f32>) {
// SKIPPED-NEXT: step.yield %[[R]]

//--- skipped.mlir
step.optimizer @skip {
  %most = step.statistic "most" amax over model
  step.scalars over model {
    %inf = step.constant 0x7FF0000000000000
    %over = step.compare ge, %most, %inf : f64
    step.skip_if %over
    step.yield
  }
  step.rule @skipped(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"matrix", {}, f32, <{n = ["dp"]}>> {
    %top = step.amax %g : [n, m]
    step.contribute %most, %top
    %rows = step.mean %g over [m] : [n, m]
    %r1 = step.add %r, %rows : [n, 1]
    %mean = step.mean %r1 over [n] : [n, 1]
    %u = step.mul %g, %mean : [n, m], [1, 1]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %r1 : [n, m], [n, 1]
  }
}

// Elementwise programs lose their layout, whatever another rule exchanges, and of twins one
// is left; another storage is no twin.
// ELEMENTS: step.program @plain(%param: param[*] as f32, {{.*}}) variant <"any", {}, f32> elementwise {
// ELEMENTS: step.program @half(%param: param[*] as bf16, {{.*}}) variant <"any", {}, f32> elementwise {
// ELEMENTS: step.program @matrix({{.*}}) variant <"matrix", {}, f32, <{n = ["dp"]}>> {
// ELEMENTS: step.exchange round 0 (%
// ELEMENTS-NOT: step.program

//--- elements.mlir
step.optimizer @elements {
  step.rule @plain(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @columns(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"*" = ["tp"]}>> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @half(%p: param[*] as bf16, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}>> {
    %p1 = step.sub %p, %g : [*]
    %p2 = step.round %p1 to bf16 : [*]
    step.return %p2
  }
  step.rule @matrix(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32, <{n = ["dp"]}>> {
    %s = step.sum %g : [n, m]
    %p1 = step.mul %p, %s : [n, m], f64
    step.return %p1 : [n, m]
  }
}
