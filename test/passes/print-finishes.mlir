// RUN: stepc-opt --pass-pipeline="builtin.module(step.optimizer(step-print-finishes))" %s -o /dev/null | FileCheck %s

// What is of rows in the third rule is done strip by strip, between two traversals of a train; of the
// first rule when all rows are there, for a mean of them is needed.

// CHECK-LABEL: opt_matrix_0
// CHECK-NEXT: before 0.1, 0: %3, %4; writes rows
// CHECK-NEXT: before 0.1, 1: %5
// CHECK-NEXT: before 0.2, 0: %9
// CHECK-NEXT: in memory: %2, %4, %5, %3
// CHECK-LABEL: opt_any_1
// CHECK-LABEL: opt_rows_2
// CHECK-NEXT: before 0.1, for a strip of rows: %3
// CHECK-NEXT: before 0.2, 0: writes rows
// CHECK-NEXT: in memory: %2, %3
// A product is a step by itself; what is of other dims than the param's is with what it needs.
// CHECK-LABEL: opt_gram_3
// CHECK-NEXT: before 0.1, 0: %2
// CHECK-NEXT: before 0.1, 1: %3
// CHECK-NEXT: before 0.1, 2: %4, %5; writes l
// CHECK-NEXT: before 0.1, 3: %6
// CHECK-NEXT: before 0.2, 0: %8
// CHECK-NEXT: before 0.2, 1: %9
// CHECK-NEXT: before 0.2, 2: %10
// CHECK-NEXT: in memory: %6, %10, %1, %2, %3, %4, %7, %8, %9
// Columns wait for what is needed of the rows, and the root of one number is taken where it is used. What
// a number of the tensor needs does not wait: the sum of the columns.
// CHECK-LABEL: opt_waits_4
// CHECK-NEXT: before 0.1, 0: %4; writes rows
// CHECK-NEXT: before 0.1, 2: %5, %6, %7; writes columns
// CHECK-NEXT: before 0.2, 0: %11
// CHECK-NEXT: in memory: %2, %3, %4, %7
// CHECK-LABEL: opt_needed_5
// CHECK-NEXT: before 0.1, 0: %3, %4; writes columns
// CHECK-NEXT: before 0.1, 1: %5
// CHECK-NEXT: before 0.1, 2: %6
// CHECK-NEXT: in memory: %2, %6, %3
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
  step.rule @opt_rows_2(%p: param[n, m] as f32, %g: grad[n, m] as f32, %rows: state "rows"[n, 1] as f32) variant <"rows", {}, f32> {
    %gg = step.mul %g, %g : [n, m]
    %r = step.mean %gg over [m] : [n, m]
    %r1 = step.lerp %rows, %r, %lr : [n, 1], [n, 1], f64
    %u = step.mul %g, %r1 : [n, m], [n, 1]
    %s = step.sum %u : [n, m]
    %d = step.mul %u, %s : [n, m], f64
    %p1 = step.sub %p, %d : [n, m]
    step.return %p1, %r1 : [n, m], [n, 1]
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
  step.rule @opt_waits_4(%p: param[n, m] as f32, %g: grad[n, m] as f32, %rows: state "rows"[n, 1] as f32,
                         %columns: state "columns"[1, m] as f32) variant <"waits", {}, f32> {
    %gg = step.mul %g, %g : [n, m]
    %r = step.mean %gg over [m] : [n, m]
    %c = step.mean %gg over [n] : [n, m]
    %s = step.mean %r over [n] : [n, 1]
    %c1 = step.add %columns, %c : [1, m]
    %k = step.sqrt %s : [1, 1]
    %d = step.div %k, %c1 : [1, 1], [1, m]
    %u = step.mul %g, %d : [n, m], [1, m]
    %uu = step.mul %u, %u : [n, m]
    %size = step.sum %uu : [n, m]
    %root = step.sqrt %size : f64
    %v = step.mul %u, %root : [n, m], f64
    %p1 = step.sub %p, %v : [n, m]
    step.return %p1, %r, %c1 : [n, m], [n, 1], [1, m]
  }
  step.rule @opt_needed_5(%p: param[n, m] as f32, %g: grad[n, m] as f32,
                          %columns: state "columns"[1, m] as f32) variant <"needed", {}, f32> {
    %gg = step.mul %g, %g : [n, m]
    %c = step.mean %gg over [n] : [n, m]
    %c1 = step.add %columns, %c : [1, m]
    %all = step.sum %c1 : [1, m]
    %root = step.sqrt %all : f64
    %d = step.mul %c1, %root : [1, m], f64
    %u = step.mul %g, %d : [n, m], [1, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %c1 : [n, m], [1, m]
  }
}
