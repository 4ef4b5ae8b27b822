// RUN: stepc-opt --pass-pipeline="builtin.module(step.optimizer(step-insert-collectives, step-insert-exchanges, step-verify-sharded))" %s | FileCheck %s

// ZeRO-2: each rank has an addend, and keeps the states of a range.
// CHECK-LABEL: @zero2
// CHECK: %[[G:.*]] = step.reduce_scatter %{{.*}} over ["dp"] of bf16 wire bf16 : [*]
// CHECK-NEXT: %[[P:.*]] = step.sub %{{.*}}, %[[G]] : [*]
// CHECK-NEXT: %[[R:.*]] = step.all_gather %[[P]] over ["dp"] : [*]
// CHECK-NEXT: step.return %[[R]]
step.optimizer @zero2 {
  step.rule @any(%p: param[*] as bf16, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}> entry <whole = ["dp"], partial = ["dp"], gradient = bf16, wire = bf16>> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
}

// ZeRO-1: somebody else has summed the gradient.
// CHECK-LABEL: @zero1
// CHECK: %[[G:.*]] = step.all_slice %{{.*}} over ["dp"] of f32 : [*]
// CHECK-NEXT: step.sub %{{.*}}, %[[G]]
// CHECK: step.all_gather
step.optimizer @zero1 {
  step.rule @any(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}> entry <whole = ["dp"], partial = [], gradient = f32>> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
}

// DDP: nothing is cut.
// CHECK-LABEL: @ddp
// CHECK: %[[G:.*]] = step.all_reduce %{{.*}} over ["dp"] of f32 wire f16 : [n]
// CHECK-NEXT: %[[S:.*]] = step.sum %[[G]] : [n]
// CHECK-NOT: step.all_gather
step.optimizer @ddp {
  step.rule @any(%p: param[n] as f32, %g: grad[n] as f32) variant <"any", {}, f32 entry <whole = [], partial = ["dp"], gradient = f32, wire = f16>> {
    %s = step.sum %g : [n]
    %p1 = step.mul %p, %s : [n], f64
    step.return %p1 : [n]
  }
}

// Replicas of what is shared out: the sum over them is of parts.
// CHECK-LABEL: @replicas
// CHECK: %[[A:.*]] = step.reduce_scatter %{{.*}} over ["dp", "cp"] of f32 wire f32 : [n]
// CHECK-NEXT: %[[C:.*]] = step.all_reduce %[[A]] over ["replica"] of f32 wire f32 : [n]
// CHECK-NEXT: %[[S:.*]] = step.sum %[[C]] across [dp, cp] : [n]
// CHECK: step.all_gather %{{.*}} over ["dp", "cp"] : [n]
step.optimizer @replicas {
  step.rule @any(%p: param[n] as f32, %g: grad[n] as f32) variant <"any", {}, f32, <{n = ["dp", "cp"]}> entry <whole = ["dp", "cp"], partial = ["dp", "cp", "replica"], gradient = f32, wire = f32>> {
    %s = step.sum %g : [n]
    %p1 = step.mul %p, %s : [n], f64
    step.return %p1 : [n]
  }
}

// One rank steps what needs whole matrices.
// CHECK-LABEL: @owned
// CHECK: %[[G:.*]] = step.to_owner %{{.*}} over ["dp"] of f32 wire f32 : [n, n]
// CHECK-NEXT: step.matmul %[[G]], %[[G]]
// CHECK: step.from_owner %{{.*}} over ["dp"] : [n, n]
step.optimizer @owned {
  step.rule @any(%p: param[n, n] as f32, %g: grad[n, n] as f32) variant <"any", {}, f32 entry <whole = ["dp"], partial = ["dp"], gradient = f32, wire = f32>> {
    %gg = step.matmul %g, %g : [n, n], [n, n]
    %p1 = step.sub %p, %gg : [n, n]
    step.return %p1 : [n, n]
  }
}

// CHECK-LABEL: @owned_sum
// CHECK: step.to_owner %{{.*}} over ["dp"] of f32 : [n, n]
step.optimizer @owned_sum {
  step.rule @any(%p: param[n, n] as f32, %g: grad[n, n] as f32) variant <"any", {}, f32 entry <whole = ["dp"], partial = [], gradient = f32>> {
    %gg = step.matmul %g, %g : [n, n], [n, n]
    %p1 = step.sub %p, %gg : [n, n]
    step.return %p1 : [n, n]
  }
}
