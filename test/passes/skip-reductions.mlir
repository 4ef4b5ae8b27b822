// RUN: stepc-opt %s -step-skip-reductions | FileCheck %s

// CHECK-LABEL: step.optimizer @skipped
step.optimizer @skipped {
  %lr = step.hyper "lr" = 1.0
  %stat = step.statistic "s" sum over model
  %round = step.scalars over model {
    %f = step.compare lt, %stat, %lr : f64
    step.yield %f : i1
  }
  // The flag of a scalar, on either side; made behind the reduction.
  // CHECK: step.rule @sides
  step.rule @sides(%p: param[n, m] as f32, %g: grad[n, m] as f32, %t: count)
      variant <"sides", {}, f32> {
    // CHECK-NEXT: %[[N:.*]] = step.to_f64 %count
    // CHECK-NEXT: %[[FLAG:.*]] = step.compare lt, %[[N]], %lr : f64
    // CHECK-NEXT: %[[A:.*]] = step.mean %param unless %[[FLAG]] : [n, m]
    // CHECK-NEXT: %[[NOT:.*]] = step.not %[[FLAG]] : i1
    // CHECK-NEXT: %[[B:.*]] = step.sum %grad unless %[[NOT]] : [n, m]
    // CHECK-NEXT: step.select %[[FLAG]], %lr, %[[A]] : f64
    %a = step.mean %p : [n, m]
    %b = step.sum %g : [n, m]
    %number = step.to_f64 %t
    %flag = step.compare lt, %number, %lr : f64
    %x = step.select %flag, %lr, %a : f64
    %y = step.select %flag, %b, %x : f64
    %p1 = step.mul %g, %y : [n, m], f64
    step.return %p1 : [n, m]
  }
  // A flag of what the input has waited for; and reductions of vectors wait for
  // nothing more.
  // CHECK: step.rule @waited
  step.rule @waited(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32)
      variant <"waited", {}, f32> {
    // CHECK: step.sum %{{.*}} unless
    %sum = step.sum %g : [n, m]
    %most = step.amax %r : [n, 1]
    %flag = step.compare lt, %sum, %most : f64
    %scaled = step.mul %g, %sum : [n, m], f64
    %b = step.sum %scaled : [n, m]
    %x = step.select %flag, %lr, %b : f64
    %p1 = step.mul %g, %x : [n, m], f64
    step.return %p1, %r : [n, m], [n, 1]
  }
  // Not: a flag that another traversal makes, one of a round, a result that is used
  // on both sides, by two flags, by something else, one of a vector, and one for each row.
  // CHECK: step.rule @made
  // CHECK-NOT: unless
  step.rule @made(%p: param[n, m] as f32, %g: grad[n, m] as f32, %r: state "r"[n, 1] as f32,
                  %f: fresh) variant <"made", {}, f32> {
    %sum = step.sum %g : [n, m]
    step.contribute %stat, %sum
    %late = step.compare lt, %sum, %lr : f64
    %a = step.sum %p : [n, m]
    %0 = step.select %late, %lr, %a : f64
    %b = step.amax %p : [n, m]
    %1 = step.select %round, %0, %b : f64
    %c = step.mean %p : [n, m]
    %2 = step.select %f, %1, %c : f64
    %3 = step.select %f, %c, %2 : f64
    %d = step.mean %g : [n, m]
    %early = step.compare lt, %lr, %3 : f64
    %4 = step.select %f, %3, %d : f64
    %5 = step.select %late, %4, %d : f64
    %of_rows = step.sum %r : [n, 1]
    %7 = step.select %f, %5, %of_rows : f64
    %rows = step.sum %p over [m] : [n, m]
    %6 = step.select %f, %r, %rows : [n, 1]
    %p1 = step.mul %g, %7 : [n, m], f64
    step.return %p1, %6 : [n, m], [n, 1]
  }
}
