// RUN: stepc-opt %s -step-mark-stored -step-drop-dead-states \
// RUN:   -step-instantiate-variants='variants=state.unread=bf16' 2>/dev/null \
// RUN:   | FileCheck %s --check-prefix=REQUEST
// RUN: stepc-opt %s -step-mark-stored -step-drop-dead-states -verify-diagnostics | FileCheck %s

// A request may name a state that was there.
// REQUEST: step.rule @dead_any_0
// REQUEST-NOT: dropped_states

// CHECK-LABEL: step.optimizer @dead
step.optimizer @dead {
  %o = step.option "o" = true
  %a = step.statistic "a" sum over model
  // "unread" is returned only, "self" feeds itself alone, and "one" and "other"
  // feed each other. "kept" reaches the param a step later, through "next".
  // CHECK: step.rule @any(%param: param[*], %grad: grad[*],
  // CHECK-SAME: %kept: state "kept"[*] if %o, %next: state "next"[*],
  // CHECK-SAME: %sum: state "sum"[*], %count: count)
  // CHECK-SAME: attributes {dropped_states = ["unread", "self", "one", "other"]} {
  step.rule @any(%p: param[*], %g: grad[*],
                 // expected-remark @+1 {{state 'unread' is never used, it is dropped}}
                 %unread: state "unread"[*],
                 %kept: state "kept"[*] if %o,
                 // expected-remark @+1 {{state 'self' is never used, it is dropped}}
                 %self: state "self"[*] if %o,
                 %next: state "next"[*],
                 // expected-remark @+1 {{state 'one' is never used, it is dropped}}
                 %one: state "one"[*],
                 // expected-remark @+1 {{state 'other' is never used, it is dropped}}
                 %other: state "other"[*],
                 %sum: state "sum"[*], %t: count) {
    // CHECK-NEXT: %[[P:.*]] = step.sub %param, %next
    // CHECK-NEXT: %[[PS:.*]] = step.stored %[[P]] as [0]
    // CHECK-NEXT: %[[N:.*]] = step.neg %kept
    // CHECK-NEXT: %[[NS:.*]] = step.stored %[[N]] as [3]
    // CHECK-NEXT: %[[S:.*]] = step.sum %sum
    // CHECK-NEXT: step.contribute %a, %[[S]]
    // CHECK-NEXT: %[[GS:.*]] = step.stored %grad as [2]
    // CHECK-NEXT: %[[GT:.*]] = step.stored %grad as [4]
    // CHECK-NEXT: step.return %[[PS]], %[[GS]], %[[NS]], %[[GT]]
    %p1 = step.sub %p, %next : [*]
    %next1 = step.neg %kept : [*]
    %unread1 = step.abs %g : [*]
    %self1 = step.add %self, %g : [*]
    %one1 = step.add %other, %g : [*]
    %other1 = step.add %one, %g : [*]
    %s = step.sum %sum : [*]
    step.contribute %a, %s
    step.return %p1, %unread1, %g, %self1, %next1, %one1, %other1, %g
  }

  // What is stored is rounded, and the param is made of it: nothing is dropped.
  // CHECK: step.rule @rounds(%param: param[*], %grad: grad[*], %m: state "m"[*]) {
  step.rule @rounds(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    %m1 = step.neg %g : [*]
    %p1 = step.sub %p, %m1 : [*]
    step.return %p1, %m1
  }

  // Whether a state is fresh is known where it is there, and asked of none that is not.
  // CHECK: step.rule @asks(%param: param[*], %grad: grad[*], %{{.*}}: state "a"[*], %{{.*}}: fresh("a"),
  // CHECK-SAME: %{{.*}}: fresh())
  // CHECK-SAME: attributes {dropped_states = ["b"]} {
  step.rule @asks(%p: param[*], %g: grad[*], %s: state "a"[*],
                  // expected-remark @+1 {{state 'b' is never used, it is dropped}}
                  %b: state "b"[*], %first: fresh("a"), %unused: fresh("b")) {
    %p1 = step.select %first, %g, %p : [*]
    step.return %p1, %s, %b
  }

  // What says so is kept, with the state that it is made of; the other is not.
  // CHECK: step.rule @keeps(%param: param[*], %grad: grad[*],
  // CHECK-SAME: %average: state "average"[*] = 0.5 kept if %o,
  // CHECK-SAME: %source: state "source"[*])
  // CHECK-SAME: attributes {dropped_states = ["other"]} {
  step.rule @keeps(%p: param[*], %g: grad[*],
                   %average: state "average"[*] = 0.5 kept if %o,
                   // expected-remark @+1 {{state 'other' is never used, it is dropped}}
                   %other: state "other"[*], %source: state "source"[*]) {
    %source1 = step.sub %source, %g : [*]
    %average1 = step.add %average, %source : [*]
    %p1 = step.sub %p, %g : [*]
    step.return %p1, %average1, %g, %source1
  }
}
