// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=bf16;grad=f32;state.wide=f32;state.narrow=bf16' \
// RUN:   --step-resolve-storage %s | FileCheck %s
// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=f64;state=f32' \
// RUN:   --step-resolve-storage %s | FileCheck %s --check-prefix=F64

// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=f16;state=f32' \
// RUN:   --step-resolve-storage %s | FileCheck %s --check-prefix=F16
// RUN: not stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=f16;state=f32;state.both=bf16' \
// RUN:   --step-resolve-storage %s 2>&1 | FileCheck %s --check-prefix=NEITHER

// A value that is stored as bf16 is rounded where it is defined, and later uses
// see it rounded; one that is stored in the compute type is not; one that is
// stored in both is rounded to the narrower.

// CHECK: %[[A:.*]] = step.add %[[P:.*]], %[[G:.*]] : [*]
// CHECK-NEXT: %[[R:.*]] = step.round %[[A]] to bf16
// CHECK-NEXT: %[[B:.*]] = step.mul %[[R]], %[[G]]
// CHECK-NEXT: %[[C:.*]] = step.sub %[[B]], %[[R]]
// CHECK-NEXT: %[[RC:.*]] = step.round %[[C]] to bf16
// CHECK-NEXT: step.return %[[RC]], %[[B]], %[[R]], %[[RC]]

// F64: step.add
// F64-NEXT: step.round %{{.*}} to f32
// F64: step.sub
// F64-NEXT: step.round %{{.*}} to f32

// F16-COUNT-1: step.round %{{.*}} to f16
// F16-NOT: step.round
// NEITHER: error: 'step.stored' op is of a value that is stored as both bf16 and f16, of which neither has the values of the other
step.optimizer @opt {
  step.rule @any(%p: param[*], %g: grad[*], %w: state "wide"[*],
                 %n: state "narrow"[*], %both: state "both"[*]) {
    %a = step.add %p, %g : [*]
    %b = step.mul %a, %g : [*]
    %c = step.sub %b, %a : [*]
    step.return %c, %b, %a, %c
  }
}
