// RUN: stepc-opt --step-instantiate-variants='variants=option.factored=true,option.factored=false' %s \
// RUN:   | FileCheck %s --check-prefix=MADE
// RUN: stepc-opt --step-instantiate-variants='variants=option.factored=true,option.factored=false' \
// RUN:   --step-resolve-options %s | FileCheck %s

// A rule whose conditions on options do not hold makes no variant; an integer
// option is part of none.

// MADE: step.rule @opt_matrix_0({{.*}}) where rank ge 2, extent -1 ge %size, %factored
// MADE-SAME: variant <"matrix", {factored = true}, f32>
// MADE: step.rule @opt_any_1({{.*}}) variant <"any", {factored = true}, f32>
// MADE: step.rule @opt_flat_2({{.*}}) where not %factored, rank lt 2 variant <"flat", {factored = false}, f32>
// MADE: step.rule @opt_any_3({{.*}}) variant <"any", {factored = false}, f32>
// MADE-NOT: step.rule

// What is left of the conditions is for when a parameter is bound.

// CHECK: step.rule @opt_matrix_0({{.*}}) where rank ge 2, extent -1 ge %size variant
// CHECK-NEXT: step.return %param : [...b, n, m]
// CHECK: step.rule @opt_any_1({{.*}}f32) variant
// CHECK-NEXT: step.return %grad
// CHECK: step.rule @opt_flat_2({{.*}}) where rank lt 2 variant
// CHECK: step.rule @opt_any_3({{.*}}f32) variant
// CHECK-NEXT: step.return %param
step.optimizer @opt {
  %size = step.option "size" = 128
  %factored = step.option "factored" = true
  step.rule @matrix(%p: param[...b, n, m], %g: grad[...b, n, m])
      where rank ge 2, extent -1 ge %size, %factored {
    step.return %p : [...b, n, m]
  }
  step.rule @flat(%p: param[*], %g: grad[*]) where not %factored, rank lt 2 {
    step.return %p
  }
  // Conditions made of options are decided, too.
  step.rule @any(%p: param[*], %g: grad[*]) {
    %0 = step.not %factored : i1
    %1 = step.or %0, %0 : i1
    %2 = step.select %1, %p, %g : [*]
    step.return %2
  }
}
