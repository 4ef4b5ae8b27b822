// RUN: split-file %s %t
// RUN: not stepc-opt --step-instantiate-variants='variants=param=bf16;master=remainder' --step-keep-masters %t/own.mlir 2>&1 | FileCheck %s --check-prefix=OWN
// RUN: not stepc-opt --step-instantiate-variants='variants=master=f32' %t/own.mlir 2>&1 | FileCheck %s --check-prefix=WIDE
// RUN: not stepc-opt --step-instantiate-variants='variants=param=bf16;master=f16' %t/own.mlir 2>&1 | FileCheck %s --check-prefix=FORM

// OWN: own.mlir:2:3: error: 'step.rule' op has a state 'remainder' of its own, which is what the parameter's master is kept in
// WIDE: own.mlir:2:3: error: 'step.rule' op would keep a master of 'param', which is stored as 'f32'; only bf16 has masters, and f16 those that are states
// FORM: got a variant request with 'master=f16': 'f16' is neither f32 nor remainder

//--- own.mlir
step.optimizer @opt {
  step.rule @any(%p: param[*], %g: grad[*], %r: state "remainder"[*]) {
    step.return %p, %r
  }
}
