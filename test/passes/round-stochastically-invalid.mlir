// RUN: split-file %s %t
// RUN: not stepc-opt --step-instantiate-variants='variants=param=bf16;rounding=stochastic' --step-round-stochastically %t/own.mlir 2>&1 | FileCheck %s --check-prefix=OWN
// RUN: not stepc-opt --step-instantiate-variants='variants=rounding=stochastic' %t/own.mlir 2>&1 | FileCheck %s --check-prefix=WIDE
// RUN: not stepc-opt --step-instantiate-variants='variants=grad=bf16;rounding=stochastic' %t/own.mlir 2>&1 | FileCheck %s --check-prefix=WIDE
// RUN: not stepc-opt --step-instantiate-variants='variants=param=bf16;master=f32;rounding=stochastic' %t/own.mlir 2>&1 | FileCheck %s --check-prefix=WIDE
// RUN: not stepc-opt --step-instantiate-variants='variants=param=bf16;rounding=up' %t/own.mlir 2>&1 | FileCheck %s --check-prefix=FORM

// OWN: own.mlir:2:11: error: 'step.hyper' op is called 'rounding_seed', as the seed of stochastic rounding is
// WIDE: own.mlir:1:1: error: 'step.optimizer' op would round stochastically, and no rule stores a state, or a param without a master, as bf16; nothing else is rounded so
// FORM: got a variant request with 'rounding=up': 'up' is not stochastic

//--- own.mlir
step.optimizer @opt {
  %seed = step.hyper "rounding_seed" = 0.0
  step.rule @any(%p: param[*], %g: grad[*]) {
    step.return %p
  }
}
