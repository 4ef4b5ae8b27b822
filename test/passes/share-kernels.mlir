// RUN: stepc-opt --pass-pipeline="builtin.module(step.optimizer(step-form-programs, step-drop-twin-programs, step-share-kernels))" %s | FileCheck %s
// RUN: stepc-opt --step-stage-schedule --step-stage-lower %s | FileCheck %s --check-prefix=CODE

// Programs that differ in their exchanges alone have kernels once: of elements in any layout, of
// others in the same.

// CHECK: step.program @opt_any_0
// CHECK-NOT: kernels_of
// CHECK: step.traverse @opt_any_0_phase0
// CHECK: step.program @opt_any_1{{.*}} elementwise attributes {kernels_of = "opt_any_0"}
// CHECK: %[[G:.*]] = step.reduce_scatter %{{.*}} over ["dp"] of bf16 wire bf16 : !step.buffer<[*], f32>
// CHECK-NEXT: step.cohort_scalars @opt_any_0_scalars
// CHECK: %[[P:.*]] = step.traverse @opt_any_0_phase0 over [*] reads ({{.*}} = %[[G]] : <[*], f32>)
// CHECK: step.all_gather %[[P]] over ["dp"] : !step.buffer<[*], f32>
// CHECK: step.program @opt_matrix_2
// CHECK-NOT: kernels_of
// CHECK: step.program @opt_matrix_3
// CHECK-SAME: kernels_of = "opt_matrix_2"
// CHECK: step.all_reduce
// CHECK: step.traverse @opt_matrix_2_phase0
// CHECK: step.program @opt_matrix_4
// CHECK-NOT: kernels_of
// CHECK: step.traverse @opt_matrix_4_phase0

// CODE-DAG: llvm.func @opt_any_0_phase0
// CODE-DAG: llvm.func @opt_matrix_2_phase0
// CODE-DAG: llvm.func @opt_matrix_4_phase0
// CODE-NOT: @opt_any_1
// CODE-NOT: @opt_matrix_3
step.optimizer @opt {
  step.rule @opt_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @opt_any_1(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}> entry <whole = ["dp"], partial = ["dp"], gradient = bf16, wire = bf16>> {
    %0 = step.reduce_scatter %g over ["dp"] of bf16 wire bf16 : [*]
    %p1 = step.sub %p, %0 : [*]
    %1 = step.all_gather %p1 over ["dp"] : [*]
    step.return %1
  }
  step.rule @opt_matrix_2(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32> {
    %r = step.mean %g over [m] : [n, m]
    %p1 = step.sub %p, %r : [n, m], [n, 1]
    step.return %p1 : [n, m]
  }
  step.rule @opt_matrix_3(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32 entry <whole = [], partial = ["dp"], gradient = f32, wire = f32>> {
    %0 = step.all_reduce %g over ["dp"] of f32 wire f32 : [n, m]
    %r = step.mean %0 over [m] : [n, m]
    %p1 = step.sub %p, %r : [n, m], [n, 1]
    step.return %p1 : [n, m]
  }
  step.rule @opt_matrix_4(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32, <{n = ["dp"]}> entry <whole = ["dp"], partial = [], gradient = f32>> {
    %0 = step.all_slice %g over ["dp"] of f32 : [n, m]
    %r = step.mean %0 over [m] : [n, m]
    %p1 = step.sub %p, %r : [n, m], [n, 1]
    %1 = step.all_gather %p1 over ["dp"] : [n, m]
    step.return %1 : [n, m]
  }
}
