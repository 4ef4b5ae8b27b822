// RUN: stepc-opt --pass-pipeline="builtin.module(step.optimizer(step-form-programs, step-drop-twin-programs))" %s | FileCheck %s

// Elements are the same in any layout: one program of a variant is enough. One that reduces is not.

// CHECK: step.program @opt_any_0
// CHECK-NOT: step.program @opt_any_1
// CHECK: step.program @opt_any_2
// CHECK: step.program @opt_matrix_3
// CHECK: step.program @opt_matrix_4
step.optimizer @opt {
  step.rule @opt_any_0(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @opt_any_1(%p: param[*] as f32, %g: grad[*] as f32) variant <"any", {}, f32, <{"flat range" = ["dp"]}>> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @opt_any_2(%p: param[*] as bf16, %g: grad[*] as f32) variant <"any", {}, f32> {
    %p1 = step.sub %p, %g : [*]
    step.return %p1
  }
  step.rule @opt_matrix_3(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32> {
    %r = step.mean %g over [m] : [n, m]
    %p1 = step.sub %p, %r : [n, m], [n, 1]
    step.return %p1 : [n, m]
  }
  step.rule @opt_matrix_4(%p: param[n, m] as f32, %g: grad[n, m] as f32) variant <"matrix", {}, f32, <{n = ["dp"]}>> {
    %r = step.mean %g over [m] : [n, m]
    %p1 = step.sub %p, %r : [n, m], [n, 1]
    step.return %p1 : [n, m]
  }
}
