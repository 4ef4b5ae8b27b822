// RUN: stepc-opt --pass-pipeline="builtin.module(step.optimizer(step-print-traversals))" %s -o /dev/null | FileCheck %s

// A reduction ends a traversal, and so does a round. The first rule's second traversal needs what all
// rows make, the third's only its own row: it trails.

// CHECK-LABEL: opt_matrix_0
// CHECK-NEXT: traversal 0 at 0.0: reads grad; reduces %2
// CHECK-NEXT: traversal 1 at 0.1: reads grad; reduces %7
// CHECK-NEXT: traversal 2 at 0.2: reads param, grad; writes param
// CHECK-LABEL: opt_any_1
// CHECK-NEXT: traversal 0 at 0.0: reads grad; reduces %2
// CHECK-NEXT: traversal 1 at 1.0: reads param, grad; writes param
// CHECK-LABEL: opt_rows_2
// CHECK-NEXT: traversal 0 at 0.0: reads grad; reduces %2
// CHECK-NEXT: traversal 1 at 0.1: reads grad; reduces %5; trails the one before it
// CHECK-NEXT: traversal 2 at 0.2: reads param, grad; writes param
// CHECK-NEXT: of strips of rows: %2, %3
// What a product needs whole its traversal keeps, and ends: the third product needs what is made of the
// second.
// CHECK-LABEL: opt_gram_3
// CHECK-NEXT: traversal 0 at 0.0: reads grad; keeps %1
// CHECK-NEXT: traversal 1 at 0.1: reads ; keeps %7
// CHECK-NEXT: traversal 2 at 0.2: reads param; writes param
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
}
