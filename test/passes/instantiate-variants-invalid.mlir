// RUN: split-file %s %t
// RUN: not stepc-opt --step-instantiate-variants='variants=option.fast=true' %t/opt.mlir 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not stepc-opt --step-instantiate-variants='variants=option.size=true' %t/conditions.mlir 2>&1 | FileCheck %s --check-prefix=INTEGER
// RUN: not stepc-opt --step-instantiate-variants='variants=option.flip=false' %t/conditions.mlir 2>&1 | FileCheck %s --check-prefix=NORULE
// RUN: not stepc-opt --step-instantiate-variants='variants=state.v=f32' %t/opt.mlir 2>&1 | FileCheck %s --check-prefix=STATE
// RUN: not stepc-opt --step-instantiate-variants='variants=state=f64' %t/opt.mlir 2>&1 | FileCheck %s --check-prefix=WIDE
// RUN: not stepc-opt --step-instantiate-variants='variants=param=f64;state=bf16' %t/opt.mlir 2>&1 | FileCheck %s --check-prefix=NARROW
// RUN: not stepc-opt --step-instantiate-variants='variants=param=f8' %t/opt.mlir 2>&1 | FileCheck %s --check-prefix=STORAGE
// RUN: not stepc-opt --step-instantiate-variants='variants=param' %t/opt.mlir 2>&1 | FileCheck %s --check-prefix=FORM
// RUN: not stepc-opt --step-instantiate-variants='variants=option.flip=1' %t/opt.mlir 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not stepc-opt --step-instantiate-variants='variants=params=f32' %t/opt.mlir 2>&1 | FileCheck %s --check-prefix=KEY
// RUN: not stepc-opt --step-instantiate-variants %t/open.mlir 2>&1 | FileCheck %s --check-prefix=OPEN
// RUN: stepc-opt --step-instantiate-variants='variants=option.g=true' %t/open.mlir | grep -c 'step.rule' | FileCheck %s --check-prefix=NAMED

// OPEN: 'step.optimizer' op has 7 derived options that a request leaves open, each with both values; at most 6 can be: a, b, c, d, e, f, g
// NAMED: {{^}}64{{$}}
// OPTION: opt.mlir:1:1: error: 'step.optimizer' op has no option 'fast' that is true or false
// INTEGER: error: 'step.optimizer' op has no option 'size' that is true or false
// NORULE: error: 'step.optimizer' op has no rule whose conditions on options hold in a requested variant
// STATE: opt.mlir:1:1: error: 'step.optimizer' op has no state 'v'
// WIDE: opt.mlir:3:3: error: 'step.rule' op would store 'm' as 'f64', which is wider than the compute type 'f32'
// NARROW: opt.mlir:3:3: error: 'step.rule' op would store 'm' as 'bf16' while computing in f64, which is not supported
// STORAGE: error: 'step.optimizer' op got a variant request with 'param=f8': storage 'f8' is none of f32, bf16, f16, f64
// FORM: got a variant request with 'param' is not of the form name=value
// VALUE: got a variant request with 'option.flip=1': '1' is neither true nor false
// KEY: got a variant request with 'params=f32': 'params' is none of param, grad, state, state.NAME, option.NAME, layout.DIM, rank

//--- opt.mlir
step.optimizer @opt {
  %flip = step.option "flip" = false
  step.rule @any(%p: param[*], %g: grad[*], %m: state "m"[*]) {
    step.return %p, %m
  }
}

//--- conditions.mlir
step.optimizer @conditions {
  %flip = step.option "flip" = false
  %size = step.option "size" = 128
  step.rule @any(%p: param[*], %g: grad[*]) where %flip, extent 0 ge %size {
    step.return %p
  }
}

//--- open.mlir
step.optimizer @open {
  %x = step.hyper "x" = 0.0
  %a = step.option "a" = %x gt 1.0
  %b = step.option "b" = %x gt 2.0
  %c = step.option "c" = %x gt 3.0
  %d = step.option "d" = %x gt 4.0
  %e = step.option "e" = %x gt 5.0
  %f = step.option "f" = %x gt 6.0
  %g = step.option "g" = %x gt 7.0
  step.rule @any(%p: param[*], %grad: grad[*]) {
    step.return %p
  }
}
