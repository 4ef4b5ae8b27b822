// RUN: stepc-opt %s -split-input-file -step-reassociate-means | FileCheck %s

// Of a factor for each column: the mean of each column first.
// CHECK-LABEL: step.optimizer @column
step.optimizer @column {
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m],
                    %c: state "c"[...b, 1, m]) {
    // CHECK: %[[U:.*]] = step.mul %c, %grad
    // CHECK-NEXT: %[[GG:.*]] = step.mul %grad, %grad : [...b, n, m]
    // CHECK-NEXT: %[[MEANS:.*]] = step.mean %[[GG]] over [n] : [...b, n, m]
    // CHECK-NEXT: %[[HALF:.*]] = step.mul %[[MEANS]], %c : [...b, 1, m]
    // CHECK-NEXT: %[[WHOLE:.*]] = step.mul %[[HALF]], %c : [...b, 1, m]
    // CHECK-NEXT: %[[MEAN:.*]] = step.mean %[[WHOLE]] : [...b, 1, m]
    // CHECK-NEXT: step.mul %[[U]], %[[MEAN]]
    %u = step.mul %c, %g : [...b, 1, m], [...b, n, m]
    %uu = step.mul %u, %u : [...b, n, m]
    %mean = step.mean %uu reassociable : [...b, n, m]
    %p1 = step.mul %u, %mean : [...b, n, m], f64
    step.return %p1, %c : [...b, n, m], [...b, 1, m]
  }
}

// -----

// Of a factor for each row, and of the whole.
// CHECK-LABEL: step.optimizer @row
step.optimizer @row {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "r"[n, 1],
                    %a: state "a"[1, 1]) {
    // CHECK: step.sum %{{.*}} over [m] : [n, m]
    // CHECK: %[[R:.*]] = step.sum %{{.*}} : [n, 1]
    // CHECK: step.sum %{{.*}} over [n, m] : [n, m]
    // CHECK: %[[A:.*]] = step.sum %{{.*}} : [1, 1]
    // CHECK: step.add %[[R]], %[[A]]
    %u = step.mul %g, %r : [n, m], [n, 1]
    %uu = step.mul %u, %u : [n, m]
    %by_row = step.sum %uu reassociable : [n, m]
    %v = step.mul %g, %a : [n, m], [1, 1]
    %vv = step.mul %v, %v : [n, m]
    %at_once = step.sum %vv reassociable : [n, m]
    %both = step.add %by_row, %at_once : f64
    %p1 = step.mul %p, %both : [n, m], f64
    step.return %p1, %r, %a : [n, m], [n, 1], [1, 1]
  }
}

// -----

// Of a product of factors that is bounded: so where it may exceed the bound.
// CHECK-LABEL: step.optimizer @bounded
step.optimizer @bounded {
  %most = step.hyper "most" = 10.0
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "r"[n, 1],
                    %c: state "c"[1, m]) {
    // CHECK: %[[R:.*]] = step.sqrt %r : [n, 1]
    // CHECK-NEXT: %[[C:.*]] = step.abs %c : [1, m]
    %row = step.sqrt %r : [n, 1]
    %col = step.abs %c : [1, m]
    %rc = step.mul %row, %col : [n, 1], [1, m]
    %f = step.minimum %most, %rc : f64, [n, m]
    // CHECK: %[[U:.*]] = step.mul %grad, %{{.*}} : [n, m]{{$}}
    // CHECK-NEXT: %[[UU:.*]] = step.mul %[[U]], %[[U]] : [n, m]
    // CHECK-NEXT: %[[GR:.*]] = step.mul %grad, %[[R]] : [n, m], [n, 1]
    // CHECK-NEXT: %[[SQ:.*]] = step.mul %[[GR]], %[[GR]] : [n, m]
    // CHECK-NEXT: %[[MEANS:.*]] = step.mean %[[SQ]] over [n] : [n, m]
    // CHECK-NEXT: %[[HALF:.*]] = step.mul %[[MEANS]], %[[C]] : [1, m]
    // CHECK-NEXT: %[[WHOLE:.*]] = step.mul %[[HALF]], %[[C]] : [1, m]
    // CHECK-NEXT: %[[FREE:.*]] = step.mean %[[WHOLE]] : [1, m]
    // CHECK-NEXT: %[[MR:.*]] = step.amax %[[R]] : [n, 1]
    // CHECK-NEXT: %[[MC:.*]] = step.amax %[[C]] : [1, m]
    // CHECK-NEXT: %[[TOP:.*]] = step.mul %[[MR]], %[[MC]] : f64
    // CHECK-NEXT: %[[FLAG:.*]] = step.compare le, %[[TOP]], %most : f64
    // CHECK-NEXT: %[[PLAIN:.*]] = step.mean %[[UU]] : [n, m]
    // CHECK-NEXT: step.select %[[FLAG]], %[[FREE]], %[[PLAIN]] : f64
    %u = step.mul %g, %f : [n, m]
    %uu = step.mul %u, %u : [n, m]
    %mean = step.mean %uu reassociable : [n, m]
    %p1 = step.mul %u, %mean : [n, m], f64
    step.return %p1, %row, %col : [n, m], [n, 1], [1, m]
  }
}

// -----

// Ordinary reductions: a factor of as many dims, one that may be below zero, a sum
// of products, a value that is rounded on its way, no named dim, and one that stands
// twice.
// CHECK-LABEL: step.optimizer @ordinary
step.optimizer @ordinary {
  %most = step.hyper "most" = 10.0
  // CHECK-NOT: reassociable
  // CHECK-NOT: over
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %r: state "r"[n, 1],
                    %c: state "c"[1, m], %s: state "s"[n, m]) {
    %u = step.mul %g, %p : [n, m]
    %uu = step.mul %u, %u : [n, m]
    %0 = step.mean %uu reassociable : [n, m]
    %row = step.sqrt %r : [n, 1]
    %rc = step.mul %row, %c : [n, 1], [1, m]
    %f = step.minimum %rc, %most : [n, m], f64
    %v = step.mul %g, %f : [n, m]
    %vv = step.mul %v, %v : [n, m]
    %1 = step.mean %vv reassociable : [n, m]
    %w = step.mul %g, %c : [n, m], [1, m]
    %wu = step.mul %w, %u : [n, m]
    %2 = step.mean %wu reassociable : [n, m]
    %ww = step.mul %w, %w : [n, m]
    %3 = step.mean %ww reassociable : [n, m]
    %a = step.add %0, %1 : f64
    %b = step.add %2, %3 : f64
    %ab = step.add %a, %b : f64
    %p1 = step.mul %u, %ab : [n, m], f64
    step.return %p1, %r, %c, %w : [n, m], [n, 1], [1, m], [n, m]
  }
  step.rule @any(%p: param[*], %g: grad[*], %c: state "c"[1]) {
    %u = step.mul %g, %c : [*], [1]
    %uu = step.mul %u, %u : [*]
    %0 = step.mean %uu reassociable : [*]
    %p1 = step.mul %u, %0 : [*], f64
    step.return %p1, %c : [*], [1]
  }
  step.rule @square(%p: param[n, n], %g: grad[n, n], %c: state "c"[1, n]) {
    %u = step.mul %g, %c : [n, n], [1, n]
    %uu = step.mul %u, %u : [n, n]
    %0 = step.mean %uu reassociable : [n, n]
    %p1 = step.mul %u, %0 : [n, n], f64
    step.return %p1, %c : [n, n], [1, n]
  }
}

// -----

// Two dims of one name are reduced by one reduction over it.
// CHECK-LABEL: step.optimizer @one_name
// CHECK: step.mean %{{.*}} over [n] : [n, n]
// CHECK: step.mean %{{.*}} : [1, 1]
step.optimizer @one_name {
  step.rule @square(%p: param[n, n], %g: grad[n, n], %s: state "s"[1, 1]) {
    %x = step.mul %p, %s : [n, n], [1, 1]
    %xx = step.mul %x, %x : [n, n]
    %mean = step.mean %xx reassociable : [n, n]
    %p1 = step.mul %p, %mean : [n, n], f64
    step.return %p1, %s : [n, n], [1, 1]
  }
}
