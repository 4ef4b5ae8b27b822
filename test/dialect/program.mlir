// Tests the syntax of programs, phases and memory by address.
// RUN: %round-trip %t %s
// RUN: stepc-opt %s | FileCheck %s

#variant = #step.variant<"any", {maximize = false}, f32>
#param = #step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = bf16, reads = true, writes = true>
#grad = #step.operand<kind = grad, name = "grad", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>
#state = #step.operand<kind = state, name = "m", shape = !step.tensor<*>, storage = f64, init = 1.0 : f64, reads = false, writes = true>

// CHECK-LABEL: step.optimizer @sgd
step.optimizer @sgd {
  %lr = step.hyper "lr" = 1.0
  // CHECK: step.program @sgd_any_0 variant <"any", {maximize = false}, f32>
  // CHECK-SAME: operands [#step.operand<kind = param, name = "param", shape = !step.tensor<*>, storage = bf16, reads = true, writes = true>,
  // CHECK-SAME: #step.operand<kind = grad, name = "grad", shape = !step.tensor<*>, storage = f32, reads = true, writes = false>,
  // CHECK-SAME: #step.operand<kind = state, name = "m", shape = !step.tensor<*>, storage = f64, init = 1.000000e+00 : f64, reads = false, writes = true>] {
  step.program @sgd_any_0 variant #variant operands [#param, #grad, #state] {
    // CHECK-NEXT: step.scalar_phase @scalars {
    // Arguments print under the names of what they are.
    // CHECK-NEXT: ^bb0(%[[LR:lr(_[0-9]+)?]]: f64, %count: i64, %fresh: i1):
    // CHECK-NEXT:   step.yield %[[LR]] : f64
    step.scalar_phase @scalars {
    ^bb0(%rate: f64, %count: i64, %fresh: i1):
      step.yield %rate : f64
    }
    // CHECK: step.phase @update slots 1 operands [
    // CHECK-NEXT: ^bb0(%slot: f64, %param: bf16, %grad: f32):
    step.phase @update slots 1 operands [#param, #grad, #state] {
    ^bb0(%rate: f64, %p: bf16, %g: f32):
      %0 = arith.extf %g : f32 to f64
      %1 = arith.mulf %0, %rate : f64
      // CHECK: step.yield %param, %{{[0-9]+}} : bf16, f64
      step.yield %p, %1 : bf16, f64
    }
    // A phase may work on some of the operands.
    // CHECK: step.phase @nothing slots 1 operands [] {
    // CHECK-NEXT: ^bb0(%slot: f64):
    // CHECK-NEXT:   step.yield{{$}}
    step.phase @nothing slots 1 operands [] {
    ^bb0(%rate: f64):
      step.yield
    }
  }
}

// CHECK-LABEL: func.func @memory
func.func @memory(%address: i64) {
  // CHECK: step.view %{{.*}} : memref<?xf32>
  %0 = step.view %address : memref<?xf32>
  // CHECK: step.view %{{.*}} : memref<?xi16>
  %1 = step.view %address : memref<?xi16>
  // CHECK: step.prefetch %{{[a-z0-9]+}}{{$}}
  step.prefetch %address
  // CHECK: step.prefetch %{{[a-z0-9]+}} write{{$}}
  step.prefetch %address write
  return
}
