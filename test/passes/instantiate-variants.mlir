// RUN: stepc-opt --step-instantiate-variants %s | FileCheck %s --check-prefix=DEFAULT
// RUN: stepc-opt --step-instantiate-variants='variants=param=bf16;grad=bf16;state.m=bf16;option.flip=true;option.moving=true,param=f64;option.moving=false' %s \
// RUN:   | FileCheck %s --check-prefix=ASKED
// RUN: stepc-opt --step-instantiate-variants='variants=option.moving=true,option.moving=true' %s \
// RUN:   | FileCheck %s --check-prefix=TWICE

// Without a request: f32, options at their default, and both values of the
// derived one.

// DEFAULT: step.rule @opt_any_0(%{{.*}}: param[*] as f32, %{{.*}}: grad[*] as f32, %{{.*}}: state "m"[*] if %moving as f32)
// DEFAULT-SAME: variant <"any", {flip = false, moving = false}, f32>
// DEFAULT: step.rule @opt_any_1(
// DEFAULT-SAME: variant <"any", {flip = false, moving = true}, f32>
// DEFAULT-NOT: step.rule

// ASKED: step.rule @opt_any_0(%{{.*}}: param[*] as bf16, %{{.*}}: grad[*] as bf16, %{{.*}}: state "m"[*] if %moving as bf16)
// ASKED-SAME: variant <"any", {flip = true, moving = true}, f32>
// ASKED: step.rule @opt_any_1(%{{.*}}: param[*] as f64, %{{.*}}: grad[*] as f64, %{{.*}}: state "m"[*] if %moving as f64)
// ASKED-SAME: variant <"any", {flip = false, moving = false}, f64>
// ASKED-NOT: step.rule

// Equal requests make one variant.

// TWICE: step.rule @opt_any_0
// TWICE-NOT: step.rule
step.optimizer @opt {
  %mu = step.hyper "mu" = 0.0
  %flip = step.option "flip" = false
  %moving = step.option "moving" = %mu ne 0.0
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*] if %moving) {
    %n = step.neg %g : [*]
    %d = step.select %flip, %n, %g : [*]
    %mm = step.mul %m, %mu : [*], f64
    %m1 = step.add %mm, %d : [*]
    %u = step.select %moving, %m1, %d : [*]
    %p1 = step.sub %p, %u : [*]
    step.return %p1, %m1
  }
}
