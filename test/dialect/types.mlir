// Tests the syntax of types.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

// CHECK-LABEL: func.func private @types(
// CHECK-SAME: !step.tensor<*>, !step.tensor<n>, !step.tensor<n, m>, !step.tensor<n, 1>,
// CHECK-SAME: !step.tensor<1, 1>, !step.tensor<n, n, n>, !step.tensor<_row, dim2, M>,
// CHECK-SAME: !step.mask<*>, !step.mask<n, 1>)
func.func private @types(
  !step.tensor<*>, !step.tensor<n>, !step.tensor<n, m>, !step.tensor< n , 1 >,
  !step.tensor<1, 1>, !step.tensor<n,n,n>, !step.tensor<_row, dim2, M>,
  !step.mask<*>, !step.mask<n, 1>)

// Words that mean something elsewhere are names of dims here.
// CHECK-LABEL: func.func private @words(
// CHECK-SAME: !step.tensor<i32, f64, true, mask, x, tensor>
func.func private @words(!step.tensor<i32, f64, true, mask, x, tensor>)

// CHECK-LABEL: step.optimizer @short
step.optimizer @short {
  // CHECK: step.rule @words(%param: param[mask, i32], %grad: grad[mask, i32]) {
  step.rule @words(%p: param[mask, i32], %g: grad[mask, i32]) {
    // The long form may be written anywhere; the short one is printed.
    // CHECK: step.neg %grad : [mask, i32]{{$}}
    %0 = step.neg %g : !step.tensor<mask, i32>
    // CHECK: %[[MASK:.*]] = step.compare lt, %param, %grad : [mask, i32]{{$}}
    %1 = step.compare lt, %p, %g : !step.tensor<mask, i32>
    // CHECK: step.select %[[MASK]], %param, %grad : mask[mask, i32], [mask, i32]{{$}}
    %2 = step.select %1, %p, %g : !step.mask<mask, i32>, [mask, i32]
    step.return %p : !step.tensor<mask, i32>
  }
}
