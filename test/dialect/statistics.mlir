// Tests the syntax of statistics, kept scalars, what is made of them, of rules'
// conditions, and of fragments.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: step.optimizer @everything {
step.optimizer @everything {
  // CHECK-NEXT: %max_norm = step.hyper "max_norm" = 1.0
  %0 = step.hyper "max_norm" = 1.0
  // CHECK-NEXT: %factored = step.option "factored" = true
  %1 = step.option "factored" = true
  // CHECK-NEXT: %min = step.option "min" = 128
  %2 = step.option "min" = 128
  // CHECK-NEXT: %least = step.option "least" = -3
  %3 = step.option "least" = -3
  // CHECK-NEXT: %norm2 = step.statistic "norm2" sum over model
  %4 = step.statistic "norm2" sum over model
  // CHECK-NEXT: %largest = step.statistic "largest" amax over group
  %5 = step.statistic "largest" amax over group
  // CHECK-NEXT: %scale = step.scalar "scale" = 65536.0 over model
  %6 = step.scalar "scale" = 65536.0 over model
  // CHECK-NEXT: %d = step.scalar "d" = 1.0e-06 over group {note = "kept"}
  %7 = step.scalar "d" = 1.0e-6 over group {note = "kept"}

  // CHECK-NEXT: %[[MODEL:.*]]:2 = step.scalars over model {
  %8, %9 = step.scalars over model {
    // CHECK-NEXT: %[[NORM:.*]] = step.sqrt %norm2 : f64
    %norm = step.sqrt %4 : f64
    // CHECK-NEXT: %[[FINITE:.*]] = step.is_finite %[[NORM]] : f64
    %finite = step.is_finite %norm : f64
    // CHECK-NEXT: %[[OVERFLOW:.*]] = step.not %[[FINITE]] : i1
    %overflow = step.not %finite : i1
    // CHECK-NEXT: %[[SKIP:.*]] = step.and %[[OVERFLOW]], %factored : i1
    %skip = step.and %overflow, %1 : i1
    // CHECK-NEXT: step.update %scale, %[[NORM]] always
    step.update %6, %norm always
    // CHECK-NEXT: step.report "grad_norm", %[[NORM]]
    step.report "grad_norm", %norm
    // CHECK-NEXT: step.skip_if %[[SKIP]]
    step.skip_if %skip
    // CHECK-NEXT: step.yield %[[NORM]], %[[FINITE]] : f64, i1
    step.yield %norm, %finite : f64, i1
  }
  // CHECK: %[[GROUP:.*]] = step.scalars over group attributes {note = "kept"} {
  %10 = step.scalars over group attributes {note = "kept"} {
    // CHECK-NEXT: %[[D:.*]] = step.add %[[MODEL]]#0, %largest : f64
    %d1 = step.add %8, %5 : f64
    // CHECK-NEXT: step.update %d, %[[D]]{{$}}
    step.update %7, %d1
    // CHECK-NEXT: step.yield %[[D]] : f64
    step.yield %d1 : f64
  }
  // CHECK: step.scalars over model {
  // CHECK-NEXT: step.yield{{$}}
  step.scalars over model { step.yield }

  // CHECK: step.rule @matrix(%param: param[...b, n, m], %grad: grad[...b, n, m]) where
  // CHECK-SAME: rank ge 2, extent -1 ge %min, extent 0 lt 7, rank ne %least, %factored, not %factored {
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m])
      where rank ge 2, extent -1 ge %2, extent 0 lt 7, rank ne %3, %1, not %1 {
    step.return %p : [...b, n, m]
  }

  // CHECK: step.rule @guarded(
  // CHECK-SAME: state "m"[*] if %factored) where extent -2 eq %min attributes {note = "kept"} {
  step.rule @guarded(%p: param[*], %g: grad[*], %m: state "m"[*] if %1)
      where extent -2 eq %2 attributes {note = "kept"} {
    step.return %p, %m
  }

  // CHECK: step.rule @any
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK-NEXT: %[[SUM:.*]] = step.sum %grad : [*]
    %s = step.sum %g : [*]
    // CHECK-NEXT: step.contribute %norm2, %[[SUM]]
    step.contribute %4, %s
    // CHECK-NEXT: %[[LATER:.*]] = step.mul %[[SUM]], %[[MODEL]]#0 : f64
    %later = step.mul %s, %8 : f64
    // CHECK-NEXT: step.contribute %largest, %[[LATER]]
    step.contribute %5, %later
    // CHECK-NEXT: %[[MASK:.*]] = step.is_finite %grad : [*]
    %mask = step.is_finite %g : [*]
    // CHECK-NEXT: %[[OR:.*]] = step.or %[[MASK]], %[[MODEL]]#1 : mask[*], i1
    %or = step.or %mask, %9 : mask[*], i1
    // CHECK-NEXT: %[[NOT:.*]] = step.not %[[OR]] : mask[*]
    %not = step.not %or : mask[*]
    // CHECK-NEXT: %[[BOTH:.*]] = step.and %[[OR]], %[[NOT]] : mask[*]{{$}}
    %both = step.and %or, %not : mask[*]
    // CHECK-NEXT: step.select %[[BOTH]], %{{.*}}, %d : mask[*], f64
    %new = step.select %both, %10, %7 : mask[*], f64
    step.return %new
  }
}

// CHECK-LABEL: step.fragment @clip {
step.fragment @clip {
  // CHECK-NEXT: %norm2 = step.statistic "norm2" sum over group
  %0 = step.statistic "norm2" sum over group
  // CHECK-NEXT: step.rule @any(%grad: grad[*], %count: count, %fresh: fresh) {
  step.rule @any(%g: grad[*], %t: count, %f: fresh) {
    // CHECK-NEXT: %[[SUM:.*]] = step.sum %grad
    // CHECK-NEXT: step.contribute %norm2, %[[SUM]]
    %s = step.sum %g : [*]
    step.contribute %0, %s
    // CHECK-NEXT: step.return %grad{{$}}
    step.return %g
  }
}
