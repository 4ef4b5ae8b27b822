// RUN: stepc-opt %s -split-input-file -step-inline-fragments | FileCheck %s

// Declarations come before the rules, and each rule gets the operations in its
// own dims. The count is added where a fragment reads it and the rule does not.
// CHECK-LABEL: step.optimizer @sgd {
// CHECK-NEXT: %lr = step.hyper "lr" = 0.01
// CHECK-NEXT: %max_norm = step.hyper "max_norm" = 1.0
// CHECK-NEXT: %norm2 = step.statistic "norm2" sum over model
// CHECK-NEXT: %[[COEF:.*]] = step.scalars over model {
// CHECK:        step.report "norm", %norm2
// CHECK:      }
// CHECK-NEXT: %clip.lr = step.hyper "clip.lr" = 0.5
// CHECK-NEXT: step.constant 2.0
// CHECK-NEXT: step.rule @any(%param: param[*], %grad: grad[*], %count: count) {
// CHECK-NEXT:   %[[S:.*]] = step.sum %grad : [*]
// CHECK-NEXT:   step.contribute %norm2, %[[S]]
// CHECK-NEXT:   %[[G1:.*]] = step.mul %grad, %[[COEF]] : [*], f64
// CHECK-NEXT:   %[[T:.*]] = step.powi %clip.lr, %count
// CHECK-NEXT:   %[[G2:.*]] = step.mul %[[G1]], %[[T]] : [*], f64
// CHECK-NEXT:   step.sub %param, %[[G2]] : [*]
// CHECK:      step.rule @matrix(%param: param[...b, n], %grad: grad[...b, n], %count: count) {
// CHECK-NEXT:   step.sum %grad : [...b, n]
// CHECK-NEXT:   step.contribute
// CHECK-NEXT:   step.mul %grad, %[[COEF]] : [...b, n], f64
// CHECK-NEXT:   step.powi %clip.lr, %count
// CHECK-NEXT:   %[[G2:.*]] = step.mul %{{.*}} : [...b, n], f64
// CHECK-NEXT:   %[[U:.*]] = step.mul %[[G2]], %[[G2]]
// CHECK-NEXT:   step.return %[[U]] : [...b, n]
// CHECK-NOT: step.fragment
step.optimizer @sgd {
  %lr = step.hyper "lr" = 0.01
  step.rule @any(%p: param[*], %g: grad[*]) {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @matrix(%p: param[...b, n], %g: grad[...b, n], %t: count) {
    %p1 = step.mul %g, %g : [...b, n]
    step.return %p1 : [...b, n]
  }
}
step.fragment @norm {
  %max_norm = step.hyper "max_norm" = 1.0
  %norm2 = step.statistic "norm2" sum over model
  %coef = step.scalars over model {
    %c = step.div %max_norm, %norm2 : f64
    step.report "norm", %norm2
    step.yield %c : f64
  }
  step.rule @any(%g: grad[*]) {
    %s = step.sum %g : [*]
    step.contribute %norm2, %s
    %g1 = step.mul %g, %coef : [*], f64
    step.return %g1
  }
}
step.fragment @clip {
  %lr = step.hyper "lr" = 0.5
  %lim = step.constant 2.0
  step.rule @any(%t: count, %g: grad[*]) {
    %f = step.powi %lr, %t
    %g1 = step.mul %g, %f : [*], f64
    step.return %g1
  }
}

// -----

// Names that are taken get the fragment's as a prefix: of scalars, statistics,
// options, and of reports among themselves.
// CHECK-LABEL: step.optimizer @names {
// CHECK:      step.statistic "a.s" sum over group
// CHECK-NEXT: step.scalar "a.d" = 1.0 over group
// CHECK-NEXT: step.option "free" = true
// CHECK-NEXT: step.scalars over group {
// CHECK-NEXT:   step.report "s",
// CHECK-NEXT:   step.report "a.r",
step.optimizer @names {
  %s = step.statistic "s" sum over model
  %d = step.option "d" = true
  step.scalars over model {
    step.report "r", %s
    step.yield
  }
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}
step.fragment @a {
  %s = step.statistic "s" sum over group
  %d = step.scalar "d" = 1.0 over group
  %o = step.option "free" = true
  step.scalars over group {
    step.report "s", %s
    step.report "r", %s
    step.yield
  }
  step.rule @any(%g: grad[*]) {
    step.return %g
  }
}

// -----

// The new gradient is rounded only in what is stored of it, as an argument is.
// CHECK-LABEL: step.optimizer @stored {
// CHECK:   %[[G:.*]] = step.neg %grad
// CHECK-NEXT: %[[P:.*]] = step.sub %param, %[[G]]
// CHECK-NEXT: %[[M:.*]] = step.stored %[[G]] as [2]
// CHECK-NEXT: %[[N:.*]] = step.stored %[[G]] as [3]
// CHECK-NEXT: step.return %[[P]], %[[M]], %[[N]]
step.optimizer @stored {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %n: state "n"[*]) {
    %p1 = step.sub %p, %g : [*]
    step.return %p1, %g, %g
  }
}
step.fragment @neg {
  step.rule @any(%g: grad[*], %f: fresh) {
    %g1 = step.neg %g : [*]
    step.return %g1
  }
}

// -----

// A fragment may only look.
// CHECK-LABEL: step.optimizer @looked_at {
// CHECK:   step.contribute
// CHECK-NEXT: step.return %grad
step.optimizer @looked_at {
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %g
  }
}
step.fragment @look {
  %a = step.statistic "a" amax over model
  step.rule @any(%g: grad[*]) {
    %s = step.amax %g : [*]
    step.contribute %a, %s
    step.return %g
  }
}

// -----

// Fragments of a param come last, in the rule's dims: they see the new one, which is
// rounded before, and what they copy of it is rounded alone.
// CHECK-LABEL: step.optimizer @after {
// CHECK:      step.rule @matrix(%param: param[n, m], %grad: grad[n, m], %m: state "m"[n, m] kept, %copy: state "copy"[n, m] kept, %count: count)
// CHECK-NEXT:   %[[G:.*]] = step.neg %grad : [n, m]
// CHECK-NEXT:   %[[P:.*]] = step.sub %param, %[[G]] : [n, m]
// CHECK-NEXT:   %[[T:.*]] = step.to_f64 %count
// CHECK-NEXT:   %[[M:.*]] = step.lerp %m, %[[P]], %[[T]] : [n, m], [n, m], f64
// CHECK-NEXT:   %[[C:.*]] = step.stored %[[P]] as [3]
// CHECK-NEXT:   step.return %[[P]], %[[M]], %[[C]]
// CHECK:      step.rule @grad(
// CHECK-NEXT:   %[[G:.*]] = step.neg %grad
// CHECK-NEXT:   %[[P:.*]] = step.stored %[[G]] as [0]
// CHECK:        step.stored %[[P]] as [3]
// CHECK:      step.rule @same(
// CHECK:        step.lerp %m, %param,
// CHECK-NEXT:   %[[C:.*]] = step.stored %param as [3]
// CHECK-NEXT:   step.return %param, %{{.*}}, %[[C]]
step.optimizer @after {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m]) {
    %p1 = step.sub %p, %g : [n, m]
    step.return %p1 : [n, m]
  }
  step.rule @grad(%p: param[n], %g: grad[n]) {
    step.return %g : [n]
  }
  step.rule @same(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}
step.fragment @mean {
  step.rule @any(%p: param[*], %m: state "m"[*] kept, %c: state "copy"[*] kept, %t: count) {
    %w = step.to_f64 %t
    %m1 = step.lerp %m, %p, %w : [*], [*], f64
    step.return %m1, %p
  }
}
step.fragment @neg {
  step.rule @any(%g: grad[*]) {
    %g1 = step.neg %g : [*]
    step.return %g1
  }
}

// -----

// A rule whose param is its gradient unchanged stores that.
// CHECK-LABEL: step.optimizer @gradient {
// CHECK:        %[[P:.*]] = step.stored %grad as [0]
// CHECK-NEXT:   %[[A:.*]] = step.add %m, %[[P]] : [*]
// CHECK-NEXT:   step.return %[[P]], %[[A]]
step.optimizer @gradient {
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %g
  }
}
step.fragment @total {
  step.rule @any(%p: param[*], %m: state "m"[*] kept) {
    %m1 = step.add %m, %p : [*]
    step.return %m1
  }
}

// -----

// Without an optimizer there is nothing to put them into.
// CHECK-LABEL: step.fragment @alone
step.fragment @alone {
  step.rule @any(%g: grad[*]) {
    step.return %g
  }
}

// -----

// A fresh speaks of the states of whoever declared it: one of a gradient of the rule's, one of a
// param of the fragment's own.
// CHECK-LABEL: step.optimizer @fresh {
// CHECK: step.rule @any(%param: param[*], %grad: grad[*], %m: state "m"[*], %[[F:.*]]: fresh("m"), %average: state "average"[*] kept, %[[A:.*]]: fresh("average"))
// CHECK-NEXT: %[[G:.*]] = step.select %[[F]], %grad, %grad
// CHECK-NEXT: %[[M:.*]] = step.select %[[F]], %[[G]], %m
// CHECK: step.select %[[A]], %param, %average
step.optimizer @fresh {
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %first: fresh) {
    %m1 = step.select %first, %g, %m : [*]
    step.return %p, %m1
  }
}
step.fragment @before {
  step.rule @any(%g: grad[*], %f: fresh) {
    %g1 = step.select %f, %g, %g : [*]
    step.return %g1
  }
}
step.fragment @behind {
  step.rule @any(%p: param[*], %a: state "average"[*] kept, %f: fresh) {
    %a1 = step.select %f, %p, %a : [*]
    step.return %a1
  }
}
