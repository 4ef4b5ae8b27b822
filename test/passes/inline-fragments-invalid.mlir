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
    // expected-error @+1 {{'step.broadcast' op is no operation of a source definition}}
    %r = step.broadcast %p : [*] to [*]
    step.return %p
  }
}

// -----

step.fragment @inserted {
  step.rule @any(%g: grad[*]) {
    // expected-error @+1 {{'step.broadcast' op is no operation of a source definition}}
    %r = step.broadcast %g : [*] to [*]
    step.return %r
  }
}
