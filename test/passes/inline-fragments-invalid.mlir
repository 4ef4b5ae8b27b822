// RUN: stepc-opt %s -split-input-file -verify-diagnostics -step-inline-fragments

step.optimizer @lion {
  step.rule @matrix(%p: param[n, m], %g: grad[n, m], %m: state "m"[n, m]) {
    step.return %p, %m : [n, m], [n, m]
  }
}
// expected-error @+1 {{'step.fragment' op has state 'm', which rule 'matrix' has already}}
step.fragment @after {
  step.rule @any(%p: param[*], %m: state "m"[*]) {
    step.return %m
  }
}
