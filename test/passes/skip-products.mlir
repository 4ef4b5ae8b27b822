// RUN: stepc-opt %s -step-skip-products | FileCheck %s

// CHECK-LABEL: step.optimizer @skipped
step.optimizer @skipped {
  %gap = step.hyper "gap" = 3.0
  %half = step.constant 0.5
  // What a decomposition is made of, to the first; what is between them stays. The flag moves
  // to where it is asked for, and is asked for once.
  // CHECK: step.rule @chain
  step.rule @chain(%p: param[n, m] as f32, %g: grad[n, m] as f32, %q: state "q"[n, n] as f32,
                   %t: count) variant <"chain", {}, f32> {
    // CHECK-NEXT: %[[DUE:.*]] = step.every %gap, %count
    // CHECK-NEXT: %[[NOT:.*]] = step.not %[[DUE]] : i1
    // CHECK-NEXT: %[[GT:.*]] = step.transpose %grad unless %[[NOT]] : [n, m]
    // CHECK-NEXT: %[[GRAM:.*]] = step.matmul %grad, %[[GT]] unless %[[NOT]] {accumulate = f64} : [n, m], [m, n]
    // CHECK-NEXT: %[[SUM:.*]] = step.add %[[GRAM]], %q : [n, n]
    // CHECK-NEXT: %[[NEW:.*]] = step.eigh %[[SUM]] unless %[[NOT]] : [n, n]
    // CHECK-NEXT: step.select %[[DUE]], %[[NEW]], %q
    // CHECK-NEXT: step.matmul %{{.*}}, %grad : [n, n], [n, m]
    %gt = step.transpose %g : [n, m]
    %gram = step.matmul %g, %gt {accumulate = f64} : [n, m], [m, n]
    %sum = step.add %gram, %q : [n, n]
    %new = step.eigh %sum : [n, n]
    %due = step.every %gap, %t
    %q1 = step.select %due, %new, %q : [n, n]
    %u = step.matmul %q1, %g : [n, n], [n, m]
    %p1 = step.sub %p, %u : [n, m]
    step.return %p1, %q1 : [n, m], [n, n]
  }
  // A turn of a basis, also through the keys of a sort.
  // CHECK: step.rule @turn
  step.rule @turn(%p: param[n, n] as f32, %g: grad[n, n] as f32, %q: state "q"[n, n] as f32,
                  %t: count) variant <"turn", {}, f32> {
    // CHECK: %[[NOT:.*]] = step.not %{{.*}} : i1
    // CHECK-NEXT: %[[A:.*]] = step.matmul %grad, %q unless %[[NOT]] : [n, n]
    // CHECK-NEXT: %[[B:.*]] = step.matmul %q, %[[A]] unless %[[NOT]] : [n, n]
    // CHECK-NEXT: %[[KEYS:.*]] = step.diagonal %[[B]] unless %[[NOT]] : [n, n]
    // CHECK-NEXT: %[[SORTED:.*]] = step.sort %[[A]] by %[[KEYS]] unless %[[NOT]] : [n, n], [1, n]
    // CHECK-NEXT: step.qr %[[SORTED]] unless %[[NOT]] : [n, n]
    %a = step.matmul %g, %q : [n, n]
    %b = step.matmul %q, %a : [n, n]
    %keys = step.diagonal %b : [n, n]
    %sorted = step.sort %a by %keys : [n, n], [1, n]
    %new = step.qr %sorted : [n, n]
    %due = step.every %gap, %t
    %q1 = step.select %due, %new, %q : [n, n]
    step.return %p, %q1 : [n, n], [n, n]
  }
  // On either side; the flag as it is where it says when not.
  // CHECK: step.rule @sides
  step.rule @sides(%p: param[n, n] as f32, %g: grad[n, n] as f32, %f: fresh)
      variant <"sides", {}, f32> {
    // CHECK-NEXT: %[[A:.*]] = step.matmul %grad, %grad unless %fresh : [n, n]
    // CHECK-NEXT: %[[NOT:.*]] = step.not %fresh : i1
    // CHECK-NEXT: %[[B:.*]] = step.matmul %grad, %param unless %[[NOT]] : [n, n]
    // CHECK-NEXT: %[[C:.*]] = step.transpose %[[A]] unless %fresh : [n, n]
    %a = step.matmul %g, %g : [n, n]
    %b = step.matmul %g, %p : [n, n]
    %c = step.transpose %a : [n, n]
    %x = step.select %f, %p, %c : [n, n]
    %y = step.select %f, %b, %x : [n, n]
    step.return %y : [n, n]
  }
  // What is used elsewhere, too, or on both sides, or by two flags, or contributed, is made.
  // CHECK: step.rule @used
  step.rule @used(%p: param[n, n] as f32, %g: grad[n, n] as f32, %f: fresh, %t: count)
      variant <"used", {}, f32> {
    // CHECK-NOT: unless
    // CHECK: step.return
    %due = step.every %gap, %t
    %a = step.matmul %g, %g : [n, n]
    %b = step.matmul %g, %p : [n, n]
    %c = step.matmul %p, %g : [n, n]
    %w = step.select %f, %a, %p : [n, n]
    %x = step.select %f, %b, %b : [n, n]
    %y = step.select %f, %c, %w : [n, n]
    %z = step.select %due, %c, %p : [n, n]
    %u = step.add %y, %z : [n, n]
    %o = step.add %u, %x : [n, n]
    %v = step.add %o, %a : [n, n]
    step.return %v : [n, n]
  }
  // A flag of a tensor is not known before the step, nor is one for each element.
  // CHECK: step.rule @late
  step.rule @late(%p: param[n, n] as f32, %g: grad[n, n] as f32) variant <"late", {}, f32> {
    // CHECK-NOT: unless
    // CHECK: step.return
    %s = step.sum %p : [n, n]
    %flag = step.compare lt, %s, %half : f64
    %mask = step.compare lt, %p, %half : [n, n], f64
    %a = step.matmul %g, %g : [n, n]
    %b = step.matmul %g, %p : [n, n]
    %x = step.select %flag, %a, %p : [n, n]
    %y = step.select %mask, %b, %x : mask[n, n], [n, n]
    step.return %y : [n, n]
  }
}

// Rules that are not bound stay as they are.
// CHECK-LABEL: step.optimizer @unbound
step.optimizer @unbound {
  step.rule @any(%p: param[n, n], %g: grad[n, n], %f: fresh) {
    // CHECK-NOT: unless
    // CHECK: step.return
    %a = step.matmul %g, %g : [n, n]
    %x = step.select %f, %a, %p : [n, n]
    step.return %x : [n, n]
  }
}
