// Tests the syntax of dims that a rule makes of others.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s
// RUN: stepc %s --variant=param=bf16,grad=bf16 --compile-to=schedule | FileCheck %s --check-prefix=PROGRAM
// RUN: stepc %s --interface | FileCheck %s --check-prefix=INTERFACE

// CHECK-LABEL: step.optimizer @low
step.optimizer @low {
  %lr = step.hyper "lr" = 1.0
  %rank = step.option "rank" = 128
  // CHECK: step.rule @matrix({{.*}}%low: state "low"[...b, n, r], %seen: state "seen"[...b, k, 1] kept)
  // CHECK-SAME: dim r = min %rank, 64, n, m dim k = m / 64 where rank ge 2 {
  // INTERFACE: "bound_dims":
  // INTERFACE: "least_of": [
  // INTERFACE-NEXT: "n",
  // INTERFACE-NEXT: "m"
  // INTERFACE: "most": 64,
  // INTERFACE-NEXT: "name": "r",
  // INTERFACE-NEXT: "option": "rank",
  // INTERFACE-NEXT: "per": 1
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m], %q: state "projection"[...b, m, r] given,
                    %v: state "low"[...b, n, r], %s: state "seen"[...b, k, 1] kept)
      dim r = min n, %rank, 64, m dim k = m / 64 where rank ge 2 {
    // PROGRAM: step.program @low_matrix_0({{.*}}) variant {{.*}} attributes {bound_dims = ["r", "k"]
    // PROGRAM: step.extent k
    // PROGRAM: step.product %{{.*}}, %{{.*}} : <[...b, n, m], f32>, <[...b, m, r], f32> -> <[...b, n, r], f32>
    // PROGRAM: step.traverse {{.*}} over [...b, n, r]
    %low = step.matmul %g, %q : [...b, n, m], [...b, m, r]
    %v1 = step.add %v, %low : [...b, n, r]
    // CHECK: step.extent k
    %k = step.extent k
    %s1 = step.add %s, %k : [...b, k, 1], f64
    %qt = step.transpose %q : [...b, m, r]
    %u = step.matmul %v1, %qt : [...b, n, r], [...b, r, m]
    %p1 = step.sub %p, %u : [...b, n, m]
    step.return %p1, %v1, %s1 : [...b, n, m], [...b, n, r], [...b, k, 1]
  }
  // A single thing needs no `min`.
  // CHECK: step.rule @vector({{.*}}) dim k = n {
  step.rule @vector(%p: param[n], %g: grad[n]) dim k = min n {
    step.return %p : [n]
  }
  // CHECK: step.rule @halves({{.*}}) dim k = min 3, n / 2 {
  step.rule @halves(%p: param[n], %g: grad[n]) dim k = min 3, n / 2 {
    step.return %p : [n]
  }
}
