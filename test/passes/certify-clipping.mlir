// Tests --step-certify-clipping: which means of squares get a condition.
// RUN: stepc-opt --step-certify-clipping --split-input-file %s | FileCheck %s

// The factors of the step before are those of the states, also where a mean over rows
// is part of them; all sums share the traversal that finds the new factors.
step.optimizer @factored {
  %clip = step.hyper "clip" = 1.0
  %one = step.constant 1.0
  // CHECK-LABEL: step.rule @factored_matrix_0
  step.rule @factored_matrix_0(%p: param[...b, n, m] as f32, %g: grad[...b, n, m] as f32, %r: state "r"[...b, n, 1] as f32, %c: state "c"[...b, 1, m] as f32) variant <"matrix", {}, f32> {
    %gg = step.mul %g, %g : [...b, n, m]
    %r1 = step.mean %gg over [m] : [...b, n, m]
    %c1 = step.mean %gg over [n] : [...b, n, m]
    %mean_r = step.mean %r1 over [n] : [...b, n, 1]
    %row = step.div %mean_r, %r1 : [...b, 1, 1], [...b, n, 1]
    %col = step.sqrt %c1 : [...b, 1, m]
    %by_row = step.mul %g, %row : [...b, n, m], [...b, n, 1]
    %u = step.mul %col, %by_row : [...b, 1, m], [...b, n, m]
    %uu = step.mul %u, %u : [...b, n, m]
    // CHECK: %[[OLD_MEAN:.*]] = step.mean %r over [n]
    // CHECK: %[[OLD_ROW:.*]] = step.div %[[OLD_MEAN]], %r
    // CHECK: %[[OLD_COL:.*]] = step.sqrt %c
    // CHECK: %[[BY_ROW:.*]] = step.mul %grad, %[[OLD_ROW]]
    // CHECK: %[[SCALED:.*]] = step.mul %[[BY_ROW]], %[[OLD_COL]]
    // CHECK: %[[SQUARED:.*]] = step.mul %[[SCALED]], %[[SCALED]]
    // CHECK: step.mean %{{.*}} over [m] : [...b, n, m]
    // CHECK: step.mean %{{.*}} over [n] : [...b, n, m]
    // CHECK: %[[PROVED:.*]] = step.compare le, %{{.*}}, %{{.*}} : f64
    // CHECK: %[[BOTH:.*]] = step.and %[[PROVED]], %{{.*}} : i1
    // CHECK: step.mean %{{.*}} unless %[[BOTH]] : [...b, n, m]
    %mean = step.mean %uu : [...b, n, m]
    %rms = step.sqrt %mean : f64
    %excess = step.div %rms, %clip : f64
    %divisor = step.maximum %excess, %one : f64
    %v = step.div %u, %divisor : [...b, n, m], f64
    %p1 = step.sub %p, %v : [...b, n, m]
    step.return %p1, %r1, %c1 : [...b, n, m], [...b, n, 1], [...b, 1, m]
  }
}

// -----

// Not where the mean says more than whether it clips, where the least value is not a
// positive constant, where a factor is missing or needs the tensor itself, and not of a
// sharded tensor.
step.optimizer @others {
  %clip = step.hyper "clip" = 1.0
  %one = step.constant 1.0
  %none = step.constant 0.0
  // CHECK-LABEL: step.rule @others_read_0
  // CHECK-NOT: unless
  step.rule @others_read_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32, %c: state "c"[1, m] as f32) variant <"read", {}, f32> {
    %by_row = step.mul %g, %r : [n, m], [n, 1]
    %u = step.mul %by_row, %c : [n, m], [1, m]
    %uu = step.mul %u, %u : [n, m]
    %mean = step.mean %uu : [n, m]
    %divisor = step.maximum %one, %mean : f64
    %rate = step.mul %divisor, %mean : f64
    %p1 = step.mul %u, %rate : [n, m], f64
    step.return %p1, %r, %c : [n, m], [n, 1], [1, m]
  }
  // CHECK-LABEL: step.rule @others_zero_0
  // CHECK-NOT: unless
  step.rule @others_zero_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32, %c: state "c"[1, m] as f32) variant <"zero", {}, f32> {
    %by_row = step.mul %g, %r : [n, m], [n, 1]
    %u = step.mul %by_row, %c : [n, m], [1, m]
    %uu = step.mul %u, %u : [n, m]
    %mean = step.mean %uu : [n, m]
    %divisor = step.maximum %none, %mean : f64
    %p1 = step.mul %u, %divisor : [n, m], f64
    step.return %p1, %r, %c : [n, m], [n, 1], [1, m]
  }
  // CHECK-LABEL: step.rule @others_row_0
  // CHECK-NOT: unless
  step.rule @others_row_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"row", {}, f32> {
    %u = step.mul %g, %r : [n, m], [n, 1]
    %uu = step.mul %u, %u : [n, m]
    %mean = step.mean %uu : [n, m]
    %divisor = step.maximum %one, %mean : f64
    %p1 = step.mul %u, %divisor : [n, m], f64
    step.return %p1, %r : [n, m], [n, 1]
  }
  // CHECK-LABEL: step.rule @others_own_0
  // CHECK-NOT: unless
  step.rule @others_own_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32) variant <"own", {}, f32> {
    %row = step.mean %g over [m] : [n, m]
    %col = step.mean %g over [n] : [n, m]
    %by_row = step.mul %g, %row : [n, m], [n, 1]
    %u = step.mul %by_row, %col : [n, m], [1, m]
    %uu = step.mul %u, %u : [n, m]
    %mean = step.mean %uu : [n, m]
    %divisor = step.maximum %one, %mean : f64
    %p1 = step.mul %u, %divisor : [n, m], f64
    step.return %p1, %r : [n, m], [n, 1]
  }
  // CHECK-LABEL: step.rule @others_sharded_0
  // CHECK-NOT: unless
  step.rule @others_sharded_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32, %c: state "c"[1, m] as f32) variant <"sharded", {}, f32, <{n = ["dp"]}>> {
    %by_row = step.mul %g, %r : [n, m], [n, 1]
    %u = step.mul %by_row, %c : [n, m], [1, m]
    %uu = step.mul %u, %u : [n, m]
    %mean = step.mean %uu across [dp] : [n, m]
    %divisor = step.maximum %one, %mean : f64
    %p1 = step.mul %u, %divisor : [n, m], f64
    step.return %p1, %r, %c : [n, m], [n, 1], [1, m]
  }
}
