// Tests the syntax of reductions, and of dims that stand for leading dims.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: func.func private @types(
// CHECK-SAME: !step.tensor<...b, n, m>, !step.tensor<...b, 1, m>, !step.tensor<...b>,
// CHECK-SAME: !step.mask<..._rows, 1, 1>)
func.func private @types(
  !step.tensor<...b, n, m>, !step.tensor<... b,1,m>, !step.tensor<...b>,
  !step.mask<..._rows, 1, 1>)

// CHECK-LABEL: step.optimizer @reductions
step.optimizer @reductions {
  // CHECK: step.rule @batched(%param: param[...b, n, m], %grad: grad[...b, n, m],
  // CHECK-SAME: %row: state "row"[...b, n, 1], %one: state "one"[...b, 1, 1]) {
  step.rule @batched(%p: param[...b, n, m], %g: grad[...b, n, m],
                     %r: state "row"[...b, n, 1], %o: state "one"[...b, 1, 1]) {
    // CHECK-NEXT: %[[ROW:.*]] = step.sum %grad over [m] : [...b, n, m]{{$}}
    %0 = step.sum %g over [m] : [...b, n, m]
    // CHECK-NEXT: %[[ONE:.*]] = step.mean %[[ROW]] over [n] : [...b, n, 1]{{$}}
    %1 = step.mean %0 over [n] : [...b, n, 1]
    // CHECK-NEXT: %[[BOTH:.*]] = step.amax %grad over [n, m] : [...b, n, m]{{$}}
    %2 = step.amax %g over [n, m] : [...b, n, m]
    // CHECK-NEXT: %[[ALL:.*]] = step.sum %[[BOTH]] : [...b, 1, 1]{{$}}
    %3 = step.sum %2 : [...b, 1, 1]
    // CHECK-NEXT: step.mul %[[ALL]], %[[ONE]] : f64, [...b, 1, 1]{{$}}
    %4 = step.mul %3, %1 : f64, [...b, 1, 1]
    // CHECK-NEXT: step.mul %grad, %[[ROW]] : [...b, n, m], [...b, n, 1]{{$}}
    %5 = step.mul %g, %0 : [...b, n, m], [...b, n, 1]
    // CHECK-NEXT: step.return %{{.*}}, %[[ROW]], %{{.*}} : [...b, n, m], [...b, n, 1], [...b, 1, 1]
    step.return %5, %0, %4 : [...b, n, m], [...b, n, 1], [...b, 1, 1]
  }

  // CHECK: step.rule @any
  step.rule @any(%p: param[*], %g: grad[*]) {
    // CHECK-NEXT: step.amax %grad {note = "kept"} : [*]{{$}}
    %0 = step.amax %g {note = "kept"} : [*]
    // CHECK-NEXT: %[[LARGE:.*]] = step.compare
    %1 = step.compare gt, %0, %0 : f64, f64
    // CHECK-NEXT: step.sum %grad unless %[[LARGE]] : [*]{{$}}
    %2 = step.sum %g unless %1 : [*]
    // Several together have one type.
    // CHECK-NEXT: step.mean %grad, %param, %grad : [*]{{$}}
    %3 = step.mean %g, %p, %g : [*]
    // CHECK-NEXT: step.amax %param, %grad unless %[[LARGE]] : [*]{{$}}
    %4 = step.amax %p, %g unless %1 : [*]
    // CHECK-NEXT: step.mean %grad reassociable {note = "kept"} : [*]{{$}}
    %5 = step.mean %g reassociable {note = "kept"} : [*]
    step.return %p
  }

  // A name that stands twice is reduced twice.
  // CHECK: step.rule @square
  step.rule @square(%p: param[n, n], %g: grad[n, n], %s: state "s"[1, 1]) {
    // CHECK-NEXT: step.sum %grad over [n] : [n, n]{{$}}
    %0 = step.sum %g over [n] : [n, n]
    step.return %p, %0 : [n, n], [1, 1]
  }
}
