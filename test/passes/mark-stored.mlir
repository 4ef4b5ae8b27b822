// RUN: stepc-opt --step-mark-stored %s | FileCheck %s

// A value that is stored is marked where it is defined, and every use sees the
// marked one; one value for two roles is marked once.

// CHECK-LABEL: step.optimizer @values
step.optimizer @values {
  // CHECK: step.rule @any(%[[P:.*]]: param[*], %[[G:.*]]: grad[*]
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*], %n: state "n"[*]) {
    // CHECK: %[[M1:.*]] = step.add %{{.*}}, %[[G]]
    // CHECK-NEXT: %[[S:.*]] = step.stored %[[M1]] as [2, 3] : [*]
    %m1 = step.add %m, %g : [*]
    // CHECK-NEXT: %[[P1:.*]] = step.sub %[[P]], %[[S]]
    // CHECK-NEXT: %[[SP:.*]] = step.stored %[[P1]] as [0] : [*]
    %p1 = step.sub %p, %m1 : [*]
    // CHECK-NEXT: step.return %[[SP]], %[[S]], %[[S]]
    step.return %p1, %m1, %m1
  }
}

// An argument that is returned as it came in is not marked; one that is stored
// for another role is marked at the return, so its other uses keep it as read.

// CHECK-LABEL: step.optimizer @arguments
step.optimizer @arguments {
  // CHECK: step.rule @any(%[[P:.*]]: param[*], %[[G:.*]]: grad[*], %[[L:.*]]: state "last"[*])
  step.rule @any(%p: param[*], %g: grad[*], %last: state "last"[*]) {
    // CHECK-NEXT: %[[D:.*]] = step.sub %[[G]], %[[L]]
    // CHECK-NOT: step.stored %[[D]]
    %d = step.sub %g, %last : [*]
    // CHECK: %[[SG:.*]] = step.stored %[[G]] as [2]
    // CHECK-NEXT: step.return %[[P]], %[[SG]]
    step.return %p, %g
  }
}

// Rules that are marked stay as they are.

// CHECK-LABEL: step.optimizer @marked
step.optimizer @marked {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK: step.stored
    // CHECK-NOT: step.stored
    %p1 = step.sub %p, %g : [*]
    %s = step.stored %p1 as [0] : [*]
    step.return %s
  }
}
