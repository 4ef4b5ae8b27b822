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

// -----

// Also without fragments, and where nothing depends on it.
step.optimizer @inserted {
  step.rule @any(%p: param[*], %g: grad[*]) {
    // expected-error @+1 {{'step.round' op is no operation of a source definition}}
    %r = step.round %p to bf16 : [*]
    step.return %p
  }
}

// -----

step.fragment @inserted {
  step.rule @any(%g: grad[*]) {
    // expected-error @+1 {{'step.round' op is no operation of a source definition}}
    %r = step.round %g to bf16 : [*]
    step.return %r
  }
}
