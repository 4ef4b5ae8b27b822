// Tests --step-reproduce-sums: sums of terms that are rounded before they are added.
// RUN: stepc-opt --step-reproduce-sums --split-input-file %s | FileCheck %s

// A square has no opposite; L is found and divided by, then five terms of 18 bits each are
// taken off, and the smallest are added first.
step.optimizer @square {
  // CHECK-LABEL: step.rule @square_0
  step.rule @square_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"square", {}, f32> {
    %gg = step.mul %g, %g : [n, m]
    // CHECK: %[[GG:.*]] = step.mul %grad, %grad
    // CHECK: %[[HIGH:.*]] = step.amax %[[GG]] over [m] : [n, m]
    // CHECK-NOT: step.amax
    // CHECK: %[[SIZE:.*]] = step.maximum %[[HIGH]], %{{.*}} : [n, 1], f64
    // CHECK: %[[FINITE:.*]] = step.is_finite %[[SIZE]] : [n, 1]
    // CHECK: step.constant 18446744073709551616.0
    // CHECK: %[[LARGE:.*]] = step.compare ge, %[[SIZE]]
    // CHECK: %[[SHRINK:.*]] = step.select %[[LARGE]]
    // CHECK: %[[GROW:.*]] = step.select %[[LARGE]]
    // CHECK: %[[SMALL:.*]] = step.mul %[[SIZE]], %[[SHRINK]] : [n, 1]
    // CHECK: step.constant 16777216.0
    // CHECK: %[[Q:.*]] = step.mul %[[SMALL]], %{{.*}} : [n, 1], f64
    // CHECK: %[[NEXT:.*]] = step.add %[[Q]], %[[SMALL]] : [n, 1]
    // CHECK: %[[POWER:.*]] = step.sub %[[NEXT]], %[[Q]] : [n, 1]
    // CHECK: %[[IS_POWER:.*]] = step.compare eq, %[[POWER]]
    // CHECK: %[[L:.*]] = step.select %[[IS_POWER]], %[[SMALL]], %[[POWER]]
    // CHECK: %[[UP:.*]] = step.maximum %[[L]]
    // CHECK: %[[INVERSE:.*]] = step.div %{{.*}}, %[[UP]] : f64, [n, 1]
    // CHECK: %[[DOWN:.*]] = step.mul %[[INVERSE]], %[[SHRINK]]
    // CHECK: %[[Y:.*]] = step.mul %[[GG]], %[[DOWN]] : [n, m], [n, 1]
    // CHECK: %[[C1:.*]] = step.constant 96.0
    // CHECK: %[[S1:.*]] = step.add %[[Y]], %[[C1]] : [n, m], f64
    // CHECK: %[[H1:.*]] = step.sub %[[S1]], %[[C1]] : [n, m], f64
    // CHECK: %[[Y2:.*]] = step.sub %[[Y]], %[[H1]] : [n, m]
    // CHECK: %[[H2:.*]] = step.sub %{{.*}}, %{{.*}} : [n, m], f64
    // CHECK: %[[H3:.*]] = step.sub %{{.*}}, %{{.*}} : [n, m], f64
    // CHECK: %[[H4:.*]] = step.sub %{{.*}}, %{{.*}} : [n, m], f64
    // CHECK: %[[H5:.*]] = step.sub %{{.*}}, %{{.*}} : [n, m], f64
    // CHECK: %[[SUM:.*]] = step.mean %[[H5]], %[[H4]], %[[H3]], %[[H2]], %[[H1]] over [m] : [n, m]
    // CHECK: %[[TIMES:.*]] = step.mul %[[SUM]], %[[UP]]
    // CHECK: %[[SCALED:.*]] = step.mul %[[TIMES]], %[[GROW]]
    // CHECK: %[[RESULT:.*]] = step.select %[[FINITE]], %[[SCALED]], %[[HIGH]] : mask[n, 1], [n, 1]
    %row = step.mean %gg over [m] : [n, m]
    // An amax has no order.
    // CHECK: step.amax %grad over [m]
    // CHECK: step.return %param, %[[RESULT]]
    %largest = step.amax %g over [m] : [n, m]
    step.return %p, %row : [n, m], [n, 1]
  }
}

// -----

// Of signs both ends are found, and both say what the sum is where a term is not finite. A
// scalar's power of two is found in f64, its terms are those of the rule's numbers.
step.optimizer @signs {
  // CHECK-LABEL: step.rule @any_0
  step.rule @any_0(%p: param[*] as f64, %g: grad[*] as f64, %f: fresh) variant <"any", {}, f64> {
    // CHECK: %[[HIGH:.*]] = step.amax %grad unless %fresh : [*]
    // CHECK: %[[MINUS:.*]] = step.neg %grad
    // CHECK: %[[LOW:.*]] = step.amax %[[MINUS]] unless %fresh : [*]
    // CHECK: step.maximum %[[HIGH]], %[[LOW]] : f64
    // CHECK: %[[FINITE:.*]] = step.is_finite
    // CHECK: step.constant 9007199254740992.0
    // CHECK: %[[OTHER:.*]] = step.sub %[[HIGH]], %[[LOW]] : f64
    // CHECK: step.constant 51539607552.0
    // CHECK: step.sum %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} unless %fresh : [*]
    // CHECK: step.select %[[FINITE]], %{{.*}}, %[[OTHER]] : f64
    %s = step.sum %g unless %f : [*]
    %p1 = step.mul %p, %s : [*], f64
    step.return %p1
  }
}

// -----

// Of several tensors there is one scale, and terms of one size are together.
step.optimizer @several {
  // CHECK-LABEL: step.rule @any_0
  step.rule @any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %a = step.abs %p : [*]
    %b = step.sqrt %g : [*]
    // CHECK: step.amax %[[A:.*]], %[[B:.*]] : [*]
    // CHECK-NOT: step.amax
    // CHECK: step.sum %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : [*]
    %s = step.sum %a, %b : [*]
    %p1 = step.mul %p, %s : [*], f64
    step.return %p1
  }
}

// -----

// A statistic becomes its largest contribution, then sums of terms. What is read of it is made
// in a step.scalars of its own, and those that were there keep their order.
// CHECK-LABEL: step.optimizer @clipped
step.optimizer @clipped {
  %max_norm = step.hyper "max_norm" = 1.0
  %taken = step.hyper "norm2.high" = 1.0
  // CHECK-NOT: step.statistic "norm2" sum
  // CHECK: %[[HIGH:.*]] = step.statistic "norm2.high_" amax over model
  // CHECK-NEXT: %[[FOLD1:.*]] = step.statistic "norm2.fold1" sum over model
  // CHECK: %[[FOLD5:.*]] = step.statistic "norm2.fold5" sum over model
  // CHECK-NEXT: %[[SCALE:.*]]:5 = step.scalars over model {
  // CHECK: step.yield %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[HIGH]] : f64, f64, f64, i1, f64
  // CHECK: %[[WHOLE:.*]] = step.scalars over model {
  // CHECK: step.add %[[FOLD5]], %{{.*}} : f64
  // CHECK: step.add %{{.*}}, %[[FOLD1]] : f64
  // CHECK: step.mul %{{.*}}, %[[SCALE]]#1 : f64
  // CHECK: step.select %[[SCALE]]#3, %{{.*}}, %[[SCALE]]#4 : f64
  %norm2 = step.statistic "norm2" sum over model
  %largest = step.statistic "largest" amax over model
  // CHECK: step.scalars over model attributes {whole_round = 0 : i64} {
  // CHECK-NEXT: step.sqrt %[[WHOLE]]
  step.scalars over model {
    %norm = step.sqrt %norm2 : f64
    %finite = step.is_finite %norm : f64
    %overflow = step.not %finite : i1
    step.skip_if %overflow
    step.yield
  }
  // CHECK: step.rule @any_0
  step.rule @any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %gg = step.mul %g, %g : [*]
    %s = step.sum %gg : [*]
    // CHECK: %[[MOST:.*]] = step.amax
    // CHECK: %[[SUM:.*]] = step.select %{{.*}}, %{{.*}}, %[[MOST]] : f64
    // CHECK-NEXT: step.contribute %[[HIGH]], %[[SUM]]
    // CHECK: step.mul %[[SUM]], %[[SCALE]]#0 : f64
    // CHECK: step.contribute %[[FOLD1]], %{{.*}}
    // CHECK: step.contribute %[[FOLD5]], %{{.*}}
    step.contribute %norm2, %s
    // CHECK: step.contribute %{{.*}}, %[[SUM]]
    step.contribute %largest, %s
    step.return %p
  }
}
