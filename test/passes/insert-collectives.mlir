// RUN: stepc-opt --step-insert-collectives --split-input-file --verify-diagnostics %s | FileCheck %s

// Which reductions cross ranks follows from the dims that they reduce.

// CHECK-LABEL: @matrix
step.optimizer @both {
  step.rule @matrix(%p: param[...b, n, m] as f32, %g: grad[...b, n, m] as f32, %r: state "r"[...b, n, 1] as f32)
      variant <"matrix", {}, f32, <{m = ["tp"], n = ["dp", "pp"]}>> {
    // CHECK: step.mean %{{.*}} over [m] across [tp] : [...b, n, m]
    %row = step.mean %g over [m] : [...b, n, m]
    // CHECK: step.sum %{{.*}} over [n] across [dp, pp] : [...b, n, m]
    %col = step.sum %g over [n] : [...b, n, m]
    // A vector of rows has no columns to be sharded.
    // CHECK: step.amax %{{.*}} over [n] across [dp, pp] : [...b, n, 1]
    %top = step.amax %row over [n] : [...b, n, 1]
    // CHECK: step.sum %{{.*}} across [dp, pp, tp] : [...b, n, m]
    %all = step.sum %g : [...b, n, m]
    // CHECK: step.sum %{{.*}} : [...b, 1, 1]
    %tops = step.sum %top : [...b, 1, 1]
    %a = step.mul %g, %col : [...b, n, m], [...b, 1, m]
    %s = step.add %all, %tops : f64
    %b = step.mul %a, %s : [...b, n, m], f64
    %p1 = step.sub %p, %b : [...b, n, m]
    step.return %p1, %row : [...b, n, m], [...b, n, 1]
  }
}

// -----

// Of leading dims only the whole tensor's reductions know.
// CHECK-LABEL: @batch
step.optimizer @items {
  step.rule @batch(%p: param[...b, n, m] as f32, %g: grad[...b, n, m] as f32) variant <"batch", {}, f32, <{"...b" = ["ep"]}>> {
    // CHECK: step.sum %{{.*}} over [n, m] : [...b, n, m]
    %item = step.sum %g over [n, m] : [...b, n, m]
    // CHECK: step.sum %{{.*}} across [ep] : [...b, 1, 1]
    %all = step.sum %item : [...b, 1, 1]
    %a = step.mul %g, %item : [...b, n, m], [...b, 1, 1]
    %b = step.mul %a, %all : [...b, n, m], f64
    step.return %b : [...b, n, m]
  }
}

// -----

// A flat range has parts of every row and column; what is reduced is whole.
// CHECK-LABEL: @range
step.optimizer @flat {
  step.rule @range(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"range", {}, f32, <{"flat range" = ["dp"]}>> {
    // CHECK: step.mean %{{.*}} over [m] across [dp] : [n, m]
    %row = step.mean %g over [m] : [n, m]
    // CHECK: step.mean %{{.*}} over [n] : [n, 1]
    %one = step.mean %row over [n] : [n, 1]
    %a = step.mul %g, %one : [n, m], [1, 1]
    step.return %a : [n, m]
  }
}

// -----

// What only goes to a statistic of the same kind stays a part; a mean is one.
// CHECK-LABEL: @contribute
step.optimizer @statistics {
  %sum = step.statistic "sum" sum over model
  %most = step.statistic "most" amax over model
  step.rule @contribute(%p: param[*] as f32, %g: grad[*] as f32) variant <"contribute", {}, f32, <{"*" = ["dp"]}>> {
    // CHECK: step.mean %{{.*}} : [*]
    %mean = step.mean %g : [*]
    step.contribute %sum, %mean
    // CHECK: step.sum %{{.*}} across [dp] : [*]
    %s = step.sum %g : [*]
    step.contribute %most, %s
    step.return %p
  }
}

// -----

step.optimizer @square {
  // expected-error @+1 {{'step.rule' op has a param of '!step.tensor<n, n>' with 'n' twice, which cannot be sharded over dp}}
  step.rule @rule(%p: param[n, n] as f32, %g: grad[n, n] as f32) variant <"rule", {}, f32, <{n = ["dp"]}>> {
    %s = step.sum %g : [n, n]
    %p1 = step.mul %p, %s : [n, n], f64
    step.return %p1 : [n, n]
  }
}

// -----

step.optimizer @row {
  // expected-error @+1 {{'step.rule' op has a param of '!step.tensor<1, m>' with '1', which cannot be sharded over dp}}
  step.rule @rule(%p: param[1, m] as f32, %g: grad[1, m] as f32) variant <"rule", {}, f32, <{"1" = ["dp"]}>> {
    %s = step.sum %g : [1, m]
    %p1 = step.mul %p, %s : [1, m], f64
    step.return %p1 : [1, m]
  }
}

// -----

// To elements it makes no difference what a dim is called.
step.optimizer @elements {
  // CHECK-LABEL: step.rule @same
  step.rule @same(%p: param[n, n] as f32, %g: grad[n, n] as f32) variant <"rule", {}, f32, <{n = ["dp"]}>> {
    step.return %p : [n, n]
  }
}

// -----

// A product needs whole matrices, whatever dims the layout shares out; so does a state of
// which a part of the param has no part.
step.optimizer @product {
  // expected-error @+1 {{'step.rule' op has a param of '!step.tensor<n, m>' whose matrices it needs whole, which cannot be sharded over dp+tp}}
  step.rule @rule(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"rule", {}, f32, <{m = ["dp", "tp"]}>> {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %p1 = step.matmul %gg, %p : [n, n], [n, m]
    step.return %p1 : [n, m]
  }
}

// -----

step.optimizer @range {
  // expected-error @+1 {{'step.rule' op has a param of '!step.tensor<n, m>' whose matrices it needs whole, which cannot be sharded over dp}}
  step.rule @rule(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"rule", {}, f32, <{"flat range" = ["dp"]}>> {
    %gt = step.transpose %g : [n, m]
    %gg = step.matmul %g, %gt : [n, m], [m, n]
    %p1 = step.matmul %gg, %p : [n, n], [n, m]
    step.return %p1 : [n, m]
  }
}

// -----

// Of a batch too.
step.optimizer @batch {
  // expected-error @+1 {{'step.rule' op has a param of '!step.tensor<...b, n, m>' whose matrices it needs whole, which cannot be sharded over ep}}
  step.rule @rule(%p: param[...b, n, m] as f32, %g: grad[...b, n, m] as f32) variant <"rule", {}, f32, <{"...b" = ["ep"]}>> {
    %gt = step.transpose %g : [...b, n, m]
    %gg = step.matmul %g, %gt : [...b, n, m], [...b, m, n]
    %p1 = step.matmul %gg, %p : [...b, n, n], [...b, n, m]
    step.return %p1 : [...b, n, m]
  }
}

// -----

step.optimizer @state {
  // expected-error @+1 {{'step.rule' op has a param of '!step.tensor<n, m>' whose matrices it needs whole, which cannot be sharded over dp}}
  step.rule @rule(%p: param[n, m] as f32, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32) variant <"rule", {}, f32, <{n = ["dp"]}>> {
    %l1 = step.neg %l : [n, n]
    step.return %p, %l1 : [n, m], [n, n]
  }
}

// -----

// What asks only for extents is stepped in parts: they are the whole tensor's.
// CHECK-LABEL: @extent
step.optimizer @parts {
  step.rule @extent(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"extent", {}, f32, <{n = ["dp"]}>> {
    // CHECK: step.extent n
    %n = step.extent n
    %p1 = step.mul %g, %n : [n, m], f64
    step.return %p1 : [n, m]
  }
}
