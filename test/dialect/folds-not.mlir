// Tests that folds which would change a value for some input do not happen.
// RUN: stepc-opt %s -canonicalize -split-input-file | FileCheck %s

// -0 + 0 is 0.
// CHECK-LABEL: step.optimizer @add_zero
step.optimizer @add_zero {
  %zero = step.constant 0.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.add %grad, %{{.*}} : [*], f64
    // CHECK-NEXT: step.add %{{.*}}, %{{.*}} : f64, [*]
    %0 = step.add %g, %zero : [*], f64
    %1 = step.add %zero, %0 : f64, [*]
    %2 = step.neg %1 : [*]
    step.return %2
  }
}

// -----

// 0 - (-0) is 0, 0 - x is not -x for x = 0, and -0 - (-0) is 0.
// CHECK-LABEL: step.optimizer @sub
step.optimizer @sub {
  %zero = step.constant 0.0
  %minus = step.constant -0.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.sub %grad, %{{.*}} : [*], f64
    // CHECK-NEXT: step.sub %{{.*}}, %{{.*}} : f64, [*]
    // NaN and infinity differ from zero when subtracted from themselves.
    // CHECK-NEXT: step.sub %[[X:.*]], %[[X]] : [*]
    %0 = step.sub %g, %minus : [*], f64
    %1 = step.sub %zero, %0 : f64, [*]
    %2 = step.sub %1, %1 : [*]
    %3 = step.neg %2 : [*]
    step.return %3
  }
}

// -----

// Infinity and NaN times zero are NaN; -1 times x is x with another sign, but
// for NaN, whose sign it may keep.
// CHECK-LABEL: step.optimizer @mul
step.optimizer @mul {
  %zero = step.constant 0.0
  %minus_one = step.constant -1.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.mul %grad, %{{.*}} : [*], f64
    // CHECK-NEXT: step.mul %{{.*}}, %{{.*}} : [*], f64
    %0 = step.mul %g, %zero : [*], f64
    %1 = step.mul %0, %minus_one : [*], f64
    %2 = step.neg %1 : [*]
    step.return %2
  }
}

// -----

// Not a multiplication by the reciprocal; and 1 / x, x / x stay what they are.
// CHECK-LABEL: step.optimizer @div
step.optimizer @div {
  %one = step.constant 1.0
  %two = step.constant 2.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.div %grad, %{{.*}} : [*], f64
    // CHECK-NEXT: step.div %{{.*}}, %{{.*}} : f64, [*]
    // CHECK-NEXT: step.div %[[X:.*]], %[[X]] : [*]
    %0 = step.div %g, %two : [*], f64
    %1 = step.div %one, %0 : f64, [*]
    %2 = step.div %1, %1 : [*]
    %3 = step.neg %2 : [*]
    step.return %3
  }
}

// -----

// Sums and products are not put in another order, nor constants gathered.
// CHECK-LABEL: step.optimizer @order
step.optimizer @order {
  %a = step.constant 0.1
  %b = step.constant 0.2
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[SUM:.*]] = step.add %grad, %[[A:.*]] : [*], f64
    // CHECK-NEXT: step.add %[[SUM]], %[[B:.*]] : [*], f64
    // CHECK-NEXT: %[[PRODUCT:.*]] = step.mul %{{.*}}, %[[A]] : [*], f64
    // CHECK-NEXT: step.mul %[[B]], %[[PRODUCT]] : f64, [*]
    %0 = step.add %g, %a : [*], f64
    %1 = step.add %0, %b : [*], f64
    %2 = step.mul %1, %a : [*], f64
    %3 = step.mul %b, %2 : f64, [*]
    %4 = step.neg %3 : [*]
    step.return %4
  }
}

// -----

// A NaN's bits are not the language's business: what makes one stays.
// CHECK-LABEL: step.optimizer @makes_nan
step.optimizer @makes_nan {
  %zero = step.constant 0.0
  %minus_one = step.constant -1.0
  %inf = step.constant 0x7FF0000000000000
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.sqrt %{{.*}} : f64
    // CHECK-NEXT: step.div %{{.*}}, %{{.*}} : f64
    // CHECK-NEXT: step.sub %{{.*}}, %{{.*}} : f64
    // CHECK-NEXT: step.lerp
    %0 = step.sqrt %minus_one : f64
    %1 = step.div %zero, %zero : f64
    %2 = step.sub %inf, %inf : f64
    %3 = step.lerp %inf, %inf, %zero : f64
    %4 = step.mul %g, %0 : [*], f64
    %5 = step.mul %4, %1 : [*], f64
    %6 = step.mul %5, %2 : [*], f64
    %7 = step.mul %6, %3 : [*], f64
    step.return %7
  }
}

// -----

// Both pass NaN on, from either side.
// CHECK-LABEL: step.optimizer @takes_nan
step.optimizer @takes_nan {
  %one = step.constant 1.0
  %nan = step.constant 0x7FF8000000000000
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.maximum %{{.*}}, %{{.*}} : f64
    // CHECK-NEXT: step.maximum %{{.*}}, %{{.*}} : f64
    // CHECK-NEXT: step.minimum %{{.*}}, %{{.*}} : f64
    // CHECK-NEXT: step.minimum %{{.*}}, %{{.*}} : f64
    %0 = step.maximum %nan, %one : f64
    %1 = step.maximum %one, %nan : f64
    %2 = step.minimum %nan, %one : f64
    %3 = step.minimum %one, %nan : f64
    %4 = step.mul %g, %0 : [*], f64
    %5 = step.mul %4, %1 : [*], f64
    %6 = step.mul %5, %2 : [*], f64
    %7 = step.mul %6, %3 : [*], f64
    step.return %7
  }
}

// -----

// A comparison with itself is not decided: NaN.
// CHECK-LABEL: step.optimizer @compare_same
step.optimizer @compare_same {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.compare eq, %grad, %grad
    // CHECK-NEXT: step.select
    %0 = step.compare eq, %g, %g : [*]
    %1 = step.select %0, %p, %g : mask[*], [*]
    step.return %1
  }
}

// -----

// A hyper-parameter and an option are known neither here nor by their defaults.
// CHECK-LABEL: step.optimizer @unknown
step.optimizer @unknown {
  %lr = step.hyper "lr" = 1.0
  %o = step.option "o" = true
  step.rule @any(%p: param[*], %g: grad[*], %t: count) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.mul %grad, %lr
    // CHECK-NEXT: step.select %o
    // CHECK-NEXT: step.powi
    // CHECK-NEXT: step.to_f64
    // CHECK-NEXT: step.pow
    %0 = step.mul %g, %lr : [*], f64
    %1 = step.select %o, %0, %p : [*]
    %2 = step.powi %lr, %t
    %3 = step.to_f64 %t
    %4 = step.pow %3, %2
    %5 = step.mul %1, %4 : [*], f64
    step.return %5
  }
}

// -----

// The value has another shape than the result, which a fold would have to
// broadcast.
// CHECK-LABEL: step.optimizer @shapes
step.optimizer @shapes {
  %yes = step.constant true
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.select %{{.*}}, %row, %grad : [n, 1], [n, m]
    // CHECK-NEXT: %[[MASK:.*]] = step.compare
    // CHECK-NEXT: step.select %[[MASK]], %row, %row : mask[n, m], [n, 1]
    %0 = step.select %yes, %r, %g : [n, 1], [n, m]
    %1 = step.compare lt, %p, %g : [n, m]
    %2 = step.select %1, %r, %r : mask[n, m], [n, 1]
    %3 = step.add %0, %2 : [n, m]
    step.return %3, %r : [n, m], [n, 1]
  }
}

// -----

// What step.return stores is rounded where it is defined. Replacing it would
// round the gradient, or the parameter, in its other uses as well.
// CHECK-LABEL: step.optimizer @stored
step.optimizer @stored {
  %one = step.constant 1.0
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %o: state "o"[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[M:.*]] = step.mul %grad, %{{.*}} : [*], f64
    // CHECK-NEXT: %[[NEG:.*]] = step.neg %grad
    // CHECK-NEXT: %[[O:.*]] = step.neg %[[NEG]]
    // CHECK-NEXT: %[[P:.*]] = step.sub %[[O]], %grad
    // CHECK-NEXT: step.return %[[P]], %[[M]], %[[O]]
    %0 = step.mul %g, %one : [*], f64
    %1 = step.neg %g : [*]
    %2 = step.neg %1 : [*]
    %3 = step.sub %2, %g : [*]
    step.return %3, %0, %2
  }
}

// -----

// The inner value is rounded: what is made of it is not what it was made of.
// CHECK-LABEL: step.optimizer @inner_stored
step.optimizer @inner_stored {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[M:.*]] = step.neg %grad
    // CHECK-NEXT: %[[BACK:.*]] = step.neg %[[M]]
    // CHECK-NEXT: %[[P:.*]] = step.add %param, %[[BACK]]
    // CHECK-NEXT: step.return %[[P]], %[[M]]
    %0 = step.neg %g : [*]
    %1 = step.neg %0 : [*]
    %2 = step.add %p, %1 : [*]
    step.return %2, %0
  }
}

// -----

// Nor does anything see through a mark or a rounding.
// CHECK-LABEL: step.optimizer @marked
step.optimizer @marked {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[NEG:.*]] = step.neg %grad
    // CHECK-NEXT: %[[M:.*]] = step.stored %[[NEG]] as [2]
    // CHECK-NEXT: %[[BACK:.*]] = step.neg %[[M]]
    // CHECK-NEXT: %[[ROUND:.*]] = step.round %[[BACK]] to bf16
    // CHECK-NEXT: %[[TWICE:.*]] = step.round %[[ROUND]] to f32
    // CHECK-NEXT: step.return %[[TWICE]], %[[M]]
    %0 = step.neg %g : [*]
    %1 = step.stored %0 as [2] : [*]
    %2 = step.neg %1 : [*]
    %3 = step.round %2 to bf16 : [*]
    %4 = step.round %3 to f32 : [*]
    step.return %4, %1
  }
}

// -----

// Conditions of elements are no i1 that could decide the result.
// CHECK-LABEL: step.optimizer @logical
step.optimizer @logical {
  %no = step.constant false
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.is_finite
    // CHECK-NEXT: step.and
    // CHECK-NEXT: step.select
    %mask = step.is_finite %g : [*]
    %0 = step.and %mask, %no : mask[*], i1
    %1 = step.select %0, %g, %p : mask[*], [*]
    step.return %1
  }
}

// -----

// Sums are rounded, and there may be no elements.
// CHECK-LABEL: step.optimizer @reductions
step.optimizer @reductions {
  %c = step.constant 0.1
  step.rule @any(%p: param[n, m], %g: grad[n, m], %r: state "row"[n, 1]) {
    // CHECK: step.broadcast
    // CHECK-NEXT: step.mean
    // CHECK-NEXT: step.sum
    // CHECK-NEXT: step.sum %{{.*}} over [n]
    // CHECK-NEXT: step.amax
    %0 = step.broadcast %c : f64 to [n, m]
    %1 = step.mean %0 : [n, m]
    %2 = step.sum %0 over [m] : [n, m]
    %3 = step.sum %2 over [n] : [n, 1]
    %4 = step.amax %0 : [n, m]
    %5 = step.mul %g, %1 : [n, m], f64
    %6 = step.mul %5, %4 : [n, m], f64
    %7 = step.mul %6, %3 : [n, m], [1, 1]
    step.return %7, %r : [n, m], [n, 1]
  }
}

// -----

// What changes something stays, though nothing reads a result.
// CHECK-LABEL: step.optimizer @effects
step.optimizer @effects {
  %a = step.statistic "a" sum over model
  %b = step.scalar "b" = 0.0 over model
  // CHECK: step.scalars
  // CHECK-NEXT: step.update
  // CHECK: step.scalars
  // CHECK-NEXT: step.report
  // CHECK: step.scalars
  // CHECK-NEXT: step.is_finite
  // CHECK-NEXT: step.skip_if
  %0 = step.scalars over model {
    step.update %b, %a
    step.yield %a : f64
  }
  step.scalars over model {
    step.report "a", %a
    step.yield
  }
  step.scalars over model {
    %1 = step.is_finite %a : f64
    step.skip_if %1
    step.yield
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.sum
    // CHECK-NEXT: step.contribute
    %s = step.sum %g : [*]
    step.contribute %a, %s
    step.return %p
  }
}
