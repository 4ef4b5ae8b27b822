// Tests each fold. One may replace a value only by one with the same bits for
// every input; folds-not.mlir tests those that must not happen.
// RUN: stepc-opt %s -canonicalize -split-input-file | FileCheck %s

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

// CHECK-LABEL: step.optimizer @unary
step.optimizer @unary {
  %two = step.constant 2.0
  %minus = step.constant -3.0
  %zero = step.constant 0.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK-DAG: %[[NEG:.*]] = step.constant -2.0
    // CHECK-DAG: %[[ABS:.*]] = step.constant 3.0
    // CHECK-DAG: %[[SQRT:.*]] = step.constant 1.4142135623730951
    // CHECK-DAG: %[[SIGN:.*]] = step.constant -1.0
    // CHECK-DAG: %[[NEG_ZERO:.*]] = step.constant -0.0
    %0 = step.neg %two : f64
    %1 = step.abs %minus : f64
    %2 = step.sqrt %two : f64
    %3 = step.sign %minus : f64
    %4 = step.neg %zero : f64
    // -0 keeps its sign: it is no 0.
    %5 = step.sign %4 : f64
    %6 = step.sqrt %4 : f64
    // CHECK: step.mul %param, %[[NEG]]
    %a = step.mul %p, %0 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[ABS]]
    %b = step.mul %a, %1 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[SQRT]]
    %c = step.mul %b, %2 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[SIGN]]
    %d = step.mul %c, %3 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[NEG_ZERO]]
    %e = step.mul %d, %4 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[NEG_ZERO]]
    %f = step.mul %e, %5 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[NEG_ZERO]]
    %h = step.mul %f, %6 : [*], f64
    step.return %h
  }
}

// -----

// In scalar code too.
// CHECK-LABEL: func.func @body
func.func @body() -> f64 {
  // CHECK-NEXT: %[[EXP:.*]] = arith.constant 7.38905609893065
  // CHECK-NEXT: return %[[EXP]]
  %two = arith.constant 2.0 : f64
  %0 = step.exp %two : f64
  return %0 : f64
}

// -----

// By the algorithms of compiled code, not by a mathematical library.
// CHECK-LABEL: step.optimizer @functions
step.optimizer @functions {
  %two = step.constant 2.0
  %minus = step.constant -2.5
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK-DAG: %[[EXP:.*]] = step.constant 7.38905609893065
    // CHECK-DAG: %[[LOG:.*]] = step.constant 0.6931471805599453
    // CHECK-DAG: %[[POW:.*]] = step.constant 0.1767766952966369
    // CHECK-DAG: %[[FLOOR:.*]] = step.constant -3.0
    %0 = step.exp %two : f64
    %1 = step.log %two : f64
    %2 = step.pow %two, %minus
    %3 = step.floor %minus : f64
    // CHECK: step.mul %param, %[[EXP]]
    %a = step.mul %p, %0 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[LOG]]
    %b = step.mul %a, %1 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[POW]]
    %c = step.mul %b, %2 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[FLOOR]]
    %d = step.mul %c, %3 : [*], f64
    // A floor has no other floor.
    // CHECK: %[[ONCE:.*]] = step.floor %{{.*}}
    // CHECK-NEXT: step.neg %[[ONCE]]
    %e = step.floor %d : [*]
    %f = step.floor %e : [*]
    %h = step.neg %f : [*]
    step.return %h
  }
}

// -----

// CHECK-LABEL: step.optimizer @binary
step.optimizer @binary {
  %tenth = step.constant 0.1
  %fifth = step.constant 0.2
  step.rule @any(%p: param[*], %g: grad[*]) {
    // Rounded once each, in f64.
    // CHECK-DAG: %[[ADD:.*]] = step.constant 0.30000000000000004
    // CHECK-DAG: %[[SUB:.*]] = step.constant -0.1
    // CHECK-DAG: %[[MUL:.*]] = step.constant 0.020000000000000004
    // CHECK-DAG: %[[DIV:.*]] = step.constant 0.5
    %0 = step.add %tenth, %fifth : f64
    %1 = step.sub %tenth, %fifth : f64
    %2 = step.mul %tenth, %fifth : f64
    %3 = step.div %tenth, %fifth : f64
    // CHECK: step.mul %param, %[[ADD]]
    %a = step.mul %p, %0 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[SUB]]
    %b = step.mul %a, %1 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[MUL]]
    %c = step.mul %b, %2 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[DIV]]
    %d = step.mul %c, %3 : [*], f64
    step.return %d
  }
}

// -----

// Each of the three operations of a lerp is rounded: with a fused multiplication
// and addition 0.1 + 0.3 * (0.7 - 0.1) would be 0.27999999999999997. From a
// weight of one half on it begins at the other end, so that this is exact.
// CHECK-LABEL: step.optimizer @lerp
step.optimizer @lerp {
  %a = step.constant 0.1
  %b = step.constant 0.7
  %w = step.constant 0.3
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: %[[END:.*]] = step.constant 0.7{{$}}
    // CHECK: %[[LERP:.*]] = step.constant 0.28{{$}}
    // CHECK: %[[P1:.*]] = step.mul %param, %[[LERP]]
    // CHECK: step.mul %[[P1]], %[[END]]
    %0 = step.lerp %a, %b, %w : f64
    %1 = step.mul %p, %0 : [*], f64
    %one = step.constant 1.0
    %2 = step.lerp %a, %b, %one : f64
    %3 = step.mul %1, %2 : [*], f64
    step.return %3
  }
}

// -----

// IEEE 754-2019 maximum and minimum: +0 is larger than -0.
// CHECK-LABEL: step.optimizer @extrema
step.optimizer @extrema {
  %plus = step.constant 0.0
  %minus = step.constant -0.0
  %one = step.constant 1.0
  %inf = step.constant 0x7FF0000000000000
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK-DAG: %[[PLUS:.*]] = step.constant 0.0
    // CHECK-DAG: %[[MINUS:.*]] = step.constant -0.0
    // CHECK-DAG: %[[ONE:.*]] = step.constant 1.0
    // CHECK-DAG: %[[INF:.*]] = step.constant 0x7FF0000000000000
    %0 = step.maximum %plus, %minus : f64
    %1 = step.maximum %minus, %plus : f64
    %2 = step.minimum %plus, %minus : f64
    %3 = step.minimum %minus, %plus : f64
    %4 = step.maximum %one, %inf : f64
    %5 = step.minimum %inf, %one : f64
    // CHECK: step.mul %param, %[[PLUS]]
    %a = step.mul %p, %0 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[PLUS]]
    %b = step.mul %a, %1 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[MINUS]]
    %c = step.mul %b, %2 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[MINUS]]
    %d = step.mul %c, %3 : [*], f64
    // CHECK: step.mul %{{.*}}, %[[INF]]
    %e = step.mul %d, %4 : [*], f64
    // A factor of one folds in turn, but for the value that is stored.
    // CHECK: step.mul %{{.*}}, %[[ONE]]
    %f = step.mul %e, %5 : [*], f64
    step.return %f
  }
}

// -----

// Comparing decides a select. NaN is unequal to itself.
// CHECK-LABEL: step.optimizer @compare
step.optimizer @compare {
  %one = step.constant 1.0
  %two = step.constant 2.0
  %nan = step.constant 0x7FF8000000000000
  // CHECK: step.rule @true
  step.rule @true(%p: param[*], %g: grad[*]) {
    // CHECK-NEXT: %[[SUM:.*]] = step.add %grad, %grad
    // CHECK-NEXT: step.return %[[SUM]]
    %0 = step.compare lt, %one, %two : f64
    %1 = step.compare le, %one, %one : f64
    %2 = step.compare gt, %two, %one : f64
    %3 = step.compare ge, %two, %two : f64
    %4 = step.compare eq, %two, %two : f64
    %5 = step.compare ne, %nan, %nan : f64
    %a = step.select %0, %g, %p : [*]
    %b = step.select %1, %a, %p : [*]
    %c = step.select %2, %b, %p : [*]
    %d = step.select %3, %c, %p : [*]
    %e = step.select %4, %d, %p : [*]
    %f = step.select %5, %e, %p : [*]
    %sum = step.add %f, %f : [*]
    step.return %sum
  }
  // CHECK: step.rule @false
  step.rule @false(%p: param[*], %g: grad[*]) {
    // CHECK-NEXT: %[[SUM:.*]] = step.add %grad, %grad
    // CHECK-NEXT: step.return %[[SUM]]
    %0 = step.compare lt, %one, %one : f64
    %1 = step.compare le, %two, %one : f64
    %2 = step.compare gt, %one, %one : f64
    %3 = step.compare ge, %one, %nan : f64
    %4 = step.compare eq, %nan, %nan : f64
    %5 = step.compare ne, %two, %two : f64
    %a = step.select %0, %p, %g : [*]
    %b = step.select %1, %p, %a : [*]
    %c = step.select %2, %p, %b : [*]
    %d = step.select %3, %p, %c : [*]
    %e = step.select %4, %p, %d : [*]
    %f = step.select %5, %p, %e : [*]
    %sum = step.add %f, %f : [*]
    step.return %sum
  }
}

// -----

//===----------------------------------------------------------------------===//
// Operations that change nothing
//===----------------------------------------------------------------------===//

// CHECK-LABEL: step.optimizer @neutral
step.optimizer @neutral {
  %one = step.constant 1.0
  %zero = step.constant 0.0
  %minus = step.constant -0.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[SUM:.*]] = step.add %grad, %grad
    // CHECK-NEXT: step.return %[[SUM]]
    %0 = step.mul %g, %one : [*], f64
    %1 = step.mul %one, %0 : f64, [*]
    %2 = step.div %1, %one : [*], f64
    %3 = step.sub %2, %zero : [*], f64
    %4 = step.add %3, %minus : [*], f64
    %5 = step.add %minus, %4 : f64, [*]
    %sum = step.add %5, %5 : [*]
    step.return %sum
  }
}

// -----

// The same of scalars that are not constants.
// CHECK-LABEL: step.optimizer @neutral_scalars
step.optimizer @neutral_scalars {
  %one = step.constant 1.0
  %zero = step.constant 0.0
  // CHECK: %lr = step.hyper
  %lr = step.hyper "lr" = 1.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: step.mul %grad, %lr
    %0 = step.mul %lr, %one : f64
    %1 = step.sub %0, %zero : f64
    %2 = step.mul %g, %1 : [*], f64
    step.return %2
  }
}

// -----

// CHECK-LABEL: step.optimizer @twice
step.optimizer @twice {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[ABS:.*]] = step.abs %grad
    // CHECK-NEXT: %[[SUM:.*]] = step.add %grad, %[[ABS]]
    // CHECK-NEXT: step.return %[[SUM]]
    %0 = step.neg %g : [*]
    %1 = step.neg %0 : [*]
    %2 = step.abs %g : [*]
    %3 = step.abs %2 : [*]
    %4 = step.maximum %3, %3 : [*]
    %5 = step.minimum %4, %4 : [*]
    %sum = step.add %1, %5 : [*]
    step.return %sum
  }
}

// -----

// Both values the same: the condition, a mask or an option, decides nothing.
// CHECK-LABEL: step.optimizer @select_same
step.optimizer @select_same {
  %o = step.option "o" = true
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[SUM:.*]] = step.add %grad, %grad
    // CHECK-NEXT: step.return %[[SUM]]
    %0 = step.select %o, %g, %g : [*]
    %1 = step.compare lt, %p, %g : [*]
    %2 = step.select %1, %g, %g : mask[*], [*]
    %sum = step.add %0, %2 : [*]
    step.return %sum
  }
}

// -----

// A value that becomes a stored one through `step.stored` folds: the rounding is
// an operation of its own.
// CHECK-LABEL: step.optimizer @marked
step.optimizer @marked {
  %one = step.constant 1.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[STORED:.*]] = step.stored %grad as [0]
    // CHECK-NEXT: step.return %[[STORED]]
    %0 = step.mul %g, %one : [*], f64
    %1 = step.stored %0 as [0] : [*]
    step.return %1
  }
}

// -----

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

// CHECK-LABEL: step.optimizer @logical
step.optimizer @logical {
  %yes = step.constant true
  %no = step.constant false
  %inf = step.constant 0x7FF0000000000000
  %o = step.option "o" = true
  step.rule @any(%p: param[*], %g: grad[*], %f: fresh) {
    // CHECK: step.rule @any(
    // CHECK-NEXT: %[[MASK:.*]] = step.is_finite %grad
    // CHECK-NEXT: %[[A:.*]] = step.select %o, %grad, %param
    // CHECK-NEXT: %[[B:.*]] = step.select %fresh, %[[A]], %param
    // CHECK-NEXT: %[[C:.*]] = step.select %[[MASK]], %[[B]], %param
    // CHECK-NEXT: step.neg %[[C]]
    %mask = step.is_finite %g : [*]
    %0 = step.and %yes, %o : i1
    %1 = step.select %0, %g, %p : [*]
    %2 = step.not %f : i1
    %3 = step.not %2 : i1
    %4 = step.or %3, %3 : i1
    %5 = step.select %4, %1, %p : [*]
    %6 = step.or %mask, %no : mask[*], i1
    %7 = step.select %6, %5, %p : mask[*], [*]
    // False whatever the option is, and so on: these choose %7.
    %8 = step.and %no, %o : i1
    %9 = step.or %o, %yes : i1
    %10 = step.is_finite %inf : f64
    %11 = step.not %10 : i1
    %12 = step.select %8, %p, %7 : [*]
    %13 = step.select %9, %12, %p : [*]
    %14 = step.select %11, %13, %p : [*]
    %15 = step.neg %14 : [*]
    step.return %15
  }
}

// -----

// What nothing reads and changes nothing is dropped.
// CHECK-LABEL: step.optimizer @unused
step.optimizer @unused {
  %a = step.statistic "a" sum over model
  %b = step.scalar "b" = 0.0 over model
  // CHECK: step.scalar "b"
  // CHECK-NEXT: step.rule
  %0, %1 = step.scalars over model {
    %x = step.sqrt %a : f64
    %y = step.is_finite %x : f64
    step.yield %x, %y : f64, i1
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK-NEXT: step.return
    %s = step.sum %g : [*]
    step.return %p
  }
}
