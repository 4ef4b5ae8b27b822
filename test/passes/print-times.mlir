// RUN: stepc-opt --pass-pipeline="builtin.module(step.optimizer(step-print-times))" %s -o /dev/null | FileCheck %s

// What is made of a reduction is known when its traversal has ended; what crosses a round, in the
// segment behind it; scalars of the cohort at the begin of their segment.

// CHECK-LABEL: opt_matrix_0
// CHECK-NEXT: %1 = step.mul: full at 0.0
// CHECK-NEXT: %2 = step.mean: [n, 1] at 0.1, reduced in 0.0
// CHECK-NEXT: %3 = step.lerp: [n, 1] at 0.1
// CHECK-NEXT: %4 = step.mean: [1, 1] at 0.1, reduced in 0.1
// CHECK-NEXT: %5 = step.div: [n, 1] at 0.1
// CHECK-NEXT: %6 = step.mul: full at 0.1
// CHECK-NEXT: %7 = step.sum: tensor at 0.2, reduced in 0.1
// CHECK-NEXT: %8 = step.mul: cohort at 0.0
// CHECK-NEXT: %9 = step.mul: tensor at 0.2
// CHECK-NEXT: %10 = step.mul: full at 0.2
// CHECK-NEXT: %11 = step.sub: full at 0.2
// CHECK-NEXT: param is written from 0.2 on
// CHECK-NEXT: rows is written from 0.1 on
// CHECK-LABEL: opt_any_1
// CHECK-NEXT: %1 = step.mul: full at 0.0
// CHECK-NEXT: %2 = step.sum: tensor at 0.1, reduced in 0.0
// CHECK-NEXT: %3 = step.mul: full at 1.0
// CHECK-NEXT: %4 = step.sub: full at 1.0
// CHECK-NEXT: param is written from 1.0 on
// What a product needs whole is known when the traversal that keeps it has ended.
// CHECK-LABEL: opt_gram_3
// CHECK-NEXT: %1 = step.mul: full at 0.0, kept whole
// CHECK-NEXT: %2 = step.transpose: [m, n] at 0.1
// CHECK-NEXT: %3 = step.matmul: [n, n] at 0.1
// CHECK-NEXT: %4 = step.add: [n, n] at 0.1
// CHECK-NEXT: %5 = step.sum: tensor at 0.1, reduced in 0.1
// CHECK-NEXT: %6 = step.matmul: full at 0.1
// CHECK-NEXT: %7 = step.mul: full at 0.1, kept whole
// CHECK-NEXT: %8 = step.transpose: [m, n] at 0.2
// CHECK-NEXT: %9 = step.matmul: [m, m] at 0.2
// CHECK-NEXT: %10 = step.matmul: full at 0.2
// CHECK-NEXT: %11 = step.sub: full at 0.2
// CHECK-NEXT: param is written from 0.2 on
// CHECK-NEXT: l is written from 0.1 on
step.optimizer @opt {
  %lr = step.hyper "lr" = 0.1
  %norm2 = step.statistic "norm2" sum over model
  %rate = step.scalars over model {
    %norm = step.sqrt %norm2 : f64
    %rate = step.mul %norm, %lr : f64
    step.yield %rate : f64
  }
  step.rule @opt_matrix_0(%p: param[n, m] as f32, %g: grad[n, m] as f32, %rows: state "rows"[n, 1] as f32) variant <"matrix", {}, f32> {
    %gg = step.mul %g, %g : [n, m]
    %r = step.mean %gg over [m] : [n, m]
    %r1 = step.lerp %rows, %r, %lr : [n, 1], [n, 1], f64
    %all = step.mean %r1 over [n] : [n, 1]
    %f = step.div %r1, %all : [n, 1], [1, 1]
    %u = step.mul %g, %f : [n, m], [n, 1]
    %s = step.sum %u : [n, m]
    %half = step.mul %lr, %lr : f64
    %k = step.mul %s, %half : f64
    %d = step.mul %u, %k : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %r1 : [n, m], [n, 1]
  }
  step.rule @opt_any_1(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %gg = step.mul %g, %g : [*]
    %s = step.sum %gg : [*]
    step.contribute %norm2, %s
    %d = step.mul %g, %rate : [*], f64
    %p1 = step.sub %p, %d : [*]
    step.return %p1
  }
  step.rule @opt_gram_3(%p: param[n, m] as f32, %g: grad[n, m] as f32, %l: state "l"[n, n] as f32) variant <"gram", {}, f32> {
    %u = step.mul %g, %lr : [n, m], f64
    %ut = step.transpose %u : [n, m]
    %uu = step.matmul %u, %ut : [n, m], [m, n]
    %l1 = step.add %l, %uu : [n, n]
    %s = step.sum %l1 : [n, n]
    %v = step.matmul %l1, %u : [n, n], [n, m]
    %d = step.mul %v, %s : [n, m], f64
    %vt = step.transpose %d : [n, m]
    %vv = step.matmul %vt, %d : [m, n], [n, m]
    %w = step.matmul %d, %vv : [n, m], [m, m]
    %p1 = step.sub %p, %w : [n, m]
    step.return %p1, %l1 : [n, m], [n, n]
  }
}
