// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=bf16;master=f32' \
// RUN:   --step-keep-masters --step-resolve-storage %s | FileCheck %s --check-prefix=F32
// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=bf16;master=remainder;state.narrow=bf16' \
// RUN:   --step-keep-masters --step-resolve-storage %s | FileCheck %s --check-prefix=REMAINDER
// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=bf16,param=bf16;master=f32' \
// RUN:   --step-keep-masters %s | grep -c 'step.rule' | FileCheck %s --check-prefix=BOTH
// RUN: stepc-opt --step-mark-stored --step-instantiate-variants='variants=param=f16;master=f32' \
// RUN:   --step-keep-masters --step-resolve-storage %s | FileCheck %s --check-prefix=F16

// The rule is that of an f32 parameter: nothing is rounded but what is left in
// the parameter, and what a narrow state has in common with it.

// F32-LABEL: step.rule @opt_any_0
// F32-SAME: %[[P:.*]]: param[*] as bf16, %[[G:.*]]: grad[*] as bf16, %{{.*}}: state "narrow"[*] as f32
// F32-SAME: %[[M:.*]]: state "master"[*] as f32, %[[F:.*]]: fresh("master")) variant <"any", {}, f32> {
// F32-NEXT: %[[H:.*]] = step.upper_half %[[M]] : [*]
// F32-NEXT: %[[SAME:.*]] = step.compare eq, %[[H]], %[[P]] : [*]
// F32-NEXT: %[[KNOWN:.*]] = step.select %[[SAME]], %[[M]], %[[P]] : mask[*], [*]
// F32-NEXT: %[[X:.*]] = step.select %[[F]], %[[P]], %[[KNOWN]] : [*]
// F32-NEXT: %[[X1:.*]] = step.sub %[[X]], %[[G]] : [*]
// F32-NEXT: %[[M1:.*]] = step.mul %[[X1]], %[[X]] : [*]
// F32-NEXT: %[[P1:.*]] = step.upper_half %[[X1]] : [*]
// F32-NEXT: step.return %[[P1]], %[[X1]], %[[X1]]

// An f16 is the nearest, a tie to even.
// F16-LABEL: step.rule @opt_any_0
// F16-SAME: %[[P:.*]]: param[*] as f16, %{{.*}}: grad[*] as f16, %{{.*}}: state "narrow"[*] as f32
// F16-SAME: %[[M:.*]]: state "master"[*] as f32
// F16-NEXT: %[[H:.*]] = step.round %[[M]] to f16 : [*]
// F16-NEXT: step.compare eq, %[[H]], %[[P]] : [*]
// F16: %[[X1:.*]] = step.sub
// F16: %[[P1:.*]] = step.round %[[X1]] to f16 : [*]
// F16-NEXT: step.return %[[P1]], %[[X1]], %[[X1]]

// REMAINDER-LABEL: step.rule @opt_any_0
// REMAINDER-SAME: %[[P:.*]]: param[*] as bf16, %[[G:.*]]: grad[*] as bf16, %{{.*}}: state "narrow"[*] as bf16
// REMAINDER-SAME: %[[R:.*]]: state "remainder"[*] as i16) variant
// REMAINDER-NEXT: %[[X:.*]] = step.join_halves %[[P]], %[[R]] : [*]
// REMAINDER-NEXT: %[[X1:.*]] = step.sub %[[X]], %[[G]] : [*]
// REMAINDER-NEXT: %[[N:.*]] = step.round %[[X1]] to bf16 : [*]
// REMAINDER-NEXT: %{{.*}} = step.mul %[[N]], %[[X]] : [*]
// REMAINDER-NEXT: %[[P1:.*]] = step.upper_half %[[N]] : [*]
// REMAINDER-NEXT: %[[R1:.*]] = step.lower_half %[[N]] : [*]
// REMAINDER-NEXT: step.return %[[P1]], %[[N]], %[[R1]]

// What the rule asks of its own states says nothing of the master.
// F32-LABEL: step.rule @opt_matrix_1
// F32-SAME: %[[OWN:[a-z0-9_]+]]: fresh("m"), %{{.*}}: state "master"[n, m] as f32, %[[NEW:[a-z0-9_]+]]: fresh("master"))
// F32: step.select %[[NEW]], %{{.*}} : [n, m]
// F32: step.select %[[OWN]], %{{.*}} : [n, m]

// BOTH: {{^}}4{{$}}
step.optimizer @opt {
  step.rule @any(%p: param[*], %g: grad[*], %n: state "narrow"[*]) {
    %p1 = step.sub %p, %g : [*]
    %unused = step.mul %p1, %p : [*]
    step.return %p1, %p1
  }
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %m: state "m"[n, m], %first: fresh) {
    %m1 = step.select %first, %g, %m : [n, m]
    %p1 = step.sub %p, %m1 : [n, m]
    step.return %p1, %m1 : [n, m], [n, m]
  }
}
