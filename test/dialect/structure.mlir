// Tests the syntax of an optimizer, its hyper-parameters, options and rules.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: step.optimizer @everything {
step.optimizer @everything {
  // Values print under the names that the definition gives.
  // CHECK-NEXT: %lr = step.hyper "lr" = 0.001
  %a = step.hyper "lr" = 1.0e-3
  // CHECK-NEXT: %momentum = step.hyper "momentum" = 0.0
  %b = step.hyper "momentum" = 0.0
  // CHECK-NEXT: %nesterov = step.option "nesterov" = false
  %c = step.option "nesterov" = false
  // CHECK-NEXT: %maximize = step.option "maximize" = true
  %d = step.option "maximize" = true
  // CHECK-NEXT: %ne = step.option "ne" = %momentum ne 0.0
  %e = step.option "ne" = %b ne 0.0
  // CHECK-NEXT: step.option "lt" = %lr lt -0.5
  %f = step.option "lt" = %a lt -0.5
  // CHECK-NEXT: step.option "le" = %lr le 1.0e-08
  %g = step.option "le" = %a le 1.0e-8
  // CHECK-NEXT: step.option "gt" = %lr gt 1.0
  %h = step.option "gt" = %a gt 1.0
  // CHECK-NEXT: step.option "ge" = %lr ge 1.0
  %i = step.option "ge" = %a ge 1.0
  // CHECK-NEXT: step.option "eq" = %lr eq 1.0
  %j = step.option "eq" = %a eq 1.0

  // CHECK-NEXT: step.rule @least(%param: param[*], %grad: grad[*]) {
  // CHECK-NEXT:   step.return %param{{$}}
  // CHECK-NEXT: }
  step.rule @least(%x: param[*], %y: grad[*]) {
    step.return %x
  }

  // The order of the arguments is the definition's. An initial value of zero is
  // not written.
  // CHECK-NEXT: step.rule @most(
  // CHECK-SAME:   %exp_avg: state "exp_avg"[*],
  // CHECK-SAME:   %count: count,
  // CHECK-SAME:   %grad: grad[*],
  // CHECK-SAME:   %prev: state "prev"[*] = 0.5,
  // CHECK-SAME:   %fresh: fresh,
  // CHECK-SAME:   %param: param[*],
  // CHECK-SAME:   %buf: state "buf"[*] = -0.0 if %ne) {
  // CHECK-NEXT:   step.return %exp_avg, %prev, %param, %buf{{$}}
  step.rule @most(%m: state "exp_avg"[*], %t: count, %y: grad[*],
                  %z: state "prev"[*] = 0.5, %u: fresh, %x: param[*],
                  %w: state "buf"[*] = -0.0 if %e) {
    step.return %m, %z, %x, %w
  }

  // Several that name their states, and one that does not.
  // CHECK: step.rule @freshes(
  // CHECK-SAME: %fresh: fresh, %fresh_0: fresh("a"), %fresh_1: fresh("b", "a"), %fresh_2: fresh()) {
  step.rule @freshes(%x: param[*], %y: grad[*], %m: state "a"[*], %n: state "b"[*],
                     %t: fresh, %u: fresh("a"), %v: fresh("b", "a"), %w: fresh()) {
    step.return %x, %m, %n
  }

  // CHECK: step.rule @named(%param: param[n, m], %grad: grad[n, m],
  // CHECK-SAME: %row: state "row"[n, 1], %one: state "one"[1, 1]) {
  // CHECK-NEXT:   step.return %param, %row, %one : [n, m], [n, 1], [1, 1]
  step.rule @named(%x: param[n, m], %y: grad[n, m], %r: state "row"[n, 1],
                   %s: state "one"[1, 1]) {
    step.return %x, %r, %s : [n, m], [n, 1], [1, 1]
  }

  // Two guards; the second is the second guarded state's.
  // CHECK: step.rule @guards(
  // CHECK-SAME: %a: state "a"[*] if %nesterov,
  // CHECK-SAME: %b: state "b"[*],
  // CHECK-SAME: %c: state "c"[*] if %maximize)
  step.rule @guards(%x: param[*], %y: grad[*], %m: state "a"[*] if %c,
                    %n: state "b"[*], %o: state "c"[*] if %d) {
    step.return %x, %m, %n, %o
  }

  // No value is returned for a state that is given.
  // CHECK: step.rule @given(%param: param[*], %grad: grad[*],
  // CHECK-SAME: %a: state "a"[*] = 1.0 given, %b: state "b"[*], %c: state "c"[*] given if %maximize) {
  // CHECK-NEXT:   step.return %param, %b
  step.rule @given(%x: param[*], %y: grad[*], %m: state "a"[*] = 1.0 given,
                   %n: state "b"[*], %o: state "c"[*] given if %d) {
    step.return %x, %n
  }

  // Extents are compared with extents; such a condition has no operand.
  // CHECK: step.rule @wide(%param: param[n, m], %grad: grad[n, m]) where
  // CHECK-SAME: extent 0 le extent 1, extent -2 ne extent -1, rank gt extent 0 {
  step.rule @wide(%x: param[n, m], %y: grad[n, m])
      where extent 0 le extent 1, extent -2 ne extent -1, rank gt extent 0 {
    step.return %x : [n, m]
  }
  // CHECK: step.rule @large(%param: param[*], %grad: grad[*]) where
  // CHECK-SAME: extent -1 gt extent -2, %maximize, extent 0 lt 7 {
  step.rule @large(%x: param[*], %y: grad[*]) where extent -1 gt extent -2, %d, extent 0 lt 7 {
    step.return %x
  }

  // Names that are no identifiers.
  // CHECK: step.rule @"any tensor"(%param: param[*], %grad: grad[*],
  // CHECK-SAME: state "second moment's"[*]) {
  step.rule @"any tensor"(%x: param[*], %y: grad[*],
                          %m: state "second moment's"[*]) {
    step.return %x, %m
  }
}

// CHECK-LABEL: step.optimizer @empty attributes {paper = "none"} {
// CHECK-NEXT: }
step.optimizer @empty attributes {paper = "none"} {}

// CHECK-LABEL: step.optimizer @variants
step.optimizer @variants {
  %o = step.option "maximize" = false
  // A bound rule has storage types and says which variant it is.
  // CHECK: step.rule @bound(%param: param[*] as bf16, %grad: grad[*] as bf16,
  // CHECK-SAME: %m: state "m"[*] = 1.0 as f32, %count: count)
  // CHECK-SAME: variant <"any", {maximize = true}, f32> attributes {note = "kept"} {
  step.rule @bound(%x: param[*] as bf16, %y: grad[*] as bf16,
                   %m: state "m"[*] = 1.0 as f32, %t: count)
      variant <"any", {maximize = true}, f32>
      attributes {note = "kept"} {
    step.return %x, %m
  }

  // The long form of the variant may be written too.
  // CHECK: step.rule @long(%param: param[*] as f64, %grad: grad[*] as f64) variant <"any", {maximize = true}, f64> {
  step.rule @long(%x: param[*] as f64, %y: grad[*] as f64)
      variant #step.variant<"any", {maximize = true}, f64> {
    step.return %x
  }
}
